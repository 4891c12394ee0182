//! Several ranks as threads, joined by channels: the same run on all, whatever becomes of one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use files::{DirectoryTransport, DirectoryTransportOptions, NullTransport, Transport};
use fstress::{
    Arrivals, FileCount, FstressConfig, FstressError, Keep, Load, RunOutcome, Workload, run_together,
};
use harness::Event;
use harness::ranks::{
    ClockOffset, Exchange, Fate, Hello, Lost, RankGroup, RanksError, Replicas, RoundTrip, Share, Steps,
    merge_phases,
};
use harness::{Entry, PhaseGate as _, RankState};
use measure::{LatencyHistogram, LoadPoint};
use quanta::{Clock, Instant};

/// Parts of all ranks, and where their answers go.
type First = (Receiver<(u32, Vec<u8>)>, Vec<Sender<Vec<u8>>>);

/// An exchange over channels; each rank's clock is ten seconds further than the one before.
struct Channels {
    rank: u32,
    ranks: u32,
    to_first: Sender<(u32, Vec<u8>)>,
    /// Rank 0 alone: what comes, and where answers go.
    first: Option<First>,
    answers: Receiver<Vec<u8>>,
    clock: Clock,
    epoch: Instant,
    epoch_of_first: Instant,
    offsets: Arc<Mutex<Vec<(ClockOffset, i64)>>>,
}

const LOST_AFTER: Duration = Duration::from_millis(1500);

impl Channels {
    fn of(ranks: u32, clock: &Clock) -> Vec<Self> {
        let (to_first, parts) = channel();
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..ranks).map(|_| channel()).unzip();
        let base = clock.now();
        let mut first = Some((parts, senders));
        let offsets = Arc::new(Mutex::new(Vec::new()));
        let epoch = |rank: u32| base - Duration::from_secs(10) * rank;
        let of_rank = |(rank, answers)| Self {
            rank,
            ranks,
            to_first: to_first.clone(),
            first: first.take(),
            answers,
            clock: clock.clone(),
            epoch: epoch(rank),
            epoch_of_first: base,
            offsets: Arc::clone(&offsets),
        };
        (0..ranks).zip(receivers).map(of_rank).collect()
    }

    fn lost(rank: u32) -> Lost {
        Lost { rank, host: format!("host{rank}"), fate: Fate::Gone("does not answer".to_owned()) }
    }
}

impl Exchange for Channels {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn collective(
        &mut self,
        mine: Vec<u8>,
        _patience: Option<Duration>,
        answer: &mut dyn FnMut(&[Vec<u8>]) -> Vec<u8>,
    ) -> Result<Vec<u8>, Lost> {
        let Some((parts, answers)) = &self.first else {
            self.to_first.send((self.rank, mine)).map_err(|_| Self::lost(0))?;
            return self.answers.recv_timeout(5 * LOST_AFTER).map_err(|_| Self::lost(0));
        };
        let mut all: Vec<Option<Vec<u8>>> = vec![None; self.ranks as usize];
        all[0] = Some(mine);
        while let Some(missing) = all.iter().position(Option::is_none) {
            match parts.recv_timeout(LOST_AFTER) {
                Ok((rank, part)) => all[rank as usize] = Some(part),
                Err(_) => {
                    self.first = None;
                    return Err(Self::lost(missing as u32));
                }
            }
        }
        let all: Vec<Vec<u8>> = all.into_iter().flatten().collect();
        let answer = answer(&all);
        answers[1..].iter().for_each(|to| drop(to.send(answer.clone())));
        Ok(answer)
    }

    fn compare_clocks(&mut self) -> Result<ClockOffset, Lost> {
        let since = |epoch| self.clock.now().saturating_duration_since(epoch).as_nanos() as u64;
        let found = ClockOffset::of((0..16).map(|_| RoundTrip {
            asked_ns: since(self.epoch),
            answered_ns: since(self.epoch_of_first),
            heard_ns: since(self.epoch),
        }));
        let truth = -(self.rank as i64 * 10_000_000_000);
        self.offsets.lock().unwrap().push((found, truth));
        Ok(found)
    }

    fn epoch(&self) -> Instant {
        self.epoch
    }

    fn hush(&mut self, _from: Instant, _until: Instant) {}
}

