//! Several generators as one: who offers which share, when a load point begins, what came of it all together.
//!
//! ```text
//! rank 0   share --build--+      +--| common begin |--measure--+       +-- the same Measured,
//! rank 1   share --build--+agree-+--| on each clock|--measure--+ merge +   the same decisions
//! rank 2   share --build--+      +--|              |--measure--+       +   on every rank
//! ```
//!
//! There is no conductor: each rank runs the whole session by itself. At a *meeting* every rank gives what it has,
//! rank 0 makes one answer of all, and everybody gets that; as all decisions rest on such answers, all take the same.
//!
//! Always holds: nothing crosses between two meetings that this module asks for; ranks at different steps are
//! found out and not mixed; the parts are added up exactly; a generator alone pays nothing.
//! Here: who the ranks are and what they agree on. In modules: `meeting`, `clocks`, `shares`, the sum of a load point
//! (`parts`), benchmarks that run as copies of each other (`copies`).
//! Not here: how bytes get from one rank to another and how a silent one is noticed (the [`Exchange`]: `crumb-mpi`).

mod clocks;
mod copies;
mod meeting;
mod parts;
mod shares;

use std::time::Duration;

use measure::RankPart;
use quanta::{Clock, Instant};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use self::clocks::{ClockOffset, RoundTrip};
use self::clocks::{TOGETHER, unix_ns};
pub use self::copies::{Copies, Goes, Steps};
use self::meeting::chain;
pub use self::meeting::{Exchange, Fate, Lost};
use self::parts::{MeasuredPart, PointPart};
pub use self::shares::Share;
use self::shares::{Room, bounds, fair_cores};
use crate::error::FstressError;
use crate::judge;
use crate::metronome::Measured;

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
pub struct Ensemble(Option<Joined>);

struct Joined {
    exchange: Box<dyn Exchange>,
    hosts: Vec<String>,
    /// Rank `n` has the part from `[n]` to `[n + 1]` of all; from 0 to 1.
    bounds: Vec<f64>,
    /// The last comparison of clocks.
    clocks: ClockOffset,
    skew_ns: i64,
    lost: Option<Lost>,
    /// All ranks had the same bad news at a meeting.
    all_know: bool,
}

/// How a step went on one rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Went {
    Well,
    Interrupted,
    Wrong(String),
}

/// Work done on the file set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Work {
    pub grew: bool,
    pub wall_s: f64,
    pub user_s: f64,
    pub sys_s: f64,
    pub items: u64,
    pub bytes: u64,
}

impl Work {
    /// As of one that did both at the same time.
    fn add(&mut self, other: &Self) {
        self.grew |= other.grew;
        self.wall_s = self.wall_s.max(other.wall_s);
        self.user_s += other.user_s;
        self.sys_s += other.sys_s;
        self.items += other.items;
        self.bytes += other.bytes;
    }
}

impl Ensemble {
    /// A generator alone.
    pub const fn solo() -> Self {
        Self(None)
    }

