//! What a segment's index said, learnt again when the index is lost.
//!
//! ```text
//! index file --> head and index records
//!            `-> head damaged: the index records' checksums tell the salt
//!            `-> no index records: data file --> each whole record --> an index record, marked as recovered
//! ```
//!
//! A data file does not tell which of its records count: tombstones and what they supersede are in indexes alone. After a clean
//! stop the table says. After any other stop a store keeps what it finds, marked; a cache drops all that it holds, as what
//! was purged may be among it.
//!
//! Always holds: nothing is deleted because something else is missing.
//! In `index`: an index read, or made from what else there is. In `records`: a data file gone through. In `cut`: an index that ends
//! too early or has holes. In `holes`: what may have been in these. In `misplaced`: files of other segments. In `adopt`: its records
//! count again, unless `superseded` knows better. In `reindex`: damaged indexes rewritten while the table is there. In `restore`: lost indexes rewritten.

pub(crate) mod adopt;
pub(crate) mod cut;
pub(crate) mod holes;
pub(crate) mod index;
pub(crate) mod misplaced;
pub(crate) mod records;
pub(crate) mod reindex;
pub(crate) mod restore;
pub(crate) mod superseded;
