//! From a target to the storage behind it: the one place that knows all kinds.

use std::num::{NonZeroU16, NonZeroUsize};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use files::{
    DirectoryTransport, DirectoryTransportOptions, FileSystem, LocalFs, NfsProto, NullTransport, Target,
    Transport,
};
use nfs::client::{CacheMode, ClientOptions, FsOptions, NfsFs, UdpOptions, WriteMode};
use quanta::Clock;

use crate::exit::BadUsage;
use crate::quantities::{QuantityError, time};
use crate::terminal::slow_server::said_when_slow;

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
    /// How long the server may be away: a broken connection not regained, or no reply at all.
    pub reconnect_timeout: Duration,
    /// Worker threads of a directory, fixed; none: as many as suit the machine, and more as requests wait for one.
    pub threads: Option<NonZeroUsize>,
}

impl TransportOptions {
    /// For storage whose calls block.
    fn of_workers(&self) -> DirectoryTransportOptions {
        let mut workers = DirectoryTransportOptions::default();
        if let Some(threads) = self.threads {
            (workers.threads, workers.threads_max) = (threads.get(), threads.get());
        }
        workers
    }
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
            let transport = DirectoryTransport::open(path, options.of_workers(), clock.clone());
            Ok(Box::new(transport.with_context(|| cannot_use(path))?))
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
                ..ClientOptions::default()
            };
            Ok(said_when_slow(&target.to_string(), || nfs::client::connect(nfs, &client, clock.clone()))?)
        }
        Target::Pack(path) => open_packed_transport(path, &options.of_workers(), clock),
    }
}

/// Looks, before a plan is shown, whether a target `pack:path` could be opened by [`open_transport`]; of other targets nothing is known
/// without opening them.
///
/// # Errors
/// When it is no file tree.
pub fn takes_load(target: &Target) -> anyhow::Result<()> {
    match target {
        Target::Pack(path) => look_for_tree(path),
        _ => Ok(()),
    }
}

/// How closed-loop benchmarks reach an NFS server; directories need none of it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "NFS targets")]
pub struct FileSystemArgs {
    /// Transport protocol, if the target does not name it [default: tcp]
    #[arg(long, value_parser = proto, value_name = "udp|tcp")]
    pub proto: Option<NfsProto>,

    /// Time for which the client caches names and attributes, such as 3s, or off
    #[arg(long, default_value_t = CacheMode::default(), value_name = "off|TIME", value_parser = cache_mode)]
    pub nfs_cache: CacheMode,

    /// Durability of WRITEs: unstable (one COMMIT when a file is closed or synced) or stable (each WRITE by itself)
    #[arg(long, default_value_t = WriteMode::default(), value_name = "unstable|stable")]
    pub nfs_writes: WriteMode,
}

impl FileSystemArgs {
    /// Opens the storage for blocking calls. Once `stop` is set, calls wait no longer for a server that does not answer.
    ///
    /// # Errors
    /// When it is not there, cannot be reached, or has no files.
    pub fn open(&self, target: &Target, stop: &Arc<AtomicBool>) -> anyhow::Result<Arc<dyn FileSystem>> {
        match target {
            Target::Null => {
                let wrong =
                    anyhow!("null: has no files to work on; name a directory, an nfs:// or a pack: target");
                Err(wrong.context(BadUsage))
            }
            Target::Directory(path) => {
                let fs = LocalFs::open(path.clone()).with_context(|| cannot_use(path))?;
                Ok(Arc::new(fs))
            }
            Target::Nfs(nfs) => {
                let client = ClientOptions {
                    proto: self.proto.unwrap_or_default(),
                    stop: Some(Arc::clone(stop)),
                    ..ClientOptions::default()
                };
                let options = FsOptions { client, cache: self.nfs_cache, writes: self.nfs_writes };
                let opened = said_when_slow(&target.to_string(), || NfsFs::open(nfs, &options));
                Ok(Arc::new(opened?))
            }
            Target::Pack(path) => open_packed(path),
        }
    }

    /// What of it applies to `target`, for the record's configuration.
    pub fn config_json(&self, target: &Target) -> serde_json::Value {
        match target {
            Target::Nfs(nfs) => serde_json::json!({
                "proto": nfs.proto.or(self.proto).unwrap_or_default().to_string(),
                "cache": self.nfs_cache.to_string(),
                "writes": self.nfs_writes.to_string(),
            }),
            Target::Directory(_) | Target::Pack(_) | Target::Null => serde_json::Value::Null,
        }
    }
}

#[cfg(feature = "pack")]
fn open_packed(path: &Path) -> anyhow::Result<Arc<dyn FileSystem>> {
    crate::verbs::pack::place::open_file_system(path)
}

