//! One managed directory: what lies in its hidden level, and what of it is wrong; mended when asked for.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use files::Layout;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::finding::{Finding, FindingKind, Mended};
use crate::convert::calls::{Call, Calls};
use crate::convert::guard::Guard;
use crate::convert::level_attributes::LevelAttributes;
use crate::convert::levels::{Levels, joined};
use crate::convert::state::{Names, open_below, open_own};
use crate::managed::{LAYOUT_UNMARKED, layout_mark};

/// What was found in one directory.
#[derive(Debug, Default)]
pub(super) struct Examined {
    /// Entries of users.
    pub entries: u64,
    /// Empty subdirectories of the hidden level.
    pub empty: u64,
    pub findings: Vec<Finding>,
    /// Entries that are directories, to be looked at themselves.
    pub directories: Vec<PathBuf>,
}

/// The hidden level as it looks in one layout.
#[derive(Default)]
struct Look {
    right: u64,
    empty: u64,
    wrong: Vec<Misplaced>,
    /// Beyond those in `wrong`.
    wrong_more: u64,
    unlike: Vec<Vec<u8>>,
    /// Other users' directories in the places of subdirectories, with their owners; not looked into.
    foreign: Vec<(Vec<u8>, u32)>,
    /// Paths from the directory of users' directories.
    directories: Vec<Vec<u8>>,
    unreadable: Vec<(Vec<u8>, Errno)>,
}

/// An entry that is not where its name belongs.
struct Misplaced {
    kind: FindingKind,
    /// The subdirectory that it lies in; empty for the directory itself.
    at: Vec<u8>,
    name: CString,
    is_directory: bool,
}

/// Of a hidden level in the wrong layout everything is misplaced; beyond this many only their number counts.
const MISPLACED_KEPT_MAX: usize = 100_000;

impl Examined {
    pub(super) fn of(
        path: &Path,
        directory: &File,
        repair: bool,
        calls: &mut dyn Calls,
        stop: &AtomicBool,
    ) -> Self {
        let mut examined = Self::default();
        let marked = layout_mark(directory);
        let attributes = match LevelAttributes::for_level_of(directory) {
            Ok(attributes) => attributes,
            Err(error) => {
                let text = format!("its permissions cannot be read: {}", std::io::Error::from(error));
                examined.findings.push(Finding::new(FindingKind::Unreadable, path, text));
                return examined;
            }
        };
        let marked_layout = marked.as_ref().ok().copied().flatten().unwrap_or(LAYOUT_UNMARKED);
        let mut layout = marked_layout;
        let mut look = Look::at(directory, &Levels::of(marked_layout), &attributes, stop);
        // As long as all is in its place, the mark is right.
        if (marked.is_err() || look.wrong_count() > 0)
            && let Some((better, as_better)) = look.better(directory, &attributes, marked_layout, stop)
        {
            (layout, look) = (better, as_better);
        }
        // Another program may be at work: repair only under the guard's exclusive lock.
        let guard = if repair { Some(Guard::take_as_is(path)) } else { None };
        let mut mender = Mender { directory, calls, guard, attributes: &attributes };
        if let Some(finding) = mark_finding(path, &marked, marked_layout, layout, &look) {
            let mended = mender.mend(|mender| {
                let call = Call::Mark { of: mender.directory.as_fd(), layout: Some(layout) };
                mender.calls.call(&call)
            });
            examined.findings.push(Finding { mended, ..finding });
        }
        examined.entries = look.right + look.wrong_count();
        examined.empty = look.empty;
        let levels = Levels::of(layout);
        for (level, owner) in &look.foreign {
            let text = format!(
                "belongs to user {owner}, and not to user {} as the directory that it would be part of; it was not \
                 looked into",
                attributes.owner()
            );
            let mended = match repair {
                false => Mended::NotTried,
                true => Mended::Not(
                    "the owner of the directory above could have put it there; if it is part of it, change its \
                     owner (chown), and repair again; otherwise move it away"
                        .to_owned(),
                ),
            };
            let finding = Finding::new(FindingKind::Permissions, below(path, level), text);
            examined.findings.push(Finding { mended, ..finding });
        }
        for level in &look.unlike {
            let text =
                "its group, permissions or access lists are not those of the directory that it is part of";
            let mended = mender.mend(|mender| {
                let level = mender.descend(level)?;
                mender.attributes.apply_to(&level, mender.calls).map(drop)
            });
            let finding = Finding::new(FindingKind::Permissions, below(path, level), text);
            examined.findings.push(Finding { mended, ..finding });
        }
        for misplaced in &look.wrong {
            let leaf = levels.leaf_of(misplaced.name.to_bytes());
            let mended = mender.mend(|mender| mender.put_in_place(misplaced, &leaf));
            let is = joined(&misplaced.at, misplaced.name.to_bytes());
            let belongs = joined(&leaf, misplaced.name.to_bytes());
            if misplaced.is_directory {
                look.directories.push(if mended.is_done() { belongs.clone() } else { is.clone() });
            }
            let text = format!("belongs in {}", below(path, &leaf).display());
            examined
                .findings
                .push(Finding { mended, ..Finding::new(misplaced.kind, below(path, &is), text) });
        }
        if look.wrong_more > 0 {
            let text =
                format!("{} more entries are not in their places; repair, and check again", look.wrong_more);
            examined.findings.push(Finding::new(FindingKind::WrongPlace, path, text));
        }
        for (at, error) in &look.unreadable {
            let text = format!("cannot be looked at: {}", std::io::Error::from(*error));
            examined.findings.push(Finding::new(FindingKind::Unreadable, below(path, at), text));
        }
        examined.directories = look.directories.iter().map(|at| below(path, at)).collect();
        examined
    }
}

