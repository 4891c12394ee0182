//! From a target's URL to its root handle and limits: resolve, portmap, MOUNT, FSINFO.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use files::{Fsinfo, Handle, HandleRef, NfsProto, NfsTarget, Reply, Request, Status};

use super::{ClientOptions, Control};
use crate::{
    NfsError,
    error::Peer,
    wire::{
        WireError, mount3, nfs3,
        portmap2::{self, Wanted},
        rpc,
    },
};

/// Beyond this a datagram has so large a number of fragments that one lost costs too much; also the usual limit of clients.
const UDP_IO_BYTES_MAX: u32 = 32 << 10;
/// What is asked at a time when a server names no limit, or a silly one.
const IO_BYTES_MIN: u32 = 512;
/// How long to go on asking a server that wants to be asked later, and how often.
const RETRY_LATER_MAX: Duration = Duration::from_secs(10);
const RETRY_LATER: Duration = Duration::from_millis(200);

/// A mounted export.
#[derive(Debug)]
pub struct Mount {
    /// Its root.
    pub root: Handle,
    /// The server's limits.
    pub limits: Fsinfo,
    /// The connection that asked for them, free for further calls.
    pub control: Control,
    io_bytes_max: u32,
}

impl Mount {
    /// Finds the target's server, mounts its export and asks for its limits.
    ///
    /// # Errors
    /// See [`NfsError`].
    pub fn open(target: &NfsTarget, options: &ClientOptions) -> Result<Self, NfsError> {
        try_addresses(target, |address| Self::open_at(address, target, options))
    }

    fn open_at(address: SocketAddr, target: &NfsTarget, options: &ClientOptions) -> Result<Self, NfsError> {
        let proto = target.proto.unwrap_or(options.proto);
        // The portmapper is asked before anything else, so that a wrong host shows by its silence.
        let nfs = Peer { service: "NFS", address: nfs_address(address, target, options)?, proto };
        let root = mount(mount_peer(address, target, options)?, &target.export, options)?;
        let mut control = Control::connect(nfs, options)?;
        let retry_until = Instant::now() + RETRY_LATER_MAX;
        let limits = loop {
            match control.request(&Request::Fsinfo { root: root.by_ref() })? {
                Ok(Reply::Fsinfo { limits, .. }) => break limits,
                Ok(_) => unreachable!("a reply is decoded as its request's"),
                Err(Status::JUKEBOX) if Instant::now() < retry_until => {
                    tracing::debug!("the server asks to retry FSINFO later");
                    std::thread::sleep(RETRY_LATER);
                }
                Err(status) => return Err(NfsError::Failed { peer: nfs, procedure: "fsinfo", status }),
            }
        };
        let io_bytes_max = io_bytes_max(&limits, proto, options);
        Ok(Self { root, limits, control, io_bytes_max })
    }

    /// The NFS service.
    pub fn peer(&self) -> Peer {
        self.control.peer()
    }

    /// The most bytes that one READ or WRITE may carry.
    pub fn io_bytes_max(&self) -> u32 {
        self.io_bytes_max
    }
}

fn io_bytes_max(limits: &Fsinfo, proto: NfsProto, options: &ClientOptions) -> u32 {
    let proto_max = match proto {
        NfsProto::Udp => UDP_IO_BYTES_MAX,
        NfsProto::Tcp => u32::MAX,
    };
    let wish = options.io_bytes_max.get().min(proto_max);
    wish.min(limits.read_max.max(IO_BYTES_MIN)).min(limits.write_max.max(IO_BYTES_MIN))
}

/// The paths that the target's server says it exports.
///
/// # Errors
/// When MOUNT cannot be reached or does not answer.
pub fn exports(target: &NfsTarget, options: &ClientOptions) -> Result<Vec<String>, NfsError> {
    try_addresses(target, |address| {
        list_exports(&mut Control::connect(mount_peer(address, target, options)?, options)?)
    })
}

/// Tries the host's addresses one after the other, until one answers at all.
fn try_addresses<T>(
    target: &NfsTarget,
    mut attempt: impl FnMut(SocketAddr) -> Result<T, NfsError>,
) -> Result<T, NfsError> {
    let host = &target.host;
    let addresses = (host.as_str(), 0)
        .to_socket_addrs()
        .map_err(|source| NfsError::Resolve { host: host.clone(), source: Some(source) })?;
    let mut last = NfsError::Resolve { host: host.clone(), source: None };
    for address in addresses {
        match attempt(address) {
            Err(error) if error.is_silence() => last = error,
            done => return done,
        }
    }
    Err(last)
}

