//! Making the kernel forget what it has read, and proving that it did.
//!
//! ```text
//! look the names up -> RESOLVE_CACHED finds them        else: blind, the proof would prove nothing
//! syncfs, 3 > /proc/sys/vm/drop_caches                  2 when only names are to go
//! RESOLVE_CACHED must find none of them                 names and inodes are cold
//! RWF_NOWAIT must not read the witness                  pages of this file system are cold
//! ```
//!
//! openat2(2) with `RESOLVE_CACHED` opens a path only if the kernel's cache of names holds all of it; preadv2(2)
//! with `RWF_NOWAIT` reads only pages that are in memory. Neither fetches anything, so looking leaves things cold.
//! The witness is a file without a name (`O_TMPFILE`) beside what is measured. FUSE has none and does not tell of pages:
//! there everything is dropped, below it too, and names alone are proven.
//!
//! Always holds: [`CacheState::Cold`] is said only after the checks of what was to be dropped could have failed and did
//! not.
//! Not here: caches of the device, of a hypervisor, of a server: nothing on this machine can empty them.

use std::fs::File;
use std::io::{self, IoSliceMut, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags};

/// What is to be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forget {
    /// Names and inodes; blocks of directories and inode tables stay in memory. So a server stands that has read its
    /// directories and cannot keep all their entries.
    Names,
    /// Pages as well: everything comes from the storage again.
    All,
}

/// What a measurement may assume of the kernel's caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheState {
    /// What was to be forgotten was dropped, and seen to be gone.
    Cold,
    /// Names were dropped and seen to be gone; pages were dropped, which nobody saw.
    NamesCold {
        /// Why, in words for a user.
        why: String,
    },
    /// This storage is the cache: nothing of it can be dropped.
    AlwaysWarm {
        /// Why, in words for a user.
        why: String,
    },
    /// Dropped or not, nobody knows.
    Unknown {
        /// Why, in words for a user.
        why: String,
    },
}

/// Someone who can make caches cold.
pub trait CacheControl {
    /// Drops what is cached and says what came of it. `names` are some paths, relative to the root of the storage,
    /// that are there and about to be used: the proof looks at them.
    fn chill(&mut self, forget: Forget, names: &[PathBuf]) -> CacheState;
}

/// The caches of this machine's kernel, over one directory.
#[derive(Debug)]
pub struct KernelCaches {
    root: OwnedFd,
    switch: Switch,
}

/// Storage whose caches are out of reach.
#[derive(Clone, Debug)]
pub struct UnreachableCaches {
    /// Why, in words for a user.
    pub why: String,
}

/// What there is to drop caches with.
#[derive(Debug)]
enum Switch {
    Works { drop_caches: PathBuf, pages: Pages },
    Never(CacheState),
}

