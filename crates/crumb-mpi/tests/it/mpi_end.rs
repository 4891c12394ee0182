//! MPI's own end hangs, because a rank is stopped just before it.

use std::time::Duration;

use rustix::process::{Signal, kill_process};

use crate::job::{Job, gone, is_hydra, kept, no_mpirun, place, times};

const LIMIT: Duration = Duration::from_secs(60);
const RANKS: usize = 3;
/// Rank 0 has a third of a second from its word to the end of MPI. On a busy machine that may be over before it is stopped.
const ATTEMPTS: usize = 10;

/// Symptom: a run whose results were stored failed with exit code 1, and four lines of four ranks were mixed into each other.
/// Cause: MPI_Finalize hung, and after 30 s each rank complained and killed itself. Fix: one of them speaks, and each exits
/// with its own code.
#[test]
fn a_finished_run_keeps_its_exit_code_when_mpi_does_not_end() {
    if no_mpirun() {
        return;
    }
    for _ in 0..ATTEMPTS {
        let dir = place();
        let args = ["fstress", "null:", "--workload", "null", "--rate", "100"];
        let brief = ["--warm", "100ms", "--measure", "300ms"];
        let mut job = Job::start(RANKS as u32, dir.path(), &[&args[..], &brief].concat());
        job.until("the load point", |said| times(said, "a load point begins") == RANKS);
        let pids = job.ranks();
        job.until("the end of MPI", |said| said.contains("the end of MPI begins rank=0"));
        // It may have ended.
        let _ = kill_process(pids[0], Signal::STOP);
        let ended = job.end(LIMIT);
        gone(&pids);
        let [run] = &kept(dir.path())[..] else { panic!("one run is kept: {}", ended.said) };
        assert!(run.complete, "{}", ended.said);
        let hung = times(&ended.said, "warning: MPI has not ended within");
        // 3: a loaded machine's figures may be INVALID. Other launchers than hydra take this end for an error.
        assert!(matches!(ended.code, 0 | 3) || hung > 0 && !is_hydra(), "{}: {}", ended.code, ended.said);
        if hung > 0 {
            assert_eq!(hung, 1, "{}", ended.said);
            assert!(!ended.said.contains("error:"), "{}", ended.said);
            return;
        }
    }
    panic!("MPI ended {ATTEMPTS} times before rank 0 was stopped");
}
