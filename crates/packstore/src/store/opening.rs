//! Opens a store: which volumes belong together, which segments there are, and what is in them.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::Disk;

use crate::cache_policy::CachePolicy;
use crate::clock::StoreClock;
use crate::error::StoreError;
use crate::fingerprints::FingerprintIndex;
use crate::format::{
    INDEX_HEAD_BYTES, IndexHead, IndexRecord, IndexRecords, OBJECT_OVERHEAD_BYTES, VolumeHead,
};
use crate::index::Index;
use crate::objects::{Objects, Setup};
use crate::options::{Mode, OpenOptions, Shape};
use crate::procedures::rebuild::{SPILL_NAME, rebuild};
use crate::procedures::recover::reindex::reindex;
use crate::procedures::recover::restore::restore;
use crate::procedures::table_file::{self, TableFile};
use crate::segments::segment::{Access, Segment};
use crate::segments::volume::{Volume, hold, index_ends, is_full, read_head_or_copy, update_head};
use crate::segments::volume_copy::{VolumeCopy, head_from_others, head_of_indexes, write_copy};
use crate::segments::{LostParts, Segments};
use crate::store::Store;
use crate::store::in_the_way::{Way, clear_the_way, refuse_what_may_be_there};
use crate::write_queue::WriteQueue;

