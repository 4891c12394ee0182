//! What a store keeps of a file beside its bytes: kind, permissions and time, in the attributes of the object.
//!
//! ```text
//! | 0xF5 | kind 1 B | mode u16 | mtime: seconds i64, nanoseconds u32 | group u64 | tail |     little-endian, 24 bytes
//! ```
//!
//! The tail is empty for a file, `/` for a directory, and what a symbolic link holds: so the length of the attributes,
//! which a listing has, distinguishes files from the others without a read. `group` is the same for all names of one file and
//! for no other file.
//!
//! Always holds: what is not of this form is no fault; such an object is a plain file.
//! Not here: owners, extended attributes, devices: they are not kept.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// First byte of attributes of this form.
const MAGIC: u8 = 0xF5;
/// Length of a file's attributes.
pub(crate) const FILE_META_BYTES: usize = 24;

/// What kind of thing an object stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileType {
    /// A regular file: the body is its bytes.
    Regular,
    /// A directory that is there even when it is empty. No body.
    Directory,
    /// A symbolic link and what it holds. No body.
    Symlink(Vec<u8>),
}

/// What is kept of a file beside its bytes, as the attributes of its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMeta {
    /// What it is.
    pub kind: FileType,
    /// Permissions with set-id and sticky bits: the lower 12 bits.
    pub mode: u16,
    /// Last change of the content, seconds since 1970.
    pub mtime_s: i64,
    /// And nanoseconds, below one thousand million.
    pub mtime_ns: u32,
    /// The same for all names of one file; 0: not known.
    pub group: u64,
}

impl FileMeta {
    /// A new thing of this kind, changed now.
    pub fn new(kind: FileType, mode: u16) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self {
            kind,
            mode,
            mtime_s: now.as_secs() as i64,
            mtime_ns: now.subsec_nanos(),
            group: Self::fresh_group(),
        }
    }

    /// A number that no other file has.
    pub fn fresh_group() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // RandomState's keys differ for each process and each time, so that two processes do not meet.
        RandomState::new().hash_one(NEXT.fetch_add(1, Ordering::Relaxed)).max(1)
    }

    /// As attributes.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, tail): (u8, &[u8]) = match &self.kind {
            FileType::Regular => (1, b""),
            FileType::Directory => (2, b"/"),
            FileType::Symlink(target) => (3, target),
        };
        let mut bytes = vec![MAGIC, kind];
        bytes.extend_from_slice(&self.mode.to_le_bytes());
        bytes.extend_from_slice(&self.mtime_s.to_le_bytes());
        bytes.extend_from_slice(&self.mtime_ns.to_le_bytes());
        bytes.extend_from_slice(&self.group.to_le_bytes());
        debug_assert_eq!(bytes.len(), FILE_META_BYTES);
        bytes.extend_from_slice(tail);
        bytes
    }

    /// From attributes; `None` when they are not of this form.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, tail) = bytes.split_at_checked(FILE_META_BYTES)?;
        let kind = match (head[1], tail) {
            (1, b"") => FileType::Regular,
            (2, b"/") => FileType::Directory,
            (3, target) if !target.is_empty() => FileType::Symlink(target.to_vec()),
            _ => return None,
        };
        let mtime_ns = u32::from_le_bytes(head[12..16].try_into().ok()?);
        let meta = Self {
            kind,
            mode: u16::from_le_bytes(head[2..4].try_into().ok()?) & 0o7777,
            mtime_s: i64::from_le_bytes(head[4..12].try_into().ok()?),
            mtime_ns,
            group: u64::from_le_bytes(head[16..24].try_into().ok()?),
        };
        (head[0] == MAGIC && mtime_ns < 1_000_000_000).then_some(meta)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_kept_comes_back_and_kinds_differ_in_length() {
        let mut lengths = Vec::new();
        for kind in [FileType::Regular, FileType::Directory, FileType::Symlink(b"../a".to_vec())] {
            let meta = FileMeta { mtime_s: -5, ..FileMeta::new(kind, 0o4751) };
            lengths.push(meta.encode().len());
            assert_eq!(FileMeta::decode(&meta.encode()), Some(meta));
        }
        assert_eq!(lengths, [24, 25, 28]);
    }

    #[test]
    fn two_files_never_get_one_group() {
        let groups: std::collections::HashSet<u64> = (0..10_000).map(|_| FileMeta::fresh_group()).collect();
        assert_eq!(groups.len(), 10_000);
    }

    proptest! {
        #[test]
        fn no_attributes_of_strangers_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(meta) = FileMeta::decode(&bytes) {
                prop_assert_eq!(meta.encode(), bytes);
            }
        }

        #[test]
        fn none_of_ours_either(mut bytes in proptest::collection::vec(any::<u8>(), 24..30), kind in 0_u8..5) {
            (bytes[0], bytes[1]) = (MAGIC, kind);
            let _ = FileMeta::decode(&bytes);
        }
    }
}
