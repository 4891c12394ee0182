//! One directory index that grows name by name until it refuses one.
//!
//! Hashes of names are uniform, so a leaf is fully described by the width of its interval of hashes and by what it holds:
//! its names are spread evenly over the interval, but for the one that a split put at its beginning. Time is counted in
//! names. A leaf of width `w` gets its next `k` names after a time that has a gamma distribution of shape `k` and rate `w`,
//! independently of all other leaves. So the simulation draws the moment at which each leaf overflows and goes from split to
//! split, never from name to name: a run costs one step per leaf, whatever the number of names.
//!
//! 1. `arm` draws how many more names fit into a leaf, and when the first one comes that does not fit.
//! 2. `step` takes the leaf that overflows next. If its node is full, the node is split; if the root is full too, the name
//!    is refused.
//! 3. `split` sorts the leaf's names by hash and moves those with the largest hashes to a new leaf, as many as fill half a
//!    block. The boundary is an order statistic of uniform hashes, which has a beta distribution.
//!
//! Always holds: the widths of all leaves add up to 1; a node's leaves are in the order of their hashes.
//! Not here: names that are removed. A leaf that lost names is never merged with another; see `Tree::with_names`.
//! Source: the kernel's `ext4_dx_add_entry` and `do_split` (fs/ext4/namei.c), by what they do.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Beta, Binomial, Distribution as _, Gamma};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Shape;

/// How many bytes the directory entries of new names have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Records {
    /// All of them this many.
    Same(u32),
    /// Each one of these, all equally likely. Not empty.
    Mixed(Vec<u32>),
}

impl Records {
    /// Those of a sample of names.
    pub fn of(entries_bytes: &[u32]) -> Option<Self> {
        let first = *entries_bytes.first()?;
        let same = entries_bytes.iter().all(|bytes| *bytes == first);
        Some(if same { Self::Same(first) } else { Self::Mixed(entries_bytes.to_vec()) })
    }

    fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> u32 {
        match self {
            Self::Same(bytes) => *bytes,
            Self::Mixed(bytes) => bytes[rng.random_range(0..bytes.len())],
        }
    }

    /// Mean bytes of an entry.
    pub fn mean_bytes(&self) -> f64 {
        match self {
            Self::Same(bytes) => f64::from(*bytes),
            Self::Mixed(bytes) => {
                bytes.iter().map(|bytes| f64::from(*bytes)).sum::<f64>() / bytes.len() as f64
            }
        }
    }
}

/// What a leaf holds.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    names: u32,
    bytes: u32,
}

#[derive(Clone, Debug)]
struct Leaf {
    /// Where its interval of hashes begins, from 0 to 1.
    begins_at: f64,
    /// Share of all hashes that fall into it.
    width: f64,
    /// At the time `since`.
    held: Held,
    since: f64,
    /// When it overflows.
    full: Held,
    overflows_at: f64,
    /// Bytes of the entry that does not fit.
    refused_bytes: u32,
    /// Whether its first name has the lowest hash of the interval: that is so where a split began it.
    begins_with_name: bool,
    /// Which node it is below.
    node: u32,
}

/// A directory index at some moment.
pub struct Tree {
    shape: Shape,
    records: Records,
    rng: Xoshiro256PlusPlus,
    leaves: Vec<Leaf>,
    /// The leaves of each node, in the order of their hashes. While the root is the only index block, it is node 0.
    nodes: Vec<Vec<u32>>,
    has_nodes: bool,
    /// The bits of `overflows_at`, which are ordered as the times are, and the leaf.
    overflows: BinaryHeap<Reverse<(u64, u32)>>,
    /// Names made so far.
    now: f64,
}

/// What came of a name that did not fit into its leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The leaf was split.
    Split,
    /// The index has no room for a new leaf.
    Refused,
}

