//! One queue of FUSE over io_uring (Linux 6.14 and later): requests come as completions, and a reply takes the next request with it.
//!
//! ```text
//! register: SQE (two buffers: header 288 B, payload) for each entry of the queue of one CPU
//! request:  CQE, header and payload are filled in -> answer -> SQE COMMIT_AND_FETCH -> next CQE
//! ```
//!
//! Always holds: the kernel writes to an entry's buffers only between a commit and the completion that follows it, and they are never
//! freed, as it may keep their addresses after the ring was closed. Payload buffers have at least 72 KiB: the largest request is a
//! SETXATTR of 64 KiB, and a smaller buffer would be overrun.
//! Not here: /dev/fuse, to which INIT, FORGET and INTERRUPT still come; what is answered.
//! Source: include/uapi/linux/fuse.h (7.42), Documentation/filesystems/fuse/fuse-io-uring.rst.

#![expect(unsafe_code, reason = "io-uring takes submissions that name buffers, and has none for FUSE")]

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use io_uring::{IoUring, cqueue, squeue};

/// The least bytes of a payload buffer.
pub const PAYLOAD_BYTES_MIN: usize = 72 << 10;

const OPCODE_URING_CMD: u8 = 46;
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
const SEGMENTS: u32 = 2;

/// `struct fuse_uring_req_header`.
#[repr(C, align(8))]
struct Header {
    in_out: [u8; 128],
    op_in: [u8; 128],
    flags: u64,
    commit_id: u64,
    payload_bytes: u32,
    padding: u32,
    reserved: u64,
}

/// Buffers of one entry; the kernel has their addresses.
struct Entry {
    header: *mut Header,
    payload: *mut [u8],
    /// `struct iovec`, two: read when the entry is registered.
    vectors: [libc::iovec; 2],
}

/// A request, as the kernel gave it.
pub struct RingRequest<'a> {
    /// `struct fuse_in_header`, and what follows it of 128 bytes.
    pub header: &'a [u8; 128],
    /// The first argument, where the operation has one.
    pub argument: &'a [u8; 128],
    /// The other arguments, and room for the reply.
    pub payload: &'a mut [u8],
    /// Bytes of the other arguments.
    pub payload_bytes: usize,
}

/// What is answered.
#[derive(Clone, Copy, Debug)]
pub struct RingReply {
    /// The number of the request.
    pub unique: u64,
    /// 0, or an error number below it.
    pub error: i32,
    /// Bytes of the reply, in the payload.
    pub bytes: usize,
}

/// The queue of one CPU, served by the thread that made it.
pub struct FuseQueue {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    entries: Vec<Entry>,
    device: OwnedFd,
    queue: u16,
}

