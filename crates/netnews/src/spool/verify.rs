//! Checks a spool: every line of history against the files, and every file against history.
//!
//! ```text
//! history line -> each name: there once, the first a file, the others its links (same inode, or a symlink to it)
//!              -> content: the feed's but for Path: and Xref:, or without the feed: the id and Xref: at least
//!              -> active: LOW <= number <= HIGH
//!              -> expired: gone
//!              -> index: leads to it, and to nothing else
//! spool        -> each file: named by a line, once
//! ```
//!
//! It only reads, and shares with storing nothing but the format of names and lines.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use files::{FileKind, FileSystem, Status};

use super::groups::Groups;
use super::history::index::hash_of;
use super::history::line::HistoryLine;
use super::history::table::Table;
use super::history::{INDEX_FILE, TEXT_FILE, text};
use super::layout::{Homes, Storage};
use super::whole::{ARTICLE_FILE_BYTES_MAX, path_of, place_of, read_whole};
use crate::NetnewsError;
use crate::article::Article;
use crate::batch::BatchError;
use crate::feed::Feed;
use crate::spool::groups::active;
use crate::spool::layout::lock::SpoolLock;
use crate::spool::layout::places::{PlaceId, Places};
use crate::spool::layout::walk::walk;
use crate::spool::passes::clock;
use crate::spool::resume::state::{Stage, State};
use crate::spool::unbatch::storing::{Name, compose, put_path, symlink_target};

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// The run on it did not end in order: `--resume` makes it whole first.
    NotClosed,
    /// A line of history that is none, or a torn last one.
    BadLine,
    /// An id with two lines that name files, or a number given to two articles.
    StoredTwice,
    /// A name in history that is not in the spool.
    Missing,
    /// A file in the spool that history does not name.
    Stray,
    /// A cross-post that does not lead to the article's file.
    NotLinked,
    /// The article's own name is no file, or has more or fewer links than groups.
    WrongLinks,
    /// Other bytes than the feed's with our `Path:` and `Xref:`.
    WrongContent,
    /// Stored, and not in the feed.
    NotInFeed,
    /// A number outside of its group's bounds in `active`, or a group that is not there.
    OutOfBounds,
    /// Older than the retention and still there.
    NotExpired,
    /// The index of history does not lead to an id's line, or is not of this text.
    BadIndex,
}

/// One thing wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind.
    pub kind: FindingKind,
    /// Where, and what.
    pub text: String,
}

/// What was looked at and found.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Articles that are there.
    pub articles: u64,
    /// Their files and links.
    pub names: u64,
    /// Ids remembered without files: expired, cancelled, superseded.
    pub remembered: u64,
    /// Groups.
    pub groups: u64,
    /// Articles whose bytes were compared with the feed's.
    pub compared: u64,
    /// How many findings of each kind.
    pub counts: BTreeMap<FindingKind, u64>,
    /// The first of each kind.
    pub findings: Vec<Finding>,
}

impl Verified {
    /// Whether a run was killed in it, so that what is found is what that run left undone.
    pub fn is_unfinished(&self) -> bool {
        self.counts.contains_key(&FindingKind::NotClosed)
    }

    /// For programs.
    pub fn to_json(&self) -> serde_json::Value {
        let counts: serde_json::Map<String, serde_json::Value> =
            self.counts.iter().map(|(kind, count)| (kind.name().to_owned(), (*count).into())).collect();
        let finding =
            |finding: &Finding| serde_json::json!({ "kind": finding.kind.name(), "text": finding.text });
        serde_json::json!({
            "right": self.is_right(),
            "unfinished": self.is_unfinished(),
            "articles": self.articles,
            "names": self.names,
            "remembered": self.remembered,
            "groups": self.groups,
            "compared": self.compared,
            "counts": counts,
            "findings": self.findings.iter().map(finding).collect::<Vec<_>>(),
        })
    }
}

/// Findings of a kind that are kept with their text.
const TOLD_MAX: u64 = 20;

