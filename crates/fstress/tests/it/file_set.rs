//! What becomes of a file set on storage that refuses, is read-only, is in use, or has other names besides.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use files::{
    Completion, DirectoryOptions, DirectoryTransport, DirectoryTransportOptions, Outcome, Request, Status,
    SubmitError, Ticket, Transport, TransportError,
};
use fstress::{Arrivals, FileCount, FstressConfig, FstressError, Keep, Load, RunOutcome, Workload};
use harness::Event;
use quanta::{Clock, Instant};

fn config(workload: &str, files: u64, keep: Keep) -> FstressConfig {
    FstressConfig {
        workload: Workload::builtin(workload).unwrap(),
        load: Load::Sweep(vec![300.0]),
        arrivals: Arrivals::Uniform,
        warm: Duration::from_millis(100),
        measure: Duration::from_millis(500),
        drain: Duration::from_secs(5),
        wait: Default::default(),
        files: FileCount::Fixed(files.try_into().unwrap()),
        seed: 42,
        keep,
        set_name: "crumb-fstress-test".to_owned(),
        build_in_flight: 16,
        raw: None,
    }
}

fn directory(path: &Path, read_only: bool, clock: &Clock) -> DirectoryTransport {
    let directory = DirectoryOptions { read_only, ..DirectoryOptions::default() };
    let options = DirectoryTransportOptions { directory, ..DirectoryTransportOptions::default() };
    DirectoryTransport::open(path, options, clock.clone()).unwrap()
}

fn run_on(transport: &mut dyn Transport, config: &FstressConfig, clock: &Clock) -> RunOutcome {
    fstress::run(config, transport, clock, &AtomicBool::new(false), &mut |_| {})
}

fn run(path: &Path, config: &FstressConfig, read_only: bool) -> RunOutcome {
    let clock = Clock::new();
    run_on(&mut directory(path, read_only, &clock), config, &clock)
}

fn assert_went_well(outcome: &RunOutcome) {
    assert!(outcome.complete && outcome.error.is_none(), "{:?}", outcome.error);
    assert!(outcome.left_behind.is_none(), "{:?}", outcome.left_behind);
    for stats in outcome.points.iter().flat_map(|point| point.ops.values()) {
        assert_eq!(stats.ok, stats.attempted, "{:?}", stats.errors);
    }
}

/// All names below a directory that are not directories.
fn names_below(path: &Path) -> HashSet<String> {
    let mut names = HashSet::new();
    for entry in std::fs::read_dir(path).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            names.extend(names_below(&entry.path()));
        } else {
            names.insert(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names
}

/// A directory that refuses to remove some names.
struct Refusing {
    inner: DirectoryTransport,
    refuses: fn(&[u8]) -> bool,
    refused: HashSet<u32>,
}

impl Transport for Refusing {
    left_to_inner!(flush in_flight root io_bytes_max is_local counters);

    fn submit(&mut self, ticket: Ticket, request: &Request<'_>) -> Result<(), SubmitError> {
        match request {
            Request::Remove { name, .. } if (self.refuses)(name) => {
                self.inner.submit(ticket, &Request::Null)?;
                self.refused.insert(ticket.0);
                Ok(())
            }
            _ => self.inner.submit(ticket, request),
        }
    }

    fn poll(
        &mut self,
        until: Option<Instant>,
        deliver: &mut dyn FnMut(Completion<'_>),
    ) -> Result<usize, TransportError> {
        let refused = &mut self.refused;
        self.inner.poll(until, &mut |completion| {
            let outcome = if refused.remove(&completion.ticket.0) {
                Outcome::Failed(Status::ACCES)
            } else {
                completion.outcome
            };
            deliver(Completion { outcome, ..completion });
        })
    }
}

/// Symptom: the first name that could not be removed left 924 of 1,000 files behind, and nobody said so. Cause: the removal
/// ended with its first error. Fix: it goes on, and says how many names are left and why.
#[test]
fn what_cannot_be_removed_does_not_keep_the_rest_and_is_counted() {
    let place = tempfile::tempdir().unwrap();
    let clock = Clock::new();
    let mut transport = Refusing {
        inner: directory(place.path(), false, &clock),
        refuses: |name| name.starts_with(b"f") && name.ends_with(b"7"),
        refused: HashSet::new(),
    };
    let outcome = run_on(&mut transport, &config("web-server", 300, Keep::Remove), &clock);
    assert_eq!(outcome.points.len(), 1, "what was measured is kept");
    let left = names_below(place.path());
    assert_eq!(left.len(), 30, "{left:?}");
    assert!(left.iter().all(|name| name.ends_with('7')), "{left:?}");
    let error = outcome.error.expect("something is left");
    let FstressError::LeftBehind { name, names, source } = &error else { panic!("{error}") };
    assert_eq!(name, "crumb-fstress-test");
    assert!((31..60).contains(names), "30 files and the directories that they are in: {names}");
    // Symptom: the permission that a local file system refused was explained as a server's.
    let why = source.to_string();
    assert!(why.contains("permission denied (EACCES)") && !why.contains("NFS"), "{why}");
    assert!(!why.contains("export"), "{why}");
}

/// A directory with a user who asks to stop just when the set's directory is being made.
struct StoppedAtMkdir<'s> {
    inner: DirectoryTransport,
    stop: &'s AtomicBool,
}

impl Transport for StoppedAtMkdir<'_> {
    left_to_inner!(flush poll in_flight root io_bytes_max is_local counters);

    fn submit(&mut self, ticket: Ticket, request: &Request<'_>) -> Result<(), SubmitError> {
        if matches!(request, Request::Mkdir { .. }) {
            self.stop.store(true, Ordering::Relaxed);
        }
        self.inner.submit(ticket, request)
    }
}