fn config(load: Load) -> FstressConfig {
    FstressConfig {
        workload: Workload::builtin("null").unwrap(),
        load,
        arrivals: Arrivals::Uniform,
        warm: Duration::from_millis(50),
        measure: Duration::from_millis(150),
        drain: Duration::from_secs(1),
        wait: Default::default(),
        files: FileCount::Scaled,
        seed: 7,
        keep: Keep::Remove,
        set_name: "crumb-fstress-test".to_owned(),
        build_in_flight: 16,
        raw: None,
    }
}

fn hello(rank: u32) -> Hello {
    Hello { host: format!("host{rank}"), version: "1".to_owned(), cores: 1 + rank, cpus: vec![] }
}

/// Runs `config` on `ranks` threads. `see` is shown each rank's events and may set its stop flag; what one rank is
/// stopped by stops all, as in MPI's exchange.
fn run_on(
    ranks: u32,
    share: Share,
    config: &FstressConfig,
    open: impl Fn(u32, &Clock) -> Box<dyn Transport> + Sync,
    see: impl Fn(u32, &Event, &AtomicBool) + Sync,
) -> Vec<RunOutcome> {
    let clock = Clock::new();
    let stops: Vec<AtomicBool> = (0..ranks).map(|_| AtomicBool::new(false)).collect();
    let (over, offsets) = (AtomicBool::new(false), Arc::clone(&Channels::of(1, &clock)[0].offsets));
    let outcomes = std::thread::scope(|threads| {
        threads.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if stops.iter().any(|stop| stop.load(Ordering::Relaxed)) {
                    stops.iter().for_each(|stop| stop.store(true, Ordering::Relaxed));
                }
                std::thread::park_timeout(Duration::from_millis(2));
            }
        });
        let running: Vec<_> = Channels::of(ranks, &clock)
            .into_iter()
            .map(|mut exchange| {
                let (clock, stops, open, see) = (clock.clone(), &stops, &open, &see);
                exchange.offsets = Arc::clone(&offsets);
                threads.spawn(move || {
                    let rank = exchange.rank;
                    let mut group = RankGroup::join(Box::new(exchange), hello(rank), share).unwrap();
                    let mut transport = open(rank, &clock);
                    let stop = &stops[rank as usize];
                    let mut tell = |event: Event| see(rank, &event, stop);
                    run_together(config, &mut *transport, &clock, stop, &mut tell, &mut group)
                })
            })
            .collect();
        let outcomes = running.into_iter().map(|thread| thread.join().unwrap()).collect();
        over.store(true, Ordering::Relaxed);
        outcomes
    });
    for (found, truth) in offsets.lock().unwrap().iter() {
        assert!(found.offset_ns.abs_diff(*truth) <= found.uncertainty_ns, "{found:?}, true {truth}");
    }
    outcomes
}

fn null(_: u32, clock: &Clock) -> Box<dyn Transport> {
    Box::new(NullTransport::new(clock.clone()))
}

fn on_directory(path: &Path) -> impl Fn(u32, &Clock) -> Box<dyn Transport> {
    move |_, clock| {
        let options = DirectoryTransportOptions::default();
        Box::new(DirectoryTransport::open(path, options, clock.clone()).unwrap())
    }
}

fn total(point: &LoadPoint) -> u64 {
    point.ops.values().map(|stats| stats.attempted).sum()
}

#[test]
fn unequal_shares_make_one_load_point_that_all_ranks_have_alike() {
    let outcomes = run_on(4, Share::Cores, &config(Load::Sweep(vec![1000.0, 2000.0])), null, |_, _, _| {});
    for outcome in &outcomes {
        assert!(outcome.complete && outcome.error.is_none(), "{:?}", outcome.error);
        assert_eq!(outcome.points, outcomes[0].points);
        assert_eq!(outcome.metrics, outcomes[0].metrics);
        assert_eq!(outcome.verdict, outcomes[0].verdict);
    }
    let point = &outcomes[0].points[1];
    assert_eq!(point.offered_per_sec, Some(2000.0));
    let offered: Vec<f64> = point.parts.iter().filter_map(|part| part.offered_per_sec).collect();
    // One to four processors: a tenth to four tenths.
    for (offered, tenths) in offered.iter().zip(1..) {
        assert!((offered - 200.0 * f64::from(tenths)).abs() < 1e-6, "{offered}");
    }
    // On a machine that has other things to do the last ones may not go out in time.
    assert_eq!((offered.len(), total(point) + point.unsent), (4, 300));
    let counted: u64 = point.parts.iter().map(|part| part.latency_us.count).sum();
    assert_eq!(counted, point.histogram.count());
    for (part, rank) in point.parts.iter().zip(0..) {
        assert_eq!((part.rank, &part.host), (rank, &format!("host{rank}")));
        assert!(part.start_skew_us >= 0.0 && part.start_skew_us < 1e6, "{}", part.start_skew_us);
    }
}

