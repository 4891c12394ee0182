//! Checks a lower tree: is every managed directory as a mount needs it, and is no conversion unfinished?
//!
//! ```text
//! TREE -> each directory: flat --------> its subdirectories in turn
//!                         half way ----> Finding, and with repair: finished in the direction of its bit
//!                         managed -----> hidden level: names, places, permissions, mark -> Findings
//!                                        `-> entries that are directories in turn
//! ```
//!
//! | finding | repair |
//! |---|---|
//! | an unfinished conversion | finishes it: to managed if the bit is on, to flat if it is off |
//! | entries as in a managed directory, but no bit | sets the bit and the layout mark |
//! | an entry in the wrong subdirectory, or beside the hidden level | moves it to its place |
//! | a subdirectory whose group, permissions or lists differ from the directory's | copies them from the directory |
//! | a subdirectory of another user than the directory's owner | none, and its contents are not read: change its owner by hand |
//! | a mark of another layout than the entries' places | sets the mark, if all but few entries agree |
//! | a mark that names no layout | removes it, or sets it from the entries' places |
//! | a mark on a directory that is not managed | removes it |
//! | empty subdirectories of the hidden level | none: they cost nothing and are created again on demand |
//!
//! Always holds: nothing is changed without `repair`. Repair moves by renames that replace nothing: if a name is taken,
//! both entries stay where they are and the finding stays open. No symbolic link is followed below the tree's root, not even
//! one created during the check: users own what root repairs.
//! A tree that a mount covers is refused: the mount shows no hidden level, and all would look right.
//! Not here: what is in files; whether anybody uses the tree (its mounts are looked at before anything is repaired).

mod examine;
mod finding;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use measure::error_chain;
use rustix::fs::FileType;

use self::examine::Examined;
pub use self::finding::{Finding, FindingKind, Mended};
use crate::convert::calls::{Call, Calls, Kernel};
use crate::convert::error::mended_by;
use crate::convert::guard::{Guard, refuse_covered, refuse_in_use};
use crate::convert::lost::{Lost, lost_bit};
use crate::convert::state::{Names, Survey, finishing_verb, is_reserved};
use crate::convert::{ConvertError, Goal, State, Watch, convert_as_is};
use crate::managed::{MANAGED_BIT, is_managed, layout_mark, open_directory, open_without_links};

/// Findings kept in full; further ones are only counted.
pub const FINDINGS_KEPT_MAX: usize = 1000;

/// The result of a check.
#[derive(Debug, Default)]
pub struct Checked {
    /// Directories checked, without those of hidden levels.
    pub directories: u64,
    /// Managed ones among them.
    pub managed: u64,
    /// Entries in managed directories.
    pub entries: u64,
    /// Empty subdirectories of hidden levels, which are fine.
    pub empty_subdirectories: u64,
    /// By kind, all of them, in the order of [`FindingKind::ALL`].
    pub counts: Vec<(FindingKind, u64)>,
    /// Findings that are not repaired, or cannot be.
    pub open: u64,
    /// In order of the walk, at most [`FINDINGS_KEPT_MAX`].
    pub findings: Vec<Finding>,
    /// False if the check was stopped early.
    pub complete: bool,
}

/// How a caller follows a check and stops it.
pub struct CheckWatch<'a> {
    /// Called with the directories checked so far, the entries of managed ones, and the current path.
    pub progress: &'a mut dyn FnMut(u64, u64, &Path),
    /// Set it to stop the check soon.
    pub stop: &'a AtomicBool,
}

impl Checked {
    /// Whether nothing is wrong, or nothing any more.
    pub fn is_right(&self) -> bool {
        self.open == 0
    }

    fn found(&mut self, finding: Finding) {
        match self.counts.iter_mut().find(|(kind, _)| *kind == finding.kind) {
            Some((_, count)) => *count += 1,
            None => {
                self.counts.push((finding.kind, 1));
                self.counts.sort_by_key(|(kind, _)| *kind);
            }
        }
        self.open += u64::from(!finding.mended.is_done());
        if self.findings.len() < FINDINGS_KEPT_MAX {
            self.findings.push(finding);
        }
    }
}

/// Checks a lower tree; with `repair`, also repairs what it finds.
///
/// # Errors
/// When the tree does not exist, or a mount hides the lower tree; with `repair`, also when the tree is in use. A directory
/// within it that cannot be read is a finding.
pub fn check(tree: &Path, repair: bool, watch: &mut CheckWatch<'_>) -> Result<Checked, ConvertError> {
    let open = |source| ConvertError::Open { path: tree.to_owned(), source };
    refuse_covered(tree)?;
    let root = if repair { refuse_in_use(tree)? } else { tree.canonicalize().map_err(open)? };
    open_directory(&root).map_err(open)?;
    let mut walk = Walk { repair, watch, checked: Checked::default(), kernel: Kernel };
    walk.checked.complete = true;
    let mut waiting = vec![root];
    while let Some(path) = waiting.pop() {
        if walk.watch.stop.load(Ordering::Relaxed) {
            walk.checked.complete = false;
            break;
        }
        let begun = waiting.len();
        walk.directory(&path, &mut waiting);
        // Depth first, in order of names, so that the last path reported is where the walk is.
        waiting[begun..].sort_by(|a, b| b.cmp(a));
    }
    Ok(walk.checked)
}

struct Walk<'a, 'w> {
    repair: bool,
    watch: &'a mut CheckWatch<'w>,
    checked: Checked,
    kernel: Kernel,
}

