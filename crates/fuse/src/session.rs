//! A connection from its first request to its end.
//!
//! ```text
//! new:    INIT read -> Filesystem::init -> (rings prepared) -> INIT answered
//! spawn:  threads: device::serve, or ring::serve and one for the rest
//! end:    the connection ends (unmounted, last user gone) -> each thread ends -> the file system is dropped
//! ```
//!
//! Always holds: where a ring cannot be used and INIT is not yet answered, the device serves instead, and `refusal` says why.
//! Not here: mounting and unmounting (`mounting`).

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::device::{self, Device};
use crate::filesystem::{Filesystem, KernelConfig, Request};
use crate::protocol::{self, Agreed, Errno, Header, InitFlags, MAJOR, Operation};
use crate::ring::{self, Prepared};

/// By what requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// `/dev/fuse`, read and written.
    Device,
    /// FUSE over io_uring.
    Ring,
}

impl Transport {
    /// As it is shown and named.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Ring => "ring",
        }
    }
}

impl FromStr for Transport {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Device, Self::Ring].into_iter().find(|one| one.name() == text).ok_or(())
    }
}

/// How a session serves.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Threads that serve. A ring has at least two for each CPU.
    pub threads: usize,
    /// The one user whose requests are answered. `None`: everyone's.
    pub owner: Option<u32>,
    /// By what requests shall come.
    pub transport: Transport,
}

/// What threads share.
pub(crate) struct Served<F> {
    pub filesystem: F,
    pub owner: Option<u32>,
    pub device: Device,
    pub max_write: u32,
}

/// The protocol's oldest minor version that is spoken (Linux 4.20): all that replies contain.
const MINOR_MIN: u32 = 28;

/// A connection that is agreed, and not served yet.
pub struct Session<F> {
    served: Arc<Served<F>>,
    threads: usize,
    rings: Option<Prepared<F>>,
    refusal: Option<String>,
}

impl<F> AsFd for Session<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.served.device.as_fd()
    }
}

impl<F: Filesystem> Session<F> {
    /// Agrees with the kernel on what `filesystem` wants. `connection` is from a mount that was just made.
    ///
    /// # Errors
    /// When the mount is gone, the kernel is too old, or `filesystem` refuses. The mount is then in the way, and the caller's to end.
    pub fn new(mut filesystem: F, connection: OwnedFd, config: &Config) -> io::Result<Self> {
        let device = Device::new(connection);
        let (header, offer) = offered(&device)?;
        let mut agreed = KernelConfig::new(offer.flags, offer.max_readahead);
        if let Err(error) = filesystem.init(&Request::new(header), &mut agreed) {
            let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_i32);
            let _ = device.reply(header.unique, -errno.code(), [&[], &[]]);
            return Err(error);
        }
        let (rings, refusal) = match config.transport {
            Transport::Device => (None, None),
            Transport::Ring => match rings(offer.flags, config.threads) {
                Ok(rings) => (Some(rings), None),
                Err(error) => (None, Some(error.to_string())),
            },
        };
        if rings.is_some() {
            agreed.requested |= InitFlags::FUSE_OVER_IO_URING;
            agreed.max_write = agreed.max_write.min(ring::MAX_WRITE);
        }
        device.reply(header.unique, 0, [&protocol::init(&answer(&agreed, rings.is_some())), &[]])?;
        let served =
            Arc::new(Served { filesystem, owner: config.owner, device, max_write: agreed.max_write });
        Ok(Self { served, threads: config.threads.max(1), rings, refusal })
    }

    /// By what requests come.
    pub fn transport(&self) -> Transport {
        if self.rings.is_some() { Transport::Ring } else { Transport::Device }
    }

    /// Why the device serves though a ring was wanted.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Starts the threads that serve.
    ///
    /// # Errors
    /// When one cannot be started, or a ring takes no entries. The mount is then the caller's to end; threads that were started end
    /// with it.
    pub fn spawn(self) -> io::Result<BackgroundSession> {
        let Self { served, threads, rings, .. } = self;
        let device = served.device.clone();
        let threads = match rings {
            Some(rings) => rings.start(&served)?,
            None => on_the_device(&served, threads)?,
        };
        Ok(BackgroundSession { threads, device })
    }
}

