//! From a path to a handle: one LOOKUP a name, or none where it is remembered.
//!
//! Symbolic links on the way are read and followed here, as a kernel client does: `..` inside a link goes up the
//! way that was walked and stays at the root there; a link to an absolute path leads out of the export and is
//! refused with `NOTSUPP`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use files::{Attributes, FileKind, Handle, Reply, Request, Status};
use rustix::io::Errno;

use super::NfsFs;
use super::calls::Fail;
use super::counters::add;

/// An object that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub handle: Handle,
    pub kind: FileKind,
    /// As just reported, or remembered for no longer than agreed.
    pub attributes: Option<Attributes>,
    /// The directory it was found in, when the handle was remembered rather than reported by the server just now.
    pub remembered_in: Option<Handle>,
}

/// What to do with a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    Follow,
    Keep,
}

/// Whether what is remembered will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    Remembered,
    Fresh,
}

/// Links followed before a path counts as a loop: Linux's `MAXSYMLINKS`.
const LINKS_MAX: u32 = 40;

/// A path's names, checked: relative, without `..`, without NUL.
pub(super) fn check(path: &Path) -> Result<(), Fail> {
    if path.as_os_str().as_bytes().contains(&0) {
        return Err(Fail::Os(Errno::INVAL));
    }
    path.components().try_for_each(|component| match component {
        Component::Normal(_) | Component::CurDir => Ok(()),
        Component::ParentDir | Component::RootDir | Component::Prefix(_) => Err(Fail::Os(Errno::INVAL)),
    })
}

/// A path's directory and last name; `None` for the root, which has no name.
pub(super) fn split(path: &Path) -> Result<Option<(&Path, &[u8])>, Fail> {
    check(path)?;
    let mut components = path.components();
    Ok(match components.next_back() {
        Some(Component::Normal(name)) => Some((components.as_path(), name.as_bytes())),
        _ => None,
    })
}

impl NfsFs {
    pub(super) fn walk(&self, path: &Path, last: Last, trust: Trust) -> Result<Found, Fail> {
        check(path)?;
        let root = Found {
            handle: self.root,
            kind: FileKind::Directory,
            attributes: self.remembered_attributes(&self.root, trust),
            remembered_in: None,
        };
        let mut way = vec![root];
        self.go_down(&mut way, path, last, trust, &mut LINKS_MAX.clone())?;
        Ok(way.pop().unwrap_or(root))
    }

    /// The directory that a path's last name is in, and this name; `Err(root)` when the path is the root.
    pub(super) fn walk_to_parent<'p>(
        &self,
        path: &'p Path,
        trust: Trust,
        root: Errno,
    ) -> Result<(Handle, &'p [u8]), Fail> {
        let (parent, name) = split(path)?.ok_or(Fail::Os(root))?;
        self.check_name(name)?;
        Ok((self.walk(parent, Last::Follow, trust)?.handle, name))
    }

    fn go_down(
        &self,
        way: &mut Vec<Found>,
        path: &Path,
        last: Last,
        trust: Trust,
        links_left: &mut u32,
    ) -> Result<(), Fail> {
        let mut components = path.components().peekable();
        while let Some(component) = components.next() {
            match component {
                Component::CurDir => {}
                Component::ParentDir => {
                    if way.len() > 1 {
                        way.pop();
                    }
                }
                Component::RootDir | Component::Prefix(_) => return Err(Fail::of(Status::NOTSUPP)),
                Component::Normal(name) => {
                    let dir = way.last().map_or(self.root, |dir| dir.handle);
                    let found = self.look_up(&dir, name.as_bytes(), trust)?;
                    let follow = components.peek().is_some() || last == Last::Follow;
                    if found.kind != FileKind::Symlink || !follow {
                        way.push(found);
                        continue;
                    }
                    *links_left = links_left.checked_sub(1).ok_or(Fail::Os(Errno::LOOP))?;
                    let target = self.read_link(&found.handle)?;
                    let target = Path::new(OsStr::from_bytes(&target));
                    self.go_down(way, target, Last::Follow, trust, links_left)?;
                }
            }
        }
        Ok(())
    }

    /// Refuses what the server said to be too long a name, as a server may cut it instead.
    pub(super) fn check_name(&self, name: &[u8]) -> Result<(), Fail> {
        if name.len() > self.shared.name_bytes_max { Err(Fail::Os(Errno::NAMETOOLONG)) } else { Ok(()) }
    }

    fn look_up(&self, dir: &Handle, name: &[u8], trust: Trust) -> Result<Found, Fail> {
        self.check_name(name)?;
        let shared = &*self.shared;
        if let (Some(cache), Trust::Remembered) = (&shared.cache, trust)
            && let Some((handle, kind, attributes)) = cache.name(dir, name)
        {
            add(&shared.calls.tally.cache_hits, 1);
            return Ok(Found { handle, kind, attributes, remembered_in: Some(*dir) });
        }
        let looked_up =
            shared.calls.call(&Request::Lookup { dir: dir.by_ref(), name }, |reply| match reply {
                Reply::Lookup { object, attributes, dir } => Some((Handle::new(object.0)?, attributes, dir)),
                _ => None,
            });
        let (handle, attributes, dir_attributes) = match looked_up {
            Ok(found) => found,
            Err(fail) => {
                if let (Some(cache), Some(Status::NOENT)) = (&shared.cache, fail.status()) {
                    cache.forget_name(dir, name);
                }
                return Err(fail);
            }
        };
        if let (Some(cache), Some(attributes)) = (&shared.cache, dir_attributes) {
            cache.saw_attributes(dir, attributes);
        }
        let attributes = match attributes {
            Some(attributes) => {
                if let Some(cache) = &shared.cache {
                    cache.saw_attributes(&handle, attributes);
                }
                attributes
            }
            None => self.getattr(&handle)?,
        };
        let kind = attributes.kind;
        if let Some(cache) = &shared.cache {
            cache.saw_name(dir, name, handle, kind);
        }
        Ok(Found { handle, kind, attributes: Some(attributes), remembered_in: None })
    }

    pub(super) fn read_link(&self, link: &Handle) -> Result<Vec<u8>, Fail> {
        self.shared.calls.call(&Request::Readlink { link: link.by_ref() }, |reply| match reply {
            Reply::Readlink { target, .. } => Some(target.to_vec()),
            _ => None,
        })
    }

    /// Asks the server, whatever is remembered.
    pub(super) fn getattr(&self, object: &Handle) -> Result<Attributes, Fail> {
        let asked =
            self.shared.calls.call(&Request::Getattr { object: object.by_ref() }, |reply| match reply {
                Reply::Getattr { attributes } => Some(attributes),
                _ => None,
            })?;
        if let Some(cache) = &self.shared.cache {
            cache.saw_attributes(object, asked);
        }
        Ok(asked)
    }

    pub(super) fn remembered_attributes(&self, object: &Handle, trust: Trust) -> Option<Attributes> {
        let cache = self.shared.cache.as_ref().filter(|_| trust == Trust::Remembered)?;
        let known = cache.attributes(object)?;
        add(&self.shared.calls.tally.cache_hits, 1);
        Some(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_apart_from_its_end_and_the_root_has_no_name() {
        let parts = |path: &'static str| split(Path::new(path)).ok();
        assert_eq!(parts("a/b/c"), Some(Some((Path::new("a/b"), &b"c"[..]))));
        assert_eq!(parts("c"), Some(Some((Path::new(""), &b"c"[..]))));
        assert_eq!((parts(""), parts(".")), (Some(None), Some(None)));
        assert_eq!((parts("/c"), parts("../c"), parts("a/../c")), (None, None, None));
    }
}
