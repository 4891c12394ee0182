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
//! Not here: how bytes get from one rank to another and how a silent one is noticed (the [`Exchange`]: `crumb-mpi`).

mod parts;

use std::time::Duration;

use measure::RankPart;
use quanta::{Clock, Instant};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use self::parts::{MeasuredPart, PointPart};
use crate::arrivals::stream;
use crate::error::FstressError;
use crate::judge;
use crate::metronome::Measured;

/// What joins the ranks of a run: MPI in use, channels in tests.
pub trait Exchange: Send {
    /// This rank's number, from 0.
    fn rank(&self) -> u32;

    /// How many ranks there are.
    fn ranks(&self) -> u32;

    /// Gives `mine` to rank 0, where `answer` makes one of all, in the order of ranks; everybody returns that answer.
    /// Within `patience` of this call all must have come; without it, as long as they show that they live.
    ///
    /// # Errors
    /// When a rank is lost: then all further calls fail as well.
    fn meet(
        &mut self,
        mine: Vec<u8>,
        patience: Option<Duration>,
        answer: &mut dyn FnMut(&[Vec<u8>]) -> Vec<u8>,
    ) -> Result<Vec<u8>, Lost>;

    /// Compares this rank's clock with that of rank 0; all ranks call it at the same step.
    ///
    /// # Errors
    /// As for [`Self::meet`].
    fn compare_clocks(&mut self) -> Result<ClockOffset, Lost>;

    /// The moment from which this rank counts nanoseconds when it talks about time.
    fn epoch(&self) -> Instant;

    /// Nothing is to cross from the one moment to the other.
    fn hush(&mut self, from: Instant, until: Instant);
}

/// A rank that does not answer any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rank {rank} on {host} {how}")]
pub struct Lost {
    /// Which one.
    pub rank: u32,
    /// Where it ran.
    pub host: String,
    /// What is known, as the end of a sentence.
    pub how: String,
}

/// How rank 0's clock stands to this one's: `rank 0 = mine + offset_ns`, to within `uncertainty_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    /// Nanoseconds to add to a moment of mine.
    pub offset_ns: i64,
    /// How far that may be off at most.
    pub uncertainty_ns: u64,
}

/// One round trip to rank 0: sent and received by my clock, answered by that of rank 0; nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    /// When I asked.
    pub asked_ns: u64,
    /// What the clock of rank 0 said.
    pub answered_ns: u64,
    /// When I had the answer.
    pub heard_ns: u64,
}

impl ClockOffset {
    /// From the quickest of many: whatever way the time was lost on, the answer lies between question and hearing.
    pub fn of(trips: impl IntoIterator<Item = RoundTrip>) -> Self {
        let quickest = trips.into_iter().min_by_key(|trip| trip.heard_ns.saturating_sub(trip.asked_ns));
        quickest.map_or_else(Self::default, |trip| {
            let round_ns = trip.heard_ns.saturating_sub(trip.asked_ns);
            let middle_ns = trip.asked_ns + round_ns / 2;
            Self {
                offset_ns: trip.answered_ns as i64 - middle_ns as i64,
                uncertainty_ns: round_ns.div_ceil(2),
            }
        })
    }
}

/// How the load is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// To all the same.
    #[default]
    Even,
    /// By the processors that each may use.
    Cores,
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Even => "even",
            Self::Cores => "cores",
        })
    }
}

impl std::str::FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "even" => Ok(Self::Even),
            "cores" => Ok(Self::Cores),
            _ => Err(format!("`{text}`: expected even or cores")),
        }
    }
}

/// What a rank says of itself when it comes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Host name.
    pub host: String,
    /// Version of Crumb.
    pub version: String,
    /// Processors it may use; those of a host are divided among its ranks.
    pub cores: u32,
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
}

/// From the common word to the begin of a load point: enough for the word to be everywhere.
const LEAD: Duration = Duration::from_millis(200);
/// Between ranks that come to a step at about the same time.
const TOGETHER: Duration = Duration::from_secs(20);
/// Sleeping may end this late; from here on the clock is watched.
const WATCH: Duration = Duration::from_micros(300);

