//! Whether to believe a run, and what the reader should know of it.
//!
//! Not here: what shows on one machine alone, which the rank there finds out (see `outcome`).

use measure::Verdict;

use super::part::{Ending, Part};
use crate::spool::unbatch::UnbatchCounts;

/// From the whole.
pub(crate) fn verdict(whole: &Part) -> Verdict {
    let mut verdict = Verdict::valid();
    if whole.ending == Ending::Interrupted {
        verdict.invalidate("interrupted", "the run was interrupted");
    }
    whole.machine().judge(&mut verdict);
    whole.idle_rules.iter().for_each(|text| verdict.remark("place-without-groups", text.clone()));
    if whole.batches_taken < whole.feed_batches {
        let (taken, of) = (whole.batches_taken, whole.feed_batches);
        let text = format!(
            "the passes take {taken} of the feed's {of} batches; without --batches-per-pass they take all"
        );
        verdict.remark("feed-not-all-offered", text);
    }
    of_earlier_runs(whole, &mut verdict);
    let missing = whole.counts.expire.names_missing;
    if missing > 0 {
        verdict.invalidate("expired-missing", format!("{missing} files to be expired were not there"));
    }
    nothing_stored(whole, &mut verdict);
    whole.local.iter().for_each(|finding| verdict.remark(&finding.code, finding.text.clone()));
    let unbatch = whole.phases.iter().map(|phase| &phase.phase).filter(|phase| phase.name == "unbatch");
    if let Some(wall_s) = unbatch.map(|phase| phase.wall_s).min_by(f64::total_cmp)
        && wall_s < 1.0
    {
        let text =
            format!("a pass stored its articles in {wall_s:.2} s: chance weighs much in so short a time");
        verdict.remark("short-passes", text);
    }
    let (damaged, broken) = (whole.counts.damaged, whole.counts.unbatch.broken);
    if damaged + broken > 0 {
        let text =
            format!("{broken} articles of the feed were refused as broken, {damaged} stretches damaged");
        verdict.remark("broken-articles", text);
    }
    verdict
}

fn of_earlier_runs(whole: &Part, verdict: &mut Verdict) {
    if let Some(recovered) = whole.recovered.filter(|recovered| recovered.names_missing > 0) {
        let missing = recovered.names_missing;
        let text = format!("{missing} files that history has were missing when the spool was resumed");
        verdict.invalidate("articles-lost", text);
    }
    let mut earlier = whole.phases.iter().filter(|phase| phase.earlier);
    let (count, last) = (earlier.clone().count(), earlier.next_back().map(|phase| &phase.phase));
    if let Some(last) = last {
        let text = format!(
            "resumed: the {count} phases up to {} of pass {} were measured by an earlier run, whose record has them too; \
             counts of articles are those of this run, and a phase that was under way counts what was left of it",
            last.name, last.pass
        );
        verdict.remark("resumed", text);
    }
}

fn nothing_stored(whole: &Part, verdict: &mut Verdict) {
    let UnbatchCounts { offered, duplicates, broken, .. } = whole.counts.unbatch;
    let damaged = whole.counts.damaged;
    let why = format!(
        "{offered} were offered, of which {duplicates} had come before and {broken} are no articles, and {damaged} \
         stretches of the feed could not be read"
    );
    if whole.ranks.is_empty() {
        let mut unbatch =
            whole.phases.iter().map(|phase| &phase.phase).filter(|phase| phase.name == "unbatch");
        let any = unbatch.clone().next().is_some();
        if any && unbatch.all(|phase| phase.items == 0) {
            verdict.invalidate("nothing-stored", format!("no article was stored: {why}"));
        }
    }
    for rank in &whole.ranks {
        if !rank.stored.is_empty() && rank.stored.iter().all(|(_, items, _)| *items == 0) {
            let (rank, host) = (rank.rank, &rank.host);
            let text = format!("rank {rank} on {host} stored no article; of all ranks {why}");
            verdict.invalidate("nothing-stored", text);
        }
    }
}

#[cfg(test)]
mod tests {
    use measure::Phase;

    use super::*;
    use crate::spool::results::part::{LocalFinding, MeasuredPhase, OfRank};

    fn unbatch(items: u64) -> MeasuredPhase {
        let phase = Phase { name: "unbatch".to_owned(), pass: 1, wall_s: 2.0, items, ..Phase::default() };
        MeasuredPhase { phase, whole: true, ..MeasuredPhase::default() }
    }

    #[test]
    fn an_interrupted_run_is_invalid_and_one_whose_time_was_up_is_not() {
        let ended = |ending| verdict(&Part { ending, phases: vec![unbatch(1)], ..Part::default() });
        let interrupted = ended(Ending::Interrupted);
        assert!(!interrupted.valid && interrupted.has("interrupted"), "{interrupted:?}");
        assert!(
            [Ending::Complete, Ending::OutOfTime].into_iter().all(|ending| ended(ending).reasons.is_empty())
        );
    }

    #[test]
    fn a_rank_that_stored_nothing_spoils_the_run_and_is_named() {
        let rank = |rank, items| OfRank { rank, host: "h".to_owned(), stored: vec![(1, items, 0.0)] };
        let ranks = vec![rank(0, 5), rank(1, 0)];
        let found = verdict(&Part { phases: vec![unbatch(5)], ranks, ..Part::default() });
        assert!(!found.valid && found.to_string().contains("rank 1 on h stored no article"), "{found}");
        assert!(verdict(&Part { phases: vec![unbatch(0)], ..Part::default() }).has("nothing-stored"));
    }

    #[test]
    fn what_the_machine_shows_and_what_an_earlier_run_measured_are_remarks() {
        let local = vec![LocalFinding { code: "discard".to_owned(), text: "x".to_owned() }];
        let phases = vec![MeasuredPhase { earlier: true, ..unbatch(5) }, unbatch(5)];
        let found = verdict(&Part { phases, local, feed_batches: 3, batches_taken: 2, ..Part::default() });
        let codes: Vec<&str> = found.reasons.iter().map(|reason| reason.code.as_str()).collect();
        assert_eq!(codes, ["feed-not-all-offered", "resumed", "discard"]);
        assert!(found.valid && found.reasons[1].text.contains("the 1 phases up to unbatch"), "{found:?}");
    }
}
