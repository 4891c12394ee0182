//! Says what is waited for when a server is slow to answer, so that a terminal is not silent for as long as it is given.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use super::output::say;

/// For so long a user takes silence for work.
const SILENT_MAX: Duration = Duration::from_secs(3);

/// Does `work`, and says after three seconds that it waits for `server`.
pub fn said_when_slow<T>(server: &str, work: impl FnOnce() -> T) -> T {
    after(SILENT_MAX, || say(&format!("waiting for an answer of {server}")), work)
}

/// Does `work`, and calls `notify` when that takes longer than `silent_max`.
fn after<T>(silent_max: Duration, notify: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
    let (done, ended) = channel::<()>();
    std::thread::scope(|scope| {
        let wait = move || {
            if ended.recv_timeout(silent_max) == Err(RecvTimeoutError::Timeout) {
                notify();
            }
        };
        // Without the thread the work is done all the same, in silence.
        let _ = std::thread::Builder::new().name("slow-server".to_owned()).spawn_scoped(scope, wait);
        let result = work();
        drop(done);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_slow_is_waited_for_aloud_and_one_that_answers_in_silence() {
        let (notified, heard) = channel();
        // It answers once the user has heard that it is waited for.
        let answer = after(Duration::ZERO, move || notified.send(()).unwrap(), || heard.recv().map(|()| 7));
        assert_eq!(answer, Ok(7));
        let quick = after(Duration::MAX, || panic!("nothing was to be said"), || 7);
        assert_eq!(quick, 7);
    }
}
