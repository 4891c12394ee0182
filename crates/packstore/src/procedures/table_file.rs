//! What a clean stop leaves, so that the next opening need not look through the index files: the file `table`.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::{Disk, DiskFile, DiskOpen};

use crate::error::StoreError;
use crate::fingerprints::FingerprintIndex;
use crate::format::{EXTENDED_VERSION, FORMAT_VERSION, crc, u32_at, u64_at};
use crate::objects::Objects;
use crate::segments::segment::{ExpiryRange, Segment};
use crate::segments::volume::TABLE_NAME;

const HEAD_BYTES: usize = 80;
const FILE_BYTES: usize = 32;
/// Where objects expire: when those of the file do.
const EXPIRY_BYTES: usize = 8;
/// More than any store's: a length from a disk sizes nothing unseen.
const LIST_BYTES_MAX: u64 = 1 << 30;

/// A table as read.
pub(crate) struct TableFile {
    pub table: FingerprintIndex,
    pub rest: Rest,
}

/// What is not in the table of fingerprints.
pub(crate) struct Rest {
    sequence: u64,
    /// The store's clock at the stop.
    time_s: u32,
    objects: i64,
    files: HashMap<u32, FileEntry>,
    links: HashMap<u64, u32>,
    torn: HashSet<u64>,
}

struct FileEntry {
    live_blocks: u32,
    generation: u64,
    since: u64,
    exhausted_at: u32,
    queue_kind: u8,
    expiry: ExpiryRange,
}

impl TableFile {
    /// Whether it names all these files.
    pub(crate) fn knows(&self, segments: &[Option<Arc<Segment>>]) -> bool {
        segments.iter().flatten().all(|segment| self.rest.files.contains_key(&segment.number))
    }
}

impl Rest {
    pub(crate) fn apply(self, objects: &Objects) {
        objects.queue.set_sequence(self.sequence);
        objects.clock.not_before(self.time_s);
        let mut away = false;
        for (number, entry) in self.files {
            let Some(segment) = objects.segments.file(number) else {
                away = true;
                objects.segments.note_missing_file(number);
                continue;
            };
            segment.live_blocks.store(entry.live_blocks, Ordering::Relaxed);
            segment.generation.store(entry.generation, Ordering::Relaxed);
            segment.since.store(entry.since, Ordering::Relaxed);
            segment.exhausted_at.store(entry.exhausted_at, Ordering::Relaxed);
            segment.queue_kind.store(entry.queue_kind, Ordering::Relaxed);
            segment.set_expiry(entry.expiry);
        }
        let mut count = self.objects;
        if away {
            // Its pieces and shared objects are not distinguished here: the count is then a little low.
            let gone = objects.index.retain(|location| objects.segments.segment_at(location).is_some());
            count -= gone as i64;
            objects.segments.note_missing_records(gone as u64);
        }
        objects.index.learn(count, self.torn);
        objects.set_links(self.links);
    }
}

