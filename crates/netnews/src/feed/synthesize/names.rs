//! Names made of syllables: words, hosts, people, groups with their weights.

use super::draw::{Draw, Purpose};
use super::model;

/// All names of a feed.
pub(super) struct Names {
    words: Vec<String>,
    hosts: Vec<String>,
    pub(super) groups: Groups,
}

const WORDS: usize = 4096;

impl Names {
    pub(super) fn new(seed: u64, groups: u32) -> Self {
        let mut draw = Draw::new(seed, Purpose::Names, 0);
        let words =
            (0..WORDS).map(|rank| word(&mut draw, if rank < 64 { 1 } else { 2 + rank % 3 })).collect();
        let hosts = (0..model::HOSTS)
            .map(|_| {
                let (machine, site) = (word(&mut draw, 1), word(&mut draw, 2));
                if draw.chance(0.4) { format!("{machine}.{site}.example") } else { format!("{site}.example") }
            })
            .collect();
        Self { words, hosts, groups: Groups::new(seed, groups) }
    }

    /// Frequent words are short.
    pub(super) fn word(&self, draw: &mut Draw) -> &str {
        &self.words[draw.rank(self.words.len())]
    }

    /// A host that news goes through; the first ones are in most paths.
    pub(super) fn relay(&self, draw: &mut Draw) -> &str {
        &self.hosts[draw.rank(self.hosts.len())]
    }

    /// A host that people post from.
    pub(super) fn home(&self, draw: &mut Draw) -> &str {
        &self.hosts[draw.below(self.hosts.len() as u64) as usize]
    }

    /// The one host in all paths: who sends this feed.
    pub(super) fn feeder(&self) -> &str {
        &self.hosts[0]
    }
}

/// Groups in the order of their hierarchies, each with its share of the articles.
pub(super) struct Groups {
    names: Vec<String>,
    /// Sum of the weights before each, one entry more than there are groups.
    before: Vec<f64>,
    /// First group of each hierarchy, one entry more than there are hierarchies.
    starts: Vec<usize>,
}

impl Groups {
    fn new(seed: u64, count: u32) -> Self {
        let count = count as usize;
        let mut draw = Draw::new(seed, Purpose::Groups, 0);
        // Sizes at even distances of the law, shuffled: every seed gives the same law, none a freak.
        let mut weights: Vec<f64> = (0..count)
            .map(|at| (model::GROUP_SIGMA * inverse_normal((at as f64 + 0.5) / count as f64)).exp())
            .collect();
        for at in (1..count).rev() {
            weights.swap(at, draw.below(at as u64 + 1) as usize);
        }
        let (mut names, mut starts) = (Vec::with_capacity(count), vec![0]);
        let mut taken = std::collections::HashSet::new();
        let mut share = 0.0;
        for (at, (hierarchy, part)) in model::HIERARCHIES.iter().enumerate() {
            share += part;
            let last = at + 1 == model::HIERARCHIES.len();
            let end = if last { count } else { ((share * count as f64).round() as usize).min(count) };
            while names.len() < end {
                // N93: of the names half have two parts, a third three, a fifth four.
                let parts = [1, 1, 1, 2, 2, 3][draw.below(6) as usize];
                let mut name = (*hierarchy).to_owned();
                for _ in 0..parts {
                    name.push('.');
                    let syllables = 1 + draw.below(3) as usize;
                    name.push_str(&word(&mut draw, syllables));
                }
                // Short names run out in large feeds.
                while !taken.insert(name.clone()) {
                    name.push('-');
                    name.push_str(&syllable(&mut draw));
                }
                names.push(name);
            }
            starts.push(names.len());
        }
        let mut before = Vec::with_capacity(count + 1);
        let mut sum = 0.0;
        before.push(sum);
        for weight in weights {
            sum += weight;
            before.push(sum);
        }
        Self { names, before, starts }
    }

    pub(super) fn count(&self) -> usize {
        self.names.len()
    }

    pub(super) fn name(&self, group: usize) -> &str {
        &self.names[group]
    }

    /// Groups of the hierarchy that `group` is in.
    pub(super) fn kin(&self, group: usize) -> std::ops::Range<usize> {
        let hierarchy = self.starts.partition_point(|start| *start <= group) - 1;
        self.starts[hierarchy]..self.starts[hierarchy + 1]
    }

    pub(super) fn binaries(&self) -> std::ops::Range<usize> {
        self.starts[model::BINARY_HIERARCHY]..self.starts[model::BINARY_HIERARCHY + 1]
    }

    /// One of `range` by weight.
    pub(super) fn draw(&self, draw: &mut Draw, range: std::ops::Range<usize>) -> usize {
        let (low, high) = (self.before[range.start], self.before[range.end]);
        let at = low + draw.unit() * (high - low);
        let within = &self.before[range.start + 1..range.end];
        range.start + within.partition_point(|before| *before <= at)
    }

    /// Share of the weight that each group has.
    pub(super) fn shares(&self) -> impl Iterator<Item = f64> + '_ {
        let total = self.before[self.names.len()];
        self.before.windows(2).map(move |two| (two[1] - two[0]) / total)
    }
}

fn word(draw: &mut Draw, syllables: usize) -> String {
    let mut word: String = (0..syllables).map(|_| syllable(draw)).collect();
    if draw.chance(0.4) {
        word.push(b"nrslmt"[draw.below(6) as usize].into());
    }
    word
}

fn syllable(draw: &mut Draw) -> String {
    const HEADS: &[&str] = &[
        "b", "br", "d", "dr", "f", "g", "gl", "h", "k", "kl", "l", "m", "n", "p", "pr", "r", "s", "st", "t",
        "tr", "v", "z",
    ];
    const TAILS: &[&str] = &["a", "e", "i", "o", "u", "ae", "ei", "ou", "an", "el", "or"];
    let head = HEADS[draw.below(HEADS.len() as u64) as usize];
    format!("{head}{}", TAILS[draw.below(TAILS.len() as u64) as usize])
}

/// The standard normal's quantile, within 0.0005: a rational approximation (Hastings, 26.2.23 in Abramowitz, Stegun).
fn inverse_normal(share: f64) -> f64 {
    let tail = share.min(1.0 - share);
    let t = (-2.0 * tail.ln()).sqrt();
    let z = t
        - (2.515_517 + t * (0.802_853 + t * 0.010_328))
            / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)));
    if share < 0.5 { -z } else { z }
}
