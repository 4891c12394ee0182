//! A lower tree in memory or on an image, and a mount over it.
#![allow(dead_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use stackfs::{Mount, StackOptions, Transport};
use tempfile::TempDir;

/// `ring`: requests of all scenes come by io_uring.
const TRANSPORT: &str = "CRUMB_TESTS_TRANSPORT";

pub struct Scene {
    // Dropped in this order: the mount before the directories.
    pub mount: Option<Mount>,
    pub folder: TempDir,
}

pub fn memory() -> TempDir {
    let parent =
        if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("crumb-stack").tempdir_in(parent).expect("a directory for the test")
}

/// Whether nothing can be mounted here; the test is then listed as skipped.
pub fn cannot_mount() -> bool {
    !testkit::need::fuse()
}

impl Scene {
    /// Mounted with `change`d options over an empty lower tree.
    pub fn with(change: impl FnOnce(StackOptions) -> StackOptions) -> Self {
        Self::in_folder(memory(), change)
    }

    pub fn in_folder(folder: TempDir, change: impl FnOnce(StackOptions) -> StackOptions) -> Self {
        let (lower, at) = (folder.path().join("lower"), folder.path().join("at"));
        for place in [&lower, &at] {
            if !place.exists() {
                fs::create_dir(place).expect("a place");
            }
        }
        let mount = started(change(StackOptions::new(&lower, &at)));
        Self { mount: Some(mount), folder }
    }

    /// As `with`, and requests come by io_uring; `None` where the kernel cannot.
    pub fn by_ring(change: impl FnOnce(StackOptions) -> StackOptions) -> Option<Self> {
        Self::by_ring_in(memory(), change)
    }

    pub fn by_ring_in(folder: TempDir, change: impl FnOnce(StackOptions) -> StackOptions) -> Option<Self> {
        let ring = |options| StackOptions { transport: Some(Transport::Ring), ..change(options) };
        let scene = testkit::with_fuse_ring(|| Self::in_folder(folder, ring))?;
        assert_eq!(scene.mount.as_ref().map(|mount| mount.waiting().transport), Some(Transport::Ring));
        Some(scene)
    }

    /// Ends the mount and gives its folder back, to be mounted again.
    pub fn unmounted(self) -> TempDir {
        let Self { mount, folder } = self;
        drop(mount);
        folder
    }

    pub fn new() -> Self {
        Self::with(|options| options)
    }

    pub fn lower(&self, path: &str) -> PathBuf {
        self.folder.path().join("lower").join(path)
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join("at").join(path)
    }

    /// A managed directory, made below.
    pub fn managed(&self, path: &str) -> PathBuf {
        let lower = self.lower(path);
        fs::create_dir(&lower).expect("a directory");
        fs::set_permissions(&lower, fs::Permissions::from_mode(0o4755)).expect("the bit");
        self.at(path)
    }
}

/// Mounted, by the transport that `CRUMB_TESTS_TRANSPORT` names.
pub fn started(mut options: StackOptions) -> Mount {
    if !std::env::var(TRANSPORT).is_ok_and(|transport| transport == "ring") || options.transport.is_some() {
        return Mount::start(options).expect("mounts");
    }
    options.transport = Some(Transport::Ring);
    let mount = testkit::with_fuse_ring(|| Mount::start(options).expect("mounts")).expect("a ring");
    assert_eq!(mount.waiting().transport, Transport::Ring);
    mount
}

/// Names in a directory, as read.
pub fn names(directory: &Path) -> Vec<String> {
    fs::read_dir(directory)
        .expect("readable")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .collect()
}

/// The same in alphabetical order.
pub fn sorted(directory: &Path) -> Vec<String> {
    let mut names = names(directory);
    names.sort();
    names
}
