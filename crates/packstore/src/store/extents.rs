//! Where a body lies on disk, to be sent from there by the kernel: no copy into our memory.
//!
//! ```text
//! Store::extents --> head compared, body compared as often as `Verify` says --> descriptor, offset, length of each extent
//! ```
//!
//! Always holds: while they are held, their blocks are given to nobody else, whatever becomes of the key.
//! It pays for long bodies that nobody compares ([`crate::Verify::OneIn`]); a short one is faster from memory.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::DiskFile;
use rustix::io::Errno;

use crate::error::StoreError;
use crate::format::{Kind, Name, SHARED};
use crate::objects::object::Stat;
use crate::objects::read::{Depth, Record};
use crate::segments::segment::Pin;
use crate::store::Store;
use crate::store::touching::requested;

/// A range of a body.
pub struct Extent {
    file: Arc<dyn DiskFile>,
    /// Where in the file.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    _pin: Pin,
}

impl Extent {
    /// The file that it lies in.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.descriptor().expect("an extent is made of a file that has one")
    }
}

/// A body on disk.
pub struct Extents {
    stat: Stat,
    meta: Vec<u8>,
    parts: Vec<Extent>,
}

impl Extents {
    /// Length, times.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Attributes that were put with it.
    pub fn meta(&self) -> &[u8] {
        &self.meta
    }

    /// Its extents, in order.
    pub fn parts(&self) -> &[Extent] {
        &self.parts
    }

    /// Sends the body to a socket (or whatever sendfile(2) takes), and returns its length. For blocking descriptors.
    ///
    /// # Errors
    /// When the descriptor takes no more, or a file ends early.
    pub fn send_to(&self, descriptor: BorrowedFd<'_>) -> io::Result<u64> {
        let mut sent = 0;
        for part in &self.parts {
            let (mut offset, end) = (part.offset, part.offset + part.length);
            while offset < end {
                let want = usize::try_from(end - offset).unwrap_or(usize::MAX);
                match rustix::fs::sendfile(descriptor, part.descriptor(), Some(&mut offset), want) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(more) => sent += more as u64,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(sent)
    }
}

impl Store {
    /// Where the body of a key lies. `None` when there is no such object, and also when its body cannot be had so just now: it
    /// waits to be written, too many are held, the disk has no descriptors, or another process may be writing over it, as the store
    /// was opened read-only. Then use [`Store::get`].
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn extents(&self, key: &[u8]) -> Result<Option<Extents>, StoreError> {
        let objects = &self.objects;
        if key.is_empty() || objects.setup.read_only || !self.readiness.is_ready() {
            return Ok(None);
        }
        let hash = self.name_hash(key);
        let Some(named) = objects.find_sampled(Name::of(key), hash)? else { return Ok(None) };
        if objects.has_expired(named.head.expires_s) {
            return Ok(None);
        }
        requested(objects, key, &named.entry, named.head.requested_s);
        let mut stat = crate::store::getting::stat_of(&named);
        let mut body = named;
        if body.head.kind == Kind::Alias {
            let Some(alias) = objects.find(Name::of(key), hash, Depth::Whole)? else { return Ok(None) };
            let id = objects.shared_id(&alias)?;
            let Some(shared) = objects.find_internal(id, SHARED, Depth::Whole)? else { return Ok(None) };
            (stat.length, stat.meta_bytes) = (shared.head.body_len.into(), shared.head.meta_len);
            body = shared;
        }
        let meta = body.meta().to_vec();
        if body.head.kind == Kind::Whole {
            let Some(part) = self.extent(&body) else { return Ok(None) };
            return Ok(Some(Extents { stat, meta, parts: vec![part] }));
        }
        let name = Name { internal: body.head.internal, key: body.key() };
        let Some(list) = objects.find(name, body.entry.hash, Depth::Whole)? else { return Ok(None) };
        let Some(manifest) = objects.manifest_of(&list)? else { return Ok(None) };
        stat.length = manifest.length();
        let mut parts = Vec::with_capacity(manifest.piece_lens.len());
        for (part, &length) in manifest.piece_lens.iter().enumerate() {
            let key = crate::format::internal_key(manifest.id, part as u32);
            let name = Name { internal: true, key: &key };
            let hash = name.hash(objects.setup.hash_seed);
            let Some(piece) = objects.find_sampled(name, hash)? else { return Ok(None) };
            objects.index.touch(&piece.entry);
            let Some(extent) = self.extent(&piece).filter(|extent| extent.length == u64::from(length)) else {
                return Ok(None);
            };
            parts.push(extent);
        }
        Ok(Some(Extents { stat, meta, parts }))
    }

    fn extent(&self, record: &Record) -> Option<Extent> {
        let objects = &self.objects;
        let segment = objects.segments.file(record.address.file)?;
        if segment.pins.load(Ordering::SeqCst) == 0 && objects.segments.is_much_pinned() {
            return None;
        }
        let pin = segment.pin();
        // A thread that looks for free blocks in this file from now on sees the pin; one that began before may still give these away.
        let sought = segment.sorting.load(Ordering::SeqCst);
        let body = segment.body().ok()?.clone();
        let counts = self.is_at(&record.entry)
            && objects.segments.generation_of(segment.number) == Some(record.generation);
        if sought || !counts || objects.is_unwritten(record.address) || body.descriptor().is_none() {
            return None;
        }
        let start = objects.setup.shape.offset(record.address.block);
        let offset = start + record.body_start() as u64;
        Some(Extent { file: body, offset, length: record.head.body_len.into(), _pin: pin })
    }
}
