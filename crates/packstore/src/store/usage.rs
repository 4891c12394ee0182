//! What a store holds, takes and did.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::Disk;

use crate::options::Mode;
use crate::store::Store;

/// Figures of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Objects, as keys count.
    pub objects: u64,
    /// Bytes of the volumes that the store may use.
    pub size_bytes: u64,
    /// Bytes of blocks that hold live records.
    pub live_bytes: u64,
    /// Segments; each is a data file and an index file.
    pub packed_files: u64,
    /// Bytes of data files, used or free.
    pub body_bytes: u64,
    /// Bytes of index files.
    pub index_bytes: u64,
    /// Memory that grows with the objects: the table of fingerprints, bits for eviction, links.
    pub memory_bytes: u64,
    /// Memory that the memory tier takes, bounded by its option.
    pub memory_tier_bytes: u64,
    /// Since the opening: objects served from the memory tier.
    pub memory_hits: u64,
    /// Since the opening: bytes written to data files.
    pub body_written_bytes: u64,
    /// Since the opening: bytes written to index files, rewriting included.
    pub index_written_bytes: u64,
    /// Since the opening: syncs of files.
    pub syncs: u64,
    /// Since the opening: groups written.
    pub groups: u64,
    /// Since the opening: objects evicted.
    pub evicted: u64,
    /// Since the opening: objects forgotten as their time to live was over. Those that wait for that count as objects, and their blocks
    /// as live.
    pub expired: u64,
    /// Since the opening: objects that a cache did not store when they were first put ([`crate::Admission`]).
    pub refused: u64,
    /// Since the opening: reads of data files.
    pub disk_reads: u64,
    /// Since the opening: objects that were asked for and found damaged.
    pub damaged_reads: u64,
    /// At the opening: index records that failed their checksums.
    pub damaged_controls: u64,
    /// At the opening: segments whose index could not be read.
    pub damaged_files: u64,
    /// At the opening: puts that power loss had left half done, and that were not acknowledged.
    pub torn_puts: u64,
    /// Whether the store knows all that it holds.
    pub ready: bool,
}

/// A volume, as it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeState {
    /// Its directory.
    pub place: String,
    /// Bytes that the store may use.
    pub size_bytes: u64,
    /// Bytes of blocks that hold live records.
    pub live_bytes: u64,
    /// Segments.
    pub packed_files: u64,
    /// Why it takes no more writes, if it does not.
    pub failed: Option<String>,
}

impl Store {
    /// The number ([`crate::Stat::sequence`]) of the next change: whatever is stored now has a lower one. It is known once the store is
    /// ready.
    pub fn next_sequence(&self) -> u64 {
        self.objects.queue.sequence()
    }

    /// Figures of the store.
    pub fn usage(&self) -> Usage {
        let objects = &self.objects;
        let segments = objects.segments.all_files();
        let block_bytes = u64::from(objects.setup.shape.block_bytes);
        let links = objects.shared_objects() as u64;
        let mut usage = Usage {
            objects: objects.index.objects(),
            packed_files: segments.len() as u64,
            live_bytes: segments
                .iter()
                .map(|segment| u64::from(segment.live_blocks.load(Ordering::Relaxed)) * block_bytes)
                .sum(),
            body_bytes: segments.len() as u64 * objects.setup.shape.segment_bytes(),
            index_bytes: segments.iter().map(|segment| segment.index_bytes.load(Ordering::Relaxed)).sum(),
            memory_bytes: objects.index.memory_bytes() as u64
                + objects.policy.memory_bytes() as u64
                + links * 16,
            memory_tier_bytes: objects.policy.memory().memory_bytes(),
            memory_hits: objects.policy.memory().hits(),
            refused: objects.policy.refused(),
            disk_reads: objects.disk_reads(),
            damaged_reads: objects.damaged_reads(),
            damaged_controls: objects.segments.damaged_controls(),
            damaged_files: objects.segments.damaged_files(),
            torn_puts: objects.index.torn().len() as u64,
            ready: self.readiness.is_ready(),
            ..Usage::default()
        };
        for volume in objects.segments.all_volumes() {
            let counters = &volume.counters;
            usage.size_bytes += volume.size_bytes.load(Ordering::Relaxed);
            usage.body_written_bytes += counters.body_bytes.load(Ordering::Relaxed);
            usage.index_written_bytes += counters.index_bytes.load(Ordering::Relaxed);
            usage.syncs += counters.syncs.load(Ordering::Relaxed);
            usage.groups += counters.groups.load(Ordering::Relaxed);
            usage.evicted += counters.evicted.load(Ordering::Relaxed);
            usage.expired += counters.expired.load(Ordering::Relaxed);
        }
        usage
    }

    /// Each volume.
    pub fn volumes(&self) -> Vec<VolumeState> {
        let objects = &self.objects;
        let segments = objects.segments.all_files();
        let block_bytes = u64::from(objects.setup.shape.block_bytes);
        let state = |(index, volume): (usize, Arc<crate::segments::volume::Volume>)| {
            let mine = segments.iter().filter(|segment| segment.volume == index);
            VolumeState {
                place: volume.disk.place(),
                size_bytes: volume.size_bytes.load(Ordering::Relaxed),
                live_bytes: mine
                    .clone()
                    .map(|segment| u64::from(segment.live_blocks.load(Ordering::Relaxed)) * block_bytes)
                    .sum(),
                packed_files: mine.count() as u64,
                failed: volume.failed.get().map(|why| why.to_string()),
            }
        };
        objects.segments.all_volumes().into_iter().enumerate().map(state).collect()
    }

    /// What the store promises.
    pub fn mode(&self) -> Mode {
        self.objects.setup.mode
    }

    /// Whether the store overwrites its oldest objects when it is full.
    pub fn is_cyclic(&self) -> bool {
        self.objects.setup.cyclic
    }

    /// Whether the store was opened for reading alone.
    pub fn is_read_only(&self) -> bool {
        self.objects.setup.read_only
    }

    /// A random number that the store got when it was created: it distinguishes this store from others.
    pub fn random_id(&self) -> u64 {
        self.objects.setup.hash_seed
    }

    /// The disk of the first volume, where a layer above may keep scratch files of its own.
    pub fn first_disk(&self) -> Arc<dyn Disk> {
        self.objects.segments.volume(0).disk.clone()
    }

    /// Bytes of a block, and blocks of a segment.
    pub fn shape(&self) -> (u32, u32) {
        (self.objects.setup.shape.block_bytes, self.objects.setup.shape.segment_blocks)
    }
}
