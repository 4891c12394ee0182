//! The caching web proxy on the packed store.
//!
//! ```text
//! head from the wire ─> rules::framing ─> rules ─> serve │ revalidate │ forward
//! ```
//!
//! Now: [`rules`], what HTTP lets a shared cache do, without a socket, a file or a clock.
//! Not here: the store's layout (`packstore`), traffic (`webload`), flags and output (`crumb`).

pub mod rules;

// What a caller names at every request; the rest is asked for by its module.
pub use rules::{Exchange, Refusal, Reuse, decide, judge};
pub use rules::{Extent, Meta, MetaError, Policy, RequestFacts, StoredFacts, WallSeconds};
