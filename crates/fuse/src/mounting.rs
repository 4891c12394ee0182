//! mount(2), by which root mounts, and the end of a mount.
//!
//! fuser could do it, and would also unmount when the session ends: by path, and taking a connection that is over for one
//! that still stands, so that whatever had been mounted at the place meanwhile would go.

use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

/// The device of all FUSE connections.
pub const DEVICE: &str = "/dev/fuse";

/// The device, opened for a new connection.
pub fn device() -> io::Result<File> {
    File::options().read(true).write(true).open(DEVICE)
}

/// What root mounts.
#[derive(Clone, Copy, Debug)]
pub struct NewMount<'a> {
    /// As the table of mounts names it.
    pub source: &'a Path,
    /// The type is `fuse.` and this.
    pub subtype: &'a str,
    /// Other users may use it.
    pub allow_other: bool,
    /// The kernel's own.
    pub flags: MountFlags,
}

impl NewMount<'_> {
    /// Mounts it at `place`, and gives the connection that is to be served.
    pub fn at(&self, place: &Path) -> io::Result<OwnedFd> {
        let device = device()?;
        let mode = std::fs::metadata(place)?.mode();
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let mut data = format!(
            "fd={},rootmode={mode:o},user_id={uid},group_id={gid},default_permissions,subtype={}",
            device.as_raw_fd(),
            self.subtype
        );
        if self.allow_other {
            data.push_str(",allow_other");
        }
        rustix::mount::mount(self.source, place, "fuse", self.flags, CString::new(data)?.as_c_str())?;
        Ok(device.into())
    }
}

/// Why a mount stays.
#[derive(Debug)]
pub enum DetachError {
    /// Programs use it.
    Busy,
    /// As the kernel or fusermount3 says it.
    Refused(String),
}

impl fmt::Display for DetachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("in use"),
            Self::Refused(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for DetachError {}

/// Ends the mount at this place; with `lazy` it is taken out of sight at once and ends with its last user.
pub fn detach(place: &Path, lazy: bool) -> Result<(), DetachError> {
    let flags = UnmountFlags::NOFOLLOW | if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(place, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(DetachError::Busy),
        Err(Errno::PERM) => by_fusermount(place, lazy),
        Err(errno) => Err(DetachError::Refused(errno.to_string())),
    }
}

/// An ordinary user's mounts are made and ended by a set-user-id program.
fn by_fusermount(place: &Path, lazy: bool) -> Result<(), DetachError> {
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(place);
    let output = command.output().map_err(|error| DetachError::Refused(format!("fusermount3: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(if stderr.contains("busy") { DetachError::Busy } else { DetachError::Refused(stderr) })
}
