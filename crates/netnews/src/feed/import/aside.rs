//! What is no article: kept in the feed's `broken/`, one file each, with a list of reasons.
//!
//! `reasons.tsv` has a line each: number, reason, offset in the source in bytes, source.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use crate::NetnewsError;
use crate::article::Broken;
use crate::feed::make::FeedWriter;

/// Nothing on disk until the first one comes.
#[derive(Default)]
pub(super) struct Aside {
    place: Option<(PathBuf, BufWriter<File>)>,
    by_reason: BTreeMap<Broken, u64>,
    count: u64,
}

impl Aside {
    pub(super) fn take(
        &mut self,
        feed: &FeedWriter,
        why: Broken,
        source: &Path,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<(), NetnewsError> {
        let (directory, reasons) = match &mut self.place {
            Some((directory, reasons)) => (directory, reasons),
            place => {
                let directory = feed.broken_directory()?;
                let list = directory.join("reasons.tsv");
                let reasons = File::create(&list)
                    .map_err(|error| NetnewsError::io("list what is broken", &list, error))?;
                let (directory, reasons) = place.insert((directory, BufWriter::new(reasons)));
                (directory, reasons)
            }
        };
        self.count += 1;
        *self.by_reason.entry(why).or_default() += 1;
        let file = directory.join(format!("{:06}", self.count));
        fs::write(&file, bytes)
            .map_err(|error| NetnewsError::io("set a broken article aside", &file, error))?;
        // Control characters of a file's name would break the list.
        let source: String = source
            .to_string_lossy()
            .chars()
            .map(|letter| if letter.is_control() { '?' } else { letter })
            .collect();
        writeln!(reasons, "{:06}\t{}\t{offset_bytes}\t{source}", self.count, why.name())
            .map_err(|error| NetnewsError::io("list what is broken", directory, error))
    }

    pub(super) fn finish(self) -> Result<BTreeMap<Broken, u64>, NetnewsError> {
        if let Some((directory, mut reasons)) = self.place {
            reasons.flush().map_err(|error| NetnewsError::io("list what is broken", &directory, error))?;
        }
        Ok(self.by_reason)
    }
}
