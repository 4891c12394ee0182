//! The null responder: replies made beforehand, the call's XID written over theirs.
//!
//! Two objects exist: a directory (the root, and whatever MKDIR makes) and a file (all else). A READ brings
//! as many zeros as asked for and never the end; a WRITE is on stable storage at once, it says.
//! Always holds: answering allocates nothing. Arguments are decoded all the same, garbage is refused.

use files::{
    Attributes, Entries, FileKind, Fsinfo, Fsstat, Handle, HandleRef, NodeTime, OpKind, Pathconf, Reply,
    Request, Stability, Wcc,
};

use super::replies::{Replies, ZEROS_MAX};
use super::service::DATAGRAM_IO_BYTES_MAX;
use crate::wire::rpc::{self, Call, Refusal};
use crate::wire::{nfs3, xdr};

const DIR: &[u8] = b"crumb null: dir.";
const FILE: &[u8] = b"crumb null: file";
const FILE_BYTES: u64 = 1 << 40;

/// A reply for each procedure, whole but for the XID.
pub(super) struct NullReplies {
    stream: [Vec<u8>; OpKind::COUNT],
    datagram: [Vec<u8>; OpKind::COUNT],
    getattr_dir: Vec<u8>,
}

impl Default for NullReplies {
    fn default() -> Self {
        let dir = attributes(FileKind::Directory);
        Self {
            stream: OpKind::ALL.map(|kind| encoded(kind, &reply(kind, ZEROS_MAX as u32))),
            datagram: OpKind::ALL.map(|kind| encoded(kind, &reply(kind, DATAGRAM_IO_BYTES_MAX))),
            getattr_dir: encoded(OpKind::Getattr, &Reply::Getattr { attributes: dir }),
        }
    }
}

impl NullReplies {
    pub(super) fn root(&self) -> Handle {
        Handle::new(DIR).expect("16 bytes fit into a handle")
    }

    #[inline]
    pub(super) fn answer(&self, kind: OpKind, call: &Call<'_>, replies: &mut Replies) -> Result<(), Refusal> {
        let request = nfs3::decode_request(kind, call.args).map_err(|_| Refusal::GarbageArguments)?;
        let (made, io_bytes_max) = if replies.stream() {
            (&self.stream[kind as usize], ZEROS_MAX as u32)
        } else {
            (&self.datagram[kind as usize], DATAGRAM_IO_BYTES_MAX)
        };
        let begun = replies.begin();
        let start = replies.bytes.len();
        match request {
            Request::Getattr { object } if object.0 == DIR => {
                replies.bytes.extend_from_slice(&self.getattr_dir);
            }
            Request::Read { count, .. } => {
                let count = count.min(io_bytes_max);
                replies.bytes.extend_from_slice(made);
                // The last three words are count, end and the length of the bytes.
                patch(&mut replies.bytes, 12, count);
                patch(&mut replies.bytes, 4, count);
                replies.put_zeros(count as usize + xdr::padding(count as usize));
            }
            Request::Write { bytes, .. } => {
                replies.bytes.extend_from_slice(made);
                // Count, stability and an eight-byte verifier end it.
                patch(&mut replies.bytes, 16, bytes.len() as u32);
            }
            Request::Access { rights, .. } => {
                replies.bytes.extend_from_slice(made);
                patch(&mut replies.bytes, 4, rights);
            }
            _ => replies.bytes.extend_from_slice(made),
        }
        replies.bytes[start..start + 4].copy_from_slice(&call.xid.to_be_bytes());
        replies.end(&begun);
        Ok(())
    }
}

#[inline]
fn patch(bytes: &mut [u8], from_end: usize, word: u32) {
    let at = bytes.len() - from_end;
    bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
}

fn encoded(kind: OpKind, reply: &Reply<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    rpc::put_success(&mut out, 0);
    nfs3::put_reply(&mut out, kind, &Ok(*reply));
    out
}

fn attributes(kind: FileKind) -> Attributes {
    let time = NodeTime { s: 1_000_000_000, ns: 0 };
    let dir = kind == FileKind::Directory;
    Attributes {
        kind,
        mode: if dir { 0o777 } else { 0o666 },
        links: if dir { 2 } else { 1 },
        uid: 0,
        gid: 0,
        size: if dir { 4096 } else { FILE_BYTES },
        used: 4096,
        device: (0, 0),
        fsid: 1,
        fileid: if dir { 1 } else { 2 },
        atime: time,
        mtime: time,
        ctime: time,
    }
}

fn reply(kind: OpKind, io_bytes_max: u32) -> Reply<'static> {
    use OpKind as K;
    let (of_file, of_dir) = (attributes(FileKind::Regular), attributes(FileKind::Directory));
    let (file, dir) = (Some(of_file), Some(of_dir));
    let file_wcc = Wcc { before: None, after: file };
    let dir_wcc = Wcc { before: None, after: dir };
    let verifier = *b"crumbnul";
    match kind {
        K::Null => Reply::Null,
        K::Getattr => Reply::Getattr { attributes: of_file },
        K::Setattr => Reply::Setattr { object: file_wcc },
        K::Lookup => Reply::Lookup { object: HandleRef(FILE), attributes: file, dir },
        K::Access => Reply::Access { attributes: file, rights: 0 },
        K::Readlink => Reply::Readlink { attributes: file, target: b"target" },
        K::Read => Reply::Read { attributes: file, bytes: b"", end: false },
        K::Write => Reply::Write { file: file_wcc, count: 0, stability: Stability::FileSync, verifier },
        K::Create | K::Symlink | K::Mknod => {
            Reply::Created { object: Some(HandleRef(FILE)), attributes: file, dir: dir_wcc }
        }
        K::Mkdir => Reply::Created { object: Some(HandleRef(DIR)), attributes: dir, dir: dir_wcc },
        K::Remove | K::Rmdir => Reply::Removed { dir: dir_wcc },
        K::Rename => Reply::Rename { from_dir: dir_wcc, to_dir: dir_wcc },
        K::Link => Reply::Link { attributes: file, dir: dir_wcc },
        K::Readdir | K::Readdirplus => {
            Reply::Listing { dir, verifier: [0; 8], entries: Entries::Listed(&[]), end: true }
        }
        K::Fsstat => Reply::Fsstat {
            attributes: dir,
            stat: Fsstat {
                bytes_total: 1 << 60,
                bytes_free: 1 << 60,
                bytes_available: 1 << 60,
                files_total: 1 << 50,
                files_free: 1 << 50,
                files_available: 1 << 50,
                stable_s: 0,
            },
        },
        K::Fsinfo => Reply::Fsinfo {
            attributes: dir,
            limits: Fsinfo {
                read_max: io_bytes_max,
                read_preferred: io_bytes_max,
                read_multiple: 4096,
                write_max: io_bytes_max,
                write_preferred: io_bytes_max,
                write_multiple: 4096,
                readdir_preferred: 32 * 1024,
                file_size_max: i64::MAX as u64,
                time_delta: NodeTime { s: 0, ns: 1 },
                properties: 0x1b,
            },
        },
        K::Pathconf => Reply::Pathconf {
            attributes: file,
            limits: Pathconf {
                links_max: 32_000,
                name_bytes_max: 255,
                no_truncation: true,
                chown_restricted: true,
                case_insensitive: false,
                case_preserving: true,
            },
        },
        K::Commit => Reply::Commit { file: file_wcc, verifier },
    }
}
