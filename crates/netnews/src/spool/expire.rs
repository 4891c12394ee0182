//! Expiry: removes old articles from history, then from the spool.
//!
//! ```text
//! scan       history -> history.new without the files of what is old; a list of these files       not timed
//! rebuild    history.new -> history, its index rebuilt, active's lows raised                      not timed
//! delete     the files of the list, by dumbrm, or sorted by directory and then by fastrm           timed, sorting too
//! ```
//!
//! Sorting counts as part of fastrm: the paper times `sort|fastrm`, "to produce a more fair comparison to dumbrm".
//!
//! The list is left in `expire.list`, a path a line in the order of deletion, as the paper's expire leaves one to rm.
//!
//! Always holds: history is replaced before the first file is deleted, so that it never names a deleted file;
//! missing files are counted and are not an error.
//! Source: Swartz 1996; fastrm(8) of INN (`-c3`).

use std::path::Path;
use std::str::FromStr;

use files::{FileSystem, FsError};
use measure::LapRecorder;

use super::decimal;
use super::groups::{GroupId, Groups};
use super::history::index::HistoryIndex;
use super::history::line::{HistoryLine, push_head};
use super::history::{History, TEXT_FILE, text};
use super::unbatch::Spool;
use super::whole::{CHUNK_BYTES, create_anew, path_of, unlink_if_there, write_all};
use crate::NetnewsError;
use crate::spool::layout::places::Places;
use crate::spool::passes::clock;
use crate::spool::results::counts::counts;
use crate::spool::unbatch::storing::put_path;

/// How expired files are deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Removal {
    /// One after another in the order of history, by whole paths.
    Dumbrm,
    /// Sorted by directory; into a directory where at least three of its files follow.
    #[default]
    Fastrm,
}

counts! {
    /// What a pass's expiry did.
    pub struct ExpireCounts {
        /// Lines of history read.
        pub lines: u64,
        /// Articles that expired.
        pub articles: u64,
        /// Lines left out: of ids that are not remembered any longer, and ones that a later line had taken the place of.
        pub lines_dropped: u64,
        /// Files and links on the list.
        pub names: u64,
        /// Of these, the ones that were not there.
        pub names_missing: u64,
    }
}

/// What is to be deleted, in the order of history.
pub(crate) struct Doomed {
    names: Vec<(GroupId, u64)>,
    pub(crate) counts: ExpireCounts,
}

/// The list's name in the library directory.
pub(crate) const LIST_FILE: &str = "expire.list";
/// fastrm's `-c3`.
const FOLLOW_MIN: usize = 3;

impl Removal {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dumbrm => "dumbrm",
            Self::Fastrm => "fastrm",
        }
    }
}

impl FromStr for Removal {
    type Err = measure::ValueError;

    fn from_str(text: &str) -> Result<Self, measure::ValueError> {
        match text {
            "dumbrm" => Ok(Self::Dumbrm),
            "fastrm" => Ok(Self::Fastrm),
            _ => Err("expected dumbrm or fastrm".into()),
        }
    }
}

/// Scans and rebuilds: articles of the passes up to `pass - retention` leave history, lines of before `pass -
/// remember` are forgotten. `articles` more are expected to come. The scan has the index in memory, whatever unbatch
/// has, as expire has dbz's.
pub(crate) fn rebuild(
    spool: &mut Spool,
    pass: u32,
    retention: u32,
    remember: u32,
    removal: Removal,
    articles: u64,
    history_index: HistoryIndex,
) -> Result<Doomed, NetnewsError> {
    let (old, forgotten) = (pass.saturating_sub(retention), pass.saturating_sub(remember));
    let lib = spool.lib.clone();
    let new = format!("{TEXT_FILE}.new");
    let mut out = create_anew(&*lib, Path::new(&new))?;
    let mut chunk = Vec::with_capacity(CHUNK_BYTES + (4 << 10));
    let mut doomed = Doomed { names: Vec::new(), counts: ExpireCounts::default() };
    let mut lows: Vec<u64> = spool.groups.ids().map(|id| spool.groups.get(id).high + 1).collect();
    spool.history.turn(&*lib, HistoryIndex::Memory)?;
    let (history, groups) = (&mut spool.history, &spool.groups);
    text::scan::<NetnewsError>(&*lib, Path::new(TEXT_FILE), |offset, bytes| {
        doomed.counts.lines += 1;
        let Some(line) = HistoryLine::parse(bytes) else {
            doomed.counts.lines_dropped += 1;
            return Ok(());
        };
        // A line that a later one took the place of is of an article cancelled since: its files are gone already.
        let arrived = clock::pass_of(line.arrived);
        let is_current = history.find(line.id)? == Some(offset);
        let expires = is_current && arrived <= old && line.files.is_some();
        if expires {
            doomed.counts.articles += 1;
            doomed
                .names
                .extend(line.files().filter_map(|(group, number)| Some((groups.find(group)?, number))));
        }
        if !is_current || arrived <= forgotten {
            doomed.counts.lines_dropped += 1;
            return Ok(());
        }
        if expires {
            let posted = line.dates.rsplit(|byte| *byte == b'~').next().and_then(decimal::parse);
            push_head(&mut chunk, line.id, line.arrived, posted.unwrap_or(line.arrived));
        } else {
            chunk.extend_from_slice(bytes);
            for (group, number) in line.files() {
                if let Some(id) = groups.find(group) {
                    let low = &mut lows[id.0 as usize];
                    *low = number.min(*low);
                }
            }
        }
        chunk.push(b'\n');
        if chunk.len() >= CHUNK_BYTES {
            write_all(&mut *out, &chunk)?;
            chunk.clear();
        }
        Ok(())
    })?;
    write_all(&mut *out, &chunk)?;
    out.close()?;
    lib.rename(Path::new(&new), Path::new(TEXT_FILE))?;
    spool.history = History::open_with_new_index(&*lib, articles, history_index)?;
    for id in spool.groups.ids() {
        let low = lows[id.0 as usize];
        if spool.groups.get(id).low != low {
            spool.groups.get_mut(id).low = low;
            spool.active.mark(&mut spool.groups, id);
        }
    }
    spool.active.flush(&mut spool.groups)?;
    doomed.counts.names = doomed.names.len() as u64;
    // Of a copy: what sorting costs is measured with the deletions.
    let mut in_order = doomed.names.clone();
    put_in_order(&mut in_order, &spool.groups, removal);
    write_list(&*lib, &spool.groups, &in_order)?;
    Ok(doomed)
}

