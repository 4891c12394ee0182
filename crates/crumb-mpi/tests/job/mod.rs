//! A run under `mpirun`: its words as they come, its processes, and what it left in the store.

// Each test file uses a part of it.
#![allow(dead_code)]

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use measure::RunRecord;
use report::Store;
use rustix::process::{Pid, Signal, kill_process};

pub const CRUMB_MPI: &str = env!("CARGO_BIN_EXE_crumb-mpi");

/// Whether there is an `mpirun`; otherwise a line says what is skipped.
pub fn no_mpirun(what: &str) -> bool {
    let said = Command::new("mpirun").arg("--version").output();
    let there = said.as_ref().is_ok_and(|said| said.status.success());
    if !there {
        eprintln!("skipped: {what}: there is no mpirun here");
    }
    !there
}

/// A directory in memory where there is one.
pub fn place() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory for tests")
}

/// A job under way.
pub struct Job {
    child: Child,
    said: Arc<(Mutex<String>, Condvar)>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

/// How it ended.
pub struct Ended {
    pub code: i32,
    pub said: String,
}

impl Job {
    /// `crumb-mpi --store DIR/runs.db run fstress ARGS` on so many ranks of this host.
    pub fn start(ranks: u32, dir: &Path, args: &[&str]) -> Self {
        let mut command = Command::new("mpirun");
        command.args(["-n", &ranks.to_string(), CRUMB_MPI]);
        Self::launch(command, dir, args)
    }

    /// The same by a launcher of one's own, up to the program's name.
    pub fn launch(mut command: Command, dir: &Path, args: &[&str]) -> Self {
        command.arg("--store").arg(dir.join("runs.db")).args(["-vv", "run", "fstress"]).args(args);
        Self::spawn(command)
    }

    pub fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("mpirun starts");
        let said = Arc::new((Mutex::new(String::new()), Condvar::new()));
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let reader = |mut from: Box<dyn std::io::Read + Send>| {
            let said = Arc::clone(&said);
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    said.0.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
                    said.1.notify_all();
                }
            })
        };
        let readers = vec![reader(Box::new(out)), reader(Box::new(err))];
        Self { child, said, readers }
    }

    /// Waits until its words are as wanted.
    pub fn until(&mut self, what: &str, wanted: impl Fn(&str) -> bool) {
        let limit = Instant::now() + Duration::from_secs(60);
        let mut said = self.said.0.lock().unwrap();
        while !wanted(&said) {
            assert!(Instant::now() < limit, "{what} did not come:\n{said}");
            said = self.said.1.wait_timeout(said, Duration::from_millis(50)).unwrap().0;
            if let Ok(Some(status)) = self.child.try_wait() {
                assert!(wanted(&said), "ended with {status} before {what}:\n{said}");
            }
        }
    }

    /// Process numbers by rank.
    pub fn ranks(&self) -> Vec<Pid> {
        let mut found = Vec::new();
        let mut below = vec![self.child.id()];
        let parents: Vec<(u32, u32)> = processes().collect();
        while let Some(parent) = below.pop() {
            below.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
            let environment = std::fs::read(format!("/proc/{parent}/environ")).unwrap_or_default();
            let environment = String::from_utf8_lossy(&environment).into_owned();
            let rank = environment.split('\0').find_map(|word| word.strip_prefix("PMI_RANK="));
            let program = std::fs::read_link(format!("/proc/{parent}/exe")).unwrap_or_default();
            if let Some(rank) = rank.and_then(|rank| rank.parse::<u32>().ok())
                && program.file_name().is_some_and(|name| name == "crumb-mpi")
            {
                found.push((rank, Pid::from_raw(parent as i32).unwrap()));
            }
        }
        found.sort_by_key(|(rank, _)| *rank);
        found.into_iter().map(|(_, pid)| pid).collect()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub fn end(mut self, within: Duration) -> Ended {
        let limit = Instant::now() + within;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > limit {
                let said = self.said.0.lock().unwrap().clone();
                self.signal(Signal::INT);
                let _ = self.child.wait();
                panic!("still there after {within:?}:\n{said}");
            }
            std::thread::park_timeout(Duration::from_millis(20));
        };
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        let said = self.said.0.lock().unwrap().clone();
        Ended { code: status.code().unwrap_or(-1), said }
    }
}

fn processes() -> impl Iterator<Item = (u32, u32)> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        Some((pid, parent))
    })
}

/// Waits until these processes are gone; fails when they stay.
pub fn gone(pids: &[Pid]) {
    let limit = Instant::now() + Duration::from_secs(10);
    for pid in pids {
        while Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists() {
            assert!(Instant::now() < limit, "process {pid:?} is left behind");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

/// The runs kept in `dir`, newest first.
pub fn kept(dir: &Path) -> Vec<RunRecord> {
    let path = dir.join("runs.db");
    if !path.exists() {
        return vec![];
    }
    let store = Store::open(path).unwrap();
    store.list().unwrap().iter().map(|run| store.find(&run.id.0).unwrap()).collect()
}

/// How often something is said.
pub fn times(said: &str, what: &str) -> usize {
    said.matches(what).count()
}

/// How many causes of the end name this rank. That it was late, which a busy machine brings about, is no cause.
pub fn blamed(said: &str, rank: &str) -> usize {
    let is_cause = |line: &&str| line.starts_with("error:") || line.trim_start().starts_with("because:");
    said.lines().filter(is_cause).filter(|line| line.contains(rank)).count()
}