/// What each rank brings to a meeting besides its matter: where it stands, so that steps are never mixed.
#[derive(Serialize, Deserialize)]
struct Sheet<T> {
    step: String,
    matter: T,
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
        };
        // The version before all else, in a form that every version will read.
        let mine = format!("{}\n{}\n{}\n{share}", hello.version, hello.host, hello.cores);
        let all = joined.meet_raw(mine.into_bytes(), None, &mut |all| {
            let texts: Vec<_> = all.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
            texts.join("\n\n").into_bytes()
        })?;
        let all = String::from_utf8_lossy(&all).into_owned();
        let mut cores = Vec::new();
        let mut first: Option<[String; 3]> = None;
        for (rank, text) in all.split("\n\n").enumerate() {
            let mut lines = text.lines().map(str::to_owned);
            let mut next = || lines.next().unwrap_or_default();
            let (version, host, of_host, share) = (next(), next(), next(), next());
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
                *known = host;
            }
            cores.push(of_host.parse().unwrap_or(1.0_f64).max(1.0));
        }
        let weights: Vec<f64> = match share {
            Share::Even => vec![1.0; joined.hosts.len()],
            Share::Cores => {
                let neighbours = |host: &String| joined.hosts.iter().filter(|other| *other == host).count();
                joined.hosts.iter().zip(&cores).map(|(host, cores)| cores / neighbours(host) as f64).collect()
            }
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
                (work, result)
            }
        }
    }

    /// Whether there are others.
    pub fn is_joined(&self) -> bool {
        self.0.is_some()
    }

    /// This rank's seed. Alone and as rank 0 of one it is the seed itself.
    pub(crate) fn seed(&self, seed: u64) -> u64 {
        match &self.0 {
            None => seed,
            Some(joined) => {
                rand::Rng::next_u64(&mut stream(seed, 1_000_000 + u64::from(joined.exchange.rank())))
            }
        }
    }

    /// This rank's own directory.
    pub(crate) fn set_name(&self, name: &str) -> String {
        match &self.0 {
            None => name.to_owned(),
            Some(joined) => format!("{name}-r{}", joined.exchange.rank()),
        }
    }

    /// This rank's part of so many things; the parts of all ranks sum up to them, but none has fewer than one.
    pub(crate) fn part_of(&self, things: u64) -> u64 {
        let (from, to) = self.bounds();
        if self.0.is_none() || things == 0 {
            return things;
        }
        let at = |bound: f64| (things as f64 * bound).round() as u64;
        (at(to) - at(from)).max(1)
    }

    /// This rank's part of a rate.
    pub(crate) fn rate_of(&self, rate: f64) -> f64 {
        let (from, to) = self.bounds();
        rate * (to - from)
    }

    /// How long after the begin this rank's evenly spaced requests start, so that those of all are evenly spaced too.
    pub(crate) fn phase_of(&self, rate: f64) -> Duration {
        let (from, to) = self.bounds();
        Duration::from_secs_f64(from / (rate * (to - from)))
    }

    fn bounds(&self) -> (f64, f64) {
        self.0.as_ref().map_or((0.0, 1.0), |joined| {
            let rank = joined.exchange.rank() as usize;
            (joined.bounds[rank], joined.bounds[rank + 1])
        })
    }

    /// Agrees on the moment at which a load point begins and waits for it; once it is warm nothing crosses.
    pub(crate) fn begin(
        &mut self,
        clock: &Clock,
        warm: Duration,
        measure: Duration,
    ) -> Result<Instant, FstressError> {
        let Some(joined) = &mut self.0 else { return Ok(clock.now()) };
        joined.still_whole()?;
        let compared = joined.exchange.compare_clocks();
        joined.clocks = joined.noted(compared)?;
        let epoch = joined.exchange.epoch();
        let since_epoch = |now: Instant| now.saturating_duration_since(epoch).as_nanos() as u64;
        let begin_ns: u64 = joined.meet("a load point's begin", (), Some(TOGETHER), |_: Vec<()>| {
            since_epoch(clock.now()) + LEAD.as_nanos() as u64
        })?;
        let mine_ns = u64::try_from(begin_ns as i64 - joined.clocks.offset_ns).unwrap_or(0);
        let begin = epoch + Duration::from_nanos(mine_ns);
        joined.exchange.hush(begin + warm, begin + warm + measure);
        loop {
            let now = clock.now();
            let left = begin.saturating_duration_since(now);
            if left.is_zero() {
                joined.skew_ns = now.saturating_duration_since(begin).as_nanos() as i64;
                tracing::debug!(rank = joined.exchange.rank(), unix_ns = unix_ns(), "a load point begins");
                return Ok(begin);
            }
            if left > WATCH {
                std::thread::sleep(left - WATCH);
            } else {
                std::hint::spin_loop();
            }
        }
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
        Ok((merged, whole.file_set, whole.rows))
    }
}

impl Joined {
    fn host(&self, rank: u32) -> String {
        self.hosts.get(rank as usize).cloned().unwrap_or_default()
    }

