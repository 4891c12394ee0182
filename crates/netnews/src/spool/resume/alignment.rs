//! Resuming the spools of several ranks, each from where it stands.
//!
//! ```text
//! rank 0   . waits . |  batch of pass 6 --      stopped when it had stored all of pass 6
//! rank 1   unbatch --|  batch of pass 6 --      stopped in the midst of it
//! ```
//!
//! Ranks stopped at one moment stand at the same phase or at two that follow each other: the one that has done the first
//! waits until the others have. A phase that not all did together from its begin counts in no rate.
//!
//! Always holds: all ranks refuse spools that stand further apart, before anything is done to any.
//! Not here: opening a spool (see `recovery`), the collectives at which ranks wait (`harness::ranks`).

use harness::ranks::{RankGroup, RanksError};

use super::super::config::NetnewsConfig;
use super::super::layout::Storage;
use super::Resumption;
use crate::NetnewsError;

/// A phase of a pass.
pub(crate) type PhaseOfPass = (String, u32);

/// How a rank resumes among the others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ResumeAlignment {
    /// What it has done and others have not: it is to be at the ends of these.
    pub(crate) done_before: Vec<PhaseOfPass>,
    /// What not all do together from its begin.
    pub(crate) not_whole: Vec<PhaseOfPass>,
}

/// Where a spool stands: pass, place among its phases, whether part of that phase may have been done.
type Stand = (u32, u32, bool);

impl ResumeAlignment {
    /// From where the spools of all ranks stand, which are parts of the spool `config` names; `own` is this rank's.
    ///
    /// # Errors
    /// When a rank has none or is lost, when there are spools of more ranks, or when they are too far apart.
    pub(crate) fn agree(
        group: &mut RankGroup,
        config: &NetnewsConfig,
        own: &NetnewsConfig,
        storage: &Storage,
    ) -> Result<Self, NetnewsError> {
        let mine = stand(group.ranks(), config, own, storage);
        let mine = well_on_all(group, "its spool", mine)?;
        let all: Vec<Stand> = group.add_up("where the spools stand", mine, |all| all)?;
        let aligned = Self::of(&all, group.rank() as usize, group.hosts(), config);
        well_on_all(group, "where the spools stand", aligned)
    }

    fn of(
        all: &[Stand],
        rank: usize,
        hosts: &[String],
        config: &NetnewsConfig,
    ) -> Result<Self, NetnewsError> {
        if all.iter().all(|(pass, ..)| *pass > config.passes.get()) {
            return Err(NetnewsError::NothingLeft { name: config.name.clone(), passes: config.passes.get() });
        }
        let place = |rank: usize| (all[rank].0, all[rank].1);
        let ranks = 0..all.len();
        let first = ranks.clone().min_by_key(|&rank| place(rank)).unwrap_or(rank);
        let last = ranks.max_by_key(|&rank| place(rank)).unwrap_or(rank);
        let mut apart = between(place(first), place(last), config);
        // A spool's state has a single stage for everything after batching, so its exact phase is unknown.
        let of_one_stage = |phase: &str| matches!(phase, "expire" | "flush");
        let stages_apart = apart.iter().filter(|(phase, _)| !of_one_stage(phase)).count();
        if stages_apart > 1 {
            let stands = |rank: usize| {
                let phase = config.phases_of(all[rank].0)[all[rank].1 as usize];
                format!(
                    "that of rank {rank} on {} continues with {phase} of pass {}",
                    hosts[rank], all[rank].0
                )
            };
            let (first, last) = (stands(first), stands(last));
            return Err(NetnewsError::SpoolsApart { name: config.name.clone(), first, last });
        }
        let done_before = between(place(first), place(rank), config);
        if all.iter().any(|one| one.2 && (one.0, one.1) == place(last)) {
            let (pass, at) = place(last);
            let phases = config.phases_of(pass).split_off(at as usize);
            // Deletion restarts with its scan.
            let begun = if phases[0] == "expire-scan" { 2 } else { 1 };
            apart.extend(phases.into_iter().take(begun).map(|phase| (phase.to_owned(), pass)));
        }
        Ok(Self { done_before, not_whole: apart })
    }
}

/// What a rank did for itself, when it went well on all of them.
fn well_on_all<T>(
    group: &mut RankGroup,
    step: &str,
    done: Result<T, NetnewsError>,
) -> Result<T, NetnewsError> {
    let together: Result<(), RanksError> =
        group.all_did(step, done.as_ref().err().map(|error| measure::error_chain(error)));
    // The rank's own error says more than what the other ranks received of it.
    let done = done?;
    together?;
    Ok(done)
}

