//! One directory under one layout: a row of article numbers that grows at its end and is cut at its beginning.
//!
//! ```text
//! first = 1001                      first + files
//!   | 1001 | 1002 | …        | 2024 |          add: 2025, 2026, …     remove: 1001, 1002, …
//! ```
//!
//! All subdirectories of the layout are there from the start, as in a directory that has been in use for long;
//! reading it whole means reading each of them in order.
//!
//! Always holds: `first` and `files` say what is there, also after an error or a stop in the middle; a file that
//! could not be written whole is not there. No name is made inside a timed loop.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use files::{FileSystem, FsError, FsOp, Layout, OpenFile, Status};
use measure::LapRecorder;
use quanta::Clock;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::DirscaleError;

/// Why something was left in the middle.
#[derive(Debug)]
pub(crate) enum Cut {
    /// The user wants no more.
    Stopped,
    /// It failed.
    Failed(DirscaleError),
}

impl From<FsError> for Cut {
    fn from(error: FsError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<DirscaleError> for Cut {
    fn from(error: DirscaleError) -> Self {
        Self::Failed(error)
    }
}

/// What all operations need besides the directory.
pub(crate) struct Tools<'a> {
    pub clock: Clock,
    pub stop: &'a AtomicBool,
    pub articles: Articles,
}

impl Tools<'_> {
    pub fn go_on(&self) -> Result<(), Cut> {
        if self.stop.load(Ordering::Relaxed) { Err(Cut::Stopped) } else { Ok(()) }
    }
}

/// What files hold: random bytes, as the paper's did, different from one number to the next.
pub(crate) struct Articles {
    pool: Vec<u8>,
    file_bytes: usize,
    fill_bytes: usize,
}

/// A layout's directory.
pub(crate) struct Window {
    pub layout: Layout,
    pub first: u64,
    pub files: u64,
    fs: Arc<dyn FileSystem>,
    /// From the target's root, for looking at caches.
    from_target: PathBuf,
    leaves: Vec<PathBuf>,
}

/// Shifts of the pool that files begin at.
const SHIFTS: usize = 4096;
/// Report progress after this many files created or removed.
pub(crate) const PROGRESS_EVERY: u64 = 256;

impl Articles {
    pub fn new(file_bytes: u32, fill_bytes: u32, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (file_bytes, fill_bytes) = (file_bytes as usize, fill_bytes as usize);
        let pool = (0..file_bytes.max(fill_bytes) + SHIFTS).map(|_| rng.random()).collect();
        Self { pool, file_bytes, fill_bytes }
    }

    /// Of a file that is added in a measurement.
    fn of(&self, number: u64) -> &[u8] {
        &self.from(number)[..self.file_bytes]
    }

    /// Of a file that fills the directory.
    fn filling(&self, number: u64) -> &[u8] {
        &self.from(number)[..self.fill_bytes]
    }

    fn from(&self, number: u64) -> &[u8] {
        &self.pool[(number % SHIFTS as u64) as usize..]
    }
}

impl Window {
    /// The directory `fs`, `from_target` in the target, which holds `files` files from number `first` on.
    pub fn of(fs: Arc<dyn FileSystem>, from_target: PathBuf, layout: Layout, first: u64, files: u64) -> Self {
        let leaves = match layout {
            Layout::Flat => vec![PathBuf::new()],
            _ => layout.leaves().map(PathBuf::from).collect(),
        };
        Self { layout, first, files, fs, from_target, leaves }
    }

    /// Makes the layout's subdirectories; those that are there are fine.
    pub fn make_subdirectories(&self, tools: &Tools<'_>) -> Result<(), Cut> {
        for directory in self.layout.directories() {
            tools.go_on()?;
            match self.fs.mkdir(Path::new(&directory)) {
                Err(error) if error.status() == Some(Status::EXIST) => {}
                made => made.map_err(|error| self.full(error))?,
            }
        }
        Ok(())
    }

    /// Where a number lies, from this directory.
    pub fn place(&self, number: u64) -> PathBuf {
        let mut place = Vec::with_capacity(32);
        self.layout.place(number.to_string().as_bytes(), &mut place);
        PathBuf::from(OsStr::from_bytes(&place))
    }

    /// The same from the target's root.
    pub fn place_in_target(&self, number: u64) -> PathBuf {
        self.from_target.join(self.place(number))
    }