/// Symptom: Ctrl-C while the set's directory or its label was made left the directory, one time in two. Cause: the request
/// that makes it was given up at once, and the removal overtook it. Fix: its answer is waited for.
#[test]
fn a_set_that_could_not_be_labelled_leaves_no_directory() {
    for stopped_before in [true, false] {
        let place = tempfile::tempdir().unwrap();
        let clock = Clock::new();
        let stop = AtomicBool::new(stopped_before);
        let mut transport = StoppedAtMkdir { inner: directory(place.path(), false, &clock), stop: &stop };
        let config = config("web-server", 300, Keep::Remove);
        let outcome = fstress::run(&config, &mut transport, &clock, &stop, &mut |_| {});
        assert!(!outcome.complete && outcome.error.is_none(), "{:?}", outcome.error);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "{stopped_before}");
    }
}

/// Symptom: a read-only export with a complete set was refused, with the advice to choose a read-only workload, which it
/// was. Cause: the directory of the set was made before it was looked for, and its label written again.
#[test]
fn a_complete_set_on_read_only_storage_is_used_as_it_is() {
    let place = tempfile::tempdir().unwrap();
    assert_went_well(&run(place.path(), &config("web-server", 300, Keep::Keep), false));
    let before = names_below(place.path());
    let outcome = run(place.path(), &config("web-server", 300, Keep::Reuse), true);
    assert_went_well(&outcome);
    assert_eq!(outcome.points[0].file_set.files, 300);
    assert_eq!(names_below(place.path()), before);
    // What is missing cannot be made there.
    let outcome = run(place.path(), &config("web-server", 400, Keep::Reuse), true);
    let told = outcome.error.expect("100 files are missing").to_string();
    assert!(told.contains("EROFS") && told.contains("--reuse"), "{told}");
}

/// Symptom: each run with --reuse left the files that its operations had made in the set, run upon run. Cause: nobody knew
/// them from the set's own, which moreover had other names after operations that made some. Fix: they have numbers of their
/// own, and are removed at the end.
#[test]
fn a_kept_set_has_the_same_names_however_often_it_is_used() {
    let place = tempfile::tempdir().unwrap();
    let of = |keep| FstressConfig {
        // Two levels, so that the set grows after operations have made names.
        load: Load::Sweep(vec![400.0, 600.0]),
        files: FileCount::Scaled,
        workload: {
            let mut workload = Workload::builtin("web-proxy").unwrap();
            workload.scale.files_min = 300;
            workload.scale.files_per_op = fstress::FilesPerOp::new(1.0).unwrap();
            workload
        },
        ..config("web-proxy", 1, keep)
    };
    assert_went_well(&run(place.path(), &of(Keep::Keep), false));
    let kept = names_below(place.path());
    assert!(kept.len() > 300, "{}", kept.len());
    let ours = |name: &String| name.starts_with('f') && name.as_str() < "f0000001000" || name == "crumb-set";
    assert!(kept.iter().all(ours), "{:?}", kept.iter().find(|name| !ours(name)));
    for _ in 0..3 {
        assert_went_well(&run(place.path(), &of(Keep::Reuse), false));
        let again = names_below(place.path());
        assert!(again.iter().all(ours), "{:?}", again.iter().find(|name| !ours(name)));
        assert!(again.len() <= 601, "{}", again.len());
    }
}

/// Symptom: two runs with the same --reuse removed files under each other. Fix: a lock in the set, which is no obstacle
/// once its run is gone.
#[test]
fn a_kept_set_is_for_one_run_at_a_time() {
    let place = tempfile::tempdir().unwrap();
    let of = |keep| config("web-server", 100, keep);
    assert_went_well(&run(place.path(), &of(Keep::Keep), false));
    let lock = place.path().join("crumb-fstress-test/crumb-lock");
    assert!(!lock.exists(), "the run is over");
    // Another one wants it while one has it.
    let clock = Clock::new();
    let mut other = None;
    let outcome = fstress::run(
        &of(Keep::Reuse),
        &mut directory(place.path(), false, &clock),
        &clock,
        &AtomicBool::new(false),
        &mut |event| {
            if matches!(event, Event::LevelBegins(_)) {
                other = Some(run(place.path(), &of(Keep::Reuse), false));
            }
        },
    );
    assert_went_well(&outcome);
    let refused = other.expect("it was tried").error.expect("it is in use");
    assert!(matches!(refused, FstressError::SetInUse { .. }), "{refused}");
    let told = refused.to_string();
    assert!(told.contains(&format!("pid {}", std::process::id())) && told.contains("crumb-lock"), "{told}");
    assert!(!lock.exists());
    // The lock of a process that was killed: no process has this number, the largest is 4194304.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap();
    std::fs::write(&lock, format!("{} {} pid 4199999", host.trim(), space.display())).unwrap();
    assert_went_well(&run(place.path(), &of(Keep::Reuse), false));
    // Of another host nobody can tell.
    std::fs::write(&lock, "elsewhere.example.org pid 4199999").unwrap();
    let refused = run(place.path(), &of(Keep::Reuse), false).error.expect("it may be in use");
    assert!(refused.to_string().contains("elsewhere.example.org"), "{refused}");
}
