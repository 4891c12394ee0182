//! The names in memory: directories with their entries in order, files with all their names, links with their texts.
//!
//! About 130 bytes for a file with a name of 20 bytes, by the resident memory of 100,000 of them just opened.
//!
//! Always holds: every entry's node knows the entry; a removed directory that a view holds keeps its number.
//! Not here: the store; who changes a name there changes it here under the lock of its key (see `file_system`).

use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Weak};

use files::Status;
use packstore::KEY_BYTES_MAX;

use super::meta::{FileMeta, FileType};
use super::opened::Opened;

/// Place of a node; its number for users is one more.
pub(super) type NodeId = u32;
pub(super) const ROOT: NodeId = 0;
const NAME_BYTES_MAX: usize = 255;
/// As Linux has it.
const FOLLOWED_MAX: usize = 40;

pub(super) enum Node {
    Free,
    Directory(Box<Directory>),
    File(File),
    Symlink(Box<Symlink>),
}

pub(super) struct Directory {
    pub parent: NodeId,
    pub name: Arc<[u8]>,
    pub entries: BTreeMap<Arc<[u8]>, NodeId>,
    pub subdirectories: u32,
    /// An object stands for it, so that it stays when it is empty.
    pub kept: bool,
    pub meta: FileMeta,
    pub removed: bool,
    /// Views that have it as their root.
    pub holders: u32,
}

pub(super) struct File {
    pub names: Names,
    pub size: u64,
    /// Of its object, when it was read or written; else permissions and time are not known yet.
    pub meta: Option<Box<FileMeta>>,
    pub created_s: u32,
}

pub(super) struct Symlink {
    pub name: Name,
    pub target: Vec<u8>,
    pub meta: FileMeta,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub directory: NodeId,
    pub name: Arc<[u8]>,
}

pub(super) enum Names {
    One(Name),
    Several(Vec<Name>),
}

impl Names {
    pub(super) fn as_slice(&self) -> &[Name] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }

    fn with(&mut self, name: Name) {
        let mut names = self.as_slice().to_vec();
        names.push(name);
        *self = if names.len() == 1 { Self::One(name_of(&names)) } else { Self::Several(names) };
    }

    fn without(&mut self, name: &Name) {
        let names: Vec<Name> = self.as_slice().iter().filter(|other| *other != name).cloned().collect();
        *self = if names.len() == 1 { Self::One(name_of(&names)) } else { Self::Several(names) };
    }
}

fn name_of(names: &[Name]) -> Name {
    names[0].clone()
}

pub(super) struct Tree {
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    pub opened: HashMap<NodeId, Weak<Opened>>,
    /// Keys that are no paths, or lie below a file's: they are not shown.
    pub hidden: u64,
}

/// Where a path leads.
pub(super) enum Walked {
    /// A directory without a name: the root of the view, or of the store.
    Root(NodeId),
    Found(Name, NodeId),
    /// Its directory is there.
    Missing(Name),
}

