//! Compares all that is on disk with its checksums and with what the table says.
//!
//! Not here: one segment (see `segment`), one object (see `object`), repairing what was found (see `repair`).

pub(super) mod object;
pub(super) mod segment;

use self::segment::{check_segment, what_an_index_lacks};
use crate::error::StoreError;
use crate::segments::{LostParts, Segments};
use crate::store::Store;
use crate::store::iterate::index_of_live;

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
    /// No repair helps: `what` says what its keeper can do.
    pub by_hand: bool,
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
            check_segment(&self.objects, file, &mut report)?;
        }
        for uncertain in self.objects.index.doubts() {
            let what = "its index record is damaged: what the key names is not known".to_owned();
            let key = Some(uncertain.key);
            report.faults.push(Fault {
                file: Some(uncertain.file),
                key,
                what,
                is_damaged: true,
                by_hand: false,
            });
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
        for segment in self.objects.segments.all_files() {
            let what = match index_of_live(&self.objects, &segment) {
                Ok(Some(read)) => what_an_index_lacks(&self.objects, &segment, &read),
                Ok(None) => None,
                Err(error) => Some(error.to_string()),
            };
            faults.extend(what.map(|what| Fault {
                file: Some(segment.number),
                key: None,
                what,
                is_damaged: true,
                by_hand: false,
            }));
        }
        Ok(faults)
    }
}

/// What is known to have been there and is not, and damage of volumes themselves.
fn lost_parts(segments: &Segments) -> Vec<Fault> {
    let LostParts { mut heads, table, by_hand, .. } = segments.lost();
    heads.extend(table.map(|place| {
        format!(
            "{place}: the file `table` is damaged; the indexes alone tell what there is, and what was deleted"
        )
    }));
    let fault = |by_hand| move |what| Fault { file: None, key: None, what, is_damaged: false, by_hand };
    let (heads, by_hand) = (heads.into_iter().map(fault(false)), by_hand.into_iter().map(fault(true)));
    by_hand.chain(heads).chain(gone_parts(segments)).collect()
}

/// Volumes and segments that are not there.
fn gone_parts(segments: &Segments) -> Vec<Fault> {
    let lost = segments.lost();
    let fault = |file, what| Fault { file, key: None, what, is_damaged: false, by_hand: false };
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
