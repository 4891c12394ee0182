//! Whether something else on the machine changed what was measured: other processes, the hypervisor, a CPU quota.
//!
//! ```text
//! waited     run delay of this process's threads            /proc/self/task/*/schedstat    (see `threads`)
//! others     CPU time of processes that are no part of it   /proc/stat, /proc/*/stat       (see `processes`)
//! stolen     CPU time that the hypervisor gave to others    /proc/stat, steal
//! throttled  time a CPU quota stopped the control group     cpu.stat                       (see `throttling`)
//!
//! lost to others = waited / time of the threads that measure  x  others / (others + ours), at most others / length
//! ```
//!
//! Threads of a run wait for each other too, and for the server, which is a part of what is measured. So only the share of
//! the waiting counts that other processes had in the CPU time. A machine is called *disturbed* when that share, the stolen
//! time or the throttled time is above its limit. The load average is not looked at: it counts those who wait for a disk, and
//! it is late.
//!
//! Ours are: this process and its children, threads of the kernel, file system daemons (which hold `/dev/fuse` open), servers
//! on this machine that the run talks to, and other ranks of the run on this host. What cannot be distinguished: a server of
//! another user, whose sockets only root can see, counts as ours when the run talks to a server on this machine; in a
//! container the kernel's threads and other containers look alike, and count as others.
//!
//! Not here: which part of a run is a stretch to be judged (the benchmarks).

mod processes;
mod threads;
mod throttling;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use self::processes::{Processes, ServerPorts};
use self::threads::Delays;
pub use self::threads::{EndedThreads, MeasuringThread};
use crate::{MetricDeclaration, ProcessUse, ProcessWatch, Verdict};

/// Code of the finding that the machine was disturbed.
pub const MACHINE_DISTURBED: &str = "machine-disturbed";

/// Share of the measuring threads' time that may be lost to other processes.
const LOST_TO_OTHERS_MAX: f64 = 0.05;
/// Share of the CPU time that this machine asked for which the hypervisor may keep.
const STOLEN_MAX: f64 = 0.05;
/// Share of one CPU that it may keep in any case. The time to wake an idle virtual CPU counts as stolen too, and a load that sleeps
/// between its requests uses hardly more than that.
const STOLEN_CPUS_MAX: f64 = 0.05;
/// Share of the time in which a CPU quota may stop this process.
const THROTTLED_MAX: f64 = 0.02;
/// The kernel counts CPU time in hundredths of a second: of less time than this no share is known well.
const WALL_MIN: Duration = Duration::from_millis(500);
/// A stretch within a run is judged by itself from this length on.
const STRETCH_MIN: Duration = Duration::from_secs(1);
/// Other processes that a finding names.
const NAMED_MAX: usize = 3;

/// What a meter has to know of the run.
#[derive(Clone, Debug)]
pub struct MeterScope {
    /// Threads whose time decides the figures.
    pub threads: usize,
    /// Threads that may end while the meter runs.
    pub ended: EndedThreads,
    /// Servers that the run talks to, besides those that it has a connection with when the meter starts or stops.
    pub servers: Vec<SocketAddr>,
    /// Other processes of the same program are ranks of this run.
    pub has_ranks: bool,
}

impl MeterScope {
    /// Of that many threads, alone.
    pub fn of_threads(threads: usize) -> Self {
        Self { threads, ended: EndedThreads::default(), servers: vec![], has_ranks: false }
    }
}

/// Watches the machine during one stretch of a run. Reads at its start and end and does nothing in between.
#[derive(Debug)]
pub struct MachineMeter {
    scope: MeterScope,
    ports: ServerPorts,
    servers: ProcessWatch,
    processes: Processes,
    cpus: CpuCounts,
    throttled: Duration,
    own: Duration,
    delays: Delays,
    begun: Instant,
}

/// What the machine did during one stretch, or several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineUse {
    /// Its length.
    pub wall: Duration,
    /// Time that the measuring threads had together.
    pub threads_time: Duration,
    /// Time that threads of this process waited for a CPU.
    pub waited: Duration,
    /// CPU time of this process and of what is measured.
    pub ours: Duration,
    /// CPU time of other processes.
    pub others: Duration,
    /// CPU time of all.
    pub busy: Duration,
    /// CPU time that the hypervisor gave to others.
    pub stolen: Duration,
    /// Time in which a CPU quota stopped this process.
    pub throttled: Duration,
    /// The other processes that used most: name, how many of that name, CPU time.
    pub named: Vec<(String, u32, Duration)>,
    /// What the servers that the run talks to used; none where no server runs on this machine, or its processes cannot be seen.
    pub servers: Option<ProcessUse>,
}

/// What the machine did in all stretches of a run, and in the worst of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineLog {
    /// All stretches together.
    pub whole: MachineUse,
    /// The stretch of a second or more in which most was lost to other processes.
    pub worst: Option<(String, MachineUse)>,
}

