//! From a path to what it names.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use files::Status;

use super::{Body, Inode, ROOT, Table};

/// Longest name, as on Linux.
const NAME_BYTES_MAX: usize = 255;
/// Symbolic links followed on one path, as on Linux.
const FOLLOWED_MAX: usize = 40;

/// A place in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub directory: Inode,
    pub name: Box<[u8]>,
}

/// Where a path leads.
pub(crate) enum Walked {
    /// A directory without a name: the root of the view, or of the tree.
    Root(Inode),
    Found(Name, Inode),
    /// Its directory is there.
    Missing(Name),
}

impl Table {
    /// Walks a path from a directory. `follow`: also through a symbolic link at its end.
    pub(crate) fn walk(&self, from: Inode, path: &Path, follow: bool) -> Result<Walked, Status> {
        let bytes = path.as_os_str().as_bytes();
        let parts = || bytes.split(|byte| *byte == b'/');
        if bytes.first() == Some(&b'/') || bytes.contains(&0) || parts().any(|part| part == b"..") {
            return Err(Status::INVAL);
        }
        if self.directory(from).is_none() {
            return Err(Status::NOENT);
        }
        let (mut at, mut followed) = (from, 0);
        // What is still to be walked, the next part last.
        let mut rest: Vec<&[u8]> = parts().rev().filter(|part| means_something(part)).collect();
        let mut entry = None;
        while let Some(part) = rest.pop() {
            entry = None;
            let directory = self.directory(at).ok_or(Status::NOENT)?;
            if part == b".." {
                at = directory.parent;
                continue;
            }
            if part.len() > NAME_BYTES_MAX {
                return Err(Status::NAMETOOLONG);
            }
            let name = || Name { directory: at, name: part.into() };
            let Some(&inode) = directory.entries.get(part) else {
                return if rest.is_empty() { Ok(Walked::Missing(name())) } else { Err(Status::NOENT) };
            };
            match &self.node(inode).ok_or(Status::IO)?.body {
                Body::Directory(_) => {
                    entry = Some((name(), inode));
                    at = inode;
                }
                Body::Symlink(text) if follow || !rest.is_empty() => {
                    followed += 1;
                    if followed > FOLLOWED_MAX {
                        return Err(Status::IO);
                    }
                    if text.first() == Some(&b'/') {
                        // It leads out of the tree.
                        return Err(Status::NOENT);
                    }
                    rest.extend(text.split(|byte| *byte == b'/').rev().filter(|part| means_something(part)));
                }
                _ if rest.is_empty() => return Ok(Walked::Found(name(), inode)),
                _ => return Err(Status::NOTDIR),
            }
        }
        Ok(match entry {
            Some((name, inode)) => Walked::Found(name, inode),
            // Back at a directory by `..` of a link: by its own name.
            None if at != from && at != ROOT => {
                let directory = self.directory(at).ok_or(Status::NOENT)?;
                Walked::Found(Name { directory: directory.parent, name: directory.name.clone() }, at)
            }
            None => Walked::Root(at),
        })
    }

    /// The directory at a path.
    pub(crate) fn walk_to_directory(&self, from: Inode, path: &Path) -> Result<Inode, Status> {
        match self.walk(from, path, true)? {
            Walked::Root(inode) => Ok(inode),
            Walked::Missing(_) => Err(Status::NOENT),
            Walked::Found(_, inode) if self.directory(inode).is_some() => Ok(inode),
            Walked::Found(..) => Err(Status::NOTDIR),
        }
    }

    /// Whether `inode` is `above` or below it.
    pub(crate) fn is_below(&self, mut inode: Inode, above: Inode) -> bool {
        loop {
            if inode == above {
                return true;
            }
            match self.directory(inode) {
                Some(directory) if inode != ROOT => inode = directory.parent,
                _ => return false,
            }
        }
    }

    /// Whether `inode` is reached from the root: a damaged journal may leave directories that are not.
    pub(crate) fn is_reached(&self, inode: Inode) -> bool {
        let mut at = inode;
        for _ in 0..self.len() {
            match self.directory(at) {
                Some(_) if at == ROOT => return true,
                Some(directory) => at = directory.parent,
                None => return false,
            }
        }
        false
    }

    /// A path of a directory, for people.
    pub(crate) fn path_of(&self, mut inode: Inode) -> PathBuf {
        let mut parts = Vec::new();
        while inode != ROOT
            && let Some(directory) = self.directory(inode)
            && parts.len() < self.len()
        {
            parts.push(OsString::from_vec(directory.name.to_vec()));
            inode = directory.parent;
        }
        parts.iter().rev().collect()
    }
}

fn means_something(part: &[u8]) -> bool {
    !part.is_empty() && part != b"."
}
