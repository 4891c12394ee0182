//! Compares all that is on disk with its checksums and with what the table says; repairs what can be repaired.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{StoreError, printable};
use crate::format::{IndexRecord, IndexRecords, Kind, Manifest, Name, Put, SHARED, damaged_behind};
use crate::objects::Objects;
use crate::objects::read::{Depth, Record};
use crate::procedures::compact::keep_tombstones;
use crate::procedures::recover::{CutRecord, adopt, cut_records, looks_cut, unindexed, write_anew};
use crate::segments::index_file::{IndexRead, Lost};
use crate::segments::segment::{Onward, Segment};
use crate::segments::volume_copy::write_copy;
use crate::segments::{LostParts, Segments};
use crate::store::Store;
use crate::store::iterate::index_of_live;
use crate::write_queue::group::TableEntry;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Objects looked at.
    pub objects: u64,
    /// Bytes of records read.
    pub bytes: u64,
    /// What is wrong.
    pub faults: Vec<Fault>,
    /// Keys of objects whose index was lost and which were found in a data file: they may be older than what was put last, or
    /// deleted. Putting or deleting them makes it certain.
    pub recovered: Vec<Vec<u8>>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Number of the segment; `None`: what is wrong is not in one.
    pub file: Option<u32>,
    /// The object's key, when it is known and a user's.
    pub key: Option<Vec<u8>>,
    /// What is wrong, for people.
    pub what: String,
    /// Its bytes are known to be wrong. Else they could not be read, perhaps for the moment: `repair` leaves the object alone.
    pub is_damaged: bool,
}

/// What was repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// What the check before found.
    pub found: CheckReport,
    /// Objects that were damaged and are deleted now.
    pub deleted: u64,
    /// What a check after it still found.
    pub left: Vec<Fault>,
}

impl Store {
    /// Reads all objects. `progress` gets the number of segments done and of all.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn check(&self, mut progress: impl FnMut(u64, u64)) -> Result<CheckReport, StoreError> {
        self.readiness.wait_ready()?;
        self.flush()?;
        let files = self.objects.segments.all_files();
        let mut report = CheckReport { faults: lost_parts(&self.objects.segments), ..CheckReport::default() };
        for (done, file) in files.iter().enumerate() {
            progress(done as u64, files.len() as u64);
            check_file(&self.objects, file, &mut report)?;
        }
        for uncertain in self.objects.index.doubts() {
            let what = "its index record is damaged: what the key names is not known".to_owned();
            let key = Some(uncertain.key);
            report.faults.push(Fault { file: Some(uncertain.file), key, what, is_damaged: true });
        }
        progress(files.len() as u64, files.len() as u64);
        Ok(report)
    }

    /// What is known to be missing without reading bodies: volumes and segments that are not there, and indexes that end
    /// early or have index records that cannot be read. [`Store::check`] says more.
    ///
    /// # Errors
    /// When the store could not be learnt.
    pub fn missing_parts(&self) -> Result<Vec<Fault>, StoreError> {
        self.readiness.wait_ready()?;
        let mut faults = gone_parts(&self.objects.segments);
        for file in self.objects.segments.all_files() {
            let what = match index_of_live(&self.objects, &file) {
                Ok(Some(read)) => what_an_index_lacks(&self.objects, &file, &read),
                Ok(None) => None,
                Err(error) => Some(error.to_string()),
            };
            faults.extend(what.map(|what| Fault {
                file: Some(file.number),
                key: None,
                what,
                is_damaged: true,
            }));
        }
        Ok(faults)
    }

    /// Checks, deletes what is damaged, and rewrites damaged indexes, as far as that can be done; then it checks once more.
    ///
    /// # Errors
    /// When a disk cannot be written.
    pub fn repair(&self, mut progress: impl FnMut(u64, u64)) -> Result<RepairReport, StoreError> {
        let found = self.check(&mut progress)?;
        let mut report = RepairReport { found, ..RepairReport::default() };
        if report.found.faults.is_empty() {
            return Ok(report);
        }
        for fault in report.found.faults.iter().filter(|fault| fault.is_damaged) {
            if let Some(key) = &fault.key
                && self.delete(key)?
            {
                report.deleted += 1;
            }
        }
        for file in self.objects.segments.all_files() {
            let is_damaged = report
                .found
                .faults
                .iter()
                .any(|fault| fault.file == Some(file.number) && fault.key.is_none());
            if file.lacks_data() {
                self.give_up(&file)?;
            } else if is_damaged || file.is_unfit() {
                if let Some(read) = index_of_live(&self.objects, &file)?.filter(|read| read.lost.is_none()) {
                    let cut = cut_off(&self.objects, &file, &read)?;
                    adopt(&self.objects, &file, &cut)?;
                    self.flush()?;
                }
                file.may_fill();
                write_anew(&self.objects, &file, true)?;
            }
        }
        // The heads were rewritten when the store was opened; the table is when it is closed.
        self.objects.segments.damage_was_repaired();
        report.left = self.check(progress)?.faults;
        // Once it was said that they are lost, they are expected no more.
        for volume in self.objects.segments.give_up_files() {
            write_copy(&self.objects.segments, volume, None)?;
        }
        Ok(report)
    }

    /// Forgets what is left of a segment whose body is missing, pieces of large objects for example, and removes its index.
    fn give_up(&self, file: &Arc<Segment>) -> Result<(), StoreError> {
        let objects = &self.objects;
        let Some(IndexRead { salt, bytes, .. }) = index_of_live(objects, file)? else { return Ok(()) };
        for (_, index_record) in IndexRecords::new(&bytes, salt) {
            let IndexRecord::Put(put) = index_record else { continue };
            let hash = put.name.hash(objects.setup.hash_seed);
            if let Some(location) = objects.index.location_of(hash, file.number, put.block) {
                let blocks = objects.setup.shape.blocks(put.record_bytes());
                objects.remove(&TableEntry { hash, location, blocks, visible: !put.name.internal });
            }
        }
        self.flush()?;
        keep_tombstones(objects, file, &bytes, salt)?;
        self.flush()?;
        self.remove_file(file)
    }
}

