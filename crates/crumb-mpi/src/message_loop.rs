//! The main thread: everything that crosses MPI.
//!
//! ```text
//! PART   rank n -> rank 0   its value for a collective        HEARTBEAT  both ways, each second: still here
//! WHOLE  rank 0 -> rank n   the answer                        ALARM      both ways: stop; or which rank is lost
//! TURN, PING, PONG          comparing clocks, one rank after  BYE        to the rank that ends all: has cleaned up
//!                           another                                      after a rank was lost
//! ```
//!
//! A rank whose verb comes to its end brings that as its last part. One that does so while others go on, after an error
//! that no collective knows of, says why in an alarm: to the others it is lost from then on.
//!
//! Everything goes over rank 0, which therefore knows who has not come. Sends and receives do not block, so that a
//! rank that is dead, stopped or cut off is noticed by its silence and not waited for.
//!
//! Always holds: from the end of a warm-up to the end of its interval nothing is sent, but for an alarm, which ends
//! the interval; MPI's own end is begun when it is known that all come to it, and has its limit (`mpi_end`).
//! Here: collectives, and sending and receiving bytes. In modules: `heartbeats` and the quiet period, `alarm`, `clocks`,
//! `ending`.
//! Not here: what the parts mean (`harness::ranks`).

mod alarm;
mod clocks;
mod ending;
mod heartbeats;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use harness::ranks::{Fate, Lost};
use mpi::Tag;
use mpi::point_to_point::{Message, Status};
use mpi::request::StaticScope;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, Destination as _, Source as _};
use quanta::{Clock, Instant};

use self::alarm::Alarm;
pub use self::ending::to_notice_and_clean_up;
use crate::channel::{LastWord, MpiChannel, Reply, Request};

const PART: Tag = 1;
const WHOLE: Tag = 2;
const HEARTBEAT: Tag = 3;
const ALARM: Tag = 4;
const TURN: Tag = 5;
const PING: Tag = 6;
const PONG: Tag = 7;
const BYE: Tag = 8;

/// Between two looks at what comes, with nothing to wait for: twenty a second cost the generator nothing.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Between two looks while something is waited for: a fiftieth of the time it has been waited for, within these
/// bounds, and at first none at all.
const NAP: Duration = Duration::from_micros(200);
const NAP_MAX: Duration = Duration::from_millis(5);
const NAP_AFTER: Duration = Duration::from_millis(2);
/// The largest part a rank may send: far more than a load point has.
const PART_BYTES_MAX: usize = 256 << 20;
const ONE: &[u8] = &[1];
/// A last part, and behind it what no collective knows of. No sheet begins so, as no step's name is empty.
const LEAVES: &[u8] = b"\0leaves\n";
/// Why a rank left that says nothing.
const OTHERS_GO_ON: &str = "the others go on";

/// A small message on its way that nobody waits for.
type Flying = mpi::request::Request<'static, [u8], StaticScope>;

/// This rank's message loop.
pub struct MessageLoop<'a> {
    world: &'a SimpleCommunicator,
    rank: u32,
    ranks: u32,
    hosts: Vec<String>,
    clock: Clock,
    epoch: Instant,
    patience: Duration,
    /// Set by the user, by this rank's run when it fails, and by others' alarms.
    stop: Arc<AtomicBool>,
    asked_to_stop: bool,
    requests: Receiver<Request>,
    replies: Sender<Reply>,
    /// When each was last heard of: at rank 0 all, elsewhere rank 0 alone.
    heard: Vec<Instant>,
    /// The heartbeat to each that is being sent.
    heartbeats: Vec<Option<Flying>>,
    next_heartbeat: Instant,
    quiet_period: (Instant, Instant),
    /// Within it when this thread last looked.
    was_quiet: bool,
    /// When this thread last looked: after a gap it is the one that was away.
    looked: Instant,
    doing: Doing,
    /// A rank that came to its end while this one's verb was at work by itself.
    ended: Option<Lost>,
    /// Rank 0: why ranks left, each reported once.
    reported: Vec<String>,
}

/// What the verb has this thread do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// Nothing that others are needed for.
    Nothing,
    /// What others are waited for.
    Asked,
    /// The verb has come to its end, with this exit code.
    Leaving(u8),
}

