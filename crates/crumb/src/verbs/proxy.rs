//! `crumb proxy`: the caching web proxy on the packed store.
//!
//! ```text
//! --config FILE, flags ─> webcache::config ─> store opened or made ─> Server ─> SIGHUP: again   SIGTERM, Ctrl-C: drained
//! ```
//!
//! Always holds: nothing is opened before the whole configuration is known to be right; the store is closed cleanly, so
//! that the next start knows at once what is there.

mod memory;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use clap::Args;
use packstore::{CacheOptions, Mode, OpenOptions, Store, StoreOptions, Verify};
use report::{bytes_text, count_text};
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::disable_transparent_huge_pages;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use toml::{Table, Value};
use webcache::config::{self, Config};
use webcache::server::{Server, Side};

use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus, in_one_line};
use crate::notify::Supervisor;
use crate::output::{note, print};
use crate::verbs::pack::place::{Place, SizedVolume};

/// Run the caching web proxy on a packed store.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  A proxy for this machine:
    crumb proxy --cache /var/cache/crumb --listen 127.0.0.1:3128
    curl -x 127.0.0.1:3128 http://example.org/
  In front of a site:
    crumb proxy --cache /var/cache/crumb --listen 127.0.0.1:8080 --origin http://127.0.0.1:80
  Every setting, with the values in force:
    crumb proxy --print-config > crumb.toml
    crumb proxy --config crumb.toml

SIGHUP reads the file again and opens the log anew; no connection is dropped. SIGTERM and Ctrl-C let
requests end (proxy.drain_s) and close the store.")]
pub struct ProxyArgs {
    /// TOML file with the settings that differ from the defaults
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Cache directories, ideally one per disk; created if missing [cache.directories]
    #[arg(long, value_name = "DIR", value_delimiter = ',')]
    cache: Vec<String>,

    /// Address to listen on for clients; port 0 takes a free one [forward.listen, with --origin reverse.listen]
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,

    /// Origin for requests to any host (reverse proxy), such as http://127.0.0.1:80 [site]
    #[arg(long, value_name = "URL")]
    origin: Vec<String>,

    /// Space to use in each directory in MiB, set when the store is created [cache.size_mib]
    #[arg(long, value_name = "MIB")]
    size_mib: Option<u32>,

    /// Address to listen on for metrics and the status page [admin.listen]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,

    /// Access log file, - for standard output [log.file]
    #[arg(long, value_name = "FILE")]
    log: Option<String>,

    /// Set any other key, such as limits.idle_s=30
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Print every setting with its meaning and the value in force, and exit
    #[arg(long)]
    print_config: bool,
}

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
    let files_max = raise_file_limit();
    bound_connections(&mut config, files_max, context);
    keep_small_pages();
    let store = open_store(&config, context)?;
    tell_of_short_memory(&config, &store, context);
    let kept = Arc::new(store);
    let server = match Server::start(config, Arc::clone(&kept)) {
        Ok(server) => server,
        Err(error) => {
            close(kept)?;
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
        Some(store) => close(store)?,
        None => tracing::warn!("some requests did not end in time; the next start looks through the store"),
    }
    note(context, &format!("stopped after {} requests", count_text(requests)));
    Ok(ExitStatus::Fine)
}

impl ProxyArgs {
    fn is_empty(&self) -> bool {
        let lists = [&self.cache, &self.listen, &self.origin, &self.set];
        self.config.is_none()
            && lists.iter().all(|list| list.is_empty())
            && self.size_mib.is_none()
            && self.admin.is_none()
            && self.log.is_none()
    }

    fn config(&self) -> anyhow::Result<Config> {
        let text = match &self.config {
            None => String::new(),
            Some(file) => measure::read_text(file, measure::SETTINGS_BYTES_MAX)
                .with_context(|| format!("{}: cannot be read", file.display()))
                .map_err(|error| error.context(BadUsage))?,
        };
        let flags = self.flags().map_err(|error| error.context(BadUsage))?;
        config::read(&text, flags).map_err(|error| {
            let place = self.config.as_deref().unwrap_or(Path::new("configuration"));
            anyhow!("{}: {error}", place.display()).context(BadUsage)
        })
    }

    /// What the flags say, as the file would.
    fn flags(&self) -> anyhow::Result<Table> {
        let mut flags = Table::new();
        let texts = |list: &[String]| Value::Array(list.iter().cloned().map(Value::String).collect());
        if !self.cache.is_empty() {
            set(&mut flags, "cache", "directories", texts(&self.cache));
        }
        if !self.listen.is_empty() {
            let section = if self.origin.is_empty() { "forward" } else { "reverse" };
            set(&mut flags, section, "listen", texts(&self.listen));
        }
        if !self.origin.is_empty() {
            let site =
                [("hosts".to_owned(), texts(&["*".to_owned()])), ("origins".to_owned(), texts(&self.origin))];
            flags.insert("site".to_owned(), Value::Array(vec![Value::Table(Table::from_iter(site))]));
        }
        if let Some(size_mib) = self.size_mib {
            set(&mut flags, "cache", "size_mib", Value::Integer(size_mib.into()));
        }
        if let Some(admin) = &self.admin {
            set(&mut flags, "admin", "listen", Value::String(admin.clone()));
        }
        if let Some(log) = &self.log {
            set(&mut flags, "log", "file", Value::String(log.clone()));
        }
        for text in &self.set {
            let wrong = || anyhow!("--set {text}: expected SECTION.KEY=VALUE, as limits.idle_s=30");
            let (name, value) = text.split_once('=').ok_or_else(wrong)?;
            let (section, key) = name.split_once('.').ok_or_else(wrong)?;
            // As TOML has it; a word without quotes is a text.
            let digits = value.strip_prefix(['-', '+']).unwrap_or(value);
            let value = match format!("value = {value}").parse::<Table>() {
                Ok(mut table) => table.remove("value").ok_or_else(wrong)?,
                Err(_) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                    return Err(anyhow!("--set {text}: a number is from {} to {}", i64::MIN, i64::MAX));
                }
                Err(_) => Value::String(value.to_owned()),
            };
            set(&mut flags, section, key, value);
        }
        Ok(flags)
    }
}