/// What an index lacks since it was cut off. After a clean stop the table knows more.
fn cut_off(objects: &Objects, file: &Segment, read: &IndexRead) -> Result<Vec<CutRecord>, StoreError> {
    if !objects.index.is_rebuilt() || read.lost.is_some() {
        return Ok(Vec::new());
    }
    cut_records(objects, file, read)
}

/// Why objects may be missing that an index named.
fn what_an_index_lacks(objects: &Objects, file: &Segment, read: &IndexRead) -> Option<String> {
    let (mut indexed, mut marked_end) = (0, 0);
    let mut index_records = IndexRecords::new(&read.bytes, read.salt);
    for (_, index_record) in index_records.by_ref() {
        match index_record {
            IndexRecord::Put(put)
                if objects
                    .index
                    .location_of(put.name.hash(objects.setup.hash_seed), file.number, put.block)
                    .is_some() =>
            {
                indexed += objects.setup.shape.blocks(put.record_bytes());
            }
            IndexRecord::Mark { durable_end } => marked_end = marked_end.max(durable_end),
            _ => {}
        }
    }
    if index_records.damaged.iter().any(|&at| at < marked_end) {
        return Some("its index has index records that cannot be read".to_owned());
    }
    let is_short = match objects.index.is_rebuilt() {
        // Only its index said what there is.
        true => read.lost.is_none() && looks_cut(objects, file, read),
        false => indexed < file.live_blocks.load(Ordering::Relaxed),
    };
    (is_short && !file.lacks_data()).then(|| "its index lacks objects that it held".to_owned())
}

/// What is known to have been there and is not, and damage of volumes themselves.
fn lost_parts(segments: &Segments) -> Vec<Fault> {
    let LostParts { mut heads, table, .. } = segments.lost();
    heads.extend(table.map(|place| {
        format!(
            "{place}: the file `table` is damaged; the indexes alone tell what there is, and what was deleted"
        )
    }));
    let fault = |what| Fault { file: None, key: None, what, is_damaged: false };
    heads.into_iter().map(fault).chain(gone_parts(segments)).collect()
}

