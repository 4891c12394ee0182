//! Findings on the storage behind the target.

use measure::numbers::{bytes_text, count_text};

use files::LAYOUT_FILES_MIN;

use super::{Finding, FindingCode, percent_text, us_text};
use crate::{BasicOp, DirectoryFacts, Facts, MountFacts, NamesMax};

/// From here on writes fail soon.
const FULL: f64 = 0.985;
const NEARLY_FULL: f64 = 0.95;
/// Metadata operations of storage with a wait in each.
const SLOW_US: f64 = 500.0;
const SLOWISH_US: f64 = 100.0;
/// Creations write, so that they may take longer.
const SLOW_CREATE_US: f64 = 2_000.0;
const SLOWISH_CREATE_US: f64 = 500.0;
/// Where memory is not this much faster, it is the machine that is slow.
const TIMES_MEMORY: f64 = 10.0;
/// A directory with more names, or of more bytes, is a large one.
const LARGE_NAMES: u64 = 5_000;
const LARGE_BYTES: u64 = 128 << 10;
/// A lookup in a large directory costs this much more than in a small one, and at least so long.
const LARGE_TIMES: f64 = 8.0;
const LARGE_US: f64 = 40.0;
/// Names in a directory, of the fewest that fill its index.
const INDEX_FULL: f64 = 0.9;
const INDEX_HALF_FULL: f64 = 0.5;
const SLOW_FSYNC_US: f64 = 20_000.0;
const SLOWISH_FSYNC_US: f64 = 4_000.0;
/// A name of an ext4 directory takes 8 bytes and itself, rounded up; twice that is what splitting blocks leaves unused.
const BYTES_PER_NAME_MAX: u64 = 600;

pub fn add(facts: &Facts, found: &mut Vec<Finding>) {
    space(facts, found);
    writing(facts, found);
    found.extend(slow_metadata(facts));
    found.extend(directories(facts));
    found.extend(shrunk(facts));
    found.extend(nearly_full(facts));
    found.extend(slow_fsync(facts));
    if let Some(mount) = &facts.target.mount {
        between(mount, found);
        options(facts, mount, found);
    }
    if facts.target.directory.as_ref().is_some_and(|directory| directory.folds_case) {
        let text = "names in this directory are compared without regard to case".to_owned();
        found.push(Finding::new(
            FindingCode::CaseFolding,
            22,
            text,
            "two names that differ in case only are one file",
        ));
    }
}

fn space(facts: &Facts, found: &mut Vec<Finding>) {
    let Some(space) = facts.target.space else { return };
    // Images such as squashfs are full by nature.
    if facts.target.mount.as_ref().is_some_and(|mount| mount.has("ro")) {
        return;
    }
    let weight = |share: f64| if share >= FULL { Some(100) } else { (share >= NEARLY_FULL).then_some(62) };
    if let Some(share) = space.inodes_used_share()
        && let Some(weight) = weight(share)
    {
        let text = format!(
            "inodes run out: {} are in use, {} are left",
            percent_text(share),
            count_text(space.inodes_available)
        );
        let advice = "no file can be made without one, whatever room df(1) shows; remove files, or pack small ones into few \
                      large ones (crumb pack)";
        found.push(Finding::new(FindingCode::InodesNearlyGone, weight, text, advice));
    }
    if let Some(share) = space.bytes_used_share()
        && let Some(weight) = weight(share)
    {
        let text = format!(
            "the file system is full: {} in use, {} are left for this user",
            percent_text(share),
            bytes_text(space.bytes_available)
        );
        let advice = "writes are about to fail, and a full file system scatters what it still takes; free some room before \
                      anything is measured";
        found.push(Finding::new(FindingCode::BytesNearlyGone, weight, text, advice));
    }
}

