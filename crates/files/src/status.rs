//! Why an operation failed, in the words of NFSv3 (RFC 1813, section 2.6), for every kind of target.

/// An NFSv3 status other than `NFS3_OK`. A code the RFC does not know is kept and shown by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Status(pub u32);

macro_rules! statuses {
    ($($konst:ident = $code:literal, $name:literal;)*) => {
        #[allow(missing_docs)] // The names are the RFC's.
        impl Status {
            $(pub const $konst: Status = Status($code);)*

            /// The RFC's name, such as `NFS3ERR_STALE`.
            pub fn name(self) -> std::borrow::Cow<'static, str> {
                match self.0 {
                    $($code => $name.into(),)*
                    other => format!("NFS3ERR_{other}").into(),
                }
            }

            /// The status of this name, of those that the RFC knows.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$konst),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    PERM = 1, "NFS3ERR_PERM";
    NOENT = 2, "NFS3ERR_NOENT";
    IO = 5, "NFS3ERR_IO";
    NXIO = 6, "NFS3ERR_NXIO";
    ACCES = 13, "NFS3ERR_ACCES";
    EXIST = 17, "NFS3ERR_EXIST";
    XDEV = 18, "NFS3ERR_XDEV";
    NODEV = 19, "NFS3ERR_NODEV";
    NOTDIR = 20, "NFS3ERR_NOTDIR";
    ISDIR = 21, "NFS3ERR_ISDIR";
    INVAL = 22, "NFS3ERR_INVAL";
    FBIG = 27, "NFS3ERR_FBIG";
    NOSPC = 28, "NFS3ERR_NOSPC";
    ROFS = 30, "NFS3ERR_ROFS";
    MLINK = 31, "NFS3ERR_MLINK";
    NAMETOOLONG = 63, "NFS3ERR_NAMETOOLONG";
    NOTEMPTY = 66, "NFS3ERR_NOTEMPTY";
    DQUOT = 69, "NFS3ERR_DQUOT";
    STALE = 70, "NFS3ERR_STALE";
    REMOTE = 71, "NFS3ERR_REMOTE";
    BADHANDLE = 10001, "NFS3ERR_BADHANDLE";
    NOT_SYNC = 10002, "NFS3ERR_NOT_SYNC";
    BAD_COOKIE = 10003, "NFS3ERR_BAD_COOKIE";
    NOTSUPP = 10004, "NFS3ERR_NOTSUPP";
    TOOSMALL = 10005, "NFS3ERR_TOOSMALL";
    SERVERFAULT = 10006, "NFS3ERR_SERVERFAULT";
    BADTYPE = 10007, "NFS3ERR_BADTYPE";
    JUKEBOX = 10008, "NFS3ERR_JUKEBOX";
}

impl Status {
    /// What to do about it, for a user who meets it; empty when nothing general can be said.
    pub fn advice(self) -> &'static str {
        match self {
            Self::PERM | Self::ACCES => {
                "the server denies it to this user: run as another user, or export with no_root_squash"
            }
            Self::ROFS => {
                "the storage is read-only: make it writable, or measure a read-only workload on a file set made before, \
                 by --keep there and --reuse here"
            }
            Self::NOSPC => "the file system is full: free space there, or ask for a smaller file set",
            Self::DQUOT => "the quota is used up: raise it, or ask for a smaller file set",
            Self::STALE => {
                "the server no longer knows the handle: it was restarted, or the file set removed meanwhile"
            }
            Self::JUKEBOX => "the server asks to retry later: it is out of some resource, such as open files",
            _ => "",
        }
    }
}

impl Status {
    /// The same of a local file system, for a user who has no server: its own name, and what to do. None where it has no
    /// other name, or no server of ours makes it of one.
    pub fn local_words(self) -> Option<(&'static str, &'static str)> {
        const DENIED: &str = "run as another user, or change the owner or mode of the directory";
        Some(match self {
            Self::PERM => ("operation not permitted (EPERM)", DENIED),
            Self::ACCES => ("permission denied (EACCES)", DENIED),
            Self::NOENT => ("no such file or directory (ENOENT)", ""),
            Self::IO => ("input/output error (EIO)", "see the kernel's log: `dmesg`"),
            Self::EXIST => ("it exists (EEXIST)", ""),
            Self::NOTDIR => ("not a directory (ENOTDIR)", ""),
            Self::INVAL => ("invalid argument (EINVAL)", ""),
            Self::FBIG => {
                ("file too large (EFBIG)", "the file system takes no such file: ask for smaller ones")
            }
            Self::NOSPC => ("no space left (ENOSPC)", Self::NOSPC.advice()),
            Self::ROFS => ("read-only file system (EROFS)", Self::ROFS.advice()),
            Self::NOTEMPTY => ("directory not empty (ENOTEMPTY)", ""),
            Self::DQUOT => ("quota exceeded (EDQUOT)", Self::DQUOT.advice()),
            Self::STALE => ("it is gone (ESTALE)", "the file set was removed or replaced meanwhile"),
            Self::NOTSUPP => ("not supported (EOPNOTSUPP)", "the file system has no such operation"),
            Self::JUKEBOX => (
                "out of a resource (EMFILE, ENFILE or ENOMEM)",
                "this process has too many open files or too little memory: raise `ulimit -n`, or ask for less at a time",
            ),
            _ => return None,
        })
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl std::error::Error for Status {}

impl From<rustix::io::Errno> for Status {
    /// The mapping that NFS servers use; what has no counterpart becomes `NFS3ERR_IO`.
    fn from(errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        match errno {
            Errno::PERM => Self::PERM,
            Errno::NOENT => Self::NOENT,
            Errno::NXIO => Self::NXIO,
            Errno::ACCESS => Self::ACCES,
            Errno::EXIST => Self::EXIST,
            Errno::XDEV => Self::XDEV,
            Errno::NODEV => Self::NODEV,
            Errno::NOTDIR => Self::NOTDIR,
            Errno::ISDIR => Self::ISDIR,
            Errno::INVAL => Self::INVAL,
            Errno::FBIG => Self::FBIG,
            Errno::NOSPC => Self::NOSPC,
            Errno::ROFS => Self::ROFS,
            Errno::MLINK => Self::MLINK,
            Errno::NAMETOOLONG => Self::NAMETOOLONG,
            Errno::NOTEMPTY => Self::NOTEMPTY,
            Errno::DQUOT => Self::DQUOT,
            Errno::STALE => Self::STALE,
            Errno::OPNOTSUPP | Errno::NOSYS => Self::NOTSUPP,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => Self::JUKEBOX,
            _ => Self::IO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_the_rfc_does_not_know_keeps_its_number() {
        assert_eq!(Status::STALE.name(), "NFS3ERR_STALE");
        assert_eq!(Status(12345).name(), "NFS3ERR_12345");
    }
}
