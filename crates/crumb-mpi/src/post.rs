//! The main thread: everything that crosses MPI.
//!
//! ```text
//! PART   rank n -> rank 0   what it brings to a meeting       BEAT   both ways, each second: still here
//! WHOLE  rank 0 -> rank n   the answer                        ALARM  both ways: stop; or who is lost
//! TURN, PING, PONG          comparing clocks, one rank after  BYE    to the one who ends all: has cleaned up after
//!                           another                                  somebody was lost
//! ```
//!
//! A rank whose verb comes to its end brings that as its last part. One that does so while others go on, after an error
//! that no meeting knows of, says why in an alarm: to the others it is lost from then on.
//!
//! Everything goes over rank 0, which therefore knows who has not come. Sends and receives do not block, so that a
//! rank that is dead, stopped or cut off is noticed by its silence and not waited for.
//!
//! Always holds: from the end of a warm-up to the end of its interval nothing is sent, but for an alarm, which ends
//! the interval; once a rank is lost nothing is waited for but the others' cleaning up, and that not for long; this
//! process ends then, by MPI_Abort or without it; MPI's own end is begun when it is known
//! that all come to it, and has its limit.
//! Not here: what the parts mean (`fstress::ensemble`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use fstress::ensemble::{ClockOffset, Lost, RoundTrip};
use mpi::Tag;
use mpi::point_to_point::{Message, Status};
use mpi::request::StaticScope;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, Destination as _, MatchedReceiveVec as _, Source as _};
use quanta::{Clock, Instant};

use crate::courier::{Courier, LastWord, Reply, Request};

const PART: Tag = 1;
const WHOLE: Tag = 2;
const BEAT: Tag = 3;
const ALARM: Tag = 4;
const TURN: Tag = 5;
const PING: Tag = 6;
const PONG: Tag = 7;
const BYE: Tag = 8;

const BEAT_EVERY: Duration = Duration::from_secs(1);
/// What is sent this late before an interval may still be on its way when it begins.
const BEFORE_HUSH: Duration = Duration::from_millis(100);
/// Between two looks at what comes, with nothing to wait for: twenty a second cost the generator nothing.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Between two looks while something is waited for: a fiftieth of the time it has been waited for, within these
/// bounds, and at first none at all.
const NAP: Duration = Duration::from_micros(200);
const NAP_MAX: Duration = Duration::from_millis(5);
const NAP_AFTER: Duration = Duration::from_millis(2);
/// Round trips of which the quickest tells the offset of a clock.
const ROUND_TRIPS: u32 = 40;
/// Once a rank is lost, the others may clean up for so long.
const CLEAN_UP: Duration = Duration::from_secs(30);
/// MPI_Abort may wait for a host that is cut off.
const ABORT: Duration = Duration::from_secs(5);
/// From the last word to the end of MPI.
const SETTLE: Duration = Duration::from_millis(300);
/// The largest part a rank may send: far more than a load point has.
const PART_BYTES_MAX: usize = 256 << 20;
const ONE: &[u8] = &[1];
/// A last part, and behind it what no meeting knows of. No sheet begins so, as no step's name is empty.
const LEAVES: &[u8] = b"\0leaves\n";
/// How an end of its own is told of a rank.
const HAS_ENDED: &str = "has ended: ";

/// A small message on its way that nobody waits for.
type Flying = mpi::request::Request<'static, [u8], StaticScope>;

/// This rank's post office.
pub struct Post<'a> {
    world: &'a SimpleCommunicator,
    rank: u32,
    ranks: u32,
    hosts: Vec<String>,
    clock: Clock,
    epoch: Instant,
    patience: Duration,
    /// Set by the user, by this rank's run when it fails, and by others' alarms.
    stop: Arc<AtomicBool>,
    told_to_stop: bool,
    requests: Receiver<Request>,
    replies: Sender<Reply>,
    /// When each was last heard of: at rank 0 all, elsewhere rank 0 alone.
    heard: Vec<Instant>,
    /// The next beat to each, while the one before is on its way.
    beats: Vec<Option<Flying>>,
    next_beat: Instant,
    hush: (Instant, Instant),
    /// Within it when this thread last looked.
    hushed: bool,
    /// When this thread last looked: after a gap it is the one that was away.
    looked: Instant,
    doing: Doing,
    /// A rank that came to its end while this one's verb was at work by itself.
    ended: Option<Lost>,
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

/// Whether a rank is lost because it came to an end of its own, which it tells by itself where it can.
pub fn has_ended(lost: &Lost) -> bool {
    lost.how.starts_with(HAS_ENDED)
}

