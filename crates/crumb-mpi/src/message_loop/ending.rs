//! How a rank leaves: with all others when all was done or one has an error of its own; or by force when one is lost.
//!
//! ```text
//! leave     last parts to rank 0, its code to all, silence, MPI's end
//! end_all   rank 0 (or rank 1, without it) notifies all, waits for their good-byes, MPI_Abort
//! ```
//!
//! Always holds: once a rank is lost nothing is waited for but the others' cleaning up, and that not for long; whatever
//! is called here comes to an end.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use harness::ranks::{Fate, Lost};
use mpi::request::StaticScope;
use mpi::traits::{Communicator as _, Destination as _, MatchedReceiveVec as _, Source as _};
use quanta::Instant;
use rustix::fs::{FileType, fstat};
use rustix::io::ioctl_fionread;

use super::alarm::Alarm;
use super::heartbeats::HEARTBEAT_EVERY;
use super::{ALARM, BYE, Doing, HEARTBEAT, LEAVES, LOOK_EVERY, MessageLoop, NAP, ONE, PART, WHOLE, host};
use crate::channel::{LastWord, Reply, Request};
use crate::{mpi_end, say};

/// Once a rank is lost, the others may clean up for so long.
const CLEAN_UP: Duration = Duration::from_secs(30);
/// MPI_Abort may wait for a host that is cut off.
const ABORT: Duration = Duration::from_secs(5);
/// From rank 0's last message to its end of MPI: all others must have read it by then.
const SETTLE: Duration = Duration::from_millis(300);
/// A launcher may be busy with other ranks' words, or starved; one that is dead reads no more.
const HEARD_OUT: Duration = Duration::from_secs(5);

/// Ends this process if it is still there after a while.
fn last_resort(why: &'static str, after: Duration) {
    // Without a thread for it the end is only less certain.
    let _ = std::thread::Builder::new().name("last-resort".to_owned()).spawn(move || {
        std::thread::sleep(after);
        say(&format!("error: {why} on {}; this process ends without it", host()));
        let me = rustix::process::getpid();
        let _ = rustix::process::kill_process(me, crate::watch::GIVEN_UP);
    });
}

/// After a rank's death, until all others are gone: they miss it after `silence` at the latest.
pub fn to_notice_and_clean_up(silence: Duration) -> Duration {
    silence + CLEAN_UP + ABORT * 3
}

/// Waits until the launcher has read what was said here. Once it has been asked to end all, it may not do so any more: of six runs on a
/// busy machine two lost the message that named the rank. What it has read, it passes on before it hears of anything else.
fn heard_out() {
    let until = Instant::now() + HEARD_OUT;
    let unread = |fd: BorrowedFd<'_>| {
        let is_pipe = fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        is_pipe && ioctl_fionread(fd).is_ok_and(|bytes| bytes > 0)
    };
    let (out, err) = (std::io::stdout(), std::io::stderr());
    while Instant::now() < until && (unread(out.as_fd()) || unread(err.as_fd())) {
        std::thread::sleep(NAP);
    }
}

