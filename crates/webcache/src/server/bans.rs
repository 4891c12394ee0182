//! Bans by prefix or tag: stored replies older than a matching ban are not used.
//!
//! ```text
//! stored reply: older if the store numbered it before the ban, whatever the clock says, or if it was stored by then by the clock
//! fetch:        older if it noted a lower number of bans when it began (`seen`)
//! ```
//!
//! Always holds:
//! - A ban costs each hit two comparisons; only replies older than the newest ban are checked against the list.
//! - Bans survive a restart (file `bans`: a checksum, then one line each: seconds@number, kind, text; earlier versions wrote no
//!   number). A file that cannot be read, or does not fit its checksum, is an error, as banned replies would be served again.
//! - No symbolic link is followed in the place of the file, and no pipe is waited for.
//! - Where the file is missing and the cache holds objects, all of these are banned. An empty cache starts with an empty list.
//! - Of more than 1,000 bans the oldest are replaced by one that covers everything older than they are.
//! - No request waits while bans are written to the disk.
//!
//! Locks: `list`, a leaf; `file`, held while the file is written, for which only the operator's requests wait.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use http::HeaderMap;
use http_cache_rules::{WallSeconds, key};
use rustix::fs::OFlags;
use xxhash_rust::xxh3::xxh3_64;

use crate::object_cache::StoredReply;

const BANS_MAX: usize = 1000;

/// What is banned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Banned {
    /// Keys with this prefix.
    Prefix(String),
    /// Replies with this word in Cache-Tag or Surrogate-Key.
    Tag(String),
}

/// All bans.
pub struct Bans {
    /// The file, and the number of the last change that it contains.
    file: Option<(PathBuf, Mutex<u64>)>,
    /// The latest time of a ban, in seconds since 1970.
    newest: AtomicI64,
    /// The highest `before` of a ban.
    before: AtomicU64,
    /// How many bans this process added.
    added: AtomicU64,
    list: RwLock<List>,
}

#[derive(Default)]
struct List {
    changes: u64,
    bans: Vec<Ban>,
}

struct Ban {
    at: WallSeconds,
    /// The number that the store gave to the next change: what it stored earlier has a lower one. 0: not known.
    before: u64,
    /// Its number among the bans of this process, from 1; 0: of an earlier process.
    number: u64,
    banned: Banned,
}

/// When a reply was stored.
#[derive(Clone, Copy, Debug)]
pub struct StoredAt {
    /// By the clock, which may have been set back since.
    pub time: WallSeconds,
    /// By the store's count of its changes (`packstore::Stat::sequence`).
    pub sequence: u64,
}

impl StoredAt {
    pub fn of(reply: &StoredReply) -> Self {
        Self { time: reply.meta().facts.stored_at, sequence: reply.version().sequence() }
    }
}