impl Tree {
    /// An empty directory; the same seed draws the same names.
    pub fn new(shape: Shape, records: Records, seed: u64) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut tree = Self {
            shape,
            records,
            rng,
            leaves: Vec::new(),
            nodes: vec![vec![0]],
            has_nodes: false,
            overflows: BinaryHeap::new(),
            now: 0.0,
        };
        let empty = Held::default();
        tree.leaves.push(Leaf {
            begins_at: 0.0,
            width: 1.0,
            held: empty,
            since: 0.0,
            full: empty,
            overflows_at: 0.0,
            refused_bytes: 0,
            begins_with_name: false,
            node: 0,
        });
        tree.arm(0, shape.first_leaf_bytes());
        tree
    }

    /// Names made when the first one is refused.
    pub fn names_until_refused(&mut self) -> f64 {
        while self.step() == Step::Split {}
        self.now
    }

    /// Blocks of the directory.
    pub fn blocks(&self) -> u64 {
        let leaves = self.leaves.len() as u64;
        match (leaves, self.has_nodes) {
            (1, _) => 1,
            (_, false) => leaves + 1,
            (_, true) => leaves + 1 + self.nodes.len() as u64,
        }
    }

    /// Grows until the directory has this many blocks; false if it refuses a name first.
    pub fn grow_to_blocks(&mut self, blocks: u64) -> bool {
        while self.blocks() < blocks {
            if self.step() == Step::Refused {
                return false;
            }
        }
        // Some moment before the next block is added.
        let Some(Reverse((next, _))) = self.overflows.peek() else { return true };
        self.now += (f64::from_bits(*next) - self.now) * self.rng.random::<f64>();
        true
    }

    /// Takes the directory as one that holds `names` now in the same blocks: fewer than were made when some were removed, more
    /// when it was packed by `e2fsck -D`. All leaves lost or gained in proportion.
    pub fn with_names(&mut self, names: f64) {
        let held: Vec<Held> = (0..self.leaves.len()).map(|at| self.held_now(at)).collect();
        let total: f64 = held.iter().map(|held| f64::from(held.names)).sum();
        let share = names / total.max(1.0);
        self.overflows.clear();
        self.now = names;
        let leaf_bytes = self.shape.leaf_bytes();
        for (at, before) in held.into_iter().enumerate() {
            let kept = if share < 1.0 {
                binomial(&mut self.rng, before.names, share)
            } else {
                (f64::from(before.names) * share).round() as u32
            };
            let entry = f64::from(before.bytes) / f64::from(before.names.max(1));
            let kept = kept.min((f64::from(leaf_bytes) / entry.max(12.0)) as u32);
            let bytes = ((f64::from(kept) * entry).round() as u32).min(leaf_bytes);
            self.leaves[at].held = Held { names: kept, bytes };
            self.arm(at, leaf_bytes);
        }
    }

    /// What a leaf holds at this moment: the names until it overflows come at moments that are spread evenly.
    fn held_now(&mut self, at: usize) -> Held {
        let leaf = &self.leaves[at];
        let (held, full) = (leaf.held, leaf.full);
        let passed = (self.now - leaf.since) / (leaf.overflows_at - leaf.since);
        let more = full.names - held.names;
        let names = binomial(&mut self.rng, more, passed.clamp(0.0, 1.0));
        let bytes = u64::from(full.bytes - held.bytes) * u64::from(names) / u64::from(more.max(1));
        Held { names: held.names + names, bytes: held.bytes + bytes as u32 }
    }

    /// Draws when a leaf of `leaf_bytes` overflows that holds what it holds since now.
    fn arm(&mut self, at: usize, leaf_bytes: u32) {
        let held = self.leaves[at].held;
        let mut full = held;
        let refused_bytes = match self.records {
            Records::Same(bytes) => {
                let more = leaf_bytes.saturating_sub(held.bytes) / bytes;
                full = Held { names: held.names + more, bytes: held.bytes + more * bytes };
                bytes
            }
            Records::Mixed(_) => loop {
                let bytes = self.records.draw(&mut self.rng);
                if full.bytes + bytes > leaf_bytes {
                    break bytes;
                }
                full = Held { names: full.names + 1, bytes: full.bytes + bytes };
            },
        };
        let until = f64::from(full.names - held.names + 1);
        let wait = Gamma::new(until, 1.0).expect("a positive shape").sample(&mut self.rng);
        let leaf = &mut self.leaves[at];
        (leaf.since, leaf.full, leaf.refused_bytes) = (self.now, full, refused_bytes);
        leaf.overflows_at = self.now + wait / leaf.width;
        self.overflows.push(Reverse((leaf.overflows_at.to_bits(), at as u32)));
    }

    /// Continues to the next name that does not fit into its leaf.
    fn step(&mut self) -> Step {
        let Reverse((at, leaf)) = self.overflows.pop().expect("each leaf overflows at some time");
        self.now = f64::from_bits(at);
        if self.shape.blocks_max.is_some_and(|most| self.blocks() >= most) {
            return Step::Refused;
        }
        let node = self.leaves[leaf as usize].node as usize;
        if !self.has_nodes && self.nodes[0].len() == self.shape.root_entries() {
            // The root's entries move to a node of their own below it.
            self.has_nodes = true;
        }
        if self.has_nodes && self.nodes[node].len() >= self.shape.node_entries() {
            if self.nodes.len() == self.shape.root_entries() {
                return Step::Refused;
            }
            self.split_node(node);
        }
        self.split(leaf);
        Step::Split
    }

    /// Moves the upper half of a node's leaves to a new node.
    fn split_node(&mut self, node: usize) {
        let half = self.nodes[node].len() / 2;
        let upper = self.nodes[node].split_off(half);
        for leaf in &upper {
            self.leaves[*leaf as usize].node = self.nodes.len() as u32;
        }
        self.nodes.push(upper);
    }

    /// Splits a leaf that overflows, and puts the name that did not fit into one of the halves.
    fn split(&mut self, leaf: u32) {
        let at = leaf as usize;
        let (full, width, refused) =
            (self.leaves[at].full, self.leaves[at].width, self.leaves[at].refused_bytes);
        let moved = self.moved(full);
        let kept = Held { names: full.names - moved.names, bytes: full.bytes - moved.bytes };
        // The boundary is the hash of the first name that moves, counted among the uniform hashes in order. A name at the
        // interval's beginning is not random and does not count.
        let before = kept.names + u32::from(!self.leaves[at].begins_with_name);
        let shapes = (f64::from(before.max(1)), f64::from(moved.names.max(1)));
        let boundary = Beta::new(shapes.0, shapes.1).expect("positive shapes").sample(&mut self.rng);
        let (mut lower, mut upper) = (kept, moved);
        let gets = if self.rng.random::<f64>() < boundary { &mut lower } else { &mut upper };
        *gets = Held { names: gets.names + 1, bytes: gets.bytes + refused };
        let node = self.leaves[at].node;
        let new = self.leaves.len();
        (self.leaves[at].held, self.leaves[at].width) = (lower, width * boundary);
        let old = self.leaves[at].clone();
        self.leaves.push(Leaf {
            begins_at: old.begins_at + width * boundary,
            width: width * (1.0 - boundary),
            held: upper,
            begins_with_name: true,
            ..old
        });
        let order = &mut self.nodes[node as usize];
        let place = order.partition_point(|one| self.leaves[*one as usize].begins_at <= old.begins_at);
        order.insert(place, new as u32);
        let leaf_bytes = self.shape.leaf_bytes();
        self.arm(at, leaf_bytes);
        self.arm(new, leaf_bytes);
    }

    /// What moves when a leaf is split: the names with the largest hashes, until half a block of them has moved. The name
    /// that crosses the middle moves if more than half of it is on the near side.
    fn moved(&mut self, full: Held) -> Held {
        let half = self.shape.block_bytes / 2;
        let mut moved = Held::default();
        while moved.names + 1 < full.names {
            let bytes = self.records.draw(&mut self.rng).min(full.bytes - moved.bytes);
            if moved.bytes + bytes / 2 > half {
                break;
            }
            moved = Held { names: moved.names + 1, bytes: moved.bytes + bytes };
        }
        moved
    }
}

