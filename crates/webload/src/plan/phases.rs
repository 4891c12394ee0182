//! When requests are due: phases one after the other, each with its pace.
//!
//! ```text
//! rate   .-------.        .----------.                  open: exponential gaps around a rate that goes straight
//!      /  fill    \______/   top      \___              closed: a request is due when a connection is free
//! ```

use std::time::Duration;

/// A stretch of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// What it is called in the record.
    pub name: &'static str,
    /// Who sets the pace.
    pub pace: Pace,
    /// When it is over.
    pub end: End,
    /// Whether it becomes a load point of the record.
    pub measured: bool,
    /// Share of the plan's recurrence at its begin and end, 0 to 1.
    pub recurrence: (f64, f64),
    /// Share of the plan's reloads and conditional requests, 0 to 1.
    pub special: f64,
}

/// Who says when the next request is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// The schedule: requests a second at the begin and at the end.
    Open {
        /// At the begin.
        from_per_sec: f64,
        /// At the end; of a phase that ends by bytes the same as at its begin.
        to_per_sec: f64,
    },
    /// The replies.
    Closed,
    /// The plan itself, which has times of its own.
    OfPlan,
}

/// When a phase is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// After this time.
    Time(Duration),
    /// When this many bytes of cacheable objects have been requested for the first time.
    NewBytes(u64),
    /// After this many requests.
    Requests(u64),
    /// When the plan has no more.
    OfPlan,
}

impl Phase {
    /// A phase that asks as the plan says.
    pub fn new(name: &'static str, pace: Pace, end: End) -> Self {
        Self { name, pace, end, measured: false, recurrence: (1.0, 1.0), special: 1.0 }
    }

    /// The same as a load point.
    pub fn measured(self) -> Self {
        Self { measured: true, ..self }
    }

    /// Whether requests are due whatever the replies do.
    pub(crate) fn is_open(&self) -> bool {
        self.pace != Pace::Closed
    }

    /// One generator's part of it when there are several.
    pub(crate) fn part(&self, threads: u64) -> Self {
        let pace = match self.pace {
            Pace::Open { from_per_sec, to_per_sec } => Pace::Open {
                from_per_sec: from_per_sec / threads as f64,
                to_per_sec: to_per_sec / threads as f64,
            },
            other => other,
        };
        let end = match self.end {
            End::NewBytes(bytes) => End::NewBytes(bytes.div_ceil(threads)),
            End::Requests(requests) => End::Requests(requests.div_ceil(threads)),
            other => other,
        };
        Self { pace, end, ..*self }
    }

    /// How far a phase that ends by time has come, 0 to 1.
    pub(crate) fn share_at(&self, since: Duration) -> f64 {
        match self.end {
            End::Time(length) => (since.as_secs_f64() / length.as_secs_f64().max(1e-9)).min(1.0),
            _ => 0.0,
        }
    }

    /// Requests a second then; nothing where no rate is planned.
    pub(crate) fn rate_at(&self, since: Duration) -> Option<f64> {
        match self.pace {
            Pace::Open { from_per_sec, to_per_sec } => {
                Some(from_per_sec + (to_per_sec - from_per_sec) * self.share_at(since))
            }
            Pace::Closed | Pace::OfPlan => None,
        }
    }

    /// Share of the plan's recurrence then.
    pub(crate) fn recurrence_at(&self, since: Duration) -> f64 {
        self.recurrence.0 + (self.recurrence.1 - self.recurrence.0) * self.share_at(since)
    }

    /// Mean of the planned rate over the phase, requests a second.
    pub(crate) fn rate_mean(&self) -> Option<f64> {
        match self.pace {
            Pace::Open { from_per_sec, to_per_sec } => Some((from_per_sec + to_per_sec) / 2.0),
            Pace::Closed | Pace::OfPlan => None,
        }
    }
}
