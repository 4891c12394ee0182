//! Why requests that were due were not answered in time: whose fault it is.
//!
//! | what happened | whose |
//! |---|---|
//! | sent and not answered in time | the storage's |
//! | not sent, as no thread, slot or connection of ours was free | ours: `transport-full` |
//! | the same, while what was sent took several times as long as at a light load | the storage's, which has the queue |
//! | not sent, though there was room | the generator's |
//!
//! Not here: latencies (see `lateness`).

use measure::Verdict;

use super::{GENERATOR_LATE, GeneratorLimits, RATE_OFF, pinned};

/// Code of the verdict on a load point at which requests waited for room on our side.
pub const TRANSPORT_FULL: &str = "transport-full";

/// Share of the interval in which requests waited for room, from which it is said.
const FULL_MIN: f64 = 0.01;
/// A storage that takes this many times as long as at a light load has a queue of its own.
const SLOWER_MIN: f64 = 3.0;

/// What became of the requests of a load point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shortfall {
    /// Requests due.
    pub due: u64,
    /// Of those, sent.
    pub sent: u64,
    /// Answers in time.
    pub answered: u64,
    /// Share of the interval in which requests waited for a thread, slot or connection of ours, 0 to 1.
    pub full_share: f64,
    /// Median latency from the moment really sent, microseconds.
    pub sent_p50_us: f64,
    /// The same at the lightest load of this run; none when there was no other.
    pub light_p50_us: Option<f64>,
}

/// Who kept requests from being answered in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// The storage.
    Storage,
    /// The generator.
    Generator,
    /// Our way to the storage: too few threads, slots or connections.
    Transport,
}

impl Shortfall {
    /// Share of what was due that was answered in time.
    pub fn held(&self) -> f64 {
        self.answered as f64 / self.due.max(1) as f64
    }

    /// Who is to blame for what was not answered in time.
    pub fn culprit(&self) -> Culprit {
        let missing = self.due.saturating_sub(self.answered);
        let unsent = self.due.saturating_sub(self.sent);
        if self.full_share >= FULL_MIN {
            let is_slower = self.light_p50_us.is_some_and(|light| self.sent_p50_us >= SLOWER_MIN * light);
            if is_slower { Culprit::Storage } else { Culprit::Transport }
        } else if 2 * unsent > missing {
            Culprit::Generator
        } else {
            Culprit::Storage
        }
    }

    /// Says in the verdict why too few were answered, calling the storage by `storage`. Whether it is saturated; none when
    /// enough were answered.
    pub fn judge(
        &self,
        limits: &GeneratorLimits,
        storage: &str,
        more_room: &str,
        verdict: &mut Verdict,
    ) -> Option<bool> {
        let full = format!(
            "requests waited for a free thread, slot or connection of this program for {:.0}% of the time",
            100.0 * self.full_share
        );
        if self.held() >= limits.held_min {
            if self.full_share >= FULL_MIN {
                verdict.remark(TRANSPORT_FULL, full);
            }
            return None;
        }
        let unsent = self.due.saturating_sub(self.sent);
        let unanswered = self.due.saturating_sub(self.answered).saturating_sub(unsent);
        let culprit = self.culprit();
        let whose = match culprit {
            Culprit::Storage => format!("{storage} did not keep up"),
            Culprit::Generator => "the generator did not send them".to_owned(),
            Culprit::Transport => "this program had no room for more".to_owned(),
        };
        verdict.invalidate(
            RATE_OFF,
            format!(
                "{:.1}% of the {} requests due were not answered in time ({unsent} never sent, {unanswered} sent but unanswered): {whose}",
                100.0 * (1.0 - self.held()),
                self.due
            ),
        );
        match culprit {
            Culprit::Storage if self.full_share >= FULL_MIN => verdict.remark(TRANSPORT_FULL, full),
            Culprit::Storage => {}
            Culprit::Generator => verdict.invalidate(
                GENERATOR_LATE,
                format!("the generator did not send {unsent} requests; {}", pinned::remedy()),
            ),
            Culprit::Transport => verdict.invalidate(TRANSPORT_FULL, format!("{full}; {more_room}")),
        }
        Some(culprit == Culprit::Storage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: Shortfall = Shortfall {
        due: 1000,
        sent: 1000,
        answered: 1000,
        full_share: 0.0,
        sent_p50_us: 100.0,
        light_p50_us: Some(100.0),
    };

    #[test]
    fn each_shortfall_is_blamed_on_the_one_that_caused_it() {
        for (what, shortfall, culprit) in [
            ("replies were thrown away", Shortfall { answered: 900, ..HELD }, Culprit::Storage),
            ("the generator had no time", Shortfall { sent: 800, answered: 790, ..HELD }, Culprit::Generator),
            (
                "few threads",
                Shortfall { sent: 500, answered: 490, full_share: 0.9, ..HELD },
                Culprit::Transport,
            ),
            (
                "a queue in the storage, all slots in use",
                Shortfall { sent: 500, answered: 490, full_share: 0.9, sent_p50_us: 9_000.0, ..HELD },
                Culprit::Storage,
            ),
            (
                "few threads at the first level",
                Shortfall { sent: 500, answered: 490, full_share: 0.9, light_p50_us: None, ..HELD },
                Culprit::Transport,
            ),
        ] {
            assert_eq!(shortfall.culprit(), culprit, "{what}");
            let mut verdict = Verdict::valid();
            let is_saturated = shortfall.judge(&GeneratorLimits::default(), "the storage", "", &mut verdict);
            assert_eq!(is_saturated, Some(culprit == Culprit::Storage), "{what}: {verdict}");
            assert!(verdict.has(RATE_OFF), "{what}: {verdict}");
            let fatal = |code: &str| verdict.reasons.iter().any(|reason| reason.fatal && reason.code == code);
            assert_eq!(fatal(TRANSPORT_FULL), culprit == Culprit::Transport, "{what}: {verdict}");
            assert_eq!(fatal(GENERATOR_LATE), culprit == Culprit::Generator, "{what}: {verdict}");
        }
    }

    #[test]
    fn a_level_that_held_has_no_culprit() {
        let mut verdict = Verdict::valid();
        assert_eq!(HELD.judge(&GeneratorLimits::default(), "the storage", "", &mut verdict), None);
        assert_eq!(verdict, Verdict::valid());
    }
}
