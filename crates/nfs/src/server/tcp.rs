//! NFS over TCP: a thread accepts, and each connection has its own, so that a slow reader delays nobody.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::busy;
use super::replies::Replies;
use super::service::Worker;
use super::{ServerError, Shared};
use crate::wire::record::{MARK_BYTES, RecordReader};

/// Replies that are ready are not held back longer than this by calls behind them.
const HOLD_MAX: Duration = Duration::from_micros(100);

/// The thread that accepts, and the connections it made.
pub(super) struct Acceptor {
    thread: JoinHandle<()>,
    /// Shut down to end `accept`: Linux makes it return then.
    listener: OwnedFd,
    connections: Arc<Mutex<Connections>>,
}

type Connections = HashMap<u64, Connection>;

struct Connection {
    stream: TcpStream,
    thread: JoinHandle<()>,
}

impl Acceptor {
    pub(super) fn start(
        listener: TcpListener,
        shared: Arc<Shared>,
        connections_max: usize,
    ) -> Result<Self, ServerError> {
        let connections = Arc::new(Mutex::new(Connections::new()));
        let own_fd = listener.as_fd().try_clone_to_owned().map_err(ServerError::Thread)?;
        let known = Arc::clone(&connections);
        let thread = std::thread::Builder::new()
            .name("nfs-accept".to_owned())
            .spawn(move || accept(&listener, &shared, &known, connections_max))
            .map_err(ServerError::Thread)?;
        Ok(Self { thread, listener: own_fd, connections })
    }

    /// The shared stop flag is set already.
    pub(super) fn stop(self) {
        if let Err(error) = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both) {
            tracing::warn!(%error, "the listening socket cannot be shut down");
        }
        // A panic was printed where it happened.
        let _ = self.thread.join();
        let connections =
            std::mem::take(&mut *self.connections.lock().unwrap_or_else(PoisonError::into_inner));
        for connection in connections.values() {
            // It may be closed already.
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
        for connection in connections.into_values() {
            let _ = connection.thread.join();
        }
    }
}

fn accept(
    listener: &TcpListener,
    shared: &Arc<Shared>,
    connections: &Mutex<Connections>,
    connections_max: usize,
) {
    for number in 0.. {
        let accepted = listener.accept();
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: some time must pass before another attempt makes sense.
                tracing::warn!(%error, "cannot accept a connection; trying again in 50 ms");
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        let mut connections = connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|_, connection| !connection.thread.is_finished());
        if connections.len() >= connections_max {
            shared.tally.connections_refused.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let (shared_there, own) = (Arc::clone(shared), stream.try_clone());
        let Ok(own) = own else { continue };
        shared.tally.connections_accepted.fetch_add(1, Ordering::Relaxed);
        shared.tally.connections.fetch_add(1, Ordering::Relaxed);
        let thread = std::thread::Builder::new().name(format!("nfs-tcp-{number}")).spawn(move || {
            if let Err(error) = converse(stream, &shared_there) {
                tracing::debug!(%error, "a connection ended");
            }
            shared_there.tally.connections.fetch_sub(1, Ordering::Relaxed);
        });
        match thread {
            Ok(thread) => {
                connections.insert(number, Connection { stream: own, thread });
            }
            Err(error) => {
                tracing::warn!(%error, "no thread for a connection: it is closed");
                shared.tally.connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// Answers until the peer closes, sends what is no record of calls, or the server stops.
fn converse(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let result = answer_all(&mut stream, shared);
    // The registry holds another descriptor of this socket: only a shutdown closes it for the peer.
    let _ = stream.shutdown(Shutdown::Both);
    result
}

fn answer_all(stream: &mut TcpStream, shared: &Shared) -> io::Result<()> {
    let call_bytes_max = shared.service.call_bytes_max();
    let mut reader = RecordReader::new(call_bytes_max);
    // Twice as large as a call, so that a whole one always finds room behind the rest of another. Pages
    // that are never used take no memory.
    let mut buffer = vec![0; 2 * (call_bytes_max + MARK_BYTES)];
    let mut filled = 0;
    let mut worker = Worker::new();
    let mut replies = Replies::for_stream();
    loop {
        let received = match busy::receive(&*stream, &mut buffer[filled..], shared.spin) {
            Ok(0) => return Ok(()),
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        filled += received;
        worker.counted.received_bytes += received as u64;
        let mut rest = &buffer[..filled];
        let answered = answer_received(stream, shared, &mut reader, &mut rest, &mut worker, &mut replies);
        let rest_len = rest.len();
        shared.tally.add(&mut worker.counted);
        answered?;
        buffer.copy_within(filled - rest_len..filled, 0);
        filled = rest_len;
        if shared.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
}

/// Answers every whole call in `rest`.
fn answer_received(
    stream: &mut TcpStream,
    shared: &Shared,
    reader: &mut RecordReader,
    rest: &mut &[u8],
    worker: &mut Worker,
    replies: &mut Replies,
) -> io::Result<()> {
    let broken = |what: &'static str| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut held_since = shared.service.may_wait().then(Instant::now);
    loop {
        let record = reader.next(rest).map_err(|_| broken("a record is too long"));
        let last = match record {
            Ok(Some(record)) => {
                shared.service.answer(record, None, worker, replies).map_err(|_| broken("not a call"))
            }
            Ok(None) => break,
            Err(error) => {
                worker.counted.refused += 1;
                Err(error)
            }
        };
        if let Err(error) = last {
            // What was asked before still gets its answer.
            send(stream, shared, worker, replies)?;
            return Err(error);
        }
        let held_too_long = held_since.is_some_and(|since| since.elapsed() > HOLD_MAX);
        if replies.is_full() || held_too_long {
            send(stream, shared, worker, replies)?;
            held_since = held_since.map(|_| Instant::now());
        }
    }
    if !replies.is_empty() {
        send(stream, shared, worker, replies)?;
    }
    Ok(())
}

/// Counts first: a caller that has a reply finds its call counted.
fn send(
    stream: &mut TcpStream,
    shared: &Shared,
    worker: &mut Worker,
    replies: &mut Replies,
) -> io::Result<()> {
    worker.counted.sent_bytes += replies.len() as u64;
    shared.tally.add(&mut worker.counted);
    replies.send(stream)
}
