//! The table in a file, so that a restart need not read the whole index.
//!
//! ```text
//! | "CRUMBSIG" | version u32 | shards u32 | then for each shard: rings u32, and for each ring: |
//! | buckets u64 | objects u64 | words u64 ... |                      at the end: xxh3 of all before, u64
//! ```
//!
//! All numbers little-endian. Always holds: what is restored is what was written, or an error; a wrong file takes no
//! more memory than the caller allows.

use std::io::{self, Read, Write};
use std::sync::atomic::AtomicU64;

use xxhash_rust::xxh3::Xxh3;

use super::ring::{Ring, SLOTS_PER_BUCKET, is_empty};
use super::{FingerprintIndex, RINGS_MAX, SHARDS_MAX, Shard};

impl FingerprintIndex {
    /// Writes the table. Writers may go on: each object that stays is in it, one that comes or goes meanwhile perhaps.
    ///
    /// # Errors
    /// What the writer failed with.
    pub fn snapshot(&self, writer: &mut impl Write) -> io::Result<()> {
        let mut sum = Xxh3::new();
        let mut bytes = Vec::new();
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(self.shards.len() as u32).to_le_bytes());
        for shard in &self.shards {
            // Copied under the lock, written outside it.
            let used = shard.lock();
            bytes.extend_from_slice(&(shard.rings().count() as u32).to_le_bytes());
            for (ring, used) in shard.rings().zip(used.iter()) {
                bytes.extend_from_slice(&(ring.buckets() as u64).to_le_bytes());
                bytes.extend_from_slice(&(*used as u64).to_le_bytes());
                for word in ring.words() {
                    bytes.extend_from_slice(&word.to_le_bytes());
                }
            }
            drop(used);
            sum.update(&bytes);
            writer.write_all(&bytes)?;
            bytes.clear();
        }
        writer.write_all(&sum.digest().to_le_bytes())
    }

    /// The table that [`FingerprintIndex::snapshot`] wrote, of at most `memory_bytes_max`.
    ///
    /// # Errors
    /// `InvalidData` when it is not one, is damaged or larger; what the reader failed with.
    pub fn restore(reader: &mut impl Read, memory_bytes_max: usize) -> io::Result<Self> {
        let mut source = Source { reader, sum: Xxh3::new() };
        if &source.array::<8>()? != MAGIC {
            return Err(wrong("it does not begin as one"));
        }
        if source.u32()? != VERSION {
            return Err(wrong("it is of another version"));
        }
        let shards = source.u32()? as usize;
        if !shards.is_power_of_two() || shards > SHARDS_MAX {
            return Err(wrong("its number of shards cannot be"));
        }
        let mut room = memory_bytes_max as u64 / BUCKET_BYTES;
        let shards = (0..shards).map(|_| source.shard(&mut room)).collect::<io::Result<Box<[_]>>>()?;
        let sum = source.sum.digest();
        let mut stored = [0; 8];
        source.reader.read_exact(&mut stored)?;
        if u64::from_le_bytes(stored) != sum {
            return Err(wrong("its checksum is another"));
        }
        Ok(Self { shards, counts: false })
    }
}

/// Reads and sums.
struct Source<'a, R> {
    reader: &'a mut R,
    sum: Xxh3,
}

impl<R: Read> Source<'_, R> {
    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.reader.read_exact(bytes)?;
        self.sum.update(bytes);
        Ok(())
    }

    /// `room`: buckets that may still come.
    fn shard(&mut self, room: &mut u64) -> io::Result<Shard> {
        let count = self.u32()? as usize;
        if count == 0 || count > RINGS_MAX {
            return Err(wrong("its number of rings cannot be"));
        }
        let mut used = [0; RINGS_MAX];
        let mut rings = Vec::with_capacity(count);
        for used in &mut used[..count] {
            let buckets = self.u64()?;
            let objects = self.u64()?;
            *room =
                room.checked_sub(buckets).ok_or_else(|| wrong("it is larger than the store could need"))?;
            if buckets == 0 {
                return Err(wrong("a ring of it is empty"));
            }
            let mut bytes = vec![0; buckets as usize * BUCKET_BYTES as usize];
            self.fill(&mut bytes)?;
            let (words, _) = bytes.as_chunks::<8>();
            let (words, _) = words.as_chunks::<SLOTS_PER_BUCKET>();
            let words = || words.iter().map(|bucket| bucket.map(u64::from_le_bytes));
            let entry = words().flatten().filter(|&word| !is_empty(word)).count();
            rings.push(Ring::<AtomicU64>::of(words()));
            if entry as u64 != objects {
                return Err(wrong("it counts its objects wrong"));
            }
            *used = entry;
        }
        Ok(Shard::of(rings, used))
    }
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a table of signatures: {why}"))
}

const MAGIC: &[u8; 8] = b"CRUMBSIG";
const VERSION: u32 = 1;
const BUCKET_BYTES: u64 = 64;
