//! The RunRecord: what was asked, on what, where, what came of it, and whether to believe it.
//!
//! Every benchmark ends in one, so that listing, comparing, exporting and drawing are written once. As
//! JSON it is schema 1, described field by field in `docs/record.md`; unknown fields are ignored on
//! reading, so that a newer Crumb's records can be listed by an older one.
//!
//! Always holds: open-loop runs fill `points`, closed-loop ones `phases`; `metrics` is flat and is what
//! comparing works on; a record with `complete: false` was cut short and holds what was measured so far.

mod figure_marks;
mod level;
mod possible;

use std::collections::BTreeMap;

pub use figure_marks::{FigureMark, FigureMarks};
use jiff::Timestamp;
#[cfg(test)]
pub(crate) use level::tests as level_tests;
pub use level::{BOUND_MISSED, LevelState, RATE_OFF};
use serde::{Deserialize, Serialize};

use crate::{
    BenchmarkRegistry, Environment, LatencyHistogram, LatencySummary, Metric, MetricDeclaration, TimeSeries,
    Verdict, declared,
};

/// Schema that this version writes and the newest that it reads.
pub const RECORD_SCHEMA: u32 = 1;

/// Name of a run: when it began, what it was, and four random hex digits. `20261121-180000-fstress-3f9a`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub String);

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Version of this shape: [`RECORD_SCHEMA`].
    pub schema: u32,
    /// Unique name of the run.
    pub id: RunId,
    /// `fstress`, `postmark`, ...
    pub benchmark: String,
    /// What the user calls this run in tables and plots; the target and workload when he gave nothing.
    pub label: String,
    /// Target URL as given.
    pub target: String,
    /// Begin of the run, UTC.
    pub started: Timestamp,
    /// End of the run, UTC.
    pub ended: Timestamp,
    /// The command line.
    pub command: Vec<String>,
    /// The checked configuration, in the benchmark's own terms.
    pub config: serde_json::Value,
    /// Machine and build.
    pub environment: Environment,
    /// Same seed, same operations.
    pub seed: u64,
    /// False when the run was interrupted or failed in the middle.
    pub complete: bool,
    /// Load points, in the order measured.
    #[serde(default)]
    pub points: Vec<LoadPoint>,
    /// Phases, in order.
    #[serde(default)]
    pub phases: Vec<Phase>,
    /// Curves over something else than load, such as the size of a directory.
    #[serde(default)]
    pub curves: Vec<Curve>,
    /// What was noted while it ran, by `crumb mark`, in the order of time.
    #[serde(default)]
    pub annotations: Vec<Annotation>,
    /// Where the run stands among repeats; none for a run made alone.
    #[serde(default)]
    pub series: Option<SeriesPlace>,
    /// The flat list of figures that comparing works on. Units in the names.
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
    /// Metrics that the run was to have and that could not be seen: name, and why in a sentence.
    #[serde(default)]
    pub not_seen: BTreeMap<String, String>,
    /// Metrics that answer the run's question, the best first; none: the benchmark's usual one.
    #[serde(default)]
    pub headline: Vec<String>,
    /// What its metrics and curves are, in the order in which a reader looks at them; of an earlier version: none.
    #[serde(default)]
    pub declarations: Vec<Metric>,
    /// Whether to believe it.
    pub verdict: Verdict,
}

/// Who decides when the next request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoopKind {
    /// The schedule: requests are sent when they are due, whatever the replies do.
    Open,
    /// The replies: a fixed number is kept outstanding and latency is measured from the send.
    Closed,
}

