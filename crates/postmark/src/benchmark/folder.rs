//! A folder of a run's own, so that nothing of the user's is in its way.
//!
//! Always holds: only an empty folder is removed, and one that was there before is never taken.

use std::sync::Arc;

use files::FileSystem;

use crate::PostmarkError;

pub(super) struct Folder<'a> {
    storage: &'a Arc<dyn FileSystem>,
    /// The folder, held: the storage's owner may move it and put a link in its place.
    pub inside: Arc<dyn FileSystem>,
    name: String,
}

impl<'a> Folder<'a> {
    pub fn make(storage: &'a Arc<dyn FileSystem>, name: &str) -> Result<Self, PostmarkError> {
        let inside =
            storage.make_own(name.as_ref()).map_err(|source| PostmarkError::MakeFolder { source })?;
        Ok(Self { storage, inside, name: name.to_owned() })
    }

    pub fn remove(self) -> Result<(), PostmarkError> {
        let Self { storage, inside: _, name } = self;
        let refused =
            |source| PostmarkError::RemoveFolder { place: storage.place(), name: name.clone(), source };
        storage.rmdir(name.as_ref()).map_err(refused)
    }
}
