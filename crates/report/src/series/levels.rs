//! Which of a run's load levels the cumulative plot draws at first, and the text on each line.
//!
//! 1. Up to six levels: all of them.
//! 2. Of more: VALID levels from the lowest load to the highest, evenly apart, and the lowest saturated level.
//! 3. With fewer than four of those: the others in their order, until there are six.
//!
//! Always holds: of four levels and more, four to six are drawn; an INVALID one only where others are too few.

use measure::{LevelState, LoadPoint, LoopKind};

use super::Tag;
use crate::figures::round_rate_text;

const SHOWN_MAX: usize = 6;
const SHOWN_MIN: usize = 4;

/// Which of these levels, which come by rising load.
pub(super) fn shown(states: &[LevelState]) -> Vec<bool> {
    if states.len() <= SHOWN_MAX {
        return vec![true; states.len()];
    }
    let of =
        |state: LevelState| -> Vec<usize> { (0..states.len()).filter(|at| states[*at] == state).collect() };
    let (saturated, invalid) = (of(LevelState::Saturated), of(LevelState::Invalid));
    // What is over a search's bound was held all the same.
    let is_held = |at: &usize| matches!(states[*at], LevelState::Valid | LevelState::OverBound);
    let valid: Vec<usize> = (0..states.len()).filter(is_held).collect();
    let room = SHOWN_MAX - usize::from(!saturated.is_empty());
    let mut chosen: Vec<usize> = spread(valid.len(), room).map(|at| valid[at]).collect();
    chosen.extend(saturated.first());
    if chosen.len() < SHOWN_MIN {
        chosen.extend(saturated.iter().skip(1).chain(&invalid));
        chosen.truncate(SHOWN_MAX);
    }
    (0..states.len()).map(|at| chosen.contains(&at)).collect()
}

/// `wanted` of `count` things, the first and the last among them.
fn spread(count: usize, wanted: usize) -> impl Iterator<Item = usize> {
    let wanted = wanted.min(count);
    (0..wanted).map(move |nth| if wanted < 2 { 0 } else { nth * (count - 1) / (wanted - 1) })
}

/// A level's name; one of the same name came `earlier` times.
pub(super) fn again(name: String, earlier: usize) -> String {
    if earlier == 0 { name } else { format!("{name}, again ({})", earlier + 1) }
}

/// The text on a level's line, which is the nth of those drawn at first, or none of them. The lines of low load lie to the left
/// and have their texts on that side, each at a height of its own.
pub(super) fn tag(
    point: &LoadPoint,
    earlier: usize,
    latency_ms: &[f64],
    share_percent: &[f64],
    place: Option<(usize, usize)>,
) -> Tag {
    let name = match point.loop_kind {
        LoopKind::Open => format!("{}/s", round_rate_text(point.offered_per_sec.unwrap_or(0.0))),
        LoopKind::Closed => format!("{} outstanding", point.outstanding.unwrap_or(0)),
    };
    let state = match point.state() {
        LevelState::Valid => "",
        LevelState::OverBound => ", over the bound",
        LevelState::Saturated => ", saturated",
        LevelState::Invalid => ", INVALID",
    };
    let (nth, of) = place.unwrap_or((1, 3));
    let height = 12.0 + 76.0 * (nth as f64 + 0.5) / of.max(1) as f64;
    let at = share_percent.iter().position(|share| *share >= height).unwrap_or(share_percent.len() - 1);
    Tag {
        text: format!("{}{state}", again(name, earlier)),
        latency_ms: latency_ms[at],
        share_percent: share_percent[at].min(100.0),
        left: 2 * nth < of && of > 1,
    }
}

#[cfg(test)]
mod tests {
    use LevelState::{Invalid, Saturated, Valid};

    use super::*;

    fn places(states: &[LevelState]) -> Vec<usize> {
        shown(states).iter().enumerate().filter(|(_, shown)| **shown).map(|(at, _)| at).collect()
    }

    #[test]
    fn few_levels_are_all_drawn_and_of_many_the_valid_ones_evenly_and_the_lowest_saturated_one() {
        assert_eq!(places(&[Valid, Invalid, Saturated]), [0, 1, 2]);
        assert_eq!(places(&[Valid; 11]), [0, 2, 4, 6, 8, 10]);
        let sweep =
            [Valid, Valid, Invalid, Valid, Valid, Valid, Valid, Valid, Valid, Valid, Saturated, Saturated];
        assert_eq!(places(&sweep), [0, 3, 5, 7, 9, 10]);
    }

    #[test]
    fn where_valid_levels_are_few_others_are_drawn_too() {
        let late = [Valid, Invalid, Invalid, Saturated, Invalid, Saturated, Invalid, Invalid];
        assert_eq!(places(&late), [0, 1, 2, 3, 4, 5]);
        assert_eq!(places(&[Invalid; 9]).len(), 6);
        for count in 4..20 {
            let states: Vec<LevelState> = (0..count).map(|at| [Valid, Saturated, Invalid][at % 3]).collect();
            assert!((4..=6).contains(&places(&states).len()), "{count}");
        }
    }
}
