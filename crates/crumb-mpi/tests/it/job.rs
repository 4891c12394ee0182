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
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

pub const CRUMB_MPI: &str = env!("CARGO_BIN_EXE_crumb-mpi");

/// What starts ranks: `CRUMB_MPIRUN`, where the one of the MPI that this was built with has another name.
pub fn mpirun() -> Command {
    mpirun_within(&[])
}

/// The same, started by another program. OpenMPI is told, by what MPICH does not know, that root may start ranks, and more of
/// them than there are processors.
pub fn mpirun_within(starter: &[&str]) -> Command {
    let mpirun = std::env::var_os("CRUMB_MPIRUN").unwrap_or_else(|| "mpirun".into());
    let mut words = starter.iter().map(Into::into).chain([mpirun]);
    let mut command = Command::new(words.next().expect("there is mpirun"));
    command.args(words);
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    command
}

/// Whether there is no `mpirun`; the test is then listed as skipped.
pub fn no_mpirun() -> bool {
    let there = match mpirun().arg("--version").output() {
        Ok(said) if said.status.success() => Ok(()),
        Ok(said) => Err(format!("mpirun: {}", String::from_utf8_lossy(&said.stderr))),
        Err(error) => Err(format!("mpirun: {error} (apt-get install mpich)")),
    };
    testkit::need(there).is_none()
}

/// Whether ranks are started by hydra, the launcher of MPICH.
pub fn is_hydra() -> bool {
    let version = mpirun().arg("--version").output().expect("mpirun starts");
    String::from_utf8_lossy(&version.stdout).contains("HYDRA")
}

/// What a busy machine needs for making the largest file set here, several times over.
const COMES_WITHIN: Duration = Duration::from_secs(120);

/// How MPICH and OpenMPI tell a process its rank.
const RANK_IS: [&str; 2] = ["PMI_RANK=", "OMPI_COMM_WORLD_RANK="];

/// A directory in memory where there is one.
pub fn place() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory for tests")
}

/// What it has said so far, and how many of its two outputs are still open.
#[derive(Default)]
struct Words {
    text: String,
    open: u32,
}

/// A job under way.
pub struct Job {
    child: Child,
    said: Arc<(Mutex<Words>, Condvar)>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

/// How it ended.
pub struct Ended {
    pub code: i32,
    pub said: String,
}

impl Job {
    /// Starts `crumb-mpi --store DIR/runs.db run ARGS` with `ranks` ranks on this host.
    pub fn start(ranks: u32, dir: &Path, args: &[&str]) -> Self {
        let mut command = mpirun();
        command.args(["-n", &ranks.to_string(), CRUMB_MPI]);
        command.arg("--store").arg(dir.join("runs.db")).args(["-vv", "run"]).args(args);
        Self::spawn(command)
    }

    /// The same with other arguments, and perhaps another working directory, for each rank.
    pub fn start_unlike(dir: &Path, ranks: &[(&Path, &[&str])]) -> Self {
        let mut command = mpirun();
        for (rank, (working_dir, args)) in ranks.iter().enumerate() {
            command
                .args((rank > 0).then_some(":"))
                .args(["-n", "1", "-wdir"])
                .arg(working_dir)
                .arg(CRUMB_MPI);
            command.arg("--store").arg(dir.join("runs.db")).args(["-vv", "run"]).args(*args);
        }
        Self::spawn(command)
    }