fn stand(
    ranks: u32,
    config: &NetnewsConfig,
    own: &NetnewsConfig,
    storage: &Storage,
) -> Result<Stand, NetnewsError> {
    let of_further_rank = format!("{}-r{ranks}", config.name);
    if storage.has(&of_further_rank)? {
        return Err(NetnewsError::OfMoreRanks { name: config.name.clone(), ranks });
    }
    let Resumption { pass, phase, begun } = Resumption::of(own, storage)?;
    let at = own.phases_of(pass).iter().position(|known| *known == phase).unwrap_or_default();
    Ok((pass, at as u32, begun))
}

/// The phases from the one place on to before the other.
fn between(from: (u32, u32), to: (u32, u32), config: &NetnewsConfig) -> Vec<PhaseOfPass> {
    // A spool may be of many passes; how far too far apart two are does not matter.
    let passes = from.0..=to.0.min(from.0.saturating_add(2));
    let all = passes.flat_map(|pass| {
        config.phases_of(pass).into_iter().zip(0..).map(move |(phase, at)| ((pass, at), phase))
    });
    let within = all.filter(|(place, _)| *place >= from && *place < to);
    within.map(|((pass, _), phase)| (phase.to_owned(), pass)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aligned(all: &[Stand], rank: usize) -> Result<ResumeAlignment, NetnewsError> {
        let hosts: Vec<String> = (0..all.len()).map(|rank| format!("host{rank}")).collect();
        // Batches in passes 3, 6, 9 and expiries from pass 7 on.
        ResumeAlignment::of(all, rank, &hosts, &NetnewsConfig::paper("x"))
    }

    fn phases(phases: &[(&str, u32)]) -> Vec<PhaseOfPass> {
        phases.iter().map(|(phase, pass)| ((*phase).to_owned(), *pass)).collect()
    }

    #[test]
    fn spools_whose_passes_are_all_done_on_every_rank_are_not_measured_again() {
        let after = NetnewsConfig::paper("x").passes.get() + 1;
        let refused = aligned(&[(after, 0, false), (after, 0, false)], 0).unwrap_err().to_string();
        assert!(refused.contains("nothing left to measure"), "{refused}");
    }

    #[test]
    fn ranks_at_the_same_phase_wait_for_nobody_and_what_was_begun_is_no_whole_phase() {
        let midst = aligned(&[(3, 0, true), (3, 0, true)], 0).unwrap();
        assert_eq!(midst, ResumeAlignment { done_before: vec![], not_whole: phases(&[("unbatch", 3)]) });
        let fresh = aligned(&[(4, 0, false), (4, 0, false)], 1).unwrap();
        assert_eq!(fresh, ResumeAlignment::default());
        let deleting = aligned(&[(7, 1, true), (7, 1, true)], 1).unwrap();
        assert_eq!(deleting.not_whole, phases(&[("expire-scan", 7), ("expire", 7)]));
    }

    #[test]
    fn a_rank_that_is_ahead_is_there_when_the_others_end_what_it_has_done() {
        let all = [(8, 0, false), (7, 1, true), (7, 1, true)];
        let expiry = phases(&[("expire-scan", 7), ("expire", 7), ("flush", 7)]);
        let ahead = aligned(&all, 0).unwrap();
        assert_eq!((&ahead.done_before, &ahead.not_whole), (&expiry, &expiry));
        let behind = aligned(&all, 2).unwrap();
        assert_eq!((behind.done_before, behind.not_whole), (vec![], expiry));
        let batch = aligned(&[(6, 0, true), (6, 1, false)], 1).unwrap();
        assert_eq!(batch.done_before, phases(&[("unbatch", 6)]));
    }

    #[test]
    fn spools_further_apart_than_a_stop_leaves_them_are_refused_with_the_ranks_and_phases() {
        for (all, message) in [
            (
                [(3, 0, true), (5, 0, false)],
                "rank 0 on host0 continues with unbatch of pass 3, that of rank 1",
            ),
            (
                [(9, 2, true), (9, 0, true)],
                "rank 1 on host1 continues with unbatch of pass 9, that of rank 0",
            ),
            ([(2, 0, true), (4_000_000_000, 0, true)], "unbatch of pass 4000000000"),
        ] {
            let refused = aligned(&all, 0).unwrap_err().to_string();
            assert!(refused.contains(message), "{refused}");
        }
    }
}
