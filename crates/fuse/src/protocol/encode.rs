//! Replies: results as the kernel reads them.

use std::time::Duration;

use super::values::to_seconds;
use super::{
    FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, InitFlags, MAJOR, MINOR,
    OUT_HEADER_BYTES,
};

/// `struct fuse_entry_out`.
pub(crate) const ENTRY_BYTES: usize = 128;
/// `struct fuse_entry_out` and `struct fuse_open_out`.
pub(crate) const CREATE_BYTES: usize = ENTRY_BYTES + OPEN_BYTES;
const OPEN_BYTES: usize = 16;
const ATTRIBUTES_BYTES: usize = 88;
/// `struct fuse_dirent` without its name.
pub(crate) const DIRENT_BYTES: usize = 24;

/// Fields, one after the other; together they are as long as the structure.
struct Encoded<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Encoded<N> {
    fn new() -> Self {
        Self { bytes: [0; N], at: 0 }
    }

    fn put(mut self, field: &[u8]) -> Self {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
        self
    }

    fn u16(self, value: u16) -> Self {
        self.put(&value.to_ne_bytes())
    }

    fn u32(self, value: u32) -> Self {
        self.put(&value.to_ne_bytes())
    }

    fn u64(self, value: u64) -> Self {
        self.put(&value.to_ne_bytes())
    }

    /// What is not filled in is zero.
    fn end(self) -> [u8; N] {
        self.bytes
    }
}

/// `struct fuse_out_header`; the error is 0 or a number below it.
pub(crate) fn out_header(unique: u64, error: i32, bytes: usize) -> [u8; OUT_HEADER_BYTES] {
    let length = u32::try_from(OUT_HEADER_BYTES + bytes).expect("a reply has less than 4 GiB");
    Encoded::new().u32(length).u32(error as u32).u64(unique).end()
}

/// `struct fuse_init_out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub flags: InitFlags,
    pub max_readahead: u32,
    pub max_background: u16,
    pub congestion_threshold: u16,
    pub max_write: u32,
    pub max_pages: u16,
    pub max_stack_depth: u32,
}

impl Agreed {
    /// The version alone counts.
    pub fn nothing() -> Self {
        Self {
            flags: InitFlags::empty(),
            max_readahead: 0,
            max_background: 0,
            congestion_threshold: 0,
            max_write: 0,
            max_pages: 0,
            max_stack_depth: 0,
        }
    }
}

pub(crate) fn init(agreed: &Agreed) -> [u8; 64] {
    const NANOSECONDS: u32 = 1;
    let flags = agreed.flags.bits();
    let encoded = Encoded::new().u32(MAJOR).u32(MINOR).u32(agreed.max_readahead).u32(flags as u32);
    let encoded = encoded.u16(agreed.max_background).u16(agreed.congestion_threshold).u32(agreed.max_write);
    let encoded = encoded.u32(NANOSECONDS).u16(agreed.max_pages).u16(0).u32((flags >> 32) as u32);
    encoded.u32(agreed.max_stack_depth).end()
}

/// `struct fuse_attr`.
fn attr(attributes: &FileAttr) -> [u8; ATTRIBUTES_BYTES] {
    let [accessed, modified, changed] =
        [attributes.atime, attributes.mtime, attributes.ctime].map(to_seconds);
    let encoded = Encoded::new().u64(attributes.ino.0).u64(attributes.size).u64(attributes.blocks);
    let encoded = encoded.u64(accessed.0 as u64).u64(modified.0 as u64).u64(changed.0 as u64);
    let encoded = encoded.u32(accessed.1).u32(modified.1).u32(changed.1);
    let encoded = encoded.u32(attributes.kind.mode() | u32::from(attributes.perm)).u32(attributes.nlink);
    let encoded = encoded.u32(attributes.uid).u32(attributes.gid).u32(attributes.rdev);
    encoded.u32(attributes.blksize).end()
}

/// `struct fuse_attr_out`.
pub(crate) fn attributes(believed: Duration, attributes: &FileAttr) -> [u8; 16 + ATTRIBUTES_BYTES] {
    let encoded = Encoded::new().u64(believed.as_secs()).u32(believed.subsec_nanos()).u32(0);
    encoded.put(&attr(attributes)).end()
}

/// How long attributes and a name are believed, and what they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a> {
    pub attributes_for: Duration,
    pub name_for: Duration,
    pub attributes: &'a FileAttr,
    pub generation: Generation,
}

