//! Finds where a kept spool continues, before the run changes it: several ranks must compare this first.
//!
//! A spool keeps two files for it: `state`, how far the run has come, and `journal`, the passes done.
//!
//! Always holds: nothing is written here; a run with `Keep::Resume` begins with the phase returned here.
//! Not here: recovery after a kill (see `recovery`), the passes (see `passes`).

pub(crate) mod alignment;
pub(super) mod journal;
pub(super) mod state;

use self::state::{Stage, State};
use super::config::NetnewsConfig;
use super::layout::{Storage, Whereabouts};
use crate::NetnewsError;

/// What a resumed run does first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// The pass, from 1; one more than the last if all are done.
    pub pass: u32,
    /// The first phase to do.
    pub phase: &'static str,
    /// Whether part of it may be done already.
    pub begun: bool,
}

impl NetnewsConfig {
    /// The phases of a pass, in their order.
    pub fn phases_of(&self, pass: u32) -> Vec<&'static str> {
        let batches = pass > 1 && self.batch_every.is_some_and(|every| pass.is_multiple_of(every.get()));
        let expires = pass > self.retention.get();
        let phases = [
            ("unbatch", true),
            ("batch", batches),
            ("expire-scan", expires),
            ("expire", expires),
            ("flush", true),
        ];
        phases.into_iter().filter_map(|(phase, due)| due.then_some(phase)).collect()
    }
}

impl Resumption {
    /// Reads how far the spool of this run has come.
    ///
    /// # Errors
    /// When there is no such spool, or the storage fails.
    pub fn of(config: &NetnewsConfig, storage: &Storage) -> Result<Self, NetnewsError> {
        Whereabouts::read(&*storage.spool, &config.name)?;
        let from = |pass| Self { pass, phase: "unbatch", begun: false };
        let state = storage.lib(&config.name)?.map(|lib| State::standing_in(&*lib)).transpose()?.flatten();
        // Killed while the spool was created.
        let Some(standing) = state else { return Ok(from(1)) };
        let pass = standing.pass;
        let phases = config.phases_of(pass);
        // If batching did not finish, all outgoing batches are written again.
        let (next, begun): (&[&str], bool) = match standing.stage {
            Stage::Unbatch => (&["unbatch"], true),
            Stage::Batch => (&["batch", "expire-scan", "flush"], false),
            Stage::Expire => (&["expire-scan", "flush"], true),
            Stage::Done => (&[], false),
        };
        let next = phases.into_iter().find(|phase| next.contains(phase));
        Ok(next.map_or(from(pass + 1), |phase| Self { pass, phase, begun }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::scratch;
    use super::*;
    use crate::spool::resume::state::Standing;

    #[test]
    fn a_spool_continues_with_the_phase_in_its_state_or_the_next_one_due() {
        let (_folder, fs) = scratch::folder();
        let storage = Storage::of(fs);
        // Batches in passes 3, 6, 9 and expiries from pass 7 on.
        let config = NetnewsConfig::paper("x");
        assert!(matches!(Resumption::of(&config, &storage), Err(NetnewsError::NoSpool { .. })));
        let homes = storage.make("x").unwrap();
        let resumption = || {
            let Resumption { pass, phase, begun } = Resumption::of(&config, &storage).unwrap();
            (pass, phase, begun)
        };
        assert_eq!(resumption(), (1, "unbatch", false));
        let mut state = State::create(&*homes.lib, Standing::begin(6)).unwrap();
        let mut at = |pass, stage| {
            state.write(Standing { pass, stage, ..Standing::begin(6) }).unwrap();
            resumption()
        };
        assert_eq!(at(2, Stage::Unbatch), (2, "unbatch", true));
        assert_eq!(at(2, Stage::Batch), (2, "flush", false));
        assert_eq!(at(3, Stage::Batch), (3, "batch", false));
        assert_eq!(at(3, Stage::Expire), (3, "flush", true));
        assert_eq!(at(7, Stage::Batch), (7, "expire-scan", false));
        assert_eq!(at(9, Stage::Expire), (9, "expire-scan", true));
        assert_eq!(at(9, Stage::Done), (10, "unbatch", false));
        assert_eq!(config.phases_of(9), ["unbatch", "batch", "expire-scan", "expire", "flush"]);
    }
}
