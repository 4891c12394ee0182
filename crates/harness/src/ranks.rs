//! Several generators as one: who offers which share, when a load point begins, what came of it all together.
//!
//! ```text
//! rank 0   share --build--+      +--| common begin |--measure--+       +-- the same Measured,
//! rank 1   share --build--+agree-+--| on each clock|--measure--+ merge +   the same decisions
//! rank 2   share --build--+      +--|              |--measure--+       +   on every rank
//! ```
//!
//! There is no conductor: each rank runs the whole session by itself. At a *collective* every rank gives what it has,
//! rank 0 makes one answer of all, and everybody gets that; as all decisions rest on such answers, all take the same.
//!
//! Always holds: nothing crosses between two collectives that this module asks for; ranks at different steps are
//! found out and not mixed; the parts are added up exactly; a generator alone pays nothing.
//! Here: who the ranks are and what they agree on. In modules: `collective`, `clocks`, `shares`, benchmarks that run as
//! replicas of each other (`replicas`).
//! Not here: what is added up of a load point (`fstress::ranks`); how bytes get from one rank to another and how a silent
//! one is noticed (the [`Exchange`]: `crumb-mpi`).

mod clocks;
mod collective;
mod error;
mod replicas;
mod shares;

use std::time::Duration;

use measure::RankPart;
use quanta::{Clock, Instant};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use self::clocks::{ClockOffset, RoundTrip};
use self::clocks::{TOGETHER, unix_ns};
pub use self::collective::{Exchange, Fate, Lost};
pub use self::error::RanksError;
pub use self::replicas::{Replicas, Steps, merge_phases};
pub use self::shares::Share;
use self::shares::{Room, bounds, fair_cores};

/// What a rank says of itself when it comes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Host name.
    pub host: String,
    /// Version of Crumb.
    pub version: String,
    /// Processors it may use at a time.
    pub cores: u32,
    /// Which ones, by number; each is divided among the ranks of its host that may use it. None where that is not known:
    /// then the ranks of a host are taken to share all of them.
    pub cpus: Vec<usize>,
}

/// The ranks of a run as one of them sees them; or a generator alone.
pub struct RankGroup(Option<Joined>);

struct Joined {
    exchange: Box<dyn Exchange>,
    hosts: Vec<String>,
    /// Rank `n` has the part from `[n]` to `[n + 1]` of all; from 0 to 1.
    bounds: Vec<f64>,
    /// The last comparison of clocks.
    clocks: ClockOffset,
    skew_ns: i64,
    lost: Option<Lost>,
    /// All ranks had the same bad news at a collective.
    all_know: bool,
}

/// How a step went on one rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Went {
    /// It did.
    Well,
    /// The user asked to stop.
    Interrupted,
    /// It did not, for this reason.
    Wrong(String),
}

/// How a step went that all ranks did, or were to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreed {
    /// Well on all.
    Well,
    /// Wrong on this one: it knows best why.
    WrongHere,
}

impl RankGroup {
    /// A generator alone.
    pub const fn solo() -> Self {
        Self(None)
    }

    /// Meets the other ranks for the first time.
    ///
    /// # Errors
    /// When one is lost, of another version of Crumb, or would divide the load in another way.
    pub fn join(exchange: Box<dyn Exchange>, hello: Hello, share: Share) -> Result<Self, RanksError> {
        if exchange.ranks() <= 1 {
            return Ok(Self::solo());
        }
        let mut joined = Joined {
            hosts: vec!["?".to_owned(); exchange.ranks() as usize],
            bounds: vec![0.0, 1.0],
            exchange,
            clocks: ClockOffset::default(),
            skew_ns: 0,
            lost: None,
            all_know: false,
        };
        // The version before all else, in a form that every version will read.
        let cpus: Vec<String> = hello.cpus.iter().map(ToString::to_string).collect();
        let mine =
            format!("{}\n{}\n{}\n{share}\n={}", hello.version, hello.host, hello.cores, cpus.join(" "));
        let all = joined.collective_raw(mine.into_bytes(), None, &mut |all| {
            let texts: Vec<_> = all.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
            texts.join("\n\n").into_bytes()
        })?;
        let all = String::from_utf8_lossy(&all).into_owned();
        let mut rooms = Vec::new();
        let mut first: Option<[String; 3]> = None;
        for (rank, text) in all.split("\n\n").enumerate() {
            let mut lines = text.lines().map(str::to_owned);
            let mut next = || lines.next().unwrap_or_default();
            let (version, host, cores, share, cpus) = (next(), next(), next(), next(), next());
            let [first_version, first_host, first_share] =
                first.get_or_insert_with(|| [version.clone(), host.clone(), share.clone()]);
            for (what, of_first, its) in
                [("version of Crumb", first_version, version), ("--share", first_share, share)]
            {
                if *of_first != its {
                    return Err(RanksError::Unlike {
                        what: what.to_owned(),
                        first: format!("{of_first} on {first_host} (rank 0)"),
                        other: format!("{its} on {host} (rank {rank})"),
                    });
                }
            }
            if let Some(known) = joined.hosts.get_mut(rank) {
                known.clone_from(&host);
            }
            rooms.push(Room {
                host,
                cores: cores.parse().unwrap_or(1.0_f64).max(1.0),
                cpus: cpus.trim_start_matches('=').split(' ').filter_map(|cpu| cpu.parse().ok()).collect(),
            });
        }
        let weights: Vec<f64> = match share {
            Share::Even => vec![1.0; joined.hosts.len()],
            Share::Cores => fair_cores(&rooms),
        };
        joined.bounds = bounds(&weights);
        Ok(Self(Some(joined)))
    }