/// `struct fuse_entry_out`.
pub(crate) fn entry(entry: &Attributes<'_>) -> [u8; ENTRY_BYTES] {
    let Attributes { attributes_for, name_for, attributes, generation } = entry;
    let encoded = Encoded::new().u64(attributes.ino.0).u64(generation.0);
    let encoded = encoded.u64(name_for.as_secs()).u64(attributes_for.as_secs());
    let encoded = encoded.u32(name_for.subsec_nanos()).u32(attributes_for.subsec_nanos());
    encoded.put(&attr(attributes)).end()
}

/// `struct fuse_open_out`.
pub(crate) fn opened(handle: FileHandle, flags: FopenFlags, backing: u32) -> [u8; OPEN_BYTES] {
    Encoded::new().u64(handle.0).u32(flags.bits()).u32(backing).end()
}

/// The reply to CREATE.
pub(crate) fn created(made: &Attributes<'_>, open: [u8; OPEN_BYTES]) -> [u8; CREATE_BYTES] {
    Encoded::new().put(&entry(made)).put(&open).end()
}

/// `struct fuse_write_out`, `struct fuse_getxattr_out`.
pub(crate) fn number(value: u32) -> [u8; 8] {
    Encoded::new().u32(value).end()
}

/// `struct fuse_lseek_out`.
pub(crate) fn number_64(value: i64) -> [u8; 8] {
    value.to_ne_bytes()
}

/// `struct fuse_ioctl_out`.
pub(crate) fn ioctl(result: i32) -> [u8; 16] {
    Encoded::new().u32(result as u32).end()
}

/// `struct fuse_statfs_out`, with five counts (blocks, free, available, inodes, free inodes), the size of a block, the longest name,
/// and the size of a fragment.
pub(crate) fn statfs(counts: [u64; 5], sizes: [u32; 3]) -> [u8; 80] {
    let encoded = counts.into_iter().fold(Encoded::new(), Encoded::u64);
    sizes.into_iter().fold(encoded, Encoded::u32).end()
}

