//! A mount's census as a run's record, and the day's mix of operations out of such a record.
//!
//! ```text
//! Census -> phase `mounted`, counters lookup_count, lookup_failed, lookup_mean_us, ... -> store, report
//!                                                                                      -> Frequencies -> advise
//! ```

use anyhow::bail;
use dirscale::Frequencies;
use measure::{BenchmarkEntry, MetricDeclaration, Phase, Role, RunRecord};
use stackfs::views::PHASE;
use stackfs::{Census, StackOptions, Timeouts, Waiting};

const DAY_S: f64 = 86_400.0;

/// Which counters of a mount are entries made. A link and a rename make a name, as a creation does.
const MAKING: [&str; 6] = ["create", "mknod", "mkdir", "symlink", "link", "rename"];
const REMOVING: [&str; 3] = ["unlink", "rmdir", "rename"];

/// What a mount says of its records.
pub const ENTRY: BenchmarkEntry = BenchmarkEntry {
    settings: &[("lower", Role::Place), ("mountpoint", Role::Place)],
    answer: stackfs::views::answer,
    views: stackfs::views::views,
    ..BenchmarkEntry::of(METRICS)
};

/// What [`filled`] emits; a family for each operation that occurred.
const METRICS: &[MetricDeclaration] = &[
    MetricDeclaration::micros("{op}_p50_us", "{op} latency p50"),
    MetricDeclaration::micros("{op}_p99_us", "{op} latency p99"),
    MetricDeclaration::rate("{op}_per_sec", "{op}"),
    MetricDeclaration::percent("table_1_{row}_share_percent", "Share in table 1, {row}"),
];

/// The census as a run's record: one phase with all counts and latencies, and as metrics what comparing needs.
pub fn filled(mut record: RunRecord, config: serde_json::Value, census: &Census) -> RunRecord {
    let total = census.total();
    let wall_s = census.elapsed.as_secs_f64();
    let per_sec = |count: f64| count / wall_s.max(f64::MIN_POSITIVE);
    let mut phase = Phase { name: PHASE.to_owned(), pass: 1, wall_s, items: total, ..Phase::default() };
    phase.items_per_sec = per_sec(total as f64);
    for (operation, counted) in &census.operations {
        let (name, of) = (operation.name(), counted.latency.summary());
        for (what, value) in [
            ("count", of.count as f64),
            ("failed", counted.failed as f64),
            ("mean_us", of.mean),
            ("p50_us", of.p50),
            ("p90_us", of.p90),
            ("p99_us", of.p99),
            ("p999_us", of.p999),
            ("max_us", of.max),
        ] {
            phase.counters.insert(format!("{name}_{what}"), value);
        }
        record.metrics.insert(format!("{name}_p50_us"), of.p50);
        record.metrics.insert(format!("{name}_p99_us"), of.p99);
        record.metrics.insert(format!("{name}_per_sec"), per_sec(of.count as f64));
    }
    for (name, _, share) in census.table_1() {
        record.metrics.insert(format!("table_1_{}_share_percent", name.replace(' ', "_")), share);
    }
    record.phases.push(phase);
    record.config = config;
    record.declare(METRICS);
    record
}

/// How it was mounted, with the time-outs in force.
pub fn config_of(options: &StackOptions, timeouts: &Timeouts, waiting: &Waiting) -> serde_json::Value {
    serde_json::json!({
        "lower": options.lower.display().to_string(),
        "mountpoint": options.mountpoint.display().to_string(),
        "layout_new": options.layout_new.name(),
        "exclusive": options.exclusive,
        "entry_timeout_s": timeouts.entry.as_secs_f64(),
        "attributes_timeout_s": timeouts.attributes.as_secs_f64(),
        "missing_timeout_s": timeouts.missing.as_secs_f64(),
        "no_open": options.no_open,
        "passthrough": options.passthrough,
        "transport": waiting.transport.name(),
        "awake": waiting.awake,
        "readers": waiting.readers.name(),
        "access_lists": options.access_lists,
        "extended": options.extended,
        "read_only": options.read_only,
        "threads": options.threads,
        "watch": options.watch,
        "directories_max": options.directories_max,
    })
}

/// Operations a day at the rate of a mount's census, and the seconds that it counted for.
///
/// A listing counts once however many requests it took. What was asked of files alone has no place in it.
///
/// # Errors
/// When it is no record of a mount, or of one that was asked nothing.
pub fn day_of(record: &RunRecord) -> anyhow::Result<(Frequencies, f64)> {
    let phase = record.phases.iter().find(|phase| record.benchmark == "mount" && phase.name == PHASE);
    let Some(phase) = phase.filter(|phase| phase.wall_s.is_finite() && phase.wall_s > 0.0) else {
        bail!(
            "run {} is of {}, not of a mount; `crumb runs list` shows what there is",
            record.id,
            record.benchmark
        );
    };
    let sum = |names: &[&str]| -> f64 {
        let counts = names.iter().filter_map(|name| phase.counters.get(&format!("{name}_count")));
        counts.filter(|count| count.is_finite() && **count > 0.0).sum::<f64>() * DAY_S / phase.wall_s
    };
    // Counting listings by their requests would count a large directory's reading many times.
    let listings = sum(&["opendir"]).min(sum(&["readdir"]));
    let day = Frequencies {
        lookup: sum(&["lookup"]),
        unlink: sum(&REMOVING),
        create: sum(&MAKING),
        readdir: listings,
    };
    if day.per_day() <= 0.0 {
        bail!("run {}: the mount counted no operation on directories", record.id);
    }
    Ok((day, phase.wall_s))
}
