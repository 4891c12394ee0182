//! One process at a time works on a spool.
//!
//! ```text
//! crumb-netnews-NAME/lock     locked by flock(2) where the storage has locks: it goes with the process
//!                             elsewhere (our NFS client, a packed store): there while a process works on the spool,
//!                             host=H boot=B pid=P begun=T of that process in it
//! ```
//!
//! Always holds: a lock file of a process of this host that is gone is taken over; one of another host never is, as
//! nobody here can say whether that process lives: the error names the file.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use files::{FileLock, FileSystem, FsError, Locking, Status};

use super::directory_of;
use crate::NetnewsError;
use crate::spool::whole::{place_of, read_whole, unlink_if_there, write_all};

/// Its name in the spool's directory on the target.
pub(crate) const LOCK_FILE: &str = "lock";
const OWNER_BYTES_MAX: usize = 4096;
/// How often a lock file of a process that is gone is taken over before it is left to somebody else.
const TRIES: u32 = 3;

/// The hold on a spool.
pub(crate) enum SpoolLock {
    /// The kernel's.
    Kernel(#[expect(dead_code, reason = "held, never looked at")] FileLock),
    /// A file that is there.
    File { fs: Arc<dyn FileSystem>, path: PathBuf },
}

impl SpoolLock {
    /// Locks the spool `name`, whose directory is there.
    ///
    /// # Errors
    /// [`NetnewsError::SpoolBusy`] when another process works on it.
    pub(crate) fn take(fs: &Arc<dyn FileSystem>, name: &str) -> Result<Self, NetnewsError> {
        let path = PathBuf::from(LOCK_FILE);
        // Held, and not reached through a link that took the directory's place.
        let base = fs.below_itself(&directory_of(name))?;
        let busy = |who: String| NetnewsError::SpoolBusy { target: fs.place(), name: name.to_owned(), who };
        match base.lock(&path)? {
            Locking::Held(lock) => Ok(Self::Kernel(lock)),
            Locking::Busy => Err(busy(String::new())),
            Locking::Unsupported => match by_file(&*base, &path, &this_process())? {
                None => Ok(Self::File { fs: base, path }),
                Some(owner) => {
                    let file = place_of(&**fs, &directory_of(name).join(&path));
                    let who = format!(
                        " ({}); when that process is gone, remove {}",
                        if owner.is_empty() { "which has not written its name yet" } else { &owner },
                        file.display()
                    );
                    Err(busy(who))
                }
            },
        }
    }

    /// The same only to look, for a spool that is not to be changed: no lock file is made.
    ///
    /// # Errors
    /// [`NetnewsError::SpoolBusy`] when another process works on it.
    pub(crate) fn look(fs: &Arc<dyn FileSystem>, name: &str) -> Result<Option<Self>, NetnewsError> {
        match fs.stat(&directory_of(name).join(LOCK_FILE)) {
            // Left by a version without locks, or on a copy.
            Err(error) if error.status() == Some(Status::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(_) => Self::take(fs, name).map(Some),
        }
    }
}

impl Drop for SpoolLock {
    fn drop(&mut self) {
        if let Self::File { fs, path } = self {
            // Gone with the spool, when that was removed.
            let _ = fs.unlink(path);
        }
    }
}

/// Makes the lock file; when another process's is there, what that process is.
fn by_file(fs: &dyn FileSystem, path: &Path, me: &str) -> Result<Option<String>, FsError> {
    let mut there = String::new();
    for _ in 0..TRIES {
        match fs.create(path) {
            Ok(mut file) => {
                write_all(&mut *file, me.as_bytes())?;
                file.close()?;
                return Ok(None);
            }
            Err(error) if error.status() == Some(Status::EXIST) => {}
            Err(error) => return Err(error),
        }
        there = match owner(fs, path)? {
            None => continue,
            Some(owner) if is_gone(&owner) => owner,
            Some(owner) => return Ok(Some(owner)),
        };
        // Another process may do the same at this moment: what was taken away is looked at once more.
        let aside = path.with_extension(format!("gone-{}", std::process::id()));
        match fs.rename(path, &aside) {
            Err(error) if error.status() == Some(Status::NOENT) => continue,
            other => other?,
        }
        if owner(fs, &aside)?.is_some_and(|owner| owner != there) {
            fs.rename(&aside, path)?;
        } else {
            unlink_if_there(fs, &aside)?;
        }
    }
    Ok(Some(there))
}

fn owner(fs: &dyn FileSystem, path: &Path) -> Result<Option<String>, FsError> {
    let mut bytes = Vec::new();
    match read_whole(fs, path, &mut bytes, OWNER_BYTES_MAX) {
        Err(error) if error.status() == Some(Status::NOENT) => Ok(None),
        other => other.map(|_| Some(String::from_utf8_lossy(&bytes).trim().to_owned())),
    }
}

/// `host=H boot=B pid=P begun=T`: the number of a process alone may come again.
fn this_process() -> String {
    let (host, boot) = this_machine();
    let pid = std::process::id();
    format!("host={host} boot={boot} pid={pid} begun={}", begun(pid).unwrap_or_default())
}

fn this_machine() -> (String, String) {
    let of = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    (of("/proc/sys/kernel/hostname"), of("/proc/sys/kernel/random/boot_id"))
}

/// When a process began, in ticks since the boot.
fn begun(pid: u32) -> Option<u64> {
    Some(measure::proc::ProcessStat::of(pid)?.began_ticks)
}

/// Whether that process was of this host and is no more.
fn is_gone(owner: &str) -> bool {
    let field = |name: &str| {
        owner.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
    };
    let (host, boot) = this_machine();
    let (Ok(pid), Ok(since)) = (field("pid").parse::<u32>(), field("begun").parse::<u64>()) else {
        return false;
    };
    field("host") == host && (field("boot") != boot || begun(pid) != Some(since))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::scratch;

    #[test]
    fn a_lock_file_is_taken_over_from_a_process_that_is_gone_and_from_no_other() {
        let (folder, fs) = scratch::folder();
        let path = Path::new("lock");
        let take = |me: &str| by_file(&*fs, path, me).unwrap();
        let me = this_process();
        assert!(!is_gone(&me), "{me}");
        assert_eq!(take(&me), None);
        // This process lives.
        assert_eq!(take("another"), Some(me.clone()));
        let (host, boot) = this_machine();
        for gone in [
            format!("host={host} boot=before pid=1 begun=1"),
            format!("host={host} boot={boot} pid={} begun=1", std::process::id()),
            format!("host={host} boot={boot} pid=4294967295 begun=5"),
        ] {
            std::fs::write(folder.path().join("lock"), &gone).unwrap();
            assert_eq!(take(&me), None, "{gone}");
            assert_eq!(owner(&*fs, path).unwrap(), Some(me.clone()));
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        }
        for other in ["host=elsewhere boot=b pid=1 begun=1", ""] {
            std::fs::write(folder.path().join("lock"), other).unwrap();
            assert_eq!(take(&me), Some(other.to_owned()));
        }
    }
}