    /// This rank's number; 0 alone.
    pub fn rank(&self) -> u32 {
        self.0.as_ref().map_or(0, |joined| joined.exchange.rank())
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.0.as_ref().map_or(1, |joined| joined.exchange.ranks())
    }

    /// The hosts in the order of ranks; none alone.
    pub fn hosts(&self) -> &[String] {
        self.0.as_ref().map_or(&[], |joined| &joined.hosts)
    }

    /// What a lost rank was found to be.
    pub fn lost(&self) -> Option<&Lost> {
        self.0.as_ref().and_then(|joined| joined.lost.as_ref())
    }

    /// Whether what ended the run was reported at a collective. What was not, the other ranks do not know yet.
    pub fn all_know(&self) -> bool {
        self.0.as_ref().is_none_or(|joined| joined.all_know)
    }

    /// Makes one of what all ranks have of `step`, and gives it to all; alone it is made of one. A rank may take its time,
    /// as long as it lives.
    ///
    /// # Errors
    /// When a rank is lost.
    pub fn add_up<M: Serialize + DeserializeOwned, A: Serialize + DeserializeOwned>(
        &mut self,
        step: &str,
        mine: M,
        sum: impl FnOnce(Vec<M>) -> A,
    ) -> Result<A, RanksError> {
        match &mut self.0 {
            None => Ok(sum(vec![mine])),
            Some(joined) => joined.collective(step, mine, None, sum),
        }
    }

    /// All take the word of rank 0.
    ///
    /// # Errors
    /// When a rank is lost.
    pub fn broadcast(&mut self, mine: String) -> Result<String, RanksError> {
        let Some(joined) = &mut self.0 else { return Ok(mine) };
        joined.collective("the first word", mine, None, |mut all: Vec<String>| all.swap_remove(0))
    }

    /// Makes sure that all mean to run the same: `terms` are what must be equal, by name.
    ///
    /// # Errors
    /// When a rank is lost, or something differs.
    pub fn same_terms(&mut self, terms: Vec<(String, String)>) -> Result<(), RanksError> {
        let Some(joined) = &mut self.0 else { return Ok(()) };
        type Unlike = Option<(u32, String, String, String)>;
        let unlike: Unlike =
            joined.collective("the terms", terms, None, |all: Vec<Vec<(String, String)>>| {
                let first = &all[0];
                all.iter().enumerate().find_map(|(rank, terms)| {
                    let differs = terms.iter().zip(first).find(|(term, first)| term != first);
                    differs
                        .map(|(term, first)| (rank as u32, first.0.clone(), first.1.clone(), term.1.clone()))
                })
            })?;
        let Some((rank, what, first, other)) = unlike else { return Ok(()) };
        joined.all_know = true;
        let (at_first, at_other) = (joined.host(0), joined.host(rank));
        Err(RanksError::Unlike {
            what,
            first: format!("{first} on {at_first} (rank 0)"),
            other: format!("{other} on {at_other} (rank {rank})"),
        })
    }

    /// Waits until all have done `step`, whose problem is only known in words; it went well if it did on all ranks.
    ///
    /// # Errors
    /// What went wrong here, or else on another rank, or that a rank is lost.
    pub fn all_did(&mut self, step: &str, problem: Option<String>) -> Result<(), RanksError> {
        if self.0.is_none() {
            return Ok(());
        }
        let went = problem.clone().map_or(Went::Well, Went::Wrong);
        match self.agree_on(step, went, None, |(), ()| ()).1? {
            Agreed::Well => Ok(()),
            Agreed::WrongHere => {
                let (rank, why) = (self.rank(), problem.unwrap_or_default());
                Err(RanksError::Elsewhere { rank, host: self.host(rank), why })
            }
        }
    }

