//! Picks one of millions of objects with probability proportional to its weight, and lets weights change.
//!
//! ```text
//! level 1   [ s0 s0+s1 ... s0+...+s7 ]                     one cache line: running sums of 8 entries, u64
//! level 0   [ s s s s s s s s ][ s s s s s s s s ] ...     each entry stands for one line of weights
//! weights   [ w w w w w w w w w w w w w w w w ] ...        one cache line of 16 u32 weights
//! ```
//!
//! The paper keeps a binary heap whose entries hold a weight and the sum of their subtree. Same idea, other
//! shape: one choice reads a line a level, and with 8 or 16 ways a level there are 8 levels for 10 million
//! objects instead of 23, of which all but the lowest few stay in the processor's cache. Running sums instead
//! of sums let the way down be found by counting those not above the point, without a branch to mispredict.
//! It also costs 4.6 bytes an object instead of 16. What is left is waiting for memory, so several choices are made
//! at once (`select_many`). `cargo bench -p fstress --bench object_sets` measures both; docs/design/fstress.md has
//! the figures.
//!
//! Always holds: a slot never moves; every sum is exactly that of the weights below it (integers, so no drift);
//! a free slot weighs zero; growing adds lines and levels and copies no existing one.
//! Not here: what the slots stand for, and which are free (see `objects`).
//! Source: Anderson, "Fstress", section 4.1 (the "sparse heap").

use rand::Rng;

use super::chunks::Chunks;

/// Weight of an object as popular as the least popular one of a Zipf law. Weights are integers; this many
/// units to 1.0 keep rounding below 1% and still leave room for objects 67 million times as popular.
pub const WEIGHT_ONE: u32 = 64;

const LEAF_WIDTH: usize = 16;
const NODE_WIDTH: usize = 8;
const LEAVES_PER_CHUNK: usize = 1024;
const NODES_PER_CHUNK: usize = 1024;

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Leaf([u32; LEAF_WIDTH]);

impl Leaf {
    /// The way in whose weight `point` falls.
    // No branch here or below depends on the point: a mispredicted one would cost more than the comparisons
    // saved, and would keep the next choice from starting.
    #[inline]
    fn step(&self, point: u64) -> usize {
        let mut way = 0;
        let mut sum = 0;
        for weight in &self.0[..LEAF_WIDTH - 1] {
            sum += u64::from(*weight);
            way += usize::from(sum <= point);
        }
        way
    }
}

/// Running sums: the last one is the sum of the node.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Node([u64; NODE_WIDTH]);

impl Node {
    /// The way in whose sum `point` falls; takes from `point` what lies before it.
    #[inline]
    fn step(&self, point: &mut u64) -> usize {
        let mut way = 0;
        let mut before = 0;
        for sum in &self.0[..NODE_WIDTH - 1] {
            way += usize::from(*sum <= *point);
            before = if *sum <= *point { *sum } else { before };
        }
        *point -= before;
        way
    }
}

/// Brings the cache lines of several choices in, by a word of each: loads that do not depend on each other overlap, which
/// they do not within the long steps.
#[inline]
pub(crate) fn touch<T, const N: usize>(first_words: [T; N]) {
    std::hint::black_box(first_words);
}

/// Slots with weights, numbered from 0. See the head of this file.
#[derive(Default)]
pub struct WeightTree {
    slots: usize,
    total: u64,
    leaves: Chunks<Leaf, LEAVES_PER_CHUNK>,
    // The last level has exactly one node, unless there are no slots at all.
    levels: Vec<Chunks<Node, NODES_PER_CHUNK>>,
}

impl WeightTree {
    /// A tree without slots.
    pub fn new() -> Self {
        Self::default()
    }

    /// Slots there are, of weight zero or not.
    pub fn len(&self) -> usize {
        self.slots
    }

    /// Whether there are no slots.
    pub fn is_empty(&self) -> bool {
        self.slots == 0
    }

    /// Sum of all weights.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Weight of a slot.
    #[inline]
    pub fn weight(&self, slot: u32) -> u32 {
        let slot = self.checked(slot);
        self.leaves[slot / LEAF_WIDTH].0[slot % LEAF_WIDTH]
    }

    /// Adds a slot of this weight at the end and returns its number.
    pub fn push(&mut self, weight: u32) -> u32 {
        let slot = u32::try_from(self.slots).expect("object sets hold at most 4 billion objects");
        let mut entries = self.slots / LEAF_WIDTH + 1;
        if entries > self.leaves.len() {
            self.leaves.push(Leaf::default());
            for level in &mut self.levels {
                entries = entries.div_ceil(NODE_WIDTH);
                if entries > level.len() {
                    level.push(Node::default());
                }
            }
            if self.levels.last().is_none_or(|top| top.len() > 1) {
                self.add_level();
            }
        }
        self.slots += 1;
        self.set(slot, weight);
        slot
    }

    // What is there already is the first entry of the new top; what was just added below weighs nothing yet.
    fn add_level(&mut self) {
        let mut level = Chunks::default();
        level.push(Node([self.total; NODE_WIDTH]));
        self.levels.push(level);
    }

