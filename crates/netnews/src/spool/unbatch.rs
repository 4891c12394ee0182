//! Accepts articles one after another, as relaynews does: looks each up, numbers, stores, logs and forwards it.
//!
//! Articles come in batches of the feed. A batch becomes part of the spool as a whole, in this order:
//!
//! ```text
//! for each article       1  its file and links                             create, write, close; link
//! at the batch's end     2  history's text: the lines of its articles      one write     <- accepted from here on
//!                        3  the outgoing batch file: their paths           one write
//!                        4  files of cancelled and superseded articles     unlink
//!                        5  the index of history, not every time: slots    one write per run of slots
//!                        6  active: lines of groups that changed           one write per run of lines
//!                        7  state: this many batches are done              one write
//! ```
//!
//! With `SyncWhen::Article` each file is synced before it is closed, and with it or `SyncWhen::Batch` the file systems
//! between 6 and 7.
//!
//! With the index of history in its file (`HistoryIndex::File`), steps 2 and 5 run for each article after step 1: one
//! write of its line, then one of its slot. What follows about step 2 then holds for each line.
//!
//! A kill during step 1 leaves files that history does not name: recovery removes them, and the batch is offered again.
//! During step 2 it leaves some of the lines and perhaps a torn one: the complete lines belong to articles whose names all
//! exist, so they stay, and the articles are recognized when the batch is offered again. After step 2, recovery rebuilds
//! the rest from history: it repeats 3, 5 and 6, and removes the files of step 4, which history does not name. The
//! kernel keeps what a killed program has written. After a crash of the machine writes may be lost: by default nothing is
//! synced, as in INN and C News.
//!
//! Always holds: what history has is in the spool; memory besides the index is bounded by one batch.
//! Not here: recovery after a kill (see `recovery`), reading the feed (see `passes`).

pub(super) mod outgoing;
pub(super) mod storing;

use std::sync::Arc;

use files::{FileSystem, FsError};

use self::outgoing::Outgoing;
use self::storing::{Storer, put_path};
use super::config::SyncWhen;
use super::groups::is_usable;
use super::groups::{GroupId, Groups};
use super::history::History;
use super::history::line::{push_file, push_head};
use super::whole::{path_of, unlink_if_there};
use crate::NetnewsError;
use crate::article::Article;
use crate::spool::groups::active::Active;
use crate::spool::layout::places::{PlaceId, Places};
use crate::spool::results::counts::counts;
use crate::spool::resume::state::{Standing, State};

/// Where control messages go, whatever groups they name.
const CONTROL_GROUP: &[u8] = b"control";

counts! {
    /// What happened to the articles offered.
    pub struct UnbatchCounts {
        /// Articles offered.
        pub offered: u64,
        /// Stored.
        pub stored: u64,
        /// Refused because history has their id.
        pub duplicates: u64,
        /// History has their id, but from this same batch before the run was interrupted: neither new nor refused.
        pub offered_again: u64,
        /// Refused because they are not valid articles, or in no group that can be created.
        pub broken: u64,
        /// Removed by `Control: cancel`.
        pub cancelled: u64,
        /// Removed by `Supersedes:`.
        pub superseded: u64,
        /// Ids cancelled or superseded before they arrived, and refused since.
        pub removed_ahead: u64,
        /// Files and links of removed articles that were unlinked.
        pub names_removed: u64,
    }
}

/// An open spool.
pub(crate) struct Spool {
    pub(crate) places: Places,
    pub(crate) lib: Arc<dyn FileSystem>,
    pub(crate) groups: Groups,
    pub(crate) active: Active,
    pub(crate) history: History,
    pub(crate) outgoing: Outgoing,
    pub(crate) storer: Storer,
    pub(crate) state: State,
    pub(crate) counts: UnbatchCounts,
    /// The range of history whose lines belong to the batch that a kill interrupted.
    pub(crate) cut_short: std::ops::Range<u64>,
    sync: SyncWhen,
    /// Files to be unlinked at the batch's end.
    removals: Vec<(PlaceId, Box<[u8]>)>,
    /// First names of the articles stored since they were taken by [`Self::take_stored`].
    stored: Vec<(GroupId, u64)>,
    /// Whether readers use them.
    tell_stored: bool,
    wanted: Vec<GroupId>,
    path: Vec<u8>,
}

/// The parts that an open spool is put together from.
pub(crate) struct Parts {
    pub(crate) places: Places,
    pub(crate) lib: Arc<dyn FileSystem>,
    pub(crate) groups: Groups,
    pub(crate) active: Active,
    pub(crate) history: History,
    pub(crate) outgoing: Outgoing,
    pub(crate) storer: Storer,
    pub(crate) state: State,
    pub(crate) cut_short: std::ops::Range<u64>,
    pub(crate) sync: SyncWhen,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Cancelled,
    Superseded,
}

impl Spool {
    pub(crate) fn of(parts: Parts) -> Self {
        let Parts { places, lib, groups, active, history, outgoing, storer, state, cut_short, sync } = parts;
        Self {
            places,
            lib,
            groups,
            active,
            history,
            outgoing,
            storer,
            state,
            cut_short,
            sync,
            counts: UnbatchCounts::default(),
            removals: Vec::new(),
            stored: Vec::new(),
            tell_stored: false,
            wanted: Vec::new(),
            path: Vec::new(),
        }
    }

    /// Remembers stored articles for [`Self::take_stored`].
    pub(crate) fn tell_stored(&mut self, tell: bool) {
        self.tell_stored = tell;
        self.stored.clear();
    }

