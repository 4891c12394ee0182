//! The folder in the target that holds the directories, and the little file that says what is in it.
//!
//! ```text
//! crumb-dirscale-NAME/
//!   crumb-run        the mark of the run, in a set that is removed at its end (see `files::RUN_MARK`)
//!   crumb-set        plain text, replaced by a rename whenever a size is done
//!   flat/ 345/ …     one directory for each layout; 34/56 is 34-56
//!
//! crumb dirscale set 1
//! file_bytes 2048
//! in-use                                      or: at-rest
//! flat first 1001 files 1024 measured 1024
//! ```
//!
//! A set at rest must hold what its file says. One that was in use when its run was killed is taken as it is found,
//! as long as it is a row of numbers without holes; that is all that a kill can leave. The file is written before the
//! directories are made: a folder without it was killed at once, holds nothing, and is taken up as an empty set.
//!
//! The folder is made for this user alone and held open; all in it is reached from there, so that a user who owns the target
//! and moves the folder away leads nobody elsewhere.
//!
//! Always holds: nothing outside the folder is touched; no set is ever written over.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use files::{Access, FileSystem, FsError, Layout, RUN_MARK, Status, write_run_mark};

use crate::window::{AdoptError, Cut, PROGRESS_EVERY, Tools, Window, write_all};
use crate::{DirscaleConfig, DirscaleError, Keep};

/// Folders of sets are called this and the set's name.
pub const SET_PREFIX: &str = "crumb-dirscale-";

const STATE_FILE: &str = "crumb-set";
const NEW_STATE_FILE: &str = "crumb-set.new";
const HEAD: &str = "crumb dirscale set 1";
/// A state file has six lines or so.
const STATE_BYTES_MAX: usize = 4096;
/// Folder, layout, two levels of subdirectories: deeper is nothing of ours.
const DEPTH_MAX: u32 = 4;

/// The folder, open.
pub(crate) struct Set {
    /// The target.
    fs: Arc<dyn FileSystem>,
    /// The folder.
    home: Arc<dyn FileSystem>,
    pub name: String,
    pub folder: PathBuf,
    file_bytes: u32,
    /// Of the layouts in use, in the configuration's order; the largest size measured by runs before, and the
    /// directory.
    pub directories: Vec<(u64, Window)>,
    /// Lines of layouts that this run leaves alone.
    others: Vec<Line>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    layout: Layout,
    first: u64,
    files: u64,
    measured: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct State {
    file_bytes: u32,
    at_rest: bool,
    lines: Vec<Line>,
}

/// Names of the sets that lie in a storage's root: kept ones, and those of killed runs.
///
/// # Errors
/// When the root cannot be read.
pub fn leftovers(fs: &dyn FileSystem) -> Result<Vec<String>, FsError> {
    let mut names = Vec::new();
    fs.readdir(Path::new(""), &mut |entry| {
        let name = entry.name.strip_prefix(SET_PREFIX.as_bytes());
        names.extend(name.map(|name| String::from_utf8_lossy(name).into_owned()));
    })?;
    names.sort();
    Ok(names)
}

impl Set {
    /// Makes or takes up the set that the configuration names.
    pub fn open(
        config: &DirscaleConfig,
        fs: &Arc<dyn FileSystem>,
        tools: &Tools<'_>,
        note: &mut dyn FnMut(String),
    ) -> Result<Self, Cut> {
        let folder = PathBuf::from(config.folder());
        let mut set = Self {
            fs: Arc::clone(fs),
            home: open_home(&**fs, &folder, config)?,
            name: config.set_name.clone(),
            folder,
            file_bytes: config.file_bytes,
            directories: Vec::new(),
            others: Vec::new(),
        };
        let state = match config.keep {
            Keep::Reuse => Some(set.read_state()?),
            Keep::Remove | Keep::Keep => None,
        };
        if config.keep == Keep::Remove {
            write_run_mark(&*set.home)?;
        }
        // A kill from here on leaves a set that says so.
        if state.as_ref().is_none_or(|state| state.lines.is_empty()) {
            set.save(false)?;
        }
        let opened = set.open_directories(config, state, tools, note);
        if let Err(cut) = opened {
            if config.keep == Keep::Remove
                // Nothing of it is of use.
                && let Err(left) = set.remove(&mut |_| {})
                // An error that is on its way already matters more.
                && matches!(cut, Cut::Stopped)
            {
                return Err(left.into());
            }
            return Err(cut);
        }
        Ok(set)
    }

