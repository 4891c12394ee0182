//! PostMark: many small files made, read, grown and removed, as a busy mail server does it.
//!
//! ```text
//! commands -> Session (language) -> Settings --+
//!                                              v
//! crumb run postmark ------------> Settings -> engine::run -> files::FileSystem (one a location)
//!                                              |
//!                                              `-> Event (progress), Outcome (counts, times, latencies)
//!                                                     |-> report: verbose, terse
//!                                                     `-> benchmark::Part, one a rank -> figures
//! ```
//!
//! Always holds: with equal settings every count equals PostMark 1.51's, number for number; a run ends, and
//! leaves nothing of its own behind, whatever the settings and whatever the storage does; nothing that was there
//! before is overwritten or removed.
//! Not here: storage (see `files`), how ranks meet (see `harness`), showing figures (the binary).
//! Source: behaviour of PostMark 1.51 as observed; J. Katcher, "PostMark: a new file system benchmark", 1997.

pub mod benchmark;
mod clock;
pub mod engine;
mod entry;
mod error;
pub mod figures;
mod memory;
pub mod published;
mod random;
mod session;
mod settings;
mod stream;
mod table;
mod text;
mod views;

pub use benchmark::{Postmark, PostmarkConfig};
pub use clock::{Clock, SystemClock};
pub use entry::ENTRY;
pub use error::PostmarkError;
pub use session::report::Figures;
pub use session::{OpenLocation, Session, SessionEnd, Shell, Surroundings};
pub use settings::{Bias, ReportForm, Settings, SizeRange};