/// Histograms by operation of each load point, from the files of raw samples.
fn rebuilt(prefix: &Path, ranks: u32) -> Vec<BTreeMap<String, LatencyHistogram>> {
    let mut points: Vec<BTreeMap<String, LatencyHistogram>> = Vec::new();
    for rank in 0..ranks {
        let text = std::fs::read_to_string(format!("{}-rank-{rank}.csv", prefix.display())).unwrap();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let [point, kind, due_ns, ns, "ok"] = fields[..] else { panic!("{line}") };
            let point: usize = point.parse().unwrap();
            points.resize_with(points.len().max(point), BTreeMap::new);
            assert!(due_ns.parse::<u64>().unwrap() < 150_000_000, "within the interval: {line}");
            let latency = Duration::from_nanos(ns.parse().unwrap());
            points[point - 1].entry(kind.to_owned()).or_default().record(latency);
        }
    }
    points
}

#[test]
fn raw_samples_of_all_ranks_or_of_one_generator_make_the_histograms_of_its_record() {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for ranks in [1, 3] {
        let prefix = folder.path().join(ranks.to_string());
        let mut asked = config(Load::Sweep(vec![900.0, 1800.0]));
        asked.raw = Some(prefix.clone());
        asked.workload = Workload::builtin("web-server").unwrap();
        let target = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        asked.files = FileCount::Fixed(30.try_into().unwrap());
        let outcomes = run_on(ranks, Share::Even, &asked, on_directory(target.path()), |_, _, _| {});
        assert!(outcomes[0].error.is_none(), "{:?}", outcomes[0].error);
        let points = rebuilt(&prefix, ranks);
        assert_eq!(points.len(), 2);
        for (rebuilt, point) in points.iter().zip(&outcomes[0].points) {
            assert!(point.histogram.count() > 20, "{}", point.histogram.count());
            for (name, stats) in &point.ops {
                let none = LatencyHistogram::new();
                assert_eq!(rebuilt.get(name).unwrap_or(&none), &stats.histogram, "{name}");
            }
        }
    }
}

#[test]
fn raw_samples_that_one_rank_cannot_write_end_the_run_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("run");
    std::fs::write(folder.path().join("run-rank-1.csv"), "another run's").unwrap();
    let mut asked = config(Load::Sweep(vec![900.0]));
    asked.raw = Some(prefix);
    let outcomes = run_on(3, Share::Even, &asked, null, |_, _, _| {});
    for outcome in &outcomes {
        let told = outcome.error.as_ref().unwrap().to_string();
        assert!(told.contains("cannot write the raw samples to") && outcome.points.is_empty(), "{told}");
    }
    let told = outcomes[0].error.as_ref().unwrap().to_string();
    assert!(told.starts_with("rank 1 on host1: "), "{told}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["run-rank-1.csv"]);
}

#[test]
fn a_search_on_a_noisy_machine_takes_the_same_way_on_all_ranks() {
    let bound = "p99<0.01ms".parse().unwrap();
    let outcomes =
        run_on(3, Share::Even, &config(Load::FindMax { first: 3000.0, bound }), null, |_, _, _| {});
    let rates = |outcome: &RunOutcome| -> Vec<Option<f64>> {
        outcome.points.iter().map(|point| point.offered_per_sec).collect()
    };
    assert!(outcomes[0].points.len() > 1);
    for outcome in &outcomes {
        assert!(outcome.error.is_none(), "{:?}", outcome.error);
        assert_eq!(rates(outcome), rates(&outcomes[0]));
    }
}