fn nfs_address(
    mut address: SocketAddr,
    target: &NfsTarget,
    options: &ClientOptions,
) -> Result<SocketAddr, NfsError> {
    let port = match target.port {
        Some(port) => port,
        None => ask_port(address, "NFS", nfs3::PROGRAM, target, options)?,
    };
    address.set_port(port);
    Ok(address)
}

fn mount_peer(
    mut address: SocketAddr,
    target: &NfsTarget,
    options: &ClientOptions,
) -> Result<Peer, NfsError> {
    let port = match target.mount_port.or(target.port) {
        Some(port) => port,
        None => ask_port(address, "MOUNT", mount3::PROGRAM, target, options)?,
    };
    address.set_port(port);
    Ok(Peer { service: "MOUNT", address, proto: target.proto.unwrap_or(options.proto) })
}

fn ask_port(
    mut address: SocketAddr,
    service: &'static str,
    program: u32,
    target: &NfsTarget,
    options: &ClientOptions,
) -> Result<u16, NfsError> {
    address.set_port(portmap2::PORT);
    let proto = target.proto.unwrap_or(options.proto);
    let peer = Peer { service: "portmapper", address, proto };
    let protocol = match proto {
        NfsProto::Tcp => portmap2::TCP,
        NfsProto::Udp => portmap2::UDP,
    };
    let wanted = Wanted { program, version: 3, protocol };
    let port = Control::connect(peer, options)
        .and_then(|mut control| {
            let results = control.call(portmap2::PROGRAM, portmap2::VERSION, portmap2::GETPORT, |out| {
                portmap2::put_getport(out, wanted)
            })?;
            portmap2::decode_port(results).map_err(|source| NfsError::Malformed {
                peer,
                procedure: "GETPORT",
                source,
            })
        })
        .map_err(|error| match error.is_silence() {
            true => NfsError::NoPortmapper { peer, source: Box::new(error) },
            false => error,
        })?;
    port.ok_or(NfsError::NotRegistered { peer, program: service })
}

fn mount(peer: Peer, export: &str, options: &ClientOptions) -> Result<Handle, NfsError> {
    let mut control = Control::connect(peer, options)?;
    let malformed = |source| NfsError::Malformed { peer, procedure: "MNT", source };
    let results = control.call(mount3::PROGRAM, mount3::VERSION, mount3::Procedure::Mnt as u32, |out| {
        mount3::put_path(out, export.as_bytes());
    })?;
    match mount3::decode_mounted(results).map_err(malformed)? {
        Ok(mounted) => {
            let flavours: Vec<u32> = mounted.flavours().collect();
            if !flavours.is_empty()
                && !flavours.contains(&rpc::AUTH_SYS)
                && !flavours.contains(&rpc::AUTH_NONE)
            {
                return Err(NfsError::Flavours { peer, export: export.to_owned(), flavours });
            }
            let HandleRef(root) = mounted.root;
            Handle::new(root).ok_or_else(|| malformed(WireError::Long))
        }
        Err(mount3::MountStatus::NOENT) => Err(NfsError::NoExport {
            peer,
            export: export.to_owned(),
            exports: list_exports(&mut control).ok(),
        }),
        Err(status @ (mount3::MountStatus::ACCES | mount3::MountStatus::PERM)) => {
            // Ganesha denies what it does not export, rather than say that it is not there.
            match list_exports(&mut control) {
                Ok(exports) if !exports.iter().any(|known| is_within(export, known)) => {
                    Err(NfsError::NoExport { peer, export: export.to_owned(), exports: Some(exports) })
                }
                _ => Err(NfsError::MountDenied { peer, export: export.to_owned(), status }),
            }
        }
        Err(status) => Err(NfsError::MountFailed { peer, export: export.to_owned(), status }),
    }
}

/// Whether a path is an export or lies below it.
fn is_within(path: &str, export: &str) -> bool {
    std::path::Path::new(path).starts_with(export)
}

fn list_exports(control: &mut Control) -> Result<Vec<String>, NfsError> {
    let peer = control.peer();
    let results = control.call(mount3::PROGRAM, mount3::VERSION, mount3::Procedure::Export as u32, |_| ())?;
    mount3::decode_exports(results)
        .map(|export| export.map(|export| String::from_utf8_lossy(export.path).into_owned()))
        .collect::<Result<_, WireError>>()
        .map_err(|source| NfsError::Malformed { peer, procedure: "EXPORT", source })
}
