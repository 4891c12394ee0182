//! What can go wrong around a mount.

use std::io;
use std::path::PathBuf;

/// What went wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// An `-o` option is none of ours.
    #[error(
        "`{option}` is not a mount option; `crumb mount --help` and the guide's page on mounts list them"
    )]
    Option {
        /// As given.
        option: String,
    },
    /// An `-o` option has a value that it cannot have, or none, or one where it takes none.
    #[error("`{option}`: the mount option {name} {takes}")]
    OptionValue {
        /// As given.
        option: String,
        /// Its name.
        name: String,
        /// What it takes.
        takes: &'static str,
    },
    /// One of the two places cannot be used.
    #[error("{}: cannot be used", path.display())]
    Place {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not a directory.
    #[error("{}: not a directory; a mount shows a directory at a directory", path.display())]
    NotADirectory {
        /// Which.
        path: PathBuf,
    },
    /// The mount point has entries.
    #[error("{}: not empty; its entries would be hidden (--nonempty if they shall be)", path.display())]
    NotEmpty {
        /// Which.
        path: PathBuf,
    },
    /// The mount point lies within the tree to be shown.
    #[error("{}: lies within {}, and would show itself; mount elsewhere, or over {} itself",
        mountpoint.display(), lower.display(), lower.display())]
    Inside {
        /// The tree.
        lower: PathBuf,
        /// The place in it.
        mountpoint: PathBuf,
    },
    /// A conversion of the tree's root was cut off.
    #[error("{0}: half converted; `crumb {verb} {0}` finishes it, then mount again", lower.display())]
    HalfConverted {
        /// The tree.
        lower: PathBuf,
        /// `manage` or `unmanage`.
        verb: &'static str,
    },
    /// There is a mount of ours at this place.
    #[error("{}: already mounted there; `crumb unmount` it first", mountpoint.display())]
    Twice {
        /// The place.
        mountpoint: PathBuf,
    },
    /// Another mount shows the tree, or a part of it, and one of the two is to be alone with it.
    #[error(
        "{}: is shown at {} already, and nothing else may change a tree that is mounted `exclusive`; unmount that, or \
         mount both without it", lower.display(), mountpoint.display()
    )]
    Shared {
        /// The tree.
        lower: PathBuf,
        /// The other mount.
        mountpoint: PathBuf,
    },
    /// A mount that is not to be seen serves the tree, or a part of it, and one of the two is to be alone with it.
    #[error(
        "{}: is still served by a `crumb mount` that was detached while in use, or that is in another mount namespace, \
         and nothing else may change a tree that is mounted `exclusive`; end the programs that use it, or that \
         `crumb mount`, then mount again", lower.display()
    )]
    StillServed {
        /// The tree.
        lower: PathBuf,
    },
    /// No remount changes this.
    #[error(
        "{}: `{option}` cannot be changed while it is mounted; `crumb unmount` and mount again, or leave it out",
        mountpoint.display()
    )]
    Fixed {
        /// Its name.
        option: String,
        /// The place.
        mountpoint: PathBuf,
    },
    /// Another tree is shown there.
    #[error("{}: shows {}, not {}; name that one to remount it", mountpoint.display(), shown.display(), lower.display())]
    OtherLower {
        /// As given.
        lower: PathBuf,
        /// The place.
        mountpoint: PathBuf,
        /// What it shows.
        shown: PathBuf,
    },
    /// No FUSE here.
    #[error("cannot open /dev/fuse; {}", device_hint(source))]
    NoDevice {
        /// Why.
        source: io::Error,
    },
    /// The processors cannot be kept awake.
    #[error("cannot keep processors awake, which needs root and /dev/cpu_dma_latency; mount without `awake`")]
    Asleep {
        /// Why.
        source: io::Error,
    },
    /// Files would be lost to programs that have them open.
    #[error(
        "`no-open` needs root, or `ro`: the daemon opens a file for each use, and as an ordinary user it could not \
         write to one that was made without permission to write; mount without `no-open`"
    )]
    NoOpen,
    /// The kernel or fusermount3 refused.
    #[error("{}: cannot mount: {reason}", mountpoint.display())]
    Refused {
        /// The place.
        mountpoint: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// No mount of ours at this place.
    #[error("{}: no mount of Crumb's; `findmnt -t fuse.crumb` lists them", mountpoint.display())]
    NotMounted {
        /// The place.
        mountpoint: PathBuf,
    },
    /// Programs use files of the mount.
    #[error("{}: in use; close its files, or detach it with --lazy", mountpoint.display())]
    Busy {
        /// The place.
        mountpoint: PathBuf,
    },
    /// Unmounting failed otherwise.
    #[error("{}: cannot unmount: {reason}", mountpoint.display())]
    Unmount {
        /// The place.
        mountpoint: PathBuf,
        /// Why.
        reason: String,
    },
}

/// What to do about a device that cannot be opened.
fn device_hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied {
        "mount as root, or have root run `chmod 666 /dev/fuse`, as udev does; in a container, allow the device"
    } else {
        "load the kernel's fuse module (modprobe fuse) or let this container have the device"
    }
}
