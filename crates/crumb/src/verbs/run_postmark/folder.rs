//! A folder of a run's own, so that nothing of the user's is in its way.
//!
//! Always holds: only an empty folder is removed, and one that was there before is never taken.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use files::FileSystem;
use measure::RunId;

pub(super) struct Folder<'a> {
    storage: &'a Arc<dyn FileSystem>,
    /// The folder, held: the storage's owner may move it and put a link in its place.
    pub inside: Arc<dyn FileSystem>,
    name: String,
}

impl<'a> Folder<'a> {
    /// The name of a run's folder.
    pub fn name_of(id: &RunId) -> String {
        format!("crumb-postmark-{}", id.0.rsplit('-').next().unwrap_or(&id.0))
    }

    pub fn make(storage: &'a Arc<dyn FileSystem>, name: &str) -> anyhow::Result<Self> {
        let inside = storage.make_own(name.as_ref()).context("cannot make a folder for the run's files")?;
        Ok(Self { storage, inside, name: name.to_owned() })
    }

    pub fn name(&self) -> &Path {
        self.name.as_ref()
    }

    pub fn remove(self) -> anyhow::Result<()> {
        self.storage.rmdir(self.name()).with_context(|| {
            format!("{}: cannot remove this run's folder {}", self.storage.place(), self.name)
        })
    }
}
