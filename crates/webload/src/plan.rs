//! What is asked, request after request: the deterministic half of a robot.
//!
//! Plans by kind are `polymix`, `object_set` and `trace`; `phases` says when their requests are due. What an object is stands in
//! `object`, its bytes in `body`.

pub(super) mod body;
pub(super) mod object;
pub(super) mod object_set;
pub(super) mod phases;
pub(super) mod polymix;
pub(super) mod trace;

use std::sync::Arc;
use std::time::Duration;

use self::object::Object;
use self::object_set::{ObjectSet, ObjectSetPlanner, SetUse};
use self::polymix::{Generation, PolyMix, PolyMixPlanner};
use self::trace::{Trace, TracePlanner};
use crate::origin::ThinkTime;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Unconditional: cache or origin may answer.
    Plain,
    /// If-Modified-Since a time before its last change: the whole object must come.
    ImsChanged,
    /// If-Modified-Since its last change: 304 is enough.
    ImsUnchanged,
    /// Past all caches.
    Reload,
}

impl Class {
    /// All.
    pub const ALL: [Self; 4] = [Self::Plain, Self::ImsChanged, Self::ImsUnchanged, Self::Reload];

    /// Its name in the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::ImsChanged => "if-modified-200",
            Self::ImsUnchanged => "if-modified-304",
            Self::Reload => "reload",
        }
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Planned {
    pub object: Object,
    pub class: Class,
    pub robot: u32,
    /// A cache that had kept everything would answer it.
    pub could_hit: bool,
    /// Asked for the first time.
    pub is_new: bool,
    /// The rest of its URL: place and length in the trace's text.
    pub tail: (u32, u32),
    /// When the plan has times of its own: since the first request.
    pub due: Duration,
}

/// What a run asks for.
#[derive(Clone, Debug)]
pub enum Plan {
    /// PolyMix's robots.
    PolyMix(PolyMix),
    /// A set of objects, made known or not.
    Objects(ObjectSet),
    /// What others asked for once.
    Trace(Arc<Trace>),
}

pub(crate) enum Planner {
    PolyMix(Box<PolyMixPlanner>),
    Objects(Box<ObjectSetPlanner>),
    Trace(TracePlanner),
}

/// One generator of several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub number: u64,
    pub of: u64,
    pub seed: u64,
}

impl Plan {
    /// What records and users call it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::PolyMix(PolyMix { generation: Generation::Three, .. }) => "polymix-3",
            Self::PolyMix(PolyMix { generation: Generation::Four, .. }) => "polymix-4",
            Self::Objects(ObjectSet { used: SetUse::Again { .. }, .. }) => "hits",
            Self::Objects(ObjectSet { used: SetUse::New, .. }) => "stores",
            Self::Trace(_) => "trace",
        }
    }

    /// What its origin does unless the user says otherwise: its think time, and the most
    /// requests that it answers on a connection, drawn by Zipf's law.
    pub fn origin_manner(&self) -> (ThinkTime, Option<u32>) {
        match self {
            Self::PolyMix(_) => (ThinkTime::POLYMIX, Some(ORIGIN_REQUESTS_ZIPF)),
            Self::Objects(_) | Self::Trace(_) => (ThinkTime::default(), None),
        }
    }

    pub(crate) fn planner(&self, share: Share) -> Planner {
        match self {
            Self::PolyMix(config) => Planner::PolyMix(Box::new(PolyMixPlanner::new(config, share))),
            Self::Objects(set) => Planner::Objects(Box::new(ObjectSetPlanner::new(set, share))),
            Self::Trace(trace) => Planner::Trace(TracePlanner::new(Arc::clone(trace), share)),
        }
    }
}

/// Requests that PolyMix's origin answers on a connection, at most.
const ORIGIN_REQUESTS_ZIPF: u32 = 16;

impl Planner {
    /// The next request of a phase: `recurrence` and `special` are the shares that the phase asks for.
    #[inline]
    pub fn next(&mut self, phase: usize, recurrence: f64, special: f64) -> Option<Planned> {
        match self {
            Self::PolyMix(planner) => Some(planner.next(recurrence, special)),
            Self::Objects(planner) => planner.next(phase),
            Self::Trace(planner) => planner.next(),
        }
    }

    /// The rest of a URL.
    pub fn tail(&self, tail: (u32, u32)) -> &str {
        match self {
            Self::Trace(planner) => planner.tail(tail),
            _ => "",
        }
    }
}
