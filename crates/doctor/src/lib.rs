//! A first look at a machine and at the storage behind a directory: what is wrong, said in half a minute, without privileges.
//!
//! ```text
//! machine ---.
//! target  ---+--> Facts --> findings (heaviest first) --> programs (which suffer) --> next (the command to type)
//! basics  ---|
//! wake_up ---'
//! ```
//!
//! 1. [`machine`] and [`target`] read what the kernel says to every user.
//! 2. [`basics`] times short closed loops in a [`Scratch`] directory of the target, in turns with memory and `/tmp`.
//! 3. [`wake_up`] measures what it costs to wake a sleeping thread.
//! 4. [`assumed`], [`findings`], [`outlooks`] and [`next_steps`] are pure functions of [`Facts`].
//!
//! Always holds: nothing of the target is changed but a directory of its own, which carries the mark of a run and is removed;
//! what could not be read is left out or listed as assumed, never guessed.
//! Not here: the page for people (see the verb in `crumb`), load and verdicts (the benchmarks), the gain of managed directories
//! (`crumb advise`).

mod assumed;
pub mod basics;
mod facts;
mod findings;
pub mod largest;
pub mod machine;
mod next;
mod programs;
mod scratch;
pub mod target;
mod wake_up;

pub use self::assumed::assumed;
pub use self::facts::{
    Basic, BasicOp, DirectoryFacts, Facts, IdleState, MachineFacts, MountFacts, NamesMax, PlaceFacts,
    SpaceFacts, TargetFacts, UseFacts, WakeUp,
};
pub use self::findings::{Finding, FindingCode, findings};
pub use self::next::{Offers, Step, next_steps, shell_word};
pub use self::programs::{Outlook, ProgramOutlook, outlooks};
pub use self::scratch::{PREFIX, Scratch};
pub use self::wake_up::{WAKE_UPS, wake_up};