fn mark_finding(
    path: &Path,
    marked: &std::io::Result<Option<Layout>>,
    marked_layout: Layout,
    layout: Layout,
    look: &Look,
) -> Option<Finding> {
    let text = match marked {
        Err(error) => format!("its mark cannot be read: {error}; its entries lie as in layout {layout}"),
        Ok(_) if marked_layout == layout => return None,
        Ok(mark) => format!(
            "{} layout {marked_layout}, but {} of {} entries lie as in layout {layout}",
            if mark.is_some() { "is marked as" } else { "has no mark, which says" },
            look.right,
            look.right + look.wrong_count(),
        ),
    };
    Some(Finding::new(FindingKind::WrongMark, path, text))
}

impl Look {
    fn at(directory: &File, levels: &Levels, attributes: &LevelAttributes, stop: &AtomicBool) -> Self {
        let mut look = Self::default();
        if let Err(error) = look.level(directory, b"", levels, attributes, stop) {
            look.unreadable.push((Vec::new(), error));
        }
        look
    }

    fn level(
        &mut self,
        level: impl AsFd,
        at: &[u8],
        levels: &Levels,
        attributes: &LevelAttributes,
        stop: &AtomicBool,
    ) -> rustix::io::Result<()> {
        let mut found = 0;
        for entry in Names::of(&level)? {
            let (name, kind) = entry?;
            found += 1;
            let path = joined(at, name.to_bytes());
            let is_directory = kind == FileType::Directory;
            if is_directory && levels.is_level(&path) {
                let looked = open_below(&level, &name).and_then(|inner| {
                    let owner = rustix::fs::fstat(&inner)?.st_uid;
                    if owner != attributes.owner() {
                        self.foreign.push((path.clone(), owner));
                        return Ok(());
                    }
                    if LevelAttributes::of(&inner)? != *attributes {
                        self.unlike.push(path.clone());
                    }
                    self.level(&inner, &path, levels, attributes, stop)
                });
                if let Err(error) = looked {
                    self.unreadable.push((path, error));
                }
            } else if levels.is_leaf(at) && levels.leaf_of(name.to_bytes()) == at {
                self.right += 1;
                if is_directory {
                    self.directories.push(path);
                }
            } else {
                let kind = if levels.is_leaf(at) { FindingKind::WrongPlace } else { FindingKind::Stranger };
                self.misplaced(Misplaced { kind, at: at.to_vec(), name, is_directory });
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        if found == 0 && !at.is_empty() {
            self.empty += 1;
        }
        Ok(())
    }

    fn misplaced(&mut self, misplaced: Misplaced) {
        if self.wrong.len() < MISPLACED_KEPT_MAX {
            self.wrong.push(misplaced);
        } else {
            self.wrong_more += 1;
        }
    }

    fn wrong_count(&self) -> u64 {
        self.wrong.len() as u64 + self.wrong_more
    }

    /// The layout in which all but few of the entries are in their places, when there is one.
    fn better(
        &self,
        directory: &File,
        attributes: &LevelAttributes,
        marked_layout: Layout,
        stop: &AtomicBool,
    ) -> Option<(Layout, Self)> {
        let others =
            Layout::ALL.into_iter().filter(|layout| *layout != Layout::Flat && *layout != marked_layout);
        let looks = others.map(|layout| (layout, Self::at(directory, &Levels::of(layout), attributes, stop)));
        let (layout, look) = looks.max_by_key(|(_, look)| look.right)?;
        let is_better = look.right > self.right && look.right >= 9 * look.wrong_count();
        is_better.then_some((layout, look))
    }
}

/// Changes one directory, as long as it is ours.
struct Mender<'a> {
    directory: &'a File,
    calls: &'a mut dyn Calls,
    guard: Option<Result<Guard, crate::convert::ConvertError>>,
    attributes: &'a LevelAttributes,
}

impl Mender<'_> {
    fn mend(&mut self, change: impl FnOnce(&mut Self) -> rustix::io::Result<()>) -> Mended {
        match &self.guard {
            None => Mended::NotTried,
            Some(Err(error)) => Mended::Not(measure::error_chain(error)),
            Some(Ok(_)) => Mended::by(change(self)),
        }
    }

