//! Other caches, siblings and parents: querying them by ICP, and answering their queries.
//!
//! ```text
//! a miss here ─> neighbours (ICP queries) ─> siblings (fetch the hit)      hashing: the parent of a URL
//! queries from other caches ─> answering
//! ```

pub(super) mod answering;
pub(super) mod hashing;
pub(super) mod neighbours;
pub(super) mod siblings;
