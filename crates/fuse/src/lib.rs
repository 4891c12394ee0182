//! The way from the kernel to a file system of ours: mounting by `/dev/fuse`, and the floor.
//!
//! ```text
//! program -> kernel (FUSE) -> /dev/fuse -> fuser -> stackfs | Floor
//! ```
//!
//! The *floor* is a file system that answers from memory with no tree below it, with the replies of `stackfs`: what it takes is the
//! price of the requests themselves, and no daemon with the same requests gets below it.
//!
//! Always holds: a mount is taken away by the place where it was made, following no link.
//! Not here: what `stackfs` answers, and how its threads wait for requests.

mod floor;
mod mounting;
mod nodes;

pub use floor::{FLOOR_TYPE, Floor};
pub use mounting::{DEVICE, DetachError, NewMount, detach, device};
