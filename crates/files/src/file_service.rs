//! Storage that answers requests in blocking calls, on the thread of the caller: what worker threads and servers stand in front of.
//!
//! ```text
//! DirectoryTransport --> FileService --+-- Directory   a local directory
//!                                      `-- PackTree    a file tree in one file       (crate packtree)
//! ```
//!
//! Always holds: a handle follows its object through renames, and is stale once the object is gone.
//! Not here: threads (`DirectoryTransport`), paths (see `FileSystem`).

use crate::{Handle, Reply, Request, Scratch, Status};

/// Answers NFSv3 requests. Shared between threads by reference.
pub trait FileService: Send + Sync {
    /// The handle of the root.
    fn root(&self) -> Handle;

    /// The most bytes that one READ or WRITE carries.
    fn io_bytes_max(&self) -> u32;

    /// As [`crate::FileSystem::has_room_of_its_own`], of the reply to FSSTAT.
    fn has_room_of_its_own(&self) -> bool {
        false
    }

    /// Does what is asked. Bytes, handle and entries of the reply are left in `scratch`; the reply's own borrowed parts are empty until
    /// [`Scratch::fill`] puts them in. So a reply can travel between threads together with its scratch.
    ///
    /// # Errors
    /// The status that an NFSv3 server gives.
    fn perform(&self, request: &Request<'_>, scratch: &mut Scratch) -> Result<Reply<'static>, Status>;

    /// Does what is asked. The reply borrows from `scratch`.
    ///
    /// # Errors
    /// The status that an NFSv3 server gives.
    fn execute<'s>(&self, request: &Request<'_>, scratch: &'s mut Scratch) -> Result<Reply<'s>, Status> {
        let hollow = self.perform(request, scratch)?;
        Ok(scratch.fill(hollow))
    }
}
