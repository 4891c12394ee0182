//! Checks one segment: its index against its data file and the table, then each object in it.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::atomic::Ordering;

use disk::DiskError;

use super::object::wrong_with;
use super::{CheckReport, Fault};
use crate::error::{StoreError, lacks_descriptors, printable};
use crate::format::{IndexRecord, IndexRecords, Put, damaged_behind};
use crate::objects::Objects;
use crate::objects::read::Depth;
use crate::procedures::recover::cut::{CutRecord, Unnamed, cut_records, looks_cut};
use crate::procedures::recover::index::unindexed;
use crate::procedures::recover::misplaced::misplaced;
use crate::procedures::recover::superseded::drop_superseded;
use crate::segments::index_file::{IndexRead, Lost};
use crate::segments::segment::{Onward, Segment};
use crate::store::iterate::index_of_live;

/// Adds what is wrong with a segment to a report.
pub(super) fn check_segment(
    objects: &Objects,
    segment: &Segment,
    report: &mut CheckReport,
) -> Result<(), StoreError> {
    if let Some(error) = misplaced(objects, segment) {
        report.faults.push(Fault {
            is_damaged: false,
            by_hand: true,
            ..fault(segment, None, error.to_string())
        });
        return Ok(());
    }
    let is_filled = || segment.filling.load(Ordering::SeqCst) && !segment.is_unfit();
    // What is being written meanwhile may be read half.
    let was_filled = is_filled();
    let read = match index_of_live(objects, segment) {
        Ok(Some(read)) => read,
        Ok(None) => return Ok(()),
        Err(error) => {
            let fault = fault(segment, None, error.to_string());
            // Its data file would tell what the index does not, if it could be opened.
            report.faults.push(segment.no_access().map_or(fault, |error| no_access(segment, None, &error)));
            return Ok(());
        }
    };
    let live = Live::of(objects, segment, &read);
    let mut wrong = wrong_with_index(segment, &read, &live);
    if read.lost.is_none()
        && let Some(what) = wrong_at_the_end(objects, &read, live.marked_end)
        && !was_filled
        && !is_filled()
    {
        wrong.push(what);
    }
    wrong.extend(read.repaired.iter().map(|at| format!("the index has a flipped bit after byte {at}")));
    report.faults.extend(wrong.into_iter().map(|what| fault(segment, None, what)));
    if let Some(error) = segment.no_access() {
        report.faults.push(no_access(segment, Some(&live), &error));
        return Ok(());
    }
    let indexed = live.blocks(objects);
    check_objects(objects, segment, live.puts, report);
    if segment.lacks_data() {
        return Ok(());
    }
    check_cut(objects, segment, &read, report)?;
    if indexed < segment.live_blocks.load(Ordering::Relaxed) {
        for key in unindexed(objects, segment, &read)?.keys {
            let what = match key {
                Some(key) => format!("the index lacks the index record of {}", printable(&key)),
                None => "the index lacks the index record of a part of an object".to_owned(),
            };
            // The object itself is whole: rewriting the index is enough.
            report.faults.push(fault(segment, None, what));
        }
    }
    Ok(())
}

/// What an index says of records that count.
struct Live<'a> {
    puts: Vec<Put<'a>>,
    /// Up to here it was complete once.
    marked_end: u64,
    /// Where index records cannot be read.
    damaged: Vec<Range<u64>>,
}

impl<'a> Live<'a> {
    fn of(objects: &Objects, segment: &Segment, read: &'a IndexRead) -> Self {
        let (mut puts, mut marked_end) = (Vec::new(), 0);
        let mut index_records = IndexRecords::new(&read.bytes, read.salt);
        for (_, index_record) in index_records.by_ref() {
            match index_record {
                IndexRecord::Put(put) => {
                    let hash = put.name.hash(objects.setup.hash_seed);
                    if objects.index.location_of(hash, segment.number, put.block).is_some() {
                        puts.push(put);
                    }
                }
                IndexRecord::Mark { durable_end } => marked_end = marked_end.max(durable_end),
                IndexRecord::Tombstone(_) => {}
            }
        }
        Self { puts, marked_end, damaged: index_records.damaged }
    }

    /// Blocks of all its records.
    fn blocks(&self, objects: &Objects) -> u32 {
        self.puts.iter().map(|put| objects.setup.shape.blocks(put.record_bytes())).sum()
    }

    /// Where index records cannot be read that a mark once covered.
    fn damaged_before_end(&self) -> impl Iterator<Item = u64> {
        self.damaged.iter().map(|range| range.start).filter(|&at| at < self.marked_end)
    }
}

/// A fault whose bytes are known to be wrong.
fn fault(segment: &Segment, key: Option<&[u8]>, what: String) -> Fault {
    Fault { file: Some(segment.number), key: key.map(<[u8]>::to_vec), what, is_damaged: true, by_hand: false }
}

