//! The bytes of a file that is being written: in memory while it is small, in a scratch file of the store's first
//! volume beyond.
//!
//! Always holds: at most [`MEMORY_BYTES_MAX`] of a file are in memory; a scratch file goes with its file, and what a
//! kill left of it goes with the next opening.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::{Disk, DiskFile, DiskOpen};
use packstore::{Object, StoreError};

/// Of one file that is open for writing.
pub(super) const MEMORY_BYTES_MAX: usize = 4 << 20;
/// What one step of copying carries.
const STEP_BYTES: usize = 256 << 10;
const SCRATCH: &str = "scratch-";

pub(super) struct Content {
    bytes: Bytes,
}

enum Bytes {
    /// Shared with what waits to be durable.
    Memory(Arc<Vec<u8>>),
    Scratch(Scratch),
}

struct Scratch {
    disk: Arc<dyn Disk>,
    name: String,
    file: Arc<dyn DiskFile>,
    length: u64,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is on the next opening.
        let _ = self.disk.remove(&self.name);
    }
}

/// Removes what a kill left.
pub(super) fn sweep(disk: &dyn Disk) -> Result<(), StoreError> {
    for name in disk.names()?.iter().filter(|name| name.starts_with(SCRATCH)) {
        disk.remove(name)?;
    }
    Ok(())
}

impl Content {
    pub(super) fn empty() -> Self {
        Self::of_bytes(Arc::default())
    }

    pub(super) fn of_bytes(bytes: Arc<Vec<u8>>) -> Self {
        Self { bytes: Bytes::Memory(bytes) }
    }

    /// An object's body.
    pub(super) fn of(object: &Object, disk: &Arc<dyn Disk>) -> Result<Self, StoreError> {
        let mut content = Self::empty();
        for chunk in object.chunks() {
            let at = content.length();
            content.write_at(at, chunk?.as_slice(), disk)?;
        }
        Ok(content)
    }

    pub(super) fn length(&self) -> u64 {
        match &self.bytes {
            Bytes::Memory(bytes) => bytes.len() as u64,
            Bytes::Scratch(scratch) => scratch.length,
        }
    }

    /// All of it, when it is in memory.
    pub(super) fn in_memory(&self) -> Option<&Arc<Vec<u8>>> {
        match &self.bytes {
            Bytes::Memory(bytes) => Some(bytes),
            Bytes::Scratch(_) => None,
        }
    }

    pub(super) fn read_at(&self, at: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        let rest = self.length().saturating_sub(at).min(into.len() as u64) as usize;
        match &self.bytes {
            Bytes::Memory(bytes) if rest > 0 => into[..rest].copy_from_slice(&bytes[at as usize..][..rest]),
            Bytes::Scratch(scratch) if rest > 0 => {
                return Ok(scratch.file.read_at(&mut into[..rest], at)?);
            }
            _ => {}
        }
        Ok(rest)
    }

    /// What lies between the end and `at` becomes zeros.
    pub(super) fn write_at(&mut self, at: u64, from: &[u8], disk: &Arc<dyn Disk>) -> Result<(), StoreError> {
        if from.is_empty() {
            return Ok(());
        }
        let end = at + from.len() as u64;
        if let Bytes::Memory(bytes) = &mut self.bytes {
            if end <= MEMORY_BYTES_MAX as u64 {
                let (at, end) = (at as usize, end as usize);
                let bytes = Arc::make_mut(bytes);
                if at == bytes.len() {
                    bytes.extend_from_slice(from);
                } else {
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[at..end].copy_from_slice(from);
                }
                return Ok(());
            }
            let scratch = Scratch::holding(bytes, disk)?;
            self.bytes = Bytes::Scratch(scratch);
        }
        let Bytes::Scratch(scratch) = &mut self.bytes else { unreachable!("made above") };
        scratch.file.write_at(from, at)?;
        scratch.length = scratch.length.max(end);
        Ok(())
    }

    /// All of it in steps.
    pub(super) fn each_step(
        &self,
        mut step: impl FnMut(&[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut bytes = vec![0; STEP_BYTES];
        let mut at = 0;
        while at < self.length() {
            let read = self.read_at(at, &mut bytes)?;
            if read == 0 {
                break;
            }
            step(&bytes[..read])?;
            at += read as u64;
        }
        Ok(())
    }
}

impl Scratch {
    fn holding(bytes: &[u8], disk: &Arc<dyn Disk>) -> Result<Self, StoreError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("{SCRATCH}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let file = disk.open(&name, DiskOpen::New)?;
        let scratch = Self { disk: disk.clone(), name, file, length: bytes.len() as u64 };
        scratch.file.write_at(bytes, 0)?;
        Ok(scratch)
    }
}