/// A thread that serves.
pub(crate) type Thread = JoinHandle<io::Result<()>>;

pub(crate) fn start_thread(
    name: String,
    work: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<Thread> {
    std::thread::Builder::new().name(name).spawn(work)
}

fn on_the_device<F: Filesystem>(served: &Arc<Served<F>>, threads: usize) -> io::Result<Vec<Thread>> {
    let joined = (1..threads).map(|_| served.device.joined());
    let readers: Vec<Device> =
        std::iter::once(Ok(served.device.clone())).chain(joined).collect::<io::Result<_>>()?;
    let start = |(number, own): (usize, Device)| {
        let served = Arc::clone(served);
        start_thread(format!("crumb-fuse-{number}"), move || device::serve(&served, &own))
    };
    readers.into_iter().enumerate().map(start).collect()
}

fn rings<F: Filesystem>(offered: InitFlags, threads: usize) -> io::Result<Prepared<F>> {
    if !offered.contains(InitFlags::FUSE_OVER_IO_URING) {
        return Err(io::Error::other(if ring::is_known() {
            "the kernel's FUSE over io_uring is switched off (echo 1 > /sys/module/fuse/parameters/enable_uring)"
        } else {
            "the kernel has no FUSE over io_uring (Linux 6.14 and later)"
        }));
    }
    Prepared::new(threads)
}

/// What the kernel offers.
struct Offer {
    max_readahead: u32,
    flags: InitFlags,
}

/// INIT, the first request.
fn offered(device: &Device) -> io::Result<(Header, Offer)> {
    let mut buffer = device::request_buffer(0);
    loop {
        let bytes = device.receive(&mut buffer)?;
        if bytes == 0 {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the mount went while it began"));
        }
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let (header, body) =
            device::split(&buffer[..bytes]).map_err(|_| invalid("the kernel's first request is cut off"))?;
        let refuse = |errno: i32| device.reply(header.unique, -errno, [&[], &[]]);
        let Ok(Operation::Init { major, minor, max_readahead, flags }) =
            Operation::parse(header.opcode, body)
        else {
            let _ = refuse(Errno::EIO.code());
            return Err(invalid("the kernel's first request is not INIT"));
        };
        if major > MAJOR {
            // It asks again in this version.
            device.reply(header.unique, 0, [&protocol::init(&Agreed::nothing()), &[]])?;
            continue;
        }
        if (major, minor) < (MAJOR, MINOR_MIN) {
            let _ = refuse(rustix::io::Errno::PROTO.raw_os_error());
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "the kernel speaks FUSE {major}.{minor}; {MAJOR}.{MINOR_MIN} is needed (Linux 4.20 and later)"
                ),
            ));
        }
        return Ok((header, Offer { max_readahead, flags }));
    }
}

fn answer(agreed: &KernelConfig, by_ring: bool) -> Agreed {
    let page = u32::try_from(rustix::param::page_size()).expect("a page has less than 4 GiB");
    // The payload of a ring holds no more, whatever is read ahead.
    let longest = if by_ring { agreed.max_write } else { agreed.max_write.max(agreed.max_readahead) };
    Agreed {
        flags: agreed.requested,
        max_readahead: agreed.max_readahead,
        max_background: agreed.max_background,
        congestion_threshold: agreed.max_background - agreed.max_background / 4,
        max_write: agreed.max_write,
        max_pages: u16::try_from(longest.div_ceil(page)).unwrap_or(u16::MAX),
        max_stack_depth: agreed.max_stack_depth,
    }
}

/// A session that is served by its threads. Dropped, it is served on until it is unmounted.
pub struct BackgroundSession {
    threads: Vec<Thread>,
    device: Device,
}

impl fmt::Debug for BackgroundSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundSession").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl BackgroundSession {
    /// Whether all threads have ended, which they do with the mount.
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until all threads have ended.
    ///
    /// # Errors
    /// The first that one of them ended with.
    pub fn join(self) -> io::Result<()> {
        let Self { threads, device } = self;
        // While it is open, the kernel waits for replies of threads that are gone.
        drop(device);
        let ended = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread that served requests panicked")))
        });
        ended.collect::<Vec<_>>().into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