/// Who can tell whether pages are in memory.
#[derive(Debug)]
enum Pages {
    /// This file of the same file system.
    Witness(File),
    /// Nobody; why, in words. What lies below keeps pages of its own.
    Untold(String),
}

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
/// Dentries and pages in use at the very moment stay; another process may have looked by.
const TRIES: u32 = 3;
/// Paths that the proof looks at.
const NAMES_MAX: usize = 32;
const WITNESS_BYTES: usize = 4096;
/// statfs(2): file systems that live in the caches themselves.
const FUSE: u64 = 0x6573_5546;
const MEMORY_FILE_SYSTEMS: [(u64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];

/// Why it is not shown that the caches are cold.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotProven(String);

impl From<String> for NotProven {
    fn from(why: String) -> Self {
        Self(why)
    }
}

impl KernelCaches {
    /// For the directory `root`. What keeps its caches from being dropped is reported by each [`CacheControl::chill`].
    ///
    /// # Errors
    /// When there is no such directory.
    pub fn open(root: &Path) -> io::Result<Self> {
        Self::with_switch(root, Path::new(DROP_CACHES))
    }

    fn with_switch(root: &Path, drop_caches: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, root, flags, Mode::empty())?;
        let switch = Switch::find(&root, drop_caches);
        Ok(Self { root, switch })
    }

    /// How many of `names` the kernel can tell without asking the storage.
    fn cached(&self, names: &[PathBuf]) -> Result<usize, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut cached = 0;
        for name in names {
            match rustix::fs::openat2(&self.root, name, flags, Mode::empty(), ResolveFlags::CACHED) {
                Ok(_) => cached += 1,
                Err(Errno::AGAIN) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(cached)
    }

    fn drop_and_prove(&self, forget: Forget, names: &[PathBuf]) -> Result<CacheState, NotProven> {
        let Switch::Works { drop_caches, pages } = &self.switch else {
            unreachable!("chill() has answered for storage that never drops");
        };
        for name in names {
            rustix::fs::statat(&self.root, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|error| format!("{}: cannot look it up: {error}", name.display()))?;
        }
        let asked =
            |error: Errno| format!("the kernel does not say whether a name is cached (openat2): {error}");
        if self.cached(names).map_err(asked)? < names.len() {
            return Err(NotProven::from("this file system does not say whether a name is cached".to_owned()));
        }
        let unread = |error: io::Error| format!("cannot read the witness file: {error}");
        let witness = match (forget, pages) {
            (Forget::All, Pages::Witness(witness)) => Some(witness),
            _ => None,
        };
        if let Some(witness) = witness
            && !in_memory(witness).map_err(unread)?
        {
            return Err(NotProven::from("this file system does not say whether a page is cached".to_owned()));
        }
        let mut left = (0, false);
        for _ in 0..TRIES {
            // Only clean pages and unused inodes are dropped.
            match pages {
                Pages::Witness(_) => {
                    rustix::fs::syncfs(&self.root).map_err(|error| format!("cannot sync: {error}"))?;
                }
                Pages::Untold(_) => rustix::fs::sync(),
            }
            let what: &[u8] = if forget == Forget::All { b"3" } else { b"2" };
            File::options()
                .write(true)
                .open(drop_caches)
                .and_then(|mut switch| switch.write_all(what))
                .map_err(|error| format!("{}: {error}", drop_caches.display()))?;
            let page = witness.map(in_memory_still).transpose().map_err(unread)?.unwrap_or(false);
            left = (self.cached(names).map_err(asked)?, page);
            if left == (0, false) {
                return Ok(match (forget, pages) {
                    (Forget::All, Pages::Untold(why)) => CacheState::NamesCold { why: why.clone() },
                    _ => CacheState::Cold,
                });
            }
        }
        let (cached, page) = left;
        let of = names.len();
        let page = if page { " and the witness file's page" } else { "" };
        Err(format!("after dropping the caches {TRIES} times {cached} of {of} names{page} were still cached")
            .into())
    }
}

impl Switch {
    fn find(root: &OwnedFd, drop_caches: &Path) -> Self {
        let never = |why: String| Self::Never(CacheState::Unknown { why });
        let fs_type = match rustix::fs::fstatfs(root) {
            Ok(stat) => stat.f_type as u64,
            Err(error) => return never(format!("cannot tell the kind of file system: {error}")),
        };
        if let Some((_, name)) = MEMORY_FILE_SYSTEMS.iter().find(|(magic, _)| *magic == fs_type) {
            let why = format!("{name} keeps names and data in memory only, so it cannot be made cold");
            return Self::Never(CacheState::AlwaysWarm { why });
        }
        if let Err(error) = File::options().write(true).open(drop_caches) {
            let path = drop_caches.display();
            return never(format!("{path} cannot be written ({error}); run as root to drop the caches"));
        }
        let pages = match (fs_type, witness(root)) {
            (FUSE, _) => Pages::Untold("FUSE does not say what is in memory below it".to_owned()),
            (_, Ok(witness)) if is_silent_about_pages(&witness) => {
                Pages::Untold("this file system does not say whether a page is in memory".to_owned())
            }
            (_, Ok(witness)) => Pages::Witness(witness),
            (_, Err(error)) => {
                return never(format!("no file without a name can be made here as a witness: {error}"));
            }
        };
        Self::Works { drop_caches: drop_caches.to_owned(), pages }
    }
}

impl CacheControl for KernelCaches {
    fn chill(&mut self, forget: Forget, names: &[PathBuf]) -> CacheState {
        if let Switch::Never(state) = &self.switch {
            return state.clone();
        }
        let names = &names[..names.len().min(NAMES_MAX)];
        if names.is_empty() {
            return CacheState::Unknown { why: "no name was given to prove it by".to_owned() };
        }
        self.drop_and_prove(forget, names)
            .unwrap_or_else(|error| CacheState::Unknown { why: error.to_string() })
    }
}

impl CacheControl for UnreachableCaches {
    fn chill(&mut self, _: Forget, _: &[PathBuf]) -> CacheState {
        CacheState::Unknown { why: self.why.clone() }
    }
}

fn witness(root: &OwnedFd) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mut witness = File::from(rustix::fs::openat(root, ".", flags, Mode::RUSR | Mode::WUSR)?);
    witness.write_all(&[1; WITNESS_BYTES])?;
    Ok(witness)
}

