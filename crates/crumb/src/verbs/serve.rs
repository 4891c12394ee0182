//! `crumb serve`: an NFSv3 server that needs neither root nor a portmapper. (Its origin is in `serve_origin`.)

use std::io::IsTerminal as _;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use files::DirectoryOptions;
use indicatif::{ProgressBar, ProgressStyle};
use nfs::server::{Server, ServerCounters, ServerOptions, serve_dir, serve_null};
use report::{bytes_text, count_text, rate_text};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::context::Context;
use crate::cpus::CpuList;
use crate::exit::{BadUsage, ExitStatus};
use crate::output::print;
use crate::verbs::serve_origin::{self, OriginArgs};

/// Not the NFS port 2049, which a kernel server may have.
const PORT_DEFAULT: u16 = 20490;
/// How often `--status` tells.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// How long `--spin` looks for the next call before it sleeps all the same: an idle server must not heat the room.
const SPIN: Duration = Duration::from_millis(1);

#[derive(Args, Debug)]
pub struct ServeArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Answer every procedure with success at once: what a generator and the network can do at most
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

All is done as the user who runs this: whoever reaches the port has his rights below PATH.")]
    Dir {
        /// Directory to export
        path: PathBuf,
        /// Refuse every change
        #[arg(long)]
        read_only: bool,
        /// Let clients make device nodes, where you may: by default that is refused
        #[arg(long, conflicts_with = "read_only")]
        devices: bool,
        #[command(flatten)]
        how: How,
    },
    Origin(Box<OriginArgs>),
}

#[derive(Args, Debug)]
struct How {
    /// Address and port for UDP and TCP; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:20490", value_parser = address)]
    listen: SocketAddr,
    /// Listen where other machines reach it: they need no password
    #[arg(long)]
    allow_remote: bool,
    /// CPUs to run on, such as 2 or 0-3,6 [default: all]
    #[arg(long, value_name = "CPUS")]
    pin: Option<CpuList>,
    /// TCP connections at a time; more are closed at once
    #[arg(long, value_name = "N", default_value_t = ServerOptions::default().connections_max)]
    connections_max: usize,
    /// Spin instead of sleeping between calls: needs a processor of its own, see --pin
    #[arg(long)]
    spin: bool,
    /// Show calls a second on the terminal
    #[arg(long)]
    status: bool,
}

/// Runs the verb, until SIGINT or SIGTERM.
pub fn run(args: ServeArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    match args.what {
        What::Null { how } => {
            let options = how.options()?;
            serve(&how, context, "the null responder", || serve_null(options))
        }
        What::Dir { path, read_only, devices, how } => {
            let options = how.options()?;
            let name = format!("{}{}", path.display(), if read_only { ", read-only," } else { "" });
            let directory = DirectoryOptions { read_only, devices, ..DirectoryOptions::default() };
            serve(&how, context, &name, || serve_dir(&path, options, directory))
        }
        What::Origin(args) => serve_origin::run(&args, context),
    }
}

impl How {
    fn options(&self) -> anyhow::Result<ServerOptions> {
        if !self.listen.ip().to_canonical().is_loopback() && !self.allow_remote {
            let error = anyhow!(
                "--listen {}: other machines could reach this server, which asks for no password and gives whoever \
                 comes your rights to what it serves; if that is meant, add --allow-remote",
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
            connections_max: self.connections_max,
            // Two that spin on one socket would only be in each other's way.
            udp_threads: if self.spin { 1 } else { default.udp_threads },
            spin: if self.spin { SPIN } else { default.spin },
        })
    }
}

fn serve<E: std::error::Error + Send + Sync + 'static>(
    how: &How,
    context: &Context,
    what: &str,
    start: impl FnOnce() -> Result<Server, E>,
) -> anyhow::Result<ExitStatus> {
    // Before the ready line: whoever has read it may send a signal.
    let stopped = stop_signals()?;
    let server = start()?;
    let began = Instant::now();
    // Without a reader of the line it serves all the same.
    let announced = print(&format!(
        "serving {what} at nfs://{}/ (NFSv3 over UDP and TCP, MOUNT on the same port); Ctrl-C stops\n",
        server.addr()
    ));
    let watched = how.status && !context.quiet && std::io::stderr().is_terminal();
    if watched {
        wait_with_status(&stopped, &server)
    } else {
        wait(&stopped)
    }
    let counters = server.counters();
    server.stop();
    announced?;
    if !context.quiet {
        print(&totals(&counters, began.elapsed()))?;
    }
    Ok(ExitStatus::Fine)
}

/// Told once, when the first signal comes; a second one ends the process at once, as the disk below may hang.
fn stop_signals() -> anyhow::Result<mpsc::Receiver<()>> {
    let asked = Arc::new(AtomicBool::new(false));
    let register = || -> std::io::Result<Signals> {
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_shutdown(signal, 130, Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        Signals::new([SIGINT, SIGTERM])
    };
    let mut signals = register().context("cannot listen to Ctrl-C")?;
    let (tell, told) = mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            if signals.forever().next().is_some() {
                // Nobody listens any more when the server could not start.
                let _ = tell.send(());
            }
        })
        .context("cannot start the thread that waits for Ctrl-C")?;
    Ok(told)
}

fn wait(stopped: &mpsc::Receiver<()>) {
    // An error means that the thread of signals is gone, and then too it is time to stop.
    let _ = stopped.recv();
}

fn wait_with_status(stopped: &mpsc::Receiver<()>, server: &Server) {
    let line = ProgressBar::new_spinner();
    line.set_style(ProgressStyle::with_template("{msg}").expect("the template is a constant"));
    let (mut before, mut at) = (server.counters(), Instant::now());
    while stopped.recv_timeout(STATUS_EVERY) == Err(RecvTimeoutError::Timeout) {
        let (now, elapsed) = (server.counters(), at.elapsed().as_secs_f64());
        let per_sec = |now: u64, before: u64| (now - before) as f64 / elapsed;
        line.set_message(format!(
            "{} calls/s, {}/s in, {}/s out, {} errors, {} connections",
            rate_text(per_sec(now.calls, before.calls)),
            bytes_text(per_sec(now.received_bytes, before.received_bytes) as u64),
            bytes_text(per_sec(now.sent_bytes, before.sent_bytes) as u64),
            count_text(now.errors),
            count_text(now.connections),
        ));
        line.tick();
        (before, at) = (now, Instant::now());
    }
    line.finish_and_clear();
}

fn totals(counters: &ServerCounters, elapsed: Duration) -> String {
    let refused_connections = match counters.connections_refused {
        0 => String::new(),
        refused => format!(" ({} more refused)", count_text(refused)),
    };
    format!(
        "stopped after {:.1} s: {} calls ({} with errors, {} refused), {} in, {} out, {} connections{}\n",
        elapsed.as_secs_f64(),
        count_text(counters.calls),
        count_text(counters.errors),
        count_text(counters.refused),
        bytes_text(counters.received_bytes),
        bytes_text(counters.sent_bytes),
        count_text(counters.connections_accepted),
        refused_connections,
    )
}

/// An address with its port, or an address or a name alone.
fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, PORT_DEFAULT));
    }
    let resolved =
        if text.contains(':') { text.to_socket_addrs() } else { (text, PORT_DEFAULT).to_socket_addrs() };
    let first = resolved.ok().and_then(|mut addresses| addresses.next());
    first
        .ok_or_else(|| "expected ADDRESS:PORT such as 127.0.0.1:20490, or [::1]:0 for a free port".to_owned())
}