fn writing(facts: &Facts, found: &mut Vec<Finding>) {
    let target = &facts.target;
    if target.mount.as_ref().is_some_and(|mount| mount.has("ro")) {
        let text = "the file system is mounted read-only".to_owned();
        let advice = "nothing could be written, so only reads of attributes were measured; an ext4 that met an error does \
                      this too: see dmesg";
        found.push(Finding::new(FindingCode::ReadOnly, 96, text, advice));
    } else if let Some(why) = &target.unwritable {
        let text = format!("nothing can be made here: {why}");
        let remedy = match target.unwritable_status.as_deref() {
            Some("NFS3ERR_NOSPC") => "free some bytes or inodes, and run it again",
            Some("NFS3ERR_DQUOT") => {
                "this user's quota is used up: free some of his files, or raise it, and run it again"
            }
            Some("NFS3ERR_ROFS") => "it is read-only: mount or export it for writing",
            Some("NFS3ERR_ACCES" | "NFS3ERR_PERM") => "run it as a user who may write here",
            _ => "make a file here by hand to see more",
        };
        let advice = format!("only reads of attributes were measured; {remedy}");
        found.push(Finding::new(FindingCode::Unwritable, 94, text, advice));
    } else if let Some(why) = facts.here().and_then(|here| here.failed.as_ref()) {
        let text = format!("an operation failed: {why}");
        found.push(Finding::new(
            FindingCode::LoopsFailed,
            92,
            text,
            "the figures below are of what was done until then",
        ));
    }
    if target.is_volatile() {
        let text = format!("nothing here survives a reboot: this is {}, in memory", target.kind());
        let advice =
            "figures of it say nothing about a disk: fsync does nothing, and files take memory from programs";
        found.push(Finding::new(FindingCode::Volatile, 90, text, advice));
    }
}

/// The operation that is slowest for its kind decides.
fn slow_metadata(facts: &Facts) -> Option<Finding> {
    let limits = [
        (BasicOp::Stat, "a stat", SLOW_US, SLOWISH_US),
        (BasicOp::NegativeLookup, "looking up a name that is not there", SLOW_US, SLOWISH_US),
        (BasicOp::Create, "making a file", SLOW_CREATE_US, SLOWISH_CREATE_US),
        (BasicOp::Unlink, "removing a file", SLOW_CREATE_US, SLOWISH_CREATE_US),
    ];
    let slow = limits.into_iter().filter_map(|(op, name, slow_us, slowish_us)| {
        let us = facts.here_us(op)?;
        let in_memory_us = facts.in_memory().and_then(|memory| memory.us(op));
        let is_machine = in_memory_us.is_some_and(|memory| us < TIMES_MEMORY * memory);
        (us >= slowish_us && !is_machine).then_some((us / slow_us, name, us, in_memory_us))
    });
    let (severity, name, us, in_memory_us) = slow.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let beside = in_memory_us.map(|us| format!(", in memory {}", us_text(us))).unwrap_or_default();
    let text = format!("metadata operations are slow: {name} takes {}{beside}", us_text(us));
    let advice = "each operation on a name waits for the storage, so programs that touch many small files wait most of their \
                  time; use fewer files, more threads, or storage that is nearer";
    Some(Finding::new(FindingCode::SlowMetadata, if severity >= 1.0 { 78 } else { 52 }, text, advice))
}

/// Directories that are searched from their beginning, known by the missing index, or seen by what a missing name costs.
fn directories(facts: &Facts) -> Option<Finding> {
    let largest = facts.largest();
    // The flag of a directory outlives the feature (tune2fs -O ^dir_index).
    let has_feature = facts.target.new_directories_are_indexed != Some(false);
    let without_index = facts.target.unmanaged().filter(|directory| {
        let has_none = directory.is_indexed == Some(false)
            || !has_feature && directory.own_bytes > directory.block_bytes;
        // One that is empty costs little, however it came to its blocks.
        let is_empty = directory.is_counted && directory.names == 0 && directory.own_bytes < LARGE_BYTES;
        has_none && !is_empty
    });
    if let Some(linear) = without_index.max_by_key(|directory| directory.own_bytes) {
        let is_large = linear.names >= LARGE_NAMES || linear.own_bytes >= LARGE_BYTES;
        let text = format!(
            "{} is searched from its beginning: it has no index{}",
            about(linear),
            cost(facts, linear)
        );
        return Some(Finding::new(
            FindingCode::LinearDirectories,
            if is_large { 76 } else { 46 },
            text,
            linear_advice(linear.names),
        ));
    }
    if facts.target.new_directories_are_indexed == Some(false) {
        let text = format!("this {} makes directories without an index (no dir_index)", facts.target.kind());
        return Some(Finding::new(FindingCode::LinearDirectories, 46, text, linear_advice(0)));
    }
    let largest =
        largest.filter(|directory| directory.names >= LARGE_NAMES || directory.own_bytes >= LARGE_BYTES)?;
    let (large_us, small_us) = (largest.negative_lookup_us?, facts.here_us(BasicOp::NegativeLookup)?);
    if large_us < LARGE_US || large_us < LARGE_TIMES * small_us {
        return None;
    }
    let text = format!("lookups grow with the number of names: {}{}", about(largest), cost(facts, largest));
    Some(Finding::new(FindingCode::LargeDirectory, 74, text, linear_advice(largest.names)))
}

