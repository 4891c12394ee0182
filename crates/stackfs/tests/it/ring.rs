//! Requests by io_uring: what is longer than a ring's buffers, the end of a mount with requests in flight, and the device instead.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::XattrFlags;
use stackfs::{Ending, Mount, StackOptions, Transport};

use crate::scene::{Scene, memory, names};

#[test]
fn the_largest_attribute_and_files_longer_than_buffers_come_back_whole() {
    // Not in memory: tmpfs has no user attributes of 64 KiB.
    for passthrough in [true, false] {
        let Some(scene) = Scene::by_ring(|options| StackOptions { passthrough, ..options }) else { return };
        let path = scene.at("file");
        let bytes: Vec<u8> = (0..3_000_001u32).map(|at| (at / 11) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        assert!(fs::read(&path).unwrap() == bytes, "passthrough: {passthrough}");
        assert!(fs::read(scene.lower("file")).unwrap() == bytes, "passthrough: {passthrough}");
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.write_all_at(&[7; 200_000], 1_000_003).unwrap();
        let mut read = vec![0; 200_002];
        file.read_exact_at(&mut read, 1_000_002).unwrap();
        assert!(read[1..200_001] == [7; 200_000] && read[200_001] == bytes[1_200_003]);
        // Names of 255 bytes, targets of 4095.
        let (name, target) = ("n".repeat(255), "t".repeat(4095));
        std::os::unix::fs::symlink(&target, scene.at(&name)).unwrap();
        assert_eq!(fs::read_link(scene.at(&name)).unwrap().as_os_str().len(), 4095);
        fs::rename(scene.at(&name), scene.at(&"m".repeat(255))).unwrap();
        // 64 KiB is more than most file systems keep: what is below decides, and says the same.
        for bytes in [1, 4000, 1 << 16, (1 << 16) + 1] {
            let value = vec![b'x'; bytes];
            let set = |path| rustix::fs::setxattr(path, "user.large", &value, XattrFlags::empty());
            assert_eq!(set(path.clone()), set(scene.lower("file")), "{bytes} bytes");
            let mut through = vec![0; 1 << 16];
            let mut below = through.clone();
            let get = |path, into: &mut Vec<u8>| rustix::fs::getxattr(path, "user.large", &mut into[..]);
            assert_eq!(get(path.clone(), &mut through), get(scene.lower("file"), &mut below));
            assert!(through == below, "{bytes} bytes");
        }
    }
}

#[test]
fn long_listings_are_whole_and_forgotten_inodes_are_given_back() {
    let Some(scene) = Scene::by_ring(|options| options) else { return };
    let group = scene.managed("group");
    // Open files keep the kernel from forgetting inodes early, as it does when another test drops its caches.
    let made = |number| File::create(group.join(format!("{number}-{}", "x".repeat(100)))).unwrap();
    let open: Vec<File> = (0..3000).map(made).collect();
    assert_eq!(names(&group).len(), 3000);
    let mount = scene.mount.as_ref().unwrap();
    assert!(mount.census().nodes > 3000, "{} nodes", mount.census().nodes);
    drop(open);
    for name in names(&group) {
        fs::remove_file(group.join(name)).unwrap();
    }
    // References come back by the device, which is read now and then.
    let begun = Instant::now();
    while mount.census().nodes > 10 && begun.elapsed() < Duration::from_secs(10) {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    assert!(mount.census().nodes <= 10, "{} nodes", mount.census().nodes);
}

#[test]
fn a_mount_ends_while_requests_are_in_flight_and_serves_its_last_user() {
    for _ in 0..5 {
        let without = |options| StackOptions { passthrough: false, ..options };
        let Some(mut scene) = Scene::by_ring(without) else { return };
        fs::write(scene.at("x"), "still here").unwrap();
        let mut open = File::open(scene.at("x")).unwrap();
        let mount = scene.mount.take().unwrap();
        let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (scene, over, done) = (&scene, &over, &done);
                scope.spawn(move || {
                    for number in 0u64.. {
                        let path = scene.at(&format!("{thread}-{number}"));
                        // When the mount is gone, in the empty directory that it covered.
                        drop(File::create(&path));
                        drop(fs::remove_file(&path));
                        done.fetch_add(1, Ordering::Relaxed);
                        if over.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                });
            }
            while done.load(Ordering::Relaxed) < 200 {
                std::thread::yield_now();
            }
            assert_eq!(mount.stop().unwrap(), Ending::Detached);
            over.store(true, Ordering::Relaxed);
        });
        let mut text = String::new();
        open.read_to_string(&mut text).unwrap();
        assert_eq!(text, "still here");
        assert!(!mount.is_over());
        drop(open);
        mount.wait().unwrap();
    }
}

#[test]
fn a_ring_that_is_switched_off_leaves_the_device_which_serves() {
    let folder = memory();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("lower")).unwrap();
    fs::create_dir(at("at")).unwrap();
    let mut options = StackOptions::new(at("lower"), at("at"));
    options.transport = Some(Transport::Ring);
    let Some(mount) = testkit::without_fuse_ring(|| Mount::start(options).unwrap()) else { return };
    assert_eq!(mount.waiting().transport, Transport::Device);
    assert!(mount.waiting().to_string().starts_with("by /dev/fuse"), "{}", mount.waiting());
    let mut file = File::create(at("at/file")).unwrap();
    file.write_all(b"by the device").unwrap();
    drop(file);
    assert_eq!(fs::read(at("lower/file")).unwrap(), b"by the device");
}

#[test]
fn without_a_word_requests_come_by_the_device_though_a_ring_is_on() {
    let folder = memory();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("lower")).unwrap();
    fs::create_dir(at("at")).unwrap();
    for passthrough in [true, false] {
        let mut options = StackOptions::new(at("lower"), at("at"));
        (options.passthrough, options.awake) = (passthrough, Some(false));
        let Some(mount) = testkit::with_fuse_ring(|| Mount::start(options).unwrap()) else { return };
        let waiting = mount.waiting();
        assert_eq!(waiting.transport, Transport::Device, "{waiting}");
        File::create(at("at/file")).unwrap();
        assert!(at("lower/file").exists());
    }
}