/// Volumes and segments that are not there.
fn gone_parts(segments: &Segments) -> Vec<Fault> {
    let lost = segments.lost();
    let fault = |file, what| Fault { file, key: None, what, is_damaged: false };
    let mut faults = Vec::new();
    let records = match lost.records {
        Some(records) => format!("{records} records of the last clean stop are missing"),
        None => "what was on it may be missing".to_owned(),
    };
    if lost.volumes > 0 {
        let away = if lost.volumes == 1 {
            "a volume is".to_owned()
        } else {
            format!("{} volumes are", lost.volumes)
        };
        faults.push(fault(None, format!("{away} not here: {records}")));
    }
    for number in lost.files.into_keys() {
        faults.push(fault(Some(number), format!("its body and its index are missing: {records}")));
    }
    faults
}

fn check_file(objects: &Objects, file: &Segment, report: &mut CheckReport) -> Result<(), StoreError> {
    let fault_of = |key: Option<&[u8]>, what: String, is_damaged| Fault {
        file: Some(file.number),
        key: key.map(<[u8]>::to_vec),
        what,
        is_damaged,
    };
    let fault = |key, what| fault_of(key, what, true);
    let is_filled = || file.filling.load(Ordering::SeqCst) && !file.is_unfit();
    // What is being written meanwhile may be read half.
    let was_filled = is_filled();
    let read = match index_of_live(objects, file) {
        Ok(Some(read)) => read,
        Ok(None) => return Ok(()),
        Err(error) => {
            report.faults.push(fault(None, error.to_string()));
            return Ok(());
        }
    };
    if file.lacks_data() {
        report.faults.push(fault(None, "its data file is missing".to_owned()));
    }
    match read.lost {
        None => {}
        Some(Lost::Head) => report.faults.push(fault(None, "the head of its index is damaged".to_owned())),
        Some(Lost::Whole) => {
            let what = "its index cannot be read; what is in it was learnt from the data file".to_owned();
            report.faults.push(fault(None, what));
        }
    }
    let mut index_records = IndexRecords::new(&read.bytes, read.salt);
    let mut live = Vec::new();
    let mut marked_end = 0;
    for (_, index_record) in index_records.by_ref() {
        match index_record {
            IndexRecord::Put(put)
                if objects
                    .index
                    .location_of(put.name.hash(objects.setup.hash_seed), file.number, put.block)
                    .is_some() =>
            {
                live.push(put);
            }
            IndexRecord::Mark { durable_end } => marked_end = marked_end.max(durable_end),
            _ => {}
        }
    }
    for at in index_records.damaged.iter().filter(|&&at| at < marked_end) {
        report.faults.push(fault(None, format!("the index is damaged from byte {at} on")));
    }
    if read.lost.is_none()
        && let Some(what) = wrong_at_the_end(objects, &read, marked_end)
        && !was_filled
        && !is_filled()
    {
        report.faults.push(fault(None, what));
    }
    let indexed = live.iter().map(|put| objects.setup.shape.blocks(put.record_bytes())).sum::<u32>();
    for at in &read.repaired {
        report.faults.push(fault(None, format!("the index has a flipped bit after byte {at}")));
    }
    live.sort_unstable_by_key(|put| put.block);
    let mut end = 0;
    let mut onward = Onward::of(file);
    for put in live {
        onward.at(objects.setup.shape.offset(put.block));
        report.objects += u64::from(!put.name.internal);
        report.bytes += put.record_bytes() as u64;
        let key = (!put.name.internal).then_some(put.name.key);
        if let Some(key) = key.filter(|_| put.recovered) {
            report.recovered.push(key.to_vec());
        }
        if put.block < end {
            report.faults.push(fault(key, "its blocks are another's too".to_owned()));
        }
        end = put.block + objects.setup.shape.blocks(put.record_bytes());
        match wrong_with(objects, &put) {
            Ok(None) => {}
            Ok(Some(what)) => report.faults.push(fault(key, what)),
            Err(error) => report.faults.push(fault_of(key, error.to_string(), false)),
        }
    }
    let cut = if file.lacks_data() { Vec::new() } else { cut_off(objects, file, &read)? };
    if !cut.is_empty() {
        report.faults.push(fault(None, "its index was cut off".to_owned()));
    }
    for put in cut.iter().map(CutRecord::put).filter(|put| !put.name.internal) {
        let found = objects.find(put.name, put.name.hash(objects.setup.hash_seed), Depth::Head);
        if !found.is_ok_and(|found| found.is_some_and(|found| found.head.sequence >= put.sequence)) {
            let what = "it may be missing: no index record tells of it".to_owned();
            report.faults.push(fault_of(Some(put.name.key), what, false));
        }
    }
    if indexed < file.live_blocks.load(Ordering::Relaxed) && !file.lacks_data() {
        for key in unindexed(objects, file, &read)?.keys {
            let what = match key {
                Some(key) => format!("the index lacks the index record of {}", printable(&key)),
                None => "the index lacks the index record of a part of an object".to_owned(),
            };
            // The object itself is whole: rewriting the index is enough.
            report.faults.push(fault(None, what));
        }
    }
    Ok(())
}