/// A data file that is there and cannot be opened: what is in it is not known to be damaged.
fn no_access(segment: &Segment, live: Option<&Live<'_>>, error: &DiskError) -> Fault {
    let mut what = match error.kind() {
        ErrorKind::PermissionDenied => StoreError::no_access(error).to_string(),
        _ if lacks_descriptors(error) => StoreError::no_access(error).to_string(),
        // What else is there is reported with what to do, if that is the cause.
        _ => format!("its data file cannot be opened: {}", error.source),
    };
    if let Some(live) = live {
        let users = live.puts.iter().filter(|put| !put.name.internal).count();
        what.push_str(&format!("; objects in it that were not read: {users}"));
    }
    Fault { is_damaged: false, by_hand: true, ..fault(segment, None, what) }
}

/// What is wrong with a segment's files, and with its index but for its end.
fn wrong_with_index(segment: &Segment, read: &IndexRead, live: &Live<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    if segment.lacks_data() {
        wrong.push("its data file is missing".to_owned());
    }
    match read.lost {
        None => {}
        Some(Lost::Head) => wrong.push("the head of its index is damaged".to_owned()),
        Some(Lost::Whole) => {
            let why =
                segment.read_index().err().map(|error| format!(" ({})", error.source)).unwrap_or_default();
            wrong.push(format!("its index cannot be read{why}; what is in it was learnt from the data file"));
        }
    }
    wrong.extend(live.damaged_before_end().map(|at| format!("the index is damaged from byte {at} on")));
    wrong
}

/// Reads the objects that an index names, in the order in which they lie.
fn check_objects(objects: &Objects, segment: &Segment, mut puts: Vec<Put<'_>>, report: &mut CheckReport) {
    puts.sort_unstable_by_key(|put| put.block);
    let mut end = 0;
    let mut onward = Onward::of(segment);
    for put in puts {
        onward.at(objects.setup.shape.offset(put.block));
        let has_expired = objects.has_expired(put.expires_s);
        report.objects += u64::from(!put.name.internal && !has_expired);
        report.bytes += put.record_bytes() as u64;
        let key = (!put.name.internal).then_some(put.name.key);
        if let Some(key) = key.filter(|_| put.recovered) {
            report.recovered.push(key.to_vec());
        }
        if put.block < end {
            // Which of the two is there shows below.
            let what = "its blocks are another's too".to_owned();
            report.faults.push(Fault { is_damaged: false, ..fault(segment, key, what) });
        }
        end = put.block + objects.setup.shape.blocks(put.record_bytes());
        // Parts of what has expired may be gone already.
        if has_expired {
            continue;
        }
        match wrong_with(objects, &put) {
            Ok(None) => {}
            Ok(Some(_)) if objects.has_expired(put.expires_s) => {}
            Ok(Some(what)) => report.faults.push(fault(segment, key, what)),
            Err(error) => {
                let fault = fault(segment, key, error.to_string());
                report.faults.push(Fault { is_damaged: false, by_hand: true, ..fault });
            }
        }
    }
}

/// Looks for records that an index which was cut off or damaged does not name.
fn check_cut(
    objects: &Objects,
    segment: &Segment,
    read: &IndexRead,
    report: &mut CheckReport,
) -> Result<(), StoreError> {
    let Unnamed { mut records, is_cut } = cut_off(objects, segment, read)?;
    if is_cut {
        report.faults.push(fault(segment, None, "its index was cut off".to_owned()));
    }
    drop_superseded(objects, &mut records, |record| record)?;
    // What is in doubt is reported as that.
    let is_in_doubt = |put: &Put<'_>| {
        objects.index.doubt_of(put.name.key, put.name.hash(objects.setup.hash_seed)).is_some()
    };
    let counts =
        |put: &Put<'_>| !put.name.internal && !objects.has_expired(put.expires_s) && !is_in_doubt(put);
    for put in records.iter().map(CutRecord::put).filter(counts) {
        let found = objects.find(put.name, put.name.hash(objects.setup.hash_seed), Depth::Head);
        if !found.is_ok_and(|found| found.is_some_and(|found| found.head.sequence >= put.sequence)) {
            let what = "it may be missing: no index record names it".to_owned();
            report.faults.push(Fault { is_damaged: false, ..fault(segment, Some(put.name.key), what) });
        }
    }
    Ok(())
}

/// What an index lacks since it was cut off or damaged. After a clean stop the table knows better.
pub(in crate::procedures) fn cut_off(
    objects: &Objects,
    segment: &Segment,
    read: &IndexRead,
) -> Result<Unnamed, StoreError> {
    if !objects.index.is_rebuilt() || read.lost == Some(Lost::Whole) {
        return Ok(Unnamed::default());
    }
    cut_records(objects, segment, read)
}

/// Why objects may be missing that an index named.
pub(super) fn what_an_index_lacks(objects: &Objects, segment: &Segment, read: &IndexRead) -> Option<String> {
    let live = Live::of(objects, segment, read);
    if live.damaged_before_end().next().is_some() {
        return Some("its index has index records that cannot be read".to_owned());
    }
    let is_short = match objects.index.is_rebuilt() {
        // Its index alone said what there is.
        true => read.lost.is_none() && looks_cut(objects, segment, read),
        false => live.blocks(objects) < segment.live_blocks.load(Ordering::Relaxed),
    };
    (is_short && !segment.lacks_data()).then(|| "its index lacks objects that it held".to_owned())
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
