//! mount(2), by which root mounts, the set-user-id program by which others do, and the end of a mount.
//!
//! A session does not unmount when it ends: it would have to by path, where something else may be mounted meanwhile.

use std::ffi::CString;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::device::device;

/// What is mounted.
#[derive(Clone, Copy, Debug)]
pub struct NewMount<'a> {
    /// As the table of mounts names it.
    pub source: &'a Path,
    /// The type is `fuse.` and this.
    pub subtype: &'a str,
    /// Other users may use it.
    pub allow_other: bool,
    /// The kernel checks permissions, by the modes and owners that the file system gives. Otherwise the file system does.
    pub default_permissions: bool,
    /// The kernel's own.
    pub flags: MountFlags,
}

impl NewMount<'_> {
    /// Mounts it at `place`, and gives the connection that is to be served.
    ///
    /// # Errors
    /// As mount(2), or with what fusermount3 says; `NotFound` where it is needed and not installed.
    pub fn at(&self, place: &Path) -> io::Result<OwnedFd> {
        match self.by_mount(place) {
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied
                    && !rustix::process::geteuid().is_root() =>
            {
                self.by_fusermount(place)
            }
            outcome => outcome,
        }
    }

    fn by_mount(&self, place: &Path) -> io::Result<OwnedFd> {
        let device = device()?;
        let mode = std::fs::metadata(place)?.mode();
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let mut data = format!(
            "fd={},rootmode={mode:o},user_id={uid},group_id={gid},subtype={}",
            device.as_raw_fd(),
            self.subtype
        );
        if self.default_permissions {
            data.push_str(",default_permissions");
        }
        if self.allow_other {
            data.push_str(",allow_other");
        }
        rustix::mount::mount(self.source, place, "fuse", self.flags, CString::new(data)?.as_c_str())?;
        Ok(device.into())
    }

    /// As libfuse does it: the program mounts, and sends the connection over a socket, which it has as its standard input.
    fn by_fusermount(&self, place: &Path) -> io::Result<OwnedFd> {
        let (ours, its) = UnixStream::pair()?;
        let mut command = Command::new(FUSERMOUNT);
        command.arg("-o").arg(self.for_fusermount()).arg("--").arg(place).env("_FUSE_COMMFD", "0");
        command.stdin(OwnedFd::from(its)).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn()?;
        // It has the other end of the socket too.
        drop(command);
        let received = received(&ours);
        drop(ours);
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        match received? {
            Some(connection) => Ok(connection),
            None if said.contains("user_allow_other") => {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, said))
            }
            None => Err(io::Error::other(said)),
        }
    }

    fn for_fusermount(&self) -> String {
        let has = |flag| self.flags.contains(flag);
        let mut options = format!("fsname={},subtype={}", escaped(self.source), self.subtype);
        let words = [
            (self.default_permissions, "default_permissions"),
            (true, if has(MountFlags::RDONLY) { "ro" } else { "rw" }),
            (!has(MountFlags::NODEV), "dev"),
            (!has(MountFlags::NOSUID), "suid"),
            (has(MountFlags::NOEXEC), "noexec"),
            (has(MountFlags::NOATIME), "noatime"),
            (has(MountFlags::SYNCHRONOUS), "sync"),
            (self.allow_other, "allow_other"),
        ];
        for (_, word) in words.iter().filter(|(wanted, _)| *wanted) {
            options.push(',');
            options.push_str(word);
        }
        options
    }
}

/// The program by which ordinary users mount and unmount.
const FUSERMOUNT: &str = "fusermount3";

/// Commas and backslashes end or escape an option in the lists that fusermount3 takes.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace('\\', "\\\\").replace(',', "\\,")
}

/// The descriptor that comes over the socket; `None` when it is closed without one.
fn received(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        let flags = RecvFlags::CMSG_CLOEXEC;
        match recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let mut descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.next().and_then(|mut descriptors| descriptors.next()))
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
    let mut command = Command::new(FUSERMOUNT);
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(place);
    let output = command.output().map_err(|error| DetachError::Refused(format!("{FUSERMOUNT}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(if stderr.contains("busy") { DetachError::Busy } else { DetachError::Refused(stderr) })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn options_for_fusermount_say_what_the_flags_say() {
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        let source = Path::new("/a,b");
        let mount =
            NewMount { source, subtype: "crumb", allow_other: false, default_permissions: true, flags };
        assert_eq!(mount.for_fusermount(), "fsname=/a\\,b,subtype=crumb,default_permissions,rw");
        let flags = MountFlags::RDONLY | MountFlags::NOATIME;
        let mount = NewMount { flags, allow_other: true, default_permissions: false, ..mount };
        assert!(mount.for_fusermount().ends_with("subtype=crumb,ro,dev,suid,noatime,allow_other"));
    }

    #[test]
    fn a_socket_that_is_closed_or_sends_bytes_alone_gives_no_connection() {
        let (ours, its) = UnixStream::pair().unwrap();
        drop(its);
        assert!(received(&ours).unwrap().is_none());
        let (ours, mut its) = UnixStream::pair().unwrap();
        its.write_all(&[0]).unwrap();
        assert!(received(&ours).unwrap().is_none());
    }
}