    /// Adds files at the end, or removes them from the beginning, until there are `files`. Calls `progress` with their number.
    pub fn grow_to(
        &mut self,
        files: u64,
        tools: &Tools<'_>,
        laps: &mut LapRecorder,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Cut> {
        while self.files < files {
            let number = self.first + self.files;
            tools.go_on()?;
            self.write(&self.place(number), tools.articles.filling(number))?;
            self.files += 1;
            laps.lap(true);
            if self.files.is_multiple_of(PROGRESS_EVERY) {
                progress(self.files);
            }
        }
        while self.files > files {
            tools.go_on()?;
            self.fs.unlink(&self.place(self.first))?;
            self.first += 1;
            self.files -= 1;
        }
        Ok(())
    }

    /// Looks up numbers that are there, one after the other; nanoseconds each.
    pub fn look_up(&self, places: &[PathBuf], tools: &Tools<'_>) -> Result<Vec<u64>, Cut> {
        self.timed(places, tools, |place| self.fs.stat(place).map(drop).map_err(Cut::from))
    }

    /// Adds `count` files; nanoseconds each, for making, writing and closing it.
    pub fn add(&mut self, count: u64, tools: &Tools<'_>) -> Result<Vec<u64>, Cut> {
        let end = self.first + self.files;
        let places: Vec<PathBuf> = (end..end + count).map(|number| self.place(number)).collect();
        let mut made = 0;
        let spent = self.timed(&places, tools, |place| {
            self.write(place, tools.articles.of(end + made))?;
            made += 1;
            Ok(())
        });
        self.files += made;
        spent
    }

    /// Removes the `count` oldest files, or all; nanoseconds each.
    pub fn remove_oldest(&mut self, count: u64, tools: &Tools<'_>) -> Result<Vec<u64>, Cut> {
        let places = self.oldest(count);
        let mut gone = 0;
        let spent = self.timed(&places, tools, |place| {
            self.fs.unlink(place)?;
            gone += 1;
            Ok(())
        });
        self.first += gone;
        self.files -= gone;
        spent
    }

    /// Where the `count` oldest lie.
    pub fn oldest(&self, count: u64) -> Vec<PathBuf> {
        (self.first..self.first + count.min(self.files)).map(|number| self.place(number)).collect()
    }

    /// Reads the whole directory and counts its files; also what it took, nanoseconds.
    pub fn read(&self, tools: &Tools<'_>) -> Result<(u64, u64), Cut> {
        let mut files = 0;
        let begun = tools.clock.now();
        for leaf in &self.leaves {
            tools.go_on()?;
            self.fs.readdir(leaf, &mut |_| files += 1)?;
        }
        Ok((files, nanoseconds(tools, begun)))
    }

    /// Finds out what is there, however the last run ended.
    ///
    /// # Errors
    /// Words for the user when it is no row of numbers, each in its place.
    pub fn adopt(&mut self, file_bytes: u32) -> Result<(), AdoptError> {
        let mut numbers = BTreeSet::new();
        let mut stranger: Option<PathBuf> = None;
        for leaf in &self.leaves {
            let listed = self.fs.readdir(leaf, &mut |entry| {
                let place = leaf.join(OsStr::from_bytes(entry.name));
                let number = std::str::from_utf8(entry.name).ok().and_then(|name| name.parse::<u64>().ok());
                match number {
                    Some(number) if self.place(number) == place => drop(numbers.insert(number)),
                    _ => drop(stranger.get_or_insert(place)),
                }
            });
            match listed {
                // A kill among the making of subdirectories leaves some out.
                Err(error) if error.status() == Some(Status::NOENT) => {}
                listed => listed?,
            }
        }
        if let Some(stranger) = stranger {
            return Err(AdoptError::Unfit(format!("{} was not put there by Crumb", stranger.display())));
        }
        let (Some(first), Some(last)) = (numbers.first().copied(), numbers.last().copied()) else {
            (self.first, self.files) = (1, 0);
            return Ok(());
        };
        let holes = last - first + 1 - numbers.len() as u64;
        if holes > 0 {
            return Err(AdoptError::Unfit(format!("{holes} of the files {first} to {last} are missing")));
        }
        (self.first, self.files) = (first, numbers.len() as u64);
        // A kill in the middle of a write leaves the last file short.
        if self.fs.stat(&self.place(last))?.size != u64::from(file_bytes) {
            self.fs.unlink(&self.place(last))?;
            self.files -= 1;
        }
        Ok(())
    }

    fn write(&self, place: &Path, bytes: &[u8]) -> Result<(), Cut> {
        let mut file = self.fs.create(place).map_err(|error| self.full(error))?;
        let written = write_all(&mut *file, place, bytes).and_then(|()| file.close());
        written.map_err(|error| {
            // What was cut short must not be counted or kept; the write's own error is the one to tell.
            drop(self.fs.unlink(place));
            self.full(error).into()
        })
    }

    fn full(&self, error: FsError) -> DirscaleError {
        match error.status() {
            Some(Status::NOSPC | Status::DQUOT) => DirscaleError::Full { files: self.files, source: error },
            _ => error.into(),
        }
    }

    /// One operation on each place, the clock read once between two.
    fn timed(
        &self,
        places: &[PathBuf],
        tools: &Tools<'_>,
        mut operation: impl FnMut(&Path) -> Result<(), Cut>,
    ) -> Result<Vec<u64>, Cut> {
        let mut spent = Vec::with_capacity(places.len());
        let mut last = tools.clock.now();
        for place in places {
            operation(place)?;
            let now = tools.clock.now();
            spent.push(now.saturating_duration_since(last).as_nanos() as u64);
            last = now;
            tools.go_on()?;
        }
        Ok(spent)
    }
}

/// Why a directory could not be taken up.
#[derive(Debug)]
pub(crate) enum AdoptError {
    Storage(FsError),
    Unfit(String),
}

impl From<FsError> for AdoptError {
    fn from(error: FsError) -> Self {
        Self::Storage(error)
    }
}

fn nanoseconds(tools: &Tools<'_>, begun: quanta::Instant) -> u64 {
    tools.clock.now().saturating_duration_since(begun).as_nanos() as u64
}

/// Writes it all, however little the storage takes at a time.
pub(crate) fn write_all(file: &mut dyn OpenFile, place: &Path, mut bytes: &[u8]) -> Result<(), FsError> {
    while !bytes.is_empty() {
        match file.write(bytes)? {
            // Storage that takes nothing and says no error would hold us here for ever.
            0 => {
                let (op, path, status) = (FsOp::Write, place.to_owned(), Status::IO);
                return Err(FsError::Failed { op, path, status, source: None });
            }
            written => bytes = &bytes[written.min(bytes.len())..],
        }
    }
    Ok(())
}
