//! What HTTP lets a shared cache do, as functions of values: no socket, no file, no clock.
//!
//! ```text
//! request ─> RequestFacts ─┐                           ┌─> Serve, ServeStaleWhileRevalidate
//!                          ├─> reuse::decide(now) ─────┼─> Revalidate ─> 304 ─> update
//! meta bytes ─> StoredFacts┘                           └─> Forward, GatewayTimeout
//! reply ─> storing::judge ─> StoredFacts ─> Meta::write ─> meta bytes of the object
//! ```
//!
//! Always holds: nothing a peer sends makes these functions panic or allocate more than it sent; what is unclear
//! is read the way that forwards or revalidates, unless a section says otherwise; a stored reply's fields are
//! parsed once, when it is stored, so that a hit reads numbers.
//!
//! Not here: bodies, connections, collapsing of requests, and where an object lies.
//! Sources: RFC 9110 (semantics), 9111 (caching), 9112 (framing), 9211 (Cache-Status), 9213 (targeted fields),
//! 5861 (stale-while-revalidate, stale-if-error), 8246 (immutable). docs/design/http-cache-rules.md has the decisions.

pub mod cache_control;
pub mod cache_status;
pub mod completion;
pub mod conditional;
pub mod date;
pub mod facts;
pub mod forwarding;
pub mod framing;
pub mod freshness;
pub mod invalidation;
pub mod key;
pub mod lists;
pub mod policy;
pub mod ranges;
pub mod request;
pub mod reuse;
pub mod storing;
pub mod targeted;
pub mod update;
pub mod validators;
pub mod vary;

pub use cache_control::{RequestDirectives, ResponseDirectives};
pub use date::WallSeconds;
pub use facts::{Extent, Meta, MetaError, StoredFacts};
pub use policy::Policy;
pub use request::RequestFacts;
pub use reuse::{Reuse, decide};
pub use storing::{Exchange, Refusal, judge};
