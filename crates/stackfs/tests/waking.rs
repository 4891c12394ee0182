//! The daemon's threads and the processors: who waits, who is held up, who sleeps.

#[path = "it/scene.rs"]
mod scene;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use scene::{Scene, cannot_mount};
use testkit::LoopImage;
use testkit::need::{HostFeature, host};

/// Freezes a file system until dropped: what would change it waits.
struct Frozen<'a>(&'a Path);

impl<'a> Frozen<'a> {
    fn freeze(path: &'a Path) -> Self {
        assert!(Command::new("fsfreeze").arg("-f").arg(path).status().expect("fsfreeze runs").success());
        Self(path)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let thawed = Command::new("fsfreeze").arg("-u").arg(self.0).status();
        assert!(thawed.is_ok_and(|status| status.success()), "{} stays frozen", self.0.display());
    }
}

#[test]
fn a_request_that_takes_long_holds_up_no_other() {
    if cannot_mount() {
        return;
    }
    let image = LoopImage::make("ext4", 64 << 20, &[]).expect("an image");
    let folder = tempfile::tempdir_in(image.path()).unwrap();
    let scene = Scene::in_folder(folder, |mut options| {
        options.threads = 3;
        options
    });
    // The kernel lets nobody look a name up in a directory where one is being made.
    fs::create_dir(scene.at("changed")).unwrap();
    for round in 0..5 {
        // Alone: all threads but one park.
        for file in 0..100 {
            fs::write(scene.at("alone"), format!("{file}")).unwrap();
        }
        let frozen = Frozen::freeze(image.path());
        let (held_up, answered) = mpsc::channel();
        let (quick, answers) = mpsc::channel();
        let path = scene.at(&format!("changed/{round}"));
        let maker = std::thread::spawn(move || held_up.send(fs::create_dir(path)));
        let asker = {
            let names: Vec<_> = (0..100).map(|name| scene.at(&format!("missing-{round}-{name}"))).collect();
            std::thread::spawn(move || {
                names.iter().for_each(|name| quick.send(name.exists()).expect("heard"))
            })
        };
        for name in 0..100 {
            let found = answers.recv_timeout(Duration::from_secs(10));
            assert_eq!(found, Ok(false), "look-up {name} of round {round} waits for the frozen file system");
        }
        assert!(answered.try_recv().is_err(), "nothing was held up, so nothing is shown");
        drop(frozen);
        answered.recv_timeout(Duration::from_secs(10)).expect("the thread continues").expect("it is made");
        maker.join().unwrap().unwrap();
        asker.join().unwrap();
    }
}

/// Microseconds that processors may take to wake up, as the kernel has settled it among all who asked.
fn wake_up_us() -> Option<i32> {
    let bytes =
        std::process::Command::new("head").args(["-c4", "/dev/cpu_dma_latency"]).output().ok()?.stdout;
    Some(i32::from_ne_bytes(bytes.try_into().ok()?))
}

fn within_10_s(what: impl Fn() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while !what() {
        if Instant::now() > until {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

#[test]
fn processors_stay_awake_while_requests_come_and_sleep_again_after() {
    if cannot_mount() {
        return;
    }
    let held = match wake_up_us() {
        None => Err("/dev/cpu_dma_latency is missing"),
        Some(0) => Err("another program holds /dev/cpu_dma_latency at 0"),
        Some(_) => Ok(()),
    };
    if host(HostFeature::IdleStates, held).is_none() {
        return;
    }
    let scene = Scene::with(|mut options| {
        options.awake = true;
        options
    });
    let enough = AtomicBool::new(false);
    for _ in 0..2 {
        enough.store(false, Ordering::Relaxed);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    assert!(!scene.at("missing").exists());
                }
            });
            let awake = within_10_s(|| wake_up_us() == Some(0));
            enough.store(true, Ordering::Relaxed);
            assert!(awake, "requests come, and the processors sleep");
        });
        assert!(within_10_s(|| wake_up_us() != Some(0)), "nothing is asked, and the processors stay awake");
    }
}