    /// The same for a step that went so here, with what was done, added up by `add` over all ranks.
    ///
    /// # Errors
    /// What went wrong on another rank, that one was interrupted, or that one is lost.
    pub fn agree_on<W: Copy + Serialize + DeserializeOwned>(
        &mut self,
        step: &str,
        went: Went,
        work: Option<W>,
        add: impl Fn(W, W) -> W,
    ) -> (Option<W>, Result<Agreed, RanksError>) {
        let Some(joined) = &mut self.0 else {
            let agreed = match went {
                Went::Well => Ok(Agreed::Well),
                Went::Interrupted => Err(RanksError::Interrupted),
                Went::Wrong(_) => Ok(Agreed::WrongHere),
            };
            return (work, agreed);
        };
        let is_wrong = matches!(went, Went::Wrong(_));
        let met = joined.collective(step, (went, work), None, |all: Vec<(Went, Option<W>)>| {
            let wrong = all.iter().enumerate().find_map(|(rank, (went, _))| match went {
                Went::Wrong(why) => Some((rank as u32, why.clone())),
                _ => None,
            });
            let stopped = all.iter().any(|(went, _)| matches!(went, Went::Interrupted));
            let work = all.iter().filter_map(|(_, work)| *work).reduce(&add);
            (wrong, stopped, work)
        });
        match met {
            Err(lost) => (work, Err(lost)),
            Ok((wrong, stopped, work)) => {
                let rank = joined.exchange.rank();
                let result = match wrong {
                    Some((at, _)) if at == rank && is_wrong => Ok(Agreed::WrongHere),
                    Some((at, why)) => Err(RanksError::Elsewhere { rank: at, host: joined.host(at), why }),
                    None if stopped => Err(RanksError::Interrupted),
                    None => Ok(Agreed::Well),
                };
                joined.all_know |= !matches!(result, Ok(Agreed::Well));
                (work, result)
            }
        }
    }

    /// Whether there are others.
    pub fn is_joined(&self) -> bool {
        self.0.is_some()
    }

    /// Agrees on the moment at which a load point begins and waits for it; once it is warm nothing crosses.
    ///
    /// # Errors
    /// When a rank is lost.
    pub fn begin(&mut self, clock: &Clock, warm: Duration, measure: Duration) -> Result<Instant, RanksError> {
        let Some(joined) = &mut self.0 else { return Ok(clock.now()) };
        let begin = joined.agree_on_begin(clock)?;
        joined.exchange.hush(begin + warm, begin + warm + measure);
        joined.wait_for(begin, clock);
        tracing::debug!(rank = joined.exchange.rank(), unix_ns = unix_ns(), "a load point begins");
        Ok(begin)
    }

    /// As [`Self::add_up`] of what ranks come to at about the same time: each has `patience` to come.
    ///
    /// # Errors
    /// When a rank is lost.
    pub fn add_up_within<M: Serialize + DeserializeOwned, A: Serialize + DeserializeOwned>(
        &mut self,
        step: &str,
        mine: M,
        patience: Duration,
        sum: impl FnOnce(Vec<M>) -> A,
    ) -> Result<A, RanksError> {
        match &mut self.0 {
            None => Ok(sum(vec![mine])),
            Some(joined) => joined.collective(step, mine, Some(patience + TOGETHER), sum),
        }
    }

    /// A rank's row, filled in with who it is and how late it began what was begun last.
    pub fn row(&self, mine: RankPart) -> RankPart {
        let Some(joined) = &self.0 else { return mine };
        let rank = joined.exchange.rank();
        RankPart {
            rank,
            host: joined.host(rank),
            start_skew_us: joined.skew_ns as f64 / 1e3,
            clock_uncertainty_us: joined.clocks.uncertainty_ns as f64 / 1e3,
            ..mine
        }
    }

    /// What ends the run was reported at a collective.
    pub fn note_all_know(&mut self) {
        if let Some(joined) = &mut self.0 {
            joined.all_know = true;
        }
    }

    /// The host of a rank; empty where there is none.
    fn host(&self, rank: u32) -> String {
        self.0.as_ref().map_or_else(String::new, |joined| joined.host(rank))
    }
}