/// How many of `count` happen when each happens with this probability.
fn binomial(rng: &mut Xoshiro256PlusPlus, count: u32, probability: f64) -> u32 {
    Binomial::new(u64::from(count), probability).map_or(count, |binomial| binomial.sample(rng) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Shape = Shape { block_bytes: 1024, checksums: true, blocks_max: None };

    fn names(records: &Records, seeds: std::ops::Range<u64>) -> Vec<f64> {
        seeds.map(|seed| Tree::new(SMALL, records.clone(), seed).names_until_refused()).collect()
    }

    fn mean(of: &[f64]) -> f64 {
        of.iter().sum::<f64>() / of.len() as f64
    }

    /// The same tree with each name's hash, as the kernel has it.
    struct ByName {
        shape: Shape,
        leaves: Vec<Vec<u32>>,
        /// Per node: the lowest hash of each leaf, and the leaf.
        nodes: Vec<Vec<(u32, usize)>>,
        has_nodes: bool,
    }

    impl ByName {
        fn names_until_refused(shape: Shape, bytes: u32, seed: u64) -> f64 {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut tree =
                Self { shape, leaves: vec![Vec::new()], nodes: vec![vec![(0, 0)]], has_nodes: false };
            let mut names = 0;
            while tree.add(rng.random::<u32>() & !1, bytes) {
                names += 1;
            }
            f64::from(names)
        }

        fn add(&mut self, hash: u32, bytes: u32) -> bool {
            let mut node = self.nodes.partition_point(|node| node[0].0 <= hash).saturating_sub(1);
            let mut at = self.nodes[node].partition_point(|(low, _)| *low <= hash) - 1;
            let leaf = self.nodes[node][at].1;
            let room = match self.leaves.len() {
                1 => self.shape.first_leaf_bytes(),
                _ => self.shape.leaf_bytes(),
            };
            if (self.leaves[leaf].len() as u32 + 1) * bytes <= room {
                self.leaves[leaf].push(hash);
                return true;
            }
            self.has_nodes |= self.nodes[0].len() == self.shape.root_entries();
            if self.has_nodes && self.nodes[node].len() == self.shape.node_entries() {
                if self.nodes.len() == self.shape.root_entries() {
                    return false;
                }
                let half = self.nodes[node].len() / 2;
                let upper = self.nodes[node].split_off(half);
                self.nodes.insert(node + 1, upper);
                if at >= half {
                    (node, at) = (node + 1, at - half);
                }
            }
            self.leaves[leaf].sort_unstable();
            let count = self.leaves[leaf].len() as u32;
            let moved = (0..count)
                .take_while(|moved| moved * bytes + bytes / 2 <= self.shape.block_bytes / 2)
                .count();
            let mut upper = self.leaves[leaf].split_off(count as usize - moved);
            let boundary = upper[0];
            if hash < boundary {
                self.leaves[leaf].push(hash)
            } else {
                upper.push(hash)
            }
            self.nodes[node].insert(at + 1, (boundary, self.leaves.len()));
            self.leaves.push(upper);
            true
        }
    }

    #[test]
    fn from_split_to_split_the_tree_grows_as_it_does_name_by_name() {
        for bytes in [24, 48, 132] {
            let fast = names(&Records::Same(bytes), 0..60);
            let slow: Vec<f64> =
                (0..30).map(|seed| ByName::names_until_refused(SMALL, bytes, seed)).collect();
            let off = mean(&fast) / mean(&slow) - 1.0;
            assert!(off.abs() < 0.02, "{bytes}: {off:.4}, {} and {}", mean(&fast), mean(&slow));
        }
    }

    #[test]
    fn names_of_mixed_lengths_hold_about_as_many_as_names_of_their_mean_length() {
        let mixed = Records::of(&[24, 48, 36, 36]).unwrap();
        assert!((mixed.mean_bytes() - 36.0).abs() < 1e-9);
        let (mixed, same) = (mean(&names(&mixed, 0..20)), mean(&names(&Records::Same(36), 0..20)));
        assert!((mixed / same - 1.0).abs() < 0.06, "{mixed} and {same}");
        assert_eq!(Records::of(&[]), None);
        assert_eq!(Records::of(&[12, 12]), Some(Records::Same(12)));
    }

    #[test]
    fn a_tree_that_is_continued_from_its_blocks_ends_where_it_would_have() {
        let whole = mean(&names(&Records::Same(24), 0..40));
        let continued: Vec<f64> = (100..140)
            .map(|seed| {
                let mut tree = Tree::new(SMALL, Records::Same(24), seed);
                assert!(tree.grow_to_blocks(4000));
                // A node may have been added with the leaf.
                assert!((4000..=4001).contains(&tree.blocks()), "{}", tree.blocks());
                let names = tree.now;
                tree.with_names(names);
                tree.names_until_refused()
            })
            .collect();
        let off = mean(&continued) / whole - 1.0;
        assert!(off.abs() < 0.02, "{off:.4}");
    }

    #[test]
    fn where_names_were_removed_the_leaves_take_them_again_before_more_blocks_are_needed() {
        let mut tree = Tree::new(SMALL, Records::Same(24), 1);
        assert!(tree.grow_to_blocks(4000));
        let before = tree.now;
        tree.with_names(before / 4.0);
        let refused = tree.names_until_refused();
        let whole = mean(&names(&Records::Same(24), 0..20));
        assert!(refused > whole * 0.7 && refused < whole * 1.05, "{refused} and {whole}");
        let mut small = Tree::new(SMALL, Records::Same(24), 2);
        assert!(!small.grow_to_blocks(20_000), "it refuses a name at some 9,000");
        let limited = Shape { blocks_max: Some(100), ..SMALL };
        let mut limited = Tree::new(limited, Records::Same(24), 2);
        let names = limited.names_until_refused();
        assert!(limited.blocks() == 100 && (2000.0..4300.0).contains(&names), "{names}");
    }
}
