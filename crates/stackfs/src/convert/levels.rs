//! The names of a layout's hidden level: what in a managed directory is a subdirectory of ours.

use std::collections::HashSet;

use files::Layout;

/// All subdirectories that a layout can have, by their paths from the managed directory.
#[derive(Clone, Debug)]
pub(crate) struct Levels {
    layout: Layout,
    leaves: HashSet<Vec<u8>>,
    uppers: HashSet<Vec<u8>>,
}

impl Levels {
    pub(crate) fn of(layout: Layout) -> Self {
        let mut leaves: HashSet<Vec<u8>> = layout.leaves().map(String::into_bytes).collect();
        if layout.keeps_others_apart() {
            leaves.insert(Layout::OTHERS.as_bytes().to_vec());
        }
        let uppers =
            layout.directories().map(String::into_bytes).filter(|path| !leaves.contains(path)).collect();
        Self { layout, leaves, uppers }
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Whether entries of users lie in the subdirectory of this path.
    pub(crate) fn is_leaf(&self, path: &[u8]) -> bool {
        self.leaves.contains(path)
    }

    /// Whether it is a subdirectory of the hidden level, with entries or with further subdirectories.
    pub(crate) fn is_level(&self, path: &[u8]) -> bool {
        self.is_leaf(path) || self.uppers.contains(path)
    }

    /// The subdirectory of a name.
    pub(crate) fn leaf_of(&self, name: &[u8]) -> Vec<u8> {
        let mut leaf = Vec::new();
        self.layout.subdirectory(name, &mut leaf);
        leaf
    }
}

/// The path of an entry below `upper`; `upper` is empty for the directory itself.
pub(crate) fn joined(upper: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = upper.to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_a_level_of_345_and_nothing_else_is_but_aaa() {
        let levels = Levels::of(Layout::D345);
        assert!(levels.is_leaf(b"000") && levels.is_leaf(b"999") && levels.is_leaf(b"aaa"));
        for no in [&b"34"[..], b"0000", b"aab", b"12x", b"", b"34/56", b".crumb-converting-345"] {
            assert!(!levels.is_level(no), "{no:?}");
        }
        assert_eq!((levels.leaves.len() + levels.uppers.len()), 1001);
    }

    #[test]
    fn in_two_levels_the_upper_one_holds_no_entries_of_users() {
        let levels = Levels::of(Layout::D34D56);
        assert!(levels.is_level(b"34") && !levels.is_leaf(b"34"));
        assert!(levels.is_leaf(b"34/56") && levels.is_leaf(b"aaa") && !levels.is_level(b"aaa/34"));
        assert_eq!(levels.leaf_of(b"123456"), b"34/56");
        assert_eq!((levels.leaves.len() + levels.uppers.len()), 10_101);
    }

    #[test]
    fn by_hash_there_is_no_aaa_but_as_a_name() {
        let levels = Levels::of(Layout::Hash2);
        assert!(levels.is_leaf(b"0f") && !levels.is_level(b"aaa") && !levels.is_level(b"0F"));
        assert_eq!((levels.leaves.len() + levels.uppers.len()), 256);
    }
}
