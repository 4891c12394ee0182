//! `LocalFs` passes the conformance suite on the file systems that this machine has, and issues the calls it claims.

use std::fs;
use std::path::Path;
use std::process::Command;

use files::{Access, FileSystem, LocalFs, SyncScope};
use testkit::LoopImage;
use testkit::conformance::{Quirks, check};

/// A place where deleting is cheap.
fn scratch() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("crumb-test").tempdir_in(parent).expect("a scratch folder")
}

fn check_in(dir: &Path, quirks: Quirks) {
    check(&LocalFs::open(dir).expect("opened"), quirks);
    assert_eq!(fs::read_dir(dir).expect("readable").filter(|e| !is_lost_found(e)).count(), 0, "left behind");
}

fn is_lost_found(entry: &std::io::Result<fs::DirEntry>) -> bool {
    entry.as_ref().is_ok_and(|entry| entry.file_name() == "lost+found")
}

#[test]
fn a_directory_in_memory_is_a_file_system() {
    let scratch = scratch();
    let fs = LocalFs::open(scratch.path()).expect("opened");
    assert_eq!(fs.local_root(), Some(scratch.path()));
    check_in(scratch.path(), Quirks::LOCAL);
    // Another sequence of random operations each time the suite is changed for it, not each time it runs.
    check_in(scratch.path(), Quirks { seed: 7, random_operations: 4000, ..Quirks::LOCAL });
}

#[test]
fn a_directory_where_builds_go_is_a_file_system() {
    // Not in memory, most likely; deleting is slow there.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    check_in(folder.path(), Quirks { listing_entries: 1000, ..Quirks::LOCAL });
}

#[test]
fn an_ext4_image_is_a_file_system() {
    check_image("ext4", 64 << 20);
}

#[test]
fn an_xfs_image_is_a_file_system() {
    // The least that mkfs.xfs makes.
    check_image("xfs", 300 << 20);
}

#[test]
fn a_btrfs_image_is_a_file_system() {
    check_image("btrfs", 256 << 20);
}

fn check_image(kind: &str, bytes: u64) {
    let Some(image) = LoopImage::needed(kind, bytes, &[]) else { return };
    check_in(image.path(), Quirks::LOCAL);
}

/// What the test below traces: PostMark's operations in buffered mode, and the rest of the table.
#[test]
fn postmarks_operations_through_the_seam_work() {
    let scratch = scratch();
    let fs = LocalFs::open(scratch.path()).expect("opened");
    let path = Path::new("traced");
    let mut file = fs.create(path).expect("made");
    file.block_bytes().expect("told");
    for _ in 0..2 {
        assert_eq!(file.write(&[7; 4096]).expect("written"), 4096);
    }
    file.close().expect("closed");
    let mut file = fs.open(path, Access::Append).expect("opened");
    assert_eq!(file.seek_end().expect("moved"), 8192);
    file.block_bytes().expect("told");
    file.write(&[8; 100]).expect("written");
    file.close().expect("closed");
    let mut file = fs.open(path, Access::Read).expect("opened");
    file.block_bytes().expect("told");
    let mut buf = [0; 4096];
    let read: Vec<usize> = (0..4).map(|_| file.read(&mut buf).expect("read")).collect();
    assert_eq!(read, [4096, 4096, 100, 0]);
    file.close().expect("closed");
    let mut file = fs.open(path, Access::ReadWrite).expect("opened");
    file.seek(5).expect("moved");
    file.sync(SyncScope::Data).expect("synced");
    file.sync(SyncScope::All).expect("synced");
    file.close().expect("closed");
    fs.stat(path).expect("there");
    fs.link(path, Path::new("traced-twin")).expect("linked");
    fs.rename(Path::new("traced-twin"), Path::new("traced-moved")).expect("renamed");
    fs.unlink(Path::new("traced-moved")).expect("unlinked");
    fs.mkdir(Path::new("traced-dir")).expect("made");
    fs.readdir(Path::new("traced-dir"), &mut |_| ()).expect("listed");
    fs.sync_dir(Path::new("traced-dir")).expect("synced");
    fs.rmdir(Path::new("traced-dir")).expect("removed");
}

