//! One of the two directories: the system calls that are made in it.
//!
//! Always holds: names are relative to a directory that this run made and holds open, so that nothing outside is touched
//! whatever is renamed or linked meanwhile.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use files::{FileSystem, LocalFs, RUN_MARK, write_run_mark};
use measure::{CacheControl as _, CacheState, Forget, KernelCaches};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, openat, renameat, statat, unlinkat};
use rustix::io::{Errno, pread, pwrite, read, write};

use crate::{OverheadConfig, OverheadError, Work};

/// Directories of runs are called this and a name.
pub const PREFIX: &str = "crumb-overhead-";

/// Bytes of a small write or read, and of the file that they go to.
const BLOCK_BYTES: usize = 4096;
const BLOCKS: u64 = 256;
const LARGE: &str = "large";
/// Operations between two looks at whether the run is to end.
const STOP_EVERY: usize = 256;
/// Names that the proof of coldness looks at.
const PROBES: usize = 32;

/// Why work ended before its end.
pub(crate) enum Cut {
    Stopped,
    Failed(OverheadError),
}

impl<E: Into<OverheadError>> From<E> for Cut {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// A directory of this run.
pub(crate) struct Side {
    place: String,
    at: PathBuf,
    own: Arc<dyn FileSystem>,
    root: Arc<dyn FileSystem>,
    folder: PathBuf,
    dir: OwnedFd,
    caches: KernelCaches,
    names: Vec<String>,
    renamed: Vec<String>,
    /// Numbers of the files in an order that no directory is kept in.
    scattered: Vec<usize>,
    /// Files that this run has made in this round, and whether the large one is there.
    made: usize,
    has_large: bool,
    file_bytes: usize,
    body: Vec<u8>,
    room: Vec<u8>,
}

impl Side {
    /// Makes the directory `name` in `place`.
    pub fn open(place: &Path, which: &str, config: &OverheadConfig) -> Result<Self, OverheadError> {
        let root: Arc<dyn FileSystem> = Arc::new(LocalFs::open(place)?);
        let folder = PathBuf::from(format!("{PREFIX}{}-{which}", config.name));
        let own = root.make_own(&folder)?;
        let at = place.join(&folder);
        let opened = (|| {
            write_run_mark(&*own)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let call = |source| failed(&at, "open", ".", source);
            let dir = openat(rustix::fs::CWD, &at, flags, Mode::empty()).map_err(call)?;
            let caches = KernelCaches::open(&at)
                .map_err(|error| call(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
            Ok::<_, OverheadError>((dir, caches))
        })();
        let (dir, caches) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                drop(own.unlink(Path::new(RUN_MARK)));
                drop(root.rmdir(&folder));
                return Err(error);
            }
        };
        let count = config.files.get() as usize;
        let bytes = config.file_bytes as usize;
        Ok(Self {
            place: at.display().to_string(),
            at,
            own,
            root,
            folder,
            dir,
            caches,
            names: (0..count).map(|number| format!("f{number}")).collect(),
            renamed: (0..count).map(|number| format!("r{number}")).collect(),
            scattered: scattered(count),
            made: 0,
            has_large: false,
            file_bytes: bytes,
            body: (0..bytes.max(BLOCK_BYTES)).map(|at| (at % 251) as u8).collect(),
            room: vec![0; (bytes + 1).max(BLOCK_BYTES)],
        })
    }

    /// Makes all that `work` needs and that is not timed. What keeps a cold lookup from being one is returned.
    pub fn prepare(&mut self, work: Work, count: usize, stop: &AtomicBool) -> Result<Option<String>, Cut> {
        match work {
            Work::StatCold => {
                let step = (count / PROBES).max(1);
                let probes: Vec<PathBuf> =
                    self.names[..count].iter().step_by(step).take(PROBES).map(PathBuf::from).collect();
                Ok(match self.caches.chill(Forget::All, &probes) {
                    CacheState::Cold | CacheState::NamesCold { .. } => None,
                    CacheState::AlwaysWarm { why } | CacheState::Unknown { why } => Some(why),
                })
            }
            Work::SmallWrite => {
                let how = if self.has_large {
                    OFlags::WRONLY
                } else {
                    OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY
                };
                let file = self.opened(LARGE, how)?;
                self.has_large = true;
                for at in 0..BLOCKS {
                    self.put(&file, LARGE, at * BLOCK_BYTES as u64)?;
                }
                Ok(None)
            }
            // Once before, so that they are warm.
            Work::StatWarm | Work::OpenReadClose | Work::SmallRead => {
                self.perform(work, count, stop)?;
                Ok(None)
            }
            Work::Create | Work::List | Work::Rename | Work::Unlink => Ok(None),
        }
    }

