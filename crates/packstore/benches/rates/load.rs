//! The objects: lengths of a law, bodies cut from random bytes, keys as URLs.

use std::io::Read as _;

use flate2::read::GzDecoder;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

/// What is put.
pub struct Load {
    pub name: String,
    pub lens: Vec<usize>,
    bytes: Vec<u8>,
}

/// Longer ones are put as this: they are cut in pieces by the store anyway.
const LEN_MAX: usize = 1 << 20;

impl Load {
    /// Lengths of a lognormal law with this mean, as web servers' are.
    pub fn lognormal(objects: usize, mean: f64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let sigma = 1.2_f64;
        let mu = mean.ln() - sigma * sigma / 2.0;
        let lens = (0..objects).map(|_| {
            // Twelve uniform numbers make a normal one, near enough.
            let normal = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
            ((mu + sigma * normal).exp() as usize).clamp(16, LEN_MAX)
        });
        let lens = lens.collect();
        Self::of("lognormal", lens)
    }

    /// Lengths as those of a production cache's histogram, which `testdata/cdn-sizes` has.
    pub fn cdn(objects: usize) -> Self {
        let packed = include_bytes!("../../testdata/cdn-sizes/sizes.json.gz");
        let mut text = String::new();
        GzDecoder::new(&packed[..]).read_to_string(&mut text).expect("gzip of a text");
        let list = |name| numbers(&text, name).unwrap_or_else(|| panic!("no list of numbers {name}"));
        let (counts, lens) = (list("valSizeRangeProbability"), list("valSizeRange"));
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let upto = counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        let upto = upto.collect::<Vec<_>>();
        let drawn = (0..objects).map(|_| {
            let draw = random.random_range(0..*upto.last().expect("it has some"));
            let at = upto.partition_point(|&sum| sum <= draw);
            (lens[at.min(lens.len() - 1)] as usize).clamp(16, LEN_MAX)
        });
        let drawn = drawn.collect();
        Self::of("cdn", drawn)
    }

    fn of(law: &str, lens: Vec<usize>) -> Self {
        let mut bytes = vec![0; 2 * LEN_MAX];
        Xoshiro256PlusPlus::seed_from_u64(9).fill_bytes(&mut bytes);
        let mean = lens.iter().sum::<usize>() / lens.len().max(1);
        Self { name: format!("{law}, {mean} B on average"), lens, bytes }
    }

    pub fn count(&self) -> usize {
        self.lens.len()
    }

    pub fn body(&self, at: usize) -> &[u8] {
        let at = at % self.lens.len();
        &self.bytes[at * 64 % LEN_MAX..][..self.lens[at]]
    }

    pub fn total_bytes(&self) -> u64 {
        self.lens.iter().map(|&len| len as u64).sum()
    }

    pub fn mean_bytes(&self) -> u32 {
        (self.total_bytes() / self.lens.len().max(1) as u64) as u32
    }

    /// All of them, in an order that no peer can foresee.
    pub fn shuffled(&self) -> Vec<usize> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(8);
        let mut order = (0..self.count()).collect::<Vec<_>>();
        for at in (1..order.len()).rev() {
            order.swap(at, random.random_range(0..=at));
        }
        order
    }
}

pub fn key(at: usize) -> String {
    format!("http://www.example.org/objects/{at:09}.html")
}

/// The list of this name in a JSON object of lists of numbers.
fn numbers(text: &str, name: &str) -> Option<Vec<u64>> {
    let rest = &text[text.find(&format!("\"{name}\""))?..];
    let list = &rest[rest.find('[')? + 1..];
    list[..list.find(']')?].split(',').map(|number| number.trim().parse().ok()).collect()
}