pub(crate) fn open(disks: Vec<Arc<dyn Disk>>, options: OpenOptions) -> Result<Store, StoreError> {
    let mut volumes = Vec::new();
    let mut left_out = Vec::new();
    let mut lost = LostParts::default();
    let way = match (options.read_only, options.move_aside) {
        (true, _) => Way::Report,
        (false, true) => Way::MoveAside,
        (false, false) => Way::Refuse,
    };
    if way == Way::MoveAside {
        // Before anything is changed on any of them.
        disks.iter().try_for_each(refuse_what_may_be_there)?;
    }
    for disk in disks {
        let in_the_way = clear_the_way(&disk, way)?;
        lost.heads.extend(in_the_way.repairable);
        lost.by_hand.extend(in_the_way.of_data);
        match open_volume(&disk, options.read_only) {
            Ok((head, damage, lock)) => {
                let damage = damage.or_else(|| VolumeCopy::fault(&disk, &head));
                lost.heads.extend(damage.map(|damage| format!("{}: {damage}", disk.place())));
                volumes.push((head, disk, lock));
            }
            Err(error @ (StoreError::Locked { .. } | StoreError::NoDescriptors { .. })) => return Err(error),
            Err(error) => left_out.push((disk, error)),
        }
    }
    let mut first_error = None;
    for (disk, error) in left_out {
        let present = volumes.iter().map(|(head, ..)| head.volume).collect::<Vec<_>>();
        let others = volumes.iter().map(|(_, disk, _)| disk).collect::<Vec<_>>();
        match head_from_others(&disk, &others, &present) {
            Some(head) => {
                let lock = if options.read_only { None } else { Some(hold(&disk)?) };
                lost.heads
                    .push(format!("{}: the file `volume` and its copy are damaged or missing", disk.place()));
                volumes.push((head, disk, lock));
            }
            None => {
                let error = with_segments(&disk, error);
                tracing::warn!(%error, "volume left out");
                first_error.get_or_insert(error);
            }
        }
    }
    lost.heads.iter().chain(&lost.by_hand).for_each(|damage| tracing::error!("{damage}"));
    let Some((first, _, _)) = volumes.first() else {
        let none = StoreError::Setting {
            name: "the number of volumes",
            given: 0,
            why: "at least one is needed".into(),
        };
        return Err(first_error.unwrap_or(none));
    };
    let first = *first;
    let openings = volumes.iter().map(|(head, ..)| head.openings).max().unwrap_or(0);
    let expected = volumes.iter().map(|(head, ..)| head.volumes as usize).max().unwrap_or(0);
    volumes.sort_by_key(|(head, ..)| head.volume);
    for (at, (head, disk, _)) in volumes.iter().enumerate() {
        let foreign = |why: &str| Err(StoreError::Foreign { place: disk.place(), why: why.to_owned() });
        if head.store != first.store {
            return foreign("it belongs to another store");
        }
        if head.begun < openings {
            return foreign("it was away while the store was written to");
        }
        if at > 0 && volumes[at - 1].0.volume == head.volume {
            return foreign("it was given twice, or is a copy");
        }
    }
    let mode = if first.durable { Mode::Store } else { Mode::Cache };
    let missing = volumes.len() < expected;
    lost.volumes = expected.saturating_sub(volumes.len());
    if missing && mode == Mode::Store && !options.read_only && !options.without_missing {
        return Err(StoreError::Missing { found: volumes.len(), expected });
    }
    let shape = Shape { block_bytes: first.block_bytes, segment_blocks: first.segment_blocks };
    if !shape.block_bytes.is_power_of_two() || shape.block_bytes < 64 || shape.segment_blocks == 0 {
        let why = "its block sizes cannot be".to_owned();
        return Err(StoreError::NotAVolume { place: volumes[0].1.place(), why });
    }

    let mut segments: Vec<Option<Arc<Segment>>> = Vec::new();
    let mut bare = Vec::new();
    for (index, (head, disk, _)) in volumes.iter().enumerate() {
        // A volume may have been larger.
        let bodies = disk.names()?.iter().filter(|name| name.ends_with(".body")).count() as u64;
        let volume_bytes = head.size_bytes.max((bodies + 1) * shape.segment_bytes());
        let access = Access::of(mode, options.read_only, volume_bytes);
        bare.extend(find_files(disk, index, shape, access, &mut segments)?);
    }
    // Bodies without an index, when it is known which numbers have one.
    for body in bare {
        let at = body.number as usize;
        if segments.len() <= at {
            segments.resize(at + 1, None);
        }
        match &segments[at] {
            None => segments[at] = Some(Arc::new(body)),
            Some(_) => tracing::error!(
                file = body.number,
                volume = %volumes[body.volume].1.place(),
                "a data file has the number of another segment: it is left alone"
            ),
        }
    }
    for (index, (head, disk, _)) in volumes.iter().enumerate() {
        // A copy of another opening may tell of files that an earlier version of this program removed.
        let copy = VolumeCopy::read(disk).filter(|copy| copy.heads.first() == Some(&head.unclosed()));
        let is_away = |number: &u32| segments.get(*number as usize).is_none_or(Option::is_none);
        lost.files
            .extend(copy.unwrap_or_default().files.into_iter().filter(is_away).map(|number| (number, index)));
    }
    let size_bytes = volumes.iter().map(|(head, ..)| head.size_bytes).sum::<u64>();
    let objects_expected = size_bytes / (u64::from(first.object_bytes_mean) + OBJECT_OVERHEAD_BYTES);
    let disks = volumes.iter().map(|(_, disk, _)| disk.clone()).collect::<Vec<_>>();
    let found;
    (found, lost.table) = table_file::read(&disks, first.store, openings, objects_expected)?;
    let found = found.filter(|table| table.knows(&segments));
    if found.is_none() {
        note_ends(&volumes, openings, &segments, &mut lost);
    }
    let mut heads = volumes.iter().map(|(head, ..)| *head).collect::<Vec<_>>();
    let volumes = volumes
        .into_iter()
        .map(|(head, disk, lock)| Arc::new(Volume::new(head.volume, disk, head.size_bytes, lock)))
        .collect::<Vec<_>>();
    let (table, known) = match found {
        Some(TableFile { table, rest }) => (table, Some(rest)),
        None => {
            let objects = objects_at_most(&segments).max(objects_expected);
            (FingerprintIndex::with_capacity(usize::try_from(objects).unwrap_or(usize::MAX).max(1024)), None)
        }
    };
    let setup = Setup {
        store: first.store,
        hash_seed: first.hash_seed,
        mode,
        expires: first.expires,
        cyclic: first.cyclic,
        read_only: options.read_only,
        shape,
        verify: options.verify,
        direct_writes: options.direct_writes.unwrap_or(mode == Mode::Cache),
        openings: if options.read_only { openings } else { openings + 1 },
    };
    let segments = Arc::new(Segments::new(shape, volumes.clone(), segments, lost));
    let table = if setup.evicts() { table.counting() } else { table };
    let objects = Objects::new(
        setup,
        segments.clone(),
        Index::new(table, shape),
        CachePolicy::new(setup.evicts(), &options.cache, options.memory_bytes_max, objects_expected),
        WriteQueue::new(mode, first.cyclic, options.read_only, shape, &options.cache, segments),
        StoreClock::new(options.clock.clone()),
    );
    let store = Store { objects: Arc::new(objects), readiness: Arc::default(), threads: Default::default() };
    let known = known.is_some_and(|rest| {
        rest.apply(&store.objects);
        true
    });
    if known && options.move_aside && !options.read_only {
        reindex(&store.objects)?;
    }
    if !options.read_only {
        begin_writing(&mut heads, &disks, openings)?;
        for (index, volume) in volumes.iter().enumerate() {
            match write_copy(&store.objects.segments, index, None) {
                // It is written again when a segment is made or removed, or when the store is closed.
                Err(error) if is_full(&error) => volume.copy_is_old.store(true, Ordering::SeqCst),
                written => written?,
            }
        }
    }
    match known {
        true => {
            let is_lost = |segment: &Arc<Segment>| segment.index_lost.load(Ordering::SeqCst);
            if store.objects.segments.all_files().iter().any(is_lost) && !options.read_only {
                spawn(&store, "pack-restore", |objects| {
                    restore(objects, true);
                    Ok(())
                })?;
            } else {
                store.readiness.set_ready(Ok(()));
            }
        }
        false if store.objects.segments.all_files().is_empty() => store.readiness.set_ready(Ok(())),
        false => spawn(&store, "pack-rebuild", move |objects| {
            rebuild(objects, options.rebuild_bytes_max)?.install(objects);
            Ok(())
        })?,
    }
    if !options.read_only {
        for (index, volume) in volumes.iter().enumerate() {
            store.start_writer(volume, index)?;
        }
    }
    Ok(store)
}

