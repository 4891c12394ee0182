//! When what a socket received had arrived at this machine: SO_TIMESTAMPNS of socket(7).
//!
//! The kernel stamps a packet when it takes it from the network, before any program wakes. The stamp comes with the bytes
//! that recvmsg(2) returns: of a datagram its own, of a stream that of the last segment among these bytes.
//!
//! The kernel begins to stamp shortly after the first socket of the machine asked for it, so that the first packets may
//! have none.

#![expect(unsafe_code, reason = "rustix has no ancillary message for time stamps")]

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// Room for the one ancillary message that was asked for, and for a larger stamp.
const CONTROL_BYTES: usize = 64;
/// A longer wait is a clock that was set.
const WAITED_MAX: Duration = Duration::from_secs(3600);

/// As aligned as a `cmsghdr`.
#[repr(C, align(8))]
struct Control([MaybeUninit<u8>; CONTROL_BYTES]);

/// What one call received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// How many bytes; 0 at the end of a stream.
    pub bytes: usize,
    /// How long these bytes, of a stream the last of them, had been at this machine; none without a stamp.
    pub waited: Option<Duration>,
}

/// Asks the kernel to stamp what arrives at this socket, or no longer to.
///
/// # Errors
/// When the kernel has no stamps for it.
pub fn stamp_arrivals(socket: impl AsFd, wanted: bool) -> Result<(), Errno> {
    let on = libc::c_int::from(wanted);
    // SAFETY: `on` is a live `c_int` and the length is its size, so that the kernel reads only inside it. The descriptor is
    // open while it is borrowed.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if failed == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Receives by recv(2) from a connected socket, without stamps.
///
/// # Errors
/// Those of recv(2).
#[inline]
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<Received, Errno> {
    let (bytes, _) = rustix::net::recv(socket, buffer, rustix::net::RecvFlags::empty())?;
    Ok(Received { bytes, waited: None })
}

/// Receives like recv(2) from a connected socket, with how long the bytes had waited.
///
/// # Errors
/// Those of recvmsg(2).
#[inline]
pub fn receive_stamped(socket: impl AsFd, buffer: &mut [u8]) -> Result<Received, Errno> {
    let mut control = Control([MaybeUninit::uninit(); CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all bytes zero are a value of `msghdr`, whose fields are integers and pointers.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: `message` names one part, which is `buffer` with its length, and `control` with its length; both are live
    // and not otherwise used during the call, so that the kernel writes only inside them. The descriptor is borrowed.
    let bytes = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0) };
    if bytes < 0 {
        return Err(last_errno());
    }
    Ok(Received { bytes: bytes as usize, waited: stamp(&message).and_then(waited_since) })
}

/// The stamp among the ancillary messages that the kernel wrote.
#[inline]
fn stamp(message: &libc::msghdr) -> Option<libc::timespec> {
    // SAFETY: the kernel filled `message`: its control buffer, which `Control` aligns, holds whole headers within
    // `msg_controllen`, by which CMSG_FIRSTHDR and CMSG_NXTHDR go. A header is read only where they return one.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            // The type of a length differs between C libraries.
            let libc::cmsghdr { cmsg_level, cmsg_type, cmsg_len, .. } = *header;
            let wanted = u64::from(libc::CMSG_LEN(size_of::<libc::timespec>() as u32));
            if cmsg_level == libc::SOL_SOCKET
                && cmsg_type == libc::SO_TIMESTAMPNS
                && cmsg_len as u64 >= wanted
            {
                // The data of a message need not be aligned for it.
                return Some(libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned());
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    None
}

/// Time since a stamp, which is on the clock of the calendar.
#[inline]
fn waited_since(stamp: libc::timespec) -> Option<Duration> {
    let now = clock_gettime(ClockId::Realtime);
    let ns = (now.tv_sec - stamp.tv_sec) * 1_000_000_000 + (now.tv_nsec - stamp.tv_nsec);
    // A clock that was set back makes it negative.
    u64::try_from(ns).ok().map(Duration::from_nanos).filter(|waited| *waited < WAITED_MAX)
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::time::Instant;

    use super::*;

    const LEFT_LYING: Duration = Duration::from_millis(30);

    /// How long bytes were there that were left lying, and an upper bound. The kernel begins to stamp arrivals a little after it was
    /// asked to, and stamps what came before when it is received: only then is it tried again.
    fn waited(socket: impl AsFd, mut send: impl FnMut()) -> (Duration, Duration) {
        stamp_arrivals(&socket, true).unwrap();
        let mut buffer = [0; 16];
        let begun = Instant::now();
        loop {
            let sent = Instant::now();
            send();
            std::thread::sleep(LEFT_LYING);
            let received = receive_stamped(&socket, &mut buffer).unwrap();
            assert_eq!(&buffer[..received.bytes], b"now");
            let is_late = begun.elapsed() > Duration::from_secs(10);
            match received.waited {
                Some(waited) if waited >= LEFT_LYING || is_late => return (waited, sent.elapsed()),
                _ => assert!(!is_late, "the kernel stamps nothing"),
            }
        }
    }

    #[test]
    fn bytes_that_lay_at_the_machine_say_for_how_long() {
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(datagrams.local_addr().unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut writer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = listener.accept().unwrap().0;
        let udp = waited(&datagrams, || assert_eq!(sender.send(b"now").unwrap(), 3));
        let tcp = waited(&stream, || writer.write_all(b"now").unwrap());
        for (proto, (waited, at_most)) in [("UDP", udp), ("TCP", tcp)] {
            assert!(waited >= LEFT_LYING && waited <= at_most, "{proto}: {waited:?} of {at_most:?}");
        }
    }

    #[test]
    fn a_socket_that_was_not_asked_gives_no_stamp_and_an_empty_one_an_error() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        assert_eq!(receive_stamped(&socket, &mut [0; 8]), Err(Errno::AGAIN));
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(b"now", socket.local_addr().unwrap()).unwrap();
        assert_eq!(receive_stamped(&socket, &mut [0; 8]), Ok(Received { bytes: 3, waited: None }));
    }
}
