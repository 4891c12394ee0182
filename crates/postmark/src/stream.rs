//! One file's bytes to and from storage: in the very calls that stdio makes, or one call a block.
//!
//! ```text
//! blocks of 700:   |  700  |  700  |  700  |  700  |  700  |  700  |  700  |  700  |
//! calls, 4096:     |                    4096                    |       1504       |
//! ```
//!
//! stdio copies blocks into its buffer and hands full buffers over; of a block larger than what the buffer can
//! take, whole buffers go past it. What is written here lies in one piece already, so that the same calls are made
//! straight from it: nothing is copied, nothing allocated per file.
//!
//! Always holds: on a local file system the calls and their sizes are those of the GNU C library's `fwrite` and
//! `fread`, whose buffer is of `st_blksize` but never above 8192 bytes. Elsewhere nothing below us gathers small
//! calls, and the buffer is as large as the storage asks for.

use std::num::NonZeroU32;

use files::{FsError, OpenFile, SyncScope};

/// The largest buffer that the GNU C library gives a file by itself (its `BUFSIZ`).
pub(crate) const STDIO_BUFFER_BYTES_MAX: usize = 8192;

/// How one run moves bytes; used for one file after the other.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) buffered: bool,
    pub(crate) read_block: NonZeroU32,
    pub(crate) write_block: NonZeroU32,
    /// After each call that writes.
    pub(crate) sync_writes: bool,
    landing: Vec<u8>,
}

/// Why bytes did not move.
pub(crate) enum StreamError {
    Storage(FsError),
    /// A write that wrote no bytes and returned no error.
    NothingWritten,
    /// The file ended early.
    Shortened {
        read_bytes: u64,
    },
}

impl From<FsError> for StreamError {
    fn from(error: FsError) -> Self {
        Self::Storage(error)
    }
}

impl Stream {
    pub(crate) fn new(
        buffered: bool,
        read_block: NonZeroU32,
        write_block: NonZeroU32,
        sync_writes: bool,
    ) -> Self {
        Self { buffered, read_block, write_block, sync_writes, landing: Vec::new() }
    }

    /// Writes `bytes` at the file's cursor, through a buffer of no more than `buffer_bytes_max`.
    pub(crate) fn write(
        &mut self,
        file: &mut dyn OpenFile,
        bytes: &[u8],
        buffer_bytes_max: usize,
    ) -> Result<(), StreamError> {
        let block = self.write_block.get() as usize;
        if !self.buffered {
            return bytes.chunks(block).try_for_each(|chunk| self.write_whole(file, chunk));
        }
        let buffer = file.block_bytes()?.clamp(1, buffer_bytes_max);
        if block <= buffer {
            // Whatever blocks came, only full buffers and the rest at the end leave.
            return bytes.chunks(buffer).try_for_each(|chunk| self.write_whole(file, chunk));
        }
        let (mut taken, mut sent) = (0, 0);
        // Before the first block there is no buffer yet, which is as good as a full one with nothing in it.
        let mut room = 0;
        while taken < bytes.len() {
            let offered = block.min(bytes.len() - taken);
            if offered <= room {
                taken += offered;
                room -= offered;
                continue;
            }
            taken += room;
            self.write_whole(file, &bytes[sent..taken])?;
            let (past, kept) = ((offered - room) / buffer * buffer, (offered - room) % buffer);
            self.write_whole(file, &bytes[taken..taken + past])?;
            sent = taken + past;
            taken = sent + kept;
            room = buffer - kept;
        }
        self.write_whole(file, &bytes[sent..])
    }

    #[inline]
    fn write_whole(&self, file: &mut dyn OpenFile, mut bytes: &[u8]) -> Result<(), StreamError> {
        while !bytes.is_empty() {
            let written = file.write(bytes)?;
            if written == 0 {
                return Err(StreamError::NothingWritten);
            }
            if self.sync_writes {
                file.sync(SyncScope::All)?;
            }
            bytes = &bytes[written.min(bytes.len())..];
        }
        Ok(())
    }