/// Writes the table to the first volume that takes writes. Returns false, and writes nothing, when no volume does or one has failed, and
/// while an index is damaged: the table would say that the objects which that index lacks are gone. The next opening then reads all
/// indexes.
pub(crate) fn write(objects: &Objects) -> Result<bool, StoreError> {
    let Some(volume) = objects.segments.all_volumes().into_iter().find(|volume| volume.takes_objects())
    else {
        return Ok(false);
    };
    if objects.index.is_incomplete() {
        tracing::warn!(
            "an index is damaged: the next opening looks through all indexes; run `crumb pack repair`"
        );
        return Ok(false);
    }
    // A failed volume's files may hold less than the table says.
    if objects.segments.all_volumes().iter().any(|volume| volume.failed.get().is_some()) {
        return Ok(false);
    }
    let mut list = Vec::new();
    let segments = objects.segments.all_files();
    for segment in &segments {
        list.extend_from_slice(&segment.number.to_le_bytes());
        list.extend_from_slice(&segment.live_blocks.load(Ordering::Relaxed).to_le_bytes());
        list.extend_from_slice(&segment.generation.load(Ordering::Relaxed).to_le_bytes());
        list.extend_from_slice(&segment.since.load(Ordering::Relaxed).to_le_bytes());
        list.extend_from_slice(&segment.exhausted_at.load(Ordering::Relaxed).to_le_bytes());
        list.extend_from_slice(&u32::from(segment.queue_kind.load(Ordering::Relaxed)).to_le_bytes());
        if objects.setup.expires {
            let ExpiryRange { first_s, last_s } = segment.expiry();
            [first_s, last_s].iter().for_each(|time_s| list.extend_from_slice(&time_s.to_le_bytes()));
        }
    }
    let links = objects.links();
    for (id, count) in &links {
        list.extend_from_slice(&id.to_le_bytes());
        list.extend_from_slice(&u64::from(*count).to_le_bytes());
    }
    let torn = objects.index.torn();
    for sequence in &torn {
        list.extend_from_slice(&sequence.to_le_bytes());
    }
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(b"CRUMBTAB");
    let version = if objects.setup.expires { EXTENDED_VERSION } else { FORMAT_VERSION };
    head[8..12].copy_from_slice(&version.to_le_bytes());
    head[12..16].copy_from_slice(&objects.time_of_heads().to_le_bytes());
    head[16..32].copy_from_slice(&objects.setup.store.to_le_bytes());
    let words = [objects.setup.openings, objects.queue.sequence(), objects.index.objects()];
    for (at, word) in words.into_iter().enumerate() {
        head[32 + at * 8..40 + at * 8].copy_from_slice(&word.to_le_bytes());
    }
    for (at, len) in [segments.len(), links.len(), torn.len()].into_iter().enumerate() {
        head[56 + at * 4..60 + at * 4].copy_from_slice(&(len as u32).to_le_bytes());
    }
    head[72..76].copy_from_slice(&crc(&list).to_le_bytes());
    let sum = crc(&head[..76]);
    head[76..].copy_from_slice(&sum.to_le_bytes());

    let written = write_to(objects, &volume.disk, &head, &list);
    if written.is_err() {
        // On a full disk it would keep room from what is put next.
        let _ = volume.disk.remove(NEW_TABLE_NAME);
    }
    written.map(|()| true)
}

const NEW_TABLE_NAME: &str = "table.new";

fn write_to(objects: &Objects, disk: &Arc<dyn Disk>, head: &[u8], list: &[u8]) -> Result<(), StoreError> {
    let _ = disk.remove(NEW_TABLE_NAME);
    let file = disk.open(NEW_TABLE_NAME, DiskOpen::New)?;
    let mut sink = Sink { file: &file, at: 0, bytes: Vec::with_capacity(SINK_BYTES) };
    let on_error = |error: io::Error| {
        StoreError::from(disk::DiskError {
            place: disk.place(),
            name: TABLE_NAME.to_owned(),
            operation: "write",
            source: error,
        })
    };
    sink.write_all(head).and_then(|()| sink.write_all(list)).map_err(on_error)?;
    objects.index.snapshot(&mut sink).and_then(|()| sink.flush()).map_err(on_error)?;
    file.sync()?;
    disk.rename(NEW_TABLE_NAME, TABLE_NAME)?;
    Ok(disk.sync_names()?)
}

/// The table of the last clean stop, when nothing was written since; and where there is one that is damaged.
///
/// # Errors
/// When there are no descriptors.
pub(crate) fn read(
    disks: &[Arc<dyn Disk>],
    store: u128,
    openings: u64,
    objects_expected: u64,
) -> Result<(Option<TableFile>, Option<String>), StoreError> {
    let mut damaged = None;
    for disk in disks {
        let file = match disk.open(TABLE_NAME, DiskOpen::Read).map_err(StoreError::from) {
            Ok(file) => file,
            // It may be there, and say what the indexes do not.
            Err(error @ StoreError::NoDescriptors { .. }) => return Err(error),
            Err(_) => continue,
        };
        match read_one(&file, store, openings, objects_expected) {
            Ok(Some(table)) => return Ok((Some(table), None)),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(volume = %disk.place(), %error, "the table of the last stop is of no use");
                damaged = Some(disk.place());
            }
        }
    }
    Ok((None, damaged))
}

