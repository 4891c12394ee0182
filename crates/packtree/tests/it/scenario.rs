//! What the tests share: small trees, and everything that is in one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use disk::{Disk, LocalDisk};
use files::{Access, FileKind, FileSystem, OpenFile};
use packtree::{PackTree, TreeOptions};
use tempfile::TempDir;

/// Small segments, so that rooms are entered, freed and used again; nothing happens by itself.
pub const SMALL: TreeOptions = TreeOptions {
    segment_bytes: 128 << 10,
    journal_bytes: 8 << 10,
    flush_every: None,
    cache_bytes: 96 << 10,
};

pub fn scratch() -> TempDir {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { tempfile::tempdir_in(shm).unwrap() } else { tempfile::tempdir().unwrap() }
}

pub fn disk(scratch: &TempDir) -> Arc<dyn Disk> {
    Arc::new(LocalDisk::open(scratch.path()).unwrap())
}

pub fn opened(disk: Arc<dyn Disk>) -> PackTree {
    PackTree::open(disk, &SMALL, "pack:test").unwrap()
}

pub fn made(disk: Arc<dyn Disk>) -> PackTree {
    PackTree::create(&*disk, &SMALL).unwrap();
    opened(disk)
}

/// Files that hold names and inodes: runs, their list, and the list of free blocks.
pub fn files_of_names(disk: &dyn Disk) -> Vec<String> {
    let is_one =
        |name: &String| ["names-", "free-"].iter().any(|start| name.starts_with(start)) || name == "manifest";
    let mut names: Vec<String> = disk.names().unwrap().into_iter().filter(is_one).collect();
    names.sort_unstable();
    names
}

/// Bytes that differ by seed, and at every place.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    (0..length as u64).map(|at| (mixed((at / 8) ^ (seed << 32)) >> (at % 8 * 8)) as u8).collect()
}

/// A number in which every bit depends on every bit (splitmix64).
pub fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ bits >> 31
}

pub fn write_all(file: &mut dyn OpenFile, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let written = file.write(bytes).unwrap();
        bytes = &bytes[written..];
    }
}

pub fn write(fs: &dyn FileSystem, path: &str, bytes: &[u8]) {
    let mut file = fs.create(Path::new(path)).unwrap();
    write_all(&mut *file, bytes);
    file.close().unwrap();
}

pub fn append(fs: &dyn FileSystem, path: &str, bytes: &[u8]) {
    let mut file = fs.open(Path::new(path), Access::Append).unwrap();
    write_all(&mut *file, bytes);
    file.close().unwrap();
}

pub fn read(fs: &dyn FileSystem, path: &str) -> Vec<u8> {
    let mut file = fs.open(Path::new(path), Access::Read).unwrap();
    let (mut all, mut piece) = (Vec::new(), vec![0; 9001]);
    loop {
        match file.read(&mut piece).unwrap() {
            0 => return all,
            bytes => all.extend_from_slice(&piece[..bytes]),
        }
    }
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum There {
    Directory,
    Symlink(String),
    Special(FileKind),
    File { inode: u64, links: u32, mtime: (u32, u32), bytes: Vec<u8> },
}

/// Every path, and what is there.
pub fn all(fs: &dyn FileSystem) -> BTreeMap<String, There> {
    let mut found = BTreeMap::new();
    collect(fs, "", &mut found);
    found
}

fn collect(fs: &dyn FileSystem, directory: &str, found: &mut BTreeMap<String, There>) {
    let mut names = Vec::new();
    let mut each =
        |entry: files::ListedEntry<'_>| names.push(String::from_utf8(entry.name.to_vec()).unwrap());
    fs.readdir(Path::new(directory), &mut each).unwrap();
    for name in names {
        let path = if directory.is_empty() { name } else { format!("{directory}/{name}") };
        let stat = fs.stat(Path::new(&path)).unwrap();
        let there = match stat.kind {
            FileKind::Directory => {
                collect(fs, &path, found);
                There::Directory
            }
            FileKind::Symlink => There::Symlink(fs.readlink(Path::new(&path)).unwrap().display().to_string()),
            FileKind::Regular => There::File {
                inode: stat.fileid,
                links: stat.links,
                mtime: (stat.mtime.s, stat.mtime.ns),
                bytes: read(fs, &path),
            },
            kind => There::Special(kind),
        };
        found.insert(path, there);
    }
}