/// Notes in the heads that the store is open, and removes the table: it is wrong once something is written.
fn begin_writing(heads: &mut [VolumeHead], disks: &[Arc<dyn Disk>], openings: u64) -> Result<(), StoreError> {
    // First that the store was not closed since: without a table, a clean stop would be assumed.
    for (head, disk) in heads.iter_mut().zip(disks) {
        (head.begun, head.closed) = (openings + 1, None);
        if update_head(disk, head)? {
            tracing::warn!(
                volume = %disk.place(),
                "the disk is full: what is stored is served, and what finds no room is refused until there is some"
            );
        }
    }
    table_file::remove(disks);
    for (head, disk) in heads.iter_mut().zip(disks) {
        head.openings = openings + 1;
        update_head(disk, head)?;
    }
    Ok(())
}

/// Compares the lengths of the index files with those of the last clean stop, for want of a table.
fn note_ends(
    volumes: &[(VolumeHead, Arc<dyn Disk>, Option<disk::DiskLock>)],
    openings: u64,
    segments: &[Option<Arc<Segment>>],
    lost: &mut LostParts,
) {
    for (index, (head, disk, _)) in volumes.iter().enumerate() {
        let Some(ends) = head.closed.filter(|_| head.openings == openings) else { continue };
        lost.was_closed = true;
        let mine = segments.iter().flatten().filter(|segment| segment.volume == index);
        let mine = mine.filter(|segment| !segment.index_lost.load(Ordering::SeqCst));
        let lengths = mine.map(|segment| (segment.number, segment.index_bytes.load(Ordering::Relaxed)));
        if index_ends(lengths) != ends {
            lost.short_volumes.push(index);
            let what = "an index is not as long as the last stop left it, and there is no `table`: objects deleted last may be \
                        back, and those put last may be missing";
            tracing::error!("{}: {what}", disk.place());
            lost.heads.push(format!("{}: {what}", disk.place()));
        }
    }
}