/// One load level of a sweep, measured after its warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadPoint {
    /// Open or closed loop.
    pub loop_kind: LoopKind,
    /// Requests a second that the schedule planned; none in a closed loop.
    pub offered_per_sec: Option<f64>,
    /// Requests kept outstanding in a closed loop; none in an open one.
    pub outstanding: Option<u32>,
    /// Requests a second that were sent.
    pub sent_per_sec: f64,
    /// Requests a second that were answered with success.
    pub achieved_per_sec: f64,
    /// Length of the warm-up, seconds.
    pub warm_s: f64,
    /// Length of the measured interval, seconds.
    pub measured_s: f64,
    /// Planned in the interval and never sent, because the server held up what was sent before.
    pub unsent: u64,
    /// Connections made again within the interval.
    pub reconnects: u64,
    /// Replies that could not be understood or matched.
    pub bad_replies: u64,
    /// Share of one core that the generating thread used in the interval, 0 to 1. Waiting by spinning is
    /// not counted as use.
    pub generator_busy: f64,
    /// Requests that were due before the reply they depend on had come, so that another was sent instead.
    #[serde(default)]
    pub overtaken: u64,
    /// Digest over the operations asked: equal for equal seeds, rates and file sets while `overtaken` is 0.
    #[serde(default)]
    pub operations_digest: String,
    /// Actual minus planned send time.
    pub lateness_us: LatencySummary,
    /// Latency of all operations that succeeded, and of those that were never answered with the time that was waited.
    pub latency_us: LatencySummary,
    /// The same, whole.
    pub histogram: LatencyHistogram,
    /// By operation, names as in RFC 1813 in lower case.
    pub ops: BTreeMap<String, OpStats>,
    /// By chain, named by its requests; empty for a workload without chains.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub chains: BTreeMap<String, ChainStats>,
    /// The files behind it.
    pub file_set: FileSetRecord,
    /// True when the server did not keep up with the offered rate.
    pub saturated: bool,
    /// Whether to believe it.
    pub verdict: Verdict,
    /// What each rank had in it, in the order of ranks; empty for a generator that was alone.
    #[serde(default)]
    pub parts: Vec<RankPart>,
    /// How exactly an open loop kept to its plan; none in a closed loop and in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing: Option<Pacing>,
    /// How it went over its time, with the warm-up; none in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_series: Option<TimeSeries>,
}

/// How exactly an open loop kept to its plan, and what that did to its latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pacing {
    /// Share of the requests that left together with the one before, 0 to 1, as a stall of the generator had held back both.
    #[serde(default)]
    pub sent_together_share: f64,
    /// Time that replies were there before the generator took them.
    #[serde(default)]
    pub reply_lateness_us: LatencySummary,
    /// Latency from the planned moment: with the generator's lateness of sending.
    #[serde(default)]
    pub latency_from_planned_us: LatencySummary,
    /// Latency from the moment a request was really sent, for those that waited for room in the transport as well.
    pub latency_from_sent_us: LatencySummary,
    /// The level's latency without what may be the generator's lateness of taking replies.
    pub latency_without_lateness_us: LatencySummary,
    /// Requests that were not answered. They are in the latencies with the time that was waited for them, so that the
    /// highest percentiles, mean and maximum are those figures at least.
    #[serde(default)]
    pub unanswered: u64,
    /// Share of the interval in which requests waited for a thread, slot or connection of the generator's, 0 to 1.
    #[serde(default)]
    pub transport_full_share: f64,
}

/// One rank's part in a load point that several generators offered together. The whole is their exact sum.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankPart {
    /// Its number, from 0.
    pub rank: u32,
    /// The host it ran on.
    pub host: String,
    /// Requests a second that its schedule planned; none in a closed loop.
    pub offered_per_sec: Option<f64>,
    /// Requests a second that it sent.
    pub sent_per_sec: f64,
    /// Requests a second that were answered with success.
    pub achieved_per_sec: f64,
    /// Share of what was due that was answered in time, 0 to 1.
    pub held: f64,
    /// Actual minus planned send time.
    pub lateness_us: LatencySummary,
    /// Latency of its operations that succeeded.
    pub latency_us: LatencySummary,
    /// Share of one core that its generating thread used, 0 to 1.
    pub generator_busy: f64,
    /// Operations that failed or were given up.
    pub errors: u64,
    /// Begin of its load point minus the common begin, as its estimate of rank 0's clock has it, microseconds.
    pub start_skew_us: f64,
    /// Half the shortest round trip by which the clocks were compared: how far that estimate may be off, microseconds.
    pub clock_uncertainty_us: f64,
}

