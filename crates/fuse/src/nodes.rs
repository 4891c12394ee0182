//! The floor's files and directories, in memory.
//!
//! Always holds: a node stays while a name leads to it or the kernel refers to it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use foldhash::fast::RandomState;

use crate::{Errno, FileAttr, FileType, INodeNo};

/// The root's number, by the protocol.
pub(crate) const ROOT: u64 = 1;

/// Who owns what is made.
pub(crate) type Owner = (u32, u32);

/// All of them.
pub(crate) struct Nodes {
    all: HashMap<u64, Node, RandomState>,
    last: u64,
}

struct Node {
    body: Body,
    parent: u64,
    permissions: u16,
    owner: Owner,
    modified: SystemTime,
    changed: SystemTime,
    /// Whether a name leads to it.
    has_name: bool,
    /// References of the kernel.
    lookups: u64,
}

enum Body {
    Directory(HashMap<OsString, u64, RandomState>),
    File(Vec<u8>),
}

/// What setattr changes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    pub permissions: Option<u16>,
    pub owner: (Option<u32>, Option<u32>),
    pub size: Option<u64>,
    pub modified: Option<SystemTime>,
}

type Done<T> = Result<T, Errno>;

impl Node {
    fn new(body: Body, parent: u64, permissions: u16, owner: Owner) -> Self {
        let now = SystemTime::now();
        Self { body, parent, permissions, owner, modified: now, changed: now, has_name: true, lookups: 0 }
    }

    fn attributes(&self, id: u64) -> FileAttr {
        let (kind, size, links) = match &self.body {
            Body::Directory(names) => (FileType::Directory, 32 * names.len() as u64, 2),
            Body::File(bytes) => (FileType::RegularFile, bytes.len() as u64, u32::from(self.has_name)),
        };
        FileAttr {
            ino: INodeNo(id),
            size,
            blocks: size.div_ceil(512),
            atime: self.modified,
            mtime: self.modified,
            ctime: self.changed,
            kind,
            perm: self.permissions,
            nlink: links,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 4096,
        }
    }
}

impl Nodes {
    /// With an empty root.
    pub fn new(owner: Owner) -> Self {
        let root = Node::new(Body::Directory(HashMap::default()), ROOT, 0o755, owner);
        Self { all: [(ROOT, root)].into_iter().collect(), last: ROOT }
    }

    fn node(&mut self, id: u64) -> Done<&mut Node> {
        self.all.get_mut(&id).ok_or(Errno::ESTALE)
    }

    fn names(&mut self, directory: u64) -> Done<&mut HashMap<OsString, u64, RandomState>> {
        match &mut self.node(directory)?.body {
            Body::Directory(names) => Ok(names),
            Body::File(_) => Err(Errno::ENOTDIR),
        }
    }

    pub fn attributes(&self, id: u64) -> Done<FileAttr> {
        self.all.get(&id).map(|node| node.attributes(id)).ok_or(Errno::ESTALE)
    }

    /// The attributes of what the name leads to, with one more reference of the kernel.
    pub fn look_up(&mut self, directory: u64, name: &OsStr) -> Done<FileAttr> {
        let id = *self.names(directory)?.get(name).ok_or(Errno::ENOENT)?;
        self.refer(id)
    }

    /// One more reference of the kernel.
    pub fn refer(&mut self, id: u64) -> Done<FileAttr> {
        let node = self.node(id)?;
        node.lookups += 1;
        Ok(node.attributes(id))
    }

    /// The kernel gives references back.
    pub fn forget(&mut self, id: u64, lookups: u64) {
        let Some(node) = self.all.get_mut(&id) else { return };
        node.lookups = node.lookups.saturating_sub(lookups);
        self.drop_unused(id);
    }

    fn drop_unused(&mut self, id: u64) {
        if self.all.get(&id).is_some_and(|node| !node.has_name && node.lookups == 0 && id != ROOT) {
            self.all.remove(&id);
        }
    }

    /// Makes a directory or a file, and refers to it.
    pub fn make(
        &mut self,
        directory: u64,
        name: &OsStr,
        permissions: u16,
        owner: Owner,
        is_directory: bool,
    ) -> Done<FileAttr> {
        let id = self.last + 1;
        let names = self.names(directory)?;
        if names.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        names.insert(name.to_owned(), id);
        self.last = id;
        let body = if is_directory { Body::Directory(HashMap::default()) } else { Body::File(Vec::new()) };
        self.all.insert(id, Node::new(body, directory, permissions, owner));
        self.touch(directory);
        self.refer(id)
    }

