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
use stackfs::{Mount, ReaderPolicy, Waited};
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
        options.awake = Some(false);
        options
    });
    held_up_while_others_are_answered(&scene, image.path());
}

#[test]
fn by_io_uring_a_request_that_takes_long_holds_up_no_other() {
    if cannot_mount() {
        return;
    }
    let image = LoopImage::make("ext4", 64 << 20, &[]).expect("an image");
    let folder = tempfile::tempdir_in(image.path()).unwrap();
    let Some(scene) = Scene::by_ring_in(folder, |options| options) else { return };
    held_up_while_others_are_answered(&scene, image.path());
}

fn held_up_while_others_are_answered(scene: &Scene, image: &Path) {
    // The kernel lets nobody look a name up in a directory where one is being made.
    fs::create_dir(scene.at("changed")).unwrap();
    for round in 0..5 {
        // Alone: all threads but one park.
        for file in 0..100 {
            fs::write(scene.at("alone"), format!("{file}")).unwrap();
        }
        let frozen = Frozen::freeze(image);
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
        // Each look-up is a request: of a watched tree the kernel believes for long what is missing.
        options.watch = false;
        options.awake = Some(true);
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

/// A mount whose reader follows; none, and listed as skipped, where no thread can.
fn following(threads: usize) -> Option<Scene> {
    let scene = Scene::with(|mut options| {
        options.threads = threads;
        // Each look-up is a request: of a watched tree the kernel believes for long what is missing.
        options.watch = false;
        (options.readers, options.awake) = (Some(ReaderPolicy::Follow), Some(false));
        options
    });
    let policy = mount(&scene).waiting().readers;
    let follows = (policy == ReaderPolicy::Follow).then_some(());
    host(HostFeature::IdleClass, follows.ok_or("threads cannot leave the idle class, or there is one CPU"))
        .map(|()| scene)
}

fn mount(scene: &Scene) -> &Mount {
    scene.mount.as_ref().expect("it is mounted")
}

fn waited(scene: &Scene) -> Waited {
    mount(scene).census().waited
}

#[test]
fn the_reader_follows_a_lone_caller_and_parks_with_it() {
    if cannot_mount() {
        return;
    }
    let Some(scene) = following(3) else { return };
    // Other programs of this machine may interrupt it: then it begins again.
    let followed = within_10_s(|| {
        (0..500).for_each(|_| assert!(!scene.at("missing").exists()));
        waited(&scene).followed.requests > 1000
    });
    assert!(followed, "{:?}", waited(&scene));
    assert!(waited(&scene).parked > 0, "the other threads park");
}

#[test]
fn with_parking_or_without_no_reader_follows() {
    if cannot_mount() {
        return;
    }
    for (policy, parks) in [(ReaderPolicy::Park, true), (ReaderPolicy::Free, false)] {
        let scene = Scene::with(|mut options| {
            options.threads = 3;
            (options.readers, options.awake) = (Some(policy), Some(false));
            // A watched tree's missing names are asked for once.
            options.watch = false;
            options
        });
        (0..500).for_each(|_| assert!(!scene.at("missing").exists()));
        assert_eq!(mount(&scene).waiting().readers, policy);
        assert_eq!(waited(&scene).parked > 0, parks, "{policy:?}");
        assert_eq!(waited(&scene).followed.begun, 0, "{policy:?}");
    }
}

/// A thread of the idle class would wait for seconds on CPUs that others use all the time.
#[test]
fn a_reader_that_follows_is_not_starved_by_programs_that_use_all_cpus() {
    if cannot_mount() {
        return;
    }
    let Some(scene) = following(3) else { return };
    let enough = AtomicBool::new(false);
    let cpus = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|threads| {
        let (answer, answers) = mpsc::channel();
        let (scene, enough) = (&scene, &enough);
        threads.spawn(move || {
            while !enough.load(Ordering::Relaxed) && answer.send(scene.at("missing").exists()).is_ok() {}
        });
        let answered =
            |requests: u32| (0..requests).all(|_| answers.recv_timeout(Duration::from_secs(10)) == Ok(false));
        // Alone at first, so that it follows when the others begin.
        let mut fine = answered(500);
        for _ in 0..2 * cpus {
            threads.spawn(move || while !enough.load(Ordering::Relaxed) {});
        }
        fine &= answered(500);
        enough.store(true, Ordering::Relaxed);
        assert!(fine, "a request waited for 10 s: {:?}", waited(scene));
    });
}

#[test]
fn many_callers_are_served_right_by_readers_that_follow() {
    if cannot_mount() {
        return;
    }
    let Some(scene) = following(4) else { return };
    std::thread::scope(|threads| {
        for caller in 0..8 {
            let scene = &scene;
            threads.spawn(move || {
                let folder = scene.at(&caller.to_string());
                fs::create_dir(&folder).unwrap();
                for file in 0..100 {
                    let (path, text) = (folder.join(file.to_string()), format!("{caller} wrote {file}"));
                    fs::write(&path, &text).unwrap();
                    assert_eq!(fs::read_to_string(&path).unwrap(), text);
                    if file % 2 == 1 {
                        fs::remove_file(&path).unwrap();
                    }
                }
            });
        }
    });
    for caller in 0..8 {
        assert_eq!(fs::read_dir(scene.lower(&caller.to_string())).unwrap().count(), 50);
    }
}