/// The name of this host.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl<'a> MessageLoop<'a> {
    /// The message loop of this rank, and the channel to it.
    pub fn new(
        world: &'a SimpleCommunicator,
        patience: Duration,
        stop: Arc<AtomicBool>,
    ) -> (MpiChannel, Self) {
        let clock = Clock::new();
        let epoch = clock.now();
        let (rank, ranks) = (world.rank() as u32, world.size() as u32);
        let (to_loop, requests) = channel();
        let (replies, from_loop) = channel();
        let channel = MpiChannel { rank, ranks, epoch, requests: to_loop, replies: from_loop };
        let message_loop = Self {
            world,
            rank,
            ranks,
            hosts: vec!["an unknown host".to_owned(); ranks as usize],
            clock,
            epoch,
            patience,
            stop,
            asked_to_stop: false,
            requests,
            replies,
            heard: vec![epoch; ranks as usize],
            heartbeats: (0..ranks).map(|_| None).collect(),
            next_heartbeat: epoch,
            quiet_period: (epoch, epoch),
            was_quiet: false,
            looked: epoch,
            doing: Doing::Nothing,
            ended: None,
            reported: Vec::new(),
        };
        (channel, message_loop)
    }

    /// Does what it is asked until the verb has come to its end, and with it those of all ranks. The exit code: where rank 0
    /// has something to say, all end with its code.
    pub fn serve(&mut self) -> u8 {
        if self.ranks > 1 {
            self.introduce();
        }
        let word = loop {
            match self.requests.recv_timeout(LOOK_EVERY) {
                Ok(Request::Bring { mine, patience }) => {
                    self.asked();
                    let reply = self.bring(mine, patience);
                    self.answered(reply);
                }
                Ok(Request::Spread(answer)) => {
                    self.asked();
                    self.spread(&answer);
                    self.answered(Reply::Answer(answer));
                }
                Ok(Request::Clocks) => {
                    self.asked();
                    let offset = self.compare_clocks();
                    self.answered(Reply::Clocks(offset));
                }
                Ok(Request::QuietPeriod(from, until)) => self.quiet_period = (from, until),
                Ok(Request::Leave(word)) => break word,
                Err(RecvTimeoutError::Disconnected) => {
                    break LastWord { code: 101, unreported: Some("its program broke off".to_owned()) };
                }
                Err(RecvTimeoutError::Timeout) => self.look(),
            }
        };
        if self.ranks > 1 { self.leave(word) } else { word.code }
    }

    /// The verb has asked for something that needs the others.
    fn asked(&mut self) {
        self.doing = Doing::Asked;
        if let Some(lost) = self.ended.take() {
            self.end_all(lost);
        }
    }

    fn answered(&mut self, reply: Reply) {
        self.doing = Doing::Nothing;
        self.reply(reply);
    }

    fn reply(&self, reply: Reply) {
        // The verb that asked and went away has ended; the next request says so.
        let _ = self.replies.send(reply);
    }

    /// Everybody's host, for naming it when it is lost.
    fn introduce(&mut self) {
        match self.bring(host().into_bytes(), None) {
            Reply::Parts(hosts) => {
                let names: Vec<_> = hosts.iter().map(|host| String::from_utf8_lossy(host)).collect();
                self.spread(names.join("\n").as_bytes());
                self.hosts = names.iter().map(|name| name.to_string()).collect();
            }
            Reply::Answer(names) => {
                self.hosts = String::from_utf8_lossy(&names).lines().map(str::to_owned).collect();
            }
            _ => {}
        }
    }

    /// Rank 0: waits for everybody's part. The others: bring theirs and wait for the answer.
    fn bring(&mut self, mine: Vec<u8>, patience: Option<Duration>) -> Reply {
        let until = patience.map(|patience| self.clock.now() + patience);
        if self.rank != 0 {
            self.send(0, PART, &mine);
            // Rank 0 waits for the last; if that one fails, it reports it.
            let until = until.map(|until| until + self.patience);
            return Reply::Answer(self.receive(WHOLE, &[0], until).1);
        }
        let mut parts: Vec<Option<Vec<u8>>> = vec![None; self.ranks as usize];
        parts[0] = Some(mine);
        loop {
            let missing: Vec<u32> = (0..self.ranks).filter(|&rank| parts[rank as usize].is_none()).collect();
            if missing.is_empty() {
                return Reply::Parts(parts.into_iter().flatten().collect());
            }
            let (from, part) = self.receive(PART, &missing, until);
            let leaves = part.strip_prefix(LEAVES).map(|why| String::from_utf8_lossy(why).into_owned());
            match (self.doing, leaves) {
                (Doing::Leaving(_), None) => {
                    // It waits for a collective that will not be; most often it knows of our end already.
                    let end = self.lost(0, Fate::Ended(OTHERS_GO_ON.to_owned()));
                    self.alarm(from, &Alarm::Left(end));
                }
                (Doing::Leaving(_), Some(why)) => {
                    self.tell_of(from, why);
                    parts[from as usize] = Some(part);
                }
                (_, None) => parts[from as usize] = Some(part),
                (_, Some(why)) => {
                    let why = if why.is_empty() { OTHERS_GO_ON.to_owned() } else { why };
                    let end = self.lost(from, Fate::Ended(why));
                    self.end_all(end);
                }
            }
        }
    }

    fn spread(&mut self, answer: &[u8]) {
        for rank in 1..self.ranks {
            self.send(rank, WHOLE, answer);
        }
    }

    /// Sends and waits until it is gone; a rank that does not take it is lost.
    fn send(&mut self, to: u32, tag: Tag, bytes: &[u8]) {
        let world = self.world;
        let begun = self.clock.now();
        mpi::request::scope(|scope| {
            let mut request = world.process_at_rank(to as i32).immediate_send_with_tag(scope, bytes, tag);
            loop {
                match request.test() {
                    Ok(_) => break,
                    Err(still) => request = still,
                }
                if let Err(lost) = self.wait_a_little(begun, &[to], None) {
                    self.end_all(lost);
                }
            }
        });
    }

    /// Waits for a message of one of `from`. A rank of them that is silent is lost; at `until` the first of them is.
    fn receive(&mut self, tag: Tag, from: &[u32], until: Option<Instant>) -> (u32, Vec<u8>) {
        let world = self.world;
        let begun = self.clock.now();
        loop {
            // Before looking: what one that has ended sent until then has come by now.
            let ended = self.ended.is_some();
            if let Some((message, status)) = world.any_process().immediate_matched_probe_with_tag(tag) {
                let rank = status.source_rank() as u32;
                let bytes = self.take(message, &status);
                if from.contains(&rank) {
                    return (rank, bytes);
                }
                // One that gave up on this collective and is already at another: the sheets show it.
                continue;
            }
            if let (true, Doing::Asked, Some(lost)) = (ended, self.doing, &self.ended) {
                let lost = lost.clone();
                self.end_all(lost);
            }
            if let Err(lost) = self.wait_a_little(begun, from, until) {
                self.end_all(lost);
            }
        }
    }

    /// The bytes of a message that has begun to come.
    fn take(&mut self, message: Message, status: &Status) -> Vec<u8> {
        let (rank, length) = (status.source_rank() as u32, status.count(mpi_u8()) as usize);
        self.heard[rank as usize] = self.clock.now();
        let begun = self.clock.now();
        let mut bytes = vec![0; length.min(PART_BYTES_MAX)];
        mpi::request::scope(|scope| {
            let mut request = message.immediate_matched_receive_into(scope, &mut bytes[..]);
            loop {
                match request.test() {
                    Ok(_) => break,
                    Err(still) => request = still,
                }
                if let Err(lost) = self.wait_a_little(begun, &[rank], None) {
                    self.end_all(lost);
                }
            }
        });
        bytes
    }

    /// A moment of waiting for one of `from`, in which heartbeats continue.
    fn wait_a_little(&mut self, begun: Instant, from: &[u32], until: Option<Instant>) -> Result<(), Lost> {
        let now = self.clock.now();
        let waited = now.saturating_duration_since(begun);
        if waited > NAP_AFTER {
            std::thread::sleep((waited / 50).clamp(NAP, NAP_MAX));
            self.exchange_beats(now)?;
        } else {
            std::thread::yield_now();
        }
        match until {
            Some(until) if now > until => {
                let late = now.saturating_duration_since(begun);
                let how = format!("lives and did not come for {:.0} s", late.as_secs_f64());
                Err(self.lost(from[0], Fate::Gone(how)))
            }
            _ => Ok(()),
        }
    }

    fn lost(&self, rank: u32, fate: Fate) -> Lost {
        Lost { rank, host: self.hosts[rank as usize].clone(), fate }
    }

    /// The ranks that this one exchanges heartbeats with.
    fn peers(&self) -> std::ops::Range<u32> {
        if self.rank == 0 { 1..self.ranks } else { 0..1 }
    }
}

fn mpi_u8() -> mpi::datatype::SystemDatatype {
    use mpi::traits::Equivalence as _;
    u8::equivalent_datatype()
}