#[test]
fn each_call_is_the_system_calls_that_the_header_says() {
    let Some(strace) = testkit::need::program("strace", "strace") else { return };
    let scratch = scratch();
    let log = scratch.path().join("strace");
    let traced = Command::new(strace)
        .args(["-f", "-qq", "-s", "64", "-o"])
        .arg(&log)
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", "local_fs::postmarks_operations_through_the_seam_work", "--test-threads=1"])
        .output()
        .expect("strace starts");
    assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stderr));
    let log = fs::read_to_string(&log).expect("a log");
    let thread = log.lines().find(|line| line.contains("\"traced\"")).and_then(|line| line.split(' ').next());
    let thread = thread.expect("the file is named");
    // Of this thread, from the first call that names the file to the last that names something of ours.
    let calls: Vec<&str> = log
        .lines()
        .filter_map(|line| line.strip_prefix(thread)?.trim_start().split_once('('))
        .skip_while(|(_, rest)| !rest.contains("\"traced"))
        .map(|(call, _)| call)
        // Memory is the allocator's affair; fcntl before each close is std's own check in debug builds.
        .filter(|call| !matches!(*call, "fcntl" | "mmap" | "munmap" | "brk" | "madvise" | "mprotect"))
        .collect();
    let wanted = "openat fstat write write close \
                  openat lseek fstat write close \
                  openat fstat read read read read close \
                  openat lseek fdatasync fsync close \
                  statx linkat renameat unlinkat mkdirat \
                  openat getdents64 getdents64 close \
                  openat fsync close \
                  unlinkat";
    let wanted: Vec<&str> = wanted.split_ascii_whitespace().collect();
    assert_eq!(calls[..wanted.len().min(calls.len())], wanted);
}

#[test]
fn a_directory_of_ones_own_is_held_whatever_takes_its_name() {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
    let scratch = scratch();
    let at = |name: &str| scratch.path().join(name);
    let fs = LocalFs::open(scratch.path()).expect("opened");
    let own = fs.make_own(Path::new("own")).expect("made");
    assert_eq!(fs::metadata(at("own")).expect("there").permissions().mode() & 0o777, 0o700);
    fs::create_dir(at("victim")).expect("made");
    fs::write(at("victim/file"), "precious").expect("written");
    fs::rename(at("own"), at("moved")).expect("renamed");
    symlink("victim", at("own")).expect("linked");
    own.create(Path::new("mine")).expect("made");
    assert!(at("moved/mine").exists() && !at("victim/mine").exists());
    assert!(own.unlink(Path::new("file")).is_err());

    let name = Path::new("own");
    let status = |opened: Result<std::sync::Arc<dyn FileSystem>, files::FsError>| {
        opened.err().and_then(|error| error.status())
    };
    assert_eq!(status(fs.make_own(name)), Some(files::Status::EXIST));
    assert_eq!(status(fs.own(name)), Some(files::Status::NOTDIR));
    assert_eq!(status(fs.below_itself(name)), Some(files::Status::NOTDIR));
    assert_eq!(status(fs.below(name)), None, "links are followed where nothing is removed");

    let moved = Path::new("moved");
    assert_eq!(status(fs.own(moved)), None);
    fs::set_permissions(at("moved"), fs::Permissions::from_mode(0o770)).expect("set");
    assert_eq!(status(fs.own(moved)), Some(files::Status::PERM));
    fs::set_permissions(at("moved"), fs::Permissions::from_mode(0o700)).expect("set");
    // Only root can give it away; the owner of a directory can put one of his own there.
    if chown(at("moved"), Some(1), None).is_ok() {
        let error = measure::error_chain(&fs.own(moved).err().expect("another user's"));
        assert!(error.contains("it belongs to user 1"), "{error}");
    }
}