    /// Writes down what is there.
    pub fn save(&self, at_rest: bool) -> Result<(), FsError> {
        let lines = self.directories.iter().map(|(measured, window)| Line {
            layout: window.layout,
            first: window.first,
            files: window.files,
            measured: *measured,
        });
        let state = State {
            file_bytes: self.file_bytes,
            at_rest,
            lines: lines.chain(self.others.iter().copied()).collect(),
        };
        let (new, place) = (Path::new(NEW_STATE_FILE), Path::new(STATE_FILE));
        match self.home.unlink(new) {
            Err(error) if error.status() == Some(Status::NOENT) => {}
            gone => gone?,
        }
        let mut file = self.home.create(new)?;
        write_all(&mut *file, new, state.to_string().as_bytes())?;
        file.close()?;
        self.home.rename(new, place)
    }

    /// Removes the folder with its contents; calls `progress` with the number of files removed.
    pub fn remove(&self, progress: &mut dyn FnMut(u64)) -> Result<(), FsError> {
        let mut gone = 0;
        // The mark goes last: what a kill leaves until then is known by it.
        remove_all_in(&*self.home, DEPTH_MAX, &mut || {
            gone += 1;
            if gone % PROGRESS_EVERY == 0 {
                progress(gone);
            }
        })?;
        match self.home.unlink(Path::new(RUN_MARK)) {
            Err(error) if error.status() == Some(Status::NOENT) => {}
            gone => gone?,
        }
        self.fs.rmdir(&self.folder)
    }

    /// Files in all directories together.
    pub fn files(&self) -> u64 {
        self.directories.iter().map(|(_, window)| window.files).sum()
    }

    fn open_directories(
        &mut self,
        config: &DirscaleConfig,
        state: Option<State>,
        tools: &Tools<'_>,
        note: &mut dyn FnMut(String),
    ) -> Result<(), Cut> {
        if let Some(state) = &state
            && state.file_bytes != config.file_bytes
        {
            let wrong = format!("its files have {} bytes, not {}", state.file_bytes, config.file_bytes);
            return Err(self.unfit(wrong).into());
        }
        let layouts = config.distinct_layouts();
        let known = state.as_ref().map_or(&[][..], |state| &state.lines);
        self.others = known.iter().filter(|line| !layouts.contains(&line.layout)).copied().collect();
        for layout in layouts {
            let name = directory_name(layout);
            let line = known.iter().find(|line| line.layout == layout);
            let (measured, window) = match line {
                Some(line) => {
                    let at_rest = state.as_ref().is_some_and(|state| state.at_rest);
                    (line.measured, self.take_up(line, &name, at_rest, note)?)
                }
                None => {
                    match self.home.mkdir(name.as_ref()) {
                        Err(error) if error.status() == Some(Status::EXIST) => {}
                        made => made?,
                    }
                    (0, self.window(&name, layout, 1, 0)?)
                }
            };
            window.make_subdirectories(tools)?;
            self.directories.push((measured, window));
        }
        self.save(false)?;
        Ok(())
    }

    fn window(&self, name: &str, layout: Layout, first: u64, files: u64) -> Result<Window, FsError> {
        let home = self.home.below_itself(name.as_ref())?;
        Ok(Window::of(home, self.folder.join(name), layout, first, files))
    }

    fn take_up(
        &self,
        line: &Line,
        name: &str,
        at_rest: bool,
        note: &mut dyn FnMut(String),
    ) -> Result<Window, DirscaleError> {
        let mut window = self.window(name, line.layout, line.first, line.files)?;
        window.adopt(self.file_bytes).map_err(|error| match error {
            AdoptError::Storage(error) => error.into(),
            AdoptError::Unfit(wrong) => self.unfit(format!("in {}: {wrong}", line.layout)),
        })?;
        let (found, said) = ((window.first, window.files), (line.first, line.files));
        if found != said && at_rest {
            let text = |(first, files): (u64, u64)| format!("{files} files from {first} on");
            let wrong = format!("{} should hold {} and holds {}", line.layout, text(said), text(found));
            return Err(self.unfit(wrong));
        }
        if !at_rest {
            let (layout, files) = (line.layout, window.files);
            note(format!("{layout}: an earlier run was cut off; going on with the {files} files it left"));
        }
        Ok(window)
    }

