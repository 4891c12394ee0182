//! How many requests a layer gets for one operation, where the kernel counts them.
//!
//! - FUSE: the trace event `fuse:fuse_request_send` of this connection, in a trace instance of its own (root, Linux 6.10 and later).
//! - NFS: the operations of the mount in /proc/self/mountstats.
//!
//! Always holds: nothing is counted while operations are timed; the instance is removed, and its name says which process made it,
//! so that the next run or `crumb clean` removes that of a process which was killed. Requests of other programs do not count, where
//! this process knows itself by the kernel's number (not in a container).
//! Not here: what a request costs. Source: Documentation/trace/ftrace.rst of Linux.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use measure::proc::ProcessStat;
use rustix::thread::gettid;

/// Requests by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted(pub BTreeMap<String, u64>);

/// Why requests are not counted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CountError {
    /// Neither FUSE nor NFS.
    #[error("the kernel counts requests of FUSE and NFS mounts alone")]
    OtherKind,
    /// There is no way to count.
    #[error(
        "the kernel's trace of FUSE requests cannot be used (root, Linux 6.10 and later, tracefs in /sys/kernel/tracing)"
    )]
    Trace(#[source] io::Error),
    /// The mount is not in the statistics.
    #[error("the statistics of NFS mounts cannot be read")]
    Statistics(#[source] io::Error),
}

/// What counts.
pub(crate) enum Counter {
    Fuse(Trace),
    Nfs(PathBuf),
}

/// A trace instance of this process.
pub(crate) struct Trace {
    instance: PathBuf,
}

const INSTANCES: &str = "/sys/kernel/tracing/instances";
const INSTANCE: &str = "crumb-overhead-";
const EVENT: &str = "events/fuse/fuse_request_send";
/// statfs(2).
pub(crate) const FUSE: u64 = 0x6573_5546;
const NFS: u64 = 0x6969;
/// What the kernel sends and no program waits for.
const NOT_WAITED_FOR: [&str; 6] =
    ["FUSE_RELEASE", "FUSE_RELEASEDIR", "FUSE_FORGET", "FUSE_BATCH_FORGET", "FUSE_INTERRUPT", "FUSE_DESTROY"];
/// RELEASE follows close(2) from another thread: it is there when nothing more came for this time.
const SETTLED: Duration = Duration::from_millis(20);
const SETTLE_MAX: Duration = Duration::from_secs(2);

impl Counted {
    /// Requests that a program waited for.
    pub fn waited(&self) -> u64 {
        let waited = self.0.iter().filter(|(name, _)| !NOT_WAITED_FOR.contains(&name.as_str()));
        waited.map(|(_, count)| count).sum()
    }

    /// All.
    pub fn all(&self) -> u64 {
        self.0.values().sum()
    }
}

impl Counter {
    /// For the file system mounted at `mount`, which has the device number `device`.
    pub fn of(mount: &Path, device: u64) -> Result<Self, CountError> {
        let kind = rustix::fs::statfs(mount).map_err(|error| CountError::Trace(error.into()))?;
        match kind.f_type as u64 {
            FUSE => Trace::new(rustix::fs::minor(device)).map(Self::Fuse).map_err(CountError::Trace),
            NFS => {
                let mount = fs::canonicalize(mount).map_err(CountError::Statistics)?;
                statistics(&mount)?;
                Ok(Self::Nfs(mount))
            }
            _ => Err(CountError::OtherKind),
        }
    }

    /// What the kernel sends while `operate` runs, and just after it.
    pub fn count<E>(
        &self,
        operate: impl FnOnce() -> Result<(), E>,
    ) -> Result<Result<Counted, CountError>, E> {
        match self {
            Self::Fuse(trace) => {
                if let Err(error) = trace.begin() {
                    return Ok(Err(CountError::Trace(error)));
                }
                operate()?;
                Ok(trace.end().map_err(CountError::Trace))
            }
            Self::Nfs(mount) => {
                let before = match statistics(mount) {
                    Ok(before) => before,
                    Err(error) => return Ok(Err(error)),
                };
                operate()?;
                Ok(statistics(mount).map(|after| {
                    let more = after.0.into_iter().map(|(name, count)| {
                        let known = before.0.get(&name).copied().unwrap_or(0);
                        (name, count.saturating_sub(known))
                    });
                    Counted(more.filter(|(_, count)| *count > 0).collect())
                }))
            }
        }
    }
}

impl Trace {
    fn new(connection: u32) -> io::Result<Self> {
        remove_traces_of_the_dead();
        let instance = Path::new(INSTANCES).join(format!("{INSTANCE}{}", process_text(std::process::id())?));
        fs::create_dir(&instance)?;
        let trace = Self { instance };
        trace.put(&format!("{EVENT}/filter"), &format!("connection == {connection}"))?;
        trace.put("tracing_on", "0")?;
        trace.put(&format!("{EVENT}/enable"), "1")?;
        Ok(trace)
    }

    fn begin(&self) -> io::Result<()> {
        // Opened for writing it is emptied.
        OpenOptions::new().write(true).truncate(true).open(self.instance.join("trace"))?;
        self.put("tracing_on", "1")
    }

    fn end(&self) -> io::Result<Counted> {
        let began = Instant::now();
        let own = gettid().as_raw_pid();
        let mut seen = traced(&self.text()?, own);
        loop {
            std::thread::sleep(SETTLED);
            let now = traced(&self.text()?, own);
            if now == seen || began.elapsed() > SETTLE_MAX {
                self.put("tracing_on", "0")?;
                return Ok(now);
            }
            seen = now;
        }
    }

    fn text(&self) -> io::Result<String> {
        fs::read_to_string(self.instance.join("trace"))
    }

    fn put(&self, file: &str, text: &str) -> io::Result<()> {
        OpenOptions::new().write(true).open(self.instance.join(file))?.write_all(text.as_bytes())
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        remove_instance(&self.instance);
    }
}

fn remove_instance(instance: &Path) {
    drop(fs::write(instance.join(EVENT).join("enable"), "0"));
    drop(fs::remove_dir(instance));
}

/// Which process that is, for as long as the machine runs: its namespace of numbers, its number, when it began.
fn process_text(pid: u32) -> io::Result<String> {
    let namespace = fs::read_link("/proc/self/ns/pid")?;
    let namespace: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let process = ProcessStat::of(pid).ok_or(io::ErrorKind::NotFound)?;
    Ok(format!("{namespace}-{pid}-{}", process.began_ticks))
}

/// Removes the trace instances of runs that were killed, which the kernel would go on filling; those of other containers are left.
pub fn remove_traces_of_the_dead() {
    let Ok(here) = process_text(std::process::id()) else { return };
    let Some((namespace, _)) = here.split_once('-') else { return };
    let Ok(entries) = fs::read_dir(INSTANCES) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(process) = name.strip_prefix(INSTANCE) else { continue };
        let Some(pid) = process.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('-')) else {
            continue;
        };
        let Some(pid) = pid.split('-').next().and_then(|pid| pid.parse().ok()) else { continue };
        if process_text(pid).ok().as_deref() != Some(process) {
            remove_instance(&entry.path());
        }
    }
}