/// The order of deletion of names in the order of history.
fn put_in_order(names: &mut [(GroupId, u64)], groups: &Groups, removal: Removal) {
    if removal == Removal::Fastrm {
        let key = |(id, number): &(GroupId, u64)| {
            let group = groups.get(*id);
            (group.place, &group.directory, *number)
        };
        names.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
    }
}

fn write_list(lib: &dyn FileSystem, groups: &Groups, names: &[(GroupId, u64)]) -> Result<(), FsError> {
    let mut file = create_anew(lib, Path::new(LIST_FILE))?;
    let (mut chunk, mut path) = (Vec::new(), Vec::new());
    for &(id, number) in names {
        put_path(&mut path, groups.get(id), number);
        chunk.extend_from_slice(&path);
        chunk.push(b'\n');
        if chunk.len() >= CHUNK_BYTES {
            write_all(&mut *file, &chunk)?;
            chunk.clear();
        }
    }
    write_all(&mut *file, &chunk)?;
    file.close()
}

/// Sorts the names to delete and deletes them. Calls `go_on` about every 64 names with their number; false stops.
pub(crate) fn delete(
    places: &Places,
    groups: &Groups,
    doomed: &mut Doomed,
    removal: Removal,
    laps: &mut LapRecorder,
    mut go_on: impl FnMut(u64) -> bool,
) -> Result<u64, FsError> {
    let mut names = std::mem::take(&mut doomed.names);
    put_in_order(&mut names, groups, removal);
    let mut path = Vec::new();
    let (mut done, mut next_call) = (0, NAMES_BETWEEN_CALLS);
    for run in names.chunk_by(|a, b| removal == Removal::Fastrm && a.0 == b.0) {
        let group = groups.get(run[0].0);
        let root = places.root(group.place);
        let gone = |there: bool| u64::from(!there);
        if run.len() >= FOLLOW_MIN {
            let directory = root.below(path_of(&group.directory))?;
            for &(_, number) in run {
                path.clear();
                decimal::push(&mut path, number);
                doomed.counts.names_missing += gone(unlink_if_there(&*directory, path_of(&path))?);
                laps.lap(true);
            }
        } else {
            for &(_, number) in run {
                put_path(&mut path, group, number);
                doomed.counts.names_missing += gone(unlink_if_there(root, path_of(&path))?);
                laps.lap(true);
            }
        }
        done += run.len() as u64;
        if done >= next_call {
            next_call = done + NAMES_BETWEEN_CALLS;
            if !go_on(done) {
                break;
            }
        }
    }
    Ok(done)
}

/// Names deleted between two calls of `go_on`.
const NAMES_BETWEEN_CALLS: u64 = 64;

#[cfg(test)]
mod tests {
    use super::super::scratch;
    use super::*;

    /// Symptom: fastrm looked cheaper than it is. Cause: its names were sorted in the part that is not timed.
    #[test]
    fn names_come_in_the_order_of_history_and_are_sorted_within_what_is_timed() {
        for (removal, expected) in
            [(Removal::Fastrm, [100, 200].as_slice()), (Removal::Dumbrm, &[64, 128, 192])]
        {
            let (folder, fs) = scratch::folder();
            let places = Places::new(fs, Vec::new());
            let mut groups = Groups::default();
            let mut doomed = Doomed { names: Vec::new(), counts: ExpireCounts::default() };
            let ids = ["a", "b"].map(|name| groups.add(name.as_bytes(), &places));
            for name in ["a", "b"] {
                std::fs::create_dir(folder.path().join(name)).unwrap();
            }
            for number in 1..=100 {
                for (id, name) in ids.iter().zip(["a", "b"]) {
                    std::fs::write(folder.path().join(name).join(number.to_string()), "").unwrap();
                    doomed.names.push((*id, number));
                }
            }
            let mut reported = Vec::new();
            let deleted = delete(&places, &groups, &mut doomed, removal, &mut LapRecorder::start(), |done| {
                reported.push(done);
                true
            });
            assert_eq!((deleted.unwrap(), doomed.counts.names_missing), (200, 0));
            // A directory at a time, where they are sorted.
            assert_eq!(reported, expected, "{removal:?}");
        }
    }
}
