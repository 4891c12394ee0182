//! No setting, no full or broken storage and no signal makes a run hang, crash, or leave a file behind.

use std::fs;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::talk::{say, scratch, tree};
use files::{Access, Attributes, FileSystem, FsError, Fsstat, ListedEntry, LocalFs, OpenFile};
use postmark::engine::{self, Ending, Event, Outcome, Phase, Place, RunOptions, SyncMode};
use postmark::{Bias, PostmarkError, ReportForm, SessionEnd, Settings, SizeRange};
use proptest::prelude::*;
use testkit::{LoopImage, Tmpfs};

fn settings() -> impl Strategy<Value = Settings> {
    let small = |most: u32| (1..=most).prop_map(|n| NonZeroU32::new(n).unwrap());
    let bias = || (-1..=10).prop_map(|value| Bias::new(value).unwrap());
    let forms = prop_oneof![Just(ReportForm::Verbose), Just(ReportForm::Terse)];
    let counts = (small(12), any::<u32>(), small(60), 0u32..13);
    let bytes = (small(60), small(6000), small(5000), small(5000), any::<bool>());
    (bytes, counts, bias(), bias(), forms).prop_map(|(bytes, counts, read_bias, create_bias, report)| {
        Settings {
            size: SizeRange::new(bytes.0, bytes.1),
            number: counts.0,
            seed: counts.1,
            transactions: counts.2,
            locations: vec![],
            subdirectories: counts.3,
            read_block: bytes.2,
            write_block: bytes.3,
            buffered: bytes.4,
            read_bias,
            create_bias,
            report,
        }
    })
}

fn places(directory: &Path, weights: &[u32]) -> Vec<Place> {
    let place = |(index, weight): (usize, &u32)| {
        let path = directory.join(format!("p{index}"));
        fs::create_dir(&path).unwrap();
        Place { fs: Arc::new(LocalFs::open(path).unwrap()), weight: NonZeroU32::new(*weight).unwrap() }
    };
    weights.iter().enumerate().map(place).collect()
}

/// Below the places themselves.
fn left(directory: &Path) -> Vec<std::path::PathBuf> {
    tree(directory).into_iter().filter(|path| path.components().count() > 1).collect()
}