impl Walk<'_, '_> {
    /// Checks one directory and appends its subdirectories to `waiting`.
    fn directory(&mut self, path: &Path, waiting: &mut Vec<PathBuf>) {
        self.checked.directories += 1;
        (self.watch.progress)(self.checked.directories, self.checked.entries, path);
        let unreadable = |error: std::io::Error| {
            Finding::new(FindingKind::Unreadable, path, format!("cannot be looked at: {error}"))
        };
        let opened = open_without_links(path).and_then(|directory| {
            let mode = rustix::fs::fstat(&directory)?.st_mode;
            Ok((directory, is_managed(mode)))
        });
        let (directory, mut managed) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.checked.found(unreadable(error)),
        };
        let (mut below, mut staged) = (Vec::new(), false);
        let names = match Names::of(&directory) {
            Ok(names) => names,
            Err(error) => return self.checked.found(unreadable(error.into())),
        };
        for entry in names {
            match entry {
                Ok((name, _)) if is_reserved(name.to_bytes()) => staged = true,
                Ok((name, FileType::Directory)) => below.push(name),
                Ok(_) => {}
                Err(error) => return self.checked.found(unreadable(error.into())),
            }
        }
        if staged {
            // Whatever it was, what is below has moved when it is mended.
            match self.half_way(path, &directory, managed) {
                Some(state) => {
                    managed = matches!(state, State::Managed(_));
                    below.clear();
                    if !managed {
                        let directories = Names::of(&directory).into_iter().flatten().flatten();
                        below.extend(
                            directories
                                .filter(|(_, kind)| *kind == FileType::Directory)
                                .map(|(name, _)| name),
                        );
                    }
                }
                None => return,
            }
        }
        if !managed {
            match self.lost_bit(path, &directory) {
                Ok(mended) => managed = mended,
                Err(error) => return self.checked.found(unreadable(error.into())),
            }
        }
        if managed {
            self.checked.managed += 1;
            let examined = Examined::of(path, &directory, self.repair, &mut self.kernel, self.watch.stop);
            self.checked.entries += examined.entries;
            self.checked.empty_subdirectories += examined.empty;
            examined.findings.into_iter().for_each(|finding| self.checked.found(finding));
            waiting.extend(examined.directories);
            return;
        }
        waiting.extend(below.into_iter().map(|name| examine::below(path, name.to_bytes())));
    }

    /// A staging directory is here. Where the directory got to, when it was mended.
    fn half_way(&mut self, path: &Path, directory: &std::fs::File, managed: bool) -> Option<State> {
        let goal = if managed { Goal::Managed(None) } else { Goal::Flat };
        let command = finishing_verb(managed);
        let state = match Survey::of(path, directory) {
            Ok(survey) => survey.state,
            Err(error) => {
                self.checked.found(Finding::new(FindingKind::HalfWay, path, error_chain(&error)));
                return None;
            }
        };
        let text = format!(
            "a conversion to or from layout {} was cut off, or is under way; `crumb {command} {}` finishes it",
            state.layout(),
            path.display()
        );
        let finding = Finding::new(FindingKind::HalfWay, path, text);
        if !self.repair {
            self.checked.found(finding);
            return None;
        }
        let mut watch = Watch { progress: &mut |_| {}, stop: self.watch.stop };
        let (mended, state) = match convert_as_is(path, goal, &mut watch) {
            Ok(converted) if !converted.after.is_half_way() => (Mended::Done, Some(converted.after)),
            Ok(_) => (Mended::Not("stopped before the end".to_owned()), None),
            Err(error) => (Mended::Not(error_chain(&error)), None),
        };
        self.checked.found(Finding { mended, ..finding });
        state
    }

    /// A directory without the bit: was it managed? True when it is again. Otherwise a mark has no business there.
    fn lost_bit(&mut self, path: &Path, directory: &std::fs::File) -> rustix::io::Result<bool> {
        use std::os::fd::AsFd as _;
        let Some(Lost { layout, entries, marked }) = lost_bit(directory)? else {
            self.stray_mark(path, directory);
            return Ok(false);
        };
        let text = format!(
            "its set-user-id bit is missing, so that it is not managed, but {entries} entries lie as in layout {layout}"
        );
        let mut finding = Finding::new(FindingKind::LostBit, path, text);
        if self.repair && !marked {
            // A user may have sorted files by hand; with the bit they would disappear behind a mount.
            finding.mended = Mended::Not(mended_by(path, marked));
        } else if self.repair {
            finding.mended = match Guard::take_as_is(path) {
                Err(error) => Mended::Not(error_chain(&error)),
                Ok(guard) => {
                    let of = guard.directory.as_fd();
                    // The mark first: with the bit alone the entries would be looked for in layout 345.
                    let marked = self.kernel.call(&Call::Mark { of, layout: Some(layout) });
                    Mended::by(marked.and_then(|()| {
                        let mode = rustix::fs::fstat(of)?.st_mode & 0o7777 | MANAGED_BIT;
                        self.kernel.call(&Call::Mode { of, mode })
                    }))
                }
            };
        }
        let mended = finding.mended.is_done();
        self.checked.found(finding);
        Ok(mended)
    }

    fn stray_mark(&mut self, path: &Path, directory: &std::fs::File) {
        let text = match layout_mark(directory) {
            Ok(None) => return,
            Ok(Some(layout)) => format!("has a mark of layout {layout} and is not managed"),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                format!("has a mark and is not managed: {error}")
            }
            // Not ours to read; a directory that is not managed needs no mark.
            Err(_) => return,
        };
        let mut finding = Finding::new(FindingKind::StrayMark, path, text);
        if self.repair {
            use std::os::fd::AsFd as _;
            let unmark = Call::Mark { of: directory.as_fd(), layout: None };
            finding.mended = Mended::by(self.kernel.call(&unmark));
        }
        self.checked.found(finding);
    }
}
