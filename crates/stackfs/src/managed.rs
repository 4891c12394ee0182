//! What "managed" means on the lower tree: which directories have the hidden level, and in which layout.
//!
//! ```text
//! spool/control/cancel        mode 04755: managed      user.crumb.layout = "56/34" (absent: 345)
//! spool/control/cancel/aaa    hidden level: no bit, no mark
//! spool/control/cancel/345
//! ```
//!
//! A directory is managed when its set-user-id bit is set, and only then. Its layout is written on that same
//! directory, as the extended attribute `user.crumb.layout` with the layout's name as its text; a managed directory
//! without the attribute is in the paper's layout, `345`, so that plain `chmod u+s` on an empty directory and trees
//! on file systems without extended attributes work. There is no layout of a whole tree, nothing about it is passed
//! on by `crumb mount`, and so `mount`, `manage`, `unmanage` and `check` cannot disagree. `crumb mount --layout L`
//! names the layout for directories that are managed, unmarked and empty: such a directory is marked with L before
//! the first entry is made in it.
//!
//! Always holds: a directory's layout is known from the directory alone; the mark never changes while anything lies
//! in the hidden level; a mark that names no layout is an error, never a guess; the flat layout is never a mark.
//! All attributes beginning with `user.crumb.` are ours: the mount hides them and refuses to set them.
//! Not here: where a layout puts a name (`files::Layout`), conversion, running mounts (see `mounts`).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use files::Layout;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// Extended attributes with this prefix belong to Crumb and are not seen through a mount.
pub const OWN_ATTRIBUTES: &str = "user.crumb.";
/// Holds the layout's name of a managed directory that is not in the default one.
pub const LAYOUT_MARK: &str = "user.crumb.layout";
/// The layout of a managed directory without a mark.
pub const LAYOUT_UNMARKED: Layout = Layout::D345;

const TYPE_MASK: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
/// The bit that says "managed" on a directory, S_ISUID.
pub const MANAGED_BIT: u32 = 0o4_000;
/// No layout's name is longer; a longer mark is somebody else's.
const MARK_BYTES_MAX: usize = 64;

/// Whether this `st_mode` (type and permissions) is that of a managed directory.
pub fn is_managed(mode: u32) -> bool {
    mode & TYPE_MASK == DIRECTORY && mode & MANAGED_BIT != 0
}

/// The mark on this directory (any descriptor of it, `O_PATH` as well); `None` without one, or where the file
/// system has no extended attributes. `InvalidData` when the mark names no layout this version knows.
pub fn layout_mark(directory: impl AsFd) -> io::Result<Option<Layout>> {
    let mut text = [0u8; MARK_BYTES_MAX];
    match rustix::fs::getxattr(by_descriptor(&directory), LAYOUT_MARK, &mut text) {
        Ok(len) => {
            let text = String::from_utf8_lossy(&text[..len]);
            let layout: Layout =
                text.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if layout == Layout::Flat {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a managed directory cannot be flat"));
            }
            Ok(Some(layout))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(Errno::RANGE) => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "the mark is longer than any layout"))
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Whether a directory can be marked: its file system has extended attributes.
pub(crate) fn takes_mark(directory: impl AsFd) -> bool {
    rustix::fs::getxattr(by_descriptor(&directory), LAYOUT_MARK, &mut [0u8; MARK_BYTES_MAX])
        != Err(Errno::OPNOTSUPP)
}

/// The layout of this managed directory: its mark, else [`LAYOUT_UNMARKED`].
pub fn layout_of(directory: impl AsFd) -> io::Result<Layout> {
    Ok(layout_mark(directory)?.unwrap_or(LAYOUT_UNMARKED))
}

/// Marks this directory, to be done before the first entry lies in its hidden level. [`LAYOUT_UNMARKED`] needs no
/// mark: where the file system has no extended attributes that one works, and others fail with `Unsupported`.
pub fn set_layout_mark(directory: impl AsFd, layout: Layout) -> io::Result<()> {
    if layout == LAYOUT_UNMARKED {
        return remove_layout_mark(directory);
    }
    let path = by_descriptor(&directory);
    Ok(rustix::fs::setxattr(path, LAYOUT_MARK, layout.name().as_bytes(), XattrFlags::empty())?)
}

/// Takes the mark away; fine when there is none.
pub fn remove_layout_mark(directory: impl AsFd) -> io::Result<()> {
    match rustix::fs::removexattr(by_descriptor(&directory), LAYOUT_MARK) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// A path to what the descriptor is open on: the attribute calls on descriptors refuse `O_PATH` ones.
fn by_descriptor(directory: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd())
}

/// Opens a directory for the functions above.
pub fn open_directory(path: impl AsRef<std::path::Path>) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(File::from(rustix::fs::open(path.as_ref(), flags, Mode::empty())?))
}

/// The same by an absolute path that had no symbolic links when it was made: one that somebody has put on the way since
/// is not followed (`ELOOP`, `ENOTDIR`).
pub(crate) fn open_without_links(path: &std::path::Path) -> io::Result<File> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(CWD, path, flags | OFlags::RDONLY, Mode::empty(), resolve) {
        // Kernels before 5.6, and containers that allow no call that is newer than they are.
        Err(Errno::NOSYS | Errno::PERM) => {}
        other => return Ok(File::from(other?)),
    }
    let mut opened = rustix::fs::open("/", flags | OFlags::PATH, Mode::empty())?;
    for part in path.components().skip(1) {
        opened = rustix::fs::openat(&opened, part.as_os_str(), flags | OFlags::PATH, Mode::empty())?;
    }
    Ok(File::from(rustix::fs::openat(&opened, c".", flags | OFlags::RDONLY, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_with_the_set_user_id_bit_are_managed() {
        assert!(is_managed(0o044_755));
        assert!(!is_managed(0o040_755));
        assert!(!is_managed(0o104_755), "a set-user-id program is no managed directory");
        assert!(!is_managed(0o042_755), "set-group-id says nothing");
    }

    #[test]
    fn a_directory_without_a_mark_is_in_the_papers_layout_and_a_wrong_mark_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let directory = open_directory(place.path()).unwrap();
        assert_eq!(layout_of(&directory).unwrap(), Layout::D345);
        if let Err(error) = set_layout_mark(&directory, Layout::D56D34) {
            assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
            return;
        }
        assert_eq!(layout_mark(&directory).unwrap(), Some(Layout::D56D34));
        rustix::fs::setxattr(place.path(), LAYOUT_MARK, b"789", XattrFlags::empty()).unwrap();
        assert_eq!(layout_of(&directory).unwrap_err().kind(), io::ErrorKind::InvalidData);
        set_layout_mark(&directory, LAYOUT_UNMARKED).unwrap();
        assert_eq!(layout_mark(&directory).unwrap(), None);
    }
}