    /// Reads the first `size_bytes` of a file, which must be there.
    pub(crate) fn read(
        &mut self,
        file: &mut dyn OpenFile,
        size_bytes: u32,
        buffer_bytes_max: usize,
    ) -> Result<(), StreamError> {
        let (block, size) = (self.read_block.get().min(size_bytes) as usize, size_bytes as usize);
        let buffer = if self.buffered { file.block_bytes()?.clamp(1, buffer_bytes_max) } else { 1 };
        let landing_bytes = block.max(buffer);
        if self.landing.len() < landing_bytes {
            self.landing.resize(landing_bytes, 0);
        }
        // Bytes that the buffer holds and no block has taken yet.
        let mut held = 0;
        let mut left = size;
        while left > 0 {
            let mut wanted = block.min(left);
            left -= wanted;
            while wanted > held {
                wanted -= held;
                held = 0;
                let past = wanted / buffer * buffer;
                let asked = if past > 0 { past } else { buffer };
                let got = file.read(&mut self.landing[..asked])?.min(asked);
                if got == 0 {
                    return Err(StreamError::Shortened { read_bytes: (size - left - wanted) as u64 });
                }
                if past > 0 {
                    wanted -= got;
                } else {
                    held = got;
                }
            }
            held -= wanted;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records the sizes of calls; its file is as long as its writes, or as given.
    struct Calls {
        sizes: Vec<usize>,
        left: usize,
        block_bytes: usize,
    }

    impl OpenFile for Calls {
        fn read(&mut self, buf: &mut [u8]) -> Result<usize, FsError> {
            self.sizes.push(buf.len());
            let got = buf.len().min(self.left);
            self.left -= got;
            Ok(got)
        }
        fn write(&mut self, bytes: &[u8]) -> Result<usize, FsError> {
            self.sizes.push(bytes.len());
            Ok(bytes.len())
        }
        fn seek_end(&mut self) -> Result<u64, FsError> {
            Ok(0)
        }
        fn seek(&mut self, _: u64) -> Result<(), FsError> {
            Ok(())
        }
        fn block_bytes(&mut self) -> Result<usize, FsError> {
            Ok(self.block_bytes)
        }
        fn sync(&mut self, _: SyncScope) -> Result<(), FsError> {
            Ok(())
        }
        fn close(self: Box<Self>) -> Result<(), FsError> {
            Ok(())
        }
    }

    fn stream(buffered: bool, block: u32) -> Stream {
        let block = NonZeroU32::new(block).unwrap();
        Stream::new(buffered, block, block, false)
    }

    fn writes(buffered: bool, block: u32, size: usize) -> Vec<usize> {
        let mut calls = Calls { sizes: vec![], left: 0, block_bytes: 4096 };
        assert!(stream(buffered, block).write(&mut calls, &vec![0; size], STDIO_BUFFER_BYTES_MAX).is_ok());
        calls.sizes
    }

    fn reads(buffered: bool, block: u32, size: u32) -> Vec<usize> {
        let mut calls = Calls { sizes: vec![], left: size as usize, block_bytes: 4096 };
        assert!(stream(buffered, block).read(&mut calls, size, STDIO_BUFFER_BYTES_MAX).is_ok());
        calls.sizes
    }

    // Sizes seen with strace on the original, on a file system with blocks of 4096.
    #[test]
    fn writes_leave_in_the_sizes_in_which_stdio_lets_them_leave() {
        assert_eq!(writes(true, 512, 8192), [4096, 4096]);
        assert_eq!(writes(true, 700, 11_244), [4096, 4096, 3052]);
        assert_eq!(writes(true, 5000, 28_421), [4096, 4096, 4096, 4096, 4096, 4096, 3845]);
        assert_eq!(writes(true, 10_000, 28_421), [8192, 4096, 4096, 4096, 4096, 3845]);
        assert_eq!(writes(true, 8192, 28_421), [8192, 4096, 4096, 4096, 4096, 3845]);
        assert_eq!(writes(true, 10_000, 451), [451]);
        assert_eq!(writes(false, 5000, 8898), [5000, 3898]);
    }

    #[test]
    fn reads_ask_for_the_sizes_that_stdio_asks_for() {
        assert_eq!(reads(true, 512, 8192), [4096, 4096]);
        assert_eq!(reads(true, 512, 8219), [4096, 4096, 4096]);
        assert_eq!(reads(true, 10_000, 28_872), [8192, 4096, 4096, 4096, 8192, 4096]);
        assert_eq!(reads(true, 10_000, 11_137), [8192, 4096]);
        assert_eq!(reads(true, 4096, 20_894), [4096; 6]);
        assert_eq!(reads(false, 3000, 8378), [3000, 3000, 2378]);
    }

    // On XFS mounted with allocsize=64k,largeio, whose st_blksize is 65536.
    #[test]
    fn large_blocks_of_the_storage_make_the_buffer_no_larger_than_stdio_s() {
        let mut calls = Calls { sizes: vec![], left: 50_000, block_bytes: 65_536 };
        assert!(stream(true, 512).read(&mut calls, 50_000, STDIO_BUFFER_BYTES_MAX).is_ok());
        assert_eq!(calls.sizes, [8192; 7]);
        let mut calls = Calls { sizes: vec![], left: 50_000, block_bytes: 65_536 };
        assert!(stream(true, 512).read(&mut calls, 50_000, usize::MAX).is_ok());
        assert_eq!(calls.sizes, [65_536]);
    }

    #[test]
    fn a_file_that_ends_early_is_told_and_not_waited_for() {
        let mut calls = Calls { sizes: vec![], left: 5000, block_bytes: 4096 };
        let read = stream(true, 512).read(&mut calls, 9000, STDIO_BUFFER_BYTES_MAX);
        assert!(matches!(read, Err(StreamError::Shortened { read_bytes: 5000 })));
    }
}
