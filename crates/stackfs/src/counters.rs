//! Operations by type, with their latencies, as the paper's table 1 counts them.
//!
//! The counts are of requests that reached the daemon: not of those that the kernel answers from its caches, nor of file
//! data that bypasses the daemon. Each worker thread has its own counts, with a histogram per type of operation that it has
//! done; a reader merges them.
//!
//! Locks: a thread's own, a leaf, contended only while somebody reads the counts.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use measure::{LatencyHistogram, PrometheusKind, PrometheusPage};

use crate::adapter::{Waited, Waiting};
use crate::tree::nodes::lock;

macro_rules! operations {
    ($($variant:ident $name:literal)*) => {
        /// A type of operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        #[allow(missing_docs)]
        pub enum Operation { $($variant),* }

        impl Operation {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// As it is shown: the protocol's name in lower case.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

operations! {
    Lookup "lookup" Getattr "getattr" Setattr "setattr" Readlink "readlink" Symlink "symlink" Mknod "mknod"
    Mkdir "mkdir" Unlink "unlink" Rmdir "rmdir" Rename "rename" Link "link" Create "create" Open "open"
    Read "read" Write "write" Release "release" Fsync "fsync" Opendir "opendir" Readdir "readdir"
    Releasedir "releasedir" Fsyncdir "fsyncdir" Statfs "statfs" Getxattr "getxattr" Listxattr "listxattr"
    Setxattr "setxattr" Removexattr "removexattr" Fallocate "fallocate" Lseek "lseek" CopyFileRange "copy_file_range"
    Forget "forget" Ioctl "ioctl" Access "access"
}

impl Operation {
    /// Whether table 1 counts it: operations that use a path name. It has no reading, writing, or what follows.
    pub fn by_name(self) -> bool {
        !matches!(
            self,
            Self::Read
                | Self::Write
                | Self::Release
                | Self::Releasedir
                | Self::Fsync
                | Self::Fsyncdir
                | Self::Forget
                | Self::Fallocate
                | Self::Lseek
                | Self::CopyFileRange
                | Self::Ioctl
                | Self::Open
                | Self::Opendir
        )
    }
}

/// Counts of one mount.
pub struct Counters {
    slots: Vec<Mutex<Slot>>,
    since: Instant,
}

type Slot = Vec<Option<Count>>;

struct Count {
    latency: LatencyHistogram,
    failed: u64,
}

/// One type of operation, as counted.
#[derive(Clone, Debug)]
pub struct Counted {
    /// How long they took in the daemon, failed ones as well.
    pub latency: LatencyHistogram,
    /// Those answered with an error; a look-up of a missing name is one.
    pub failed: u64,
}

/// The counts at one time.
#[derive(Clone, Debug)]
pub struct Census {
    /// Since the mount was made.
    pub elapsed: Duration,
    /// By type, only those that happened.
    pub operations: BTreeMap<Operation, Counted>,
    /// Inodes that the kernel holds references to.
    pub nodes: usize,
    /// Files that are open.
    pub files_open: usize,
    /// Directories that are open.
    pub directories_open: usize,
    /// Directories of which a descriptor is kept.
    pub directories_kept: usize,
    /// Files registered for the kernel's pass-through.
    pub passed_through: usize,
    /// How the threads wait for requests.
    pub waiting: Waiting,
    /// What they did by that.
    pub waited: Waited,
}

const SLOTS: usize = 16;

impl Default for Counters {
    fn default() -> Self {
        let slot = || Mutex::new(Operation::ALL.iter().map(|_| None).collect());
        Self { slots: (0..SLOTS).map(|_| slot()).collect(), since: Instant::now() }
    }
}

impl Counters {
    pub(crate) fn record(&self, operation: Operation, latency: Duration, failed: bool) {
        let mut slot = lock(&self.slots[this_thread()]);
        let count = slot[operation as usize]
            .get_or_insert_with(|| Count { latency: LatencyHistogram::new(), failed: 0 });
        count.latency.record(latency);
        count.failed += u64::from(failed);
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    pub(crate) fn operations(&self) -> BTreeMap<Operation, Counted> {
        let mut all = BTreeMap::<Operation, Counted>::new();
        for slot in &self.slots {
            let slot = lock(slot);
            for (operation, count) in Operation::ALL.iter().zip(slot.iter()) {
                let Some(count) = count else { continue };
                all.entry(*operation)
                    .and_modify(|sum| {
                        sum.latency.merge(&count.latency);
                        sum.failed += count.failed;
                    })
                    .or_insert_with(|| Counted { latency: count.latency.clone(), failed: count.failed });
            }
        }
        all
    }
}

/// Which slot this thread counts in.
fn this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static SLOT: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS);
    SLOT.with(|slot| *slot)
}

impl Census {
    /// Operations of all types.
    pub fn total(&self) -> u64 {
        self.operations.values().map(|counted| counted.latency.count()).sum()
    }

    /// The rows of the paper's table 1: readdir, lookup, unlink, create and all other operations that use a name,
    /// each with its count and its share of them in percent.
    pub fn table_1(&self) -> [(&'static str, u64, f64); 5] {
        let count =
            |wanted: Operation| self.operations.get(&wanted).map_or(0, |counted| counted.latency.count());
        let all: u64 = self
            .operations
            .iter()
            .filter(|(operation, _)| operation.by_name())
            .map(|(_, counted)| counted.latency.count())
            .sum();
        let first = [
            ("readdir", count(Operation::Readdir)),
            ("lookup", count(Operation::Lookup)),
            ("unlink", count(Operation::Unlink)),
            ("create", count(Operation::Create)),
        ];
        let other = all - first.iter().map(|(_, count)| count).sum::<u64>();
        [first[0], first[1], first[2], first[3], ("all other", other)]
            .map(|(name, count)| (name, count, 100.0 * count as f64 / all.max(1) as f64))
    }

    /// The counts in Prometheus' text format.
    pub fn prometheus(&self) -> String {
        let mut page = PrometheusPage::new("crumb_mount_");
        let help = "Time spent in the daemon by type of operation.";
        let mut seconds = page.metric("operation_seconds", PrometheusKind::Summary, help);
        for (operation, counted) in &self.operations {
            let name = operation.name();
            for quantile in [0.5, 0.9, 0.99, 0.999] {
                let labels = [("operation", name), ("quantile", &quantile.to_string())];
                seconds.sample("", &labels, counted.latency.quantile(quantile).as_secs_f64());
            }
            seconds.sample("_sum", &[("operation", name)], counted.latency.total_s());
            seconds.sample("_count", &[("operation", name)], counted.latency.count());
        }
        let help = "Operations answered with an error.";
        let mut failed = page.metric("operations_failed_total", PrometheusKind::Counter, help);
        for (operation, counted) in &self.operations {
            failed.sample("", &[("operation", operation.name())], counted.failed);
        }
        for (name, help, value) in [
            ("nodes", "Inodes that the kernel holds references to.", self.nodes),
            ("files_open", "Files that are open.", self.files_open),
            ("directories_open", "Directories that are open.", self.directories_open),
            ("directories_kept", "Directories of which a descriptor is kept.", self.directories_kept),
            ("passed_through", "Files whose data passes by the daemon.", self.passed_through),
        ] {
            page.metric(name, PrometheusKind::Gauge, help).value(value);
        }
        let help = "By what requests come: device (/dev/fuse) or ring (io_uring).";
        let mut transport = page.metric("transport_info", PrometheusKind::Gauge, help);
        transport.sample("", &[("transport", self.waiting.transport.name())], 1);
        let followed = self.waited.followed;
        for (name, help, value) in [
            (
                "readers_parked_total",
                "Times that a thread left waiting for requests to others.",
                self.waited.parked,
            ),
            ("followed_requests_total", "Requests taken on the CPU of a lone caller.", followed.requests),
            (
                "followed_stalled_total",
                "Times that a thread got no time on a caller's CPU.",
                followed.stalled,
            ),
        ] {
            page.metric(name, PrometheusKind::Counter, help).value(value);
        }
        page.into_text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::ReaderPolicy;

    fn census(counts: &[(Operation, u64)]) -> Census {
        let counters = Counters::default();
        for (operation, count) in counts {
            for _ in 0..*count {
                counters.record(*operation, Duration::from_micros(10), false);
            }
        }
        let operations = counters.operations();
        Census {
            elapsed: counters.elapsed(),
            operations,
            nodes: 1,
            files_open: 0,
            directories_open: 0,
            directories_kept: 0,
            passed_through: 0,
            waiting: Waiting {
                transport: fuse::Transport::Ring,
                readers: ReaderPolicy::Park,
                awake: false,
                wake_up: None,
                by_name: true,
                slow: false,
            },
            waited: Waited { parked: 7, ..Waited::default() },
        }
    }

    #[test]
    fn table_1_counts_names_only_and_adds_up_to_a_hundred() {
        let census = census(&[
            (Operation::Lookup, 80),
            (Operation::Create, 10),
            (Operation::Rename, 10),
            (Operation::Read, 1000),
        ]);
        let rows = census.table_1();
        assert_eq!(rows[1], ("lookup", 80, 80.0));
        assert_eq!(rows[4], ("all other", 10, 10.0));
        assert_eq!(rows.iter().map(|row| row.2).sum::<f64>(), 100.0);
        assert_eq!(census.total(), 1100);
    }

    #[test]
    fn the_page_of_metrics_names_what_a_mount_tells_prometheus_and_no_more() {
        let page = include_str!("../../../docs/guide/metrics.md");
        let section = page.split("\n## Prometheus: crumb mount\n").nth(1).expect("its heading");
        let section = section.split("\n## ").next().expect("what stands before the next heading");
        let promised: Vec<(&str, &str)> = section
            .lines()
            .filter_map(|row| {
                let mut cells = row.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ");
                Some((cells.next()?.trim_end_matches('`'), cells.last()?))
            })
            .collect();
        let text = census(&[(Operation::Lookup, 1)]).prometheus();
        let emitted: Vec<(&str, &str)> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
        assert_eq!(promised, emitted);
    }

    #[test]
    fn prometheus_text_has_a_count_for_each_type_that_happened() {
        let text = census(&[(Operation::Lookup, 3)]).prometheus();
        assert!(text.contains("crumb_mount_operation_seconds_count{operation=\"lookup\"} 3\n"), "{text}");
        assert!(!text.contains("unlink"), "{text}");
        assert!(text.contains("crumb_mount_readers_parked_total 7\n"), "{text}");
        assert!(text.contains("crumb_mount_transport_info{transport=\"ring\"} 1\n"), "{text}");
        assert!(text.lines().all(|line| line.starts_with('#') || line.split(' ').count() == 2), "{text}");
    }
}
