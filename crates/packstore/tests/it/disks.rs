//! Real file systems that run full, or turn read-only under a store: small loop images. Skipped, visibly, without root.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use disk::{Disk, LocalDisk};
use packstore::{Mode, OpenOptions, PutOptions, Store, StoreError, StoreOptions, VolumeSpec};
use testkit::LoopImage;

fn image(flags: &[&str]) -> Option<LoopImage> {
    match LoopImage::make("ext4", 24 << 20, flags) {
        Ok(image) => Some(image),
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED: no loop image: {why}");
            None
        }
    }
}

fn disk(path: &Path) -> Arc<dyn Disk> {
    Arc::new(LocalDisk::open(path).expect("it opens"))
}

fn body(number: u32) -> Vec<u8> {
    (0..5_000 + number % 3_000).map(|at| (at ^ number.wrapping_mul(77) ^ at >> 8) as u8).collect()
}

fn holds(store: &Store, number: u32) -> bool {
    let object = store.get(&number.to_le_bytes()).unwrap_or_else(|error| panic!("{number}: {error}"));
    object.is_some_and(|object| {
        assert!(object.read_all().expect("whole") == body(number), "{number} is another");
        true
    })
}

/// The volume may take 64 MB, by its owner's word, of which the disk has 24.
fn store_on(image: &LoopImage, mode: Mode) -> Store {
    let volumes = vec![VolumeSpec { disk: disk(image.path()), size_bytes: 64 << 20 }];
    let options = StoreOptions { mode, packed_blocks: Some((2 << 20) / 64), ..StoreOptions::default() };
    Store::create(volumes, options).expect("made")
}

#[test]
fn a_store_on_a_full_disk_says_so_loses_nothing_and_takes_more_once_something_is_deleted() {
    let Some(image) = image(&[]) else { return };
    let store = store_on(&image, Mode::Store);
    let mut held = Vec::new();
    let full = (0..20_000_u32).find_map(|number| {
        match store.put(&number.to_le_bytes(), &body(number), PutOptions::default()) {
            Ok(()) => held.push(number),
            Err(error) => return Some(error),
        }
        None
    });
    assert!(matches!(full, Some(StoreError::Full)), "{full:?} after {}", held.len());
    assert!(held.len() > 1_000, "{}", held.len());
    assert!(held.iter().all(|&number| holds(&store, number)));
    for number in held.drain(..held.len() / 2) {
        assert!(store.delete(&number.to_le_bytes()).expect("a full store can delete"));
    }
    for number in 30_000..30_300_u32 {
        let put = store.put(&number.to_le_bytes(), &body(number), PutOptions::default());
        put.unwrap_or_else(|error| panic!("{number}: half of it is free, but: {error}"));
        held.push(number);
    }
    assert_eq!(store.volumes()[0].failed, None, "a full disk is no broken one");
    drop(store);
    let store = Store::open(vec![disk(image.path())], OpenOptions::default()).expect("it opens");
    assert!(held.iter().all(|&number| holds(&store, number)));
    assert_eq!(store.usage().objects, held.len() as u64);
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
}

#[test]
fn a_cache_on_a_full_disk_evicts_and_goes_on() {
    let Some(image) = image(&[]) else { return };
    let store = store_on(&image, Mode::Cache);
    for number in 0..12_000_u32 {
        let put = store.put(&number.to_le_bytes(), &body(number), PutOptions::default());
        put.unwrap_or_else(|error| panic!("{number}: a cache is never full: {error}"));
    }
    store.flush().expect("flushed");
    let there = store.iter().expect("listed").count();
    assert!(there > 1_000, "{there} of them");
    assert!(store.usage().evicted > 5_000);
    assert_eq!(store.volumes()[0].failed, None);
    store.close().expect("closed");
    let store = Store::open(vec![disk(image.path())], OpenOptions::default()).expect("it opens");
    assert_eq!(store.iter().expect("listed").count(), there, "a clean stop forgets nothing");
    let read = (0..12_000).filter(|&number| holds(&store, number)).count();
    assert_eq!(read, there, "reading lets none go");
}

/// Makes the kernel find an error in the file system, upon which it lets nobody write to it any more.
fn turn_read_only(image: &LoopImage) -> Result<(), String> {
    let mounts = fs::read_to_string("/proc/mounts").map_err(|error| error.to_string())?;
    let place = image.path().display().to_string();
    let device = mounts.lines().find(|line| line.split(' ').nth(1) == Some(&place));
    let device = device.and_then(|line| line.split(' ').next()?.rsplit('/').next()).ok_or("not mounted")?;
    let trigger = format!("/sys/fs/ext4/{device}/trigger_fs_error");
    fs::write(&trigger, "a test").map_err(|error| format!("{trigger}: {error}"))
}

#[test]
fn a_volume_that_turns_read_only_is_told_of_and_the_other_goes_on() {
    for mode in [Mode::Store, Mode::Cache] {
        let Some(image) = image(&["-e", "remount-ro"]) else { return };
        let other = tempfile::tempdir().expect("a directory");
        let spec = |path: &Path| VolumeSpec { disk: disk(path), size_bytes: 16 << 20 };
        let options = StoreOptions { mode, packed_blocks: Some((1 << 20) / 64), ..StoreOptions::default() };
        let store = Store::create(vec![spec(image.path()), spec(other.path())], options).expect("made");
        for number in 0..500_u32 {
            store.put(&number.to_le_bytes(), &body(number), PutOptions::default()).expect("put");
        }
        store.flush().expect("flushed");
        if let Err(why) = turn_read_only(&image) {
            let _ = writeln!(std::io::stderr(), "SKIPPED: the kernel finds no error at will: {why}");
            return;
        }
        let mut acknowledged = Vec::new();
        for number in 1_000..1_500_u32 {
            if store.put(&number.to_le_bytes(), &body(number), PutOptions::default()).is_ok() {
                acknowledged.push(number);
            }
        }
        // It fails when the first volume is told of; the other has it all the same.
        let _ = store.flush();
        let failed = store.volumes().into_iter().filter(|volume| volume.failed.is_some()).collect::<Vec<_>>();
        assert_eq!(failed.len(), 1, "{mode:?}: {:?}", store.volumes());
        assert!(failed[0].place.contains("crumb-image"), "{failed:?}");
        assert!((0..500).all(|number| holds(&store, number)), "{mode:?}: what was there can be read");
        assert!(acknowledged.len() > 400, "{mode:?}: {}", acknowledged.len());
        if mode == Mode::Store {
            assert!(acknowledged.iter().all(|&number| holds(&store, number)));
        }
        (2_000..2_100_u32).for_each(|number| {
            store
                .put(&number.to_le_bytes(), &body(number), PutOptions::default())
                .expect("the other takes it");
        });
        assert!((2_000..2_100).all(|number| holds(&store, number)));
    }
}