    /// Changes the weight of a slot.
    #[inline]
    pub fn set(&mut self, slot: u32, weight: u32) {
        let slot = self.checked(slot);
        let leaf = &mut self.leaves[slot / LEAF_WIDTH].0[slot % LEAF_WIDTH];
        // Sums are exact modulo 2^64, so a negative change may wrap on its way.
        let change = u64::from(weight).wrapping_sub(u64::from(*leaf));
        if change == 0 {
            return;
        }
        *leaf = weight;
        self.total = self.total.wrapping_add(change);
        let mut entry = slot / LEAF_WIDTH;
        for level in &mut self.levels {
            let sums = &mut level[entry / NODE_WIDTH].0;
            for (way, sum) in sums.iter_mut().enumerate() {
                *sum = sum.wrapping_add(if way >= entry % NODE_WIDTH { change } else { 0 });
            }
            entry /= NODE_WIDTH;
        }
    }

    /// Picks a slot with probability weight/total; `None` if all weights are zero.
    #[inline]
    pub fn select(&self, rng: &mut impl Rng) -> Option<u32> {
        if self.total == 0 {
            return None;
        }
        self.at(self.random_point(rng))
    }

    /// The high half of a 128-bit product is uniform below `total` up to a bias of total/2^64.
    #[inline]
    fn random_point(&self, rng: &mut impl Rng) -> u64 {
        ((u128::from(rng.next_u64()) * u128::from(self.total)) >> 64) as u64
    }

    /// Picks `N` slots at once, each as [`Self::select`] does; `None` if all weights are zero.
    ///
    /// With millions of slots a choice mostly waits for memory, level after level. Here all choices go down
    /// together and wait together, which makes each two to three times as fast at ten million slots.
    pub fn select_many<const N: usize>(&self, rng: &mut impl Rng) -> Option<[u32; N]> {
        if self.total == 0 {
            return None;
        }
        let mut points = [0; N];
        let mut entries = [0; N];
        for point in &mut points {
            *point = self.random_point(rng);
        }
        for level in self.levels.iter().rev() {
            touch(entries.map(|entry| level[entry].0[0]));
            for (entry, point) in entries.iter_mut().zip(&mut points) {
                *entry = *entry * NODE_WIDTH + level[*entry].step(point);
            }
        }
        touch(entries.map(|entry| self.leaves[entry].0[0]));
        let mut slots = [0; N];
        for ((slot, entry), point) in slots.iter_mut().zip(entries).zip(points) {
            *slot = (entry * LEAF_WIDTH + self.leaves[entry].step(point)) as u32;
        }
        Some(slots)
    }

    /// The slot in whose weight `point` falls when all weights are laid end to end.
    #[inline]
    pub fn at(&self, mut point: u64) -> Option<u32> {
        if point >= self.total {
            return None;
        }
        let mut entry = 0;
        for level in self.levels.iter().rev() {
            entry = entry * NODE_WIDTH + level[entry].step(&mut point);
        }
        Some((entry * LEAF_WIDTH + self.leaves[entry].step(point)) as u32)
    }

    /// Heap memory held, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.leaves.heap_bytes() + self.levels.iter().map(Chunks::heap_bytes).sum::<usize>()
    }

    #[inline]
    fn checked(&self, slot: u32) -> usize {
        let slot = slot as usize;
        assert!(slot < self.slots, "slot {slot} of a weight tree of {} slots", self.slots);
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recomputes every sum from the weights.
    fn assert_exact(tree: &WeightTree) {
        let mut below: Vec<u64> = (0..tree.leaves.len())
            .map(|line| tree.leaves[line].0.iter().copied().map(u64::from).sum())
            .collect();
        for level in &tree.levels {
            let mut running = 0;
            for entry in 0..level.len() * NODE_WIDTH {
                running = if entry % NODE_WIDTH == 0 { 0 } else { running } + below.get(entry).unwrap_or(&0);
                assert_eq!(level[entry / NODE_WIDTH].0[entry % NODE_WIDTH], running);
            }
            below = (0..level.len()).map(|node| level[node].0[NODE_WIDTH - 1]).collect();
        }
        assert_eq!(below.iter().sum::<u64>(), tree.total);
        assert!(below.len() <= 1, "the top level has {} nodes", below.len());
    }

    #[test]
    fn growing_through_every_new_level_keeps_all_sums_exact() {
        let mut tree = WeightTree::new();
        assert_exact(&tree);
        for slot in 0..16 * 8 * 8 * 8 * 2 + 1u32 {
            assert_eq!(tree.push(slot % 7 + 1), slot);
            if slot.is_power_of_two() || (slot + 1).is_power_of_two() || slot % 1009 == 0 {
                assert_exact(&tree);
            }
        }
        assert_eq!(tree.levels.len(), 4);
    }

    #[test]
    fn every_point_of_the_total_falls_into_the_slot_it_belongs_to() {
        let mut tree = WeightTree::new();
        for slot in 0..300u32 {
            tree.push([0, 3, 0, 0, 1, 2][slot as usize % 6]);
        }
        let mut point = 0;
        for slot in 0..300 {
            for _ in 0..tree.weight(slot) {
                assert_eq!(tree.at(point), Some(slot));
                point += 1;
            }
        }
        assert_eq!(point, tree.total());
        assert_eq!(tree.at(point), None);
    }

    #[test]
    fn weights_of_the_largest_size_do_not_overflow_the_sums() {
        let mut tree = WeightTree::new();
        for _ in 0..1000 {
            tree.push(u32::MAX);
        }
        assert_eq!(tree.total(), 1000 * u64::from(u32::MAX));
        assert_eq!(tree.at(tree.total() - 1), Some(999));
        for slot in 0..1000 {
            tree.set(slot, 0);
        }
        assert_eq!(tree.total(), 0);
        assert_exact(&tree);
    }
}
