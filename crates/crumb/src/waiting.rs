//! How a generator waits between requests: the flag.

use clap::Args;
use harness::open_loop::Wait;

/// Flags of a benchmark with a schedule.
#[derive(Args, Clone, Debug)]
pub struct WaitArgs {
    /// Wait for the next request: sleep until shortly before it is due and then spin; spin all the time, which takes a
    /// whole core; or auto, which spins if cores stay free and no CPU quota forbids it
    #[arg(long, default_value_t, value_name = "auto|sleep|spin")]
    wait: Wait,

    /// The same as --wait spin
    #[arg(long, hide = true, conflicts_with = "wait")]
    spin: bool,
}

impl WaitArgs {
    /// What was asked for.
    pub fn wait(&self) -> Wait {
        if self.spin { Wait::Spin } else { self.wait }
    }
}
