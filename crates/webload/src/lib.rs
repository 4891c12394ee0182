//! HTTP load for caching proxies: robots and an origin server with PolyMix traffic, plain object sets, and traces.
//!
//! ```text
//! Plan (PolyMix, object set, trace) -> phases -> generator: epoll, robots' connections -> proxy -> Origin
//!   what is asked, what could hit      when         every reply checked  -> tallies -> points, phases, curves
//! ```
//!
//! Always holds: the schedule alone says when a request is due, and latency counts from there; same seed, same
//! requests; every reply is compared with what its URL and version say it must be; whether a reply came from a cache
//! is seen from the reply and not believed from a header of the proxy's.
//! Not here: the proxy (see `webcache`); this crate sees one only through its port.
//! Source: Web Polygraph's PolyMix-3 and PolyMix-4, as far as `docs/design/webload.md` says.

mod benchmark;
mod error;
mod generator;
mod origin;
mod plan;
mod results;
mod run;
mod sockets;
mod views;
mod wire;

pub use benchmark::Webload;
pub use error::WebloadError;
pub use origin::{Origin, OriginCounters, OriginOptions, ThinkTime};
pub use plan::body::{Body, BodyCheck, BodyFault};
pub use plan::object::{Kind, Object};
pub use plan::object_set::{ObjectSet, SetUse};
pub use plan::phases::{End, Pace, Phase};
pub use plan::polymix::{Generation, PolyMix};
pub use plan::trace::{Trace, TraceFormat};
pub use plan::{Class, Plan};
pub use results::judge::METRICS;
pub use results::part::Part;
pub use run::limits::THREADS_MAX;
pub use run::through::{Authority, Peer, PeerError, Through};
pub use run::{Event, Live, PhaseProgress, Pool, Route, WebloadConfig, run};
pub use views::{ENTRY, views};
