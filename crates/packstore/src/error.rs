//! What can go wrong with a store, said so that its keeper knows what to do.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use disk::DiskError;

/// What an operation on a store failed with.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The disk below failed. The text has the cause: an error of a store is cloned and logged, and has no source.
    #[error("{0}: {cause}", cause = .0.source)]
    Disk(Arc<DiskError>),
    /// Another process has it.
    #[error("{place}: in use by another process; stop it, or open the store read-only")]
    Locked {
        /// The volume.
        place: String,
    },
    /// There is no store here, or a volume's head is not one.
    #[error("{place}: no volume of a packed store: {why}; make one with `crumb pack create`")]
    NotAVolume {
        /// The volume.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// Segments are there, but neither the volume's head nor its copy can be used. The heads alone have the seed of the hashes by
    /// which deletions name their keys, so that segments cannot tell what was deleted, and no head is made from them.
    #[error(
        "{place}: neither `volume` nor `volume.copy` can be used ({why}), and {segments} segments are there that may be whole: \
         do not remove them or make a new store here; put one of the two files back from a backup, or bring the store's other \
         volumes, which have copies of it"
    )]
    HeadsLost {
        /// The volume.
        place: String,
        /// What is wrong with the head.
        why: String,
        /// How many segments are there.
        segments: usize,
    },
    /// There is a store already.
    #[error("{place}: holds files of a packed store already; open it, or choose another directory")]
    NotEmpty {
        /// The volume.
        place: String,
    },
    /// A volume of another store, or one that was away while the others changed.
    #[error("{place}: {why}; leave it out, or empty it and add it again")]
    Foreign {
        /// The volume.
        place: String,
        /// Why it does not fit.
        why: String,
    },
    /// A volume is away.
    #[error(
        "{found} of {expected} volumes are here; bring the others, open read-only, or give them up with `crumb pack member give-up`"
    )]
    Missing {
        /// Volumes that are here.
        found: usize,
        /// Volumes that there should be.
        expected: usize,
    },
    /// A setting that cannot be.
    #[error("{name} cannot be {given}: {why}")]
    Setting {
        /// Which one.
        name: &'static str,
        /// What was given.
        given: u64,
        /// What it must be.
        why: Cow<'static, str>,
    },
    /// A key or its attributes are too long.
    #[error("{what} of {bytes} bytes: at least {bytes_min} and at most {bytes_max} are allowed")]
    Length {
        /// `key`, `meta` or `object`.
        what: &'static str,
        /// Its length.
        bytes: u64,
        /// The least.
        bytes_min: u64,
        /// The most.
        bytes_max: u64,
    },
    /// Something that is no regular file.
    #[error("{place}: {what} is in the place of the file `{name}`; `crumb pack repair` moves it aside")]
    InTheWay {
        /// The volume.
        place: String,
        /// The file.
        name: String,
        /// What is there.
        what: &'static str,
    },
    /// Something that is no regular file, in the place of a data file, which may be elsewhere: nothing makes up for it.
    #[error(
        "{place}: {what} is in the place of the data file `{name}`: put the data file back there, or, if its objects are lost for \
         good, remove what is there; `crumb pack repair` refuses until then"
    )]
    DataInTheWay {
        /// The volume.
        place: String,
        /// The data file.
        name: String,
        /// What is there.
        what: &'static str,
    },
    /// A file under the name of a segment that did not write it.
    #[error("{place}: {}; `crumb pack repair` refuses until then", misplaced(name, belongs.as_deref()))]
    Misplaced {
        /// The volume.
        place: String,
        /// The file.
        name: String,
        /// Its right name, which no file has; `None`: it is of another store, or of a segment that is gone.
        belongs: Option<String>,
    },
    /// A file that is there and cannot be opened, by this user at least.
    #[error(
        "{place}: user {user} cannot open `{name}`: {why}; what is in it is not lost: use the store as the user who owns its files, \
         or correct the cause; `crumb pack repair` refuses until then"
    )]
    NoAccess {
        /// The volume.
        place: String,
        /// The file.
        name: String,
        /// The process's user, by number.
        user: u32,
        /// What the system said.
        why: String,
    },
    /// The process, or the system, has no file descriptor left.
    #[error(
        "{place}: {operation} of {name}: no file descriptor is left; a store needs one for each of its segments and some more: raise the \
         limit (`ulimit -n`), or close other files"
    )]
    NoDescriptors {
        /// The volume.
        place: String,
        /// The file.
        name: String,
        /// What was asked of the disk.
        operation: &'static str,
    },
    /// No room.
    #[error(
        "the store is full, or its disk; delete something, free space on the disk, or add a volume with `crumb pack grow`"
    )]
    Full,
    /// No volume takes writes.
    #[error("no volume can be written: {why}")]
    ReadOnly {
        /// Why not.
        why: String,
    },
    /// A write or sync failed: what was not acknowledged yet may be lost.
    #[error("{place}: read-only since a write failed ({why}); see to the disk, then open the store again")]
    VolumeFailed {
        /// The volume.
        place: String,
        /// What failed.
        why: Arc<str>,
    },
    /// An object's bytes are not those that were stored.
    #[error(
        "{place}: object {key} in file {file:08}, block {block}: {why}; it is not served; `crumb pack check` reports how many"
    )]
    Damaged {
        /// The volume.
        place: String,
        /// The key, printable.
        key: String,
        /// The segment's number.
        file: u32,
        /// Where in it.
        block: u32,
        /// What does not fit.
        why: &'static str,
    },
    /// A cyclic store wrote over a part of an object while it was read or put.
    #[error(
        "object {key}: newer objects overwrote it meanwhile, as the store is cyclic; a larger store keeps objects longer"
    )]
    Overwritten {
        /// The key, printable.
        key: String,
    },
    /// The time at which an object expires cannot be changed in place.
    #[error("an object's time to live is part of its put; put the object again to change it")]
    Expiry,
    /// The system gives no thread. The text has the cause, as that of a disk's failure has.
    #[error("cannot start the thread {name}: {why}; raise the limit on processes (ulimit -u)")]
    Thread {
        /// Its name.
        name: String,
        /// What the system said.
        why: String,
    },
    /// It would have to wait ([`Store::try_put`](crate::Store::try_put)).
    #[error("the store is busy: this would have to wait")]
    Busy,
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

