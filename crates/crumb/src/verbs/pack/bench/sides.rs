//! One round of each side: seconds for each step.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context as _, bail};
use disk::LocalDisk;
use packstore::{PutOptions, Store, StoreOptions, VolumeSpec};

use super::load::Load;
use super::{MISS, STEPS};
use crate::verbs::pack::with_usage_marked;

fn step_number(name: &str) -> usize {
    STEPS.iter().position(|step| *step == name).expect("one of the steps")
}

fn go_on(stop: &AtomicBool) -> anyhow::Result<()> {
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}

/// Objects in a store.
pub fn packed(
    ground: &Path,
    load: &Load,
    durable: bool,
    stop: &AtomicBool,
) -> anyhow::Result<[f64; STEPS.len()]> {
    let path = ground.join("packed");
    fs::create_dir(&path)?;
    let bytes = load.sizes.iter().map(|size| *size as u64 + 300).sum::<u64>();
    let spec = VolumeSpec { disk: Arc::new(LocalDisk::open(&path)?), size_bytes: bytes * 2 + (64 << 20) };
    let store = Store::create(vec![spec], StoreOptions::default()).map_err(with_usage_marked)?;
    let mut seconds = [0.0; STEPS.len()];
    let begun = Instant::now();
    let mut pending = std::collections::VecDeque::new();
    for (number, key) in load.keys.iter().enumerate() {
        go_on(stop)?;
        let put = store.put_deferred(key.as_bytes(), load.body(number), PutOptions::default())?;
        if durable {
            put.wait()?;
        } else {
            pending.push_back(put);
        }
    }
    seconds[0] = begun.elapsed().as_secs_f64();
    for put in pending {
        put.wait()?;
    }
    for step in ["get", "get again"] {
        let begun = Instant::now();
        for &number in &load.order {
            go_on(stop)?;
            let object = store.get(load.keys[number].as_bytes())?.context("an object is gone")?;
            if object.length() != load.sizes[number] as u64 {
                bail!("an object has another length");
            }
        }
        seconds[step_number(step)] = begun.elapsed().as_secs_f64();
    }
    let begun = Instant::now();
    for key in &load.missing {
        if store.get(key.as_bytes())?.is_some() {
            bail!("an object is there that was never put");
        }
    }
    seconds[MISS] = begun.elapsed().as_secs_f64();
    store.close()?;
    fs::remove_dir_all(&path)?;
    Ok(seconds)
}

/// One file an object.
pub fn unpacked(
    ground: &Path,
    load: &Load,
    durable: bool,
    stop: &AtomicBool,
) -> anyhow::Result<[f64; STEPS.len()]> {
    let root = ground.join("files");
    fs::create_dir(&root)?;
    for number in 0..256 {
        fs::create_dir(root.join(format!("{number:02x}")))?;
    }
    let mut seconds = [0.0; STEPS.len()];
    let begun = Instant::now();
    for (number, key) in load.keys.iter().enumerate() {
        go_on(stop)?;
        let mut file = File::create_new(root.join(key))?;
        file.write_all(load.body(number))?;
        if durable {
            file.sync_data()?;
            // The name too, or it may be gone.
            File::open(root.join(&key[..2]))?.sync_all()?;
        }
    }
    seconds[0] = begun.elapsed().as_secs_f64();
    for step in ["get", "get again"] {
        let begun = Instant::now();
        for &number in &load.order {
            go_on(stop)?;
            if fs::read(root.join(&load.keys[number]))?.len() != load.sizes[number] {
                bail!("a file has another length");
            }
        }
        seconds[step_number(step)] = begun.elapsed().as_secs_f64();
    }
    let begun = Instant::now();
    for key in &load.missing {
        if File::open(root.join(key)).is_ok() {
            bail!("a file is there that was never made");
        }
    }
    seconds[MISS] = begun.elapsed().as_secs_f64();
    fs::remove_dir_all(&root)?;
    Ok(seconds)
}