/// Requests in the text of a trace: `ls-81 [001] ..... 100.1: fuse_request_send: connection 51 req 8 opcode 1 (FUSE_LOOKUP) len 45`.
/// Those of the thread `own`, if there are any: in a container a thread has another number than the kernel's.
fn traced(text: &str, own: i32) -> Counted {
    let mut counted = Counted::default();
    let is_own = |line: &str| {
        let head = line.split(" [").next().unwrap_or_default().trim_end();
        head.rsplit_once('-').is_some_and(|(_, thread)| thread.parse() == Ok(own))
    };
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let knows_itself = lines.iter().any(|line| is_own(line));
    for line in lines.into_iter().filter(|line| !knows_itself || is_own(line)) {
        let Some((_, rest)) = line.split_once(" opcode ") else { continue };
        let mut words = rest.split_whitespace();
        let number = words.next().unwrap_or_default();
        let name = words.next().map(|word| word.trim_matches(['(', ')']));
        let name = name.filter(|name| name.starts_with("FUSE_") || name.starts_with("CUSE_"));
        *counted.0.entry(name.unwrap_or(number).to_owned()).or_default() += 1;
    }
    counted
}

fn statistics(mount: &Path) -> Result<Counted, CountError> {
    let text = fs::read_to_string("/proc/self/mountstats").map_err(CountError::Statistics)?;
    let missing = || CountError::Statistics(io::Error::new(io::ErrorKind::NotFound, "no such NFS mount"));
    of_mount(&text, mount).ok_or_else(missing)
}