/// Ends this process if it is still there after a while.
pub fn last_resort(why: &'static str, after: Duration) {
    // Without a thread for it the end is only less certain.
    let _ = std::thread::Builder::new().name("last-resort".to_owned()).spawn(move || {
        std::thread::sleep(after);
        eprintln!("error: {why} on {}; this process ends without it", host());
        let me = rustix::process::getpid();
        let _ = rustix::process::kill_process(me, crate::watch::GIVEN_UP);
    });
}

/// After a rank's death, until all others are gone.
pub fn to_notice_and_clean_up(patience: Duration) -> Duration {
    patience * 2 + CLEAN_UP + ABORT * 2
}

/// The name of this host.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl<'a> Post<'a> {
    /// The post of this rank and the courier that uses it.
    pub fn new(world: &'a SimpleCommunicator, patience: Duration, stop: Arc<AtomicBool>) -> (Courier, Self) {
        let clock = Clock::new();
        let epoch = clock.now();
        let (rank, ranks) = (world.rank() as u32, world.size() as u32);
        let (to_post, requests) = channel();
        let (replies, from_post) = channel();
        let courier = Courier { rank, ranks, epoch, requests: to_post, replies: from_post };
        let post = Self {
            world,
            rank,
            ranks,
            hosts: vec!["an unknown host".to_owned(); ranks as usize],
            clock,
            epoch,
            patience,
            stop,
            told_to_stop: false,
            requests,
            replies,
            heard: vec![epoch; ranks as usize],
            beats: (0..ranks).map(|_| None).collect(),
            next_beat: epoch,
            hush: (epoch, epoch),
            hushed: false,
            looked: epoch,
            doing: Doing::Nothing,
            ended: None,
        };
        (courier, post)
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
                Ok(Request::Hush(from, until)) => self.hush = (from, until),
                Ok(Request::Leave(word)) => break word,
                Err(RecvTimeoutError::Disconnected) => {
                    break LastWord { code: 101, untold: Some("its program broke off".to_owned()) };
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

    /// Ending MPI waits for all: only once it is known that all come.
    fn leave(&mut self, word: LastWord) -> u8 {
        self.doing = Doing::Leaving(word.code);
        let untold = word.untold.unwrap_or_default();
        if !untold.is_empty() {
            let end = self.lost(self.rank, format!("{HAS_ENDED}{untold}"));
            for peer in self.peers() {
                self.alarm(peer, alarm_of(&end).as_bytes());
            }
        }
        let last = [LEAVES, untold.as_bytes()].concat();
        let code = match self.bring(last, None) {
            Reply::Answer(code) => code.first().copied().filter(|&code| code != 0).unwrap_or(word.code),
            _ => {
                self.spread(&[word.code]);
                word.code
            }
        };
        // What was sent before the last word has come before it; MPI complains of what is left lying.
        for tag in [BEAT, ALARM] {
            while let Some(message) = self.world.any_process().immediate_matched_probe_with_tag(tag) {
                let _: (Vec<u8>, _) = message.matched_receive_vec();
            }
        }
        self.beats.drain(..).flatten().for_each(std::mem::forget);
        self.settle();
        code
    }

    /// Keeps MPI going until what is on its way has come. MPICH 4.0 over UCX ends its connections one rank after another, and
    /// a rank that is done with its own does nothing more for the others': over TCP, between four network namespaces, three
    /// runs of six hung there.
    fn settle(&self) {
        let until = self.clock.now() + SETTLE;
        while self.clock.now() < until {
            self.world.any_process().immediate_probe_with_tag(BYE);
            std::thread::sleep(NAP);
        }
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
            // Rank 0 waits for the last; if that one fails, it tells.
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
                    // It waits for a meeting that will not be; most often it has been told of our end already.
                    let end = self.lost(0, format!("{HAS_ENDED}the others go on"));
                    self.alarm(from, alarm_of(&end).as_bytes());
                }
                (Doing::Leaving(_), Some(_)) | (_, None) => parts[from as usize] = Some(part),
                (_, Some(why)) => {
                    let why = if why.is_empty() { "the others go on".to_owned() } else { why };
                    let end = self.lost(from, format!("{HAS_ENDED}{why}"));
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

    /// Round trips between each rank and rank 0, one rank after the other, so that none waits behind another.
    fn compare_clocks(&mut self) -> ClockOffset {
        if self.rank == 0 {
            for rank in 1..self.ranks {
                let until = Some(self.clock.now() + self.patience * 2);
                self.send(rank, TURN, ONE);
                for _ in 0..ROUND_TRIPS {
                    self.receive(PING, &[rank], until);
                    let now_ns = self.now_ns();
                    self.send(rank, PONG, &now_ns.to_le_bytes());
                }
            }
            return ClockOffset::default();
        }
        self.receive(TURN, &[0], None);
        let until = Some(self.clock.now() + self.patience * 2);
        let trips: Vec<RoundTrip> = (0..ROUND_TRIPS)
            .map(|_| {
                let asked_ns = self.now_ns();
                self.send(0, PING, ONE);
                let (_, answer) = self.receive(PONG, &[0], until);
                let heard_ns = self.now_ns();
                let answered_ns = answer.try_into().map_or(0, u64::from_le_bytes);
                RoundTrip { asked_ns, answered_ns, heard_ns }
            })
            .collect();
        ClockOffset::of(trips)
    }

    fn now_ns(&self) -> u64 {
        self.clock.now().saturating_duration_since(self.epoch).as_nanos() as u64
    }

    /// Sends and waits until it is gone; whoever does not take it is lost.
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

    /// Waits for a message of one of `from`. Whoever of them is not heard of is lost; at `until` the first of them is.
    fn receive(&mut self, tag: Tag, from: &[u32], until: Option<Instant>) -> (u32, Vec<u8>) {
        let world = self.world;
        let begun = self.clock.now();
        loop {
            if let Some((message, status)) = world.any_process().immediate_matched_probe_with_tag(tag) {
                let rank = status.source_rank() as u32;
                let bytes = self.take(message, &status);
                if from.contains(&rank) {
                    return (rank, bytes);
                }
                // One that gave up on this meeting and is already at another: the sheets tell.
                continue;
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

    /// A moment of waiting for one of `from`, in which beats go on.
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
                Err(self.lost(from[0], format!("lives and did not come for {:.0} s", late.as_secs_f64())))
            }
            _ => Ok(()),
        }
    }

    fn look(&mut self) {
        let now = self.clock.now();
        if self.ranks > 1
            && let Err(lost) = self.exchange_beats(now)
        {
            self.end_all(lost);
        }
    }

    fn lost(&self, rank: u32, how: String) -> Lost {
        Lost { rank, host: self.hosts[rank as usize].clone(), how }
    }

    /// Those this rank hears from and beats to.
    fn peers(&self) -> std::ops::Range<u32> {
        if self.rank == 0 { 1..self.ranks } else { 0..1 }
    }

    fn exchange_beats(&mut self, now: Instant) -> Result<(), Lost> {
        while let Some((message, status)) = self.world.any_process().immediate_matched_probe_with_tag(BEAT) {
            let from = status.source_rank() as usize;
            let _: (Vec<u8>, _) = (message, status).matched_receive_vec();
            self.heard[from] = now;
        }
        while let Some(alarm) = self.world.any_process().immediate_matched_probe_with_tag(ALARM) {
            let (text, _): (Vec<u8>, _) = alarm.matched_receive_vec();
            match (read_alarm(&text), self.doing) {
                // So does this one.
                (Some(end), Doing::Leaving(_)) if has_ended(&end) => {}
                // The verb hears of it when it needs the others, and ends soon; or needs them no more.
                (Some(end), Doing::Nothing) if has_ended(&end) => {
                    self.ended.get_or_insert(end);
                    self.stop.store(true, Ordering::Relaxed);
                }
                (Some(lost), _) => return Err(lost),
                (None, _) => self.stop.store(true, Ordering::Relaxed),
            }
        }
        if self.stop.load(Ordering::Relaxed) && !self.told_to_stop {
            self.told_to_stop = true;
            // The interval ends here, and the quiet with it.
            self.hush.1 = self.hush.1.min(now);
            for peer in self.peers() {
                self.alarm(peer, &[]);
            }
        }
        // A process that was itself away, stopped or starved, first has to read what came meanwhile.
        let away = now.saturating_duration_since(std::mem::replace(&mut self.looked, now));
        if away > self.patience / 2 {
            for peer in self.peers() {
                self.heard[peer as usize] = now;
            }
        }
        let (from, until) = self.hush;
        if now >= from && now < until && !self.hushed {
            tracing::debug!(rank = self.rank, "an interval is under way");
        }
        self.hushed = now >= from && now < until;
        if now + BEFORE_HUSH >= from && now < until {
            return Ok(());
        }
        if now >= self.next_beat {
            self.next_beat = now + BEAT_EVERY;
            for peer in self.peers() {
                self.beat(peer);
            }
        }
        for peer in self.peers() {
            // Nobody was to be heard until the end of the last hush.
            let heard = self.heard[peer as usize];
            let heard = if now >= until { heard.max(until) } else { heard };
            let silent = now.saturating_duration_since(heard);
            if silent > self.patience {
                return Err(
                    self.lost(peer, format!("has not been heard of for {:.0} s", silent.as_secs_f64()))
                );
            }
        }
        Ok(())
    }

    fn beat(&mut self, to: u32) {
        let slot = &mut self.beats[to as usize];
        if let Some(flying) = slot.take()
            && let Err(still) = flying.test()
        {
            // The one before has not gone: a second would only queue up behind it.
            *slot = Some(still);
            return;
        }
        *slot = Some(self.world.process_at_rank(to as i32).immediate_send_with_tag(StaticScope, ONE, BEAT));
    }

    /// Nobody waits for it to be gone, and it is sent at most twice in the life of a process: its bytes are leaked.
    fn alarm(&self, to: u32, text: &[u8]) {
        let text: &'static [u8] = Vec::leak(text.to_vec());
        let flying = self.world.process_at_rank(to as i32).immediate_send_with_tag(StaticScope, text, ALARM);
        if let Err(still) = flying.test() {
            std::mem::forget(still);
        }
    }

    /// A rank is lost: tells the others and the verb, lets all clean up, and ends this process.
    fn end_all(&mut self, lost: Lost) -> ! {
        self.stop.store(true, Ordering::Relaxed);
        if self.rank == 0 {
            for rank in (1..self.ranks).filter(|&rank| rank != lost.rank) {
                self.alarm(rank, alarm_of(&lost).as_bytes());
            }
        }
        let until = self.clock.now() + CLEAN_UP;
        // Whatever was asked for: this is the reply, and to all that follows.
        self.reply(Reply::Lost(lost.clone()));
        // Who ends all: rank 0, or the next one when it is rank 0 that is lost; the others have noticed by themselves.
        let last = u32::from(lost.rank == 0);
        let mut code = match self.doing {
            Doing::Leaving(code) => {
                if self.rank == last {
                    eprintln!("error: {lost}, after all was done");
                }
                Some(code)
            }
            _ => None,
        };
        while code.is_none() && self.clock.now() < until {
            match self.requests.recv_timeout(LOOK_EVERY) {
                Ok(Request::Leave(of_verb)) => code = Some(of_verb.code),
                Ok(Request::Hush(..)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(_) => self.reply(Reply::Lost(lost.clone())),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.keep_up();
        }
        if code.is_none() && self.rank == last {
            eprintln!("error: {lost}; cleaning up takes too long, and the run ends here");
        }
        if self.rank == last {
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
        self.abort(code.filter(|&code| code != 0).unwrap_or(1).into())
    }

    /// Keeps MPI going while all end, so that what others sent does not hold them up, and shows them that this rank lives:
    /// it is not to be taken for lost as well.
    fn keep_up(&mut self) {
        for tag in [BEAT, ALARM] {
            while let Some(message) = self.world.any_process().immediate_matched_probe_with_tag(tag) {
                let _: (Vec<u8>, _) = message.matched_receive_vec();
            }
        }
        let now = self.clock.now();
        if now >= self.next_beat {
            self.next_beat = now + BEAT_EVERY;
            self.peers().for_each(|peer| self.beat(peer));
        }
    }

    /// Ends all processes of the run, this one in any case.
    pub fn abort(&mut self, code: i32) -> ! {
        last_resort("MPI_Abort does not return", ABORT);
        self.world.abort(code)
    }
}

fn mpi_u8() -> mpi::datatype::SystemDatatype {
    use mpi::traits::Equivalence as _;
    u8::equivalent_datatype()
}

fn alarm_of(lost: &Lost) -> String {
    format!("{}\n{}\n{}", lost.rank, lost.host, lost.how)
}

/// Who is lost, as rank 0 tells it; none when it is only asked to stop.
fn read_alarm(text: &[u8]) -> Option<Lost> {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines().map(str::to_owned);
    Some(Lost { rank: lines.next()?.parse().ok()?, host: lines.next()?, how: lines.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_says_who_is_lost_or_only_to_stop() {
        let lost = read_alarm(b"2\nb\nhas not been heard of").unwrap();
        assert_eq!(lost.to_string(), "rank 2 on b has not been heard of");
        assert!([&b""[..], b"x", b"2\n", b"\xff\n\n"].iter().all(|text| read_alarm(text).is_none()));
    }
}
