//! What every `FileSystem` must do, run against each of them: the seam's contract as code.
//!
//! ```text
//! check(fs, quirks) -> for each case: a fresh directory -> the case, through the seam alone -> emptied again
//! ```
//!
//! A case is a function whose name is the sentence that failed. All cases run, then the failed ones are reported together.
//!
//! Always holds: nothing but the seam is used, so that a case cannot know what lies behind; where implementations may
//! differ, a [`Quirks`] says so, and where POSIX or RFC 1813 leave a choice, the case names all that are allowed.
//! Not here: durability over a crash, more than one client, permissions (tests run as root).

mod model;
mod names;
mod trees;
mod writing;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use files::{Access, FileKind, FileSystem, FsError, OpenFile, Status};

/// Where implementations may differ.
#[derive(Clone, Copy, Debug)]
pub struct Quirks {
    /// What a file that was unlinked while open does.
    pub unlinked_open: UnlinkedOpen,
    /// Writes of one open file are seen by others only after its sync, seek or close.
    pub writes_are_held_back: bool,
    /// Entries of the large listing. Default 3000: several replies of any server.
    pub listing_entries: usize,
    /// Random operations against the model. Default 2000.
    pub random_operations: usize,
    /// Of the random operations.
    pub seed: u64,
}

/// What a file that was unlinked while open does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnlinkedOpen {
    /// It stays until it is closed (POSIX).
    Stays,
    /// It is gone, and its handle `STALE`: NFSv3 without silly renames.
    Stale,
    /// Either, as the server happens to hold it open or not.
    Either,
}

impl Quirks {
    /// A local directory: none.
    pub const LOCAL: Self = Self {
        unlinked_open: UnlinkedOpen::Stays,
        writes_are_held_back: false,
        listing_entries: 3000,
        random_operations: 2000,
        seed: 42,
    };

    /// An NFSv3 client without a page cache of its own.
    pub const NFS: Self =
        Self { unlinked_open: UnlinkedOpen::Stale, writes_are_held_back: true, ..Self::LOCAL };
}

/// One demand on a file system.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    run: fn(&Ground<'_>),
}

/// Cases by their functions' names.
macro_rules! cases {
    ($($name:ident,)*) => { &[$($crate::conformance::Case { name: stringify!($name), run: $name }),*] };
}
use cases;

/// The names of all cases, as sentences.
pub fn case_names() -> impl Iterator<Item = String> {
    all_cases().map(|case| sentence(case.name))
}

fn all_cases() -> impl Iterator<Item = Case> {
    [writing::CASES, names::CASES, trees::CASES, model::CASES].into_iter().flatten().copied()
}

fn sentence(name: &str) -> String {
    name.replace('_', " ")
}

/// Runs every case in a directory of its own below the root, which should be empty.
///
/// # Panics
/// When a case fails; the text names each that did, after all have run.
pub fn check(fs: &dyn FileSystem, quirks: Quirks) {
    let mut failures = Vec::new();
    for (number, case) in all_cases().enumerate() {
        let dir = PathBuf::from(format!("case-{number}"));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            fs.mkdir(&dir).expect("a directory for the case");
            (case.run)(&Ground { fs, quirks, dir: dir.clone() });
            remove_tree(fs, &dir);
        }));
        if let Err(panic) = outcome {
            let said = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("it panicked");
            failures.push(format!("  not so: {}\n    {said}", sentence(case.name)));
        }
    }
    assert!(failures.is_empty(), "{} with {quirks:?}:\n{}", fs.place(), failures.join("\n"));
}

fn remove_tree(fs: &dyn FileSystem, dir: &Path) {
    let mut entries = Vec::new();
    fs.readdir(dir, &mut |entry| entries.push(dir.join(OsStr::from_bytes(entry.name)))).expect("listed");
    for entry in entries {
        match fs.unlink(&entry) {
            Ok(()) => {}
            Err(_) => remove_tree(fs, &entry),
        }
    }
    fs.rmdir(dir).expect("empty by now");
}

/// Where a case plays.
struct Ground<'a> {
    fs: &'a dyn FileSystem,
    quirks: Quirks,
    dir: PathBuf,
}

impl Ground<'_> {
    fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes a file that holds `bytes`.
    fn file(&self, name: impl AsRef<Path>, bytes: &[u8]) -> PathBuf {
        let path = self.at(name);
        let mut file = self.fs.create(&path).expect("made");
        write_all(&mut *file, bytes);
        file.close().expect("closed");
        path
    }

    fn dir(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.at(name);
        self.fs.mkdir(&path).expect("made");
        path
    }

    fn contents(&self, path: &Path) -> Vec<u8> {
        let mut file = self.fs.open(path, Access::Read).expect("opened to read");
        let bytes = read_to_end(&mut *file);
        file.close().expect("closed");
        bytes
    }

    /// Names in a directory, sorted; each as often as the listing returned it.
    fn listed(&self, path: &Path) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        self.fs.readdir(path, &mut |entry| names.push(entry.name.to_vec())).expect("listed");
        names.sort();
        names
    }

    fn kind(&self, path: &Path) -> FileKind {
        self.fs.stat(path).expect("there").kind
    }

    fn is_missing(&self, path: &Path) -> bool {
        self.fs.stat(path).is_err_and(|error| error.status() == Some(Status::NOENT))
    }
}

#[track_caller]
fn assert_fails<T>(outcome: Result<T, FsError>, allowed: &[Status]) {
    match outcome {
        Ok(_) => panic!("it worked, but should fail with {allowed:?}"),
        Err(error) => {
            let status = error.status();
            let allowed = status.is_some_and(|status| allowed.contains(&status));
            assert!(allowed, "{error} ({status:?}) is not among the allowed");
        }
    }
}

fn write_all(file: &mut dyn OpenFile, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let written = file.write(bytes).expect("written");
        assert!((1..=bytes.len()).contains(&written), "write took {written} of {} bytes", bytes.len());
        bytes = &bytes[written..];
    }
}

/// Reads in pieces of a size that divides nothing.
fn read_to_end(file: &mut dyn OpenFile) -> Vec<u8> {
    let (mut all, mut piece) = (Vec::new(), vec![0; 70_001]);
    loop {
        match file.read(&mut piece).expect("read") {
            0 => return all,
            bytes => all.extend_from_slice(&piece[..bytes]),
        }
    }
}

/// Bytes that repeat at no power of two, so that a block in the wrong place shows.
fn pattern(bytes: usize, salt: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8 ^ salt ^ ((at / 4096) as u8)).collect()
}