impl Tree {
    pub(super) fn new() -> Self {
        let root = Directory {
            parent: ROOT,
            name: Arc::from(&b""[..]),
            entries: BTreeMap::new(),
            subdirectories: 0,
            kept: true,
            meta: FileMeta::new(FileType::Directory, 0o755),
            removed: false,
            holders: 0,
        };
        Self {
            nodes: vec![Node::Directory(Box::new(root))],
            free: Vec::new(),
            opened: HashMap::new(),
            hidden: 0,
        }
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    pub(super) fn directory(&self, id: NodeId) -> &Directory {
        match self.node(id) {
            Node::Directory(directory) => directory,
            _ => panic!("node {id} is no directory"),
        }
    }

    pub(super) fn directory_mut(&mut self, id: NodeId) -> &mut Directory {
        match &mut self.nodes[id as usize] {
            Node::Directory(directory) => directory,
            _ => panic!("node {id} is no directory"),
        }
    }

    pub(super) fn file(&self, id: NodeId) -> Option<&File> {
        match self.node(id) {
            Node::File(file) => Some(file),
            _ => None,
        }
    }

    pub(super) fn file_mut(&mut self, id: NodeId) -> Option<&mut File> {
        match &mut self.nodes[id as usize] {
            Node::File(file) => Some(file),
            _ => None,
        }
    }

    /// The key of an entry: the names from the root on.
    pub(super) fn key(&self, name: &Name) -> Vec<u8> {
        let mut parts: Vec<&[u8]> = vec![&name.name];
        let mut at = name.directory;
        while at != ROOT {
            let directory = self.directory(at);
            parts.push(&directory.name);
            at = directory.parent;
        }
        parts.reverse();
        parts.join(&b'/')
    }

    /// A directory's own key; empty for the root.
    pub(super) fn key_of_directory(&self, id: NodeId) -> Vec<u8> {
        if id == ROOT {
            return Vec::new();
        }
        let directory = self.directory(id);
        self.key(&Name { directory: directory.parent, name: directory.name.clone() })
    }

    pub(super) fn add(&mut self, node: Node) -> NodeId {
        match self.free.pop() {
            Some(id) => {
                self.nodes[id as usize] = node;
                id
            }
            None => {
                let id = NodeId::try_from(self.nodes.len()).expect("fewer than 2^32 names fit into memory");
                self.nodes.push(node);
                id
            }
        }
    }

    /// Gives a node that is in no directory an entry.
    pub(super) fn enter(&mut self, name: &Name, id: NodeId) {
        match &mut self.nodes[id as usize] {
            Node::Directory(directory) => {
                (directory.parent, directory.name) = (name.directory, name.name.clone());
                self.directory_mut(name.directory).subdirectories += 1;
            }
            Node::File(file) => file.names.with(name.clone()),
            Node::Symlink(link) => link.name = name.clone(),
            Node::Free => panic!("node {id} is free"),
        }
        self.directory_mut(name.directory).entries.insert(name.name.clone(), id);
    }

    /// Takes an entry away; the node stays.
    pub(super) fn leave(&mut self, name: &Name) -> Option<NodeId> {
        let id = self.directory_mut(name.directory).entries.remove(&name.name)?;
        match &mut self.nodes[id as usize] {
            Node::Directory(_) => self.directory_mut(name.directory).subdirectories -= 1,
            Node::File(file) => file.names.without(name),
            _ => {}
        }
        Some(id)
    }

    /// Frees a node that has no name and that nobody holds.
    pub(super) fn forget(&mut self, id: NodeId) {
        let held = match &mut self.nodes[id as usize] {
            Node::Free => return,
            Node::Directory(directory) => {
                directory.removed = true;
                directory.holders > 0
            }
            Node::File(file) => !file.names.as_slice().is_empty() || self.opened.contains_key(&id),
            Node::Symlink(_) => false,
        };
        if !held {
            self.nodes[id as usize] = Node::Free;
            self.free.push(id);
        }
    }

    /// The directory of an object's key, made if it is only implied; and the last name. `None` when the key is no path
    /// or leads through a file.
    pub(super) fn imply(&mut self, key: &[u8]) -> Option<Name> {
        let parts: Vec<&[u8]> = key.split(|byte| *byte == b'/').collect();
        let bad = |part: &&[u8]| {
            part.is_empty()
                || part.len() > NAME_BYTES_MAX
                || *part == b"."
                || *part == b".."
                || part.contains(&0)
        };
        if parts.iter().any(bad) {
            return None;
        }
        let mut at = ROOT;
        let (last, before) = parts.split_last()?;
        for part in before {
            at = match self.directory(at).entries.get(*part) {
                Some(id) if matches!(self.node(*id), Node::Directory(_)) => *id,
                Some(_) => return None,
                None => {
                    let id = self.add_directory(false, FileMeta::new(FileType::Directory, 0o755));
                    self.enter(&Name { directory: at, name: Arc::from(*part) }, id);
                    id
                }
            };
        }
        Some(Name { directory: at, name: Arc::from(*last) })
    }

    pub(super) fn add_directory(&mut self, kept: bool, meta: FileMeta) -> NodeId {
        self.add(Node::Directory(Box::new(Directory {
            parent: ROOT,
            name: Arc::from(&b""[..]),
            entries: BTreeMap::new(),
            subdirectories: 0,
            kept,
            meta,
            removed: false,
            holders: 0,
        })))
    }

    /// Walks a path from a directory. `follow`: also through a symbolic link at its end.
    pub(super) fn walk(&self, from: NodeId, path: &Path, follow: bool) -> Result<Walked, Status> {
        let bytes = path.as_os_str().as_bytes();
        let parts = || bytes.split(|byte| *byte == b'/');
        if bytes.first() == Some(&b'/') || bytes.contains(&0) || parts().any(|part| part == b"..") {
            return Err(Status::INVAL);
        }
        if self.directory(from).removed {
            return Err(Status::NOENT);
        }
        let (mut at, mut followed) = (from, 0);
        // What is still to be walked, the next part last.
        let mut rest: Vec<Vec<u8>> =
            parts().rev().filter(|part| means_something(part)).map(<[u8]>::to_vec).collect();
        let mut entry = None;
        while let Some(part) = rest.pop() {
            entry = None;
            if part == b".." {
                at = self.directory(at).parent;
                continue;
            }
            if part.len() > NAME_BYTES_MAX {
                return Err(Status::NAMETOOLONG);
            }
            let directory = self.directory(at);
            let name = |name| Name { directory: at, name };
            let Some((own, &id)) = directory.entries.get_key_value(&part[..]) else {
                if !rest.is_empty() {
                    return Err(Status::NOENT);
                }
                let name = name(Arc::from(&part[..]));
                return if self.key(&name).len() > KEY_BYTES_MAX {
                    Err(Status::NAMETOOLONG)
                } else {
                    Ok(Walked::Missing(name))
                };
            };
            match self.node(id) {
                Node::Directory(_) => {
                    entry = Some((name(own.clone()), id));
                    at = id;
                }
                Node::Symlink(link) if follow || !rest.is_empty() => {
                    followed += 1;
                    if followed > FOLLOWED_MAX {
                        return Err(Status::IO);
                    }
                    if link.target.first() == Some(&b'/') {
                        // It leads out of the store.
                        return Err(Status::NOENT);
                    }
                    let parts = link.target.split(|byte| *byte == b'/').rev();
                    rest.extend(parts.filter(|part| means_something(part)).map(<[u8]>::to_vec));
                }
                _ if rest.is_empty() => return Ok(Walked::Found(name(own.clone()), id)),
                _ => return Err(Status::NOTDIR),
            }
        }
        Ok(match entry {
            Some((name, id)) => Walked::Found(name, id),
            // Back at a directory by `..` of a link: by its own name.
            None if at != from && at != ROOT => {
                let directory = self.directory(at);
                Walked::Found(Name { directory: directory.parent, name: directory.name.clone() }, at)
            }
            None => Walked::Root(at),
        })
    }

    /// The directory at a path.
    pub(super) fn walk_to_directory(&self, from: NodeId, path: &Path) -> Result<NodeId, Status> {
        match self.walk(from, path, true)? {
            Walked::Root(id) => Ok(id),
            Walked::Missing(_) => Err(Status::NOENT),
            Walked::Found(_, id) if matches!(self.node(id), Node::Directory(_)) => Ok(id),
            Walked::Found(..) => Err(Status::NOTDIR),
        }
    }

    /// Whether `id` is `above` or lies below it.
    pub(super) fn is_below(&self, mut id: NodeId, above: NodeId) -> bool {
        loop {
            if id == above {
                return true;
            }
            if id == ROOT {
                return false;
            }
            id = self.directory(id).parent;
        }
    }

    /// All entries below a directory, a directory before its entries.
    pub(super) fn below(&self, id: NodeId) -> Vec<(Name, NodeId)> {
        let mut found = Vec::new();
        let mut directories = vec![id];
        while let Some(directory) = directories.pop() {
            for (name, &entry) in &self.directory(directory).entries {
                found.push((Name { directory, name: name.clone() }, entry));
                if matches!(self.node(entry), Node::Directory(_)) {
                    directories.push(entry);
                }
            }
        }
        found
    }
}

fn means_something(part: &[u8]) -> bool {
    !part.is_empty() && part != b"."
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(keys: &[&str]) -> Tree {
        let mut tree = Tree::new();
        for key in keys {
            let Some(name) = tree.imply(key.as_bytes()) else {
                tree.hidden += 1;
                continue;
            };
            let file = File { names: Names::Several(Vec::new()), size: 0, meta: None, created_s: 0 };
            let id = tree.add(Node::File(file));
            tree.enter(&name, id);
        }
        tree
    }

    #[test]
    fn keys_that_are_no_paths_are_hidden_and_the_others_imply_directories() {
        let tree =
            tree(&["a/b/c", "a/d", "/x", "a//e", "../f", "a/./g", "http://host/x", "a/d/below-a-file", "h/"]);
        assert_eq!(tree.hidden, 7);
        let a = tree.walk_to_directory(ROOT, Path::new("a")).expect("implied");
        assert_eq!(tree.directory(a).entries.len(), 2);
        assert_eq!(tree.below(ROOT).len(), 4);
        for (name, id) in tree.below(ROOT) {
            let path = String::from_utf8(tree.key(&name)).expect("text");
            assert!(
                matches!(tree.walk(ROOT, Path::new(&path), false), Ok(Walked::Found(_, found)) if found == id)
            );
        }
    }

    #[test]
    fn a_forgotten_directory_keeps_its_number_while_a_view_holds_it() {
        let mut tree = tree(&["a/b"]);
        let a = tree.walk_to_directory(ROOT, Path::new("a")).expect("implied");
        tree.directory_mut(a).holders = 1;
        tree.leave(&Name { directory: ROOT, name: Arc::from(&b"a"[..]) });
        tree.forget(a);
        assert_eq!(tree.walk(a, Path::new("b"), false).err(), Some(Status::NOENT));
        assert_ne!(tree.add_directory(false, FileMeta::new(FileType::Directory, 0)), a);
    }
}