    /// Makes `count` operations.
    pub fn perform(&mut self, work: Work, count: usize, stop: &AtomicBool) -> Result<(), Cut> {
        let going = |done: usize| match done.is_multiple_of(STOP_EVERY) && stop.load(Ordering::Relaxed) {
            true => Err(Cut::Stopped),
            false => Ok(()),
        };
        let scattered: Vec<usize> = self.scattered.iter().copied().filter(|at| *at < count).collect();
        match work {
            Work::Create => {
                self.made = 0;
                for done in 0..count {
                    going(done)?;
                    self.create(done)?;
                }
            }
            Work::StatCold | Work::StatWarm => {
                for (done, at) in scattered.into_iter().enumerate() {
                    going(done)?;
                    self.stat(&self.names[at])?;
                }
            }
            Work::OpenReadClose => {
                for (done, at) in scattered.into_iter().enumerate() {
                    going(done)?;
                    self.read_whole(at)?;
                }
            }
            Work::List => self.list(count)?,
            Work::SmallWrite | Work::SmallRead => self.blocks(work, count, going)?,
            Work::Rename => {
                for (done, at) in scattered.into_iter().enumerate() {
                    going(done)?;
                    renameat(&self.dir, self.names[at].as_str(), &self.dir, self.renamed[at].as_str())
                        .map_err(|source| self.failed("rename", &self.names[at], source))?;
                }
            }
            Work::Unlink => {
                for (done, at) in scattered.into_iter().enumerate() {
                    going(done)?;
                    unlinkat(&self.dir, self.renamed[at].as_str(), AtFlags::empty())
                        .map_err(|source| self.failed("unlink", &self.renamed[at], source))?;
                }
                self.made = 0;
            }
        }
        Ok(())
    }

    /// Its directory, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// The name of its directory.
    pub fn folder_text(&self) -> String {
        self.folder.display().to_string()
    }

    /// Files that it has at most.
    pub fn files(&self) -> usize {
        self.names.len()
    }

    /// Removes what this run made, and the directory.
    pub fn remove(self) -> Result<(), OverheadError> {
        self.clear()?;
        // The mark goes last: what a kill leaves until then is known by it.
        self.own.unlink(Path::new(RUN_MARK))?;
        self.root.rmdir(&self.folder)?;
        Ok(())
    }

    /// Removes the files of a round that was cut short: those that this run made, and no others.
    fn clear(&self) -> Result<(), OverheadError> {
        let of_round = self.names[..self.made].iter().chain(&self.renamed[..self.made]);
        let names = of_round.map(String::as_str).chain(self.has_large.then_some(LARGE));
        for name in names {
            match unlinkat(&self.dir, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(source) => return Err(self.failed("unlink", name, source)),
            }
        }
        Ok(())
    }

    fn create(&mut self, at: usize) -> Result<(), OverheadError> {
        let name = &self.names[at];
        let file = self.opened(name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY)?;
        self.made = at + 1;
        let mut rest = &self.body[..self.file_bytes];
        while !rest.is_empty() {
            let written = write(&file, rest).map_err(|source| self.failed("write", name, source))?;
            rest = &rest[written..];
        }
        Ok(())
    }

    fn stat(&self, name: &str) -> Result<(), OverheadError> {
        statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW)
            .map(drop)
            .map_err(|source| self.failed("lstat", name, source))
    }

    fn read_whole(&mut self, at: usize) -> Result<(), OverheadError> {
        let name = &self.names[at];
        let file = self.opened(name, OFlags::RDONLY)?;
        let mut done = 0;
        loop {
            let got = read(&file, &mut self.room[done..]);
            match got.map_err(|source| failed(Path::new(&self.place), "read", name, source))? {
                0 => break,
                got => done += got,
            }
            if done >= self.file_bytes {
                break;
            }
        }
        if self.room[..done] != self.body[..self.file_bytes] {
            return Err(self.wrong(format!("'{name}' has other bytes than were written")));
        }
        Ok(())
    }

    fn list(&self, count: usize) -> Result<(), OverheadError> {
        let again = self.opened(".", OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut room = Vec::with_capacity(32 << 10);
        let mut entries = RawDir::new(&again, room.spare_capacity_mut());
        let mut seen = 0;
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|source| self.failed("getdents64", ".", source))?;
            if entry.file_name().to_bytes().first() == Some(&b'f') {
                statat(&self.dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(|source| self.failed("lstat", &entry.file_name().to_string_lossy(), source))?;
                seen += 1;
            }
        }
        if seen != count {
            return Err(self.wrong(format!("a listing shows {seen} of {count} files")));
        }
        Ok(())
    }