fn set(flags: &mut Table, section: &str, key: &str, value: Value) {
    let section = flags.entry(section).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(section) = section {
        section.insert(key.to_owned(), value);
    }
}

/// The soft limit is 1024 on most systems, which stands for programs that use select. Returns the limit of open files.
fn raise_file_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Open files that clients leave to the store, the log and the listeners; a quarter of the limit where that is less.
const RESERVED_FILES: u64 = 512;

/// Number of client connections that this many open files allow: each takes one, and one more to an origin.
fn connections_allowed(files_max: u64) -> usize {
    let reserved = RESERVED_FILES.min(files_max / 4);
    usize::try_from((files_max - reserved) / 2).unwrap_or(usize::MAX).max(1)
}

/// Bounds the connections by the limit of open files, so that clients leave some to the store.
fn bound_connections(config: &mut Config, files_max: u64, context: &Context) {
    let allowed = connections_allowed(files_max);
    let wanted = config.limits.connections_max;
    if allowed >= wanted {
        return;
    }
    config.limits.connections_max = allowed;
    if wanted < usize::MAX {
        let text = format!(
            "{} open files are allowed, enough for {} connections; limits.connections = {wanted} needs more \
             (LimitNOFILE=, ulimit -Hn)",
            count_text(files_max),
            count_text(allowed as u64),
        );
        note(context, &text);
    }
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

/// What most replies take in the store besides their bodies: the head, and the URL twice.
const REPLY_BESIDES_BYTES: u32 = 256;

fn open_store(config: &Config, context: &Context) -> anyhow::Result<Store> {
    let (first, others) = config.cache.directories.split_first().context("no directory")?;
    let cache = CacheOptions { behind_bytes_max: config.store_behind_bytes(), ..CacheOptions::default() };
    let memory_bytes_max = config.cache.memory_bytes_max;
    let verify = match config.cache.verify_one_in {
        1 => Verify::Always,
        reads => Verify::OneIn(reads),
    };
    if let Some(parent) = first.parent() {
        std::fs::create_dir_all(parent).with_context(|| format!("{}: cannot be made", parent.display()))?;
    }
    // A volume whose head is gone is opened by the copy of its head.
    if !["volume", "volume.copy", "volumes"].iter().any(|name| first.join(name).exists()) {
        let volumes: Vec<SizedVolume> = others
            .iter()
            .map(|directory| {
                directory.display().to_string().parse::<SizedVolume>().map_err(|error: String| anyhow!(error))
            })
            .collect::<anyhow::Result<_>>()?;
        let options = StoreOptions {
            mode: Mode::Cache,
            object_bytes_mean: config.cache.object_mean_bytes.saturating_add(REPLY_BESIDES_BYTES),
            cache,
            verify,
            memory_bytes_max,
            ..StoreOptions::default()
        };
        let (_, store) = Place::create(first, config.cache.size_bytes, &volumes, options)?;
        note(
            context,
            &format!("made a cache of {} in {}", bytes_text(store.usage().size_bytes), first.display()),
        );
        return Ok(store);
    }
    let mut place = Place::read(first)?;
    let store = place.open(OpenOptions { cache, verify, memory_bytes_max, ..OpenOptions::default() })?;
    if store.mode() != Mode::Cache {
        let error = anyhow!(
            "{}: is a store that evicts nothing; name another directory, or make this one with `crumb pack create \
             --mode cache`",
            first.display()
        );
        return Err(error.context(BadUsage));
    }
    for directory in others {
        let there = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.clone());
        if !place.directories().iter().any(|known| *known == there) {
            place.grow(&store, directory, config.cache.size_bytes)?;
            note(context, &format!("added {} to the cache", directory.display()));
        }
    }
    Ok(store)
}

fn close(store: Arc<Store>) -> anyhow::Result<()> {
    let Ok(store) = Arc::try_unwrap(store) else { return Ok(()) };
    store.close().context("the cache could not be closed cleanly; the next start looks through it")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_open_files_to_the_store() {
        assert_eq!(connections_allowed(1024), 384);
        assert_eq!(connections_allowed(1 << 20), (1 << 19) - 256);
        assert_eq!(connections_allowed(0), 1);
    }
}
