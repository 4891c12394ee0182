//! More changes below than the kernel keeps for the mount that watches them. In a process of its own, as the limit is the
//! machine's, and is set for as long as this runs.

#[path = "it/scene.rs"]
mod scene;

use std::fs;
use std::time::{Duration, Instant};

use scene::{Scene, cannot_mount};

const LIMIT: &str = "/proc/sys/fs/fanotify/max_queued_events";

/// Sets the limit back, also when the test fails.
struct Limited(String);

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = fs::write(LIMIT, &self.0);
    }
}

fn soon(is: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        if is() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn changes_that_were_lost_are_seen_as_soon_as_those_that_were_not() {
    if cannot_mount() {
        return;
    }
    let limited = fs::read_to_string(LIMIT).map_err(|error| error.to_string()).and_then(|before| {
        fs::write(LIMIT, "8").map_err(|error| format!("{LIMIT} cannot be set: {error}"))?;
        Ok(Limited(before))
    });
    let Some(_limited) = testkit::need(limited) else { return };
    let scene = Scene::new();
    for directory in ["a", "b"] {
        fs::create_dir(scene.lower(directory)).unwrap();
    }
    for round in 0..5 {
        let paths =
            |kind: &str| (0..100).map(|number| format!("{kind}/{round}.{number}")).collect::<Vec<_>>();
        let (there, missing) = (paths("a"), paths("b"));
        for path in &there {
            fs::write(scene.lower(path), "text").unwrap();
        }
        // Believed by the kernel, for minutes.
        assert!(soon(|| there.iter().all(|path| scene.at(path).exists())));
        assert!(!missing.iter().any(|path| scene.at(path).exists()));
        let open: Vec<_> = there.iter().map(|path| fs::File::open(scene.at(path)).unwrap()).collect();
        for (old, new) in there.iter().zip(&missing) {
            fs::write(scene.lower(old), "a longer text").unwrap();
            fs::rename(scene.lower(old), scene.lower(new)).unwrap();
        }
        let has_moved = || {
            !there.iter().any(|path| scene.at(path).exists())
                && missing.iter().all(|path| fs::metadata(scene.at(path)).is_ok_and(|is| is.len() == 13))
        };
        assert!(soon(has_moved), "round {round}: names");
        assert!(
            soon(|| open.iter().all(|file| file.metadata().is_ok_and(|is| is.len() == 13))),
            "round {round}: attributes of open files"
        );
    }
}
