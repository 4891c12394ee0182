//! One volume: its disk, its budget, and what waits to be written to it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use disk::{Disk, DiskError, DiskLock, DiskOpen};

use crate::error::{StoreError, lacks_descriptors};
use crate::format::{VOLUME_HEAD_BYTES, VolumeHead, crc};
use crate::locks::locked;
use crate::segments::volume_copy::VolumeCopy;
use crate::write_queue::VolumeQueue;

pub(crate) const HEAD_NAME: &str = "volume";
pub(crate) const LOCK_NAME: &str = "lock";
pub(crate) const TABLE_NAME: &str = "table";

/// A directory of the store.
pub(crate) struct Volume {
    pub number: u32,
    pub disk: Arc<dyn Disk>,
    pub size_bytes: AtomicU64,
    /// Why it is read-only, once it is.
    pub failed: OnceLock<Arc<str>>,
    pub queue: VolumeQueue,
    /// No room could be found; until something is deleted.
    pub full: AtomicBool,
    /// Held while `volume.copy` is put together and written: a copy that was put together earlier must not replace a later one,
    /// and two writers would take each other's file. Taken before the locks of `Segments`.
    pub copying: Mutex<()>,
    /// Why `full` was set, when it was not for lack of room.
    pub why_full: Mutex<Option<StoreError>>,
    /// `volume.copy` is of an earlier opening, as the disk was full.
    pub copy_is_old: AtomicBool,
    /// It is being emptied, to be removed from the store: nothing new is put here.
    pub leaving: AtomicBool,
    pub counters: Counters,
    pub _lock: Option<DiskLock>,
}

/// What a volume's writer did.
#[derive(Default)]
pub(crate) struct Counters {
    pub body_bytes: AtomicU64,
    pub index_bytes: AtomicU64,
    pub syncs: AtomicU64,
    pub groups: AtomicU64,
    pub evicted: AtomicU64,
    pub expired: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}

impl Volume {
    pub(crate) fn new(number: u32, disk: Arc<dyn Disk>, size_bytes: u64, lock: Option<DiskLock>) -> Self {
        Self {
            number,
            disk,
            size_bytes: AtomicU64::new(size_bytes),
            failed: OnceLock::new(),
            queue: VolumeQueue::new(),
            full: AtomicBool::new(false),
            why_full: Mutex::default(),
            copying: Mutex::default(),
            copy_is_old: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            counters: Counters::default(),
            _lock: lock,
        }
    }

    pub(crate) fn takes_objects(&self) -> bool {
        self.failed.get().is_none() && !self.leaving.load(Ordering::SeqCst)
    }

    /// No room could be found: the error for those who wait for it. The next one looks again.
    pub(crate) fn take_why_full(&self) -> StoreError {
        locked(&self.why_full).take().unwrap_or(StoreError::Full)
    }

    pub(crate) fn failure(&self) -> Option<StoreError> {
        let why = self.failed.get()?.clone();
        Some(StoreError::VolumeFailed { place: self.disk.place(), why })
    }

    pub(crate) fn fail(&self, why: impl Into<StoreError>) -> StoreError {
        let why: StoreError = why.into();
        let why = self.failed.get_or_init(|| Arc::from(why.to_string())).clone();
        tracing::error!(volume = %self.disk.place(), %why, "volume is read-only from now on");
        StoreError::VolumeFailed { place: self.disk.place(), why }
    }
}

/// Whether the disk works, and only lacks room, or the process descriptors or memory. It passes, so the volume stays writable.
pub(crate) fn is_full(error: &DiskError) -> bool {
    use std::io::ErrorKind::{OutOfMemory, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | OutOfMemory) || lacks_descriptors(error)
}

/// What is reported of an error for which [`is_full`] is true.
pub(crate) fn full(error: DiskError) -> StoreError {
    match StoreError::from(error) {
        error @ StoreError::NoDescriptors { .. } => error,
        _ => StoreError::Full,
    }
}

/// The lock of a volume.
pub(crate) fn hold(disk: &Arc<dyn Disk>) -> Result<DiskLock, StoreError> {
    disk.lock(LOCK_NAME)?.ok_or_else(|| StoreError::Locked { place: disk.place() })
}

/// The head of a volume; from its copy when it is damaged by more than a bit, or missing.
pub(crate) fn read_head(disk: &Arc<dyn Disk>) -> Result<VolumeHead, StoreError> {
    read_head_or_copy(disk).map(|(head, _)| head)
}