    fn blocks(
        &mut self,
        work: Work,
        count: usize,
        going: impl Fn(usize) -> Result<(), Cut>,
    ) -> Result<(), Cut> {
        let writes = work == Work::SmallWrite;
        let file = self.opened(LARGE, if writes { OFlags::WRONLY } else { OFlags::RDONLY })?;
        for done in 0..count {
            going(done)?;
            // 97 has no divisor in common with the number of blocks: each has its turn.
            let offset = done as u64 * 97 % BLOCKS * BLOCK_BYTES as u64;
            if writes {
                self.put(&file, LARGE, offset)?;
                continue;
            }
            let got = pread(&file, &mut self.room[..BLOCK_BYTES], offset)
                .map_err(|source| self.failed("pread", LARGE, source))?;
            if got != BLOCK_BYTES || self.room[..got] != self.body[..got] {
                return Err(self.wrong(format!("'{LARGE}' has other bytes than were written")).into());
            }
        }
        Ok(())
    }

    fn put(&self, file: &OwnedFd, name: &str, offset: u64) -> Result<(), OverheadError> {
        let written = pwrite(file, &self.body[..BLOCK_BYTES], offset)
            .map_err(|source| self.failed("pwrite", name, source))?;
        match written {
            BLOCK_BYTES => Ok(()),
            less => Err(self.wrong(format!("a write of {BLOCK_BYTES} bytes to '{name}' took {less}"))),
        }
    }

    fn opened(&self, name: &str, flags: OFlags) -> Result<OwnedFd, OverheadError> {
        openat(&self.dir, name, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::from_raw_mode(0o600))
            .map_err(|source| self.failed("open", name, source))
    }

    fn failed(&self, call: &'static str, name: &str, source: Errno) -> OverheadError {
        failed(Path::new(&self.place), call, name, source)
    }

    fn wrong(&self, what: String) -> OverheadError {
        OverheadError::Wrong { place: self.place.clone(), what }
    }
}

fn failed(place: &Path, call: &'static str, name: &str, source: Errno) -> OverheadError {
    OverheadError::Call { place: place.display().to_string(), call, name: name.to_owned(), source }
}

/// All numbers below `count`, far from each other.
fn scattered(count: usize) -> Vec<usize> {
    let step = (count / 2 + 1..).find(|step| gcd(*step, count) == 1).unwrap_or(1);
    (0..count).map(|at| at * step % count).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_its_turn_once_and_not_beside_its_neighbour() {
        for count in [1, 2, 7, 100, 2000] {
            let mut all = scattered(count);
            if count > 10 {
                assert!(all.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1), "{count}");
            }
            all.sort_unstable();
            assert!(all.into_iter().eq(0..count), "{count}");
        }
    }

    #[test]
    fn all_operations_find_what_they_need_and_nothing_is_left() {
        let bench = tempfile::tempdir().unwrap();
        let config = OverheadConfig { files: 40.try_into().unwrap(), ..OverheadConfig::new("t") };
        let mut side = Side::open(bench.path(), "lower", &config).map_err(|error| error.to_string()).unwrap();
        let stop = AtomicBool::new(false);
        for work in Work::ALL {
            let count = if work == Work::SmallRead { 300 } else { 40 };
            assert!(side.prepare(work, count.min(40), &stop).is_ok(), "{work:?}");
            assert!(side.perform(work, count, &stop).is_ok(), "{work:?}");
        }
        side.remove().unwrap();
        assert_eq!(std::fs::read_dir(bench.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_run_that_is_to_end_stops_and_its_files_go() {
        let bench = tempfile::tempdir().unwrap();
        let config = OverheadConfig { files: 1000.try_into().unwrap(), ..OverheadConfig::new("t") };
        let mut side = Side::open(bench.path(), "lower", &config).map_err(|error| error.to_string()).unwrap();
        side.perform(Work::Create, 300, &AtomicBool::new(false)).map_err(|_| ()).unwrap();
        assert!(matches!(side.perform(Work::StatWarm, 300, &AtomicBool::new(true)), Err(Cut::Stopped)));
        side.remove().unwrap();
        assert_eq!(std::fs::read_dir(bench.path()).unwrap().count(), 0);
    }
}
