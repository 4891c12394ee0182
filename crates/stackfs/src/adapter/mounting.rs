//! Mounting, with the options of a mount.

use std::os::fd::OwnedFd;
use std::path::Path;

use fuse::NewMount;
use rustix::mount::MountFlags;

use crate::mount::mounts::SUBTYPE;
use crate::mount::options::StackOptions;

/// Mounts, and gives the connection that is to be served.
pub(super) fn mount(options: &StackOptions, source: &Path) -> std::io::Result<OwnedFd> {
    let new = NewMount {
        source,
        subtype: SUBTYPE,
        allow_other: options.allow_other,
        default_permissions: options.kernel_checks(),
        flags: flags(options),
    };
    new.at(&options.mountpoint)
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
