//! A store from its making to its end: volumes, the threads that write to them, and what is left behind.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::{Disk, DiskOpen};

use crate::error::StoreError;
use crate::format::VolumeHead;
use crate::locks::locked;
use crate::options::{Mode, OpenOptions, StoreOptions, VolumeSpec};
use crate::segments::segment::Segment;
use crate::segments::volume::{HEAD_NAME, Volume, hold, index_ends, read_head, write_head};
use crate::segments::volume_copy::{COPY_NAME, write_copy};
use crate::store::Store;

impl Store {
    /// Makes an empty store and opens it.
    ///
    /// # Errors
    /// When a setting cannot be, a directory holds a store already, or a disk fails.
    pub fn create(volumes: Vec<VolumeSpec>, options: StoreOptions) -> Result<Self, StoreError> {
        let shape = options.shape(&volumes)?;
        let (store, hash_seed) = (u128::from(random()) << 64 | u128::from(random()), random());
        let disks = volumes.iter().map(|volume| volume.disk.clone()).collect::<Vec<_>>();
        for (number, spec) in volumes.iter().enumerate() {
            let head = VolumeHead {
                store,
                hash_seed,
                volume: number as u32,
                volumes: volumes.len() as u32,
                block_bytes: shape.block_bytes,
                segment_blocks: shape.segment_blocks,
                size_bytes: spec.size_bytes,
                object_bytes_mean: options.object_bytes_mean,
                durable: options.mode == Mode::Store,
                expires: options.expires,
                cyclic: options.cyclic,
                openings: 0,
                begun: 0,
                closed: None,
            };
            make_volume(&spec.disk, &head)?;
        }
        Self::open(
            disks,
            OpenOptions {
                cache: options.cache,
                verify: options.verify,
                direct_writes: options.direct_writes,
                memory_bytes_max: options.memory_bytes_max,
                clock: options.clock,
                ..OpenOptions::default()
            },
        )
    }

    /// Opens a store: at once after a clean stop; else it learns in the background what is there, while a cache misses
    /// and a store lets its users wait.
    ///
    /// # Errors
    /// When another process has it, no volume is one, they do not belong together, or one is missing in store mode.
    pub fn open(disks: Vec<Arc<dyn Disk>>, options: OpenOptions) -> Result<Self, StoreError> {
        crate::store::opening::open(disks, options)
    }

    /// Makes all that was done durable.
    ///
    /// # Errors
    /// When a volume failed.
    pub fn flush(&self) -> Result<(), StoreError> {
        if self.objects.setup.read_only {
            return Ok(());
        }
        let mut result = Ok(());
        let acks = self.objects.segments.all_volumes().into_iter().map(|volume| {
            if let Some(failure) = volume.failure() {
                return Err(failure);
            }
            Ok(volume.queue.ask_for_sync())
        });
        for ack in acks.collect::<Vec<_>>() {
            result = result.and(ack.and_then(|ack| ack.wait()));
        }
        result
    }

    /// Adds a volume. It takes objects from now on.
    ///
    /// # Errors
    /// When the directory holds a store already, or its disk fails.
    pub fn add_volume(&self, spec: VolumeSpec) -> Result<(), StoreError> {
        self.readiness.wait_ready()?;
        if self.objects.setup.read_only {
            return Err(StoreError::ReadOnly { why: "the store was opened read-only".to_owned() });
        }
        let shape = self.objects.setup.shape;
        let bytes_min = shape.segment_bytes() * 5 / 4;
        if spec.size_bytes < bytes_min {
            let why =
                format!("a segment and its index do not fit; at least {bytes_min} bytes are needed").into();
            return Err(StoreError::Setting {
                name: "the size of a volume in bytes",
                given: spec.size_bytes,
                why,
            });
        }
        let (volume, index) = self.objects.segments.grow(|volumes| added_to(volumes, spec))?;
        for index in 0..=index {
            write_copy(&self.objects.segments, index, None)?;
        }
        // Without its writer the volume would take writes that are never done.
        self.start_writer(&volume, index).inspect_err(|error| drop(volume.fail(error.clone())))
    }

