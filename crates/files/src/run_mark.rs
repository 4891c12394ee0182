//! The file by which a run's own directory in a target is known, and whether the run still works in it.
//!
//! ```text
//! crumb-postmark-3f9a/crumb-run     crumb run 1 host=H machine=M boot=B pidns=N timens=S pid=P begun=T
//! ```
//!
//! A run that removes its directory at the end writes the mark first and removes it last. So a directory with a mark of a process
//! that is gone was left by a kill. A directory that is kept by name (`--keep`) has none.
//!
//! Always holds: a process of another machine, or of another container, is never taken for one that is gone; nor is one whose start
//! this process would see by another clock (a time namespace) or not at all (`hidepid`). A mark counts only if it belongs to the
//! owner of its directory.
//! Not here: finding and removing such directories (`crumb clean`).

use std::fs;
use std::path::Path;

use crate::{Access, FileKind, FileSystem, FsError, FsOp, Status};

/// Its name.
pub const RUN_MARK: &str = "crumb-run";
const HEAD: &str = "crumb run 1 ";
const MARK_BYTES_MAX: usize = 1024;

/// Whether the process that a mark names still works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkedProcess {
    /// It does.
    Lives,
    /// It was of this machine and is no more.
    Gone,
    /// It is of another machine or container, and nobody here can say.
    Elsewhere,
}

/// The mark of this process.
pub fn run_mark() -> String {
    let pid = std::process::id();
    format!("{HEAD}{} pid={pid} begun={}\n", place(), begun(pid).unwrap_or_default())
}

/// Writes this process's mark into the directory that is the root of `fs`.
///
/// # Errors
/// When it cannot be made.
pub fn write_run_mark(fs: &dyn FileSystem) -> Result<(), FsError> {
    let mut file = fs.create(Path::new(RUN_MARK))?;
    let text = run_mark();
    let mut bytes = text.as_bytes();
    while !bytes.is_empty() {
        match file.write(bytes)? {
            0 => {
                let (op, path) = (FsOp::Write, RUN_MARK.into());
                return Err(FsError::Failed { op, path, status: Status::NOSPC, source: None });
            }
            written => bytes = &bytes[written.min(bytes.len())..],
        }
    }
    file.close()
}

/// The mark in the directory that is the root of `fs`; none where there is none, or a file that is none.
///
/// # Errors
/// When it cannot be read.
pub fn read_run_mark(fs: &dyn FileSystem) -> Result<Option<String>, FsError> {
    let path = Path::new(RUN_MARK);
    match fs.stat(path) {
        Err(error) if error.status() == Some(Status::NOENT) => return Ok(None),
        // Neither a link is followed nor a pipe waited for.
        Ok(found) if found.kind != FileKind::Regular => return Ok(None),
        found => {
            let (mark_uid, directory_uid) = (found?.uid, fs.stat(Path::new(""))?.uid);
            if mark_uid != directory_uid {
                return Err(of_another_user(mark_uid, directory_uid));
            }
        }
    }
    let mut file = fs.open(path, Access::Read)?;
    let (mut text, mut buf) = (Vec::new(), [0; MARK_BYTES_MAX]);
    while text.len() < MARK_BYTES_MAX {
        match file.read(&mut buf)? {
            0 => break,
            read => text.extend_from_slice(&buf[..read]),
        }
    }
    let text = String::from_utf8_lossy(&text);
    Ok(text.starts_with(HEAD).then(|| text.trim().to_owned()))
}

/// A mark that another user put there would have this user's directory removed.
fn of_another_user(mark_uid: u32, directory_uid: u32) -> FsError {
    let why = format!(
        "the mark belongs to user {mark_uid}, the directory to user {directory_uid}: remove by hand what should go"
    );
    let source = Some(std::io::Error::new(std::io::ErrorKind::PermissionDenied, why));
    FsError::Failed { op: FsOp::Open, path: RUN_MARK.into(), status: Status::PERM, source }
}

/// What became of the process of a mark.
pub fn marked_process(mark: &str) -> MarkedProcess {
    let field = |name: &str| {
        mark.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
    };
    let here = place();
    let is_here = |names: &[&str]| {
        names.iter().all(|name| here.split(' ').any(|own| own == format!("{name}={}", field(name))))
    };
    let numbers = (field("pid").parse::<u32>(), field("begun").parse::<u64>());
    let (Ok(pid), Ok(since)) = numbers else { return MarkedProcess::Elsewhere };
    if !is_here(&["host", "machine"]) {
        MarkedProcess::Elsewhere
    } else if !is_here(&["boot"]) {
        MarkedProcess::Gone
    } else if !is_here(&["pidns"]) {
        MarkedProcess::Elsewhere
    } else if !exists(pid) {
        MarkedProcess::Gone
    } else if mark.contains(" timens=") && !is_here(&["timens"]) {
        // Starts are shown by the clock of the time namespace that looks.
        MarkedProcess::Elsewhere
    } else {
        match begun(pid) {
            Some(begun) if begun == since => MarkedProcess::Lives,
            Some(_) => MarkedProcess::Gone,
            // Another user's, and /proc does not show it.
            None => MarkedProcess::Elsewhere,
        }
    }
}

