//! What every benchmark says of its records, by its name: `report` knows benchmarks only through this registry.
//!
//! A benchmark that is added gets a line in [`entry`], and needs no edit in `report`.

use harness::open_loop::GeneratorLimits;
use measure::{BenchmarkEntry, BenchmarkRegistry, MetricDeclaration};

#[cfg(feature = "mount")]
use crate::verbs::mount;

/// All benchmarks of this program.
pub const REGISTRY: BenchmarkRegistry = BenchmarkRegistry::new(entry).marking_moved(is_moved);

/// The names of all of them.
pub const NAMES: &[&str] = &[
    "fstress",
    "postmark",
    "netnews",
    "dirscale",
    "webload",
    "overhead",
    #[cfg(feature = "mount")]
    "mount",
];

/// Whether the generator's lateness moved a latency too far: with it and without it, in microseconds.
fn is_moved(with_us: f64, without_us: f64) -> bool {
    GeneratorLimits::default().is_moved(with_us, without_us)
}

/// What `benchmark` says of its records; nothing for one that is not known here.
pub fn entry(benchmark: &str) -> Option<BenchmarkEntry> {
    Some(match benchmark {
        "fstress" => fstress::ENTRY,
        "postmark" => postmark::ENTRY,
        "netnews" => netnews::ENTRY,
        "dirscale" => dirscale::ENTRY,
        "webload" => webload::ENTRY,
        "overhead" => overhead::ENTRY,
        #[cfg(feature = "mount")]
        "mount" => mount::ENTRY,
        _ => return None,
    })
}

/// The metrics that `benchmark` declares, by order of interest; none of one that is not known here.
pub fn of(benchmark: &str) -> Vec<MetricDeclaration> {
    REGISTRY.of(benchmark).metrics.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_an_entry_with_metrics() {
        for name in NAMES {
            assert!(!REGISTRY.of(name).metrics.is_empty(), "{name}");
        }
        assert!(entry("of another version").is_none());
    }
}
