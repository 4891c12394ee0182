//! Determines from the device counters whether a run measured memory rather than the storage below it.
//!
//! ```text
//! unbatch   bytes written to the device while it was timed, against the bytes of the articles
//! batch     bytes read from the device, against the bytes of the articles
//! expire    share of the time that the device was busy
//! ```
//!
//! Always holds: no statement about storage that cannot be observed: a server, or a file system whose device is unknown.
//! Not here: runs as a whole (`measure::Usage::bound`, which PostMark has).

use std::collections::BTreeSet;

use measure::{MountPoint, Phase};

use crate::spool::layout::Storage;

/// Less than this share of the bytes at the device, or of the time: memory did it.
const SHARE_MIN: f64 = 0.1;
/// From this share of the time on the device was the limit, whatever it moved.
const BUSY: f64 = 0.7;

/// One sentence on the phases that memory did, with the numbers; none when it did none.
pub(crate) fn held_by_memory(phases: &[Phase], storage: &Storage) -> Option<String> {
    let mount = MountPoint::of(storage.spool.local_root()?)?;
    let memory = matches!(mount.fs_type.as_str(), "tmpfs" | "ramfs").then_some(&*mount.fs_type);
    memory_bound_phases(phases, &prefixes_of_devices(storage), memory)
}

/// `prefixes` are in front of the devices' counters; `memory` is the kind of file system when it is one in memory.
fn memory_bound_phases(phases: &[Phase], prefixes: &[String], memory: Option<&str>) -> Option<String> {
    let mut phases_in_memory = Vec::new();
    for (name, counter, verb) in
        [("unbatch", "written", "wrote"), ("batch", "read", "read"), ("expire", "", "deleted")]
    {
        let of: Vec<&Phase> = phases.iter().filter(|phase| phase.name == name && phase.items > 0).collect();
        let wall_s: f64 = of.iter().map(|phase| phase.wall_s).sum();
        if wall_s <= 0.0 {
            continue;
        }
        // A time-weighted sum over the passes; the busiest device counts.
        let sum = |prefix: &str, counter: &str| -> Option<f64> {
            let counter = format!("{prefix}device_{counter}");
            let of_pass = |phase: &&Phase| Some(phase.wall_s * phase.counters.get(&counter)?);
            of.iter().map(of_pass).sum()
        };
        let busy = prefixes.iter().filter_map(|prefix| sum(prefix, "busy_percent")).reduce(f64::max);
        let Some(busy) = busy.map(|busy| busy / wall_s / 100.0) else {
            // Other storage cannot be observed: a network, several disks.
            phases_in_memory.extend(memory.map(|kind| format!("{name} was done in memory, on {kind}")));
            continue;
        };
        let percent = |share: f64| format!("{:.0}%", 100.0 * share);
        if counter.is_empty() {
            if busy < SHARE_MIN {
                phases_in_memory.push(format!("{name} kept the device busy {} of the time", percent(busy)));
            }
            continue;
        }
        let bytes: u64 = of.iter().map(|phase| phase.bytes).sum();
        let per_sec = format!("{counter}_bytes_per_sec");
        let moved: f64 = prefixes.iter().filter_map(|prefix| sum(prefix, &per_sec)).sum();
        let share = moved / (bytes as f64).max(1.0);
        if share < SHARE_MIN && busy < BUSY {
            let (share, busy, megabytes) = (percent(share), percent(busy), bytes as f64 / 1e6);
            phases_in_memory
                .push(format!("{name} {verb} {megabytes:.1} MB, {share} of them at the device, busy {busy}"));
        }
    }
    (!phases_in_memory.is_empty()).then(|| {
        format!(
            "cache-bound: {}; such rates are those of memory. For the storage's own use a feed larger than memory \
             (--feed-bytes auto), --sync, or --cold",
            phases_in_memory.join("; ")
        )
    })
}

/// In front of the counters of each device, each device once.
fn prefixes_of_devices(storage: &Storage) -> Vec<String> {
    let mut known = BTreeSet::new();
    let mut is_new = |root: Option<&std::path::Path>| {
        root.and_then(MountPoint::of).is_some_and(|mount| known.insert(mount.device))
    };
    let places = storage.places.iter().enumerate().map(|(at, (_, fs))| (format!("place{}_", at + 1), fs));
    [(String::new(), &storage.spool)]
        .into_iter()
        .chain(places)
        .filter(|(_, fs)| is_new(fs.local_root()))
        .map(|(prefix, _)| prefix)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &str, bytes: u64, counters: &[(&str, f64)]) -> Phase {
        let counters = counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        Phase { name: name.to_owned(), wall_s: 2.0, items: 10, bytes, counters, ..Phase::default() }
    }

    #[test]
    fn each_phase_that_memory_did_is_told_with_its_numbers_and_no_other() {
        let device = |busy, written, read| {
            [
                ("device_busy_percent", busy),
                ("device_written_bytes_per_sec", 1e3 * written),
                ("device_read_bytes_per_sec", 1e3 * read),
            ]
        };
        let remark = |phases: &[Phase]| memory_bound_phases(phases, &[String::new()], None);
        let busy = phase("unbatch", 1_000_000, &device(80.0, 0.0, 0.0));
        let written = phase("unbatch", 1_000_000, &device(5.0, 400.0, 0.0));
        let read = phase("batch", 1_000_000, &device(5.0, 0.0, 400.0));
        let deleting = phase("expire", 0, &device(30.0, 0.0, 0.0));
        assert_eq!(remark(&[busy, written, read, deleting]), None);

        let stored = phase("unbatch", 1_000_000, &device(5.0, 10.0, 900.0));
        let sent = phase("batch", 4_000_000, &device(0.0, 900.0, 0.0));
        let deleted = phase("expire", 0, &device(2.0, 0.0, 0.0));
        let text = remark(&[stored, sent, deleted]).unwrap();
        for part in
            ["unbatch wrote 1.0 MB, 2% of them", "batch read 4.0 MB, 0%", "expire kept the device busy 2%"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let unseen = [phase("unbatch", 1000, &[])];
        assert_eq!(remark(&unseen), None);
        let text = memory_bound_phases(&unseen, &[String::new()], Some("tmpfs")).unwrap();
        assert!(text.contains("unbatch was done in memory, on tmpfs"), "{text}");
    }
}
