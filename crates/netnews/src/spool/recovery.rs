//! Opens a spool: as it is if it was closed in order, otherwise after recovering from a kill.
//!
//! What a kill can leave, by the order of writes in `unbatch`, and what recovery does with it:
//!
//! ```text
//! files and links that no line of history names     removed: the article was not accepted and is offered again
//! a torn last line of history                       cut off; its files are then of the kind above
//! lines of an unfinished batch                      kept, and recognized when the batch is offered again
//! files of a cancelled article                      removed: its line says that it is cancelled
//! expired files (history rewritten, rm not done)    removed, for the same reason
//! an outdated index, active or outgoing file        rebuilt from history
//! *.new                                             removed: the files they were to replace still exist
//! ```
//!
//! Always holds: only history says what is accepted; after a kill during recovery, recovery starts again, because
//! each step leaves a state of the kinds above.
//! Costs: one reading of history's text and one listing of every group's directory.

use std::path::Path;
use std::sync::Arc;

use files::{FileSystem, FsError};
use serde::{Deserialize, Serialize};

use super::config::SyncWhen;
use super::groups::{GroupId, Groups};
use super::history::index::HistoryIndex;
use super::history::line::HistoryLine;
use super::history::{History, TEXT_FILE, text};
use super::layout::Homes;
use super::unbatch::{Parts, Spool};
use super::whole::{CHUNK_BYTES, create_anew, path_of, read_whole, unlink_if_there, write_all};
use crate::NetnewsError;
use crate::spool::groups::active::{self, Active};
use crate::spool::layout::places::{PlaceId, Places};
use crate::spool::layout::walk::walk;
use crate::spool::passes::clock;
use crate::spool::resume::state::{Stage, Standing, State};
use crate::spool::unbatch::outgoing::{Outgoing, Remake};
use crate::spool::unbatch::storing::{LinkKind, Storer};

/// What opening a spool had to repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// The spool had not been closed in order.
    pub was_cut_short: bool,
    /// Bytes of a torn line of history that were cut off.
    pub torn_bytes: u64,
    /// Files and links removed because history does not have them.
    pub names_removed: u64,
    /// Files and links that history has and the spool has not. No kill does that.
    pub names_missing: u64,
    /// Articles of a batch that was not done.
    pub lines_of_cut_batch: u64,
}

impl Recovered {
    /// What opening two spools took.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            was_cut_short: self.was_cut_short | other.was_cut_short,
            torn_bytes: self.torn_bytes + other.torn_bytes,
            names_removed: self.names_removed + other.names_removed,
            names_missing: self.names_missing + other.names_missing,
            lines_of_cut_batch: self.lines_of_cut_batch + other.lines_of_cut_batch,
        }
    }
}

/// How a spool is opened.
pub(crate) struct Opening<'a> {
    pub(crate) host: &'a str,
    pub(crate) link: LinkKind,
    pub(crate) sync: SyncWhen,
    /// Articles that may come, for the size of the index.
    pub(crate) articles: u64,
    pub(crate) retention: u32,
    pub(crate) history_index: HistoryIndex,
}

/// Of `active`, which is read even when torn.
const ACTIVE_BYTES_MAX: usize = 256 << 20;

/// Makes an empty spool in directories that are there.
pub(crate) fn create(homes: Homes, opening: &Opening<'_>) -> Result<Spool, NetnewsError> {
    let Homes { places, lib } = homes;
    let history = History::create(&*lib, opening.articles, opening.history_index)?;
    let mut groups = Groups::default();
    let active = Active::create(&*lib, &mut groups)?;
    let outgoing = Outgoing::create(&*lib, 1)?;
    // Last: without a state there is no spool.
    let state = State::create(&*lib, Standing::begin(opening.retention))?;
    let storer = Storer::new(opening.host, opening.link, opening.sync);
    Ok(Spool::of(Parts {
        places,
        lib,
        groups,
        active,
        history,
        outgoing,
        storer,
        state,
        cut_short: 0..0,
        sync: opening.sync,
    }))
}

