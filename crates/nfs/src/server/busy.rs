//! Receiving with a spin before the sleep, for a responder that is to show what a generator can do.
//!
//! A thread that sleeps is woken by an interrupt to its processor, which on a virtual machine costs tens of
//! microseconds: with 64 calls outstanding the null responder answered 0.5 million NULL calls a second sleeping and
//! about 1.5 million spinning.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, recvfrom};

/// Looks between two readings of the clock.
const LOOKS: u32 = 32;

/// Receives from a stream; spins for up to `spin` before it sleeps.
pub(super) fn receive(stream: impl AsFd, buffer: &mut [u8], spin: Duration) -> io::Result<usize> {
    spinning(spin, |flags| recv(&stream, &mut *buffer, flags).map(|(received, _)| received))
}

/// Receives a datagram with its sender; spins for up to `spin` before it sleeps.
pub(super) fn receive_from(
    socket: impl AsFd,
    buffer: &mut [u8],
    spin: Duration,
) -> io::Result<(usize, SocketAddr)> {
    let (received, peer) = spinning(spin, |flags| {
        recvfrom(&socket, &mut *buffer, flags).map(|(received, _, peer)| (received, peer))
    })?;
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    Ok((received, peer.ok_or_else(|| io::Error::other("a datagram without a sender"))?))
}

fn spinning<T>(spin: Duration, mut look: impl FnMut(RecvFlags) -> Result<T, Errno>) -> io::Result<T> {
    if !spin.is_zero() {
        let until = Instant::now() + spin;
        loop {
            for _ in 0..LOOKS {
                match look(RecvFlags::DONTWAIT) {
                    Err(Errno::AGAIN) => std::hint::spin_loop(),
                    done => return Ok(done?),
                }
            }
            if Instant::now() >= until {
                break;
            }
        }
    }
    Ok(look(RecvFlags::empty())?)
}
