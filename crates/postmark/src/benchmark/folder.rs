//! A folder of a run's own, so that nothing of the user's is in its way.
//!
//! Always holds: only a folder that is empty but for the run's mark is removed, and one that was there before is never taken.

use std::sync::Arc;

use files::{FileSystem, RUN_MARK, Status, write_run_mark};

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
        let folder = Self { storage, inside, name: name.to_owned() };
        match write_run_mark(&*folder.inside) {
            Ok(()) => Ok(folder),
            Err(source) => {
                // Why it could not be marked matters more.
                let _ = folder.remove();
                Err(PostmarkError::MakeFolder { source })
            }
        }
    }

    pub fn remove(self) -> Result<(), PostmarkError> {
        let Self { storage, inside, name } = self;
        let refused =
            |source| PostmarkError::RemoveFolder { place: storage.place(), name: name.clone(), source };
        match inside.unlink(RUN_MARK.as_ref()) {
            Err(error) if error.status() == Some(Status::NOENT) => {}
            gone => gone.map_err(&refused)?,
        }
        drop(inside);
        storage.rmdir(name.as_ref()).map_err(refused)
    }
}
