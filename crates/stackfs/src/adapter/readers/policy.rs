//! Which threads wait for requests, and where: the policies by name.

use std::str::FromStr;

/// How the threads of a mount wait for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderPolicy {
    /// One thread waits while it keeps up, the others park.
    Park,
    /// All threads wait.
    Free,
    /// As `Park`, and while one program works alone, the waiting thread stays on that program's CPU.
    Follow,
}

impl ReaderPolicy {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Park, Self::Free, Self::Follow];

    /// As it is shown, and named by `-o readers=`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Park => "park",
            Self::Free => "free",
            Self::Follow => "follow",
        }
    }
}

impl FromStr for ReaderPolicy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.iter().copied().find(|policy| policy.name() == text).ok_or(())
    }
}
