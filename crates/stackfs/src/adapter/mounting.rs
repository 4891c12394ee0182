//! mount(2), by which root mounts.
//!
//! fuser could do it, and would also unmount when the session ends: by path, and taking a connection that is over for one
//! that still stands, so that whatever had been mounted at the place meanwhile would go.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::mount::MountFlags;

use crate::mount::options::StackOptions;

pub(super) const DEVICE: &str = "/dev/fuse";

/// Mounts, and gives the connection that is to be served.
pub(super) fn mount(options: &StackOptions, source: &Path) -> std::io::Result<OwnedFd> {
    let device = open()?;
    let mode = std::fs::metadata(&options.mountpoint)?.mode();
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!(
        "fd={},rootmode={mode:o},user_id={uid},group_id={gid},default_permissions,subtype=crumb",
        device.as_raw_fd()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let flags = flags(options);
    let data = std::ffi::CString::new(data)?;
    rustix::mount::mount(source, &options.mountpoint, "fuse", flags, data.as_c_str())?;
    Ok(device.into())
}

/// Gives the mount at this place the kernel's own flags as the options have them.
pub(crate) fn remount(options: &StackOptions, place: &Path) -> std::io::Result<()> {
    // Without a word about times of access the kernel leaves them as they were.
    let atime = options.named.iter().any(|name| name == "atime") && !options.flags.noatime;
    let times = if atime { MountFlags::RELATIME } else { MountFlags::empty() };
    Ok(rustix::mount::mount_remount(place, flags(options) | times, c"")?)
}

fn flags(options: &StackOptions) -> MountFlags {
    let chosen = [
        (!options.flags.dev, MountFlags::NODEV),
        (!options.flags.suid, MountFlags::NOSUID),
        (options.flags.noexec, MountFlags::NOEXEC),
        (options.flags.noatime, MountFlags::NOATIME),
        (options.flags.sync, MountFlags::SYNCHRONOUS),
        (options.read_only, MountFlags::RDONLY),
    ];
    chosen.iter().filter(|(wanted, _)| *wanted).map(|(_, flag)| *flag).collect()
}

/// The device, opened for a new connection.
pub(super) fn open() -> std::io::Result<File> {
    File::options().read(true).write(true).open(DEVICE)
}
