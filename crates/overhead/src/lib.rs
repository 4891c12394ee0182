//! What a layer adds to each operation of the file system below it.
//!
//! ```text
//! round 1: create below, create through the mount | stat below, stat through the mount | ... | unlink ...
//! round 2: create through the mount, create below | ...           (the other side first)
//!          a third side where FUSE can be mounted: the floor, which answers from memory
//!   -> Samples of pairs -> time added, share of the rate below, each with its interval
//! once, not timed: a few of each operation through the mount -> requests that the kernel sent for them
//! ```
//!
//! The same system calls are made in a directory of the lower file system and in one of the mount, on relative names, by one
//! thread. Closed loop: it reports what an operation costs and not how load is borne.
//!
//! Always holds: both sides of a pair follow each other at once, so that what drifts in the machine meets both; what was made is
//! removed.
//! Not here: mounting the layer, and naming it (a mount of any kind does); what the floor answers (`fuse`).
//! Source: Zadok and Badulescu, "Usenetfs", CUCS-022-98, section 5 (the cost of the stackable layer itself).

mod benchmark;
mod build;
mod config;
mod entry;
mod error;
mod figures;
mod floor;
mod package;
mod requests;
mod run;
mod side;
mod work;

pub use benchmark::{Overhead, Sides};
pub use build::{BuildError, Sources};
pub use config::OverheadConfig;
pub use entry::ENTRY;
pub use error::OverheadError;
pub use figures::{METRICS, Part};
pub use floor::{FloorCommand, MountedFloor, floors_in, serve_floor};
pub use fuse::{DetachError, FLOOR_TYPE};
pub use requests::{CountError, Counted, remove_traces_of_the_dead};
pub use side::PREFIX;
pub use work::Work;
