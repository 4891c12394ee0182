//! Ctrl-C and SIGTERM: the first asks for a clean end, the second ends the process.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;

/// Exit code of a process that the second signal ended: 128 and the number of SIGINT, as shells say it.
const KILLED: i32 = 130;

/// A flag that the first signal raises.
///
/// # Errors
/// When the operating system lets no handler be set.
pub fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, KILLED, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("cannot listen to Ctrl-C")?;
    }
    Ok(stop)
}
