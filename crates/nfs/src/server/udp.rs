//! NFS over UDP: a few threads receive from one socket, answer, and send.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use super::busy;
use super::replies::Replies;
use super::service::Worker;
use super::{ServerError, Shared};

/// The largest datagram there is.
const DATAGRAM_BYTES_MAX: usize = 65_536;

/// Asked for; the kernel gives less to a caller that may not exceed `net.core.rmem_max`. With the usual 212,992
/// bytes, 64 WRITEs of 8 KB in flight overflow it.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// How long a thread may miss that it should stop, when the datagram that wakes it was lost.
const STOP_CHECK: Duration = Duration::from_millis(500);

pub(super) struct Receivers {
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
    addr: Option<SocketAddr>,
}

impl Receivers {
    pub(super) fn start(socket: UdpSocket, shared: Arc<Shared>, threads: usize) -> Result<Self, ServerError> {
        use rustix::net::sockopt;
        if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES).is_err()
            && let Err(error) = sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)
        {
            tracing::debug!(%error, "the receive buffer stays as it is");
        }
        socket.set_read_timeout(Some(STOP_CHECK)).map_err(ServerError::Thread)?;
        let mut receivers =
            Self { threads: Vec::new(), shared, addr: socket.local_addr().ok().map(super::reachable) };
        for number in 0..threads {
            let socket = socket.try_clone().map_err(ServerError::Thread)?;
            let shared = Arc::clone(&receivers.shared);
            let thread = std::thread::Builder::new()
                .name(format!("nfs-udp-{number}"))
                .spawn(move || receive(&socket, &shared))
                .map_err(ServerError::Thread)?;
            receivers.threads.push(thread);
        }
        Ok(receivers)
    }

    /// The shared stop flag is set already.
    pub(super) fn stop(mut self, addr: SocketAddr) {
        self.join(addr);
    }

    fn join(&mut self, addr: SocketAddr) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // An empty datagram wakes a thread; when it is lost, the time-out does.
        if let Ok(waker) = UdpSocket::bind(SocketAddr::new(addr.ip(), 0)) {
            for _ in &self.threads {
                let _ = waker.send_to(&[], addr);
            }
        }
        for thread in self.threads.drain(..) {
            // A panic was printed where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Receivers {
    /// When the last of several threads could not be started, the others end here.
    fn drop(&mut self) {
        if let Some(addr) = self.addr.filter(|_| !self.threads.is_empty()) {
            self.join(addr);
        }
    }
}

fn receive(socket: &UdpSocket, shared: &Shared) {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let mut worker = Worker::new();
    let mut replies = Replies::for_datagrams();
    while !shared.stop.load(Ordering::Relaxed) {
        let (len, peer) = match busy::receive_from(socket, &mut buffer, shared.spin) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                continue;
            }
            // Such as a peer's port that was closed; the next datagram is another matter.
            Err(error) => {
                tracing::debug!(%error, "receiving failed");
                continue;
            }
        };
        worker.counted.received_bytes += len as u64;
        replies.clear();
        // What is no call has nobody to answer; it is counted.
        let call = shared.service.answer(&buffer[..len], Some(peer), &mut worker, &mut replies).is_ok();
        worker.counted.sent_bytes += replies.len() as u64;
        // Before sending: a caller that has a reply finds its call counted.
        shared.tally.add(&mut worker.counted);
        if call
            && !replies.is_empty()
            && let Err(error) = socket.send_to(&replies.bytes, peer)
        {
            tracing::debug!(%error, %peer, "a reply could not be sent");
        }
    }
}
