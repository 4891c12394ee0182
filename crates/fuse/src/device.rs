//! `/dev/fuse`: a request is one read, a reply one write.
//!
//! ```text
//! thread 1: connection        read -> dispatch -> writev
//! thread 2: joined to it      read -> dispatch -> writev     (a reply goes where its request came from)
//! ```
//!
//! Which of the threads wait is the file system's business: it sees each request before and after it is answered.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use rustix::io::Errno;

use crate::dispatch::{Next, dispatch};
use crate::filesystem::Filesystem;
use crate::protocol::{Header, IN_HEADER_BYTES, OUT_HEADER_BYTES, out_header};
use crate::reply::Sink;
use crate::session::Served;

/// The device of all FUSE connections.
pub const DEVICE: &str = "/dev/fuse";

/// The device, opened for a new connection.
pub fn device() -> io::Result<File> {
    File::options().read(true).write(true).open(DEVICE)
}

/// Results are no longer than requests are: the kernel bounds both by its pages of a request, 1 MiB by default and 16 MiB at most.
const RESULT_BYTES_MAX: usize = 16 << 20;
/// A request's header and arguments, beside data and names.
const HEAD_BYTES_MAX: usize = 4096;
/// The largest request without data: SETXATTR. It is also more than the least that the kernel reads into (8 KiB).
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;

/// One end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Device(Arc<OwnedFd>);

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Device {
    pub fn new(connection: OwnedFd) -> Self {
        Self(Arc::new(connection))
    }

    /// One more reader of the same connection.
    pub fn joined(&self) -> io::Result<Self> {
        let another = device()?;
        sys::fuse_device::join(another.as_fd(), self.as_fd())?;
        Ok(Self::new(another.into()))
    }

    /// The next request; 0 bytes when the connection has ended.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(self, &mut *buffer) {
                Ok(bytes) => return Ok(bytes),
                // Interrupted, or the request was while it was being taken.
                Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => {}
                Err(errno) if has_ended(errno) => return Ok(0),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn write(&self, head: &[u8], parts: [&[u8]; 2]) -> io::Result<()> {
        let slices = [IoSlice::new(head), IoSlice::new(parts[0]), IoSlice::new(parts[1])];
        let used = 1 + parts.iter().rposition(|part| !part.is_empty()).map_or(0, |last| last + 1);
        // It is written whole or not at all.
        rustix::io::writev(self, &slices[..used]).map(drop).map_err(Into::into)
    }

    pub fn notify(&self, code: i32, parts: [&[u8]; 2]) -> io::Result<()> {
        let bytes = parts[0].len() + parts[1].len();
        // Without a number it is a notice, and the error is which one.
        let header = out_header(0, code, bytes);
        loop {
            match self.write(&header, parts) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }

    pub fn reply(&self, unique: u64, error: i32, parts: [&[u8]; 2]) -> io::Result<()> {
        let bytes = parts[0].len() + parts[1].len();
        self.write(&out_header(unique, error, bytes), parts)
    }
}

/// Whether the mount is gone: ENODEV, but ECONNABORTED when it went while a request was just being taken (Linux, `fuse_dev_do_read`),
/// such as the RELEASE of the last file that was open in a detached mount.
fn has_ended(errno: Errno) -> bool {
    matches!(errno, Errno::NODEV | Errno::CONNABORTED)
}

/// A file that is registered with the kernel, so that data can bypass the file system. Dropped, the registration ends.
#[derive(Debug)]
pub struct BackingId {
    /// It keeps no connection open.
    connection: Weak<OwnedFd>,
    number: u32,
}

impl BackingId {
    pub(crate) fn open(device: &Device, file: BorrowedFd<'_>) -> io::Result<Self> {
        let number = sys::fuse_device::open_backing(device.as_fd(), file)?;
        Ok(Self { connection: Arc::downgrade(&device.0), number })
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for BackingId {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.upgrade() {
            // It fails where the connection is over, and the registration with it.
            let _ = sys::fuse_device::close_backing(connection.as_fd(), self.number);
        }
    }
}

/// Where replies go that are written to the device.
pub(crate) struct DeviceSink<'a> {
    /// Where the request was read.
    own: &'a Device,
    list: RefCell<Vec<u8>>,
}

impl<'a> DeviceSink<'a> {
    pub fn new(own: &'a Device) -> Self {
        Self { own, list: RefCell::default() }
    }
}

impl Sink for DeviceSink<'_> {
    fn send(&self, unique: u64, error: i32, parts: [&[u8]; 2]) {
        match self.own.reply(unique, error, parts) {
            Ok(()) => {}
            // The request was given up, or the mount is gone.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if Errno::from_io_error(&error).is_some_and(has_ended) => {}
            Err(error) => tracing::error!("the kernel does not take a reply: {error}"),
        }
    }

    fn device(&self) -> &Device {
        self.own
    }

    fn bytes_max(&self) -> usize {
        RESULT_BYTES_MAX
    }

    fn list(&self) -> &RefCell<Vec<u8>> {
        &self.list
    }
}

