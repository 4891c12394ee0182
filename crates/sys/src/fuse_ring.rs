//! FUSE over io_uring (Linux 6.14 and later): requests come as completions, and a reply takes the next request with it.
//!
//! ```text
//! register: SQE (two buffers: header 288 B, payload) for each entry, each in the queue of one CPU
//! request:  CQE, header and payload are filled in -> answer -> SQE COMMIT_AND_FETCH -> next CQE
//! end:      CQE with ENOTCONN for each entry
//! ```
//!
//! Always holds: the kernel writes to an entry's buffers only between a commit and the completion that follows it. Buffers of an entry
//! that has not come to its end are never freed, as the kernel may keep their addresses after the ring was closed. Payload buffers have
//! at least 72 KiB: the largest request is a SETXATTR of 64 KiB, and a smaller buffer would be overrun.
//! Not here: /dev/fuse, to which INIT, FORGET and INTERRUPT still come; what is answered; threads.
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

/// One entry of a queue; the kernel has the addresses of its buffers.
struct Entry {
    /// The queue: the CPU of its callers.
    queue: u16,
    header: *mut Header,
    payload: *mut [u8],
    /// `struct iovec`, two: read when the entry is registered.
    vectors: Box<[libc::iovec; 2]>,
    /// The kernel may use the buffers.
    is_registered: bool,
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

/// Entries of some queues, served by the thread that made it.
pub struct FuseRing {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    entries: Vec<Entry>,
    /// Completions that came while the entries were registered: which entry, and its result.
    early: Vec<(usize, i32)>,
    device: Option<OwnedFd>,
}

impl FuseRing {
    /// With one entry in each of these queues; a queue can be named more than once.
    ///
    /// # Errors
    /// When io_uring cannot be used, memory is short, or a payload would be too small.
    pub fn new(queues: &[u16], payload_bytes: usize) -> io::Result<Self> {
        if payload_bytes < PAYLOAD_BYTES_MIN || queues.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let count = u32::try_from(queues.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder()
            .setup_single_issuer()
            .setup_cqsize(2 * count.next_power_of_two())
            .build(count.next_power_of_two())?;
        let entries =
            queues.iter().map(|queue| Entry::new(*queue, payload_bytes)).collect::<io::Result<_>>()?;
        Ok(Self { ring, entries, early: Vec::new(), device: None })
    }

    /// Offers all entries to the connection that `device` reads. Requests come once every possible CPU has an entry.
    ///
    /// # Errors
    /// When the kernel does not take them. It may have taken some: then the connection has to be ended.
    pub fn register(&mut self, device: OwnedFd) -> io::Result<()> {
        self.device = Some(device);
        for at in 0..self.entries.len() {
            self.push(at, REGISTER, 0)?;
            self.entries[at].is_registered = true;
        }
        self.ring.submit()?;
        // An entry that was refused has completed by now, and one that was taken perhaps too.
        let completions = self.ring.completion();
        self.early
            .extend(completions.map(|completion| (completion.user_data() as usize, completion.result())));
        match self.early.iter().find(|(_, result)| *result < 0) {
            Some((_, result)) => Err(io::Error::from_raw_os_error(-result)),
            None => Ok(()),
        }
    }

    fn push(&mut self, at: usize, command: u32, commit_id: u64) -> io::Result<()> {
        let mut bytes = [0u8; 128];
        bytes[0] = OPCODE_URING_CMD;
        let device = self.device.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        bytes[4..8].copy_from_slice(&device.as_raw_fd().to_ne_bytes());
        bytes[8..12].copy_from_slice(&command.to_ne_bytes());
        let entry = &self.entries[at];
        if command == REGISTER {
            bytes[16..24].copy_from_slice(&(entry.vectors.as_ptr() as u64).to_ne_bytes());
            bytes[24..28].copy_from_slice(&SEGMENTS.to_ne_bytes());
        }
        bytes[32..40].copy_from_slice(&(at as u64).to_ne_bytes());
        // `struct fuse_uring_cmd_req`: flags, commit_id, qid.
        bytes[56..64].copy_from_slice(&commit_id.to_ne_bytes());
        bytes[64..66].copy_from_slice(&entry.queue.to_ne_bytes());
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
        let mut done = std::mem::take(&mut self.early);
        loop {
            for (at, result) in done.drain(..) {
                match result {
                    0.. => {
                        let commit_id = self.entries[at].answer(&mut answer);
                        self.push(at, COMMIT_AND_FETCH, commit_id)?;
                    }
                    _ => self.ended(at, -result)?,
                }
            }
            if !self.entries.iter().any(|entry| entry.is_registered) {
                return Ok(());
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            let completions = self.ring.completion();
            done.extend(completions.map(|completion| (completion.user_data() as usize, completion.result())));
        }
    }

    /// An entry has come to its end, with the connection or by an error.
    fn ended(&mut self, at: usize, errno: i32) -> io::Result<()> {
        self.entries[at].is_registered = false;
        match errno {
            libc::ENOTCONN | libc::ECANCELED | libc::ENODEV | libc::ECONNABORTED => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Entry {
    fn new(queue: u16, payload_bytes: usize) -> io::Result<Self> {
        let header: Header = Header {
            in_out: [0; 128],
            op_in: [0; 128],
            flags: 0,
            commit_id: 0,
            payload_bytes: 0,
            padding: 0,
            reserved: 0,
        };
        let mut payload = Vec::new();
        payload.try_reserve_exact(payload_bytes)?;
        payload.resize(payload_bytes, 0);
        let (header, payload) = (Box::into_raw(Box::new(header)), Box::into_raw(payload.into_boxed_slice()));
        let vectors = Box::new([
            libc::iovec { iov_base: header.cast(), iov_len: size_of::<Header>() },
            libc::iovec { iov_base: payload.cast(), iov_len: payload.len() },
        ]);
        Ok(Self { queue, header, payload, vectors, is_registered: false })
    }

    /// Answers the request that is in the buffers; its commit number is returned.
    fn answer(&mut self, answer: &mut impl FnMut(RingRequest<'_>) -> RingReply) -> u64 {
        // SAFETY: both came from boxes that this entry alone owns, and live as long as it. The completion that led here gave them back
        // from the kernel, which writes to them again after the next commit, when these references are gone.
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

impl Drop for Entry {
    fn drop(&mut self) {
        if self.is_registered {
            // The kernel may still write to them.
            return;
        }
        // SAFETY: both came from `Box::into_raw` in `new`, nothing else frees them, and the kernel has given them back: the entry was
        // never offered, or its last completion has come.
        unsafe {
            drop(Box::from_raw(self.header));
            drop(Box::from_raw(self.payload));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_the_largest_request_would_overrun_is_refused() {
        let refused = FuseRing::new(&[0], PAYLOAD_BYTES_MIN - 1).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(FuseRing::new(&[], PAYLOAD_BYTES_MIN).err().unwrap().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn what_is_no_connection_takes_no_entries() {
        // Where io_uring is forbidden there is nothing to be seen.
        let Ok(mut ring) = FuseRing::new(&[0, 0, 1], PAYLOAD_BYTES_MIN) else { return };
        let file = std::fs::File::open("/proc/self/exe").unwrap().into();
        assert!(ring.register(file).is_err());
    }
}
