//! Comparing this rank's clock with that of rank 0.

use harness::ranks::{ClockOffset, RoundTrip};

use super::{MessageLoop, ONE, PING, PONG, TURN};

/// Round trips of which the quickest gives the offset of a clock.
const ROUND_TRIPS: u32 = 40;

impl MessageLoop<'_> {
    /// Round trips between each rank and rank 0, one rank after the other, so that none waits behind another.
    pub(super) fn compare_clocks(&mut self) -> ClockOffset {
        if self.rank == 0 {
            for rank in 1..self.ranks {
                let until = Some(self.clock.now() + self.patience * 2);
                self.send(rank, TURN, ONE);
                for _ in 0..ROUND_TRIPS {
                    self.receive(PING, &[rank], until);
                    let now_ns = self.now_ns();
                    self.send(rank, PONG, &now_ns.to_le_bytes());
                }
            }
            return ClockOffset::default();
        }
        self.receive(TURN, &[0], None);
        let until = Some(self.clock.now() + self.patience * 2);
        let trips: Vec<RoundTrip> = (0..ROUND_TRIPS)
            .map(|_| {
                let asked_ns = self.now_ns();
                self.send(0, PING, ONE);
                let (_, answer) = self.receive(PONG, &[0], until);
                let heard_ns = self.now_ns();
                let answered_ns = answer.try_into().map_or(0, u64::from_le_bytes);
                RoundTrip { asked_ns, answered_ns, heard_ns }
            })
            .collect();
        ClockOffset::of(trips)
    }

    fn now_ns(&self) -> u64 {
        self.clock.now().saturating_duration_since(self.epoch).as_nanos() as u64
    }
}