/// Adds a `struct fuse_dirent`, after `before` (a `struct fuse_entry_out`, where attributes are listed too). False where it would not
/// fit into `bytes_max`.
pub(crate) fn directory_entry(
    list: &mut Vec<u8>,
    bytes_max: usize,
    before: &[u8],
    (id, position, kind): (INodeNo, u64, FileType),
    name: &[u8],
) -> bool {
    let bytes = (before.len() + DIRENT_BYTES + name.len()).next_multiple_of(8);
    let end = list.len() + bytes;
    let Ok(name_bytes) = u32::try_from(name.len()) else { return false };
    if end > bytes_max {
        return false;
    }
    list.extend_from_slice(before);
    let dirent: [u8; DIRENT_BYTES] =
        Encoded::new().u64(id.0).u64(position).u32(name_bytes).u32(kind.mode() >> 12).end();
    list.extend_from_slice(&dirent);
    list.extend_from_slice(name);
    list.resize(end, 0);
    true
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn shown() -> FileAttr {
        FileAttr {
            ino: INodeNo(0x11),
            size: 0x22,
            blocks: 0x33,
            atime: UNIX_EPOCH + Duration::new(0x1234, 0x5678),
            mtime: UNIX_EPOCH - Duration::from_millis(500),
            ctime: UNIX_EPOCH + Duration::new(0x1236, 0x567a),
            kind: FileType::RegularFile,
            perm: 0o644,
            nlink: 0x55,
            uid: 0x66,
            gid: 0x77,
            rdev: 0x88,
            blksize: 0xbb,
        }
    }

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    fn u64_at(bytes: &[u8], at: usize) -> u64 {
        u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    /// Offsets are those of include/uapi/linux/fuse.h.
    #[test]
    fn an_entry_has_its_fields_where_the_kernel_reads_them() {
        let attributes = shown();
        let (attributes_for, name_for) = (Duration::new(0x8765, 0x4321), Duration::new(0x99, 0xaa));
        let bytes = entry(&Attributes {
            attributes_for,
            name_for,
            attributes: &attributes,
            generation: Generation(0xcc),
        });
        assert_eq!((u64_at(&bytes, 0), u64_at(&bytes, 8)), (0x11, 0xcc));
        assert_eq!((u64_at(&bytes, 16), u64_at(&bytes, 24)), (0x99, 0x8765), "name, then attributes");
        assert_eq!((u32_at(&bytes, 32), u32_at(&bytes, 36)), (0xaa, 0x4321));
        let attr = &bytes[40..];
        assert_eq!((u64_at(attr, 0), u64_at(attr, 8), u64_at(attr, 16)), (0x11, 0x22, 0x33));
        assert_eq!((u64_at(attr, 24), u64_at(attr, 32) as i64, u64_at(attr, 40)), (0x1234, -1, 0x1236));
        assert_eq!((u32_at(attr, 48), u32_at(attr, 52), u32_at(attr, 56)), (0x5678, 500_000_000, 0x567a));
        assert_eq!((u32_at(attr, 60), u32_at(attr, 64)), (0o100_644, 0x55));
        assert_eq!(
            (u32_at(attr, 68), u32_at(attr, 72), u32_at(attr, 76), u32_at(attr, 80)),
            (0x66, 0x77, 0x88, 0xbb)
        );
        let believed = super::attributes(attributes_for, &attributes);
        assert_eq!((u64_at(&believed, 0), u32_at(&believed, 8)), (0x8765, 0x4321));
        assert_eq!(&believed[16..], attr);
    }

    #[test]
    fn a_listing_is_padded_and_ends_before_it_is_too_long() {
        let mut list = Vec::new();
        let (file, directory) = (FileType::RegularFile, FileType::Directory);
        assert!(directory_entry(&mut list, 64, &[], (INodeNo(0xaabb), 1, file), b"hello"));
        assert!(directory_entry(&mut list, 64, &[], (INodeNo(0xccdd), 2, directory), b"world.rs"));
        assert!(!directory_entry(&mut list, 95, &[], (INodeNo(1), 3, file), b"x"), "it needs 32 bytes");
        assert_eq!(list.len(), 64);
        assert_eq!(
            (u64_at(&list, 0), u64_at(&list, 8), u32_at(&list, 16), u32_at(&list, 20)),
            (0xaabb, 1, 5, 8)
        );
        assert_eq!(&list[24..32], b"hello\0\0\0");
        assert_eq!((u64_at(&list, 32), u32_at(&list, 48), u32_at(&list, 52)), (0xccdd, 8, 4));
        assert_eq!(&list[56..], b"world.rs");
    }

    #[test]
    fn what_is_agreed_has_both_halves_of_the_flags() {
        let flags = InitFlags::FUSE_PASSTHROUGH | InitFlags::FUSE_INIT_EXT | InitFlags::FUSE_MAX_PAGES;
        let bytes = init(&Agreed {
            flags,
            max_readahead: 0x100,
            max_background: 64,
            congestion_threshold: 48,
            max_write: 1 << 20,
            max_pages: 256,
            max_stack_depth: 2,
        });
        assert_eq!((u32_at(&bytes, 0), u32_at(&bytes, 4), u32_at(&bytes, 8)), (7, 42, 0x100));
        assert_eq!((u32_at(&bytes, 12), u32_at(&bytes, 32)), (1 << 30 | 1 << 22, 1 << 5));
        assert_eq!((u32_at(&bytes, 16), u32_at(&bytes, 20), u32_at(&bytes, 24)), (64 | 48 << 16, 1 << 20, 1));
        assert_eq!((u32_at(&bytes, 28), u32_at(&bytes, 36)), (256, 2));
    }

    #[test]
    fn headers_openings_and_counts_are_as_long_as_the_kernel_expects() {
        assert_eq!(out_header(0xdead_beef, -2, 8)[..8], [24, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff]);
        let open = opened(FileHandle(7), FopenFlags::FOPEN_PASSTHROUGH, 9);
        assert_eq!((u64_at(&open, 0), u32_at(&open, 8), u32_at(&open, 12)), (7, 1 << 7, 9));
        let attributes = shown();
        let (attributes_for, name_for) = (Duration::ZERO, Duration::ZERO);
        let made =
            Attributes { attributes_for, name_for, attributes: &attributes, generation: Generation(0) };
        assert_eq!(created(&made, open)[ENTRY_BYTES..], open);
        let room = statfs([1, 2, 3, 4, 5], [6, 7, 8]);
        assert_eq!(
            (u64_at(&room, 32), u32_at(&room, 40), u32_at(&room, 44), u32_at(&room, 48)),
            (5, 6, 7, 8)
        );
        assert_eq!(number(3), [3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(number_64(-1), [0xff; 8]);
        assert_eq!(ioctl(-1)[..8], [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    }
}
