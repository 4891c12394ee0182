//! `crumb proxy`: the caching web proxy on the packed store.
//!
//! ```text
//! --config FILE, flags ─> webcache::config ─> store opened or made ─> Server ─> SIGHUP: again   SIGTERM, Ctrl-C: drained
//! ```
//!
//! Always holds: nothing is opened before the whole configuration is known to be right; the store is closed cleanly, so
//! that the next start knows at once what is there.

mod args;
mod cache_store;
mod memory;
mod open_files;

use std::sync::Arc;

use anyhow::Context as _;
use packstore::Store;
use report::count_text;
use rustix::thread::disable_transparent_huge_pages;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use toml::Table;
use webcache::config::{self, Config};
use webcache::server::{Server, Side};

pub use self::args::ProxyArgs;
use crate::context::Context;
use crate::exit::{ExitStatus, in_one_line};
use crate::notify::Supervisor;
use crate::output::{note, print};

/// Runs the verb, until SIGINT or SIGTERM.
pub fn run(args: &ProxyArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    if args.print_config && args.is_empty() {
        print(config::default_toml())?;
        return Ok(ExitStatus::Fine);
    }
    let mut config = args.config()?;
    if args.print_config {
        print(&config::print(&config))?;
        return Ok(ExitStatus::Fine);
    }
    // Before the ready line: a caller that has read it may send a signal.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot listen to signals")?;
    let files_max = open_files::raise_limit();
    bound_connections(&mut config, files_max, context);
    keep_small_pages();
    let store = cache_store::open(&config, context)?;
    tell_of_short_memory(&config, &store, context);
    let kept = Arc::new(store);
    let server = match Server::start(config, Arc::clone(&kept)) {
        Ok(server) => server,
        Err(error) => {
            cache_store::close(kept)?;
            return Err(error.into());
        }
    };
    drop(kept);
    let supervisor = Supervisor::from_environment();
    announce(&server)?;
    supervisor.tell("READY=1");
    for signal in signals.forever() {
        if signal != SIGHUP {
            break;
        }
        supervisor.tell("RELOADING=1");
        reload(args, &server, files_max, context);
        supervisor.tell("READY=1");
    }
    supervisor.tell("STOPPING=1");
    // The second one ends it at once: what was not written is fetched again.
    std::thread::spawn(move || {
        if signals.forever().any(|signal| signal != SIGHUP) {
            std::process::exit(130);
        }
    });
    let requests: u64 = server
        .shared()
        .counters
        .iter()
        .flat_map(|counters| counters.requests.iter().map(|counter| counter.get()))
        .sum();
    match server.stop() {
        Some(store) => cache_store::close(store)?,
        None => tracing::warn!("some requests did not end in time; the next start looks through the store"),
    }
    note(context, &format!("stopped after {} requests", count_text(requests)));
    Ok(ExitStatus::Fine)
}

/// Bounds the connections by the limit of open files.
fn bound_connections(config: &mut Config, files_max: u64, context: &Context) {
    let (allowed, remark) =
        open_files::bound(config.limits.connections_max, default_connections(), files_max);
    config.limits.connections_max = allowed;
    remark.iter().for_each(|text| note(context, text));
}

/// What limits.connections is when the operator says nothing of it.
fn default_connections() -> usize {
    let defaults: Table = config::default_toml().parse().expect("the default configuration is TOML");
    let connections = defaults["limits"]["connections"].as_integer().expect("it is a number");
    usize::try_from(connections).expect("it is a small number")
}

/// Too little of it ends a process without a word, when most clients are there.
fn tell_of_short_memory(config: &Config, store: &Store, context: &Context) {
    let behind_bytes = config.cache.behind_bytes_max;
    let cache_bytes = [config.cache.memory_bytes_max, behind_bytes, behind_bytes]
        .into_iter()
        .fold(store.usage().memory_bytes, u64::saturating_add);
    let allowed_bytes = measure::memory_bytes().unwrap_or(u64::MAX);
    if config.limits.connections_max < usize::MAX
        && let Some(text) = memory::shortage(config.limits.connections_max as u64, cache_bytes, allowed_bytes)
    {
        note(context, &text);
    }
}

/// What a request that waits holds is mostly buffers that nothing has come into yet: a huge page makes all of that resident.
fn keep_small_pages() {
    if let Err(error) = disable_transparent_huge_pages(true) {
        tracing::warn!("cannot do without transparent huge pages: {error}");
    }
}

fn announce(server: &Server) -> anyhow::Result<()> {
    let mut text = String::new();
    for (address, side) in server.addresses() {
        let what = match side {
            Side::Forward => "proxy for clients that name whole URLs",
            Side::Reverse { tls: false } => "reverse proxy, http",
            Side::Reverse { tls: true } => "reverse proxy, https",
        };
        text.push_str(&format!("listening at {address} ({what})\n"));
    }
    if let Some(address) = server.admin_address() {
        text.push_str(&format!("listening at {address} (administration)\n"));
    }
    if let Some(address) = server.icp_address() {
        text.push_str(&format!("listening at {address} (ICP, UDP: other caches)\n"));
    }
    text.push_str("ready\n");
    print(&text)
}

fn reload(args: &ProxyArgs, server: &Server, files_max: u64, context: &Context) {
    // The proxy continues with the old configuration when the new one is wrong.
    let reloaded = args.config().and_then(|mut config| {
        bound_connections(&mut config, files_max, context);
        Ok(server.reload(config)?)
    });
    match reloaded {
        Ok(kept) if kept.is_empty() => note(context, "configuration read again"),
        Ok(kept) => {
            note(
                context,
                &format!("configuration read again; needs a new start to count: {}", kept.join(", ")),
            );
        }
        Err(error) => tracing::error!("the configuration stays as it was: {}", in_one_line(&error)),
    }
}