/// What is wrong behind an index's last mark. An opening for writing clears what power cut short there.
fn wrong_at_the_end(objects: &Objects, read: &IndexRead, marked_end: u64) -> Option<String> {
    let may_be = "objects deleted last may be back, and those put last may be missing";
    if let Some(damaged) = damaged_behind(&read.bytes, read.salt, marked_end).first() {
        return Some(format!(
            "the end of the index, from byte {} on, is damaged, or was cut short as the store was killed: {may_be}",
            damaged.start
        ));
    }
    // A clean stop leaves a mark at the end of each, unless power was lost soon after it.
    let last = IndexRecords::new(&read.bytes, read.salt).last();
    let is_marked = last.is_none_or(|(at, last)| last == IndexRecord::Mark { durable_end: at });
    (objects.segments.lacks_table() && !is_marked)
        .then(|| format!("the end of the index is missing: {may_be}"))
}

fn wrong_with(objects: &Objects, put: &Put<'_>) -> Result<Option<String>, StoreError> {
    let damaged = |found: Result<Option<Box<Record>>, StoreError>| match found {
        Err(StoreError::Damaged { why, .. }) => Ok(Err(why.to_owned())),
        Err(error) => Err(error),
        Ok(found) => Ok(Ok(found)),
    };
    let hash = put.name.hash(objects.setup.hash_seed);
    // A check is no reading by users.
    let found = damaged(objects.uncounted(|| objects.find(put.name, hash, Depth::Whole)))?;
    let record = match found {
        Err(why) => return Ok(Some(why)),
        // Deleted meanwhile.
        Ok(None) => return Ok(None),
        Ok(Some(record)) => record,
    };
    match record.head.kind {
        Kind::Whole => Ok(None),
        Kind::Manifest => {
            let Some(manifest) = Manifest::decode(record.body()) else {
                return Ok(Some("its list of pieces is none".to_owned()));
            };
            for (part, &len) in manifest.piece_lens.iter().enumerate() {
                let piece = damaged(objects.find_internal(manifest.id, part as u32, Depth::Whole))?;
                match piece {
                    // Evicted: the object is, when it is next asked for.
                    Ok(None) if objects.setup.mode == crate::options::Mode::Cache => return Ok(None),
                    Ok(Some(piece)) if piece.head.body_len == len => {}
                    Ok(_) => return Ok(Some(format!("piece {part} of {} is gone", printable(put.name.key)))),
                    Err(why) => return Ok(Some(format!("piece {part}: {why}"))),
                }
            }
            Ok(None)
        }
        Kind::Alias => {
            let id = objects.shared_id(&record)?;
            match damaged(objects.find_internal(id, SHARED, Depth::Whole))? {
                Ok(Some(shared)) => {
                    let key = crate::format::internal_key(id, SHARED);
                    let name = Name { internal: true, key: &key };
                    debug_assert_eq!(shared.key(), name.key);
                    Ok(None)
                }
                Ok(None) => Ok(Some("the object that it names is gone".to_owned())),
                Err(why) => Ok(Some(format!("the object that it names: {why}"))),
            }
        }
    }
}
