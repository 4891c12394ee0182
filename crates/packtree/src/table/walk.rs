//! From a path to what it names.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use files::Status;

use super::{Body, Inode, Kind, ROOT, Table};
use crate::error::Refusal;

/// Longest name, as on Linux.
const NAME_BYTES_MAX: usize = 255;
/// Symbolic links followed on one path, as on Linux.
const FOLLOWED_MAX: usize = 40;

/// Directories in one another, far beyond what paths reach: more is a circle, which damage may make.
const DEPTH_MAX: usize = 100_000;

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
    pub(crate) fn walk(&self, from: Inode, path: &Path, follow: bool) -> Result<Walked, Refusal> {
        let bytes = path.as_os_str().as_bytes();
        let parts = || bytes.split(|byte| *byte == b'/');
        if bytes.first() == Some(&b'/') || bytes.contains(&0) || parts().any(|part| part == b"..") {
            return Err(Status::INVAL.into());
        }
        if self.directory(from)?.is_none() {
            return Err(Status::NOENT.into());
        }
        let (mut at, mut followed) = (from, 0);
        // What is still to be walked, the next part last.
        let mut rest: Vec<Cow<'_, [u8]>> = split(bytes).map(Cow::Borrowed).collect();
        let mut entry = None;
        while let Some(part) = rest.pop() {
            entry = None;
            if *part == *b".." {
                at = self.parent(at)?;
                continue;
            }
            if part.len() > NAME_BYTES_MAX {
                return Err(Status::NAMETOOLONG.into());
            }
            let name = || Name { directory: at, name: (*part).into() };
            let Some(named) = self.name(at, &part)? else {
                return if rest.is_empty() { Ok(Walked::Missing(name())) } else { Err(Status::NOENT.into()) };
            };
            match named.kind {
                Kind::Directory => {
                    entry = Some((name(), named.inode));
                    at = named.inode;
                }
                Kind::Symlink if follow || !rest.is_empty() => {
                    followed += 1;
                    if followed > FOLLOWED_MAX {
                        return Err(Status::IO.into());
                    }
                    let node = self.node(named.inode)?.ok_or(Status::IO)?;
                    let Body::Symlink(text) = &node.body else { return Err(Status::IO.into()) };
                    if text.first() == Some(&b'/') {
                        // It leads out of the tree.
                        return Err(Status::NOENT.into());
                    }
                    rest.extend(split(text).map(|part| Cow::Owned(part.to_vec())));
                }
                _ if rest.is_empty() => return Ok(Walked::Found(name(), named.inode)),
                _ => return Err(Status::NOTDIR.into()),
            }
        }
        Ok(match entry {
            Some((name, inode)) => Walked::Found(name, inode),
            // Back at a directory by `..` of a link: by its own name.
            None if at != from && at != ROOT => {
                let node = self.directory(at)?.ok_or(Status::NOENT)?;
                let directory = node.as_directory().ok_or(Status::NOENT)?;
                Walked::Found(Name { directory: directory.parent, name: directory.name.clone() }, at)
            }
            None => Walked::Root(at),
        })
    }

    /// The directory above one; that of the root is the root.
    fn parent(&self, inode: Inode) -> Result<Inode, Refusal> {
        let node = self.directory(inode)?.ok_or(Status::NOENT)?;
        Ok(node.as_directory().map_or(ROOT, |directory| directory.parent))
    }

    /// The directory at a path.
    pub(crate) fn walk_to_directory(&self, from: Inode, path: &Path) -> Result<Inode, Refusal> {
        match self.walk(from, path, true)? {
            Walked::Root(inode) => Ok(inode),
            Walked::Missing(_) => Err(Status::NOENT.into()),
            Walked::Found(_, inode) if self.directory(inode)?.is_some() => Ok(inode),
            Walked::Found(..) => Err(Status::NOTDIR.into()),
        }
    }

    /// Whether a directory is `above` or below it.
    pub(crate) fn is_below(&self, mut inode: Inode, above: Inode) -> Result<bool, Refusal> {
        for _ in 0..DEPTH_MAX {
            if inode == above {
                return Ok(true);
            }
            if inode == ROOT || self.directory(inode)?.is_none() {
                return Ok(false);
            }
            inode = self.parent(inode)?;
        }
        Err(Status::IO.into())
    }

    /// A path of a directory, for people, and whether it begins at the root: after damage there may be directories that none
    /// leads to.
    pub(crate) fn path_of(&self, mut inode: Inode) -> (PathBuf, bool) {
        let mut parts = Vec::new();
        while inode != ROOT
            && parts.len() < DEPTH_MAX
            && let Ok(Some(node)) = self.node(inode)
            && let Some(directory) = node.as_directory()
        {
            parts.push(OsString::from_vec(directory.name.to_vec()));
            inode = directory.parent;
        }
        (parts.iter().rev().collect(), inode == ROOT)
    }
}

/// The parts of a path, the last one first.
fn split(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').rev().filter(|part| means_something(part))
}

fn means_something(part: &[u8]) -> bool {
    !part.is_empty() && part != b"."
}