    pub fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("mpirun starts");
        let said = Arc::new((Mutex::new(Words { open: 2, ..Words::default() }), Condvar::new()));
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let reader = |mut from: Box<dyn std::io::Read + Send>| {
            let said = Arc::clone(&said);
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    said.0.lock().unwrap().text.push_str(&String::from_utf8_lossy(&bytes[..count]));
                    said.1.notify_all();
                }
                said.0.lock().unwrap().open -= 1;
                said.1.notify_all();
            })
        };
        let readers = vec![reader(Box::new(out)), reader(Box::new(err))];
        Self { child, said, readers }
    }

    /// Waits until its words are as wanted.
    pub fn until(&mut self, what: &str, wanted: impl Fn(&str) -> bool) {
        let limit = Instant::now() + COMES_WITHIN;
        let mut said = self.said.0.lock().unwrap();
        while !wanted(&said.text) {
            let left = limit.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what} did not come:\n{}", said.text);
            assert!(said.open > 0, "it ended before {what}:\n{}", said.text);
            said = self.said.1.wait_timeout(said, left).unwrap().0;
        }
    }

    /// Waits until a sweep of two load points, as [`sweep`] asks for it, has come to `phase`; the points done by then.
    pub fn bring_to(&mut self, phase: &str, ranks: usize) -> usize {
        match phase {
            "building" => self.until("files", |said| times(said, "making files") == ranks),
            "warming" => {
                self.until("the second point", |said| times(said, "a load point begins") == 2 * ranks);
            }
            "measuring" => {
                let under_way = |said: &str| times(said, "an interval is under way") == 2 * ranks;
                self.until("the second interval", under_way);
            }
            "cleaning up" => {
                self.until("the second point's end", |said| times(said, "/s offered:") == 2);
            }
            _ => return 2,
        }
        match phase {
            "building" => 0,
            "cleaning up" => 2,
            _ => 1,
        }
    }

    /// Process numbers by rank.
    pub fn ranks(&self) -> Vec<Pid> {
        self.processes_of_ranks(true)
    }

    /// The same of the processes above them.
    pub fn watchers(&self) -> Vec<Pid> {
        self.processes_of_ranks(false)
    }

    fn processes_of_ranks(&self, watched: bool) -> Vec<Pid> {
        let mut found = Vec::new();
        let mut below = vec![self.child.id()];
        let parents: Vec<(u32, u32)> = processes().collect();
        while let Some(parent) = below.pop() {
            below.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
            let environment = std::fs::read(format!("/proc/{parent}/environ")).unwrap_or_default();
            let environment = String::from_utf8_lossy(&environment).into_owned();
            let of_rank =
                |word: &'_ str| RANK_IS.iter().find_map(|name| Some(word.strip_prefix(name)?.to_owned()));
            let rank = environment.split('\0').find_map(of_rank);
            let program = std::fs::read_link(format!("/proc/{parent}/exe")).unwrap_or_default();
            if let Some(rank) = rank.and_then(|rank| rank.parse::<u32>().ok())
                && program.file_name().is_some_and(|name| name == "crumb-mpi")
                && environment.contains("CRUMB_MPI_WATCHED_BY=") == watched
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
        if !has_gone(Pid::from_child(&self.child), Instant::now() + within) {
            let said = self.said.0.lock().unwrap().text.clone();
            self.signal(Signal::INT);
            let _ = self.child.wait();
            panic!("still there after {within:?}:\n{said}");
        }
        let status = self.child.wait().unwrap();
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        let said = self.said.0.lock().unwrap().text.clone();
        Ended { code: status.code().unwrap_or(-1), said }
    }
}

/// A sweep of two load points over `ranks`, with so many files that making or removing them lasts where that is the phase.
pub fn sweep(url: &str, rates: &str, phase: &str) -> Vec<String> {
    let files = if matches!(phase, "building" | "cleaning up") { "30000" } else { "300" };
    let words = ["fstress", url, "--workload", "web-server", "--rate", rates, "--files", files];
    let lasting = ["--file-size", "100", "--warm", "2s", "--measure", "2s", "--patience", "3s"];
    [&words[..], &lasting].concat().into_iter().map(str::to_owned).collect()
}

/// Waits until a process has ended; whether it has in time.
fn has_gone(pid: Pid, limit: Instant) -> bool {
    // No such process: it has.
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
    loop {
        let left = limit.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
            Ok(ended) => return ended > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("cannot wait for process {pid:?}: {error}"),
        }
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
    for &pid in pids {
        assert!(has_gone(pid, limit), "process {pid:?} is left behind");
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

/// How many results were shown: the lines that begin with a verdict. Remarks may name it as well.
pub fn verdicts(said: &str) -> usize {
    said.lines().filter(|line| line.starts_with("Verdict ")).count()
}

/// How many causes of the end name this rank. That it was late, which a busy machine brings about, is no cause.
pub fn blamed(said: &str, rank: &str) -> usize {
    let is_cause = |line: &&str| line.starts_with("error:") || line.trim_start().starts_with("because:");
    said.lines().filter(is_cause).filter(|line| line.contains(rank)).count()
}
