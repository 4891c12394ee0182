//! Names and inodes that were changed and are in no run yet: in memory, by hash and in order.

use std::collections::btree_map::Range;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::{Inode, Node};
use crate::error::Refusal;
use crate::format::{Named, encode_node};
use crate::names::{Key, Source};

type Hashed = foldhash::fast::RandomState;
/// `None`: it was removed.
type Names = BTreeMap<Box<[u8]>, Option<Named>>;

#[derive(Clone, Default)]
pub(crate) struct Layer {
    /// `None`: it was removed.
    pub nodes: HashMap<Inode, Option<Arc<Node>>, Hashed>,
    pub names: HashMap<Inode, Names, Hashed>,
    /// Names of all directories.
    count: usize,
}

impl Layer {
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.count == 0
    }

    /// How many keys [`Layer::sorted`] has.
    pub(crate) fn keys(&self) -> u64 {
        (self.nodes.len() + self.count) as u64
    }

    pub(crate) fn name(&self, directory: Inode, name: &[u8]) -> Option<Option<Named>> {
        self.names.get(&directory)?.get(name).copied()
    }

    pub(crate) fn set_name(&mut self, directory: Inode, name: &[u8], named: Option<Named>) {
        let names = self.names.entry(directory).or_default();
        match names.get_mut(name) {
            Some(before) => *before = named,
            None => {
                names.insert(name.into(), named);
                self.count += 1;
            }
        }
    }

    /// Makes the changes of a later layer in this one.
    pub(crate) fn overlay(&mut self, later: Self) {
        self.nodes.extend(later.nodes);
        for (directory, names) in later.names {
            for (name, named) in names {
                self.set_name(directory, &name, named);
            }
        }
    }

    /// Calls `each` for every key in order with its value; `None` as a value: it was removed.
    pub(crate) fn sorted<E>(
        &self,
        mut each: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut value = Vec::new();
        let mut directories: Vec<_> = self.names.iter().collect();
        directories.sort_unstable_by_key(|(directory, _)| **directory);
        for (directory, names) in directories {
            for (name, named) in names {
                value.clear();
                named.iter().for_each(|named| named.encode(&mut value));
                each(Key::of_name(*directory, name).bytes(), named.is_some().then_some(&value))?;
            }
        }
        let mut nodes: Vec<_> = self.nodes.iter().collect();
        nodes.sort_unstable_by_key(|(inode, _)| **inode);
        for (inode, node) in nodes {
            value.clear();
            node.iter().for_each(|node| encode_node(node, &mut value));
            each(Key::of_inode(*inode).bytes(), node.is_some().then_some(&value))?;
        }
        Ok(())
    }

    /// The names of a directory behind `after`.
    pub(crate) fn names_of(&self, directory: Inode, after: &[u8]) -> Option<NamesOf<'_>> {
        let names = self.names.get(&directory)?;
        let rest = names.range::<[u8], _>((Bound::Excluded(after), Bound::Unbounded));
        let mut source = NamesOf { directory, rest, key: None, value: None };
        source.next();
        Some(source)
    }
}

/// Names of one directory, in order.
pub(crate) struct NamesOf<'a> {
    directory: Inode,
    rest: Range<'a, Box<[u8]>, Option<Named>>,
    key: Option<Key>,
    value: Option<Vec<u8>>,
}

impl NamesOf<'_> {
    fn next(&mut self) {
        let next = self.rest.next();
        self.key = next.map(|(name, _)| Key::of_name(self.directory, name));
        self.value = next.and_then(|(_, named)| *named).map(|named| {
            let mut value = Vec::new();
            named.encode(&mut value);
            value
        });
    }
}

impl Source for NamesOf<'_> {
    fn key(&self) -> Option<&[u8]> {
        self.key.as_ref().map(Key::bytes)
    }

    fn value(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }

    fn advance(&mut self) -> Result<(), Refusal> {
        self.next();
        Ok(())
    }
}

/// Keys that were sorted before.
pub(crate) struct Sorted {
    rest: std::vec::IntoIter<(Vec<u8>, Option<Vec<u8>>)>,
    now: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Sorted {
    pub(crate) fn of(layer: &Layer) -> Self {
        let mut all = Vec::new();
        let sorted = layer.sorted(|key, value| {
            all.push((key.to_vec(), value.map(<[u8]>::to_vec)));
            Ok::<_, std::convert::Infallible>(())
        });
        let Ok(()) = sorted;
        let mut rest = all.into_iter();
        let now = rest.next();
        Self { rest, now }
    }
}

impl Source for Sorted {
    fn key(&self) -> Option<&[u8]> {
        self.now.as_ref().map(|(key, _)| &key[..])
    }

    fn value(&self) -> Option<&[u8]> {
        self.now.as_ref().and_then(|(_, value)| value.as_deref())
    }

    fn advance(&mut self) -> Result<(), Refusal> {
        self.now = self.rest.next();
        Ok(())
    }
}
