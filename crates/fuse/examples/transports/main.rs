//! The floor by two transports, for `scripts/bench-transports.sh`: `/dev/fuse` read and written by one thread, or FUSE over io_uring with
//! a queue and a thread for each CPU (root, Linux 6.14 and later, `echo 1 > /sys/module/fuse/parameters/enable_uring`).
//!
//!   transports device|ring MOUNTPOINT [DEPTH]
//!
//! Serves until standard input ends. Both answer by the same code, so that what differs is the transport.

#[path = "../../src/nodes.rs"]
#[allow(dead_code)]
mod nodes;
mod protocol;

use std::error::Error;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use rustix::mount::MountFlags;
use rustix::thread::{CpuSet, sched_setaffinity};
use sys::fuse_ring::{FuseQueue, PAYLOAD_BYTES_MIN, RingReply, RingRequest};

use protocol::{Head, Volume, split};

/// FORGET and INTERRUPT stay on /dev/fuse; a thread that waited there would be woken for each.
const DRAIN_EVERY: Duration = Duration::from_millis(50);
const OUT_HEADER: usize = 16;

type Shared = Arc<Mutex<Volume>>;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().collect();
    let (transport, place) = match &arguments[..] {
        [_, transport, place, ..] if ["device", "ring"].contains(&&**transport) => {
            (&**transport, PathBuf::from(place))
        }
        _ => return Err("transports device|ring MOUNTPOINT [DEPTH]".into()),
    };
    let depth: u32 = arguments.get(3).map_or(Ok(2), |depth| depth.parse())?;
    let (source, flags) = (Path::new("memory"), MountFlags::NODEV | MountFlags::NOSUID);
    let device =
        fuse::NewMount { source, subtype: "crumb-transport", allow_other: false, flags }.at(&place)?;
    let volume: Shared = Arc::new(Mutex::new(Volume::new()));
    let ring = transport == "ring";
    first_request(&device, ring).inspect_err(|_| {
        // Not served, it would only be in the way.
        drop(fuse::detach(&place, true));
    })?;
    let served = match ring {
        true => {
            let (ready, are_ready) = mpsc::channel();
            let queues = possible_cpus()?;
            for queue in 0..queues {
                let (device, volume, ready) = (device.try_clone()?, Arc::clone(&volume), ready.clone());
                std::thread::Builder::new().name(format!("queue-{queue}")).spawn(move || {
                    let ended = serve_queue(device, queue, depth, &volume, &ready);
                    if let Err(error) = &ended {
                        drop(writeln!(io::stderr(), "queue {queue}: {error}"));
                    }
                    let _ = ready.send(ended);
                })?;
            }
            for _ in 0..queues {
                are_ready.recv()??;
            }
            let drained = device.try_clone()?;
            std::thread::spawn(move || drain(&drained, &volume))
        }
        false => {
            let device = device.try_clone()?;
            std::thread::spawn(move || serve_device(&device, &volume))
        }
    };
    writeln!(io::stdout(), "ready")?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    drop(served);
    fuse::detach(&place, true)?;
    Ok(())
}

fn possible_cpus() -> Result<u16, Box<dyn Error + Send + Sync>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit(['-', ',']).next().unwrap_or("0");
    Ok(last.parse::<u16>()? + 1)
}

/// INIT, which comes by the device in either case.
fn first_request(device: &OwnedFd, ring: bool) -> io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    let got = rustix::io::read(device, &mut buffer)?;
    let mut reply = vec![0; 4096];
    let (head, body) = split(&buffer[..got]);
    if ring && !protocol::offers_a_ring(body) {
        return Err(io::Error::other(
            "the kernel offers no ring: echo 1 > /sys/module/fuse/parameters/enable_uring",
        ));
    }
    let bytes = protocol::agree(body, &mut reply[OUT_HEADER..], ring);
    send(device, &head, &mut reply, Ok(bytes))
}

fn lock(volume: &Shared) -> std::sync::MutexGuard<'_, Volume> {
    volume.lock().unwrap_or_else(PoisonError::into_inner)
}

fn send(device: &OwnedFd, head: &Head, reply: &mut [u8], done: Result<usize, i32>) -> io::Result<()> {
    let (error, bytes) = match done {
        Ok(bytes) => (0, bytes),
        Err(errno) => (-errno, 0),
    };
    let length = OUT_HEADER + bytes;
    reply[0..4].copy_from_slice(&(length as u32).to_ne_bytes());
    reply[4..8].copy_from_slice(&error.to_ne_bytes());
    reply[8..16].copy_from_slice(&head.unique.to_ne_bytes());
    match rustix::io::write(device, &reply[..length]) {
        // The caller was interrupted and has gone.
        Ok(_) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn serve_device(device: &OwnedFd, volume: &Shared) {
    let mut buffer = vec![0; 256 << 10];
    let mut reply = vec![0; OUT_HEADER + PAYLOAD_BYTES_MIN];
    loop {
        let got = match rustix::io::read(device, &mut buffer) {
            Ok(got) => got,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::NOENT) => continue,
            Err(_) => return,
        };
        let (head, body) = split(&buffer[..got]);
        let (argument, rest) = body.split_at(protocol::argument_bytes(head.opcode).min(body.len()));
        let payload = &mut reply[OUT_HEADER..];
        payload[..rest.len()].copy_from_slice(rest);
        let Some(done) = lock(volume).answer(&head, argument, payload, rest.len()) else { continue };
        if send(device, &head, &mut reply, done).is_err() {
            return;
        }
    }
}

fn serve_queue(
    device: OwnedFd,
    queue: u16,
    depth: u32,
    volume: &Shared,
    ready: &mpsc::Sender<io::Result<()>>,
) -> io::Result<()> {
    let mut here = CpuSet::new();
    here.set(queue.into());
    // A possible CPU need not be there.
    let _ = sched_setaffinity(None, &here);
    let mut ring = FuseQueue::new(device, queue, depth, PAYLOAD_BYTES_MIN)?;
    ring.register()?;
    let _ = ready.send(Ok(()));
    ring.serve(|RingRequest { header, argument, payload, payload_bytes }| {
        let (head, _) = split(header);
        let argument = &argument[..protocol::argument_bytes(head.opcode)];
        let done = lock(volume).answer(&head, argument, payload, payload_bytes).unwrap_or(Ok(0));
        let (error, bytes) = done.map_or_else(|errno| (-errno, 0), |bytes| (0, bytes));
        RingReply { unique: head.unique, error, bytes }
    })
}

/// Takes what still comes by the device, now and then.
fn drain(device: &OwnedFd, volume: &Shared) {
    if rustix::io::ioctl_fionbio(device.as_fd(), true).is_err() {
        return;
    }
    let mut buffer = vec![0; 256 << 10];
    let mut reply = vec![0; OUT_HEADER + PAYLOAD_BYTES_MIN];
    loop {
        match rustix::io::read(device, &mut buffer) {
            Ok(got) => {
                let (head, body) = split(&buffer[..got]);
                let (argument, rest) = body.split_at(protocol::argument_bytes(head.opcode).min(body.len()));
                let payload = &mut reply[OUT_HEADER..];
                payload[..rest.len()].copy_from_slice(rest);
                if let Some(done) = lock(volume).answer(&head, argument, payload, rest.len())
                    && send(device, &head, &mut reply, done).is_err()
                {
                    return;
                }
            }
            Err(rustix::io::Errno::AGAIN) => std::thread::sleep(DRAIN_EVERY),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::NOENT) => {}
            Err(_) => return,
        }
    }
}