/// What helps where single lookups are slow. Whether small directories help depends on the day's operations, which `crumb advise`
/// weighs; below its least number of files it weighs none.
fn linear_advice(names: u64) -> &'static str {
    if names < LAYOUT_FILES_MIN {
        "each lookup and creation reads half of the directory or all of it, which costs little while directories are small; give \
         ext4 an index before they grow (tune2fs -O dir_index, then e2fsck -fD, unmounted)"
    } else {
        "each lookup and creation reads half of the directory or all of it; give ext4 an index (tune2fs -O dir_index, then e2fsck \
         -fD, unmounted), or spread the names over small directories if crumb advise shows a gain: it weighs a whole day, with \
         listings and what the mount adds, and this page looks at one lookup"
    }
}

fn about(directory: &DirectoryFacts) -> String {
    let at_least = if directory.is_counted { "" } else { "at least " };
    format!(
        "{} ({at_least}{} names, {})",
        directory.path.display(),
        count_text(directory.names),
        bytes_text(directory.own_bytes)
    )
}

fn cost(facts: &Facts, directory: &DirectoryFacts) -> String {
    let costs = directory.negative_lookup_us.zip(facts.here_us(BasicOp::NegativeLookup));
    costs
        .map(|(large, small)| {
            format!(": a missing name costs {} there, {} in a small one", us_text(large), us_text(small))
        })
        .unwrap_or_default()
}

/// ext4's index has two levels without `large_dir`: full, it refuses a name whatever room the disk has.
fn nearly_full(facts: &Facts) -> Option<Finding> {
    let both = [&facts.target.directory, &facts.target.largest].into_iter().flatten();
    let limited = both.filter_map(|directory| Some((directory, directory.names_max?)));
    let share =
        |(directory, max): &(&DirectoryFacts, NamesMax)| directory.names as f64 / max.low.max(1) as f64;
    let found = limited.max_by(|a, b| share(a).total_cmp(&share(b)))?;
    let weight = match share(&found) {
        full if full >= INDEX_FULL => 91,
        half if half >= INDEX_HALF_FULL => 44,
        _ => return None,
    };
    let (directory, max) = found;
    let text = format!(
        "{} refuses a new name at {} to {}: its index is full then",
        about(directory),
        count_text(max.low),
        count_text(max.high)
    );
    let advice = "making a file fails there with room left on the disk; spread the names over small directories (crumb manage), \
                  or give ext4 a third level (tune2fs -O large_dir, unmounted)";
    Some(Finding::new(FindingCode::DirectoryNearlyFull, weight, text, advice))
}

/// ext4 gives no block of a directory back.
fn shrunk(facts: &Facts) -> Option<Finding> {
    if !facts.target.is_ext() {
        return None;
    }
    let directory = facts
        .target
        .unmanaged()
        .filter(|directory| directory.is_counted)
        .max_by_key(|directory| directory.own_bytes)?;
    let needed = (directory.names + 1) * BYTES_PER_NAME_MAX;
    if directory.own_bytes < LARGE_BYTES || directory.own_bytes < needed {
        return None;
    }
    let text = format!("{} once held many more names: ext4 keeps a directory's blocks", about(directory));
    let advice = "listing it still reads all of them; make a new directory, move the files, and rename it";
    Some(Finding::new(FindingCode::ShrunkDirectory, 28, text, advice))
}

fn slow_fsync(facts: &Facts) -> Option<Finding> {
    let us = facts.here_us(BasicOp::Fsync).filter(|us| *us >= SLOWISH_FSYNC_US)?;
    let text =
        format!("making a file durable (fsync) takes {}: {:.0} a second a thread", us_text(us), 1e6 / us);
    let advice = "mail stores, databases and package managers wait for it each time; group files into one fsync, or use a disk \
                  with a write cache that survives power loss";
    Some(Finding::new(FindingCode::SlowFsync, if us >= SLOW_FSYNC_US { 56 } else { 42 }, text, advice))
}

