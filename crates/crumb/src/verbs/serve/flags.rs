//! What `crumb serve` is called with.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use nfs::server::ServerOptions;

use crate::addresses::refuse_url;
use crate::cpus::CpuList;
use crate::exit::BadUsage;
use crate::quantities::count;
use crate::verbs::serve_origin::OriginArgs;

/// Not the NFS port 2049, which a kernel server may have.
const PORT_DEFAULT: u16 = 20490;

/// How long `--spin` looks for the next call before it sleeps all the same: an idle server must not heat the room.
const SPIN: Duration = Duration::from_millis(1);

#[derive(Args, Debug)]
pub struct ServeArgs {
    #[command(subcommand)]
    pub(super) what: What,
}

#[derive(Subcommand, Debug)]
pub(super) enum What {
    /// Answer every NFS procedure with success at once, to measure generator and network
    #[command(after_help = "\
Examples:
  crumb serve null --pin 0
  crumb run fstress nfs://127.0.0.1:20490/ --workload null --rate max --outstanding 64 --pin 1")]
    Null {
        #[command(flatten)]
        how: How,
    },
    /// Export a directory by NFSv3, UDP and TCP
    #[command(after_help = "\
Examples:
  crumb serve dir /tmp/scratch
  crumb run fstress nfs://127.0.0.1:20490/ --workload web-server

  A free port, shown in the line that says that it is ready:
    crumb serve dir /tmp/scratch --listen 127.0.0.1:0
  With other clients:
    nfs-ls 'nfs://127.0.0.1/?version=3&nfsport=20490&mountport=20490'

The server acts as the user who runs it: every client that reaches the port has that user's rights below PATH.")]
    Dir {
        /// Directory to export
        path: PathBuf,
        /// Refuse every change
        #[arg(long)]
        read_only: bool,
        /// Let clients create device nodes, if you may; refused by default
        #[arg(long, conflicts_with = "read_only")]
        devices: bool,
        #[command(flatten)]
        how: How,
    },
    Origin(Box<OriginArgs>),
}

#[derive(Args, Debug)]
pub(super) struct How {
    /// Address and port to listen on, UDP and TCP; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:20490", value_parser = address)]
    pub(super) listen: SocketAddr,
    /// Allow an address that other machines can reach; they need no password
    #[arg(long)]
    allow_remote: bool,
    /// CPUs to run on, such as 2 or 0-3,6 [default: all]
    #[arg(long, value_name = "CPUS")]
    pin: Option<CpuList>,
    /// TCP connections at a time; more are closed at once
    #[arg(long, value_name = "N", default_value_t = connections_max(), value_parser = count::<NonZeroUsize>)]
    connections_max: NonZeroUsize,
    /// Spin instead of sleeping between calls; needs a processor of its own, see --pin
    #[arg(long)]
    spin: bool,
    /// Show calls per second on the terminal
    #[arg(long)]
    pub(super) status: bool,
}

impl How {
    /// What the server is started with; this process is kept to the CPUs that were named.
    pub(super) fn options(&self) -> anyhow::Result<ServerOptions> {
        if !self.listen.ip().to_canonical().is_loopback() && !self.allow_remote {
            let error = anyhow!(
                "--listen {}: other machines could reach this server, which asks for no password and gives every \
                 client your rights to what it serves; if that is meant, add --allow-remote",
                self.listen
            );
            return Err(error.context(BadUsage));
        }
        // First, so that the server's threads stay there too and are as many as suit these CPUs.
        if let Some(cpus) = &self.pin {
            cpus.pin().map_err(|error| error.context(BadUsage))?;
        }
        let default = ServerOptions::default();
        Ok(ServerOptions {
            listen: self.listen,
            connections_max: self.connections_max.get(),
            // Two that spin on one socket would only be in each other's way.
            udp_threads: if self.spin { 1 } else { default.udp_threads },
            spin: if self.spin { SPIN } else { default.spin },
        })
    }
}

fn connections_max() -> NonZeroUsize {
    NonZeroUsize::new(ServerOptions::default().connections_max)
        .expect("a server without a connection serves nobody")
}

/// An address with its port, or an address or a name alone.
fn address(text: &str) -> Result<SocketAddr, measure::ValueError> {
    refuse_url(text)?;
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, PORT_DEFAULT));
    }
    let resolved =
        if text.contains(':') { text.to_socket_addrs() } else { (text, PORT_DEFAULT).to_socket_addrs() };
    let first = resolved.ok().and_then(|mut addresses| addresses.next());
    first.ok_or_else(|| "expected ADDRESS:PORT such as 127.0.0.1:20490, or [::1]:0 for a free port".into())
}
