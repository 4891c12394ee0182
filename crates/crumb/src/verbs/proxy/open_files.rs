//! How many connections the limit of open files allows: each takes one file, and one more to an origin.

use report::count_text;
use rustix::process::{Resource, getrlimit, setrlimit};

/// The soft limit is 1024 on most systems, which stands for programs that use select. Returns the limit of open files.
pub fn raise_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Files that clients leave to the store, the log and the listeners; a quarter of the limit where that is less.
const RESERVED_FILES: u64 = 512;

/// Below this many connections the limit is worth a line though the operator asked for no number.
const CONNECTIONS_ENOUGH: usize = 1_000;

/// `wanted` connections, bounded by the limit of open files, so that clients leave some to the store; and what to tell the
/// operator, when that asked for more, or few are left of the default.
pub fn bound(wanted: usize, default: usize, files_max: u64) -> (usize, Option<String>) {
    let reserved = RESERVED_FILES.min(files_max / 4);
    let allowed = usize::try_from((files_max - reserved) / 2).unwrap_or(usize::MAX).max(1);
    // usize::MAX: as many as there can be.
    if allowed >= wanted || wanted == usize::MAX {
        return (allowed.min(wanted), None);
    }
    let was_asked_for = wanted != default;
    let text = (was_asked_for || allowed < CONNECTIONS_ENOUGH).then(|| {
        format!(
            "at most {} clients are served at a time instead of limits.connections = {wanted}: this process may open {} files, \
             {} of them are for the store, and each connection takes two; raise the limit (LimitNOFILE= of the service, \
             ulimit -Hn), or set limits.connections to what it allows",
            count_text(allowed as u64),
            count_text(files_max),
            count_text(reserved),
        )
    });
    (allowed, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_open_files_to_the_store() {
        let allowed = |files_max| bound(usize::MAX, 20_000, files_max).0;
        assert_eq!(allowed(1024), 384);
        assert_eq!(allowed(1 << 20), (1 << 19) - 256);
        assert_eq!(allowed(0), 1);
        assert_eq!(bound(100, 20_000, 1024), (100, None), "they fit");
    }

    /// Symptom: a start without any settings printed a line about open files, with nothing to be done about it.
    #[test]
    fn a_bound_is_told_when_more_was_asked_for_or_few_are_left_and_not_for_the_default() {
        assert_eq!(bound(20_000, 20_000, 20_000), (9_744, None));
        let (allowed, note) = bound(10_000, 20_000, 20_000);
        let note = note.expect("the operator asked for more");
        assert_eq!(allowed, 9_744);
        let begins = "at most 9,744 clients are served at a time instead of limits.connections = 10000: this process may open \
                      20,000 files, 512 of them are for the store";
        assert!(note.starts_with(begins), "{note}");
        let (allowed, note) = bound(20_000, 20_000, 1024);
        assert_eq!(allowed, 384);
        assert!(note.is_some_and(|note| note.contains("LimitNOFILE")), "few are left");
    }
}