    /// Takes a name away, of a file or of an empty directory.
    pub fn remove(&mut self, directory: u64, name: &OsStr, is_directory: bool) -> Done<()> {
        let id = *self.names(directory)?.get(name).ok_or(Errno::ENOENT)?;
        match (&self.node(id)?.body, is_directory) {
            (Body::Directory(_), false) => return Err(Errno::EISDIR),
            (Body::File(_), true) => return Err(Errno::ENOTDIR),
            (Body::Directory(names), true) if !names.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        self.names(directory)?.remove(name);
        self.touch(directory);
        let node = self.node(id)?;
        node.has_name = false;
        node.changed = SystemTime::now();
        self.drop_unused(id);
        Ok(())
    }

    /// Gives an entry another name, over a file that has it.
    pub fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr)) -> Done<()> {
        let id = *self.names(from.0)?.get(from.1).ok_or(Errno::ENOENT)?;
        match self.names(to.0)?.get(to.1).copied() {
            Some(there) if there == id => return Ok(()),
            Some(there) => {
                let is_directory = matches!(self.node(there)?.body, Body::Directory(_));
                self.remove(to.0, to.1, is_directory)?;
            }
            None => {}
        }
        self.names(from.0)?.remove(from.1);
        self.names(to.0)?.insert(to.1.to_owned(), id);
        self.node(id)?.parent = to.0;
        self.touch(from.0);
        self.touch(to.0);
        Ok(())
    }

    fn touch(&mut self, directory: u64) {
        if let Some(node) = self.all.get_mut(&directory) {
            node.modified = SystemTime::now();
            node.changed = node.modified;
        }
    }

    pub fn change(&mut self, id: u64, change: Change) -> Done<FileAttr> {
        let node = self.node(id)?;
        node.changed = SystemTime::now();
        node.permissions = change.permissions.unwrap_or(node.permissions);
        node.owner = (change.owner.0.unwrap_or(node.owner.0), change.owner.1.unwrap_or(node.owner.1));
        if let (Some(size), Body::File(bytes)) = (change.size, &mut node.body) {
            resize(bytes, size)?;
            node.modified = node.changed;
        }
        node.modified = change.modified.unwrap_or(node.modified);
        Ok(node.attributes(id))
    }

    /// Bytes of a file, at most `size`.
    pub fn read(&self, id: u64, offset: u64, size: u32) -> Done<&[u8]> {
        match &self.all.get(&id).ok_or(Errno::ESTALE)?.body {
            Body::Directory(_) => Err(Errno::EISDIR),
            Body::File(bytes) => {
                let from = bytes.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
                let to = bytes.len().min(from.saturating_add(size as usize));
                Ok(&bytes[from..to])
            }
        }
    }

    pub fn write(&mut self, id: u64, offset: u64, data: &[u8]) -> Done<()> {
        let node = self.node(id)?;
        let Body::File(bytes) = &mut node.body else { return Err(Errno::EISDIR) };
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        if end > bytes.len() as u64 {
            resize(bytes, end)?;
        }
        // Not beyond its length.
        let from = offset as usize;
        bytes[from..from + data.len()].copy_from_slice(data);
        node.modified = SystemTime::now();
        node.changed = node.modified;
        Ok(())
    }

    /// Number, name and kind of each entry, with the two dots.
    pub fn list(&mut self, directory: u64) -> Done<Vec<(u64, OsString, FileType)>> {
        let parent = self.node(directory)?.parent;
        let names = self.names(directory)?;
        let mut listed = vec![
            (directory, OsString::from("."), FileType::Directory),
            (parent, OsString::from(".."), FileType::Directory),
        ];
        listed.extend(names.iter().map(|(name, id)| (*id, name.clone(), FileType::RegularFile)));
        for entry in &mut listed[2..] {
            if let Some(Node { body: Body::Directory(_), .. }) = self.all.get(&entry.0) {
                entry.2 = FileType::Directory;
            }
        }
        Ok(listed)
    }
}

/// More than this is not memory for a measurement.
const FILE_BYTES_MAX: u64 = 1 << 30;

fn resize(bytes: &mut Vec<u8>, size: u64) -> Done<()> {
    if size > FILE_BYTES_MAX {
        return Err(Errno::EFBIG);
    }
    // Not beyond 1 GiB.
    bytes.resize(size as usize, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_removed_stays_until_the_kernel_forgets_it() {
        let mut nodes = Nodes::new((1, 2));
        let file = nodes.make(ROOT, OsStr::new("f"), 0o600, (1, 2), false).unwrap().ino.0;
        nodes.write(file, 3, b"abc").unwrap();
        assert_eq!(nodes.look_up(ROOT, OsStr::new("f")).unwrap().size, 6);
        nodes.remove(ROOT, OsStr::new("f"), false).unwrap();
        assert_eq!(nodes.read(file, 0, 100).unwrap(), b"\0\0\0abc");
        nodes.forget(file, 1);
        assert_eq!(nodes.attributes(file).unwrap().nlink, 0);
        nodes.forget(file, 1);
        assert_eq!(nodes.all.len(), 1, "the root alone");
    }

    #[test]
    fn names_move_and_directories_must_be_empty() {
        let mut nodes = Nodes::new((0, 0));
        let (a, b) = (OsStr::new("a"), OsStr::new("b"));
        let dir = nodes.make(ROOT, a, 0o700, (0, 0), true).unwrap().ino.0;
        nodes.make(dir, a, 0o600, (0, 0), false).unwrap();
        assert_eq!(nodes.make(dir, a, 0o600, (0, 0), false).unwrap_err().code(), Errno::EEXIST.code());
        assert_eq!(nodes.remove(ROOT, a, true).unwrap_err().code(), Errno::ENOTEMPTY.code());
        nodes.rename((dir, a), (ROOT, b)).unwrap();
        assert_eq!(nodes.list(dir).unwrap().len(), 2);
        nodes.remove(ROOT, a, true).unwrap();
        let listed: Vec<_> = nodes.list(ROOT).unwrap().into_iter().skip(2).map(|entry| entry.1).collect();
        assert_eq!(listed, ["b"]);
        assert_eq!(nodes.write(ROOT, 0, b"x").unwrap_err().code(), Errno::EISDIR.code());
        let beyond = Change { size: Some(u64::MAX), ..Change::default() };
        let file = nodes.look_up(ROOT, b).unwrap().ino.0;
        assert_eq!(nodes.change(file, beyond).unwrap_err().code(), Errno::EFBIG.code());
    }
}