    fn read_state(&self) -> Result<State, DirscaleError> {
        let mut text = Vec::new();
        match self.home.open(Path::new(STATE_FILE), Access::Read) {
            Err(error) if error.status() == Some(Status::NOENT) => {
                return if self.is_as_a_kill_at_once_leaves_it()? {
                    Ok(State { file_bytes: self.file_bytes, at_rest: false, lines: Vec::new() })
                } else {
                    Err(self.unfit(format!("it has no file {STATE_FILE}")))
                };
            }
            opened => {
                let mut file = opened?;
                let mut buf = [0; STATE_BYTES_MAX];
                while text.len() < STATE_BYTES_MAX {
                    match file.read(&mut buf)? {
                        0 => break,
                        read => text.extend_from_slice(&buf[..read]),
                    }
                }
            }
        }
        State::parse(&String::from_utf8_lossy(&text))
            .ok_or_else(|| self.unfit(format!("{STATE_FILE} in it is not what this Crumb writes")))
    }

    /// Whether the folder holds nothing but perhaps the file that was to become its state.
    fn is_as_a_kill_at_once_leaves_it(&self) -> Result<bool, FsError> {
        let mut empty = true;
        self.home.readdir(Path::new(""), &mut |entry| empty &= entry.name == NEW_STATE_FILE.as_bytes())?;
        Ok(empty)
    }

    fn unfit(&self, wrong: String) -> DirscaleError {
        DirscaleError::SetUnfit { place: self.fs.place(), name: self.name.clone(), wrong }
    }
}

impl State {
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != HEAD {
            return None;
        }
        let file_bytes = lines.next()?.strip_prefix("file_bytes ")?.parse().ok()?;
        let at_rest = match lines.next()? {
            "at-rest" => true,
            "in-use" => false,
            _ => return None,
        };
        Some(Self { file_bytes, at_rest, lines: lines.map(Line::parse).collect::<Option<_>>()? })
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rest = if self.at_rest { "at-rest" } else { "in-use" };
        let mut text = format!("{HEAD}\nfile_bytes {}\n{rest}\n", self.file_bytes);
        for Line { layout, first, files, measured } in &self.lines {
            writeln!(text, "{layout} first {first} files {files} measured {measured}")?;
        }
        f.write_str(&text)
    }
}

impl Line {
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let [layout, "first", first, "files", files, "measured", measured] = words[..] else { return None };
        Some(Self {
            layout: layout.parse().ok()?,
            first: first.parse().ok()?,
            files: files.parse().ok()?,
            measured: measured.parse().ok()?,
        })
    }
}

fn directory_name(layout: Layout) -> String {
    layout.name().replace('/', "-")
}

/// The folder: made now, or one of an earlier run.
fn open_home(
    fs: &dyn FileSystem,
    folder: &Path,
    config: &DirscaleConfig,
) -> Result<Arc<dyn FileSystem>, DirscaleError> {
    let (place, name) = (fs.place(), config.set_name.clone());
    let (home, wrong, error) = match config.keep {
        Keep::Reuse => (fs.own(folder), Status::NOENT, DirscaleError::SetMissing { place, name }),
        Keep::Remove | Keep::Keep => {
            (fs.make_own(folder), Status::EXIST, DirscaleError::SetExists { place, name })
        }
    };
    home.map_err(|failed| if failed.status() == Some(wrong) { error } else { failed.into() })
}

/// Removes all below a directory. Each is opened by its own name and never through a link.
fn remove_all_in(fs: &dyn FileSystem, depth: u32, gone: &mut dyn FnMut()) -> Result<(), FsError> {
    let mut names: Vec<u8> = Vec::new();
    fs.readdir(Path::new(""), &mut |entry| {
        names.extend_from_slice(entry.name);
        names.push(0);
    })?;
    let is_mark = |name: &[u8]| depth == DEPTH_MAX && name == RUN_MARK.as_bytes();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty() && !is_mark(name)) {
        let name = Path::new(OsStr::from_bytes(name));
        match fs.unlink(name) {
            Ok(()) => gone(),
            // Listings do not say what is a directory; some storage refuses with PERM.
            Err(error) if depth > 0 && matches!(error.status(), Some(Status::ISDIR | Status::PERM)) => {
                remove_all_in(&*fs.below_itself(name)?, depth - 1, gone)?;
                fs.rmdir(name)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_back_and_a_torn_or_foreign_one_is_not_taken() {
        let line = |layout| Line { layout, first: 1001, files: 1024, measured: 512 };
        let state = State { file_bytes: 2048, at_rest: true, lines: Layout::ALL.map(line).into() };
        let text = state.to_string();
        assert_eq!(State::parse(&text), Some(state));
        for wrong in ["", "crumb dirscale set 2\n", &text[..text.len() - 2].replace("measured", "m")] {
            assert_eq!(State::parse(wrong), None, "{wrong}");
        }
    }
}