    /// Meets the other ranks for the first time.
    ///
    /// # Errors
    /// When one is lost, of another version of Crumb, or would divide the load in another way.
    pub fn join(exchange: Box<dyn Exchange>, hello: Hello, share: Share) -> Result<Self, FstressError> {
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
        let all = joined.meet_raw(mine.into_bytes(), None, &mut |all| {
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
                    return Err(FstressError::UnlikeRanks {
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

    /// Whether what ended the run was told at a meeting. What was not, the other ranks do not know yet.
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
    ) -> Result<A, FstressError> {
        match &mut self.0 {
            None => Ok(sum(vec![mine])),
            Some(joined) => joined.meet(step, mine, None, sum),
        }
    }

    /// All take the word of rank 0.
    ///
    /// # Errors
    /// When a rank is lost.
    pub fn word_of_first(&mut self, mine: String) -> Result<String, FstressError> {
        let Some(joined) = &mut self.0 else { return Ok(mine) };
        joined.meet("the first word", mine, None, |mut all: Vec<String>| all.swap_remove(0))
    }

    /// Makes sure that all mean to run the same: `terms` are what must be equal, by name.
    ///
    /// # Errors
    /// When a rank is lost, or something differs.
    pub fn same_terms(&mut self, terms: Vec<(String, String)>) -> Result<(), FstressError> {
        let Some(joined) = &mut self.0 else { return Ok(()) };
        type Unlike = Option<(u32, String, String, String)>;
        let unlike: Unlike = joined.meet("the terms", terms, None, |all: Vec<Vec<(String, String)>>| {
            let first = &all[0];
            all.iter().enumerate().find_map(|(rank, terms)| {
                let differs = terms.iter().zip(first).find(|(term, first)| term != first);
                differs.map(|(term, first)| (rank as u32, first.0.clone(), first.1.clone(), term.1.clone()))
            })
        })?;
        let Some((rank, what, first, other)) = unlike else { return Ok(()) };
        joined.all_know = true;
        let (at_first, at_other) = (joined.host(0), joined.host(rank));
        Err(FstressError::UnlikeRanks {
            what,
            first: format!("{first} on {at_first} (rank 0)"),
            other: format!("{other} on {at_other} (rank {rank})"),
        })
    }

    /// Waits until all have done `step`; it went well if it did on all ranks.
    ///
    /// # Errors
    /// What went wrong here, or else on another rank, or that a rank is lost.
    pub fn agree(&mut self, step: &str, went: Result<(), FstressError>) -> Result<(), FstressError> {
        self.agree_on(step, went, None).1
    }

    /// The same for a step whose problem is only known in words.
    ///
    /// # Errors
    /// As for [`Self::agree`].
    pub fn all_did(&mut self, step: &str, problem: Option<String>) -> Result<(), FstressError> {
        let Some(joined) = &self.0 else { return Ok(()) };
        let rank = joined.exchange.rank();
        let wrong = |why| FstressError::Elsewhere { rank, host: joined.host(rank), why };
        let went = problem.map_or(Ok(()), |why| Err(wrong(why)));
        self.agree(step, went)
    }

    /// The same with the work done, added up over all ranks.
    pub(crate) fn agree_on(
        &mut self,
        step: &str,
        went: Result<(), FstressError>,
        work: Option<Work>,
    ) -> (Option<Work>, Result<(), FstressError>) {
        let Some(joined) = &mut self.0 else { return (work, went) };
        let mine = match &went {
            Ok(()) => Went::Well,
            Err(FstressError::Interrupted) => Went::Interrupted,
            Err(FstressError::Elsewhere { why, .. }) => Went::Wrong(why.clone()),
            Err(error) => Went::Wrong(chain(error)),
        };
        let met = joined.meet(step, (mine, work), None, |all: Vec<(Went, Option<Work>)>| {
            let wrong = all.iter().enumerate().find_map(|(rank, (went, _))| match went {
                Went::Wrong(why) => Some((rank as u32, why.clone())),
                _ => None,
            });
            let stopped = all.iter().any(|(went, _)| matches!(went, Went::Interrupted));
            let work = all.iter().filter_map(|(_, work)| *work).reduce(|mut sum, work| {
                sum.add(&work);
                sum
            });
            (wrong, stopped, work)
        });
        match (met, went) {
            (Err(lost), _) => (work, Err(lost)),
            (Ok((wrong, stopped, work)), went) => {
                let rank = joined.exchange.rank();
                let result = match (wrong, went) {
                    (Some((at, _)), Err(error)) if at == rank => Err(error),
                    (Some((at, why)), _) => {
                        Err(FstressError::Elsewhere { rank: at, host: joined.host(at), why })
                    }
                    (None, _) if stopped => Err(FstressError::Interrupted),
                    (None, _) => Ok(()),
                };
                joined.all_know |= result.is_err();
                (work, result)
            }
        }
    }

    /// Whether there are others.
    pub fn is_joined(&self) -> bool {
        self.0.is_some()
    }

    /// Agrees on the moment at which a load point begins and waits for it; once it is warm nothing crosses.
    pub(crate) fn begin(
        &mut self,
        clock: &Clock,
        warm: Duration,
        measure: Duration,
    ) -> Result<Instant, FstressError> {
        let Some(joined) = &mut self.0 else { return Ok(clock.now()) };
        let begin = joined.agree_on_begin(clock)?;
        joined.exchange.hush(begin + warm, begin + warm + measure);
        joined.wait_for(begin, clock);
        tracing::debug!(rank = joined.exchange.rank(), unix_ns = unix_ns(), "a load point begins");
        Ok(begin)
    }

    /// Adds up what all ranks measured; each gets the same. A rank has `patience` to come.
    pub(crate) fn merge(
        &mut self,
        measured: Measured,
        rate: Option<f64>,
        file_set: measure::FileSetRecord,
        patience: Duration,
    ) -> Result<(Measured, measure::FileSetRecord, Vec<RankPart>), FstressError> {
        let my_rate = rate.map(|rate| self.rate_of(rate));
        let Some(joined) = &mut self.0 else { return Ok((measured, file_set, vec![])) };
        let rank = joined.exchange.rank();
        let row = RankPart {
            rank,
            host: joined.host(rank),
            start_skew_us: joined.skew_ns as f64 / 1e3,
            clock_uncertainty_us: joined.clocks.uncertainty_ns as f64 / 1e3,
            ..judge::rank_part(&measured, my_rate)
        };
        let mine = PointPart { measured: MeasuredPart::of(&measured), file_set, rows: vec![row] };
        let whole: PointPart =
            joined.meet("a load point's end", mine, Some(patience + TOGETHER), PointPart::sum)?;
        let merged = whole.measured.into_measured(measured, &whole.rows, rank);
        joined.all_know |= merged.cut_short.is_some();
        Ok((merged, whole.file_set, whole.rows))
    }
}
