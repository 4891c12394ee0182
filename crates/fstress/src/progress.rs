//! What a run tells while it goes on. Nothing here waits: the listener must not block the metronome.

use std::time::Duration;

use measure::LoadPoint;

/// Something that happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The file set is being grown, shrunk or adopted.
    FileSet {
        /// What is done to it.
        work: SetWork,
        /// Objects done so far.
        done: u64,
        /// Objects to do.
        asked: u64,
        /// File bytes written so far.
        bytes: u64,
    },
    /// A load point begins.
    PointBegins {
        /// Requests a second; none in a closed loop.
        offered_per_sec: Option<f64>,
        /// Its number, from 1.
        number: u32,
        /// How many there will be, when that is known.
        of: Option<u32>,
        /// Warm-up and measured interval.
        spans: (Duration, Duration),
    },
    /// A look at the load point that is under way.
    Live(Live),
    /// A load point is done.
    PointDone(Box<LoadPoint>),
    /// Something the user should know now.
    Note(String),
}

/// What is done to a file set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SetWork {
    Grow,
    Shrink,
    Adopt,
    Remove,
}

/// Which part of a load point is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Stage {
    Warm,
    Measure,
}

/// How a load point goes, over the last half second.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// Warm-up or measured interval.
    pub stage: Stage,
    /// Since the load point began.
    pub elapsed: Duration,
    /// Requests sent a second.
    pub sent_per_sec: f64,
    /// Requests answered with success a second.
    pub achieved_per_sec: f64,
    /// Median latency.
    pub p50: Duration,
    /// 99th percentile of latency.
    pub p99: Duration,
    /// Errors since the load point began.
    pub errors: u64,
}