impl Bans {
    /// Reads the bans of an earlier run. `may_hold_objects`: the cache may have replies that were stored before `now`, which the
    /// store gave numbers below `before`, when that is known.
    ///
    /// # Errors
    /// When the file exists and is not a valid list of bans, or a missing one cannot be written for another reason than a full disk.
    pub fn read(
        file: Option<PathBuf>,
        may_hold_objects: bool,
        now: WallSeconds,
        before: Option<u64>,
    ) -> io::Result<Self> {
        let Some(file) = file else { return Self::parse("") };
        let (list, mut is_written) = match read_regular(&file) {
            Ok(text) => match without_checksum(&text)? {
                Some(list) => (list.to_owned(), true),
                None => {
                    tracing::warn!(file = %file.display(), "the list of bans has no checksum yet: it is taken as it is, and gets one");
                    (text, false)
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound && may_hold_objects => {
                tracing::warn!(
                    file = %file.display(),
                    "there is no list of bans: nothing that was stored until now is served, as it may have been banned"
                );
                let all = Ban {
                    at: now,
                    before: before.unwrap_or(0),
                    number: 0,
                    banned: Banned::Prefix(String::new()),
                };
                (all.line(), false)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (String::new(), false),
            Err(error) => return Err(error),
        };
        let bans = Self::parse(&list)?;
        if let Some(before) = before
            && bans.before.load(Ordering::Relaxed) > before
        {
            // The store is a new one: by the numbers of the old one, all that it will hold would be banned.
            bans.list.write().unwrap_or_else(PoisonError::into_inner).cap(before);
            bans.before.store(before, Ordering::Relaxed);
            is_written = false;
        }
        // The store need not be in a directory of this machine.
        if !is_written && file.parent().is_some_and(Path::is_dir) {
            match write(&file, &bans.list.read().unwrap_or_else(PoisonError::into_inner).text()) {
                Err(error) if is_full(&error) => {
                    tracing::warn!(file = %file.display(), "the disk is full: the list of bans is in memory only until the next ban");
                }
                written => written?,
            }
        }
        Ok(Self { file: Some((file, Mutex::new(0))), ..bans })
    }

    /// Parses a list of bans that has no file.
    ///
    /// # Errors
    /// When it is not a valid list of bans.
    pub(crate) fn parse(text: &str) -> io::Result<Self> {
        let line = |(number, line): (usize, &str)| {
            let wrong = || {
                let what = format!("line {} is not: seconds, prefix or tag, text", number + 1);
                io::Error::new(io::ErrorKind::InvalidData, what)
            };
            let (at, rest) = line.split_once(' ').ok_or_else(wrong)?;
            let banned = match rest.split_once(' ').ok_or_else(wrong)? {
                ("prefix", text) => Banned::Prefix(text.to_owned()),
                ("tag", text) => Banned::Tag(text.to_owned()),
                _ => return Err(wrong()),
            };
            let (at, before) = match at.split_once('@') {
                None => (at, 0),
                Some((at, before)) => (at, before.parse().map_err(|_| wrong())?),
            };
            Ok(Ban { at: WallSeconds(at.parse().map_err(|_| wrong())?), before, number: 0, banned })
        };
        let bans = text.lines().enumerate().map(line).collect::<io::Result<Vec<_>>>()?;
        let newest = bans.iter().map(|ban| ban.at.0).max().unwrap_or(i64::MIN);
        let before = bans.iter().map(|ban| ban.before).max().unwrap_or(0);
        Ok(Self {
            file: None,
            newest: AtomicI64::new(newest),
            before: AtomicU64::new(before),
            added: AtomicU64::new(0),
            list: RwLock::new(List { changes: 0, bans }),
        })
    }

    /// The list as it is written to the file.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn text(&self) -> String {
        self.list.read().unwrap_or_else(PoisonError::into_inner).text()
    }

    /// Bans everything stored until now, which the store gave numbers below `before`. A prefix may be spelled in any equivalent way.
    ///
    /// # Errors
    /// When the file cannot be written; the ban then holds until the process ends.
    pub fn add(&self, banned: Banned, now: WallSeconds, before: u64) -> io::Result<()> {
        let banned = match banned {
            Banned::Prefix(text) => Banned::Prefix(key::prefix(&text)),
            tag @ Banned::Tag(_) => tag,
        };
        let (change, text) = {
            let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
            list.bans.retain(|ban| ban.banned != banned);
            if list.bans.len() >= BANS_MAX {
                // Turn the next oldest ban into one of everything, so that the dropped one stays in effect.
                let oldest = list.bans.remove(0);
                let next = &mut list.bans[0];
                // The clock may have been set back between them.
                next.at = next.at.max(oldest.at);
                next.before = next.before.max(oldest.before);
                next.banned = Banned::Prefix(String::new());
            }
            let number = self.added.load(Ordering::Relaxed) + 1;
            list.bans.push(Ban { at: now, before, number, banned });
            list.changes += 1;
            self.newest.fetch_max(now.0, Ordering::Release);
            self.before.fetch_max(before, Ordering::Release);
            self.added.store(number, Ordering::Release);
            (list.changes, list.text())
        };
        let Some((file, written)) = &self.file else { return Ok(()) };
        let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have written a later list, with this ban in it.
        if *written < change {
            write(file, &text)?;
            *written = change;
        }
        Ok(())
    }

    /// Whether a stored reply is banned. `fields` is called only when a tag decides.
    pub fn covers(&self, key: &str, stored: StoredAt, fields: impl Fn() -> Option<HeaderMap>) -> bool {
        if stored.time.0 > self.newest.load(Ordering::Acquire)
            && stored.sequence >= self.before.load(Ordering::Acquire)
        {
            return false;
        }
        // By the number, as the clock may have been set back between the two; and by the clock, as a reply may have got its number
        // in the same moment.
        self.any(key, |ban| stored.sequence < ban.before || stored.time <= ban.at, fields)
    }

    /// How many bans there were so far, for [`Bans::covers_since`]. Noted when a fetch begins.
    pub fn seen(&self) -> u64 {
        self.added.load(Ordering::Acquire)
    }

    /// Whether a reply is banned whose fetch began when there were `seen` bans. `fields` is called only when a tag decides.
    pub fn covers_since(&self, seen: u64, key: &str, fields: impl Fn() -> Option<HeaderMap>) -> bool {
        self.seen() != seen && self.any(key, |ban| ban.number > seen, fields)
    }

    fn any(
        &self,
        key: &str,
        is_later: impl Fn(&Ban) -> bool,
        fields: impl Fn() -> Option<HeaderMap>,
    ) -> bool {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let mut tags = None;
        list.bans.iter().filter(|ban| is_later(ban)).any(|ban| match &ban.banned {
            Banned::Prefix(prefix) => key.starts_with(prefix),
            Banned::Tag(tag) => tags.get_or_insert_with(|| tags_of(fields())).iter().any(|held| held == tag),
        })
    }

    /// How many bans there are.
    pub fn count(&self) -> usize {
        self.list.read().unwrap_or_else(PoisonError::into_inner).bans.len()
    }
}

impl List {
    fn text(&self) -> String {
        self.bans.iter().map(Ban::line).collect()
    }

    /// No ban covers what gets this number or a higher one.
    fn cap(&mut self, before: u64) {
        self.bans.iter_mut().for_each(|ban| ban.before = ban.before.min(before));
    }
}

impl Ban {
    fn line(&self) -> String {
        let (kind, text) = match &self.banned {
            Banned::Prefix(text) => ("prefix", text),
            Banned::Tag(text) => ("tag", text),
        };
        let before = if self.before > 0 { format!("@{}", self.before) } else { String::new() };
        format!("{}{before} {kind} {}\n", self.at.0, text.replace(['\r', '\n'], ""))
    }
}

/// The first line's word before the checksum of all other lines. It is the first one so that a file that was cut off lacks no line
/// unnoticed.
const CHECKSUM: &str = "checksum ";

/// The lines of a file after its checksum; `None` when it is a list from before there were checksums.
fn without_checksum(text: &str) -> io::Result<Option<&str>> {
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    match text.strip_prefix(CHECKSUM) {
        Some(rest) => match rest.split_once('\n') {
            Some((checksum, list)) if checksum == checksum_of(list) => Ok(Some(list)),
            _ => Err(damaged("its lines do not fit its checksum")),
        },
        None if text.is_empty() => Err(damaged("it is empty")),
        None => Ok(None),
    }
}

fn checksum_of(list: &str) -> String {
    format!("{:016x}", xxh3_64(list.as_bytes()))
}

/// Neither follows a link nor waits for a pipe.
fn read_regular(file: &Path) -> io::Result<String> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(file)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    io::read_to_string(file)
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn write(file: &Path, list: &str) -> io::Result<()> {
    let new = file.with_extension("new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    out.write_all(format!("{CHECKSUM}{}\n{list}", checksum_of(list)).as_bytes())?;
    out.sync_all()?;
    std::fs::rename(&new, file)
}

fn tags_of(fields: Option<HeaderMap>) -> Vec<String> {
    let fields = fields.unwrap_or_default();
    let lines = ["cache-tag", "surrogate-key"].into_iter().flat_map(|name| fields.get_all(name));
    let words = lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split([',', ' ', '\t']));
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// Of a cache that is empty.
    fn read(file: &Path) -> io::Result<Bans> {
        Bans::read(Some(file.to_owned()), false, WallSeconds(1000), Some(1))
    }

    /// Stored then, after all that a ban covers by its number.
    fn at(seconds: i64) -> StoredAt {
        StoredAt { time: WallSeconds(seconds), sequence: u64::MAX }
    }

    fn tagged() -> Option<HeaderMap> {
        let mut fields = HeaderMap::new();
        fields.insert("cache-tag", HeaderValue::from_static("red, green"));
        Some(fields)
    }

    #[test]
    fn a_ban_covers_what_was_stored_before_it_and_nothing_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("bans");
        let bans = read(&file).expect("no file yet");
        bans.add(Banned::Prefix("http://a/x".to_owned()), WallSeconds(100), 0).expect("written");
        bans.add(Banned::Tag("green".to_owned()), WallSeconds(200), 0).expect("written");
        for bans in [bans, read(&file).expect("what was written")] {
            assert!(bans.covers("http://a/xy", at(100), || None));
            assert!(!bans.covers("http://a/xy", at(101), || None));
            assert!(!bans.covers("http://a/y", at(50), || None));
            assert!(bans.covers("http://b/", at(150), tagged));
            assert!(!bans.covers("http://b/", at(201), tagged));
        }
    }

    /// Symptom: a ban did not cover what was stored before it when the clock had been set back between the two. Cause: the two times
    /// were compared. Fix: the numbers that the store gives are compared too, and for fetches the count of bans.
    #[test]
    fn a_ban_covers_what_was_stored_before_it_though_the_clock_was_set_back_and_nothing_that_was_stored_later()
     {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("bans");
        let bans = read(&file).expect("no file yet");
        let seen = bans.seen();
        let stored = StoredAt { time: WallSeconds(1000), sequence: 6 };
        assert!(!bans.covers("http://a/", stored, || None));
        bans.add(Banned::Prefix("http://a/".to_owned()), WallSeconds(10), 7).expect("written");
        assert!(bans.covers_since(seen, "http://a/", || None), "its fetch began before");
        assert!(!bans.covers_since(bans.seen(), "http://a/", || None), "its fetch began after");
        assert!(!bans.covers_since(seen, "http://b/", || None), "another prefix");
        let again = Bans::read(Some(file.clone()), true, WallSeconds(20), Some(9)).expect("what was written");
        for bans in [bans, again] {
            assert!(bans.covers("http://a/", stored, || None));
            assert!(!bans.covers("http://b/", stored, || None));
            assert!(!bans.covers("http://a/", StoredAt { sequence: 7, ..stored }, || None), "after the ban");
        }
        // A new store counts from the beginning.
        for _ in 0..2 {
            let of_new_store = Bans::read(Some(file.clone()), false, WallSeconds(20), Some(3)).expect("read");
            assert!(!of_new_store.covers("http://a/", StoredAt { sequence: 3, ..stored }, || None));
        }
        let of_new_store = Bans::read(Some(file), true, WallSeconds(20), Some(100)).expect("read");
        assert!(!of_new_store.covers("http://a/", StoredAt { sequence: 4, ..stored }, || None), "kept");
    }

    #[test]
    fn a_link_or_a_pipe_in_the_place_of_the_list_is_refused_and_what_a_link_leads_to_is_untouched() {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, other) = (directory.path().join("bans"), directory.path().join("other"));
        std::fs::write(&other, "another's").expect("written");
        std::os::unix::fs::symlink(&other, &file).expect("a link");
        assert!(read(&file).is_err(), "a link");
        std::fs::remove_file(&file).expect("removed");
        std::os::unix::fs::symlink(&other, directory.path().join("bans.new")).expect("a link");
        let bans = read(&file).expect("no file yet");
        bans.add(Banned::Tag("red".to_owned()), WallSeconds(1), 0).expect("written");
        assert_eq!(std::fs::read_to_string(&other).expect("there"), "another's");
        std::fs::remove_file(&file).expect("removed");
        rustix::fs::mkfifoat(rustix::fs::CWD, &file, 0o600.into()).expect("a pipe");
        assert!(read(&file).is_err(), "a pipe");
    }

