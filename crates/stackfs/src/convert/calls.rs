//! Every call by which a conversion changes the lower tree, so that a test can stop it at each of them.
//!
//! Always holds: a rename keeps the name and never replaces what is there; nothing but what stands here changes
//! anything. Not here: calls that only look.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use files::Layout;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Timestamps, Uid, XattrFlags};
use rustix::io::{Errno, Result};

use crate::managed::{remove_layout_mark, set_layout_mark};
use crate::tree::identity::{Caller, Identity};

/// One change.
#[derive(Debug)]
pub(crate) enum Call<'a> {
    /// Owned by the parent directory's owner from the start, with mode 0700 until it gets the parent's attributes.
    /// So root never owns it: a directory of root's in its place could come from anybody.
    MakeDirectory {
        at: BorrowedFd<'a>,
        name: &'a CStr,
    },
    /// An empty file, of the same owner.
    MakeFile {
        at: BorrowedFd<'a>,
        name: &'a CStr,
    },
    /// From one directory into another; `EEXIST` when the name is taken there.
    Rename {
        from: BorrowedFd<'a>,
        to: BorrowedFd<'a>,
        name: &'a CStr,
    },
    RemoveDirectory {
        at: BorrowedFd<'a>,
        name: &'a CStr,
    },
    RemoveFile {
        at: BorrowedFd<'a>,
        name: &'a CStr,
    },
    Owner {
        of: BorrowedFd<'a>,
        uid: u32,
        gid: u32,
    },
    Mode {
        of: BorrowedFd<'a>,
        mode: u32,
    },
    /// An extended attribute; none takes it away.
    Attribute {
        of: BorrowedFd<'a>,
        name: &'a str,
        value: Option<&'a [u8]>,
    },
    /// The layout's mark; none takes it away.
    Mark {
        of: BorrowedFd<'a>,
        layout: Option<Layout>,
    },
    Times {
        of: BorrowedFd<'a>,
        times: &'a Timestamps,
    },
    /// All of the file system that this lies on.
    Sync {
        of: BorrowedFd<'a>,
    },
}

/// Carries changes out: the kernel, or a test that has had enough.
pub(crate) trait Calls {
    fn call(&mut self, call: &Call<'_>) -> Result<()>;
}

/// The operating system.
#[derive(Debug, Default)]
pub(crate) struct Kernel;

/// The converter's own, until what is in it becomes visible again.
const OWN_DIRECTORY: Mode = Mode::RWXU;

impl Calls for Kernel {
    fn call(&mut self, call: &Call<'_>) -> Result<()> {
        match *call {
            Call::MakeDirectory { at, name } => {
                as_owner_of(at, OWN_DIRECTORY, || rustix::fs::mkdirat(at, name, OWN_DIRECTORY))
            }
            Call::MakeFile { at, name } => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let mode = Mode::RUSR | Mode::WUSR;
                as_owner_of(at, mode, || rustix::fs::openat(at, name, flags, mode).map(drop))
            }
            Call::Rename { from, to, name } => rename(from, to, name),
            Call::RemoveDirectory { at, name } => rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR),
            Call::RemoveFile { at, name } => rustix::fs::unlinkat(at, name, AtFlags::empty()),
            Call::Owner { of, uid, gid } => {
                rustix::fs::fchown(of, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
            }
            Call::Mode { of, mode } => rustix::fs::fchmod(of, Mode::from_raw_mode(mode)),
            Call::Attribute { of, name, value: Some(value) } => {
                rustix::fs::fsetxattr(of, name, value, XattrFlags::empty())
            }
            Call::Attribute { of, name, value: None } => match rustix::fs::fremovexattr(of, name) {
                Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
                done => done,
            },
            Call::Mark { of, layout: Some(layout) } => set_layout_mark(of, layout).map_err(errno),
            Call::Mark { of, layout: None } => remove_layout_mark(of).map_err(errno),
            Call::Times { of, times } => rustix::fs::futimens(of, times),
            Call::Sync { of } => rustix::fs::syncfs(of),
        }
    }
}

/// Makes something that belongs to the owner of the directory that it is made in, also when root makes it.
fn as_owner_of(at: BorrowedFd<'_>, mode: Mode, make: impl FnOnce() -> Result<()>) -> Result<()> {
    let stat = rustix::fs::fstat(at)?;
    Identity::of_this_process().create_as(Caller { uid: stat.st_uid, gid: stat.st_gid }, mode, make)
}

fn rename(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    match rustix::fs::renameat_with(from, name, to, name, RenameFlags::NOREPLACE) {
        // File systems that know no flags. Nobody else is at work here: looking first is as good.
        Err(Errno::INVAL | Errno::NOSYS) => match rustix::fs::statat(to, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => rustix::fs::renameat(from, name, to, name),
            Err(error) => Err(error),
        },
        done => done,
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
}