#[test]
fn the_same_seed_and_ranks_ask_the_same_and_each_rank_something_else() {
    let fixed = FstressConfig { seed: 11, ..config(Load::Sweep(vec![1500.0])) };
    // What does not go out in time on a busy machine is not in the digest: then once more.
    let whole = |ranks: u32| -> LoadPoint {
        let tries =
            (0..20).map(|_| run_on(ranks, Share::Even, &fixed, null, |_, _, _| {})[0].points[0].clone());
        tries.into_iter().find(|point| point.unsent == 0).expect("a quiet moment")
    };
    let (once, again, alone) = (whole(2), whole(2), whole(1));
    assert_eq!(once.operations_digest, again.operations_digest);
    assert_ne!(once.operations_digest, alone.operations_digest);
    assert!(alone.parts.is_empty(), "one rank is a generator alone");
}

#[test]
fn stopping_one_rank_while_files_are_made_stops_all_and_leaves_no_file_set() {
    let dir = tempfile::tempdir().unwrap();
    let files = FileCount::Fixed(50_000.try_into().unwrap());
    let asked = FstressConfig {
        workload: Workload::builtin("web-server").unwrap(),
        files,
        ..config(Load::Sweep(vec![100.0]))
    };
    let outcomes = run_on(2, Share::Even, &asked, on_directory(dir.path()), |rank, event, stop| {
        if rank == 1 && matches!(event, Event::Step(step) if step.done > 0) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    for outcome in outcomes {
        assert!(!outcome.complete && outcome.error.is_none(), "{:?}", outcome.error);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Symptom: the record of a sweep had no "build" between its load points, though files were made. Cause: rank 0, whose own
/// part had not changed, dropped what came back from the collective. Fix: every rank keeps the work of the whole.
#[test]
fn files_that_only_another_rank_makes_are_in_the_record_of_all() {
    let dir = tempfile::tempdir().unwrap();
    let mut asked = FstressConfig {
        workload: Workload::builtin("web-server").unwrap(),
        ..config(Load::Sweep(vec![3.0, 4.0]))
    };
    asked.workload.scale.files_per_op = fstress::FilesPerOp::new(1.0).unwrap();
    asked.workload.scale.files_min = 1;
    // Of 3 files rank 0 has 2, and of 4 as well.
    let outcomes = run_on(2, Share::Even, &asked, on_directory(dir.path()), |_, _, _| {});
    for outcome in &outcomes {
        let built: Vec<u64> =
            outcome.phases.iter().filter(|phase| phase.name == "build").map(|phase| phase.items).collect();
        assert_eq!(built, [3, 1], "{:?}", outcome.error);
    }
}

#[test]
fn a_rank_that_cannot_make_its_files_ends_all_and_is_named_with_its_host() {
    let dir = tempfile::tempdir().unwrap();
    // In the way of rank 2.
    std::fs::create_dir(dir.path().join("crumb-fstress-test-r2")).unwrap();
    let files = FileCount::Fixed(40.try_into().unwrap());
    let asked = FstressConfig {
        workload: Workload::builtin("web-server").unwrap(),
        files,
        ..config(Load::Sweep(vec![100.0]))
    };
    let outcomes = run_on(3, Share::Even, &asked, on_directory(dir.path()), |_, _, _| {});
    let told = outcomes[0].error.as_ref().unwrap().to_string();
    assert!(told.starts_with("rank 2 on host2: ") && told.contains("crumb-fstress-test-r2"), "{told}");
    let own = outcomes[2].error.as_ref().unwrap();
    assert!(matches!(own, FstressError::Refused { .. }), "{own}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["crumb-fstress-test-r2"], "the sets of the others are gone again");
}

#[test]
fn what_was_measured_before_a_rank_was_lost_is_kept() {
    let kept = Mutex::new(None);
    let clock = Clock::new();
    std::thread::scope(|threads| {
        for exchange in Channels::of(3, &clock) {
            let (clock, kept) = (clock.clone(), &kept);
            threads.spawn(move || {
                let (rank, stop) = (exchange.rank, AtomicBool::new(false));
                let mut group = RankGroup::join(Box::new(exchange), hello(rank), Share::Even).unwrap();
                // Rank 1 measures two points and is gone.
                let asked = config(Load::Sweep(vec![900.0; if rank == 1 { 2 } else { 5 }]));
                let mut transport = null(rank, &clock);
                let outcome = run_together(&asked, &mut *transport, &clock, &stop, &mut |_| {}, &mut group);
                if rank == 0 {
                    *kept.lock().unwrap() = Some(outcome);
                }
            });
        }
    });
    let outcome = kept.into_inner().unwrap().unwrap();
    assert!(!outcome.complete && outcome.verdict.has("incomplete"));
    // On a busy machine rank 1 measures its last level again, as that was late.
    assert!((2..5).contains(&outcome.points.len()), "{}", outcome.points.len());
    let told = measure::error_chain(&outcome.error.unwrap());
    assert!(told.contains("rank 1 on host1") && told.contains("another step"), "{told}");
}

/// Symptom: the directory of a rank that was killed stayed on the storage. Fix: rank 0 removes it, or without rank 0 the next.
#[test]
fn the_file_set_of_a_rank_that_was_lost_is_removed_by_another() {
    for lost in [1, 0] {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::new();
        std::thread::scope(|threads| {
            let mut ranks = Vec::new();
            for exchange in Channels::of(3, &clock) {
                let (clock, open) = (clock.clone(), on_directory(dir.path()));
                ranks.push(threads.spawn(move || {
                    let (rank, stop) = (exchange.rank, AtomicBool::new(false));
                    let mut group = RankGroup::join(Box::new(exchange), hello(rank), Share::Even).unwrap();
                    let asked = FstressConfig {
                        workload: Workload::builtin("web-server").unwrap(),
                        files: FileCount::Fixed(90.try_into().unwrap()),
                        ..config(Load::Sweep(vec![300.0; 3]))
                    };
                    let mut transport = open(rank, &clock);
                    let mut tell = |event: Event| {
                        // As a process that is killed: without a word, and with its files there.
                        if rank == lost && matches!(event, Event::LevelDone(_)) {
                            std::panic::resume_unwind(Box::new("killed"));
                        }
                    };
                    run_together(&asked, &mut *transport, &clock, &stop, &mut tell, &mut group)
                }));
            }
            for (rank, thread) in (0..).zip(ranks) {
                assert_eq!(thread.join().is_err(), rank == lost, "rank {rank}");
            }
        });
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert!(left.is_empty(), "rank {lost} was lost: {left:?}");
    }
}

/// What `copy` comes to on three ranks, each with its own stop flag.
fn on_three<T: Send>(copy: impl Fn(u32, &mut Replicas<'_>, &AtomicBool) -> T + Sync) -> Vec<T> {
    let clock = Clock::new();
    std::thread::scope(|threads| {
        let running: Vec<_> = Channels::of(3, &clock)
            .into_iter()
            .map(|exchange| {
                let copy = &copy;
                threads.spawn(move || {
                    let (rank, stop) = (exchange.rank, AtomicBool::new(false));
                    let mut group = RankGroup::join(Box::new(exchange), hello(rank), Share::Even).unwrap();
                    copy(rank, &mut Replicas::new(&mut group, &stop), &stop)
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn copies_begin_a_phase_at_a_common_moment_after_the_last_has_come() {
    let (others, to_last) = channel();
    let to_last = Mutex::new(to_last);
    let moments = on_three(|rank, replicas, stop| {
        // Rank 2 comes when the others are about to wait for it.
        if rank == 2 {
            (0..2).for_each(|_| to_last.lock().unwrap().recv().unwrap());
        } else {
            others.send(()).unwrap();
        }
        let came = std::time::Instant::now();
        assert_eq!(replicas.enter("create", RankState::On), Entry::Go);
        assert!(!stop.load(Ordering::Relaxed), "all go on");
        (came, std::time::Instant::now())
    });
    let last_came = moments.iter().map(|moment| moment.0).max().unwrap();
    let first_began = moments.iter().map(|moment| moment.1).min().unwrap();
    let last_began = moments.iter().map(|moment| moment.1).max().unwrap();
    // A word that is on its way for long may not let one rank begin before another: all begin well after it was given.
    assert!(
        first_began >= last_came + Duration::from_millis(100),
        "{:?}",
        first_began.duration_since(last_came)
    );
    // Their clocks are ten seconds apart, so a rank that trusted its own would begin that much later than another. A busy
    // machine lets threads wait, but not for that long.
    assert!(last_began - first_began < Duration::from_secs(5), "{:?} apart", last_began - first_began);
}

#[test]
fn copies_go_on_together_until_one_fails_and_all_hear_why() {
    let ends = on_three(|rank, replicas, stop| {
        assert_eq!(replicas.enter("create", RankState::On), Entry::Go);
        // Rank 1 fails in it, and has files to remove next; the others would go on.
        let (next, state) =
            if rank == 1 { ("delete", RankState::Failed) } else { ("transactions", RankState::On) };
        assert_eq!(replicas.enter(next, state), Entry::Stop);
        let stopped = stop.load(Ordering::Relaxed);
        // Each its own way: nobody is waited for.
        replicas.enter("delete", RankState::On);
        let end = replicas.end((rank == 1).then(|| "the disk is full".to_owned()));
        let create = measure::Phase {
            name: "create".to_owned(),
            items: 10,
            wall_s: f64::from(1 + rank),
            ..measure::Phase::default()
        };
        let mine = vec![(create, Steps::default())];
        let sum = replicas.group().add_up("what phases did", mine, merge_phases).unwrap();
        (stopped, end, sum, replicas.group().all_know())
    });
    for (stopped, end, sum, all_know) in &ends {
        assert!(*stopped && *all_know);
        let told = end.as_ref().unwrap_err().to_string();
        assert!(told.contains("rank 1 on host1") && told.contains("the disk is full"), "{told}");
        // 10 in 1 s, 5 of 10, 3.33 of 10; all of it in 3 s.
        let rate = sum[0].counters["all_worked_items_per_sec"];
        assert!((rate - 18.333).abs() < 1e-2 && sum[0].items_per_sec == 10.0, "{sum:?}");
    }
}

/// Symptom: a quick netnews with --repeat over ranks ended its series after the first round, or fell apart. Cause: the first
/// rank whose time was up stopped the others, as a failure does, and a stop ends a series. Fix: time that is up lets all go
/// their own ways, and stops nobody.
#[test]
fn a_copy_whose_time_is_up_stops_no_other_and_all_end_well() {
    let ends = on_three(|rank, replicas, stop| {
        // Rank 1's time is up within a phase, rank 2's between two, rank 0's a moment later than both.
        match rank {
            1 => assert_eq!(replicas.enter("expire", RankState::TimeUp), Entry::Alone),
            2 => {}
            _ => {
                assert_eq!(replicas.enter("expire", RankState::On), Entry::Alone);
                assert_eq!(replicas.enter("unbatch", RankState::On), Entry::Alone);
            }
        }
        let end = replicas.end(None);
        (stop.load(Ordering::Relaxed), end)
    });
    for (stopped, end) in ends {
        assert!(!stopped && end.is_ok(), "{stopped}, {end:?}");
    }
}

#[test]
fn ranks_of_other_versions_or_with_other_terms_are_refused_by_name() {
    let clock = Clock::new();
    let join =
        |versions: [&'static str; 2], shares: [Share; 2], seeds: [u64; 2]| -> Vec<Result<(), RanksError>> {
            std::thread::scope(|threads| {
                let joining: Vec<_> = Channels::of(2, &clock)
                    .into_iter()
                    .map(|exchange| {
                        threads.spawn(move || {
                            let rank = exchange.rank;
                            let version = versions[rank as usize].to_owned();
                            let hello = Hello { version, ..hello(rank) };
                            let mut group =
                                RankGroup::join(Box::new(exchange), hello, shares[rank as usize])?;
                            group.same_terms(vec![("seed".to_owned(), seeds[rank as usize].to_string())])
                        })
                    })
                    .collect();
                joining.into_iter().map(|thread| thread.join().unwrap()).collect()
            })
        };
    let (even, cores) = (Share::Even, Share::Cores);
    assert!(join(["1", "1"], [even, even], [3, 3]).into_iter().all(|joined| joined.is_ok()));
    for (versions, shares, seeds, differs) in [
        (["1", "2"], [even, even], [3, 3], "version of Crumb: 1 on host0 (rank 0), but 2 on host1 (rank 1)"),
        (["1", "1"], [even, cores], [3, 3], "--share: even on host0 (rank 0), but cores on host1 (rank 1)"),
        (["1", "1"], [even, even], [3, 4], "seed: 3 on host0 (rank 0), but 4 on host1 (rank 1)"),
    ] {
        for refused in join(versions, shares, seeds) {
            let told = refused.unwrap_err().to_string();
            assert!(told.contains(differs), "{told}");
        }
    }
}