/// CPU time since the machine started, of all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CpuCounts {
    /// In processes and the kernel's threads.
    tasks: Duration,
    /// The same with interrupts.
    busy: Duration,
    stolen: Duration,
}

/// What [`MachineLog::metrics`] emits.
pub const MACHINE_METRICS: [MetricDeclaration; 5] = [
    MetricDeclaration::percent("machine_lost_to_others_percent", "Time lost to other processes"),
    MetricDeclaration::percent("machine_run_delay_percent", "Waited for a CPU, for any reason"),
    MetricDeclaration::percent("machine_others_cpu_percent", "CPU used by other processes, of one CPU"),
    MetricDeclaration::percent("machine_stolen_percent", "CPU time stolen"),
    MetricDeclaration::percent("machine_throttled_percent", "Throttled by a CPU quota"),
];

impl MachineMeter {
    /// Begins. Takes some milliseconds, more where there are many processes.
    pub fn start(scope: MeterScope) -> Self {
        let ports = ServerPorts::of_connections(&scope.servers);
        Self {
            servers: ProcessWatch::start(&ports.holders()),
            ports,
            processes: Processes::read(),
            cpus: CpuCounts::read(),
            throttled: throttling::throttled(),
            own: own_cpu(),
            delays: Delays::read(),
            begun: Instant::now(),
            scope,
        }
    }

    /// Ends the stretch.
    pub fn stop(mut self) -> MachineUse {
        let wall = self.begun.elapsed();
        let waited = self.delays.since(&Delays::read(), &self.scope.ended);
        let own = own_cpu().saturating_sub(self.own);
        let cpus = CpuCounts::read();
        let throttled = throttling::throttled().saturating_sub(self.throttled);
        let ports = self.ports.and(ServerPorts::of_connections(&self.scope.servers));
        let found = Processes::read().since(&self.processes, &ports, self.scope.has_ranks);
        let tasks = cpus.tasks.saturating_sub(self.cpus.tasks);
        // Processes that began and ended meanwhile are in the sum of all CPUs and in no list.
        let others = if tasks.is_zero() { found.others } else { tasks.saturating_sub(own + found.ours) };
        let mut named = found.named;
        named.truncate(NAMED_MAX);
        MachineUse {
            wall,
            threads_time: wall * u32::try_from(self.scope.threads.max(1)).unwrap_or(u32::MAX),
            waited,
            ours: own + found.ours,
            others,
            busy: cpus.busy.saturating_sub(self.cpus.busy),
            stolen: cpus.stolen.saturating_sub(self.cpus.stolen),
            throttled,
            named,
            servers: self.servers.lap(),
        }
    }
}

/// CPU time of this process.
fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

impl CpuCounts {
    fn read() -> Self {
        Self::of_stat(&fs::read_to_string("/proc/stat").unwrap_or_default()).unwrap_or_default()
    }

    /// The first line of `/proc/stat` (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal. Time of virtual
    /// machines is in user and nice.
    fn of_stat(stat: &str) -> Option<Self> {
        let fields = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = fields.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let at = |place: usize| ticks.get(place).copied().unwrap_or(0);
        let tasks = at(0) + at(1) + at(2);
        Some(Self { tasks: of_ticks(tasks), busy: of_ticks(tasks + at(5) + at(6)), stolen: of_ticks(at(7)) })
    }
}

