//! Single gets of random objects after everything was dropped from memory: how long, and how often the device was read.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Instant;

use crate::load::Load;
use crate::peers::KINDS;
use crate::{empty, percentile};

pub fn print(dir: &Path, load: &Load, gets: usize) {
    println!("\n{}: {gets} gets, one after the other, caches dropped before", load.name);
    let order = load.shuffled();
    for kind in &KINDS {
        let root = empty(dir, kind.name);
        let peer = (kind.make)(&root, load, false);
        (0..load.count()).for_each(|at| peer.put(at, load.body(at)));
        peer.flush();
        drop(peer);
        rustix::fs::sync();
        let peer = (kind.open)(&root);
        if let Err(error) = fs::write("/proc/sys/vm/drop_caches", "3") {
            println!("SKIPPED: caches cannot be dropped: {error}");
            return;
        }
        let before = device_reads(&root);
        let mut body = Vec::new();
        let mut took_us = Vec::with_capacity(gets);
        for &at in order.iter().take(gets) {
            let begun = Instant::now();
            assert!(peer.get(at, &mut body), "{}: {at} was put", kind.name);
            took_us.push(begun.elapsed().as_micros() as u64);
        }
        let reads = match (before, device_reads(&root)) {
            (Some(before), Some(after)) => {
                format!("{:.2} device reads a get", (after - before) as f64 / took_us.len() as f64)
            }
            _ => "no block device".to_owned(),
        };
        took_us.sort_unstable();
        println!(
            "  {:<10} median {:>6} us, p99 {:>6} us, {reads}",
            kind.name,
            percentile(&took_us, 0.5),
            percentile(&took_us, 0.99)
        );
        drop(peer);
        fs::remove_dir_all(&root).expect("removed");
    }
}

/// Reads completed by the block device that a directory lies on.
fn device_reads(dir: &Path) -> Option<u64> {
    let device = fs::metadata(dir).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    stat.split_whitespace().next()?.parse().ok()
}
