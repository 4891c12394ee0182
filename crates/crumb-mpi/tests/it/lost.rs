//! A rank that is killed or stopped, in each phase: all end soon, it is named, what was measured is kept.

use std::path::Path;
use std::time::{Duration, Instant};

use files::DirectoryOptions;
use nfs::server::{Server, ServerOptions, serve_dir};
use rustix::process::{Signal, kill_process};

use crate::job::{Job, blamed, gone, kept, no_mpirun, place, sweep, times};

const PHASES: [&str; 4] = ["building", "warming", "measuring", "cleaning up"];
/// From the fault on: the rest of an interval, patience, cleaning up, and a machine that others use as well.
const SOON: Duration = Duration::from_secs(30);

fn serve(export: &Path) -> Server {
    serve_dir(export, ServerOptions::default(), DirectoryOptions::default()).unwrap()
}

/// Three ranks that have come to `phase`, and the load points done by then.
fn brought_to(phase: &str, url: &str, dir: &Path) -> (Job, usize) {
    let args = sweep(url, "90, 100", phase);
    let mut job = Job::start(3, dir, &args.iter().map(String::as_str).collect::<Vec<_>>());
    let points = job.bring_to(phase, 3);
    (job, points)
}

fn rank_fails(signal: Signal, rank: usize, phases: &[&str]) {
    for &phase in phases {
        let (dir, export) = (place(), place());
        let server = serve(export.path());
        let url = format!("nfs://{}/", server.addr());
        let (job, points) = brought_to(phase, &url, dir.path());
        let pids = job.ranks();
        assert_eq!(pids.len(), 3, "{phase}");
        let begun = Instant::now();
        kill_process(pids[rank], signal).unwrap();
        let ended = job.end(SOON);
        eprintln!("rank {rank}, {signal:?} while {phase}: over after {:.1?}", begun.elapsed());
        assert_ne!(ended.code, 0, "{phase}: {}", ended.said);
        let name = format!("rank {rank} on {}", rustix::system::uname().nodename().to_string_lossy());
        assert_eq!(blamed(&ended.said, &name), 1, "{phase}: {}", ended.said);
        let killed = format!("{name} was killed by SIGKILL");
        assert_eq!(
            times(&ended.said, &killed),
            usize::from(signal == Signal::KILL),
            "{phase}: {}",
            ended.said
        );
        let set_of = format!("-r{rank}");
        let left: Vec<_> = std::fs::read_dir(export.path()).unwrap().flatten().collect();
        assert!(
            left.iter().all(|set| set.file_name().to_string_lossy().ends_with(&set_of)),
            "{phase}: {left:?}"
        );
        // Symptom: the folder of a rank that was killed stayed. Fix: another rank removes it.
        if signal == Signal::KILL {
            assert!(left.is_empty(), "{phase}: {left:?}");
        }
        gone(&pids);
        match (points, &kept(dir.path())[..]) {
            (0, []) => {}
            (_, [run]) => {
                assert!(!run.complete, "{phase}");
                assert_eq!(run.points.len(), points, "{phase}: {}", ended.said);
                assert!(run.points.iter().all(|point| point.parts.len() == 3), "{phase}");
            }
            (_, runs) => panic!("{phase}: {} runs are kept: {}", runs.len(), ended.said),
        }
        server.stop();
    }
}

#[test]
fn a_stopped_rank_is_named_and_what_was_measured_is_kept() {
    if !no_mpirun() {
        rank_fails(Signal::STOP, 2, &PHASES);
        rank_fails(Signal::STOP, 0, &["measuring"]);
    }
}

/// Symptom: a rank killed for want of memory was not named, and the others' files stayed. Cause: the launcher kills all as
/// soon as one of its processes dies. Fix: its process is another one, which stays until the others have noticed.
#[test]
fn a_killed_rank_is_named_and_what_was_measured_is_kept() {
    if !no_mpirun() {
        rank_fails(Signal::KILL, 2, &PHASES);
        rank_fails(Signal::KILL, 0, &["measuring"]);
    }
}

#[test]
fn a_rank_ends_with_the_process_that_watches_it_and_so_do_all_others() {
    if no_mpirun() {
        return;
    }
    let (dir, export) = (place(), place());
    let server = serve(export.path());
    let url = format!("nfs://{}/", server.addr());
    let (job, _) = brought_to("warming", &url, dir.path());
    let (pids, watchers) = (job.ranks(), job.watchers());
    kill_process(watchers[1], Signal::KILL).unwrap();
    let ended = job.end(SOON);
    assert_ne!(ended.code, 0, "{}", ended.said);
    gone(&pids);
    gone(&watchers);
    server.stop();
}

#[test]
fn ctrl_c_ends_all_ranks_early_and_removes_their_files() {
    if no_mpirun() {
        return;
    }
    let (dir, export) = (place(), place());
    let server = serve(export.path());
    let url = format!("nfs://{}/", server.addr());
    let (job, _) = brought_to("measuring", &url, dir.path());
    let pids = job.ranks();
    // To one rank, as a batch system may: mpirun ends its processes by force when it gets one itself.
    kill_process(pids[1], Signal::INT).unwrap();
    let ended = job.end(SOON);
    // All of them end as `crumb` ends when it is interrupted.
    assert_eq!(ended.code, 130, "{}", ended.said);
    let [run] = &kept(dir.path())[..] else { panic!("one run is kept: {}", ended.said) };
    assert!(!run.complete && run.points.len() == 2, "{}", ended.said);
    assert!(run.points[1].measured_s < 2.0 && run.points[1].verdict.has("stopped"), "{}", ended.said);
    assert_eq!(std::fs::read_dir(export.path()).unwrap().count(), 0, "{}", ended.said);
    gone(&pids);
    server.stop();
}