/// Opens a spool, whatever became of the last run on it.
pub(crate) fn open(homes: Homes, opening: &Opening<'_>) -> Result<(Spool, Recovered), NetnewsError> {
    let Some(state) = State::open(&*homes.lib)? else {
        // Killed while it was made: nothing had been stored.
        return Ok((create(homes, opening)?, Recovered { was_cut_short: true, ..Recovered::default() }));
    };
    if !state.standing().settled {
        return recover(homes, state, opening);
    }
    let Homes { places, lib } = homes;
    let mut groups = Groups::default();
    let active = Active::open(&*lib, &mut groups, &places)?;
    let history = History::open(&*lib, opening.history_index)?;
    let standing = Standing { settled: false, ..state.standing() };
    let outgoing = outgoing_of(&*lib, standing)?;
    let cut_short = standing.cut_short(history.text_bytes());
    let storer = Storer::new(opening.host, opening.link, opening.sync);
    let mut spool = Spool::of(Parts {
        places,
        lib,
        groups,
        active,
        history,
        outgoing,
        storer,
        state,
        cut_short,
        sync: opening.sync,
    });
    spool.state.write(standing)?;
    Ok((spool, Recovered::default()))
}

fn recover(
    homes: Homes,
    mut state: State,
    opening: &Opening<'_>,
) -> Result<(Spool, Recovered), NetnewsError> {
    let Homes { places, lib } = homes;
    let standing = state.standing();
    let mut recovered = Recovered { was_cut_short: true, ..Recovered::default() };
    remove_unfinished(&*lib)?;
    recovered.torn_bytes = cut_torn_line(&*lib)?;
    let mut history = History::open_with_new_index(&*lib, opening.articles, HistoryIndex::Memory)?;
    let mut groups = Groups::default();
    adopt_active(&*lib, &places, &mut groups)?;

    let cut_short = standing.cut_short(history.text_bytes());
    let mut outgoing = match standing.stage {
        Stage::Unbatch => Some(Remake::begin(&*lib, standing.pass)?),
        _ => None,
    };
    let mut live: Vec<Vec<u64>> = Vec::new();
    text::scan::<NetnewsError>(&*lib, Path::new(TEXT_FILE), |offset, line| {
        let Some(line) = HistoryLine::parse(line) else { return Ok(()) };
        recovered.lines_of_cut_batch += u64::from(cut_short.contains(&offset));
        if let (Some(outgoing), Some((group, number))) = (&mut outgoing, line.files().next())
            && clock::pass_of(line.arrived) == standing.pass
        {
            outgoing.push(group, number)?;
        }
        let is_current = line.files.is_some() && history.find(line.id)? == Some(offset);
        for (group, number) in line.files() {
            let Some(id) = known_or_added(&mut groups, group, &places) else { continue };
            let group = groups.get_mut(id);
            group.high = group.high.max(number);
            if is_current {
                live.resize(groups.len().max(live.len()), Vec::new());
                live[id.0 as usize].push(number);
            }
        }
        Ok(())
    })?;
    if let Some(outgoing) = outgoing {
        outgoing.finish(&*lib, standing.pass)?;
    }
    live.resize(groups.len(), Vec::new());
    live.iter_mut().for_each(|numbers| numbers.sort_unstable());

    let names: u64 = live.iter().map(|numbers| numbers.len() as u64).sum();
    let (kept, removed) = remove_unknown(&places, &groups, &live)?;
    recovered.names_removed = removed;
    recovered.names_missing = names - kept;
    for id in groups.ids() {
        let group = groups.get_mut(id);
        group.low = live[id.0 as usize].first().copied().unwrap_or(group.high + 1);
    }
    history.turn(&*lib, opening.history_index)?;
    let active = Active::create(&*lib, &mut groups)?;
    let outgoing = outgoing_of(&*lib, standing)?;
    state.write(standing)?;
    let storer = Storer::new(opening.host, opening.link, opening.sync);
    let parts = Parts {
        places,
        lib,
        groups,
        active,
        history,
        outgoing,
        storer,
        state,
        cut_short,
        sync: opening.sync,
    };
    Ok((Spool::of(parts), recovered))
}

