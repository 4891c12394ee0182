//! Ctrl-C and SIGTERM: the first asks for a clean end, a later one ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Exit code of a process that the second signal ended: 128 and the number of SIGINT, as shells say it.
const KILLED: i32 = 130;
/// A second signal so soon is the first one again: timeout(1) signals the process and then its group, and whatever
/// cleaning up was under way would stay undone.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// A flag that the first signal raises.
///
/// # Errors
/// When the operating system lets no handler be set.
pub fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    stop_flag_waking(|| {})
}

/// The same; `wake` is called when it is raised, for a thread that sleeps until then.
///
/// # Errors
/// As [`stop_flag`].
pub fn stop_flag_waking(wake: impl Fn() + Send + 'static) -> anyhow::Result<Arc<AtomicBool>> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot listen to Ctrl-C")?;
    let stop = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&stop);
    let listen = move || {
        let mut first: Option<Instant> = None;
        for _ in signals.forever() {
            raised.store(true, Ordering::Relaxed);
            wake();
            if first.get_or_insert_with(Instant::now).elapsed() > SAME_SIGNAL {
                std::process::exit(KILLED);
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(listen)
        .context("cannot listen to Ctrl-C")?;
    Ok(stop)
}
