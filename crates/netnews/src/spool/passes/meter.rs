//! Times a phase: elapsed, CPU, and what the devices under the storage did, or its NFS client.
//!
//! Counters of the spool's storage go by their own names, those of history and other places have them in front.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use files::FileSystem;
use measure::{CpuMeter, DiskMeter, MachineMeter, MeterScope, Phase};

use crate::spool::layout::Storage;
use crate::spool::results::part::MeasuredPhase;

/// A phase under way.
pub(crate) struct PhaseMeter {
    name: &'static str,
    pass: u32,
    disks: Vec<(String, DiskMeter)>,
    clients: Vec<Client>,
    machine: MachineMeter,
    cpu: CpuMeter,
    begun: Instant,
}

/// A client of ours at the phase's beginning.
struct Client {
    prefix: String,
    fs: Arc<dyn FileSystem>,
    begun: Vec<(String, u64)>,
}

impl Client {
    /// What it has counted since, but for what did not occur.
    fn used(&self) -> impl Iterator<Item = (String, f64)> {
        let before =
            |name: &str| self.begun.iter().find(|(known, _)| known == name).map_or(0, |known| known.1);
        self.fs.client_counts().into_iter().filter_map(move |(name, count)| {
            let more = count.saturating_sub(before(&name));
            (more > 0).then(|| (format!("{}{name}", self.prefix), more as f64))
        })
    }
}

impl PhaseMeter {
    /// Begins; the meters of devices first, as reading them takes time.
    pub(crate) fn start(name: &'static str, pass: u32, storage: &Storage, scope: MeterScope) -> Self {
        let mut disks: Vec<(String, DiskMeter)> = Vec::new();
        let named = [(String::new(), &storage.spool)]
            .into_iter()
            .chain(storage.history.iter().map(|fs| ("history_".to_owned(), fs)))
            .chain(storage.places.iter().enumerate().map(|(at, (_, fs))| (format!("place{}_", at + 1), fs)));
        let mut clients = Vec::new();
        for (prefix, fs) in named {
            if let Some(meter) = fs.local_root().and_then(DiskMeter::start) {
                disks.push((prefix, meter));
                continue;
            }
            let begun = fs.client_counts();
            if !begun.is_empty() {
                clients.push(Client { prefix, fs: Arc::clone(fs), begun });
            }
        }
        let machine = MachineMeter::start(scope);
        Self { name, pass, disks, clients, machine, cpu: CpuMeter::start(), begun: Instant::now() }
    }

    /// Ends it with what was done.
    pub(crate) fn stop(self, items: u64, bytes: u64) -> MeasuredPhase {
        let wall_s = self.begun.elapsed().as_secs_f64();
        let cpu = self.cpu.used();
        let mut of_machine = BTreeMap::new();
        for (prefix, disk) in &self.disks {
            let used = disk.used().counters();
            of_machine.extend(used.into_iter().map(|(name, value)| (format!("{prefix}{name}"), value)));
        }
        let phase = Phase {
            name: self.name.to_owned(),
            pass: self.pass,
            wall_s,
            user_s: cpu.user.as_secs_f64(),
            sys_s: cpu.sys.as_secs_f64(),
            items,
            bytes,
            items_per_sec: items as f64 / wall_s.max(1e-9),
            // What a client of ours asked of its server adds up over ranks.
            counters: self.clients.iter().flat_map(Client::used).collect(),
            time_series: None,
        };
        MeasuredPhase { phase, of_machine, machine: self.machine.stop(), ..MeasuredPhase::default() }
    }
}
