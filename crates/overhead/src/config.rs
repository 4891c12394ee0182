//! What is measured. The field types leave no invalid value to check for.

use std::num::NonZeroU32;

use serde::Serialize;

use crate::Sources;

/// Settings of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OverheadConfig {
    /// Files of a round, and operations of each kind.
    pub files: NonZeroU32,
    /// Bytes in each file.
    pub file_bytes: u32,
    /// Rounds; each gives one pair of times for each operation.
    pub rounds: NonZeroU32,
    /// What is built in each round on both sides, besides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<Sources>,
    /// Names the directories that are made.
    #[serde(skip)]
    pub name: String,
}

impl OverheadConfig {
    /// The defaults; `name` is in the names of this run's directories.
    pub fn new(name: &str) -> Self {
        Self {
            files: NonZeroU32::new(2000).expect("not zero"),
            file_bytes: 2048,
            rounds: NonZeroU32::new(10).expect("not zero"),
            build: None,
            name: name.to_owned(),
        }
    }

    /// Operations of one round on one side.
    pub fn operations(&self) -> u64 {
        u64::from(self.files.get()) * crate::Work::ALL.len() as u64
    }
}
