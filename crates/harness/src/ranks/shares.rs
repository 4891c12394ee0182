//! Which part of the load is whose.
//!
//! Always holds: the parts cover the whole once; a processor is counted once, however many ranks may use it.

use std::collections::HashMap;
use std::time::Duration;

use super::RankGroup;

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
    type Err = measure::ValueError;

    fn from_str(text: &str) -> Result<Self, measure::ValueError> {
        match text {
            "even" => Ok(Self::Even),
            "cores" => Ok(Self::Cores),
            _ => Err(format!("`{text}`: expected even or cores").into()),
        }
    }
}

impl RankGroup {
    /// This rank's part of this many things; the parts of all ranks sum up to them, but none has fewer than one.
    pub fn part_of(&self, things: u64) -> u64 {
        let (from, to) = self.bounds();
        if self.0.is_none() || things == 0 {
            return things;
        }
        let at = |bound: f64| (things as f64 * bound).round() as u64;
        (at(to) - at(from)).max(1)
    }

    /// This rank's part of a rate.
    pub fn rate_of(&self, rate: f64) -> f64 {
        let (from, to) = self.bounds();
        rate * (to - from)
    }

    /// How long after the begin this rank's evenly spaced requests start, so that those of all are evenly spaced too.
    pub fn phase_of(&self, rate: f64) -> Duration {
        let (from, to) = self.bounds();
        Duration::from_secs_f64(from / (rate * (to - from)))
    }

    fn bounds(&self) -> (f64, f64) {
        self.0.as_ref().map_or((0.0, 1.0), |joined| {
            let rank = joined.exchange.rank() as usize;
            (joined.bounds[rank], joined.bounds[rank + 1])
        })
    }
}

/// Where a rank may compute.
pub(super) struct Room {
    pub host: String,
    pub cores: f64,
    pub cpus: Vec<usize>,
}

/// How many processors each rank has to itself, in fractions. A launcher that binds its ranks has divided a host already;
/// one that does not leaves that to us.
pub(super) fn fair_cores(rooms: &[Room]) -> Vec<f64> {
    let mut ranks_on: HashMap<(&str, Option<usize>), f64> = HashMap::new();
    for room in rooms {
        *ranks_on.entry((&room.host, None)).or_default() += 1.0;
        room.cpus.iter().for_each(|cpu| *ranks_on.entry((&room.host, Some(*cpu))).or_default() += 1.0);
    }
    let fair = |room: &Room| match room.cpus.len() {
        0 => room.cores / ranks_on[&(&*room.host, None)],
        count => {
            let mine: f64 = room.cpus.iter().map(|cpu| 1.0 / ranks_on[&(&*room.host, Some(*cpu))]).sum();
            // Of as many it may be allowed fewer at a time, as in a container.
            mine * (room.cores / count as f64).min(1.0)
        }
    };
    rooms.iter().map(fair).collect()
}

/// Where each one's part of the whole begins and ends.
pub(super) fn bounds(weights: &[f64]) -> Vec<f64> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranks_of_a_host_never_have_more_processors_than_it_has(
            ranks in prop::collection::vec((0usize..3, prop::collection::btree_set(0usize..8, 1..8)), 1..12),
        ) {
            let rooms: Vec<Room> = ranks.iter().map(|(host, cpus)| Room {
                host: format!("host{host}"),
                cores: cpus.len() as f64,
                cpus: cpus.iter().copied().collect(),
            }).collect();
            let fair = fair_cores(&rooms);
            for host in 0..3 {
                let used: std::collections::BTreeSet<usize> =
                    ranks.iter().filter(|(at, _)| *at == host).flat_map(|(_, cpus)| cpus.clone()).collect();
                let sum: f64 = ranks.iter().zip(&fair).filter(|((at, _), _)| *at == host).map(|(_, fair)| fair).sum();
                prop_assert!((sum - used.len() as f64).abs() < 1e-9, "{sum} of {used:?}");
            }
        }

        #[test]
        fn bounds_cover_everything_once(weights in prop::collection::vec(1.0f64..64.0, 1..200)) {
            let bounds = bounds(&weights);
            prop_assert_eq!((bounds[0], bounds[weights.len()]), (0.0, 1.0));
            prop_assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }

    /// Symptom: with `--share cores`, two ranks that the launcher had bound to 4 of 8 processors each counted for 2.
    /// Cause: what each may use was divided by the ranks of the host once more. Fix: each processor is divided among
    /// those that may use it.
    #[test]
    fn processors_that_the_launcher_has_divided_are_not_divided_again() {
        let room = |host: &str, cores: f64, cpus: std::ops::Range<usize>| Room {
            host: host.to_owned(),
            cores,
            cpus: cpus.collect(),
        };
        let bound = [room("a", 4.0, 0..4), room("a", 4.0, 4..8), room("b", 2.0, 0..2)];
        assert_eq!(fair_cores(&bound), [4.0, 4.0, 2.0]);
        let free = [room("a", 8.0, 0..8), room("a", 8.0, 0..8), room("b", 2.0, 0..2)];
        assert_eq!(fair_cores(&free), [4.0, 4.0, 2.0]);
        // Two in a container of 8 processors that lets 3 be used at a time.
        let quota = [room("a", 3.0, 0..8), room("a", 3.0, 0..8)];
        assert_eq!(fair_cores(&quota), [1.5, 1.5]);
        let unknown = [room("a", 8.0, 0..0), room("a", 8.0, 0..0)];
        assert_eq!(fair_cores(&unknown), [4.0, 4.0]);
    }
}