#[cfg(feature = "pack")]
fn open_packed_transport(
    path: &Path,
    workers: &DirectoryTransportOptions,
    clock: &Clock,
) -> anyhow::Result<Box<dyn Transport>> {
    crate::verbs::pack::tree::open_transport(path, workers, clock.clone())
}

/// Whether a target `pack:path` takes many requests at a time.
#[cfg(feature = "pack")]
pub fn takes_requests(path: &Path) -> bool {
    crate::verbs::pack::tree::is_at_or_in_tree(path)
}

#[cfg(feature = "pack")]
fn look_for_tree(path: &Path) -> anyhow::Result<()> {
    crate::verbs::pack::tree::look_for(path)
}

#[cfg(not(feature = "pack"))]
fn look_for_tree(path: &Path) -> anyhow::Result<()> {
    Err(built_without(path))
}

#[cfg(not(feature = "pack"))]
fn open_packed(path: &Path) -> anyhow::Result<Arc<dyn FileSystem>> {
    Err(built_without(path))
}

#[cfg(not(feature = "pack"))]
fn open_packed_transport(
    path: &Path,
    _: &DirectoryTransportOptions,
    _: &Clock,
) -> anyhow::Result<Box<dyn Transport>> {
    Err(built_without(path))
}

/// Whether a target `pack:path` takes many requests at a time.
#[cfg(not(feature = "pack"))]
pub fn takes_requests(_: &Path) -> bool {
    false
}

#[cfg(not(feature = "pack"))]
fn built_without(path: &Path) -> anyhow::Error {
    let wrong = anyhow!(
        "pack:{}: this crumb was built without packed stores; build it with `--features pack`",
        path.display()
    );
    wrong.context(BadUsage)
}

/// Looks whether a directory that is to be measured is there; of other targets nothing is known without opening them.
///
/// # Errors
/// When it is not, or is no directory.
pub fn directory_is_there(target: &str) -> anyhow::Result<()> {
    match target.parse() {
        Ok(Target::Directory(path)) if !path.is_dir() => Err(anyhow!(cannot_use(&path))),
        _ => Ok(()),
    }
}

/// What to say of a directory that cannot be opened, with what was probably meant.
pub fn cannot_use(path: &Path) -> String {
    let shown = path.display();
    let host_and_share =
        shown.to_string().strip_prefix("//").filter(|rest| !rest.starts_with('/')).map(str::to_owned);
    let hint = match std::fs::metadata(path) {
        Ok(there) if !there.is_dir() => "; it is a file: name the directory that it is in".to_owned(),
        Ok(_) => String::new(),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => String::new(),
        Err(_) => match host_and_share {
            Some(rest) if rest.contains('/') => {
                format!("; for an NFS server write nfs://{rest}, another share must be mounted first")
            }
            _ => format!("; make it (mkdir -p {shown}) or name another"),
        },
    };
    format!("cannot use directory {shown}{hint}")
}

/// `off`, or a time.
fn cache_mode(text: &str) -> Result<CacheMode, measure::ValueError> {
    match text {
        "off" => Ok(CacheMode::Off),
        _ => match time(text) {
            Ok(Duration::ZERO) => Ok(CacheMode::Off),
            Ok(keep) => Ok(CacheMode::For(keep)),
            Err(QuantityError::Form { .. }) => Err("expected off, or a time such as 500ms or 3s".into()),
            Err(wrong) => Err(wrong.to_string().into()),
        },
    }
}

/// `udp` or `tcp`.
pub fn proto(text: &str) -> Result<NfsProto, measure::ValueError> {
    match text {
        "udp" => Ok(NfsProto::Udp),
        "tcp" => Ok(NfsProto::Tcp),
        _ => Err("expected udp or tcp".into()),
    }
}

/// What carries the calls to `target` under `options`, when anything does.
pub fn proto_of(target: &Target, options: &TransportOptions) -> Option<NfsProto> {
    match target {
        Target::Nfs(nfs) => Some(nfs.proto.or(options.proto).unwrap_or_default()),
        Target::Directory(_) | Target::Pack(_) | Target::Null => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_used_is_told_with_what_was_probably_meant() {
        let bench = tempfile::tempdir().unwrap();
        let (file, missing) = (bench.path().join("file"), bench.path().join("no"));
        std::fs::write(&file, "").unwrap();
        assert!(cannot_use(&file).ends_with("; it is a file: name the directory that it is in"));
        assert!(
            cannot_use(&missing)
                .ends_with(&format!("make it (mkdir -p {}) or name another", missing.display()))
        );
        let share = cannot_use(Path::new("//filer/no/such/share"));
        assert!(share.contains("for an NFS server write nfs://filer/no/such/share"), "{share}");
    }
}