    pub(crate) fn start_writer(&self, volume: &Arc<Volume>, index: usize) -> Result<(), StoreError> {
        let (objects, volume) = (self.objects.clone(), volume.clone());
        let name = format!("pack-writer-{}", volume.number);
        let spawned = std::thread::Builder::new()
            .name(name.clone())
            .spawn(move || crate::procedures::writer::run(&objects, &volume, index));
        locked(&self.threads).push(spawned.map_err(|error| StoreError::thread(&name, &error))?);
        Ok(())
    }

    /// Ends cleanly: all is durable, and the next opening knows at once what is there.
    ///
    /// # Errors
    /// When a volume failed.
    pub fn close(self) -> Result<(), StoreError> {
        let ready = self.readiness.wait_ready();
        if self.objects.setup.read_only {
            return Ok(());
        }
        self.objects.close_all_large();
        let flushed = self.flush();
        self.stop();
        ready.and(flushed)?;
        if crate::procedures::table_file::write(&self.objects)? {
            self.note_clean_stop();
        }
        Ok(())
    }

    /// Writes into the heads that the last stop was a clean one, and how long the indexes are: what is missing at their ends
    /// is noticed then, even where the table is gone.
    fn note_clean_stop(&self) {
        let segments = &self.objects.segments;
        for (index, volume) in segments.all_volumes().iter().enumerate() {
            if volume.leaving.load(Ordering::SeqCst) {
                continue;
            }
            let files = segments.all_files();
            let lengths = files.iter().filter(|segment| segment.volume == index).filter_map(|segment| {
                let index = volume.disk.open(&Segment::index_name(segment.number), DiskOpen::Read).ok()?;
                Some((segment.number, index.length().ok()?))
            });
            let closed = Some(index_ends(lengths));
            // A copy of an earlier opening beside a head that reports a clean stop would be taken for damage.
            let copied = match volume.copy_is_old.load(Ordering::SeqCst) {
                true => write_copy(segments, index, None),
                false => Ok(()),
            };
            let written = copied
                .map_err(StoreError::from)
                .and_then(|()| read_head(&volume.disk))
                .and_then(|head| Ok(write_head(&volume.disk, &VolumeHead { closed, ..head })?));
            if let Err(error) = written {
                // The table has it too.
                tracing::warn!(%error, volume = %volume.disk.place(), "the head does not tell of the clean stop");
            }
        }
    }

    fn stop(&self) {
        self.objects.queue.stop();
        let threads = std::mem::take(&mut *locked(&self.threads));
        for thread in threads {
            let _ = thread.join();
        }
        for volume in self.objects.segments.all_volumes() {
            volume.queue.let_go_of_files();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How many volumes the store has that this one belongs to, by its head or the copy of that.
///
/// # Errors
/// When neither can be read.
pub fn volumes_expected(disk: &Arc<dyn Disk>) -> Result<u32, StoreError> {
    Ok(read_head(disk)?.volumes)
}

/// Makes a volume that belongs to those that are there, and adds it to their heads.
fn added_to(volumes: &[Arc<Volume>], spec: VolumeSpec) -> Result<Arc<Volume>, StoreError> {
    let number = volumes.iter().map(|volume| volume.number + 1).max().unwrap_or(0);
    let staying = volumes.iter().filter(|volume| !volume.leaving.load(Ordering::SeqCst));
    let Some(first) = staying.clone().next() else { return Err(StoreError::Closed) };
    let mut head = read_head(&first.disk)?;
    // As many as there are, not the highest number: one may have been removed.
    let count = head.volumes + 1;
    (head.volume, head.size_bytes, head.volumes) = (number, spec.size_bytes, count);
    make_volume(&spec.disk, &head)?;
    for volume in staying {
        let mut other = read_head(&volume.disk)?;
        other.volumes = count;
        write_head(&volume.disk, &other)?;
    }
    let lock = hold(&spec.disk)?;
    Ok(Arc::new(Volume::new(number, spec.disk, spec.size_bytes, Some(lock))))
}

fn make_volume(disk: &Arc<dyn Disk>, head: &VolumeHead) -> Result<(), StoreError> {
    let ours = |name: &String| {
        name == HEAD_NAME || name == COPY_NAME || name.ends_with(".body") || name.ends_with(".index")
    };
    if disk.names()?.iter().any(ours) {
        return Err(StoreError::NotEmpty { place: disk.place() });
    }
    Ok(write_head(disk, head)?)
}

/// A number that no stranger can guess.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
