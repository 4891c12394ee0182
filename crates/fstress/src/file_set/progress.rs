//! What a run does to its file set, as it reports it. Nothing here waits: the listener must not block the metronome.

use harness::{Event, Step};

/// What is done to a file set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetWork {
    Grow,
    Shrink,
    Adopt,
    Remove,
}

impl SetWork {
    /// An event for `done` of `asked` objects and `bytes` file bytes written.
    pub fn step(self, done: u64, asked: u64, bytes: u64) -> Event {
        let work = match self {
            Self::Grow => "making files",
            Self::Shrink => "removing files",
            Self::Adopt => "looking files up",
            Self::Remove => "removing the file set",
        };
        Event::Step(Step { work: work.to_owned(), done, of: Some(asked), is_estimate: false, bytes })
    }
}
