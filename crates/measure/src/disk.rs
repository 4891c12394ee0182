//! What the device under a directory did over a stretch of work: how busy it was, how long its queue, what it moved.
//!
//! ```text
//! path -> mount (/proc/self/mounts) -> device -> /sys/dev/block/MAJOR:MINOR/stat, read twice
//! ```
//!
//! The counters are the kernel's own (Documentation/admin-guide/iostats.rst), the ones iostat(1) shows. They count
//! all that the device did, for others too. Busy says that at least one request was at the device: of a device that
//! serves many at a time, such as flash or an array, it says less than the queue does.

use crate::MetricDeclaration;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::MountPoint;

/// The kernel counts in sectors of this size, whatever the device's own is.
const SECTOR_BYTES: u64 = 512;

/// A device's counters at one moment, to be compared with later ones.
#[derive(Clone, Debug)]
pub struct DiskMeter {
    device: String,
    stat: PathBuf,
    begun: Counters,
    at: Instant,
}

/// What a device did in between.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskUse {
    /// Name of the device, such as `/dev/sda1`.
    pub device: String,
    /// How long it was watched.
    pub elapsed: Duration,
    /// Share of the time with at least one request at the device, 0 to 1.
    pub busy: f64,
    /// Requests queued or served, on average over the time.
    pub queue_mean: f64,
    /// Read requests completed.
    pub reads: u64,
    /// Write requests completed.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes of the device's cache completed; 0 where the kernel does not count them.
    pub flushes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    reads: u64,
    sectors_read: u64,
    writes: u64,
    sectors_written: u64,
    busy_ms: u64,
    queue_ms: u64,
    flushes: u64,
}

impl DiskMeter {
    /// Begins to watch the device that holds `path`. None when there is none (tmpfs, a network) or the kernel does
    /// not tell.
    pub fn start(path: &Path) -> Option<Self> {
        let mount = MountPoint::of(path)?;
        // By the mount's device and not by the directory's st_dev: btrfs makes numbers up for that.
        let rdev = fs::metadata(&mount.device).ok()?.rdev();
        let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
        let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        let begun = Counters::read(&stat)?;
        Some(Self { device: mount.device, stat, begun, at: Instant::now() })
    }

    /// What the device did since the start, or since [`Self::lap`].
    pub fn used(&self) -> DiskUse {
        let now = Counters::read(&self.stat).unwrap_or(self.begun);
        self.begun.until(&now, self.at.elapsed(), &self.device)
    }

    /// The same, and starts over.
    pub fn lap(&mut self) -> DiskUse {
        let (now, at) = (Counters::read(&self.stat).unwrap_or(self.begun), Instant::now());
        let done = self.begun.until(&now, at - self.at, &self.device);
        (self.begun, self.at) = (now, at);
        done
    }
}

/// What [`DiskUse::counters`] are.
pub const DEVICE_METRICS: [MetricDeclaration; 7] = [
    MetricDeclaration::percent("device_busy_percent", "Device busy"),
    MetricDeclaration::new("device_queue_mean", "", "Device queue mean"),
    MetricDeclaration::rate("device_reads_per_sec", "Device reads"),
    MetricDeclaration::rate("device_writes_per_sec", "Device writes"),
    MetricDeclaration::rate("device_flushes_per_sec", "Device flushes"),
    MetricDeclaration::bytes_rate("device_read_bytes_per_sec", "Device read bytes"),
    MetricDeclaration::bytes_rate("device_written_bytes_per_sec", "Device written bytes"),
];

impl DiskUse {
    /// As counters of a phase, units in the names.
    pub fn counters(&self) -> BTreeMap<String, f64> {
        let per_sec = |count: u64| count as f64 / self.elapsed.as_secs_f64().max(1e-9);
        [
            ("device_busy_percent", 100.0 * self.busy),
            ("device_queue_mean", self.queue_mean),
            ("device_reads_per_sec", per_sec(self.reads)),
            ("device_writes_per_sec", per_sec(self.writes)),
            ("device_read_bytes_per_sec", per_sec(self.read_bytes)),
            ("device_written_bytes_per_sec", per_sec(self.written_bytes)),
            ("device_flushes_per_sec", per_sec(self.flushes)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

impl Counters {
    fn read(stat: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(stat).ok()?)
    }

    /// Eleven fields since Linux 2.6, flushes as the sixteenth since 5.5.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<u64> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let &[reads, _, sectors_read, _, writes, _, sectors_written, _, _, busy_ms, queue_ms, ..] =
            &fields[..]
        else {
            return None;
        };
        let flushes = fields.get(15).copied().unwrap_or(0);
        Some(Self { reads, sectors_read, writes, sectors_written, busy_ms, queue_ms, flushes })
    }

    fn until(&self, now: &Self, elapsed: Duration, device: &str) -> DiskUse {
        // The counters wrap on machines of 32 bits, and start again with a device that was taken off and put back.
        let since = |then: u64, now: u64| now.saturating_sub(then);
        let of_time = |ms: u64| ms as f64 / 1e3 / elapsed.as_secs_f64().max(1e-9);
        DiskUse {
            device: device.to_owned(),
            elapsed,
            busy: of_time(since(self.busy_ms, now.busy_ms)).min(1.0),
            queue_mean: of_time(since(self.queue_ms, now.queue_ms)),
            reads: since(self.reads, now.reads),
            writes: since(self.writes, now.writes),
            read_bytes: since(self.sectors_read, now.sectors_read) * SECTOR_BYTES,
            written_bytes: since(self.sectors_written, now.sectors_written) * SECTOR_BYTES,
            flushes: since(self.flushes, now.flushes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "  100 3 2000 40  50 1 800 60  0 500 900  0 0 0 0 7 3\n";
    const AFTER: &str = "  300 3 6000 90  90 1 1600 99  2 1500 4900  0 0 0 0 9 4\n";

    #[test]
    fn two_readings_become_shares_rates_and_bytes() {
        let (before, after) = (Counters::parse(BEFORE).unwrap(), Counters::parse(AFTER).unwrap());
        let done = before.until(&after, Duration::from_secs(2), "/dev/x");
        assert_eq!((done.busy, done.queue_mean), (0.5, 2.0));
        assert_eq!((done.reads, done.writes, done.flushes), (200, 40, 2));
        assert_eq!((done.read_bytes, done.written_bytes), (4000 * 512, 800 * 512));
        assert_eq!(done.counters()["device_reads_per_sec"], 100.0);
    }

    #[test]
    fn a_device_put_back_with_counters_at_zero_has_done_nothing_rather_than_too_much() {
        let (before, after) = (Counters::parse(AFTER).unwrap(), Counters::parse(BEFORE).unwrap());
        assert_eq!(before.until(&after, Duration::from_secs(1), "").read_bytes, 0);
        assert!(Counters::parse("1 2 3").is_none());
    }

    #[test]
    fn a_directory_in_memory_has_no_device() {
        let shared = Path::new("/dev/shm");
        let in_memory = MountPoint::of(shared).is_some_and(|mount| mount.fs_type == "tmpfs");
        if testkit::need(in_memory.then_some(()).ok_or("/dev/shm is not a tmpfs")).is_none() {
            return;
        }
        assert!(DiskMeter::start(shared).is_none());
    }
}