/// The file set during a load point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileSetRecord {
    /// Files the configuration asks for at this load.
    pub files_asked: u64,
    /// Files there were when the interval ended.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Sum of file sizes.
    pub bytes: u64,
}

/// One kind of operation within a load point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpStats {
    /// Sent in the interval, each counted once however often it was retransmitted.
    pub attempted: u64,
    /// Answered with success.
    pub ok: u64,
    /// Retransmissions.
    pub retransmitted: u64,
    /// Given up after the last retransmission, or lost with a connection.
    pub cancelled: u64,
    /// Answered with an error, by name.
    pub errors: BTreeMap<String, u64>,
    /// Share of all attempts, percent.
    pub share_percent: f64,
    /// Share that the mix asks for, percent.
    pub share_asked_percent: f64,
    /// Share of the summed latency of all operations, percent.
    pub time_share_percent: f64,
    /// File bytes moved by successful operations.
    pub bytes: u64,
    /// Latency of the successful ones.
    pub latency_us: LatencySummary,
    /// The same, whole.
    pub histogram: LatencyHistogram,
}

/// What became of one chain of requests of a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChainStats {
    /// First requests sent in the interval.
    pub begun: u64,
    /// Chains of which every request succeeded.
    pub complete: u64,
    /// Chains ended by a request that was answered with an error.
    pub failed: u64,
    /// Chains ended by a request that was not answered, or cut off at the end.
    pub unanswered: u64,
    /// Requests sent, the first ones among them.
    pub requests_sent: u64,
    /// Requests that were not sent, as an earlier one of their chain failed or was not answered.
    pub requests_not_sent: u64,
    /// From the send of the first request to the last reply, of the complete ones.
    pub latency_us: LatencySummary,
    /// The same, whole.
    pub histogram: LatencyHistogram,
}

/// One stretch of a closed-loop run, or of a run's preparation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// What was done, such as `build` or `unbatch`.
    pub name: String,
    /// Which time round, from 1.
    pub pass: u32,
    /// Elapsed seconds.
    pub wall_s: f64,
    /// User CPU seconds of this process.
    pub user_s: f64,
    /// System CPU seconds of this process.
    pub sys_s: f64,
    /// Things done: files made, articles stored.
    pub items: u64,
    /// File bytes moved.
    pub bytes: u64,
    /// `items / wall_s`.
    pub items_per_sec: f64,
    /// Operating system counters over the phase; units in the names.
    #[serde(default)]
    pub counters: BTreeMap<String, f64>,
    /// How it went over its time; none for a phase without operations that were timed, and in older records.
    // Always written, also when empty: ranks send phases in a binary form in which fields have no names.
    #[serde(default)]
    pub time_series: Option<TimeSeries>,
}

/// What somebody noted while a run was under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Annotation {
    /// When, seconds since the run's begin.
    pub at_s: f64,
    /// What was written.
    pub text: String,
}

/// One figure drawn over another, for several variants of the thing measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// What is drawn upwards, its unit in the name, such as `lookup_random_us`.
    pub name: String,
    /// What is drawn to the right, such as `files`.
    pub over: String,
    /// The variants.
    pub lines: Vec<CurveLine>,
}

/// One variant's curve.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CurveLine {
    /// What distinguishes it, such as the layout's name.
    pub label: String,
    /// By rising `x`.
    pub points: Vec<CurvePoint>,
}

/// One point of a curve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// To the right.
    pub x: f64,
    /// Upwards: the median, where it was measured several times.
    pub y: f64,
    /// Lower end of the 95% confidence interval of `y`, where there is one.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

/// Where a run stands among interleaved repeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesPlace {
    /// The series: the name of its first run.
    pub of: RunId,
    /// Which of the things compared it measured: `A`, `B`, and so on.
    pub side: String,
    /// Place in the order of measuring, from 1.
    pub turn: u32,
}

