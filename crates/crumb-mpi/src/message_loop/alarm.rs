//! What is said out of turn: stop; or that a rank has come to its end; or that all are to end.
//!
//! ```text
//! nothing                          stop
//! left|end \n rank \n host \n why
//! ```

use harness::ranks::{Fate, Lost};
use mpi::request::StaticScope;
use mpi::traits::{Communicator as _, Destination as _};

use super::{ALARM, MessageLoop};

/// An alarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    /// This rank was asked to stop, or something went wrong on it: all are to stop.
    Stop,
    /// The sender has come to an end of its own, and to the ranks that continue it is lost.
    Left(Lost),
    /// From rank 0: this rank is lost, and all end.
    End(Lost),
}

impl Alarm {
    /// What it is sent as.
    pub(super) fn text(&self) -> String {
        let line = |kind: &str, lost: &Lost| {
            let (fate, how) = match &lost.fate {
                Fate::Gone(how) => ("gone", how),
                Fate::Ended(why) => ("ended", why),
            };
            // Each on its line.
            let how = how.replace('\n', " ");
            format!("{kind}\n{}\n{}\n{fate}\n{how}", lost.rank, lost.host)
        };
        match self {
            Self::Stop => String::new(),
            Self::Left(lost) => line("left", lost),
            Self::End(lost) => line("end", lost),
        }
    }

    /// What was sent; whatever means nothing asks to stop.
    pub(super) fn read(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let mut lines = text.split('\n').map(str::to_owned);
        let mut read = || {
            let (kind, rank, host, fate, how) =
                (lines.next()?, lines.next()?.parse().ok()?, lines.next()?, lines.next()?, lines.next()?);
            let fate = if fate == "ended" { Fate::Ended(how) } else { Fate::Gone(how) };
            let lost = Lost { rank, host, fate };
            match kind.as_str() {
                "left" => Some(Self::Left(lost)),
                "end" => Some(Self::End(lost)),
                _ => None,
            }
        };
        read().unwrap_or(Self::Stop)
    }
}

impl MessageLoop<'_> {
    /// Nobody waits for it to be gone, and it is sent at most twice in the life of a process: its bytes are leaked.
    pub(super) fn alarm(&self, to: u32, alarm: &Alarm) {
        let text: &'static [u8] = Vec::leak(alarm.text().into_bytes());
        let flying = self.world.process_at_rank(to as i32).immediate_send_with_tag(StaticScope, text, ALARM);
        if let Err(still) = flying.test() {
            std::mem::forget(still);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_says_who_is_lost_and_how_or_only_to_stop() {
        let lost = |fate| Lost { rank: 2, host: "b".to_owned(), fate };
        for alarm in [
            Alarm::Stop,
            Alarm::Left(lost(Fate::Ended("no such file".to_owned()))),
            Alarm::End(lost(Fate::Gone("has not been heard of".to_owned()))),
            Alarm::End(lost(Fate::Ended(String::new()))),
        ] {
            assert_eq!(Alarm::read(alarm.text().as_bytes()), alarm);
        }
        for text in [&b"x"[..], b"end\n2\n", b"\xff\n\n\n\n\n", b"end\nx\nb\ngone\nx"] {
            assert_eq!(Alarm::read(text), Alarm::Stop);
        }
    }
}