    #[test]
    fn a_ban_that_is_forgotten_goes_on_to_cover_what_it_covered() {
        let bans = Bans::parse("").expect("no file");
        for number in 0..BANS_MAX as i64 + 5 {
            bans.add(Banned::Prefix(format!("http://{number}/")), WallSeconds(number), 0).expect("no file");
        }
        assert_eq!(bans.count(), BANS_MAX);
        assert!(bans.covers("http://0/", at(0), || None));
        assert!(!bans.covers("http://0/", at(900), || None));
    }

    #[test]
    fn a_ban_that_is_forgotten_covers_what_it_covered_though_the_clock_was_set_back() {
        let bans = Bans::parse("").expect("no file");
        bans.add(Banned::Prefix("http://a/".to_owned()), WallSeconds(5000), 0).expect("no file");
        for number in 0..BANS_MAX as i64 {
            bans.add(Banned::Prefix(format!("http://{number}/")), WallSeconds(number), 0).expect("no file");
        }
        assert!(bans.covers("http://a/", at(4000), || None));
    }

    #[test]
    fn a_list_that_cannot_be_read_is_not_taken_for_an_empty_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("bans");
        for text in ["100 prefix http://a/\n200 tog red\n", "100\n", "x prefix http://a/\n"] {
            std::fs::write(&file, text).expect("written");
            assert!(read(&file).is_err(), "{text}");
        }
        std::fs::write(&file, b"100 tag \xff\n").expect("written");
        assert!(read(&file).is_err(), "no text");
        assert!(read(directory.path()).is_err(), "no file");
    }

    /// Symptom: banned objects were hits again when the file was emptied, or a bit of it had flipped. Cause: nothing protected it.
    #[test]
    fn a_list_that_was_changed_or_emptied_is_refused_and_one_without_a_checksum_gets_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("bans");
        let old = "100 prefix http://a/\n200 tag red\n";
        std::fs::write(&file, old).expect("written");
        assert_eq!(read(&file).expect("a list from before").count(), 2);
        let written = std::fs::read_to_string(&file).expect("there");
        assert!(written.starts_with("checksum ") && written.ends_with(old), "{written}");
        assert_eq!(read(&file).expect("what was written").count(), 2);
        for at in 0..written.len() {
            let mut bytes = written.clone().into_bytes();
            bytes[at] ^= 1;
            std::fs::write(&file, &bytes).expect("written");
            assert!(read(&file).is_err(), "bit 0 of byte {at}");
            std::fs::write(&file, &written[..at]).expect("written");
            assert!(read(&file).is_err(), "cut off after {at} bytes");
        }
    }

    #[test]
    fn without_a_list_a_cache_that_may_hold_objects_bans_them_all_and_an_empty_one_none() {
        for may_hold_objects in [false, true] {
            let directory = tempfile::tempdir().expect("a directory");
            let file = directory.path().join("bans");
            for _ in 0..2 {
                let bans = Bans::read(Some(file.clone()), may_hold_objects, WallSeconds(100), Some(7))
                    .expect("read");
                assert_eq!(bans.covers("http://a/", at(100), || None), may_hold_objects);
                assert!(!bans.covers("http://a/", at(101), || None));
                let by_number = StoredAt { time: WallSeconds(900), sequence: 6 };
                assert_eq!(bans.covers("http://a/", by_number, || None), may_hold_objects);
            }
        }
    }

    #[test]
    fn a_prefix_bans_however_it_is_spelt() {
        let bans = Bans::parse("").expect("no file");
        bans.add(Banned::Prefix("HTTP://A.example:80/%7Ex".to_owned()), WallSeconds(100), 0)
            .expect("no file");
        assert!(bans.covers("http://a.example/~xy", at(100), || None));
    }

    #[test]
    fn a_lookup_does_not_wait_while_a_ban_is_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let bans = read(&directory.path().join("bans")).expect("no file yet");
        let (_, written) = bans.file.as_ref().expect("a file");
        let writing = written.lock().expect("nobody writes");
        std::thread::scope(|scope| {
            scope.spawn(|| bans.add(Banned::Prefix("http://a/".to_owned()), WallSeconds(100), 0));
            let began = std::time::Instant::now();
            // By then the other thread waits for the file, and the list is free.
            while !bans.list.try_read().is_ok_and(|list| list.bans.len() == 1) {
                assert!(began.elapsed().as_secs() < 30, "the list is locked while the file is written");
                std::thread::yield_now();
            }
            drop(writing);
        });
        assert!(directory.path().join("bans").exists());
    }
}
