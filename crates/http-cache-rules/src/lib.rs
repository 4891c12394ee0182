//! What HTTP allows a shared cache to do, as pure functions: no socket, no file, no clock.
//!
//! ```text
//! request ─> RequestFacts ─┐
//! meta bytes ─> Meta ──────┴─> decide ─┬─> Stored ─> conditional, ranges ─> client
//!                                      ├─> Fetch ─> conditional::set_conditions ─> upstream ─┐
//!                                      └─> Wait, Complete, Tunnel, Local                     │
//!         ┌──────────────────────────────────────────────────────────────────────────────────┘
//!         └─> decide_response ─┬─> Merge ─> update ─> as Stored
//!                              ├─> Store ─> facts::meta_bytes, forwarding::storable_fields ─> the store
//!                              └─> PassOn, ServeStale, RetryUnconditional, NextUpstream, ...
//! ```
//!
//! A proxy looks a request up, calls [`decide`](decide::decide), and carries out the [`Action`](decide::Action). After a fetch
//! it calls [`decide_response`](response::decide_response) with the outcome. The time is a parameter of both.
//!
//! ```
//! use http::{HeaderMap, Method, StatusCode, Uri};
//! use http_cache_rules::decide::{Found, Reply, Request, decide};
//! use http_cache_rules::response::{FetchOutcome, ResponseAction, decide_response};
//! use http_cache_rules::{Exchange, Meta, Policy, RequestFacts, WallSeconds, facts};
//!
//! let policy = Policy::default();
//! let noon = WallSeconds(1_795_348_800);
//! let (fields, target) = (HeaderMap::new(), Uri::from_static("http://a.example/x"));
//! let facts_of_request = RequestFacts::of(&Method::GET, &fields);
//! let request = Request {
//!     method: &Method::GET, headers: &fields, facts: &facts_of_request, has_body: false, upgrades: false,
//! };
//!
//! // Nothing is stored: the request goes to the origin, and later requests may wait for its reply.
//! let Reply::Fetch(fetch) = decide(&request, Found::Nothing, &policy, noon).reply else { panic!() };
//! assert!(fetch.collapse);
//!
//! // The origin's reply may be stored.
//! let mut reply = HeaderMap::new();
//! reply.insert("cache-control", "max-age=60".parse()?);
//! let exchange = Exchange {
//!     target: &target, request: &facts_of_request, request_headers: &fields,
//!     requested_at: noon, answered_at: noon, status: StatusCode::OK, headers: &reply,
//! };
//! let action = decide_response(&request, None, FetchOutcome::Reply(&exchange), &policy, noon);
//! let ResponseAction::Store { facts, .. } = action else { panic!() };
//! let meta_bytes = facts::meta_bytes(facts, &reply, &fields);
//!
//! // Half a minute later the stored reply answers the same request, at an age of 30 s.
//! let meta = Meta::from_bytes(&meta_bytes)?;
//! let later = WallSeconds(noon.0 + 30);
//! let action = decide(&request, Found::Reply(&meta), &policy, later);
//! assert_eq!(action.reply, Reply::Stored { age_s: 30, stale: false });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each rule can be used on its own:
//!
//! ```
//! use http_cache_rules::framing::{BodyLength, Violation, check_request};
//!
//! let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
//! assert_eq!(check_request(head).map(|framing| framing.body), Ok(BodyLength::Bytes(5)));
//! let smuggled = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
//! assert_eq!(check_request(smuggled), Err(Violation::TwoLengths));
//! ```
//!
//! Always holds: no input from a peer makes these functions panic, or allocate more than it sent. Ambiguous input is read in the
//! way that forwards or revalidates, unless an RFC says otherwise. The fields of a stored reply are parsed once, when it is
//! stored, so that a hit reads numbers.
//!
//! Not here: bodies, connections, request collapsing, and where an object is stored.
//! Sources: RFC 9110 (semantics), 9111 (caching), 9112 (framing), 9211 (Cache-Status), 9213 (targeted fields),
//! 5861 (stale-while-revalidate, stale-if-error), 8246 (immutable). docs/design/http-cache-rules.md has the decisions.

pub mod decide;
pub mod facts;
mod fields;
pub mod freshness;
pub mod invalidation;
pub mod key;
mod messages;
pub mod policy;
pub mod request;
pub mod response;
pub mod reuse;
pub mod storing;
pub mod update;

pub use fields::{cache_control, cache_status, date, lists, targeted, validators, vary};
pub use messages::{completion, conditional, forwarding, framing, ranges};

pub use decide::{Action, Fetch, Found, Local, Reply, Request, decide};
pub use facts::{Extent, Meta, MetaError, StoredFacts};
pub use fields::cache_control::{RequestDirectives, ResponseDirectives};
pub use fields::date::WallSeconds;
pub use policy::Policy;
pub use request::RequestFacts;
pub use response::{FetchOutcome, ResponseAction, Role, Stored, decide_response};
pub use reuse::Reuse;
pub use storing::{Exchange, Refusal, judge};
