//! An open loop: requests are due at planned moments, whether or not earlier ones were answered.
//!
//! Requests that a stall of the generator holds back leave together, and that is another load than the planned one. The
//! generator therefore records how late it sent and took replies ([`LatenessLog`], [`SendTimes`]), waits as its machine allows
//! ([`Pacer`]) and wakes as exactly as the kernel allows ([`Precise`]).
//!
//! Not here: when requests are due and which ones they are. Each benchmark has a schedule of its own, so that a seed
//! gives the same operations whatever this module becomes.

mod awake_cpus;
mod fine_timers;
mod free_cpus;
mod lateness;
mod pacer;
mod pinned;
mod precise;
mod reply_times;
mod run_delay;
mod send_times;
mod shortfall;
mod wait;

pub use self::fine_timers::FineTimers;
pub use self::lateness::{
    FIGURES_LATE, GENERATOR_LATE, GeneratorLimits, Lateness, LatenessLog, Moved, SENDS_LATE,
};
pub use self::pacer::{Moment, Pacer, Waiter};
pub use self::precise::Precise;
pub use self::reply_times::{ReplyTime, ReplyTimes, Sleep, TakenReply};
pub use self::run_delay::RunDelay;
pub use self::send_times::SendTimes;
pub use self::shortfall::{Culprit, Shortfall, TRANSPORT_FULL};
pub use measure::RATE_OFF;
pub use sys::{Received, receive, receive_stamped, stamp_arrivals};

pub use self::wait::{NotAWait, Wait, WaitChoice, chosen_waiting};

/// Code of the verdict on a load point whose generator had no time left.
pub const GENERATOR_BUSY: &str = "generator-busy";
