//! What every benchmark says of its records, by its name: `report` knows benchmarks only through this registry.
//!
//! A benchmark that is added gets a line in [`entry`], and needs no edit in `report`.

use measure::{BenchmarkEntry, BenchmarkRegistry, MetricDeclaration};

#[cfg(feature = "mount")]
use crate::verbs::mount;

/// All benchmarks of this program.
pub const REGISTRY: BenchmarkRegistry = BenchmarkRegistry::new(entry);

/// The names of all of them.
pub const NAMES: &[&str] = &[
    "fstress",
    "postmark",
    "netnews",
    "dirscale",
    "webload",
    #[cfg(feature = "mount")]
    "mount",
];

/// What `benchmark` says of its records; nothing for one that is not known here.
pub fn entry(benchmark: &str) -> Option<BenchmarkEntry> {
    Some(match benchmark {
        "fstress" => fstress::ENTRY,
        "postmark" => postmark::ENTRY,
        "netnews" => netnews::ENTRY,
        "dirscale" => dirscale::ENTRY,
        "webload" => webload::ENTRY,
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