/// Whether there is a process of this number.
fn exists(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return false };
    rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
}

/// Where the number of a process means one process, from the name of the machine to the container.
fn place() -> String {
    let of = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().replace(' ', "_");
    let space = |kind: &str| fs::read_link(format!("/proc/self/ns/{kind}")).unwrap_or_default();
    format!(
        "host={} machine={} boot={} pidns={} timens={}",
        of("/proc/sys/kernel/hostname"),
        of("/etc/machine-id"),
        of("/proc/sys/kernel/random/boot_id"),
        space("pid").display(),
        space("time").display()
    )
}

/// When a process began, in ticks since the boot: field 22 of its `stat`, counted behind the name in brackets.
fn begun(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalFs;

    #[test]
    fn a_mark_is_read_back_and_no_other_file_or_link_is_taken_for_one() {
        let folder = tempfile::tempdir().unwrap();
        let fs = LocalFs::open(folder.path()).unwrap();
        assert_eq!(read_run_mark(&fs).unwrap(), None);
        write_run_mark(&fs).unwrap();
        assert_eq!(read_run_mark(&fs).unwrap().as_deref(), Some(run_mark().trim()));
        let path = folder.path().join(RUN_MARK);
        std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert_eq!(read_run_mark(&fs).unwrap(), None);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "another program's file").unwrap();
        assert_eq!(read_run_mark(&fs).unwrap(), None);
    }

    #[test]
    fn a_process_lives_is_gone_or_is_of_elsewhere() {
        let mine = run_mark();
        assert_eq!(marked_process(mine.trim()), MarkedProcess::Lives);
        let other = |name: &str, value: &str| {
            let fields = mine.trim().split(' ').map(|field| match field.split_once('=') {
                Some((key, _)) if key == name => format!("{name}={value}"),
                _ => field.to_owned(),
            });
            marked_process(&fields.collect::<Vec<_>>().join(" "))
        };
        assert_eq!(other("begun", "1"), MarkedProcess::Gone);
        assert_eq!(other("pid", "4294967295"), MarkedProcess::Gone);
        assert_eq!(other("boot", "before"), MarkedProcess::Gone);
        assert_eq!(other("host", "elsewhere"), MarkedProcess::Elsewhere);
        assert_eq!(other("machine", "another"), MarkedProcess::Elsewhere);
        assert_eq!(other("pidns", "pid:[1]"), MarkedProcess::Elsewhere);
        assert_eq!(other("pid", "x"), MarkedProcess::Elsewhere);
    }

    /// Symptom: `crumb clean` in a time namespace removed the directory of a run under way. Cause: /proc shows starts by the clock of
    /// the namespace that looks, so that the process seemed to be another one.
    #[test]
    fn a_process_whose_start_is_seen_by_another_clock_is_not_taken_for_gone() {
        let mine = run_mark();
        let mark = |pid: u32, timens: &str| {
            let fields = mine.trim().split(' ').map(|field| match field.split_once('=') {
                Some(("begun", _)) => "begun=1".to_owned(),
                Some(("pid", _)) => format!("pid={pid}"),
                Some(("timens", own)) => format!("timens={}", if timens.is_empty() { own } else { timens }),
                _ => field.to_owned(),
            });
            fields.collect::<Vec<_>>().join(" ")
        };
        let own = std::process::id();
        assert_eq!(marked_process(&mark(own, "time:[1]")), MarkedProcess::Elsewhere);
        assert_eq!(marked_process(&mark(own, "")), MarkedProcess::Gone, "another process has its number");
        assert_eq!(
            marked_process(&mark(u32::MAX, "time:[1]")),
            MarkedProcess::Gone,
            "no process has its number"
        );
        // Of a version that did not say which clock it was.
        let old = mine.trim().split(' ').filter(|field| !field.starts_with("timens="));
        assert_eq!(marked_process(&old.collect::<Vec<_>>().join(" ")), MarkedProcess::Lives);
    }

    /// Symptom: a mark that another user had put into a directory that was kept by name had it removed by `crumb clean` of its owner.
    #[test]
    fn a_mark_of_another_user_than_the_directory_s_is_refused() {
        if !testkit::need::root("a file of another user") {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let fs = LocalFs::open(folder.path()).unwrap();
        write_run_mark(&fs).unwrap();
        std::os::unix::fs::chown(folder.path().join(RUN_MARK), Some(12_345), None).unwrap();
        let refused = read_run_mark(&fs).unwrap_err();
        assert_eq!(refused.status(), Some(Status::PERM));
        std::os::unix::fs::chown(folder.path(), Some(12_345), None).unwrap();
        assert!(read_run_mark(&fs).unwrap().is_some(), "both are the other's");
    }
}
