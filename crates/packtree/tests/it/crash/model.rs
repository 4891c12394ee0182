//! The oracle: what a tree must be like, as a list of moments.
//!
//! Each change that was acknowledged makes a moment. A sync that was acknowledged says which one is safe. After a power cut
//! the tree is exactly one of the moments from the safe one on; after a kill it is the last. The change under way when the
//! machine stopped may have been made, whole, or not.

use std::collections::BTreeMap;
use std::rc::Rc;

use files::FileSystem;

use crate::scenario::{There, all};

/// What a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Directory,
    Symlink(String),
    File(u64),
}

/// One moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    pub names: BTreeMap<String, Item>,
    pub files: BTreeMap<u64, Rc<Vec<u8>>>,
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
        gone.iter().for_each(|file| drop(self.files.remove(file)));
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

    fn is(&self, found: &BTreeMap<String, There>) -> bool {
        let same = |path: &str, item: &Item| match (item, found.get(path)) {
            (Item::Directory, Some(There::Directory)) => true,
            (Item::Symlink(text), Some(There::Symlink(found))) => text == found,
            (Item::File(file), Some(There::File { links, bytes, .. })) => {
                *links as usize == self.links(*file) && *bytes == **self.files[file]
            }
            _ => false,
        };
        self.names.len() == found.len() && self.names.iter().all(|(path, item)| same(path, item))
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

    /// A sync was acknowledged.
    pub fn safe(&mut self) {
        self.moments.drain(..self.moments.len() - 1);
    }

    /// Compares, and continues from what was found. `killed`: nothing acknowledged may be missing.
    pub fn compare(&mut self, tree: &dyn FileSystem, killed: bool, when: &str) {
        let found = all(tree);
        let first = if killed { self.moments.len() - 1 } else { 0 };
        let mut allowed = self.moments[first..].iter().chain(&self.under_way);
        let Some(moment) = allowed.find(|moment| moment.is(&found)).cloned() else {
            let names: Vec<_> = found.keys().collect();
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
