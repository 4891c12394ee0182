//! Compares all that is on disk with its checksums and with what the table says; mends what can be mended.

use crate::core::Core;
use crate::error::{StoreError, printable};
use crate::format::{Control, Controls, Kind, Manifest, Name, Put, SHARED};
use crate::keys::locked;
use crate::packed::{Onward, Packed};
use crate::read::{Depth, Record};
use crate::recover::write_anew;
use crate::refill::IndexRead;
use crate::store::Store;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Objects looked at.
    pub objects: u64,
    /// Bytes of records read.
    pub bytes: u64,
    /// What is wrong.
    pub faults: Vec<Fault>,
    /// Keys of objects whose index was lost and which were found in a body file: they may be older than what was put last, or
    /// deleted. Putting or deleting them makes it certain.
    pub recovered: Vec<Vec<u8>>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Number of the packed file.
    pub file: u32,
    /// The object's key, when it is known and a user's.
    pub key: Option<Vec<u8>>,
    /// What is wrong, for people.
    pub what: String,
}

/// What was mended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// What the check before found.
    pub found: CheckReport,
    /// Objects that were damaged and are deleted now.
    pub deleted: u64,
}

impl Store {
    /// Reads all objects. `progress` is told the number of packed files done and of all.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn check(&self, mut progress: impl FnMut(u64, u64)) -> Result<CheckReport, StoreError> {
        self.core.wait_ready()?;
        self.flush()?;
        let files = self.core.all_files();
        let mut report = CheckReport::default();
        for (done, file) in files.iter().enumerate() {
            progress(done as u64, files.len() as u64);
            check_file(&self.core, file, &mut report)?;
        }
        for uncertain in locked(&self.core.uncertain).values() {
            let what = "its control block is damaged: what the key names is not known".to_owned();
            report.faults.push(Fault { file: uncertain.file, key: Some(uncertain.key.clone()), what });
        }
        progress(files.len() as u64, files.len() as u64);
        Ok(report)
    }

    /// Checks, and deletes what is damaged, so that a later check finds nothing. An index that cannot be read is left as it
    /// is: its objects are missing.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn repair(&self, progress: impl FnMut(u64, u64)) -> Result<RepairReport, StoreError> {
        let found = self.check(progress)?;
        let mut report = RepairReport { found, deleted: 0 };
        for fault in &report.found.faults {
            if let Some(key) = &fault.key
                && self.delete(key)?
            {
                report.deleted += 1;
            }
        }
        // Indexes with damaged stretches are written anew, without them.
        let damaged = report.found.faults.iter().filter(|fault| fault.key.is_none()).map(|fault| fault.file);
        for number in damaged.collect::<std::collections::BTreeSet<_>>() {
            self.rewrite(number)?;
        }
        Ok(report)
    }

    fn rewrite(&self, number: u32) -> Result<(), StoreError> {
        let Some(file) = self.core.file(number) else { return Ok(()) };
        write_anew(&self.core, &file, false)
    }
}

fn check_file(core: &Core, file: &Packed, report: &mut CheckReport) -> Result<(), StoreError> {
    let fault =
        |key: Option<&[u8]>, what: String| Fault { file: file.number, key: key.map(<[u8]>::to_vec), what };
    let IndexRead { salt, bytes, mended, .. } = match core.index_of_live(file) {
        Ok(Some(read)) => read,
        Ok(None) => return Ok(()),
        Err(error) => {
            report.faults.push(fault(None, error.to_string()));
            return Ok(());
        }
    };
    let mut controls = Controls::new(&bytes, salt);
    let mut live = Vec::new();
    let mut marked_end = 0;
    for (_, control) in controls.by_ref() {
        match control {
            Control::Put(put)
                if core.place_of(put.name.hash(core.hash_seed), file.number, put.block).is_some() =>
            {
                live.push(put);
            }
            Control::Mark { durable_end } => marked_end = marked_end.max(durable_end),
            _ => {}
        }
    }
    for at in controls.damaged.iter().filter(|&&at| at < marked_end) {
        report.faults.push(fault(None, format!("the index is damaged from byte {at} on")));
    }
    for at in mended {
        report.faults.push(fault(None, format!("the index has a flipped bit after byte {at}")));
    }
    live.sort_unstable_by_key(|put| put.block);
    let mut end = 0;
    let mut onward = Onward::of(file);
    for put in live {
        onward.at(core.shape.offset(put.block));
        report.objects += u64::from(!put.name.internal);
        report.bytes += put.record_bytes() as u64;
        let key = (!put.name.internal).then_some(put.name.key);
        if let Some(key) = key.filter(|_| put.recovered) {
            report.recovered.push(key.to_vec());
        }
        if put.block < end {
            report.faults.push(fault(key, "its blocks are another's too".to_owned()));
        }
        end = put.block + core.shape.blocks(put.record_bytes());
        if let Some(what) = wrong_with(core, &put)? {
            report.faults.push(fault(key, what));
        }
    }
    Ok(())
}

fn wrong_with(core: &Core, put: &Put<'_>) -> Result<Option<String>, StoreError> {
    let damaged = |found: Result<Option<Box<Record>>, StoreError>| match found {
        Err(StoreError::Damaged { why, .. }) => Ok(Err(why.to_owned())),
        Err(error) => Err(error),
        Ok(found) => Ok(Ok(found)),
    };
    let before = core.damaged_reads.load(std::sync::atomic::Ordering::Relaxed);
    let hash = put.name.hash(core.hash_seed);
    let found = damaged(core.find(put.name, hash, Depth::Whole))?;
    // A check is no reading by users.
    core.damaged_reads.store(before, std::sync::atomic::Ordering::Relaxed);
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
                let piece = damaged(core.find_internal(manifest.id, part as u32, Depth::Whole))?;
                match piece {
                    // Evicted: the object is, when it is next asked for.
                    Ok(None) if core.mode == crate::options::Mode::Cache => return Ok(None),
                    Ok(Some(piece)) if piece.head.body_len == len => {}
                    Ok(_) => return Ok(Some(format!("piece {part} of {} is gone", printable(put.name.key)))),
                    Err(why) => return Ok(Some(format!("piece {part}: {why}"))),
                }
            }
            Ok(None)
        }
        Kind::Alias => {
            let id = core.shared_id(&record)?;
            match damaged(core.find_internal(id, SHARED, Depth::Whole))? {
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
