//! What fails on one rank between two collectives: the other ranks end at once, and the user reads why.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::job::{Ended, Job, blamed, kept, no_mpirun, place, times};

const LIMIT: Duration = Duration::from_secs(60);
/// Far below the minute of the load point that the others are in by then, and below anybody's patience.
const AT_ONCE: Duration = Duration::from_secs(20);

fn name_of(rank: u32) -> String {
    format!("rank {rank} on {}", rustix::system::uname().nodename().to_string_lossy())
}

/// Ranks in directories of their own; `rival` is in all but that of `without`.
fn rank_without_its_rival(without: usize, args: &[&str]) -> (Ended, Vec<measure::RunRecord>) {
    let (dir, homes) = (place(), [place(), place(), place()]);
    for (rank, home) in homes.iter().enumerate() {
        if rank != without {
            std::fs::create_dir(home.path().join("rival")).unwrap();
        }
    }
    let ranks: Vec<(&Path, &[&str])> = homes.iter().map(|home| (home.path(), args)).collect();
    let begun = Instant::now();
    let ended = Job::start_unlike(dir.path(), &ranks).end(LIMIT);
    assert!(begun.elapsed() < AT_ONCE, "it took {:?}: {}", begun.elapsed(), ended.said);
    let runs = kept(dir.path());
    (ended, runs)
}

#[test]
fn a_directory_that_only_one_rank_lacks_is_told_before_anything_is_measured() {
    if no_mpirun() {
        return;
    }
    let args =
        ["fstress", "null:", "--vs", "rival", "--workload", "null", "--rate", "100", "--measure", "60s"];
    for rank in [0, 1] {
        let (ended, runs) = rank_without_its_rival(rank, &args);
        assert_ne!(ended.code, 0, "{}", ended.said);
        assert_eq!(times(&ended.said, "cannot use directory rival"), 1, "rank {rank}: {}", ended.said);
        assert_eq!(times(&ended.said, "error: "), 1, "rank {rank}: {}", ended.said);
        // Rank 0 tells for itself.
        assert_eq!(blamed(&ended.said, &name_of(1)), rank, "rank {rank}: {}", ended.said);
        assert!(runs.is_empty(), "nothing was measured");
    }
}

const RIGHT: [&str; 8] = ["fstress", "null:", "--workload", "null", "--rate", "100", "--measure", "60s"];

/// Three ranks, of which some have a side that they do not know, each another one; none knows of it at a meeting.
fn unknown_sides(of_ranks: [bool; 3]) -> Ended {
    let dir = place();
    let words = ["nosuch0=1", "nosuch1=1", "nosuch2=1"];
    let args: Vec<Vec<&str>> = (0..3)
        .map(
            |rank| {
                if of_ranks[rank] { [&RIGHT[..], &["--vs", words[rank]]].concat() } else { RIGHT.to_vec() }
            },
        )
        .collect();
    let ranks: Vec<(&Path, &[&str])> = args.iter().map(|args| (dir.path(), &args[..])).collect();
    let begun = Instant::now();
    let ended = Job::start_unlike(dir.path(), &ranks).end(LIMIT);
    assert!(begun.elapsed() < AT_ONCE, "it took {:?}: {}", begun.elapsed(), ended.said);
    assert_ne!(ended.code, 0, "{}", ended.said);
    assert!(kept(dir.path()).is_empty());
    ended
}

/// Symptom: a rank failed outside of a meeting; the others measured on until the next one, then said "rank 1 is at another
/// step", and why was nowhere. Cause: it just left. Fix: it raises an alarm with its reason.
#[test]
fn an_error_that_only_one_rank_has_is_told_with_its_reason_and_ends_all_at_once() {
    if no_mpirun() {
        return;
    }
    for (rank, of_ranks) in [(0, [true, false, false]), (1, [false, true, false])] {
        let ended = unknown_sides(of_ranks);
        assert_eq!(times(&ended.said, &format!("--vs nosuch{rank}=1")), 1, "rank {rank}: {}", ended.said);
        assert_eq!(times(&ended.said, "error: "), 1, "rank {rank}: {}", ended.said);
        assert_eq!(blamed(&ended.said, &name_of(1)), rank, "rank {rank}: {}", ended.said);
    }
}

/// Symptom: with two such ranks of three the run hung for half a minute. Cause: one that was leaving itself took the word that
/// all are to end for the word that another one had left. Fix: these are two alarms.
#[test]
fn two_ranks_with_errors_of_their_own_do_not_wait_for_each_other() {
    if no_mpirun() {
        return;
    }
    let ended = unknown_sides([false, true, true]);
    assert!(ended.said.contains("nosuch1=1") || ended.said.contains("nosuch2=1"), "{}", ended.said);
}

/// Symptom: of the errors that rank 0 and another one had by themselves, only that of rank 0 was told. Cause: rank 0 was
/// leaving when the other one's came, and dropped it. Fix: it tells it.
#[test]
fn rank_0_tells_what_another_one_ended_with_when_it_ends_itself() {
    if no_mpirun() {
        return;
    }
    let ended = unknown_sides([true, true, false]);
    assert_eq!(times(&ended.said, "--vs nosuch0=1"), 1, "{}", ended.said);
    assert_eq!(times(&ended.said, &format!("{} has ended: --vs nosuch1=1", name_of(1))), 1, "{}", ended.said);
}

#[test]
fn a_flag_that_is_wrong_on_one_rank_alone_is_told_with_the_rank() {
    if no_mpirun() {
        return;
    }
    let dir = place();
    let here = dir.path();
    let right = ["fstress", "null:", "--workload", "null", "--rate", "100", "--measure", "60s"];
    let wrong = ["fstress", "null:", "--no-such-flag"];
    let begun = Instant::now();
    let job = Job::start_unlike(here, &[(here, &right), (here, &wrong), (here, &right)]);
    let ended = job.end(LIMIT);
    assert!(begun.elapsed() < AT_ONCE, "it took {:?}: {}", begun.elapsed(), ended.said);
    assert_ne!(ended.code, 0);
    assert_eq!(times(&ended.said, "--no-such-flag"), 1, "{}", ended.said);
    assert_eq!(blamed(&ended.said, &name_of(1)), 1, "{}", ended.said);
}

#[test]
fn a_report_that_cannot_be_written_is_refused_once_and_before_anything_is_measured() {
    if no_mpirun() {
        return;
    }
    let dir = place();
    let args = [&RIGHT[..], &["--json", "/no/such/place.json"]].concat();
    let begun = Instant::now();
    let ended = Job::start(3, dir.path(), &args).end(LIMIT);
    assert!(begun.elapsed() < AT_ONCE, "it took {:?}: {}", begun.elapsed(), ended.said);
    assert_ne!(ended.code, 0, "{}", ended.said);
    assert_eq!(times(&ended.said, "error: "), 1, "{}", ended.said);
    assert!(ended.said.contains("/no/such/place.json: there is no directory /no/such"), "{}", ended.said);
    assert!(kept(dir.path()).is_empty(), "nothing was measured: {}", ended.said);
}
