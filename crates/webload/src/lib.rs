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
mod body;
mod client;
mod config;
mod curves;
mod error;
mod generator;
mod http_date;
mod judge;
mod limits;
mod object;
mod object_set;
mod origin;
mod part;
mod phases;
mod plan;
mod poller;
mod polymix;
mod run;
mod slots;
mod tally;
mod through;
mod trace;
mod views;
mod watch;
mod wire;

pub use benchmark::Webload;
pub use body::{Body, BodyCheck, BodyFault};
pub use error::WebloadError;
pub use judge::METRICS;
pub use limits::THREADS_MAX;
pub use object::{Kind, Object};
pub use object_set::{ObjectSet, SetUse};
pub use origin::{Origin, OriginCounters, OriginOptions, ThinkTime};
pub use part::Part;
pub use phases::{End, Pace, Phase};
pub use plan::{Class, Plan};
pub use polymix::{Generation, PolyMix};
pub use run::{Event, Live, Pool, Route, WebloadConfig, run};
pub use through::{Authority, Peer, PeerError, Through};
pub use trace::{Trace, TraceFormat};
pub use views::{ENTRY, views};