impl From<DiskError> for StoreError {
    fn from(error: DiskError) -> Self {
        match lacks_descriptors(&error) {
            true => Self::NoDescriptors { place: error.place, name: error.name, operation: error.operation },
            false => Self::Disk(Arc::new(error)),
        }
    }
}

impl StoreError {
    /// Whether another read of the same object would fail in the same way: its bytes are wrong, or the device cannot return them. A
    /// lack of memory or descriptors passes.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Disk(error) => error.source.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()),
            _ => false,
        }
    }

    /// Of a file that is there and could not be opened.
    pub(crate) fn no_access(error: &DiskError) -> Self {
        if lacks_descriptors(error) {
            let (place, name) = (error.place.clone(), error.name.clone());
            return Self::NoDescriptors { place, name, operation: error.operation };
        }
        Self::NoAccess {
            place: error.place.clone(),
            name: error.name.clone(),
            user: rustix::process::geteuid().as_raw(),
            why: error.source.to_string(),
        }
    }

    pub(crate) fn thread(name: &str, error: &io::Error) -> Self {
        Self::Thread { name: name.to_owned(), why: error.to_string() }
    }
}

/// Whether the process, or the system, has no file descriptor left.
pub(crate) fn lacks_descriptors(error: &DiskError) -> bool {
    let codes = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    error.source.raw_os_error().is_some_and(|code| codes.iter().any(|errno| errno.raw_os_error() == code))
}

/// What is wrong with a misplaced file, and what to do.
fn misplaced(name: &str, belongs: Option<&str>) -> String {
    match belongs {
        Some(belongs) => {
            format!(
                "`{name}` is what `{belongs}` was, which is missing: give it that name back (by way of a third, if another has it)"
            )
        }
        None => format!(
            "`{name}` was written by no segment of this store: move it out of the directory, and put the store's own file of that \
             name back, if there was one; if all segments are named so, put the store's own `volume` back"
        ),
    }
}

/// A key for people.
pub(crate) fn printable(key: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(key).escape_debug().to_string();
    if text.len() > 100 {
        let end = (0..=97).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn damage_and_a_failing_device_last_and_a_lack_of_memory_or_descriptors_passes() {
        use rustix::io::Errno;
        let failed = |errno: Errno| {
            let (place, name) = ("/store".to_owned(), "00000000.body".to_owned());
            StoreError::from(DiskError { place, name, operation: "read", source: errno.into() })
        };
        assert!(failed(Errno::IO).is_lasting());
        assert!(
            [Errno::NOMEM, Errno::MFILE, Errno::NFILE].into_iter().all(|errno| !failed(errno).is_lasting())
        );
        assert!(!StoreError::Busy.is_lasting());
    }

    #[test]
    fn an_error_of_the_disk_tells_its_cause_once() {
        let disk = DiskError {
            place: "/store".to_owned(),
            name: "00000000.body".to_owned(),
            operation: "write",
            source: io::Error::other("no space left"),
        };
        assert!(!disk.to_string().contains("no space left"), "that is its source's to tell");
        let error = StoreError::from(disk);
        assert_eq!(error.to_string(), "/store: write of 00000000.body: no space left");
        assert!(error.source().is_none());
    }
}