impl FindingKind {
    /// A stable short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotClosed => "not-closed",
            Self::BadLine => "bad-line",
            Self::StoredTwice => "stored-twice",
            Self::Missing => "missing",
            Self::Stray => "stray",
            Self::NotLinked => "not-linked",
            Self::WrongLinks => "wrong-links",
            Self::WrongContent => "wrong-content",
            Self::NotInFeed => "not-in-feed",
            Self::OutOfBounds => "out-of-bounds",
            Self::NotExpired => "not-expired",
            Self::BadIndex => "bad-index",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Verified {
    /// Nothing is wrong.
    pub fn is_right(&self) -> bool {
        self.counts.is_empty()
    }

    fn found(&mut self, kind: FindingKind, text: impl FnOnce() -> String) {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= TOLD_MAX {
            self.findings.push(Finding { kind, text: text() });
        }
    }
}

/// Checks the spool `name`, and compares it with `feed` if given. Calls `progress` with the articles done and their total.
///
/// # Errors
/// When there is no such spool, the storage fails, the feed cannot be read, or `stop` is raised.
pub fn verify(
    storage: &Storage,
    name: &str,
    feed: Option<&Feed>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Verified, NetnewsError> {
    if !storage.has(name)? {
        return Err(NetnewsError::NoSpool { target: storage.spool.place(), name: name.to_owned() });
    }
    // A concurrent writer's changes would look like damage.
    let _lock = SpoolLock::look(&storage.spool, name)?;
    let Homes { places, lib } = storage.homes(name)?;
    let mut check =
        Check { places, groups: Groups::default(), live: HashMap::new(), verified: Verified::default() };
    let cutoff = check.standing(&*lib)?;
    check.history(&*lib, cutoff)?;
    check.active(&*lib)?;
    let of = check.live.len() as u64;
    check.spool()?;
    let articles: Vec<Box<[u8]>> = check.live.keys().cloned().collect();
    for (done, id) in articles.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            return Err(NetnewsError::Stopped);
        }
        check.article(id, feed.is_none())?;
        if done % 256 == 0 {
            progress(done as u64, of);
        }
    }
    if let Some(feed) = feed {
        check.against(feed, stop, progress)?;
    }
    check.verified.groups = check.groups.len() as u64;
    Ok(check.verified)
}

struct Check {
    places: Places,
    groups: Groups,
    /// Names of the articles that are there, by id.
    live: HashMap<Box<[u8]>, Vec<Name>>,
    verified: Verified,
}

impl Check {
    /// The last pass that must have expired.
    fn standing(&mut self, lib: &dyn FileSystem) -> Result<u32, NetnewsError> {
        let Some(standing) = State::standing_in(lib)? else {
            self.verified.found(FindingKind::NotClosed, || "there is no state".to_owned());
            return Ok(0);
        };
        if !standing.settled {
            let text = format!("the run was cut short in pass {}", standing.pass);
            self.verified.found(FindingKind::NotClosed, || text);
        }
        let done = if standing.stage == Stage::Done { standing.pass } else { standing.pass - 1 };
        Ok(done.saturating_sub(standing.retention))
    }