/// Learns what is there in the background; then the store is ready.
fn spawn(
    store: &Store,
    name: &str,
    learn: impl FnOnce(&Objects) -> Result<(), StoreError> + Send + 'static,
) -> Result<(), StoreError> {
    let (objects, readiness) = (store.objects.clone(), store.readiness.clone());
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let learnt = learn(&objects);
        readiness.set_ready(learnt);
    });
    let thread = spawned.map_err(|error| StoreError::thread(name, &error))?;
    crate::locks::locked(&store.threads).push(thread);
    Ok(())
}

/// As many objects as the index files could tell of, by the index records that the largest begins with: their keys may be long.
fn objects_at_most(segments: &[Option<Arc<Segment>>]) -> u64 {
    let index_bytes = |segment: &Arc<Segment>| segment.index_bytes.load(Ordering::Relaxed);
    let segments = segments.iter().flatten();
    let Some(largest) = segments.clone().max_by_key(|segment| index_bytes(segment)) else { return 0 };
    let mut bytes = largest.read_index_begin(INDEX_SAMPLE_BYTES).unwrap_or_default();
    let salt = IndexHead::decode_repairing(&mut bytes).map_or(0, |(head, _)| head.salt());
    let (mut puts, mut end) = (0, 0);
    for (at, index_record) in IndexRecords::new(&bytes, salt) {
        puts += u64::from(matches!(index_record, IndexRecord::Put(_)));
        end = at;
    }
    // An index record of a short key takes 72 bytes.
    let each = end.checked_div(puts).unwrap_or(0).max(72);
    segments.map(index_bytes).sum::<u64>() / each
}

/// Enough index records to know their mean.
const INDEX_SAMPLE_BYTES: usize = 256 << 10;

fn open_volume(
    disk: &Arc<dyn Disk>,
    read_only: bool,
) -> Result<(VolumeHead, Option<String>, Option<disk::DiskLock>), StoreError> {
    // Looked at first: a directory that is no volume gets no lock file.
    let (head, damage) = head_of_its_segments(disk)?;
    if read_only {
        return Ok((head, damage, None));
    }
    let lock = hold(disk)?;
    let (head, damage) = head_of_its_segments(disk)?;
    Ok((head, damage, Some(lock)))
}

/// The head of a volume, or the copy of it where the head is another store's; and what is wrong with it.
fn head_of_its_segments(disk: &Arc<dyn Disk>) -> Result<(VolumeHead, Option<String>), StoreError> {
    let (head, damage) = read_head_or_copy(disk)?;
    Ok(match head_of_indexes(disk, &head) {
        Some(copy) => (copy, Some("the file `volume` is of another store: its copy is used".to_owned())),
        None => (head, damage),
    })
}

/// Why a directory is not opened as a volume: when segments are there, its heads are what is lost, and not the store.
fn with_segments(disk: &Arc<dyn Disk>, error: StoreError) -> StoreError {
    let StoreError::NotAVolume { place, why } = error else { return error };
    let names = disk.names().unwrap_or_default();
    let numbers = names.iter().filter_map(|name| number_of(name, ".index").or(number_of(name, ".body")));
    match numbers.collect::<HashSet<_>>().len() {
        0 => StoreError::NotAVolume { place, why },
        segments => StoreError::HeadsLost { place, why, segments },
    }
}