/// The operations of one mount in the text of mountstats: `        READ: 12 12 0 ...`, the second number being what was sent.
fn of_mount(text: &str, mount: &Path) -> Option<Counted> {
    let head = format!(" mounted on {} with fstype nfs", mount.display());
    let mut lines = text.lines().skip_while(|line| !(line.starts_with("device ") && line.contains(&head)));
    lines.next()?;
    let own = lines.take_while(|line| !line.starts_with("device "));
    let operations = own.skip_while(|line| line.trim() != "per-op statistics").skip(1);
    let counts = operations.filter_map(|line| {
        let (name, numbers) = line.trim().split_once(": ")?;
        let sent: u64 = numbers.split_whitespace().nth(1)?.parse().ok()?;
        Some((name.to_owned(), sent))
    });
    Some(Counted(counts.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_counted_by_the_names_of_requests() {
        let text = "# tracer: nop\n#\n   ls-81 [001] ..... 100.1: fuse_request_send: connection 51 req 8 opcode 1 (FUSE_LOOKUP) len 45 \n \
                    ls-81 [001] ..... 100.2: fuse_request_send: connection 51 req 10 opcode 1 (FUSE_LOOKUP) len 45 \n \
                    ls-81 [001] ..... 100.3: fuse_request_send: connection 51 req 12 opcode 18 (FUSE_RELEASE) len 64 \n \
                    ls-81 [001] ..... 100.4: fuse_request_send: connection 51 req 14 opcode 77 (0x4d) len 64 \n";
        let counted = traced(text, 1);
        assert_eq!(counted.0["FUSE_LOOKUP"], 2);
        assert_eq!((counted.all(), counted.waited()), (4, 3), "a RELEASE is not waited for");
        assert_eq!(counted.0["77"], 1, "one that this program has no name for");
        let both = format!(
            "{text} crumb-worker-9-7 [000] ..... 100.5: fuse_request_send: connection 51 req 16 opcode 1 (FUSE_LOOKUP) len 45\n"
        );
        assert_eq!(traced(&both, 7).all(), 1, "of this thread alone");
        assert_eq!(traced(&both, 8).all(), 5, "it has another number in its container");
    }

    #[test]
    fn the_name_of_an_instance_is_of_this_process_alone() {
        let own = process_text(std::process::id()).unwrap();
        assert_eq!(own, process_text(std::process::id()).unwrap());
        assert_eq!(own.split('-').count(), 3, "{own}");
        assert!(
            own.split('-').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())),
            "{own}"
        );
    }

    #[test]
    fn the_operations_of_one_nfs_mount_are_those_that_were_sent() {
        let text = "device tmpfs mounted on /tmp with fstype tmpfs\n\
                    device filer:/a mounted on /mnt/a with fstype nfs statvers=1.1\n\
                    \topts:\trw\n\tper-op statistics\n\t        NULL: 1 1 0 44 24 0 0 0 0\n\t     GETATTR: 5 7 0 1 1 0 0 0 0\n\n\
                    device filer:/b mounted on /mnt/b with fstype nfs4 statvers=1.1\n\
                    \tper-op statistics\n\t     GETATTR: 9 9 0 1 1 0 0 0 0\n";
        assert_eq!(of_mount(text, Path::new("/mnt/a")).unwrap().0["GETATTR"], 7);
        assert_eq!(of_mount(text, Path::new("/mnt/b")).unwrap().all(), 9);
        assert_eq!(of_mount(text, Path::new("/mnt")), None);
    }
}