    fn history(&mut self, lib: &dyn FileSystem, cutoff: u32) -> Result<(), NetnewsError> {
        let mut current: HashMap<Box<[u8]>, u64> = HashMap::new();
        let path = Path::new(TEXT_FILE);
        let whole = text::scan::<NetnewsError>(lib, path, |offset, bytes| {
            let Some(line) = HistoryLine::parse(bytes) else {
                let text = || format!("byte {offset}: {}", bytes.escape_ascii());
                self.verified.found(FindingKind::BadLine, text);
                return Ok(());
            };
            let mut names = Vec::new();
            for (group, number) in line.files() {
                let group = match self.groups.find(group) {
                    Some(group) => group,
                    None if super::groups::is_usable(group) => self.groups.add(group, &self.places),
                    None => continue,
                };
                names.push(Name { group, number });
            }
            // A line without files takes the place of an earlier one; a second one with files should not be.
            if current.insert(line.id.into(), offset).is_some() && line.files.is_some() {
                let text = || format!("{} has two lines with files", line.id.escape_ascii());
                self.verified.found(FindingKind::StoredTwice, text);
            }
            if names.is_empty() {
                self.live.remove(line.id);
                return Ok(());
            }
            if clock::pass_of(line.arrived) <= cutoff {
                let text =
                    || format!("{} came in pass {}", line.id.escape_ascii(), clock::pass_of(line.arrived));
                self.verified.found(FindingKind::NotExpired, text);
            }
            self.live.insert(line.id.into(), names);
            Ok(())
        })?;
        let there = lib.stat(path)?.size;
        if there > whole {
            let text = || format!("the last line is torn: {} bytes", there - whole);
            self.verified.found(FindingKind::BadLine, text);
        }
        self.verified.articles = self.live.len() as u64;
        self.verified.names = self.live.values().map(|names| names.len() as u64).sum();
        self.verified.remembered = current.len() as u64 - self.verified.articles;
        self.index(lib, &current, whole)
    }

    /// The index must lead from each id to its last line. After an interrupted run it is not checked: recovery rebuilds it.
    fn index(
        &mut self,
        lib: &dyn FileSystem,
        current: &HashMap<Box<[u8]>, u64>,
        text_bytes: u64,
    ) -> Result<(), NetnewsError> {
        let verified = &mut self.verified;
        if current.is_empty() || verified.counts.contains_key(&FindingKind::NotClosed) {
            return Ok(());
        }
        let Some((table, head)) = Table::look(lib)? else {
            verified.found(FindingKind::BadIndex, || format!("{INDEX_FILE} is missing or no index"));
            return Ok(());
        };
        if head.text_bytes != text_bytes {
            let text =
                || format!("{INDEX_FILE} is of {} bytes of history, not of {text_bytes}", head.text_bytes);
            verified.found(FindingKind::BadIndex, text);
        }
        if table.used() != current.len() as u64 {
            let text = || format!("{INDEX_FILE} has {} entries for {} ids", table.used(), current.len());
            verified.found(FindingKind::BadIndex, text);
        }
        for (id, offset) in current {
            if table.find(hash_of(id), |found| Ok(found == *offset))?.is_none() {
                let text = || format!("{INDEX_FILE} does not lead to {} at {offset}", id.escape_ascii());
                verified.found(FindingKind::BadIndex, text);
            }
        }
        Ok(())
    }

    fn active(&mut self, lib: &dyn FileSystem) -> Result<(), NetnewsError> {
        let mut image = Vec::new();
        read_whole(lib, Path::new(active::FILE), &mut image, 256 << 20)?;
        let mut bounds: HashMap<&[u8], (u64, u64)> = HashMap::new();
        for line in image.split_inclusive(|byte| *byte == b'\n') {
            match active::parse_line(line) {
                Some(line) => drop(bounds.insert(line.name, (line.low, line.high))),
                None => {
                    let text = || format!("active: no line of a group: {}", line.escape_ascii());
                    self.verified.found(FindingKind::BadLine, text);
                }
            }
        }
        let (groups, verified) = (&self.groups, &mut self.verified);
        for name in self.live.values().flatten() {
            let group = groups.get(name.group);
            let (low, high) = bounds.get(&*group.name).copied().unwrap_or((1, 0));
            if !(low..=high).contains(&name.number) {
                let text =
                    || format!("{}/{}: active has {low} to {high}", group.name.escape_ascii(), name.number);
                verified.found(FindingKind::OutOfBounds, text);
            }
        }
        Ok(())
    }