    /// Opens a subdirectory of the hidden level by its path.
    fn descend(&self, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        let mut level = rustix::io::fcntl_dupfd_cloexec(self.directory, 0)?;
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            let name = CString::new(part).map_err(|_| Errno::INVAL)?;
            level = open_own(&level, &name, self.attributes.owner())?;
        }
        Ok(level)
    }

    fn put_in_place(&mut self, misplaced: &Misplaced, leaf: &[u8]) -> rustix::io::Result<()> {
        let from = self.descend(&misplaced.at)?;
        let mut to = rustix::io::fcntl_dupfd_cloexec(self.directory, 0)?;
        for part in leaf.split(|byte| *byte == b'/') {
            let name = CString::new(part).map_err(|_| Errno::INVAL)?;
            to = match open_own(&to, &name, self.attributes.owner()) {
                Err(Errno::NOENT) => {
                    self.calls.call(&Call::MakeDirectory { at: to.as_fd(), name: &name })?;
                    let made = open_own(&to, &name, self.attributes.owner())?;
                    self.attributes.apply_to(&made, self.calls)?;
                    made
                }
                // A file has the name of the subdirectory: it is misplaced itself, and goes first or next time.
                Err(Errno::NOTDIR | Errno::LOOP) => return Err(Errno::EXIST),
                opened => opened?,
            };
        }
        self.calls.call(&Call::Rename { from: from.as_fd(), to: to.as_fd(), name: &misplaced.name })
    }
}

/// A path from a directory.
pub(super) fn below(path: &Path, at: &[u8]) -> PathBuf {
    if at.is_empty() { path.to_owned() } else { path.join(OsStr::from_bytes(at)) }
}
