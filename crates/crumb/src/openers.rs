//! From a target to the storage behind it: the one place that knows all kinds.

use std::num::{NonZeroU16, NonZeroUsize};
use std::time::Duration;

use anyhow::Context as _;
use files::{
    DirectoryTransport, DirectoryTransportOptions, NfsProto, NullTransport, Patience, Target, Transport,
};
use nfs::client::{ClientOptions, UdpOptions};
use quanta::Clock;

/// How to reach the storage, for all kinds; what does not concern the kind at hand is left alone.
#[derive(Clone, Debug)]
pub struct TransportOptions {
    /// Sockets to an NFS server.
    pub connections: NonZeroU16,
    /// UDP or TCP, where the target URL does not say.
    pub proto: Option<NfsProto>,
    /// First time-out of a datagram, and how often it is sent again.
    pub udp_timeout: Duration,
    pub udp_retransmits: u8,
    /// How long a broken TCP connection may take to be regained.
    pub reconnect_timeout: Duration,
    /// Worker threads of a directory; none: as many as suit the machine.
    pub threads: Option<NonZeroUsize>,
    /// How the generator waits.
    pub patience: Patience,
}

/// Opens the storage. Completions carry times of `clock`.
pub fn open_transport(
    target: &Target,
    options: &TransportOptions,
    clock: &Clock,
) -> anyhow::Result<Box<dyn Transport>> {
    match target {
        Target::Null => Ok(Box::new(NullTransport::new(clock.clone()))),
        Target::Directory(path) => {
            let mut directory =
                DirectoryTransportOptions { patience: options.patience, ..Default::default() };
            if let Some(threads) = options.threads {
                directory.threads = threads.get();
            }
            let transport = DirectoryTransport::open(path, directory, clock.clone())
                .with_context(|| format!("cannot use directory {}", path.display()))?;
            Ok(Box::new(transport))
        }
        Target::Nfs(nfs) => {
            let client = ClientOptions {
                proto: options.proto.unwrap_or_default(),
                connections: options.connections,
                udp: UdpOptions {
                    timeout: options.udp_timeout,
                    retransmits_max: options.udp_retransmits,
                    ..UdpOptions::default()
                },
                reconnect_timeout: options.reconnect_timeout,
                patience: options.patience,
                ..ClientOptions::default()
            };
            Ok(nfs::client::connect(nfs, &client, clock.clone())?)
        }
    }
}

/// What carries the calls to `target` under `options`, when anything does.
pub fn proto_of(target: &Target, options: &TransportOptions) -> Option<NfsProto> {
    match target {
        Target::Nfs(nfs) => Some(nfs.proto.or(options.proto).unwrap_or_default()),
        Target::Directory(_) | Target::Null => None,
    }
}
