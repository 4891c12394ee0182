//! Bodies: slices of pools of lines that are generated once, so that writing a feed is as fast as copying memory.
//!
//! Two bodies may share lines by chance. Deduplicating storage would find few equal blocks, because slices begin and
//! end anywhere.

use super::draw::{Draw, Purpose};
use super::model;
use super::names::Names;

/// Lines one after another.
pub(super) struct Pool {
    bytes: Vec<u8>,
    /// Where lines begin, and the end.
    starts: Vec<u32>,
}

const TEXT_POOL_BYTES: usize = 4 << 20;
const BINARY_POOL_BYTES: usize = 2 << 20;

impl Pool {
    /// What people write: paragraphs, and quotes of others.
    pub(super) fn text(seed: u64, names: &Names) -> Self {
        let mut draw = Draw::new(seed, Purpose::Text, 0);
        let mut pool = Self::empty(TEXT_POOL_BYTES);
        while pool.bytes.len() < TEXT_POOL_BYTES {
            let quoted = draw.chance(0.3);
            for _ in 0..1 + draw.below(9) {
                let from = pool.bytes.len();
                if quoted {
                    pool.bytes.extend_from_slice(b"> ");
                }
                // N93: most lines are full, the last of a paragraph, names and greetings are short.
                let full = if draw.chance(0.72) { 60 + draw.below(16) } else { 4 + draw.below(52) };
                while pool.bytes.len() - from < full as usize {
                    pool.bytes.extend_from_slice(names.word(&mut draw).as_bytes());
                    pool.bytes.push(b' ');
                }
                pool.bytes.pop();
                pool.end_line();
            }
            let empty_lines = (draw.unit() + 5.0 * model::EMPTY_LINES / (1.0 - model::EMPTY_LINES)) as usize;
            (0..empty_lines).for_each(|_| pool.end_line());
        }
        pool
    }

    /// What encoded binaries look like: 61 characters a line, with no more sense than compressed data have.
    pub(super) fn binary(seed: u64) -> Self {
        let mut draw = Draw::new(seed, Purpose::Text, 1);
        let mut pool = Self::empty(BINARY_POOL_BYTES);
        while pool.bytes.len() < BINARY_POOL_BYTES {
            pool.bytes.push(b'M');
            for _ in 0..6 {
                let mut bits = draw.bits();
                for _ in 0..10 {
                    pool.bytes.push(b'!' + (bits & 63) as u8);
                    bits >>= 6;
                }
            }
            pool.end_line();
        }
        pool
    }

    /// Adds exactly `bytes` of whole lines (the last one cut to fit) to `out`; how many lines.
    pub(super) fn write(&self, draw: &mut Draw, bytes: usize, out: &mut Vec<u8>) -> u64 {
        let (mut left, mut lines) = (bytes, 0);
        while left > 0 {
            let line = draw.below(self.starts.len() as u64 - 1) as usize;
            let from = self.starts[line] as usize;
            let to = (from + left).min(self.bytes.len());
            out.extend_from_slice(&self.bytes[from..to]);
            left -= to - from;
            lines += (self.starts.partition_point(|start| (*start as usize) < to) - line) as u64;
        }
        if bytes > 0 {
            let last = out.len() - 1;
            out[last] = b'\n';
        }
        lines
    }

    fn empty(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes + 1024), starts: vec![0] }
    }

    fn end_line(&mut self) {
        self.bytes.push(b'\n');
        self.starts.push(self.bytes.len() as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_the_bytes_asked_for_and_the_lines_told() {
        let pool = Pool::text(1, &Names::new(1, 100));
        let mut draw = Draw::new(1, Purpose::Text, 9);
        for bytes in [0, 1, 2, 77, 5_000, TEXT_POOL_BYTES + 99] {
            let mut out = vec![];
            let lines = pool.write(&mut draw, bytes, &mut out);
            assert_eq!(out.len(), bytes);
            assert_eq!(out.iter().filter(|byte| **byte == b'\n').count() as u64, lines, "{bytes} bytes");
            assert!(out.is_empty() || out.ends_with(b"\n"));
        }
    }
}