/// Reads the witness, whatever it takes, and returns whether it then comes from memory.
fn in_memory(witness: &File) -> io::Result<bool> {
    let mut bytes = [0; WITNESS_BYTES];
    rustix::io::pread(witness, &mut bytes, 0)?;
    in_memory_still(witness)
}

/// overlayfs passes reads on to files that have the pages, and refuses to read from memory alone.
fn is_silent_about_pages(witness: &File) -> bool {
    in_memory_still(witness).is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP))
}

fn in_memory_still(witness: &File) -> io::Result<bool> {
    let mut bytes = [0; WITNESS_BYTES];
    match rustix::io::preadv2(witness, &mut [IoSliceMut::new(&mut bytes)], 0, ReadWriteFlags::NOWAIT) {
        Ok(read) => Ok(read > 0),
        Err(Errno::AGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory_of_names(base: &Path) -> (tempfile::TempDir, Vec<PathBuf>) {
        let directory = tempfile::tempdir_in(base).unwrap();
        let names: Vec<PathBuf> = ["1", "2", "3"].map(PathBuf::from).into();
        names.iter().for_each(|name| std::fs::write(directory.path().join(name), b"x").unwrap());
        (directory, names)
    }

    #[test]
    fn memory_is_said_to_be_always_warm_before_anything_is_dropped() {
        if !Path::new("/dev/shm").is_dir() {
            return;
        }
        let (directory, names) = directory_of_names(Path::new("/dev/shm"));
        let mut caches = KernelCaches::open(directory.path()).unwrap();
        match caches.chill(Forget::All, &names) {
            CacheState::AlwaysWarm { why } => assert!(why.contains("tmpfs"), "{why}"),
            CacheState::Unknown { why } => assert!(why.contains("witness") || why.contains("kind"), "{why}"),
            other => panic!("names of a memory file system cannot be dropped: {other:?}"),
        }
    }

    #[test]
    fn a_switch_that_drops_nothing_is_never_taken_for_cold() {
        for (forget, written) in [(Forget::All, b"3"), (Forget::Names, b"2")] {
            with_a_dead_switch(forget, written);
        }
    }

    /// A plain file in the place of drop_caches: it takes the number and does nothing.
    fn with_a_dead_switch(forget: Forget, written: &[u8]) {
        let (directory, names) = directory_of_names(&std::env::temp_dir());
        let switch = directory.path().join("switch");
        std::fs::write(&switch, b"").unwrap();
        let mut caches = KernelCaches::with_switch(directory.path(), &switch).unwrap();
        let state = caches.chill(forget, &names);
        assert!(!matches!(state, CacheState::Cold | CacheState::NamesCold { .. }), "{state:?}");
        if let (CacheState::Unknown { why }, Switch::Works { .. }) = (&state, &caches.switch) {
            assert!(why.contains("still cached") || why.contains("does not say"), "{why}");
        }
        // It was asked to.
        let asked = std::fs::read(&switch).unwrap();
        assert!(matches!(caches.switch, Switch::Never(_)) || asked == written, "{state:?}");
    }

    #[test]
    fn without_the_right_to_drop_the_state_is_unknown_and_the_remedy_told() {
        let (directory, names) = directory_of_names(&std::env::temp_dir());
        let nowhere = directory.path().join("no/such/switch");
        let mut caches = KernelCaches::with_switch(directory.path(), &nowhere).unwrap();
        match caches.chill(Forget::All, &names) {
            CacheState::Unknown { why } => assert!(why.contains("as root") || why.contains("kind"), "{why}"),
            // Temporary files may live in memory.
            other => assert!(matches!(other, CacheState::AlwaysWarm { .. }), "{other:?}"),
        }
    }

    #[test]
    fn nothing_is_proven_by_no_names() {
        let (directory, _) = directory_of_names(&std::env::temp_dir());
        let mut caches = KernelCaches::open(directory.path()).unwrap();
        assert_ne!(caches.chill(Forget::All, &[]), CacheState::Cold);
    }

    #[test]
    fn a_name_never_looked_at_is_not_counted_as_cached() {
        let (directory, names) = directory_of_names(&std::env::temp_dir());
        let caches = KernelCaches::open(directory.path()).unwrap();
        for name in &names {
            std::fs::symlink_metadata(directory.path().join(name)).unwrap();
        }
        // Where the kernel reports it at all, names just used are cached and names that are not there are not.
        if caches.cached(&names) == Ok(names.len()) {
            assert_eq!(caches.cached(&[PathBuf::from("never"), PathBuf::from("1")]), Ok(1));
        }
    }
}