    /// First names of what was stored in batches that are done.
    pub(crate) fn take_stored(&mut self) -> std::vec::Drain<'_, (GroupId, u64)> {
        self.stored.drain(..)
    }

    /// Offers one article that arrives at `arrived` (Unix time, seconds); returns whether it was stored.
    pub(crate) fn offer(&mut self, bytes: &[u8], arrived: u64) -> Result<bool, NetnewsError> {
        self.counts.offered += 1;
        let Ok(article) = Article::parse(bytes) else {
            self.counts.broken += 1;
            return Ok(false);
        };
        let id = article.message_id();
        if let Some(offset) = self.history.find(id)? {
            if self.cut_short.contains(&offset) {
                self.counts.offered_again += 1;
                // Its own line was written before the kill, but perhaps not the line of the article that it removes. If
                // it has no files, it was either refused (cancelled before it arrived) and removes nothing, or removed
                // later, and then history has its removals before that line.
                let accepted = self.history.line_at(offset)?.is_some_and(|line| line.files.is_some());
                if accepted {
                    self.remove_what_it_names(&article, arrived)?;
                }
            } else {
                self.counts.duplicates += 1;
            }
            return Ok(false);
        }
        self.wanted.clear();
        if article.is_control() {
            self.want(CONTROL_GROUP)?;
        } else {
            for name in article.newsgroups() {
                self.want(name.as_bytes())?;
            }
        }
        if self.wanted.is_empty() {
            self.counts.broken += 1;
            return Ok(false);
        }
        self.store(&article, arrived)?;
        self.counts.stored += 1;
        self.remove_what_it_names(&article, arrived)?;
        Ok(true)
    }

    fn remove_what_it_names(&mut self, article: &Article<'_>, arrived: u64) -> Result<(), NetnewsError> {
        if let Some(target) = article.control_cancel() {
            self.remove(target, arrived, Why::Cancelled)?;
        }
        if let Some(target) = article.supersedes().filter(|target| *target != article.message_id()) {
            self.remove(target, arrived, Why::Superseded)?;
        }
        Ok(())
    }

    /// Ends a batch: its articles become part of the spool, in the order above.
    pub(crate) fn end_batch(&mut self, standing: Standing) -> Result<(), NetnewsError> {
        let history_bytes = self.history.text_bytes();
        self.write_through(Standing { history_bytes, ..standing })
    }

    /// The same in the middle of a batch, which will be offered again.
    pub(crate) fn write_through(&mut self, standing: Standing) -> Result<(), NetnewsError> {
        self.history.flush()?;
        self.outgoing.flush()?;
        for (place, path) in self.removals.drain(..) {
            let there = unlink_if_there(self.places.root(place), path_of(&path))?;
            self.counts.names_removed += u64::from(there);
        }
        self.history.end_batch(&*self.lib)?;
        self.active.flush(&mut self.groups)?;
        if self.sync != SyncWhen::None {
            self.make_durable()?;
        }
        self.state.write(standing)?;
        Ok(())
    }

    /// Makes everything written to the spool durable, on all its storage.
    pub(crate) fn make_durable(&self) -> Result<(), FsError> {
        self.places.roots().iter().try_for_each(|root| root.sync_all())?;
        self.lib.sync_all()
    }

    /// Writes everything and marks the spool as closed in order.
    pub(crate) fn settle(&mut self) -> Result<(), NetnewsError> {
        let standing = self.state.standing();
        self.write_through(standing)?;
        self.history.settle()?;
        self.state.write(Standing { settled: true, ..standing })?;
        Ok(())
    }

    /// The group of this name, created if it is new; `None` if its directory cannot be created.
    fn want(&mut self, name: &[u8]) -> Result<(), FsError> {
        let id = match self.groups.find(name) {
            Some(id) => id,
            None if is_usable(name) => {
                let id = self.groups.add(name, &self.places);
                self.active.add(&mut self.groups, id);
                id
            }
            None => return Ok(()),
        };
        if self.storer.prepare(&self.places, self.groups.get_mut(id))? {
            self.wanted.push(id);
        }
        Ok(())
    }

    fn store(&mut self, article: &Article<'_>, arrived: u64) -> Result<(), NetnewsError> {
        let names = self.storer.store(article, &self.places, &mut self.groups, &self.wanted)?;
        for name in names {
            self.active.mark(&mut self.groups, name.group);
        }
        let (groups, first) = (&self.groups, names[0]);
        let posted = article.date().and_then(|date| u64::try_from(date).ok()).unwrap_or(arrived);
        let id = article.message_id();
        self.history.add(&*self.lib, id, |line| {
            push_head(line, id, arrived, posted);
            for (at, name) in names.iter().enumerate() {
                push_file(line, at == 0, &groups.get(name.group).name, name.number);
            }
        })?;
        self.outgoing.push(&groups.get(first.group).directory, first.number);
        if self.tell_stored {
            self.stored.push((first.group, first.number));
        }
        Ok(())
    }

    /// Removes an id: its files are unlinked at the batch's end, and a later article with this id is refused.
    fn remove(&mut self, id: &[u8], arrived: u64, why: Why) -> Result<(), NetnewsError> {
        let Some(offset) = self.history.find(id)? else {
            self.counts.removed_ahead += 1;
            return self.history.add(&*self.lib, id, |line| push_head(line, id, arrived, arrived));
        };
        let Some(line) = self.history.line_at(offset)? else { return Ok(()) };
        if line.files.is_none() {
            return Ok(());
        }
        for (group, number) in line.files() {
            let Some(group) = self.groups.find(group) else { continue };
            let group = self.groups.get(group);
            put_path(&mut self.path, group, number);
            self.removals.push((group.place, self.path.as_slice().into()));
        }
        let then = line.arrived;
        self.history.supersede(id, offset, |line| push_head(line, id, then, then))?;
        match why {
            Why::Cancelled => self.counts.cancelled += 1,
            Why::Superseded => self.counts.superseded += 1,
        }
        Ok(())
    }
}