impl MessageLoop<'_> {
    /// Ending MPI waits for all: only once it is known that all come.
    pub(super) fn leave(&mut self, word: LastWord) -> u8 {
        self.doing = Doing::Leaving(word.code);
        let unreported = word.unreported.unwrap_or_default();
        if !unreported.is_empty() {
            let end = Alarm::Left(self.lost(self.rank, Fate::Ended(unreported.clone())));
            self.peers().for_each(|peer| self.alarm(peer, &end));
            self.reported.push(unreported.clone());
        }
        let last = [LEAVES, unreported.as_bytes()].concat();
        if self.rank != 0 {
            // The last part is a sign of life as well. A heartbeat that comes after rank 0's last look is left unread.
            self.next_heartbeat = self.clock.now() + HEARTBEAT_EVERY;
        }
        let code = match self.bring(last, None) {
            Reply::Answer(code) => code.first().copied().filter(|&code| code != 0).unwrap_or(word.code),
            _ if word.code == 0 && !self.reported.is_empty() => 1,
            _ => word.code,
        };
        mpi_end::begins(code);
        // What was sent before the last word has come before it; MPI complains of what is left lying.
        for tag in [HEARTBEAT, ALARM] {
            while let Some(message) = self.world.any_process().immediate_matched_probe_with_tag(tag) {
                let _: (Vec<u8>, _) = message.matched_receive_vec();
            }
        }
        self.heartbeats.drain(..).flatten().for_each(std::mem::forget);
        if self.rank == 0 {
            self.dismiss(code);
        }
        tracing::debug!(rank = self.rank, code, "all ranks have finished, and the end of MPI begins");
        if self.rank == 0 {
            std::thread::sleep(SETTLE);
        }
        code
    }

    /// Rank 0: sends the code to all others. It then waits, and calls nothing of MPI but its end.
    ///
    /// MPICH 4.0 over UCX closes each used connection by a flush that the other side must answer, and UCX answers only while
    /// MPI is called. A rank that has all its answers enters the launcher's barrier and answers no more. So a rank that still
    /// calls MPI when another one ends it may answer that one's flush and never get an answer to its own: then all hang.
    /// Here rank 0 answers only after it has sent its own flushes, and the others have read this message before these come.
    /// Of 20 runs between four network namespaces on a busy machine 20 ended; 9 did when all looked for messages for as
    /// long, and none without a pause.
    fn dismiss(&self, code: u8) {
        let word: &'static [u8] = Vec::leak(vec![code]);
        for rank in 1..self.ranks {
            let to = self.world.process_at_rank(rank as i32);
            std::mem::forget(to.immediate_send_with_tag(StaticScope, word, WHOLE));
        }
    }

    /// Why a rank has left, unless that was reported: mostly all fail alike.
    pub(super) fn tell_of(&mut self, rank: u32, why: String) {
        if !why.is_empty() && !self.reported.contains(&why) {
            say(&format!("error: {}", self.lost(rank, Fate::Ended(why.clone()))));
            self.reported.push(why);
        }
    }

    /// A rank is lost: notifies the others and the verb, lets all clean up, and ends this process.
    pub(super) fn end_all(&mut self, lost: Lost) -> ! {
        self.stop.store(true, Ordering::Relaxed);
        if self.rank == 0 {
            let end = Alarm::End(lost.clone());
            (1..self.ranks).filter(|&rank| rank != lost.rank).for_each(|rank| self.alarm(rank, &end));
        }
        let until = self.clock.now() + CLEAN_UP;
        // Whatever was asked for: this is the reply, and to all that follows.
        self.reply(Reply::Lost(lost.clone()));
        // It lives, says why, and waits for the last words of all.
        let first_leaves = lost.rank == 0 && matches!(lost.fate, Fate::Ended(_));
        // Who ends all: rank 0, or the next one when it is rank 0 that is lost; the others have noticed by themselves.
        let last = u32::from(lost.rank == 0 && !first_leaves);
        let mut code = match self.doing {
            Doing::Leaving(code) => {
                if self.rank == last {
                    say(&format!("error: {lost}, after all was done"));
                }
                Some(code)
            }
            _ => None,
        };
        while code.is_none() && self.clock.now() < until {
            match self.requests.recv_timeout(LOOK_EVERY) {
                Ok(Request::Leave(of_verb)) => code = Some(of_verb.code),
                Ok(Request::QuietPeriod(..)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(_) => self.reply(Reply::Lost(lost.clone())),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.keep_up();
        }
        if code.is_none() && self.rank == last {
            say(&format!("error: {lost}; cleaning up takes too long, and the run ends here"));
        }
        if first_leaves {
            code = self.say_the_last_word(until + ABORT).or(code);
        } else if self.rank == last {
            let mut here: Vec<bool> = (0..self.ranks).map(|rank| rank == last || rank == lost.rank).collect();
            while here.contains(&false) && self.clock.now() < until {
                match self.world.any_process().immediate_matched_probe_with_tag(BYE) {
                    Some((message, status)) => {
                        here[status.source_rank() as usize] = true;
                        let _: (Vec<u8>, _) = (message, status).matched_receive_vec();
                    }
                    None => {
                        self.keep_up();
                        std::thread::sleep(NAP);
                    }
                }
            }
        } else {
            // Leaving before the last one knows that all have cleaned up would end those who have not.
            let to = self.world.process_at_rank(last as i32);
            let mut flying = Some(to.immediate_send_with_tag(StaticScope, ONE, BYE));
            while self.clock.now() < until + ABORT {
                flying = flying.and_then(|flying| flying.test().err());
                self.keep_up();
                std::thread::sleep(LOOK_EVERY);
            }
            flying.into_iter().for_each(std::mem::forget);
        }
        heard_out();
        self.abort(code.filter(|&code| code != 0).unwrap_or(1).into())
    }

    /// To rank 0, which leaves; with which code, when all others have said theirs as well.
    fn say_the_last_word(&mut self, until: Instant) -> Option<u8> {
        let first = self.world.process_at_rank(0);
        let mut flying = Some(first.immediate_send_with_tag(StaticScope, LEAVES, PART));
        let mut code = None;
        while code.is_none() && self.clock.now() < until {
            flying = flying.and_then(|flying| flying.test().err());
            self.keep_up();
            match first.immediate_matched_probe_with_tag(WHOLE) {
                Some(answer) => {
                    let (answer, _): (Vec<u8>, _) = answer.matched_receive_vec();
                    code = answer.first().copied();
                }
                None => std::thread::sleep(NAP),
            }
        }
        flying.into_iter().for_each(std::mem::forget);
        code
    }

    /// Ends all processes of the run, this one in any case.
    pub fn abort(&mut self, code: i32) -> ! {
        last_resort("MPI_Abort does not return", ABORT);
        self.world.abort(code)
    }
}
