//! The body of a stored reply: in memory as a whole, or read from the store piece by piece.
//!
//! Always holds: the bytes of a body do not change, whatever happens to its URI. A long body that cannot be read to its end is
//! removed before its reader sees the error, so that the next request fetches the reply again.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use packstore::Object;

use super::writers::UnreadableRemoval;

/// The body of a stored reply.
#[derive(Clone, Debug)]
pub enum StoredBody {
    /// The bytes, in memory.
    Whole(Bytes),
    /// A body that is too long to be read at once.
    Long(Arc<LongBody>),
}

/// A body that is read piece by piece. Damage behind its first piece shows only then, long after the look-up.
pub struct LongBody {
    object: Box<Object>,
    /// `None` for a body that was just written: a later look-up finds what is wrong with it.
    removal: Option<UnreadableRemoval>,
}

impl StoredBody {
    /// `removal` is called for a long body only.
    pub(super) fn of(object: Object, removal: impl FnOnce() -> Option<UnreadableRemoval>) -> Self {
        match object.into_shared() {
            // The memory tier shares its own buffer where it has one: nothing is copied.
            Ok(body) => Self::Whole(Bytes::from_owner(body)),
            Err(object) => Self::Long(Arc::new(LongBody { object, removal: removal() })),
        }
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Whole(bytes) => bytes.len() as u64,
            Self::Long(body) => body.object.length(),
        }
    }
}

impl LongBody {
    /// Reads up to `bytes` bytes from `offset` on, fewer only where the body ends. Blocks; removes the stored reply when its bytes
    /// are damaged.
    ///
    /// # Errors
    /// When the bytes are damaged or the disk fails.
    pub fn read(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let mut piece = vec![0; bytes];
        match self.object.read_range(offset, &mut piece) {
            Ok(read) => {
                piece.truncate(read);
                Ok(piece.into())
            }
            Err(error) => {
                if let Some(removal) = &self.removal {
                    removal.remove_after(&error);
                }
                Err(io::Error::other(error))
            }
        }
    }
}

impl std::fmt::Debug for LongBody {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LongBody").field("bytes", &self.object.length()).finish_non_exhaustive()
    }
}