impl FuseQueue {
    /// For the queue of this CPU, with `depth` entries.
    ///
    /// # Errors
    /// When io_uring cannot be used, or a payload would be too small.
    pub fn new(device: OwnedFd, queue: u16, depth: u32, payload_bytes: usize) -> io::Result<Self> {
        if payload_bytes < PAYLOAD_BYTES_MIN {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder()
            .setup_single_issuer()
            .setup_cqsize(2 * depth)
            .build(depth.next_power_of_two())?;
        let entries = (0..depth).map(|_| Entry::new(payload_bytes)).collect();
        Ok(Self { ring, entries, device, queue })
    }

    /// Offers all entries to the kernel. Requests come once every queue has one.
    ///
    /// # Errors
    /// When the kernel takes no entries.
    pub fn register(&mut self) -> io::Result<()> {
        for at in 0..self.entries.len() {
            self.push(at, REGISTER, 0)?;
        }
        self.ring.submit().map(drop)
    }

    fn push(&mut self, at: usize, command: u32, commit_id: u64) -> io::Result<()> {
        let mut bytes = [0u8; 128];
        bytes[0] = OPCODE_URING_CMD;
        bytes[4..8].copy_from_slice(&self.device.as_raw_fd().to_ne_bytes());
        bytes[8..12].copy_from_slice(&command.to_ne_bytes());
        let entry = &self.entries[at];
        if command == REGISTER {
            bytes[16..24].copy_from_slice(&(entry.vectors.as_ptr() as u64).to_ne_bytes());
            bytes[24..28].copy_from_slice(&SEGMENTS.to_ne_bytes());
        }
        bytes[32..40].copy_from_slice(&(at as u64).to_ne_bytes());
        // `struct fuse_uring_cmd_req`: flags, commit_id, qid.
        bytes[56..64].copy_from_slice(&commit_id.to_ne_bytes());
        bytes[64..66].copy_from_slice(&self.queue.to_ne_bytes());
        // SAFETY: both are 128 plain bytes, `Entry128` being the kernel's `struct io_uring_sqe` and the 64 bytes after it.
        let entry: squeue::Entry128 = unsafe { std::mem::transmute(bytes) };
        let mut submissions = self.ring.submission();
        // SAFETY: the buffers that it names are never freed, and are not looked at until its completion.
        unsafe { submissions.push(&entry) }.map_err(|_| io::Error::other("the submission queue is full"))
    }

    /// Serves requests until the connection ends.
    ///
    /// # Errors
    /// When the kernel refuses an entry or a reply.
    pub fn serve(&mut self, mut answer: impl FnMut(RingRequest<'_>) -> RingReply) -> io::Result<()> {
        let mut done = Vec::with_capacity(self.entries.len());
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            done.extend(
                self.ring
                    .completion()
                    .map(|completion| (completion.user_data() as usize, completion.result())),
            );
            for (at, result) in done.drain(..) {
                match -result {
                    0 => {}
                    libc::ENOTCONN | libc::ECANCELED | libc::ENODEV => return Ok(()),
                    errno if errno > 0 => return Err(io::Error::from_raw_os_error(errno)),
                    _ => {}
                }
                let commit_id = self.entries[at].answer(&mut answer);
                self.push(at, COMMIT_AND_FETCH, commit_id)?;
            }
        }
    }
}

impl Entry {
    fn new(payload_bytes: usize) -> Self {
        let header: Header = Header {
            in_out: [0; 128],
            op_in: [0; 128],
            flags: 0,
            commit_id: 0,
            payload_bytes: 0,
            padding: 0,
            reserved: 0,
        };
        // Leaked: the kernel has their addresses for as long as the connection lives.
        let header: *mut Header = Box::leak(Box::new(header));
        let payload: &'static mut [u8] = Box::leak(vec![0u8; payload_bytes].into_boxed_slice());
        let vectors = [
            libc::iovec { iov_base: header.cast(), iov_len: size_of::<Header>() },
            libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() },
        ];
        Self { header, payload: &raw mut *payload, vectors }
    }

    /// Answers the request that is in the buffers; its commit number is returned.
    fn answer(&mut self, answer: &mut impl FnMut(RingRequest<'_>) -> RingReply) -> u64 {
        // SAFETY: both were leaked and have no other owner. The completion that led here gave them back from the kernel, which writes
        // to them again after the next commit, when these references are gone.
        let (header, payload) = unsafe { (&mut *self.header, &mut *self.payload) };
        let commit_id = header.commit_id;
        let payload_bytes = (header.payload_bytes as usize).min(payload.len());
        let reply =
            answer(RingRequest { header: &header.in_out, argument: &header.op_in, payload, payload_bytes });
        // `struct fuse_out_header`.
        let length = 16 + reply.bytes as u32;
        header.in_out[0..4].copy_from_slice(&length.to_ne_bytes());
        header.in_out[4..8].copy_from_slice(&reply.error.to_ne_bytes());
        header.in_out[8..16].copy_from_slice(&reply.unique.to_ne_bytes());
        header.payload_bytes = reply.bytes as u32;
        commit_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_the_largest_request_would_overrun_is_refused() {
        let device = std::fs::File::open("/dev/null").unwrap().into();
        let refused = FuseQueue::new(device, 0, 1, PAYLOAD_BYTES_MIN - 1).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