    /// Every file must be named by exactly one line.
    fn spool(&mut self) -> Result<(), NetnewsError> {
        let mut numbers: Vec<Vec<u64>> = vec![Vec::new(); self.groups.len()];
        self.live.values().flatten().for_each(|name| numbers[name.group.0 as usize].push(name.number));
        for (id, numbers) in self.groups.ids().zip(&mut numbers) {
            numbers.sort_unstable();
            for twice in numbers.windows(2).filter(|pair| pair[0] == pair[1]) {
                let group = &self.groups.get(id).name;
                let text = || format!("{}/{} is two articles", group.escape_ascii(), twice[0]);
                self.verified.found(FindingKind::StoredTwice, text);
            }
        }
        let (groups, verified) = (&self.groups, &mut self.verified);
        for (at, root) in self.places.roots().iter().enumerate() {
            let of = |directory: &[u8]| -> &[u64] {
                let name: Vec<u8> = directory.iter().map(|&b| if b == b'/' { b'.' } else { b }).collect();
                match groups.find(&name) {
                    Some(id) if groups.get(id).place == PlaceId(at as u16) => &numbers[id.0 as usize],
                    _ => &[],
                }
            };
            let known = |directory: &[u8], number| of(directory).binary_search(&number).is_ok();
            walk::<NetnewsError>(&**root, known, |directory, found| {
                let there = of(directory);
                for number in found.iter().filter(|number| there.binary_search(number).is_err()) {
                    let below = format!("{}/{number}", directory.escape_ascii());
                    let text = || place_of(&**root, Path::new(&below)).display().to_string();
                    verified.found(FindingKind::Stray, text);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Checks names and links of one article; with `content` also its headers.
    fn article(&mut self, id: &[u8], content: bool) -> Result<(), NetnewsError> {
        let names = &self.live[id];
        let (groups, places, verified) = (&self.groups, &self.places, &mut self.verified);
        let mut path = Vec::new();
        let first = groups.get(names[0].group);
        put_path(&mut path, first, names[0].number);
        let described = |path: &[u8]| format!("{} of {}", path.escape_ascii(), id.escape_ascii());
        let file = match places.root(first.place).stat(path_of(&path)) {
            Err(error) if error.status() == Some(Status::NOENT) => {
                verified.found(FindingKind::Missing, || described(&path));
                return Ok(());
            }
            other => other?,
        };
        let mut hard = 1;
        for name in &names[1..] {
            let group = groups.get(name.group);
            let root = places.root(group.place);
            put_path(&mut path, group, name.number);
            let link = match root.stat(path_of(&path)) {
                Err(error) if error.status() == Some(Status::NOENT) => {
                    verified.found(FindingKind::Missing, || described(&path));
                    continue;
                }
                other => other?,
            };
            let leads = match link.kind {
                FileKind::Symlink => {
                    let target = symlink_target(places, groups, names[0], name.group);
                    let home = places.root(first.place);
                    let mut file = Vec::new();
                    put_path(&mut file, first, names[0].number);
                    root.readlink(path_of(&path))?.as_os_str().as_encoded_bytes() == target
                        || is_same_file((root, path_of(&path)), (home, path_of(&file)))
                }
                _ => {
                    hard += 1;
                    group.place == first.place && (link.fileid, link.fsid) == (file.fileid, file.fsid)
                }
            };
            if !leads {
                verified.found(FindingKind::NotLinked, || described(&path));
            }
        }
        put_path(&mut path, first, names[0].number);
        if file.kind != FileKind::Regular || file.links != hard {
            let text = || format!("{}: {} links for {hard} names", described(&path), file.links);
            verified.found(FindingKind::WrongLinks, text);
        }
        if content {
            let mut bytes = Vec::new();
            read_whole(places.root(first.place), path_of(&path), &mut bytes, ARTICLE_FILE_BYTES_MAX)?;
            if let Err(why) = speaks_of(&bytes, id, names, groups) {
                verified.found(FindingKind::WrongContent, || format!("{}: {why}", described(&path)));
            }
        }
        Ok(())
    }

    /// Compares the bytes of every article with the feed's.
    fn against(
        &mut self,
        feed: &Feed,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), NetnewsError> {
        // The feed may have an id several times, with different bytes: one match is enough.
        let mut right: HashSet<Box<[u8]>> = HashSet::new();
        let mut wrong: HashMap<Box<[u8]>, String> = HashMap::new();
        let (mut path, mut stored, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        let mut done = 0;
        for batch in feed.batches() {
            let mut reader = batch.open()?;
            loop {
                if stop.load(Ordering::Relaxed) {
                    return Err(NetnewsError::Stopped);
                }
                let bytes = match reader.next() {
                    Ok(Some(bytes)) => bytes,
                    Ok(None) => break,
                    Err(BatchError::Damaged { .. }) => continue,
                    Err(error) => return Err(batch.error(error)),
                };
                done += 1;
                if done % 1024 == 0 {
                    progress(done, feed.articles());
                }
                let Ok(article) = Article::parse(bytes) else { continue };
                let id = article.message_id();
                let Some(names) = self.live.get(id).filter(|_| !right.contains(id)) else { continue };
                let group = self.groups.get(names[0].group);
                put_path(&mut path, group, names[0].number);
                stored.clear();
                let read = read_whole(
                    self.places.root(group.place),
                    path_of(&path),
                    &mut stored,
                    ARTICLE_FILE_BYTES_MAX,
                );
                match read {
                    // Already reported as missing.
                    Err(error) if error.status() == Some(Status::NOENT) => {
                        right.insert(id.into());
                        continue;
                    }
                    other => drop(other?),
                }
                let host = host_of(&stored);
                compose(&mut expected, &article, &host, names, &self.groups);
                if expected == stored {
                    wrong.remove(id);
                    right.insert(id.into());
                    self.verified.compared += 1;
                } else {
                    let at = expected.iter().zip(&stored).take_while(|(a, b)| a == b).count();
                    let text =
                        || format!("{} of {}: differs at byte {at}", path.escape_ascii(), id.escape_ascii());
                    wrong.entry(id.into()).or_insert_with(text);
                }
            }
        }
        for id in self.live.keys() {
            match wrong.remove(id) {
                Some(text) => self.verified.found(FindingKind::WrongContent, || text),
                None if !right.contains(id) => {
                    self.verified.found(FindingKind::NotInFeed, || id.escape_ascii().to_string());
                }
                None => {}
            }
        }
        Ok(())
    }
}

/// Whether a link leads to a file, both on this machine, whatever path the link holds: the spool may have been made or be
/// verified by another one.
fn is_same_file(link: (&dyn FileSystem, &Path), file: (&dyn FileSystem, &Path)) -> bool {
    let found = |(fs, path): (&dyn FileSystem, &Path)| {
        let found = std::fs::metadata(fs.local_root()?.join(path)).ok()?;
        Some((found.dev(), found.ino()))
    };
    found(link).is_some_and(|link| found(file) == Some(link))
}

/// Whether an article says of itself what history says of it.
fn speaks_of(bytes: &[u8], id: &[u8], names: &[Name], groups: &Groups) -> Result<(), &'static str> {
    let article = Article::parse(bytes).map_err(|_| "no article")?;
    if article.message_id() != id {
        return Err("another message id");
    }
    let xref = article.xref().ok_or("no Xref")?.value;
    let mut words = xref.split(|byte| *byte == b' ').skip(1);
    for name in names {
        let expected = [&*groups.get(name.group).name, b":", name.number.to_string().as_bytes()].concat();
        if words.next() != Some(&expected[..]) {
            return Err("an Xref of other names");
        }
    }
    let host = host_of(bytes);
    let path = article.path().ok_or("no Path")?.value;
    let ours = path.strip_prefix(&host[..]).is_some_and(|rest| rest.starts_with(b"!"));
    if words.next().is_some() || !ours { Err("a Path or Xref of another host") } else { Ok(()) }
}

/// The host of its `Xref:`.
fn host_of(bytes: &[u8]) -> Vec<u8> {
    let article = Article::parse(bytes).ok();
    let xref = article.as_ref().and_then(|article| article.xref()).map_or(&b""[..], |xref| xref.value);
    xref.split(|byte| *byte == b' ').next().unwrap_or_default().to_vec()
}
