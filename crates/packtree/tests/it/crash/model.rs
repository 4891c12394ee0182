//! The oracle: what a tree must be like, as a list of moments.
//!
//! Each change that was acknowledged makes a moment. A sync that was acknowledged says which one is safe. After a power cut
//! the tree is exactly one of the moments from the safe one on; after a kill it is the last. The change under way when the
//! machine stopped may have been made, whole, or not.

use std::collections::BTreeMap;
use std::rc::Rc;

use files::FileKind;
use packtree::PackTree;

use crate::scenario::{There, all};

/// The extended attribute that is set.
pub const XATTR: &[u8] = b"user.crumb";

/// What a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Directory,
    Symlink(String),
    Fifo,
    File(u64),
}

/// What was set of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Mode, user and time of access.
    pub attributes: Option<(u16, u32, i64)>,
    pub xattr: Option<Vec<u8>>,
}

/// One moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    pub names: BTreeMap<String, Item>,
    pub files: BTreeMap<u64, Rc<Vec<u8>>>,
    pub sets: BTreeMap<u64, Set>,
}

/// What a tree has: every path, and what is set of each file.
struct Found {
    paths: BTreeMap<String, There>,
    sets: BTreeMap<String, Set>,
}

impl Found {
    fn of(tree: &PackTree) -> Self {
        let (paths, nodes) = (all(tree), tree.nodes());
        let mut sets = BTreeMap::new();
        for (path, there) in &paths {
            let There::File { inode, .. } = there else { continue };
            let found = nodes.attributes(*inode).expect("listed");
            let xattr = nodes.xattr(*inode, XATTR).ok().map(Vec::from);
            let attributes = Some((found.mode, found.uid, found.atime_ns));
            sets.insert(path.clone(), Set { attributes, xattr });
        }
        Self { paths, sets }
    }
}

impl Moment {
    /// Names of a file.
    pub fn links(&self, file: u64) -> usize {
        self.names.values().filter(|item| **item == Item::File(file)).count()
    }

    /// Forgets files without names.
    pub fn forget(&mut self) {
        let named = |file: &u64| self.names.values().any(|item| *item == Item::File(*file));
        let gone: Vec<u64> = self.files.keys().filter(|file| !named(file)).copied().collect();
        for file in gone {
            self.files.remove(&file);
            self.sets.remove(&file);
        }
    }

    /// Renames, with all that is below.
    pub fn rename(&mut self, from: &str, to: &str) {
        let below = format!("{from}/");
        let moved: Vec<String> =
            self.names.keys().filter(|path| *path == from || path.starts_with(&below)).cloned().collect();
        for path in moved {
            let item = self.names.remove(&path).expect("listed");
            self.names.insert(format!("{to}{}", &path[from.len()..]), item);
        }
        self.forget();
    }

    fn is(&self, found: &Found) -> bool {
        let same = |path: &str, item: &Item| match (item, found.paths.get(path)) {
            (Item::Directory, Some(There::Directory)) => true,
            (Item::Fifo, Some(There::Special(FileKind::Fifo))) => true,
            (Item::Symlink(text), Some(There::Symlink(found))) => text == found,
            (Item::File(file), Some(There::File { links, bytes, .. })) => {
                let set = self.sets.get(file).cloned().unwrap_or_default();
                let is = &found.sets[path];
                *links as usize == self.links(*file)
                    && *bytes == **self.files[file]
                    && set.xattr == is.xattr
                    && (set.attributes.is_none() || set.attributes == is.attributes)
            }
            _ => false,
        };
        self.names.len() == found.paths.len() && self.names.iter().all(|(path, item)| same(path, item))
    }
}

/// All moments from the safe one on; the last may be of a change that was not acknowledged.
#[derive(Clone, Debug)]
pub struct Model {
    moments: Vec<Moment>,
    under_way: Option<Moment>,
}

impl Model {
    pub fn new() -> Self {
        Self { moments: vec![Moment::default()], under_way: None }
    }

    pub fn now(&self) -> &Moment {
        self.moments.last().expect("one at least")
    }

    pub fn begin(&mut self, next: Moment) {
        self.under_way = Some(next);
    }

    pub fn acknowledged(&mut self) {
        let next = self.under_way.take().expect("begun");
        if next != *self.now() {
            self.moments.push(next);
        }
    }

    /// The change was refused, and not made.
    pub fn refused(&mut self) {
        self.under_way = None;
    }

    /// A sync was acknowledged.
    pub fn safe(&mut self) {
        self.moments.drain(..self.moments.len() - 1);
    }

    /// Compares, and continues from what was found. `killed`: nothing acknowledged may be missing.
    pub fn compare(&mut self, tree: &PackTree, killed: bool, when: &str) {
        let found = Found::of(tree);
        let first = if killed { self.moments.len() - 1 } else { 0 };
        let mut allowed = self.moments[first..].iter().chain(&self.under_way);
        let Some(moment) = allowed.find(|moment| moment.is(&found)).cloned() else {
            let names: Vec<_> = found.paths.keys().collect();
            let older = self.moments[..first].iter().rposition(|moment| moment.is(&found));
            panic!(
                "{when}: the tree is as at none of {} moments (an older one: {older:?}); it has {names:?}, the last has {:?}",
                self.moments.len() - first,
                self.now().names.keys()
            );
        };
        *self = Self { moments: vec![moment], under_way: None };
    }
}