/// Also what is wrong with it.
pub(crate) fn read_head_or_copy(disk: &Arc<dyn Disk>) -> Result<(VolumeHead, Option<String>), StoreError> {
    let wrong = match read_own_head(disk) {
        Ok((head, false)) => return Ok((head, None)),
        Ok((head, true)) => return Ok((head, Some("the file `volume` has a flipped bit".to_owned()))),
        Err(error @ StoreError::NotAVolume { .. }) => error,
        Err(error) => return Err(error),
    };
    match VolumeCopy::read(disk).and_then(|copy| copy.heads.first().copied()) {
        Some(head) => {
            Ok((head, Some("the file `volume` is damaged or missing: its copy is used".to_owned())))
        }
        None => Err(wrong),
    }
}

fn read_own_head(disk: &Arc<dyn Disk>) -> Result<(VolumeHead, bool), StoreError> {
    let wrong = |why: String| StoreError::NotAVolume { place: disk.place(), why };
    let file = match disk.open(HEAD_NAME, DiskOpen::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(wrong("there is no file `volume`".to_owned()));
        }
        Err(error) => {
            let others = disk.other_than_files().unwrap_or_default();
            return Err(match others.into_iter().find(|(name, _)| name == HEAD_NAME) {
                Some((_, what)) => wrong(format!("{what} is in the place of the file `volume`")),
                None => error.into(),
            });
        }
        Ok(file) => file,
    };
    let mut bytes = [0; VOLUME_HEAD_BYTES];
    let read = file.read_at(&mut bytes, 0)?;
    VolumeHead::decode_repairing(&bytes[..read]).map_err(|why| wrong(why.to_string()))
}

/// Checksum of the lengths of a volume's index files.
pub(crate) fn index_ends(lengths: impl Iterator<Item = (u32, u64)>) -> u32 {
    let mut lengths = lengths.collect::<Vec<_>>();
    lengths.sort_unstable();
    let mut bytes = Vec::with_capacity(lengths.len() * 12);
    for (number, length) in lengths {
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
    }
    crc(&bytes)
}

pub(crate) fn write_head(disk: &Arc<dyn Disk>, head: &VolumeHead) -> Result<(), DiskError> {
    replace_file(disk, HEAD_NAME, &[&head.encode()])
}

/// As [`write_head`]; where the disk is full the file is overwritten in place, which takes no room. The head is shorter than a
/// sector, and `volume.copy` has it too. Returns whether the disk was full.
pub(crate) fn update_head(disk: &Arc<dyn Disk>, head: &VolumeHead) -> Result<bool, DiskError> {
    let error = match write_head(disk, head) {
        Ok(()) => return Ok(false),
        Err(error) if is_full(&error) => error,
        Err(error) => return Err(error),
    };
    // Perhaps it could be made and not be written.
    let _ = disk.remove(&format!("{HEAD_NAME}.new"));
    let Ok(file) = disk.open(HEAD_NAME, DiskOpen::Write) else { return Err(error) };
    if file.length()? < VOLUME_HEAD_BYTES as u64 {
        return Err(error);
    }
    file.write_at(&head.encode(), 0)?;
    file.sync()?;
    Ok(true)
}

/// Replaces a file, or makes it: after power loss one of them is there, whole.
pub(crate) fn replace_file(disk: &Arc<dyn Disk>, name: &str, parts: &[&[u8]]) -> Result<(), DiskError> {
    let fresh = format!("{name}.new");
    let file = match disk.open(&fresh, DiskOpen::New) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            disk.remove(&fresh)?;
            disk.open(&fresh, DiskOpen::New)?
        }
        file => file?,
    };
    let mut offset = 0;
    for part in parts {
        file.write_at(part, offset)?;
        offset += part.len() as u64;
    }
    file.sync()?;
    disk.rename(&fresh, name)?;
    disk.sync_names()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_room_descriptors_or_memory_passes_and_a_broken_disk_does_not() {
        use rustix::io::Errno;
        let passes = |errno: Errno| {
            let (place, name) = ("disk".to_owned(), "00000001.body.new".to_owned());
            is_full(&DiskError { place, name, operation: "open", source: errno.into() })
        };
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            assert!(passes(errno), "{errno}");
        }
        for errno in [Errno::IO, Errno::ROFS, Errno::ACCESS] {
            assert!(!passes(errno), "{errno}");
        }
    }
}
