//! System calls that no safe library has. All unsafe code of the workspace is here, behind safe functions.
//!
//! | module | what | for whom |
//! |---|---|---|
//! | `reads` | reads of files by io_uring(7) that an event loop does not wait for | the proxy |
//!
//! Not here: what rustix says safely, which is nearly all.

mod reads;

pub use reads::Reads;