fn consistent(outcome: &Outcome, settings: &Settings, threads: u64) {
    let counts = &outcome.counts;
    assert_eq!(counts.created(), counts.deleted(), "all that was made is removed");
    assert!(counts.created_alone <= u64::from(settings.number.get()) * threads);
    assert!(outcome.transactions_done <= u64::from(settings.transactions.get()) * threads);
    if outcome.complete() {
        assert_eq!(counts.created_alone, u64::from(settings.number.get()) * threads);
        assert_eq!(outcome.transactions_done, u64::from(settings.transactions.get()) * threads);
    }
    if let Some(latencies) = &outcome.latencies {
        let timed =
            [&latencies.create, &latencies.read, &latencies.append, &latencies.delete].map(|of| of.count());
        assert_eq!(timed, [counts.created(), counts.read, counts.appended, counts.deleted()]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_settings_come_to_an_end_and_leave_nothing(
        settings in settings(),
        weights in prop::collection::vec(1u32..5, 1..4),
        threads in 1usize..4,
        latencies in any::<bool>(),
    ) {
        let here = scratch();
        let places = places(here.path(), &weights);
        let how = RunOptions { latencies, ..RunOptions::default() };
        let stop = AtomicBool::new(false);
        let outcome = if threads == 1 {
            engine::run(&settings, &places, &how, &stop, &mut |_| {}).unwrap()
        } else {
            let threads = NonZeroUsize::new(threads).unwrap();
            engine::run_threads(&settings, &places, &how, threads, &stop, &mut |_| {}).unwrap()
        };
        consistent(&outcome, &settings, threads as u64);
        prop_assert!(left(here.path()).is_empty());
    }

    #[test]
    fn a_fault_at_any_call_is_told_and_leaves_nothing(settings in settings(), fault in 0u32..400) {
        let here = scratch();
        let mut places = places(here.path(), &[1, 2]);
        let calls = Arc::new(AtomicU32::new(0));
        for place in &mut places {
            place.fs = Arc::new(Faulty { fs: Arc::clone(&place.fs), calls: Arc::clone(&calls), fault });
        }
        let stop = AtomicBool::new(false);
        let done = engine::run(&settings, &places, &RunOptions::default(), &stop, &mut |_| {});
        let met = calls.load(Ordering::Relaxed) > fault;
        prop_assert_eq!(done.is_err(), met, "{:?}", done);
        // The one file whose removal was refused may be there, and its directory with it: as was told.
        let left = left(here.path());
        prop_assert!(left.len() <= 2, "{left:?}");
        if let Err(error) = done {
            prop_assert!(left.is_empty() || matches!(error, PostmarkError::Left { .. }), "{error}: {left:?}");
        }
    }

    #[test]
    fn an_interruption_at_any_moment_leaves_nothing(settings in settings(), moment in 0u32..400) {
        let here = scratch();
        let mut places = places(here.path(), &[1]);
        let stop = Arc::new(AtomicBool::new(false));
        places[0].fs =
            Arc::new(Interrupting { fs: Arc::clone(&places[0].fs), calls: AtomicU32::new(moment), stop: Arc::clone(&stop) });
        let outcome = engine::run(&settings, &places, &RunOptions::default(), &stop, &mut |_| {}).unwrap();
        consistent(&outcome, &settings, 1);
        prop_assert!(left(here.path()).is_empty());
    }
}

/// Gives an error at one call to the storage, and only there.
struct Faulty {
    fs: Arc<dyn FileSystem>,
    calls: Arc<AtomicU32>,
    fault: u32,
}

impl Faulty {
    fn next(&self, op: files::FsOp, path: &Path) -> Result<(), FsError> {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.fault {
            return Err(FsError::of_errno(op, path.to_owned(), rustix::io::Errno::IO));
        }
        Ok(())
    }
}

/// Sets the flag at one call to the storage.
struct Interrupting {
    fs: Arc<dyn FileSystem>,
    calls: AtomicU32,
    stop: Arc<AtomicBool>,
}

impl Interrupting {
    fn next(&self, _: files::FsOp, _: &Path) -> Result<(), FsError> {
        if self.calls.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// What a run asks of storage is counted; the rest goes through.
macro_rules! counted {
    ($storage:ty) => {
        impl FileSystem for $storage {
            fn create(&self, path: &Path) -> Result<Box<dyn OpenFile>, FsError> {
                self.next(files::FsOp::Create, path)?;
                self.fs.create(path)
            }
            fn open(&self, path: &Path, access: Access) -> Result<Box<dyn OpenFile>, FsError> {
                self.next(files::FsOp::Open, path)?;
                self.fs.open(path, access)
            }
            fn unlink(&self, path: &Path) -> Result<(), FsError> {
                self.next(files::FsOp::Unlink, path)?;
                self.fs.unlink(path)
            }
            fn mkdir(&self, path: &Path) -> Result<(), FsError> {
                self.next(files::FsOp::Mkdir, path)?;
                self.fs.mkdir(path)
            }
            fn rmdir(&self, path: &Path) -> Result<(), FsError> {
                self.fs.rmdir(path)
            }
            fn link(&self, existing: &Path, new: &Path) -> Result<(), FsError> {
                self.fs.link(existing, new)
            }
            fn symlink(&self, target: &Path, path: &Path) -> Result<(), FsError> {
                self.fs.symlink(target, path)
            }
            fn readlink(&self, path: &Path) -> Result<std::path::PathBuf, FsError> {
                self.fs.readlink(path)
            }
            fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
                self.fs.rename(from, to)
            }
            fn readdir(&self, path: &Path, each: &mut dyn FnMut(ListedEntry<'_>)) -> Result<(), FsError> {
                self.fs.readdir(path, each)
            }
            fn stat(&self, path: &Path) -> Result<Attributes, FsError> {
                self.fs.stat(path)
            }
            fn statfs(&self) -> Result<Fsstat, FsError> {
                self.fs.statfs()
            }
            fn sync_dir(&self, path: &Path) -> Result<(), FsError> {
                self.fs.sync_dir(path)
            }
            fn below(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
                self.fs.below(path)
            }
            fn place(&self) -> String {
                self.fs.place()
            }
            fn local_root(&self) -> Option<&Path> {
                self.fs.local_root()
            }
        }
    };
}

counted!(Faulty);
counted!(Interrupting);

/// Symptom: a run whose storage failed kept nothing of what it had measured. Cause: the error took the place of the counts.
#[test]
fn what_was_done_until_the_storage_failed_stays_beside_the_error() {
    let here = scratch();
    let mut places = places(here.path(), &[1]);
    // 500 files are made, and some of 500 transactions done.
    let (calls, fault) = (Arc::new(AtomicU32::new(0)), 700);
    places[0].fs = Arc::new(Faulty { fs: Arc::clone(&places[0].fs), calls, fault });
    let (one, stop, how) = (NonZeroUsize::MIN, AtomicBool::new(false), RunOptions::default());
    let ended = engine::run_as_rank(
        &Settings::default(),
        &places,
        &how,
        one,
        &mut harness::NoGate,
        &stop,
        &mut |_| {},
    );
    let engine::RunEnd { outcome, error } = ended.unwrap();
    assert!(matches!(error, Some(PostmarkError::Storage { phase: Phase::Transactions, .. })), "{error:?}");
    assert_eq!((outcome.ending, outcome.counts.created_alone), (Ending::Failed, 500));
    assert!((100..500).contains(&outcome.transactions_done), "{}", outcome.transactions_done);
    assert!(left(here.path()).len() <= 2, "what could be removed is");
}

#[test]
fn a_table_without_any_used_file_ends_the_run_in_the_original_s_words() {
    let here = scratch();
    let said = say(
        here.path(),
        "set number 3\nset transactions 25\nset bias create 0\nrun\nset report terse\nrun\n",
    );
    let told = "pm>Creating files...Done\nPerforming transactions..out of files!\n\
                For this workload, either increase the number of files or\ndecrease the number of transactions.\n\
                Deleting files...Done\npm>";
    assert_eq!(said.out.matches(told).count(), 2, "{}", said.out);
    // The original says nothing more and exits with 0, and so do we: scripts know it so.
    assert_eq!((said.end, said.err.as_str()), (SessionEnd::Fine, ""));
}

#[test]
fn sizes_of_zero_cannot_be_set_and_so_never_make_every_file_look_free() {
    let here = scratch();
    let said =
        say(here.path(), "set size 0\nset size 0 0\nset size 0 5\nset size -5 10\nset number 5\nrun\n");
    assert_eq!(said.err.matches("Error: no file size low or high bounds specified\n").count(), 4);
    assert_eq!(said.end, SessionEnd::Fine);
    let said = say(here.path(), "set size 1\nset number 1\nset subdirectories 3\nset transactions 9\nrun\n");
    assert_eq!(said.end, SessionEnd::Fine, "{said:?}");
}

#[test]
fn fewer_than_ten_subdirectories_are_no_danger() {
    for subdirectories in 1..10 {
        let here = scratch();
        let said = say(here.path(), &format!("set subdirectories {subdirectories}\nset number 20\nrun\n"));
        assert_eq!((said.end, said.err.as_str()), (SessionEnd::Fine, ""), "{subdirectories}");
        assert!(tree(here.path()).is_empty());
    }
}

#[test]
fn settings_that_no_memory_holds_are_refused_before_anything_is_made() {
    let here = scratch();
    let said = say(here.path(), "set number 2147483647\nrun\n");
    assert_eq!(said.end, SessionEnd::Failed { runs: 1 });
    assert!(said.err.contains("GB of memory: set a smaller `number`"), "{}", said.err);
    assert!(!said.out.contains("Creating"), "{}", said.out);
    let said = say(here.path(), "set location . 2147483647\nset location +. 1\nrun\n");
    assert!(said.err.contains("weights add up to 2147483648"), "{}", said.err);
}

#[test]
fn a_file_of_the_user_s_is_neither_overwritten_nor_removed() {
    let here = scratch();
    fs::write(here.path().join("3"), "dear diary").unwrap();
    let said = say(here.path(), "set number 9\nrun\n");
    assert_eq!(said.end, SessionEnd::Failed { runs: 1 });
    assert!(said.err.contains("/3 is there already") && said.err.contains("move it away"), "{}", said.err);
    assert!(said.out.contains("Creating files...failed\nDeleting files...Done\npm>"), "{}", said.out);
    assert_eq!(tree(here.path()), [Path::new("3")]);
    assert_eq!(fs::read_to_string(here.path().join("3")).unwrap(), "dear diary");
}

#[test]
fn a_directory_of_the_user_s_that_is_called_s1_is_left_alone() {
    let here = scratch();
    fs::create_dir_all(here.path().join("s1/mine")).unwrap();
    let said = say(here.path(), "set number 9\nset subdirectories 3\nrun\n");
    assert_eq!(said.end, SessionEnd::Failed { runs: 1 });
    assert!(said.err.contains("/s1 is there already"), "{}", said.err);
    assert_eq!(tree(here.path()), [Path::new("s1"), Path::new("s1/mine")]);
}

#[test]
fn a_file_in_place_of_the_location_is_told() {
    let here = scratch();
    fs::write(here.path().join("flat"), "").unwrap();
    let said = say(here.path(), "set location flat\nrun\n");
    assert_eq!(said.end, SessionEnd::Failed { runs: 1 });
    assert!(said.err.contains("Not a directory") && said.err.contains("flat"), "{}", said.err);
}

#[test]
fn a_file_of_the_user_s_that_appears_in_a_subdirectory_is_told_of_and_stays() {
    let here = scratch();
    let places = places(here.path(), &[1]);
    let settings = Settings { subdirectories: 2, ..Settings::default() };
    let guest = here.path().join("p0/s1/guest");
    let stop = AtomicBool::new(false);
    let done = engine::run(&settings, &places, &RunOptions::default(), &stop, &mut |event| {
        if matches!(event, Event::Ends { phase: Phase::Create, .. }) {
            fs::write(&guest, "hello").unwrap();
        }
    });
    let error = done.unwrap_err();
    assert!(matches!(&error, PostmarkError::Left { left: 1, .. }), "{error}");
    assert!(measure::error_chain(&error).contains("s1"), "{error}");
    assert_eq!(left(here.path()), [Path::new("p0/s1"), Path::new("p0/s1/guest")]);
}

#[test]
fn a_file_that_someone_cuts_short_or_takes_away_ends_the_run_with_its_name() {
    for cut in [true, false] {
        let here = scratch();
        let places = places(here.path(), &[1]);
        let settings =
            Settings { number: NonZeroU32::MIN, read_bias: Bias::new(10).unwrap(), ..Settings::default() };
        let stop = AtomicBool::new(false);
        let done = engine::run(&settings, &places, &RunOptions::default(), &stop, &mut |event| {
            if matches!(event, Event::Ends { phase: Phase::Create, .. }) {
                let victim = here.path().join("p0/1");
                if cut { fs::write(victim, "x").unwrap() } else { fs::remove_file(victim).unwrap() }
            }
        });
        let error = done.unwrap_err();
        assert!(measure::error_chain(&error).contains("/1"), "{error}");
        assert_eq!(cut, matches!(error, PostmarkError::Shortened { read_bytes: 1, .. }), "{error}");
        assert!(left(here.path()).is_empty());
    }
}

#[test]
fn an_interrupted_session_says_how_far_it_got_and_ends() {
    let here = scratch();
    let places = places(here.path(), &[1]);
    let stop = AtomicBool::new(false);
    let outcome = engine::run(&Settings::default(), &places, &RunOptions::default(), &stop, &mut |event| {
        if matches!(event, Event::Tenth) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let outcome = outcome.unwrap();
    assert_eq!((outcome.ending, outcome.transactions_done), (Ending::Interrupted, 1));
    assert!(left(here.path()).is_empty());
}

#[test]
fn syncing_changes_no_count() {
    let here = scratch();
    let places = places(here.path(), &[3, 1]);
    let settings = Settings { number: NonZeroU32::new(20).unwrap(), ..Settings::default() };
    let stop = AtomicBool::new(false);
    let runs = [SyncMode::None, SyncMode::Close, SyncMode::Every].map(|sync| {
        let how = RunOptions { sync, ..RunOptions::default() };
        engine::run(&settings, &places, &how, &stop, &mut |_| {}).unwrap().counts
    });
    assert!(runs[0].appended > 0 && runs[0] == runs[1] && runs[1] == runs[2], "{runs:?}");
}

#[test]
fn workers_count_as_runs_with_the_following_seeds_do() {
    let here = scratch();
    let places = places(here.path(), &[1]);
    let stop = AtomicBool::new(false);
    let settings = Settings::default();
    let how = RunOptions::default();
    let three = NonZeroUsize::new(3).unwrap();
    let together = engine::run_threads(&settings, &places, &how, three, &stop, &mut |_| {}).unwrap();
    let alone: Vec<_> = (42..45)
        .map(|seed| {
            engine::run(&Settings { seed, ..settings.clone() }, &places, &how, &stop, &mut |_| {}).unwrap()
        })
        .collect();
    let sum = |of: fn(&Outcome) -> u64| alone.iter().map(of).sum::<u64>();
    assert_eq!(together.counts.created(), sum(|one| one.counts.created()));
    assert_eq!(together.counts.bytes_read, sum(|one| one.counts.bytes_read));
    assert_eq!(together.counts.bytes_written, sum(|one| one.counts.bytes_written));
    assert!(left(here.path()).is_empty());
}

#[test]
fn a_full_disk_is_told_and_left_as_it_was_found() {
    let Some(image) = LoopImage::needed("ext4", 4 << 20, &[]) else { return };
    let Some(memory) = Tmpfs::needed("size=1m") else { return };
    for disk in [image.path(), memory.path()] {
        let before = tree(disk);
        let said = say(
            disk,
            "set size 5000 20000\nset number 2000\nset subdirectories 3\nrun\nset buffering false\nrun\n",
        );
        assert_eq!(said.end, SessionEnd::Failed { runs: 2 });
        assert_eq!(said.err.matches("No space left on device").count(), 2, "{}", said.err);
        assert_eq!(
            said.out.matches("Creating files...failed\nDeleting files...Done\n").count(),
            2,
            "{}",
            said.out
        );
        assert_eq!(tree(disk), before);
    }
}

#[test]
fn a_read_only_place_stops_the_run() {
    let Some(disk) = Tmpfs::needed("size=1m,ro") else { return };
    let said = say(disk.path(), "set number 5\nrun\nset subdirectories 2\nrun\n");
    assert_eq!(said.end, SessionEnd::Failed { runs: 2 });
    assert_eq!(said.err.matches("Read-only file system").count(), 2, "{}", said.err);
}