/// Registers the segments that have an index, and returns the others. Deletes what a kill left half made or half removed,
/// which its name says; nothing is deleted because something else is missing.
fn find_files(
    disk: &Arc<dyn Disk>,
    index: usize,
    shape: Shape,
    access: Access,
    files: &mut Vec<Option<Arc<Segment>>>,
) -> Result<Vec<Segment>, StoreError> {
    let mut names = HashSet::from_iter(disk.names()?);
    let others = disk.other_than_files()?.into_iter().map(|(name, _)| name).collect::<HashSet<_>>();
    names.retain(|name| !others.contains(name));
    end_removals(disk, access, &mut names)?;
    let most = crate::index::address::BLOCKS_MAX / u64::from(shape.segment_blocks);
    for number in names.iter().filter_map(|name| number_of(name, ".index")) {
        if u64::from(number) >= most {
            let place = format!("{}/{}", disk.place(), Segment::index_name(number));
            return Err(StoreError::Foreign {
                place,
                why: "its number is beyond what a store has".to_owned(),
            });
        }
        let length = disk.open(&Segment::index_name(number), disk::DiskOpen::Read)?.length()?;
        let has_body = names.contains(&Segment::data_name(number));
        // Power was lost while it was made: nothing is in it. It is replaced when its number is taken again.
        if length <= INDEX_HEAD_BYTES as u64 && !has_body {
            continue;
        }
        let at = number as usize;
        if files.len() <= at {
            files.resize(at + 1, None);
        }
        if let Some(other) = &files[at] {
            let place = format!("{}/{}", disk.place(), Segment::index_name(number));
            let why = format!("volume {} has a segment of this number too", other.volume);
            return Err(StoreError::Foreign { place, why });
        }
        let segment = Segment::new(number, index, disk.clone(), access, 0);
        match segment.why_too_long(length) {
            // It counts as damaged when it is read, and nothing is made as large as it says.
            Some(why) => {
                tracing::error!(file = number, volume = %disk.place(), "the index of a segment: {why}")
            }
            None => segment.index_bytes.store(length, Ordering::Relaxed),
        }
        if !has_body {
            // What is in its place is reported with what to do.
            if !others.contains(&Segment::data_name(number)) {
                tracing::error!(file = number, volume = %disk.place(), "the body of a segment is missing: run `crumb pack repair`");
            }
            segment.never_fill();
        }
        files[at] = Some(Arc::new(segment));
    }
    let is_bare = |number: &u32| !names.contains(&Segment::index_name(*number)) && u64::from(*number) < most;
    let bodies = names.iter().filter_map(|name| number_of(name, ".body"));
    let bare = bodies.filter(is_bare).map(|number| {
        tracing::error!(file = number, volume = %disk.place(), "the index of a segment is missing: its body is looked through");
        let segment = Segment::new(number, index, disk.clone(), access, 0);
        segment.index_lost.store(true, Ordering::SeqCst);
        // Nothing is put there before its index is rewritten.
        segment.never_fill();
        segment
    });
    Ok(bare.collect())
}

/// The number of a segment, of which this is a file with this ending.
pub(crate) fn number_of(name: &str, end: &str) -> Option<u32> {
    let digits = name.strip_suffix(end)?;
    let number = digits.parse::<u32>().ok()?;
    (format!("{number:08}") == digits).then_some(number)
}

/// What a kill left half made goes; a segment whose removal had begun, too.
fn end_removals(disk: &Arc<dyn Disk>, access: Access, names: &mut HashSet<String>) -> Result<(), StoreError> {
    let remove = |name: &str| match disk.remove(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(StoreError::from(error)),
        _ => Ok(()),
    };
    for number in names.clone().iter().filter_map(|name| number_of(name, ".body.gone")) {
        let index = Segment::index_name(number);
        if !names.contains(&Segment::data_name(number)) && names.remove(&index) && access.writable {
            remove(&index)?;
            disk.sync_names()?;
        }
        if access.writable {
            remove(&Segment::gone_data_name(number))?;
        }
    }
    for name in names.iter().filter(|_| access.writable) {
        let is_ours = number_of(name, ".index.new").or(number_of(name, ".body.new")).is_some();
        if is_ours || ["volume.new", "volume.copy.new", "table.new", SPILL_NAME].contains(&name.as_str()) {
            remove(name)?;
        }
    }
    Ok(())
}
