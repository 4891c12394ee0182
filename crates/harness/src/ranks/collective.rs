//! A collective: each rank gives something, rank 0 makes one of all, and all get that.
//!
//! Always holds: a step's name travels with its matter, and ranks at different steps are found out and not mixed; bytes
//! that mean nothing are an error.

use std::time::Duration;

use quanta::Instant;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{ClockOffset, Joined, RanksError};

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
    fn collective(
        &mut self,
        mine: Vec<u8>,
        patience: Option<Duration>,
        answer: &mut dyn FnMut(&[Vec<u8>]) -> Vec<u8>,
    ) -> Result<Vec<u8>, Lost>;

    /// Compares this rank's clock with that of rank 0; all ranks call it at the same step.
    ///
    /// # Errors
    /// As for [`Self::collective`].
    fn compare_clocks(&mut self) -> Result<ClockOffset, Lost>;

    /// The moment from which this rank counts nanoseconds when it talks about time.
    fn epoch(&self) -> Instant;

    /// Nothing is to cross from the one moment to the other.
    fn hush(&mut self, from: Instant, until: Instant);
}

/// A rank that does not answer any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rank {rank} on {host} {fate}")]
pub struct Lost {
    /// Which one.
    pub rank: u32,
    /// Where it ran.
    pub host: String,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a rank that the others do not have any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It does not answer, or not as it should: what is known, as the end of a sentence.
    Gone(String),
    /// It came to an end of its own, for this reason, and reports it by itself where it can.
    Ended(String),
}

impl std::fmt::Display for Fate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gone(how) => f.write_str(how),
            Self::Ended(why) => write!(f, "has ended: {why}"),
        }
    }
}

/// What each rank brings to a collective besides its matter: where it stands, so that steps are never mixed.
#[derive(Serialize, Deserialize)]
struct Sheet<T> {
    step: String,
    matter: T,
}

impl Joined {
    pub(super) fn host(&self, rank: u32) -> String {
        self.hosts.get(rank as usize).cloned().unwrap_or_default()
    }

    pub(super) fn still_whole(&self) -> Result<(), RanksError> {
        self.lost.clone().map_or(Ok(()), |lost| Err(lost.into()))
    }

    pub(super) fn noted<T>(&mut self, done: Result<T, Lost>) -> Result<T, RanksError> {
        done.map_err(|lost| {
            self.lost = Some(lost.clone());
            lost.into()
        })
    }

    pub(super) fn collective_raw(
        &mut self,
        mine: Vec<u8>,
        patience: Option<Duration>,
        answer: &mut dyn FnMut(&[Vec<u8>]) -> Vec<u8>,
    ) -> Result<Vec<u8>, RanksError> {
        self.still_whole()?;
        let met = self.exchange.collective(mine, patience, answer);
        self.noted(met)
    }

    /// A collective about `matter` at `step`.
    pub(super) fn collective<M: Serialize + DeserializeOwned, A: Serialize + DeserializeOwned>(
        &mut self,
        step: &str,
        matter: M,
        patience: Option<Duration>,
        answer: impl FnOnce(Vec<M>) -> A,
    ) -> Result<A, RanksError> {
        let sheet = Sheet { step: step.to_owned(), matter };
        let mine = postcard::to_stdvec(&sheet).expect("writing to memory cannot fail");
        let mut answer = Some(answer);
        let answered = self.collective_raw(mine, patience, &mut |all| {
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
                self.all_know = true;
                let fate = Fate::Gone(format!("is at another step than {step}"));
                self.noted(Err(Lost { rank, host: self.host(rank), fate }))
            }
            Err(_) => {
                let fate = Fate::Gone("gave an answer that cannot be read".to_owned());
                self.noted(Err(Lost { rank: 0, host: self.host(0), fate }))
            }
        }
    }
}