/// A text that is not a RunRecord of a schema we know.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Not the JSON of a record.
    #[error("not a RunRecord")]
    Json(#[from] serde_json::Error),
    /// A load point that is none, or whose histograms are damaged.
    #[error("run {run}: load point {point} cannot be read")]
    Point {
        /// Name of the run.
        run: String,
        /// Place of the load point, from 1.
        point: usize,
        /// What reading said.
        source: serde_json::Error,
    },
    /// A number that no run can have.
    #[error("run {run}: {field} is {value}, which no run can have")]
    Number {
        /// Name of the run.
        run: String,
        /// Where it is.
        field: String,
        /// The number.
        value: f64,
    },
    /// A list of records that holds none.
    #[error("an empty list, without any RunRecord")]
    NoRuns,
    /// Written by a newer Crumb.
    #[error("RunRecord has schema {found}; this Crumb reads up to {RECORD_SCHEMA}: use a newer one")]
    Schema {
        /// Schema of the text.
        found: u64,
    },
}

/// Metrics that were called otherwise by earlier versions: their names then and now.
pub const RENAMED_METRICS: [(&str, &str); 1] = [("read_latency_us_max", "read_latency_max_us")];

impl RunId {
    /// A new name for a run of `benchmark` begun at `started`; `entropy` keeps runs of one second apart.
    pub fn new(benchmark: &str, started: Timestamp, entropy: u16) -> Self {
        Self(format!("{}-{benchmark}-{entropy:04x}", started.strftime("%Y%m%d-%H%M%S")))
    }
}

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl RunRecord {
    /// The record as indented JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a record holds nothing that JSON cannot")
    }

    /// Declares the metrics and curves that it has and those of `known` that answer the run's question, in the order of
    /// `known`; what is declared already stays as it is.
    pub fn declare(&mut self, known: &[MetricDeclaration]) {
        let names: Vec<&String> =
            self.metrics.keys().chain(self.curves.iter().map(|curve| &curve.name)).collect();
        let mut found: Vec<(usize, Metric)> = Vec::new();
        for name in names {
            if let Some(metric) = declared(known, name)
                && found.iter().all(|(_, other)| other.name != metric.name)
            {
                let of = known.iter().position(|one| one.name == name);
                let of = of.or_else(|| known.iter().position(|one| one.metric(name).is_some()));
                found.push((of.unwrap_or(known.len()), metric));
            }
        }
        for (at, answer) in known.iter().enumerate().filter(|(_, one)| one.headline && !one.is_family()) {
            if found.iter().all(|(_, other)| other.name != answer.name) {
                found.extend(answer.metric(answer.name).map(|metric| (at, metric)));
            }
        }
        found.sort_by_key(|(at, _)| *at);
        found.retain(|(_, metric)| self.declarations.iter().all(|known| known.name != metric.name));
        self.declarations.extend(found.into_iter().map(|(_, metric)| metric));
    }

    /// The same by the list of its benchmark, unless it has declarations of its own.
    #[must_use]
    pub fn declared_by(mut self, registry: BenchmarkRegistry) -> Self {
        if self.declarations.is_empty() {
            self.declare(registry.of(&self.benchmark).metrics);
        }
        self
    }

    /// What `name` is, by the record's own declarations, else by the name itself.
    pub fn metric(&self, name: &str) -> Metric {
        let known = self.declarations.iter().find(|metric| metric.name == name);
        known.cloned().unwrap_or_else(|| Metric::undeclared(name))
    }

    /// The metrics that answer its question, the best first: what it names itself, then its benchmark's usual ones.
    pub fn headlines(&self) -> impl Iterator<Item = &str> {
        let usual = self.declarations.iter().filter(|metric| metric.headline);
        self.headline.iter().map(String::as_str).chain(usual.map(|metric| metric.name.as_str()))
    }

    /// Names of its metrics in the order of its declarations, those that are not declared last and by name.
    pub fn metrics_in_order(&self) -> impl Iterator<Item = &str> {
        let is_declared = |name: &str| self.declarations.iter().any(|metric| metric.name == name);
        let first = self.declarations.iter().map(|metric| metric.name.as_str());
        let others = self.metrics.keys().map(String::as_str).filter(move |name| !is_declared(name));
        first.filter(|name| self.metrics.contains_key(*name)).chain(others)
    }

    /// Reads a record; the schema is looked at first, so that a newer one is named as such.
    ///
    /// # Errors
    /// When the text is not JSON, not a record, or of a newer schema.
    pub fn from_json(text: &str) -> Result<Self, RecordError> {
        Self::from_value(serde_json::from_str(text)?)
    }

    /// Reads a record of any origin, or a list of them as a series is written: one or more.
    ///
    /// # Errors
    /// As [`RunRecord::from_json`], for any of them; when a rate or time is one that no run can have; an empty list is no
    /// record.
    pub fn all_from_json(text: &str) -> Result<Vec<Self>, RecordError> {
        let records = match serde_json::from_str(text)? {
            serde_json::Value::Array(values) if values.is_empty() => return Err(RecordError::NoRuns),
            serde_json::Value::Array(values) => {
                values.into_iter().map(Self::from_value).collect::<Result<Vec<_>, _>>()?
            }
            one => vec![Self::from_value(one)?],
        };
        records.iter().try_for_each(possible::check)?;
        Ok(records)
    }

    fn from_value(value: serde_json::Value) -> Result<Self, RecordError> {
        match value.get("schema").and_then(serde_json::Value::as_u64) {
            Some(found) if found > u64::from(RECORD_SCHEMA) => Err(RecordError::Schema { found }),
            _ => {
                let mut record = Self::deserialize(&value).map_err(|error| located(&value, error))?;
                for (old, new) in RENAMED_METRICS {
                    if let Some(value) = record.metrics.remove(old) {
                        record.metrics.entry(new.to_owned()).or_insert(value);
                    }
                }
                Ok(record)
            }
        }
    }
}

