//! What directory operations cost by the size of the directory, flat and laid out in subdirectories.
//!
//! ```text
//! for each size 1, 2, 4 … 524288:
//!   for each layout (flat, 345, …; the order turns round each time):
//!     Window: grow to the size -> 1000 random lstat, 1000 sequential lstat, add 1000, remove the 1000 oldest,
//!             read it whole; caches dropped, and proven cold, before each
//!                -> Samples -> curves with intervals -> the day's cost -> from which size a layout pays
//! ```
//!
//! Closed loop: one operation at a time, so it reports what an operation costs and not how load is borne.
//!
//! Always holds: a directory is grown from size to size and never rebuilt; what it holds is a row of article
//! numbers without holes, counted after each reading; whatever was made is removed unless it is to be kept.
//! Not here: how layouts name (see `files::Layout`), dropping caches (see `measure::KernelCaches`), drawing.
//! Source: Zadok and Badulescu, "Usenetfs", CUCS-022-98, section 5, figures 3 to 6 and table 1.

mod benchmark;
mod config;
mod crossover;
mod entry;
mod error;
mod frequencies;
mod part;
mod results;
mod room;
mod run;
mod sample;
mod set;
mod sizes;
mod views;
mod window;

pub use benchmark::{Dirscale, Reached};
pub use config::{Cache, DirscaleConfig, Keep};
pub use crossover::{Crossover, pays_from};
pub use entry::ENTRY;
pub use error::DirscaleError;
pub use frequencies::{Frequencies, FrequenciesError};
pub use part::Part;
pub use results::{METRICS, Measure, Paying, Question};
pub use run::{Event, Work, run};
pub use sample::{Estimate, Samples};
pub use set::{SET_PREFIX, leftovers};
pub use sizes::{Sizes, SizesError};
