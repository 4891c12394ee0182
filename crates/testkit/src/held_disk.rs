//! A disk on which a store comes further only when it is let: learning what it holds, opening a file.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use disk::{Disk, DiskError, DiskFile, DiskLock, DiskOpen, DiskRoom, SimulatedDisk};

type Hold = Arc<dyn Fn(Held<'_>) + Send + Sync>;

/// What is about to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held<'a> {
    /// A file of this name is opened.
    Open(&'a str),
    /// A thread without a name reads: in a store those that learn what is there after a kill.
    Learn,
    /// A thread reads this number of bytes of the file of this name.
    Read(&'a str, usize),
}

/// A [`SimulatedDisk`] that may be made to wait.
pub struct HeldDisk {
    disk: SimulatedDisk,
    hold: Hold,
}

struct HeldFile {
    file: Arc<dyn DiskFile>,
    name: String,
    hold: Hold,
}

impl HeldDisk {
    /// `hold` returns when that may go on.
    pub fn new(disk: SimulatedDisk, hold: impl Fn(Held<'_>) + Send + Sync + 'static) -> Self {
        Self { disk, hold: Arc::new(hold) }
    }
}

impl Disk for HeldDisk {
    fn open(&self, name: &str, how: DiskOpen) -> Result<Arc<dyn DiskFile>, DiskError> {
        (self.hold)(Held::Open(name));
        let file = self.disk.open(name, how)?;
        Ok(Arc::new(HeldFile { file, name: name.to_owned(), hold: Arc::clone(&self.hold) }))
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
            (self.hold)(Held::Learn);
        }
        (self.hold)(Held::Read(&self.name, bytes.len()));
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

    fn allocated(&self) -> Result<u64, DiskError> {
        self.file.allocated()
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
