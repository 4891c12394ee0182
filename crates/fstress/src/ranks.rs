//! What is Fstress's own when several generators run as one: the sum of a load point, the work on file sets, and what each
//! rank has for itself. How ranks meet is `harness::ranks`.
//!
//! Always holds: the parts are added up exactly; a generator alone pays nothing.

mod parts;

use std::time::Duration;

use harness::ranks::{Agreed, Fate, RankGroup, RanksError, Went};
use measure::RankPart;
use serde::{Deserialize, Serialize};

use self::parts::{MeasuredPart, PointPart};
use crate::error::FstressError;
use crate::open_loop::arrivals::stream;
use crate::open_loop::metronome::Measured;
use crate::results::judge;

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
    fn add(self, other: Self) -> Self {
        Self {
            grew: self.grew | other.grew,
            wall_s: self.wall_s.max(other.wall_s),
            user_s: self.user_s + other.user_s,
            sys_s: self.sys_s + other.sys_s,
            items: self.items + other.items,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// What Fstress asks of the ranks.
pub(crate) trait FstressRanks {
    /// This rank's seed. Alone it is the seed itself.
    fn seed(&self, seed: u64) -> u64;

    /// This rank's own directory.
    fn set_name(&self, name: &str) -> String;

    /// The directory of a rank that was lost, when it is for this rank to remove it: for rank 0, or else for the next one.
    fn orphaned_set_name(&self, name: &str) -> Option<String>;

    /// Waits until all have done `step`, and adds up the work done; it went well if it did on all ranks.
    fn all_went(
        &mut self,
        step: &str,
        went: Result<(), FstressError>,
        work: Option<Work>,
    ) -> (Option<Work>, Result<(), FstressError>);

    /// Adds up what all ranks measured; each gets the same. A rank has `patience` to come.
    fn merge(
        &mut self,
        measured: Measured,
        rate: Option<f64>,
        file_set: measure::FileSetRecord,
        patience: Duration,
    ) -> Result<(Measured, measure::FileSetRecord, Vec<RankPart>), FstressError>;
}

impl FstressRanks for RankGroup {
    fn seed(&self, seed: u64) -> u64 {
        if !self.is_joined() {
            return seed;
        }
        rand::Rng::next_u64(&mut stream(seed, 1_000_000 + u64::from(self.rank())))
    }

    fn set_name(&self, name: &str) -> String {
        if self.is_joined() { set_name_of(name, self.rank()) } else { name.to_owned() }
    }

    fn orphaned_set_name(&self, name: &str) -> Option<String> {
        let lost = self.lost().filter(|lost| matches!(lost.fate, Fate::Gone(_)))?;
        let remover = u32::from(lost.rank == 0);
        (self.rank() == remover).then(|| set_name_of(name, lost.rank))
    }

    fn all_went(
        &mut self,
        step: &str,
        went: Result<(), FstressError>,
        work: Option<Work>,
    ) -> (Option<Work>, Result<(), FstressError>) {
        if !self.is_joined() {
            return (work, went);
        }
        let mine = match &went {
            Ok(()) => Went::Well,
            Err(FstressError::Interrupted) => Went::Interrupted,
            Err(FstressError::Ranks(RanksError::Elsewhere { why, .. })) => Went::Wrong(why.clone()),
            Err(error) => Went::Wrong(measure::error_chain(error)),
        };
        let (work, agreed) = self.agree_on(step, mine, work, Work::add);
        let result = match agreed {
            Ok(Agreed::Well) => Ok(()),
            Ok(Agreed::WrongHere) => went,
            Err(error) => Err(error.into()),
        };
        (work, result)
    }

    fn merge(
        &mut self,
        measured: Measured,
        rate: Option<f64>,
        file_set: measure::FileSetRecord,
        patience: Duration,
    ) -> Result<(Measured, measure::FileSetRecord, Vec<RankPart>), FstressError> {
        if !self.is_joined() {
            return Ok((measured, file_set, vec![]));
        }
        let mut measured = measured;
        measured.late_ranks.extend(judge::lateness_text(&measured).map(|text| (self.rank(), text)));
        let my_rate = rate.map(|rate| self.rate_of(rate));
        let row = self.row(judge::rank_part(&measured, my_rate));
        let mine = PointPart { measured: MeasuredPart::of(&measured), file_set, rows: vec![row] };
        let whole: PointPart = self.add_up_within("a load point's end", mine, patience, PointPart::sum)?;
        let merged = whole.measured.into_measured(measured, &whole.rows, self.rank());
        if merged.cut_short.is_some() {
            self.note_all_know();
        }
        Ok((merged, whole.file_set, whole.rows))
    }
}

fn set_name_of(name: &str, rank: u32) -> String {
    format!("{name}-r{rank}")
}