/// The error of the first load point that cannot be read, else `error`.
fn located(record: &serde_json::Value, error: serde_json::Error) -> RecordError {
    let points = record.get("points").and_then(serde_json::Value::as_array);
    let failed = points
        .into_iter()
        .flatten()
        .enumerate()
        .find_map(|(index, point)| LoadPoint::deserialize(point).err().map(|source| (index + 1, source)));
    match (failed, record.get("id").and_then(serde_json::Value::as_str)) {
        (Some((point, source)), Some(run)) => RecordError::Point { run: run.to_owned(), point, source },
        _ => RecordError::Json(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BenchmarkEntry;

    #[test]
    fn a_newer_schema_is_refused_by_its_number() {
        let error = RunRecord::from_json(r#"{"schema": 7, "id": "x"}"#).unwrap_err();
        assert!(error.to_string().contains("schema 7"), "{error}");
    }

    #[test]
    fn a_metric_of_an_earlier_version_is_read_by_its_name_of_today() {
        let earlier = r#"{"schema": 1, "id": "x", "benchmark": "netnews", "label": "", "target": "",
            "started": "2026-11-21T18:00:00Z", "ended": "2026-11-21T18:00:00Z", "command": [], "config": null,
            "environment": ENVIRONMENT, "seed": 1, "complete": true,
            "metrics": {"read_latency_us_max": 7.5, "read_errors": 0}, "verdict": {"valid": true, "reasons": []}}"#;
        let environment = serde_json::to_string(&Environment::default()).unwrap();
        let record = RunRecord::from_json(&earlier.replace("ENVIRONMENT", &environment)).unwrap();
        assert_eq!(record.metrics.get("read_latency_max_us"), Some(&7.5));
        assert!(!record.metrics.contains_key("read_latency_us_max") && record.headline.is_empty());
        assert!(record.declarations.is_empty());
        const KNOWN: [MetricDeclaration; 3] = [
            MetricDeclaration::micros("read_latency_{figure}_us", "Latency, {figure}"),
            MetricDeclaration::rate("read_articles_per_sec", "Articles read").answers(),
            MetricDeclaration::count("never_there", "Never there"),
        ];
        let record = record.declared_by(BenchmarkRegistry::new(|_| Some(BenchmarkEntry::of(&KNOWN))));
        let names: Vec<&str> = record.declarations.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(names, ["read_latency_max_us", "read_articles_per_sec"]);
        assert_eq!(record.metric("read_latency_max_us").title, "Latency, max");
        assert_eq!(record.metric("read_errors").title, "Read errors", "by its name");
        assert_eq!(record.headlines().collect::<Vec<_>>(), ["read_articles_per_sec"]);
        assert_eq!(record.metrics_in_order().collect::<Vec<_>>(), ["read_latency_max_us", "read_errors"]);
    }

    /// A record of one load point, as JSON to be changed.
    fn record() -> serde_json::Value {
        let histogram = LatencyHistogram::new().encode();
        let latency = serde_json::to_value(LatencySummary::default()).unwrap();
        serde_json::json!({
            "schema": 1, "id": "a-run", "benchmark": "fstress", "label": "", "target": "",
            "started": "2026-11-21T18:00:00Z", "ended": "2026-11-21T18:00:00Z", "command": [], "config": null,
            "environment": Environment::default(), "seed": 1, "complete": true,
            "metrics": {"requests_per_sec": 7.0, "slope_us": -0.5}, "verdict": {"valid": true, "reasons": []},
            "phases": [{"name": "build", "pass": 1, "wall_s": 1.0, "user_s": 0.5, "sys_s": 0.5, "items": 3, "bytes": 9,
                "items_per_sec": 3.0}],
            "points": [{"loop_kind": "open", "offered_per_sec": 7.0, "outstanding": null, "sent_per_sec": 7.0,
                "achieved_per_sec": 7.0, "warm_s": 1.0, "measured_s": 1.0, "unsent": 0, "reconnects": 0, "bad_replies": 0,
                "generator_busy": 0.1, "lateness_us": latency, "latency_us": latency, "histogram": histogram, "ops": {},
                "file_set": FileSetRecord::default(), "saturated": false, "verdict": {"valid": true, "reasons": []}}]
        })
    }

    #[test]
    fn a_damaged_histogram_is_refused_by_the_name_of_its_run_and_the_number_of_its_load_point() {
        let mut json = record();
        assert_eq!(RunRecord::all_from_json(&json.to_string()).unwrap().len(), 1);
        json["points"][0]["histogram"] = "HISTFAAAAAB4".into();
        let error = RunRecord::from_json(&json.to_string()).unwrap_err();
        assert_eq!(error.to_string(), "run a-run: load point 1 cannot be read");
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("histogram"));
    }

    #[test]
    fn a_rate_or_a_time_that_no_run_can_have_is_refused_by_name() {
        for (place, value, named) in [
            ("/points/0/achieved_per_sec", -5.0, "load point 1, achieved_per_sec"),
            ("/points/0/offered_per_sec", 1e308, "load point 1, offered_per_sec"),
            ("/points/0/measured_s", -1.0, "load point 1, measured_s"),
            ("/points/0/latency_us/p99", -1.0, "load point 1, latency_us"),
            ("/phases/0/wall_s", -0.1, "phase build, wall_s"),
            ("/metrics/requests_per_sec", -7.0, "metric requests_per_sec"),
            ("/metrics/slope_us", 1e300, "metric slope_us"),
        ] {
            let mut json = record();
            *json.pointer_mut(place).unwrap() = value.into();
            let error = RunRecord::all_from_json(&json.to_string()).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("no run can have"), "{place}: {error}");
        }
    }

    #[test]
    fn a_run_is_named_by_its_time_and_benchmark() {
        let started: Timestamp = "2026-11-21T18:00:00Z".parse().unwrap();
        assert_eq!(RunId::new("fstress", started, 0x3f9a).0, "20261121-180000-fstress-3f9a");
    }
}
