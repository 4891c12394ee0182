//! The verb's end of the way to MPI: asks the main thread, and waits for what it says.

use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use harness::ranks::{ClockOffset, Exchange, Fate, Lost};
use quanta::Instant;

/// What the main thread is asked for.
pub enum Request {
    /// Bring this to rank 0; there, bring all parts, and elsewhere, the answer.
    Bring { mine: Vec<u8>, patience: Option<Duration> },
    /// Rank 0 alone: bring this answer to all.
    Spread(Vec<u8>),
    /// Compare clocks.
    Clocks,
    /// Nothing is to cross from the one moment to the other; there is no reply.
    QuietPeriod(Instant, Instant),
    /// The verb has come to its end; there is no reply.
    Leave(LastWord),
}

/// How the verb ended on this rank.
pub struct LastWord {
    /// The exit code.
    pub code: u8,
    /// What ended it here and was not reported at a collective: the other ranks continue and do not know.
    pub unreported: Option<String>,
}

/// What it says.
pub enum Reply {
    /// All parts, in the order of ranks.
    Parts(Vec<Vec<u8>>),
    /// The answer.
    Answer(Vec<u8>),
    /// The clocks.
    Clocks(ClockOffset),
    /// A rank is lost, and all that follows is in vain.
    Lost(Lost),
}

/// The exchange as the verb sees it.
pub struct MpiChannel {
    pub rank: u32,
    pub ranks: u32,
    pub epoch: Instant,
    pub requests: Sender<Request>,
    pub replies: Receiver<Reply>,
}

/// Says the last word, after everything was reported.
pub struct Leave(Sender<Request>);

impl Leave {
    pub fn say(self, word: LastWord) {
        // With nobody there to hear it the process is ending anyway.
        let _ = self.0.send(Request::Leave(word));
    }
}

impl MpiChannel {
    pub fn leave(&self) -> Leave {
        Leave(self.requests.clone())
    }

    fn ask(&self, request: Request) -> Result<Reply, Lost> {
        let fate = || Fate::Gone("has no main thread any more".to_owned());
        let gone = || Lost { rank: self.rank, host: String::new(), fate: fate() };
        self.requests.send(request).map_err(|_| gone())?;
        match self.replies.recv() {
            Ok(Reply::Lost(lost)) => Err(lost),
            Ok(reply) => Ok(reply),
            Err(_) => Err(gone()),
        }
    }
}

impl Exchange for MpiChannel {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn collective(
        &mut self,
        mine: Vec<u8>,
        patience: Option<Duration>,
        answer: &mut dyn FnMut(&[Vec<u8>]) -> Vec<u8>,
    ) -> Result<Vec<u8>, Lost> {
        match self.ask(Request::Bring { mine, patience })? {
            Reply::Parts(parts) => match self.ask(Request::Spread(answer(&parts)))? {
                Reply::Answer(answer) => Ok(answer),
                _ => unreachable!("what is spread is the answer"),
            },
            Reply::Answer(answer) => Ok(answer),
            _ => unreachable!("parts or an answer are what is brought"),
        }
    }

    fn compare_clocks(&mut self) -> Result<ClockOffset, Lost> {
        match self.ask(Request::Clocks)? {
            Reply::Clocks(offset) => Ok(offset),
            _ => unreachable!("clocks were asked for"),
        }
    }

    fn epoch(&self) -> Instant {
        self.epoch
    }

    fn hush(&mut self, from: Instant, until: Instant) {
        // A main thread that is gone shows at the next collective.
        let _ = self.requests.send(Request::QuietPeriod(from, until));
    }
}
