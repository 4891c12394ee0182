//! The process that the launcher started, above the one that is the rank.
//!
//! ```text
//! mpirun -> crumb-mpi, watching -> crumb-mpi, the rank
//! ```
//!
//! When a process of theirs dies, launchers kill all others at once, which then remove nothing and report nothing. So the one
//! that they look after is not the one that may be killed for want of memory: it says who died and of what, and stays
//! until the others must have missed the rank, which in a measured interval nobody does, and have come to their ends.
//!
//! Always holds: signals to stop go on to the rank; the rank does not outlive its supervisor; what it exits with is passed on.
//! Not here: the limit of MPI's end, which the same process sees to (`mpi_end`).

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{
    Pid, PidfdFlags, Signal, getppid, kill_process, pidfd_open, set_parent_process_death_signal,
};
use signal_hook::consts::{SIGALRM, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::mpi_end::EndOfMpi;
use crate::say;

/// Set for the rank: its supervisor's process number.
const WATCHED_BY: &str = "CRUMB_MPI_WATCHED_BY";
/// One of these is set by whatever starts ranks: MPICH and Slurm, PMIx, OpenMPI.
const RANKS: [&str; 3] = ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"];
/// What a rank ends itself by when all else fails: that is no death for others to find out about.
pub const GIVEN_UP: Signal = Signal::ALARM;
/// As shells tell the number of a signal.
const SIGNALLED: u8 = 128;

/// Whether this process is the rank; if it is to watch one, it has done so, and this is the exit code. After a rank's death
/// it stays for so long at most.
pub fn watched(stay: impl FnOnce() -> Duration) -> Option<ExitCode> {
    if let Some(supervisor) = std::env::var_os(WATCHED_BY) {
        // Without it the rank would go on alone where its supervisor was killed; it may have been already.
        let set = set_parent_process_death_signal(Some(Signal::KILL));
        let parent = getppid().map(|pid| pid.as_raw_nonzero().to_string());
        if set.is_err() || parent.is_none_or(|pid| *pid != *supervisor) {
            say("error: the process that watched this rank is gone");
            return Some(ExitCode::FAILURE);
        }
        return None;
    }
    let rank = RANKS.iter().find_map(|name| std::env::var(name).ok())?;
    Some(watch(&rank, stay).unwrap_or_else(|error| {
        eprint!("{}", crumb::error_message(&error));
        ExitCode::FAILURE
    }))
}

fn watch(rank: &str, stay: impl FnOnce() -> Duration) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot listen to signals")?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).env(WATCHED_BY, std::process::id().to_string());
    let end = EndOfMpi::announced_by(&mut command).context("cannot make a pipe")?;
    let mut child = command.spawn().context("cannot start the process of this rank")?;
    let pid = Pid::from_child(&child);
    let process = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch the process of this rank")?;
    end.watch(process, rank == "0").context("cannot watch the end of MPI")?;
    let dead = Arc::new(AtomicBool::new(false));
    let is_dead = Arc::clone(&dead);
    let pass_on = move || {
        for signal in signals.forever() {
            if is_dead.load(Ordering::Relaxed) {
                std::process::exit(i32::from(SIGNALLED) + signal);
            }
            // It may be ending this very moment.
            let _ = kill_process(pid, if signal == SIGINT { Signal::INT } else { Signal::TERM });
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(pass_on)
        .context("cannot listen to signals")?;
    let status = child.wait().context("cannot wait for the process of this rank")?;
    dead.store(true, Ordering::Relaxed);
    let Some(signal) = status.signal() else {
        return Ok(ExitCode::from(status.code().unwrap_or(1) as u8));
    };
    if signal != SIGALRM {
        let host = crate::message_loop::host();
        let signal = name_of(signal);
        say(&format!("crumb-mpi: rank {rank} on {host} was killed by {signal}; the others end soon"));
        std::thread::sleep(stay());
    }
    Ok(ExitCode::from(SIGNALLED + signal as u8))
}

fn name_of(signal: i32) -> String {
    let of_memory = if signal == signal_hook::consts::SIGKILL {
        " (by somebody, or by the system for want of memory)"
    } else {
        ""
    };
    let name = signal_hook::low_level::signal_name(signal);
    format!("{}{of_memory}", name.map_or_else(|| format!("signal {signal}"), str::to_owned))
}
