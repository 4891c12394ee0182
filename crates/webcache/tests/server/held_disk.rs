//! A disk on which a store that was killed learns only at a gate what it holds.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use files::{Disk, DiskError, DiskFile, DiskLock, DiskOpen, DiskRoom};
use testkit::SimulatedDisk;

use crate::harness::Gate;

/// Reads of the threads that learn it wait; they are the only ones without a name.
pub struct HeldDisk {
    pub disk: SimulatedDisk,
    pub gate: Arc<Gate>,
}

struct HeldFile {
    file: Arc<dyn DiskFile>,
    gate: Arc<Gate>,
}

impl Disk for HeldDisk {
    fn open(&self, name: &str, how: DiskOpen) -> Result<Arc<dyn DiskFile>, DiskError> {
        Ok(Arc::new(HeldFile { file: self.disk.open(name, how)?, gate: Arc::clone(&self.gate) }))
    }

    fn names(&self) -> Result<Vec<String>, DiskError> {
        self.disk.names()
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.disk.remove(name)
    }

    fn sync_names(&self) -> Result<(), DiskError> {
        self.disk.sync_names()
    }

    fn lock(&self, name: &str) -> Result<Option<DiskLock>, DiskError> {
        self.disk.lock(name)
    }

    fn room(&self) -> Result<DiskRoom, DiskError> {
        self.disk.room()
    }

    fn place(&self) -> String {
        self.disk.place()
    }
}

impl DiskFile for HeldFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        if std::thread::current().name().is_none() {
            self.gate.wait();
        }
        self.file.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.file.sync()
    }

    fn length(&self) -> Result<u64, DiskError> {
        self.file.length()
    }

    fn set_length(&self, bytes: u64) -> Result<(), DiskError> {
        self.file.set_length(bytes)
    }

    fn reserve(&self, offset: u64, bytes: u64) -> Result<(), DiskError> {
        self.file.reserve(offset, bytes)
    }

    fn release(&self, offset: u64, bytes: u64) -> Result<(), DiskError> {
        self.file.release(offset, bytes)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }
}