/// The file of the pass under way, or that of the next one.
fn outgoing_of(lib: &dyn FileSystem, standing: Standing) -> Result<Outgoing, FsError> {
    match standing.stage {
        Stage::Done => Outgoing::create(lib, standing.pass + 1),
        _ => Outgoing::open(lib, standing.pass),
    }
}

/// What was to take the place of another file and did not get there.
fn remove_unfinished(lib: &dyn FileSystem) -> Result<(), FsError> {
    let mut unfinished = Vec::new();
    lib.readdir(Path::new(""), &mut |entry| {
        if entry.name.ends_with(b".new") {
            unfinished.push(entry.name.to_vec());
        }
    })?;
    unfinished.iter().try_for_each(|name| unlink_if_there(lib, path_of(name)).map(drop))
}

/// Copies the whole lines when there is more than these: the seam has no truncate, as not all storage can.
fn cut_torn_line(lib: &dyn FileSystem) -> Result<u64, NetnewsError> {
    let path = Path::new(TEXT_FILE);
    let whole = text::scan::<FsError>(lib, path, |_, _| Ok(()))?;
    let there = lib.stat(path)?.size;
    if there <= whole {
        return Ok(0);
    }
    let new = format!("{TEXT_FILE}.new");
    let mut from = lib.open(path, files::Access::Read)?;
    let mut to = create_anew(lib, Path::new(&new))?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut left = whole;
    while left > 0 {
        let room = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let taken = from.read(&mut chunk[..room])?;
        if taken == 0 {
            break;
        }
        write_all(&mut *to, &chunk[..taken])?;
        left -= taken as u64;
    }
    to.close()?;
    lib.rename(Path::new(&new), path)?;
    Ok(there - whole)
}

/// Groups of an `active` that may be torn: the highs of groups whose articles are all gone stand nowhere else.
fn adopt_active(lib: &dyn FileSystem, places: &Places, groups: &mut Groups) -> Result<(), FsError> {
    let mut image = Vec::new();
    match read_whole(lib, Path::new(active::FILE), &mut image, ACTIVE_BYTES_MAX) {
        Err(error) if error.status() == Some(files::Status::NOENT) => return Ok(()),
        other => other?,
    };
    for line in image.split_inclusive(|byte| *byte == b'\n') {
        let Some(line) = active::parse_line(line) else { continue };
        if groups.find(line.name).is_none() {
            let id = groups.add(line.name, places);
            let group = groups.get_mut(id);
            (group.high, group.low, group.flag) = (line.high, line.low, line.flag);
        }
    }
    Ok(())
}

fn known_or_added(groups: &mut Groups, name: &[u8], places: &Places) -> Option<GroupId> {
    match groups.find(name) {
        None if super::groups::is_usable(name) => Some(groups.add(name, places)),
        found => found,
    }
}

/// Unlinks every number that is not live; how many are, and how many were unlinked.
fn remove_unknown(places: &Places, groups: &Groups, live: &[Vec<u64>]) -> Result<(u64, u64), NetnewsError> {
    let (mut kept, mut removed) = (0, 0);
    for (at, root) in places.roots().iter().enumerate() {
        let root: &Arc<dyn FileSystem> = root;
        let numbers_of = |directory: &[u8]| -> &[u64] {
            let name: Vec<u8> =
                directory.iter().map(|&byte| if byte == b'/' { b'.' } else { byte }).collect();
            match groups.find(&name) {
                Some(id) if groups.get(id).place == PlaceId(at as u16) => &live[id.0 as usize],
                _ => &[],
            }
        };
        let known = |directory: &[u8], number| numbers_of(directory).binary_search(&number).is_ok();
        walk::<NetnewsError>(&**root, known, |directory, numbers| {
            let live = numbers_of(directory);
            for number in numbers {
                if live.binary_search(number).is_ok() {
                    kept += 1;
                    continue;
                }
                let path = path_of(directory).join(number.to_string());
                removed += u64::from(unlink_if_there(&**root, &path)?);
            }
            Ok(())
        })?;
    }
    Ok((kept, removed))
}