    fn still_whole(&self) -> Result<(), FstressError> {
        self.lost.clone().map_or(Ok(()), |lost| Err(lost.into()))
    }

    fn noted<T>(&mut self, done: Result<T, Lost>) -> Result<T, FstressError> {
        done.map_err(|lost| {
            self.lost = Some(lost.clone());
            lost.into()
        })
    }

    fn meet_raw(
        &mut self,
        mine: Vec<u8>,
        patience: Option<Duration>,
        answer: &mut dyn FnMut(&[Vec<u8>]) -> Vec<u8>,
    ) -> Result<Vec<u8>, FstressError> {
        self.still_whole()?;
        let met = self.exchange.meet(mine, patience, answer);
        self.noted(met)
    }

    /// A meeting about `matter` at `step`.
    fn meet<M: Serialize + DeserializeOwned, A: Serialize + DeserializeOwned>(
        &mut self,
        step: &str,
        matter: M,
        patience: Option<Duration>,
        answer: impl FnOnce(Vec<M>) -> A,
    ) -> Result<A, FstressError> {
        let sheet = Sheet { step: step.to_owned(), matter };
        let mine = postcard::to_stdvec(&sheet).expect("writing to memory cannot fail");
        let mut answer = Some(answer);
        let answered = self.meet_raw(mine, patience, &mut |all| {
            // The step first: the matter of another step has another shape.
            let misfit = all.iter().position(|bytes| {
                postcard::take_from_bytes::<String>(bytes).map_or(true, |(at, _)| at != step)
            });
            let sheets: Option<Vec<M>> =
                all.iter().map(|bytes| Some(postcard::from_bytes::<Sheet<M>>(bytes).ok()?.matter)).collect();
            let answer: Result<A, u32> = match (misfit, sheets, answer.take()) {
                (None, Some(matters), Some(answer)) => Ok(answer(matters)),
                (rank, ..) => Err(rank.unwrap_or_default() as u32),
            };
            postcard::to_stdvec(&answer).expect("writing to memory cannot fail")
        })?;
        match postcard::from_bytes::<Result<A, u32>>(&answered) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(rank)) => {
                let how = format!("is at another step than {step}");
                self.noted(Err(Lost { rank, host: self.host(rank), how }))
            }
            Err(_) => {
                let how = "gave an answer that cannot be read".to_owned();
                self.noted(Err(Lost { rank: 0, host: self.host(0), how }))
            }
        }
    }
}

/// Where each one's part of the whole begins and ends.
fn bounds(weights: &[f64]) -> Vec<f64> {
    let total: f64 = weights.iter().sum();
    let mut sum = 0.0;
    let mut bounds: Vec<f64> = std::iter::once(0.0)
        .chain(weights.iter().map(|weight| {
            sum += weight;
            sum / total
        }))
        .collect();
    *bounds.last_mut().expect("there is the zero") = 1.0;
    bounds
}

/// The error and its causes in one line.
fn chain(error: &FstressError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let told = error.to_string();
        if !text.contains(&told) {
            text.push_str(&format!(": {told}"));
        }
        cause = error.source();
    }
    text
}

fn unix_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_true_offset_of_skewed_clocks_lies_within_the_stated_uncertainty(
            skew_ns in -3_600_000_000_000i64..3_600_000_000_000,
            legs in prop::collection::vec((1u64..2_000_000, 1u64..2_000_000), 1..40),
        ) {
            let (mut now_ns, start) = (0u64, 7_200_000_000_000u64);
            let trips: Vec<RoundTrip> = legs.iter().map(|(there, back)| {
                let asked_ns = start + now_ns;
                now_ns += there;
                let answered_ns = (start as i64 + now_ns as i64 + skew_ns) as u64;
                now_ns += back;
                RoundTrip { asked_ns, answered_ns, heard_ns: start + now_ns }
            }).collect();
            let found = ClockOffset::of(trips);
            prop_assert!(found.offset_ns.abs_diff(skew_ns) <= found.uncertainty_ns, "{found:?}, true {skew_ns}");
            let quickest = legs.iter().map(|(there, back)| there + back).min().unwrap();
            prop_assert_eq!(found.uncertainty_ns, quickest.div_ceil(2));
        }

        #[test]
        fn bounds_cover_everything_once(weights in prop::collection::vec(1.0f64..64.0, 1..200)) {
            let bounds = bounds(&weights);
            prop_assert_eq!((bounds[0], bounds[weights.len()]), (0.0, 1.0));
            prop_assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
