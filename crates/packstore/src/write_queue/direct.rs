//! Long writes past the page cache: no copy, no memory taken for pages, and a sync that finds little left to do.
//!
//! A page is written in one way alone at a time, so that the two never disagree: the ends of a range that share a page with
//! others go the ordinary way. Where a file system knows no O_DIRECT, all does.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use disk::DiskFile;

use crate::write_queue::buffer::PAGE_BYTES;

/// The page cache gathers shorter ranges better than we do.
const BYTES_MIN: usize = 128 << 10;

/// A file opened a second time, for writing past the page cache; nothing where that cannot be.
pub(crate) struct Direct {
    file: Option<File>,
    refused: AtomicBool,
}

impl Direct {
    /// `wanted`: false to write everything the ordinary way.
    pub(crate) fn of(file: &Arc<dyn DiskFile>, wanted: bool) -> Self {
        let opened = file.descriptor().filter(|_| wanted).and_then(|descriptor| {
            let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
            let flags = rustix::fs::OFlags::DIRECT.bits().cast_signed();
            OpenOptions::new().write(true).custom_flags(flags).open(path).ok()
        });
        Self { file: opened, refused: AtomicBool::new(false) }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.file.is_some() && !self.refused.load(Ordering::Relaxed)
    }

    /// Writes what can be written so. Returns the first and the last part that are still to be written; `bytes` and `offset`
    /// must be equally far from a page's beginning.
    pub(crate) fn write<'a>(&self, bytes: &'a [u8], offset: u64) -> io::Result<[(&'a [u8], u64); 2]> {
        let nothing = [(bytes, offset), (&bytes[..0], offset)];
        let Some(file) = self.file.as_ref().filter(|_| bytes.len() >= BYTES_MIN && self.is_there()) else {
            return Ok(nothing);
        };
        let start = bytes.as_ptr().align_offset(PAGE_BYTES);
        if start >= PAGE_BYTES || !(offset + start as u64).is_multiple_of(PAGE_BYTES as u64) {
            return Ok(nothing);
        }
        let whole = (bytes.len() - start) / PAGE_BYTES * PAGE_BYTES;
        let (first, rest) = bytes.split_at(start);
        let (middle, last) = rest.split_at(whole);
        let middle_at = offset + start as u64;
        match file.write_all_at(middle, middle_at) {
            Ok(()) => Ok([(first, offset), (last, middle_at + whole as u64)]),
            // A device with larger sectors than our pages, say.
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                self.refused.store(true, Ordering::Relaxed);
                Ok(nothing)
            }
            Err(error) => Err(error),
        }
    }
}
