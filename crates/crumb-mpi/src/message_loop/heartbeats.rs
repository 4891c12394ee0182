//! Signs of life, once a second and both ways, and the alarms that come between them.
//!
//! Always holds: nothing is sent within a quiet period except an alarm, which ends it; a rank is silent only when this one has
//! been there to hear it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use harness::ranks::{Fate, Lost};
use mpi::request::StaticScope;
use mpi::traits::{Communicator as _, Destination as _, MatchedReceiveVec as _, Source as _};
use quanta::Instant;

use super::alarm::Alarm;
use super::{ALARM, Doing, HEARTBEAT, MessageLoop, ONE};

pub(super) const HEARTBEAT_EVERY: Duration = Duration::from_secs(1);
/// What is sent this late before an interval may still be on its way when it begins.
const BEFORE_HUSH: Duration = Duration::from_millis(100);

impl MessageLoop<'_> {
    pub(super) fn look(&mut self) {
        let now = self.clock.now();
        if self.ranks > 1
            && let Err(lost) = self.exchange_beats(now)
        {
            self.end_all(lost);
        }
    }

    pub(super) fn exchange_beats(&mut self, now: Instant) -> Result<(), Lost> {
        while let Some((message, status)) =
            self.world.any_process().immediate_matched_probe_with_tag(HEARTBEAT)
        {
            let from = status.source_rank() as usize;
            let _: (Vec<u8>, _) = (message, status).matched_receive_vec();
            self.heard[from] = now;
        }
        while let Some(alarm) = self.world.any_process().immediate_matched_probe_with_tag(ALARM) {
            let (text, _): (Vec<u8>, _) = alarm.matched_receive_vec();
            match (Alarm::read(&text), self.doing) {
                (Alarm::Stop, _) => self.stop.store(true, Ordering::Relaxed),
                // So does this one.
                (Alarm::Left(_), Doing::Leaving(_)) => {}
                // The verb hears of it when it needs the others, and ends soon; or needs them no more. What it is waiting for
                // may have been sent before.
                (Alarm::Left(end), Doing::Nothing | Doing::Asked) => {
                    self.ended.get_or_insert(end);
                    self.stop.store(true, Ordering::Relaxed);
                }
                (Alarm::End(lost), _) => return Err(lost),
            }
        }
        if self.stop.load(Ordering::Relaxed) && !self.asked_to_stop {
            self.asked_to_stop = true;
            // The interval ends here, and the quiet with it.
            self.quiet_period.1 = self.quiet_period.1.min(now);
            for peer in self.peers() {
                self.alarm(peer, &Alarm::Stop);
            }
        }
        // A process that was itself away, stopped or starved, first has to read what came meanwhile.
        let away = now.saturating_duration_since(std::mem::replace(&mut self.looked, now));
        if away > self.patience / 2 {
            for peer in self.peers() {
                self.heard[peer as usize] = now;
            }
        }
        let (from, until) = self.quiet_period;
        if now >= from && now < until && !self.was_quiet {
            tracing::debug!(rank = self.rank, "an interval is under way");
        }
        self.was_quiet = now >= from && now < until;
        if now + BEFORE_HUSH >= from && now < until {
            return Ok(());
        }
        if now >= self.next_heartbeat {
            self.next_heartbeat = now + HEARTBEAT_EVERY;
            for peer in self.peers() {
                self.send_heartbeat(peer);
            }
        }
        for peer in self.peers() {
            // No rank was to be heard until the end of the last quiet period.
            let heard = self.heard[peer as usize];
            let heard = if now >= until { heard.max(until) } else { heard };
            let silent = now.saturating_duration_since(heard);
            if silent > self.patience {
                let how = format!("has not been heard of for {:.0} s", silent.as_secs_f64());
                return Err(self.lost(peer, Fate::Gone(how)));
            }
        }
        Ok(())
    }

    fn send_heartbeat(&mut self, to: u32) {
        let slot = &mut self.heartbeats[to as usize];
        if let Some(flying) = slot.take()
            && let Err(still) = flying.test()
        {
            // The one before has not gone: a second would only queue up behind it.
            *slot = Some(still);
            return;
        }
        *slot =
            Some(self.world.process_at_rank(to as i32).immediate_send_with_tag(StaticScope, ONE, HEARTBEAT));
    }

    /// Keeps MPI going while all end, so that what others sent does not hold them up, and shows them that this rank lives:
    /// it is not to be taken for lost as well.
    pub(super) fn keep_up(&mut self) {
        for tag in [HEARTBEAT, ALARM] {
            while let Some(message) = self.world.any_process().immediate_matched_probe_with_tag(tag) {
                let _: (Vec<u8>, _) = message.matched_receive_vec();
            }
        }
        let now = self.clock.now();
        if now >= self.next_heartbeat {
            self.next_heartbeat = now + HEARTBEAT_EVERY;
            self.peers().for_each(|peer| self.send_heartbeat(peer));
        }
    }
}