/// A buffer for each request where none has more data than this.
pub(crate) fn request_buffer(max_write: u32) -> Vec<u8> {
    vec![0; HEAD_BYTES_MAX + ATTRIBUTE_BYTES_MAX.max(max_write as usize)]
}

/// Header and body of a request; `None`, with the number to be answered where it has one, when its length is not what was received.
pub(crate) fn split(request: &[u8]) -> Result<(Header, &[u8]), Option<Header>> {
    let header = Header::parse(request).map_err(|_| None)?;
    if header.bytes as usize == request.len() {
        Ok((header, &request[IN_HEADER_BYTES..]))
    } else {
        Err(Some(header))
    }
}

/// Serves requests until the connection ends.
pub(crate) fn serve<F: Filesystem>(served: &Served<F>, own: &Device) -> io::Result<()> {
    let sink = DeviceSink::new(own);
    let mut buffer = request_buffer(served.max_write);
    loop {
        let bytes = own.receive(&mut buffer)?;
        if bytes == 0 || one(served, &buffer[..bytes], &sink) == Next::End {
            return Ok(());
        }
    }
}

/// Has one request answered that was read.
pub(crate) fn one<F: Filesystem>(served: &Served<F>, request: &[u8], sink: &DeviceSink<'_>) -> Next {
    match split(request) {
        Ok((header, body)) => dispatch(&served.filesystem, served.owner, &header, body, sink),
        Err(header) => {
            tracing::error!("a request of the kernel is cut off: {} bytes", request.len());
            if let Some(header) = header.filter(|header| !crate::protocol::is_unanswered(header.opcode)) {
                sink.send(header.unique, -crate::protocol::Errno::EIO.code(), [&[], &[]]);
            }
            Next::Request
        }
    }
}

const _: () = assert!(OUT_HEADER_BYTES < HEAD_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_went_while_a_request_was_taken_has_ended_as_any_other() {
        assert!(has_ended(Errno::NODEV) && has_ended(Errno::CONNABORTED));
        assert!(!has_ended(Errno::IO));
    }

    #[test]
    fn a_request_is_as_long_as_it_says() {
        let mut request = vec![0; 48];
        request[..4].copy_from_slice(&48u32.to_ne_bytes());
        request[8..16].copy_from_slice(&7u64.to_ne_bytes());
        let (header, body) = split(&request).unwrap();
        assert_eq!((header.unique, body.len()), (7, 8));
        for wrong in [0u32, 47, 49, u32::MAX] {
            request[..4].copy_from_slice(&wrong.to_ne_bytes());
            assert_eq!(split(&request).unwrap_err().unwrap().unique, 7, "{wrong}");
        }
        assert_eq!(split(&request[..39]).unwrap_err(), None);
    }

    #[test]
    fn a_buffer_has_room_for_data_and_for_the_largest_attribute() {
        assert!(request_buffer(1 << 20).len() >= (1 << 20) + 80);
        assert!(request_buffer(4096).len() >= (64 << 10) + 256 + 48);
    }
}