fn read_one(
    file: &Arc<dyn DiskFile>,
    store: u128,
    openings: u64,
    objects_expected: u64,
) -> io::Result<Option<TableFile>> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let length = file.length().map_err(|error| error.source)?;
    let mut reader = BufReader::with_capacity(1 << 20, Source { file, at: 0 });
    let mut head = [0; HEAD_BYTES];
    reader.read_exact(&mut head)?;
    let is_extended = u32_at(&head, 8) == EXTENDED_VERSION;
    if &head[..8] != b"CRUMBTAB" || !(is_extended || u32_at(&head, 8) == FORMAT_VERSION) {
        return Err(wrong("it does not begin as one"));
    }
    if crc(&head[..76]) != u32_at(&head, 76) {
        return Err(wrong("its head fails its checksum"));
    }
    if head[16..32] != store.to_le_bytes() || u64_at(&head, 32) != openings {
        // Of an earlier stop.
        return Ok(None);
    }
    let counts = [56, 60, 64].map(|at| u32_at(&head, at) as usize);
    let file_bytes = if is_extended { FILE_BYTES + EXPIRY_BYTES } else { FILE_BYTES };
    let list_bytes = (counts[0] * file_bytes + counts[1] * 16 + counts[2] * 8) as u64;
    if list_bytes > LIST_BYTES_MAX.min(length) {
        return Err(wrong("its lists are longer than it"));
    }
    let mut list = vec![0; list_bytes as usize];
    reader.read_exact(&mut list)?;
    if crc(&list) != u32_at(&head, 72) {
        return Err(wrong("its lists fail their checksum"));
    }
    let (files, rest) = list.split_at(counts[0] * file_bytes);
    let (links, torn) = rest.split_at(counts[1] * 16);
    let entry = |bytes: &[u8]| {
        let entry = FileEntry {
            live_blocks: u32_at(bytes, 4),
            generation: u64_at(bytes, 8),
            since: u64_at(bytes, 16),
            exhausted_at: u32_at(bytes, 24),
            queue_kind: bytes[28],
            expiry: match is_extended {
                true => ExpiryRange { first_s: u32_at(bytes, 32), last_s: u32_at(bytes, 36) },
                false => ExpiryRange::EMPTY,
            },
        };
        (u32_at(bytes, 0), entry)
    };
    let rest = Rest {
        sequence: u64_at(&head, 40),
        time_s: u32_at(&head, 12),
        objects: u64_at(&head, 48) as i64,
        files: files.chunks_exact(file_bytes).map(entry).collect(),
        links: links.chunks_exact(16).map(|link| (u64_at(link, 0), u64_at(link, 8) as u32)).collect(),
        torn: torn.chunks_exact(8).map(|sequence| u64_at(sequence, 0)).collect(),
    };
    // As long as the file says, and never beyond what such a store could have made.
    let memory_bytes_max =
        length.max(1 << 20).min((objects_expected.max(1 << 20)).saturating_mul(1024)) as usize;
    let table = FingerprintIndex::restore(&mut reader, memory_bytes_max)?;
    Ok(Some(TableFile { table, rest }))
}

/// It is of no use once something is written.
pub(crate) fn remove(disks: &[Arc<dyn Disk>]) {
    for disk in disks {
        // Should it stay, its count of openings says that it is old.
        let _ = disk.remove(TABLE_NAME);
    }
}

const SINK_BYTES: usize = 1 << 20;

struct Sink<'a> {
    file: &'a Arc<dyn DiskFile>,
    at: u64,
    bytes: Vec<u8>,
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= SINK_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(&self.bytes, self.at).map_err(|error| error.source)?;
        self.at += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }
}

struct Source<'a> {
    file: &'a Arc<dyn DiskFile>,
    at: u64,
}

impl Read for Source<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(bytes, self.at).map_err(|error| error.source)?;
        self.at += read as u64;
        Ok(read)
    }
}