/// What is between a program and the disk.
fn between(mount: &MountFacts, found: &mut Vec<Finding>) {
    if mount.is_network() {
        let text = format!("this is a network file system ({} from {})", mount.kind, mount.source);
        let advice = "each operation that the client's caches cannot answer is a round trip, and others change it meanwhile";
        found.push(Finding::new(FindingCode::NetworkFileSystem, 50, text, advice));
    } else if mount.is_fuse() {
        let text =
            format!("a program answers for this file system ({} on {})", mount.kind, mount.point.display());
        let advice = "each operation that reaches it wakes that program and then the caller: what a wake-up costs counts twice";
        found.push(Finding::new(FindingCode::Fuse, 48, text, advice));
    } else if mount.kind == "overlay" {
        let text = "this is an overlay, as in a container".to_owned();
        let advice = "the first write to a file of a lower layer copies it whole, and each lookup may search several layers; \
                      put data on a volume";
        found.push(Finding::new(FindingCode::Overlay, 36, text, advice));
    }
}

fn options(facts: &Facts, mount: &MountFacts, found: &mut Vec<Finding>) {
    let on = format!("on {}", mount.point.display());
    let mut add =
        |code, weight, text: String, advice: &str| found.push(Finding::new(code, weight, text, advice));
    if let Some(option) = ["sync", "dirsync"].into_iter().find(|option| mount.has(option)) {
        let weight = if option == "sync" { 80 } else { 70 };
        let text = format!("the mount option `{option}` {on} makes each change wait for the disk");
        add(
            FindingCode::SynchronousMount,
            weight,
            text,
            "remount without it where programs call fsync themselves",
        );
    }
    let without = ["nobarrier", "barrier=0"].into_iter().find(|option| mount.has(option));
    if let Some(option) = without {
        let text = format!("the mount option `{option}` {on}: fsync does not empty the disk's write cache");
        add(
            FindingCode::NoBarriers,
            60,
            text,
            "a power failure loses what was durable, unless that cache is protected",
        );
    }
    if mount.has("data=journal") {
        let text = format!("`data=journal` {on}: data is written twice");
        add(FindingCode::DataJournal, 30, text, "small durable files may gain from it, large ones lose");
    }
    if mount.has("discard") && !mount.is_network() && mount.kind != "btrfs" {
        let text = format!("`discard` {on}: the disk is informed of freed blocks at once");
        add(
            FindingCode::DiscardAtDelete,
            18,
            text,
            "removing many files may be slow; fstrim(8) does the same once a week",
        );
    }
    let quotas = ["usrquota", "grpquota", "prjquota", "usrjquota", "quota", "uquota", "gquota", "pquota"];
    if let Some(option) =
        mount.options.iter().find(|option| quotas.iter().any(|quota| is_option(option, quota)))
    {
        let text = format!("quotas are counted {on} (`{option}`)");
        add(
            FindingCode::Quotas,
            14,
            text,
            "writes may fail with room left (quota -s), and changes of one user take turns",
        );
    }
    access_times(facts, mount, &on, &mut add);
}

/// `prjquota`, or `usrjquota=aquota.user`.
fn is_option(option: &str, name: &str) -> bool {
    option.split('=').next() == Some(name)
}

fn access_times(
    facts: &Facts,
    mount: &MountFacts,
    on: &str,
    add: &mut dyn FnMut(FindingCode, u32, String, &str),
) {
    let is_written = ["noatime", "ro"].iter().all(|option| !mount.has(option));
    if facts.target.is_volatile() || mount.is_network() || mount.is_fuse() || !is_written {
        return;
    }
    if mount.has("relatime") {
        let text = format!("times of access are kept {on} (`relatime`)");
        add(
            FindingCode::AccessTimes,
            8,
            text,
            "the first read after a change also writes; mount with noatime where no program needs them",
        );
    } else {
        let text = format!("each read also writes a time of access {on} (neither `noatime` nor `relatime`)");
        add(FindingCode::StrictAccessTimes, 38, text, "mount with noatime");
    }
}