/// Clock ticks as time.
fn of_ticks(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

impl MachineUse {
    /// Share of the measuring threads' time that threads of this process waited for a CPU, 0 to 1.
    pub fn run_delay_share(&self) -> f64 {
        share(self.waited, self.threads_time)
    }

    /// Share of the measuring threads' time that was lost to other processes, 0 to 1.
    pub fn lost_to_others(&self) -> f64 {
        // Waking an idle CPU is in the run delay too, and nobody else's doing: a thread can wait for others only while they run.
        let of_waiting = self.run_delay_share() * share(self.others, self.others + self.ours);
        of_waiting.min(self.others_cpus())
    }

    /// Share of the CPU time asked for that the hypervisor kept, 0 to 1.
    pub fn stolen_share(&self) -> f64 {
        // The kernel counts who runs at its clock ticks alone: a thread that sleeps at each of them, as a load of 10,000/s may, is
        // in `ours`, by the scheduler's clock, and not in `busy`.
        share(self.stolen, self.busy.max(self.ours) + self.stolen)
    }

    /// CPUs that the hypervisor kept on average.
    fn stolen_cpus(&self) -> f64 {
        self.stolen.as_secs_f64() / self.wall.as_secs_f64().max(1e-9)
    }

    /// Share of the time in which a CPU quota stopped this process, 0 to 1.
    pub fn throttled_share(&self) -> f64 {
        share(self.throttled, self.wall)
    }

    /// CPUs that other processes used on average.
    pub fn others_cpus(&self) -> f64 {
        self.others.as_secs_f64() / self.wall.as_secs_f64().max(1e-9)
    }

    /// What disturbed it, in one sentence with the numbers; none when nothing did.
    pub fn disturbance(&self) -> Option<String> {
        if self.wall < WALL_MIN {
            return None;
        }
        let mut found = Vec::new();
        if self.lost_to_others() > LOST_TO_OTHERS_MAX {
            found.push(format!(
                "threads of this run waited {} of their time for CPUs that other processes had, which used {} of one CPU{}: stop them",
                percent(self.lost_to_others()),
                percent(self.others_cpus()),
                self.names()
            ));
        }
        if self.stolen_share() > STOLEN_MAX && self.stolen_cpus() > STOLEN_CPUS_MAX {
            found.push(format!(
                "the hypervisor gave {} of the CPU time to other machines: measure when they are quiet",
                percent(self.stolen_share())
            ));
        }
        if self.throttled_share() > THROTTLED_MAX {
            found.push(format!(
                "a CPU quota stopped this process {} of the time: raise the quota of its control group",
                percent(self.throttled_share())
            ));
        }
        (!found.is_empty()).then(|| found.join("; "))
    }

    /// ` (sh x4 166%, cc 10%)`.
    fn names(&self) -> String {
        let used = |time: &Duration| percent(time.as_secs_f64() / self.wall.as_secs_f64().max(1e-9));
        let named = self.named.iter().map(|(name, count, time)| match count {
            0 | 1 => format!("{name} {}", used(time)),
            count => format!("{name} x{count} {}", used(time)),
        });
        let named: Vec<String> = named.collect();
        if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) }
    }

    /// Adds a finding to `verdict` when the machine was disturbed.
    pub fn judge(&self, verdict: &mut Verdict) {
        if let Some(text) = self.disturbance() {
            verdict.invalidate(MACHINE_DISTURBED, format!("the machine was disturbed: {text}"));
        }
    }
}

impl AddAssign<&Self> for MachineUse {
    fn add_assign(&mut self, more: &Self) {
        self.wall += more.wall;
        self.threads_time += more.threads_time;
        self.waited += more.waited;
        self.ours += more.ours;
        self.others += more.others;
        self.busy += more.busy;
        self.stolen += more.stolen;
        self.throttled += more.throttled;
        match (&mut self.servers, &more.servers) {
            (Some(servers), Some(more)) => servers.add(more),
            (servers @ None, more) => *servers = *more,
            (Some(_), None) => {}
        }
        for (name, count, time) in &more.named {
            match self.named.iter_mut().find(|known| known.0 == *name) {
                Some(known) => (known.1, known.2) = (known.1.max(*count), known.2 + *time),
                None => self.named.push((name.clone(), *count, *time)),
            }
        }
        self.named.sort_by_key(|named| std::cmp::Reverse(named.2));
        self.named.truncate(NAMED_MAX);
    }
}

impl MachineLog {
    /// Takes in a stretch.
    pub fn push(&mut self, name: &str, stretch: MachineUse) {
        self.whole += &stretch;
        if stretch.wall >= STRETCH_MIN {
            self.offer_worst(name.to_owned(), stretch);
        }
    }

    /// Puts what was seen over the whole run in the place of the sum of its stretches: a watcher beside the run wakes late on a busy
    /// machine, and then its stretches are too short.
    pub fn set_whole(&mut self, whole: MachineUse) {
        self.whole = whole;
    }

    /// Takes in what another rank saw.
    pub fn merge(&mut self, other: Self) {
        self.whole += &other.whole;
        if let Some((name, stretch)) = other.worst {
            self.offer_worst(name, stretch);
        }
    }

    fn offer_worst(&mut self, name: String, stretch: MachineUse) {
        let is_worst =
            self.worst.as_ref().is_none_or(|(_, worst)| stretch.lost_to_others() > worst.lost_to_others());
        if is_worst {
            self.worst = Some((name, stretch));
        }
    }

    /// As metrics of a record; nothing when less than half a second was watched.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        if self.whole.wall < WALL_MIN {
            return BTreeMap::new();
        }
        let whole = &self.whole;
        let shares = [
            whole.lost_to_others(),
            whole.run_delay_share(),
            whole.others_cpus(),
            whole.stolen_share(),
            whole.throttled_share(),
        ];
        let named = MACHINE_METRICS.iter().zip(shares);
        named.map(|(metric, share)| (metric.name.to_owned(), 100.0 * share)).collect()
    }

    /// Adds a finding to `verdict` when the machine was disturbed, over the whole run or in one stretch of it.
    pub fn judge(&self, verdict: &mut Verdict) {
        self.whole.judge(verdict);
        if !verdict.has(MACHINE_DISTURBED)
            && let Some((name, stretch)) = &self.worst
            && let Some(text) = stretch.disturbance()
        {
            verdict.invalidate(MACHINE_DISTURBED, format!("the machine was disturbed in {name}: {text}"));
        }
    }
}

fn share(part: Duration, of: Duration) -> f64 {
    (part.as_secs_f64() / of.as_secs_f64().max(1e-9)).min(1.0)
}

fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}

#[cfg(test)]
mod tests;
