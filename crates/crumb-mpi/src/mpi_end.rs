//! MPI's own end may hang, and has no limit. All ranks are done by then: it must not spoil their run.
//!
//! 1. The rank announces the end of MPI, with its exit code, in a pipe of the process above it, its supervisor.
//! 2. A supervisor whose rank is still there after a while stops it, so that its connections stay open.
//! 3. When all supervisors have done so, each signs off from the launcher and exits with its rank's code. The kernel then
//!    ends the rank.
//!
//! Why stopped and not killed: one rank may wait for the others while they wait in the launcher's barrier. If one of them
//! died, the first would enter the barrier too, and MPICH's launcher fails when a barrier completes with a rank missing.
//!
//! Always holds: a rank that dies before its announcement is `watch`'s business alone. All supervisors do the same.
//! Not here: MPI_Abort. Within MPI_Finalize MPICH 4.0 has freed MPI_COMM_WORLD, and the code becomes 9.

use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::Command;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    PidfdFlags, PidfdGetfdFlags, Signal, getpid, pidfd_getfd, pidfd_open, pidfd_send_signal,
};

use crate::say;

/// Set for the rank: the supervisor's end of the pipe, as a path.
const ANNOUNCED_AT: &str = "CRUMB_MPI_END_ANNOUNCED_AT";
/// MPI ends in 30 ms here. A machine that is away for longer than this is lost to a run as well.
const LIMIT: Duration = Duration::from_secs(10);
/// All ranks begin the end of MPI within a second, and their supervisors stop them as far apart.
const ALL_STOPPED: Duration = Duration::from_secs(2);
/// The launcher answers at once, if at all.
const ANSWER: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// In the rank: only the end of MPI is left to do, and this is the exit code.
pub fn begins(code: u8) {
    let Some(pipe) = std::env::var_os(ANNOUNCED_AT) else { return };
    // Without this message the end has no limit, as in any program.
    let announced =
        std::fs::File::options().write(true).open(pipe).and_then(|mut pipe| pipe.write_all(&[code]));
    if let Err(error) = announced {
        tracing::debug!(%error, "cannot announce the end of MPI");
    }
}

/// The supervisor: what its rank will announce.
pub struct EndOfMpi {
    announced: PipeReader,
    /// Kept open for the rank, which opens it by its path.
    pipe: PipeWriter,
}

impl EndOfMpi {
    /// Lets the rank that is started by `command` announce its end.
    pub fn announced_by(command: &mut Command) -> io::Result<Self> {
        let (announced, pipe) = io::pipe()?;
        command.env(ANNOUNCED_AT, format!("/proc/{}/fd/{}", std::process::id(), pipe.as_raw_fd()));
        Ok(Self { announced, pipe })
    }

    /// Ends this process if the rank has announced its end and does not come to it.
    pub fn watch(mut self, rank: OwnedFd, says_so: bool) -> io::Result<()> {
        let watch = move || {
            let mut code = [0];
            if self.announced.read_exact(&mut code).is_err() {
                return;
            }
            std::thread::sleep(LIMIT);
            // Fails for one that has ended this moment: this process then does, too.
            if pidfd_send_signal(&rank, Signal::STOP).is_err() {
                return;
            }
            if says_so {
                let limit = LIMIT.as_secs();
                say(&format!(
                    "warning: MPI has not ended within {limit} s after all ranks had finished; they exit without \
                     it, each with its own exit code"
                ));
            }
            std::thread::sleep(ALL_STOPPED);
            // Other launchers than this one have no such word, and may take this end for an error.
            let _ = sign_off_from_hydra();
            drop(self.pipe);
            std::process::exit(code[0].into());
        };
        std::thread::Builder::new().name("mpi-end".to_owned()).spawn(watch).map(drop)
    }
}

/// MPICH's launcher, hydra, kills all ranks when a process ends without having signed off; `mpirun` then returns 9. The rank
/// signs off at the end of MPI, over a socket that both processes have inherited.
fn sign_off_from_hydra() -> io::Result<()> {
    let socket = std::env::var("PMI_FD").ok().and_then(|fd| fd.parse().ok());
    let (Some(_), Some(socket)) = (std::env::var_os("HYDI_CONTROL_FD"), socket) else { return Ok(()) };
    let me = pidfd_open(getpid(), PidfdFlags::empty())?;
    let socket = pidfd_getfd(me, socket, PidfdGetfdFlags::empty())?;
    rustix::io::write(&socket, b"cmd=finalize\n")?;
    poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&ANSWER))?;
    Ok(())
}
