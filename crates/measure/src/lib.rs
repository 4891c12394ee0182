//! What every run is measured with, and the one shape in which every run ends.
//!
//! ```text
//! benchmark -> LatencyHistogram, CpuMeter -> LoadPoint / Phase -> RunRecord -> JSON, store, report
//! ```
//!
//! Always holds: every request that was due has a latency, whether or not earlier ones were answered; histograms are kept whole, so that
//! percentiles can be computed later and runs can be merged; a number carries its unit in its name.
//! Not here: drawing and storing records (see `report`), deciding what to measure (the benchmarks).

mod answer;
mod bound;
mod caches;
mod cost;
mod cpu;
mod disk;
mod disturbance;
mod environment;
mod error_chain;
mod grouped;
mod latency;
mod load_curve;
mod memory;
mod metric;
pub mod numbers;
pub mod proc;
mod process_use;
mod prometheus;
pub mod quantity;
mod record;
mod registry;
pub mod statistics;
mod text_file;
mod time_series;
mod value_error;
mod verdict;
pub mod view;

pub use answer::{Answer, RateMark};
pub use bound::{Bound, Usage};
pub use caches::{CacheControl, CacheState, Forget, KernelCaches, UnreachableCaches};
pub use cost::{
    COST_METRICS, COST_OF_RANKS, KeptFiles, NO_DEVICE, Seen, StorageCost, section as cost_section,
};
pub use cpu::{CpuMeter, CpuTimes};
pub use disk::{DEVICE_METRICS, DiskMeter, DiskUse};
pub use disturbance::{
    EndedThreads, MACHINE_DISTURBED, MACHINE_METRICS, MachineLog, MachineMeter, MachineUse, MeasuringThread,
    MeterScope,
};
pub use environment::{Environment, MountPoint};
pub use error_chain::error_chain;
pub use grouped::grouped_number;
pub use latency::{HistogramError, LatencyHistogram, LatencySummary};
pub use load_curve::{KeptBound, LoadCurve};
pub use memory::memory_bytes;
pub use metric::{Better, Metric, MetricDeclaration, declared};
pub use process_use::{ProcessUse, ProcessWatch};
pub use prometheus::{
    CONTENT_TYPE as PROMETHEUS_CONTENT_TYPE, PrometheusKind, PrometheusMetric, PrometheusPage,
};
pub use record::{
    Annotation, BOUND_MISSED, ChainStats, Curve, CurveLine, CurvePoint, FigureMark, FigureMarks,
    FileSetRecord, LevelState, LoadPoint, LoopKind, OpStats, Pacing, Phase, RATE_OFF, RECORD_SCHEMA,
    RENAMED_METRICS, RankPart, RecordError, RunId, RunRecord, SeriesPlace,
};
pub use registry::{BenchmarkEntry, BenchmarkRegistry, Role};
pub use text_file::{RECORDS_BYTES_MAX, SETTINGS_BYTES_MAX, read_text, text_from};
pub use time_series::{LapRecorder, StepCounts, TimeSeries, TimeSeriesRecorder, TimeStep};
pub use value_error::ValueError;
pub use verdict::{Reason, Verdict};
