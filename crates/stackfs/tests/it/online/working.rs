//! Programs at work in directories that are converted again and again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use files::Layout;
use rustix::fs::{FlockOperation, Mode, OFlags, RawDir, SeekFrom};
use stackfs::convert::{Goal, State, state_of};
use stackfs::online::Online;

use super::convert;
use crate::differential::steps::{Dice, Ground, apply, tree};
use crate::differential::{first_seed, share};
use crate::scene::{Scene, cannot_mount, names, sorted};

const MANAGE: Goal = Goal::Managed(None);
const THREADS: u64 = 3;
/// In a thread of a round.
const STEPS: u64 = 500;

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A random one; half way, only that to which its layout leads.
fn random_goal(dice: &mut Dice, lower: &Path) -> Goal {
    if dice.below(2) == 0 {
        return Goal::Flat;
    }
    match state_of(lower) {
        Ok(State::Flat) => Goal::Managed(Some(Layout::ALL[1 + dice.below(5) as usize])),
        _ => MANAGE,
    }
}

/// Converts these directories, in any order, either way, to the end or half way, until it is over; how many runs ended
/// each way.
fn convert_until(
    scene: &Scene,
    online: &Online,
    places: &[String],
    seed: u64,
    over: &AtomicBool,
) -> (u32, u32) {
    let (mut dice, mut whole, mut half) = (Dice(seed), 0, 0);
    while !over.load(Ordering::Relaxed) {
        let place = &places[dice.below(places.len() as u64) as usize];
        let goal = random_goal(&mut dice, &scene.lower(place));
        let run =
            online.begin(Path::new(place), goal, me()).unwrap_or_else(|error| panic!("{place}: {error}"));
        if dice.below(2) == 0 {
            run.wait(Duration::from_micros(dice.below(3000)));
            run.stop();
        }
        match run.wait(Duration::from_secs(60)).expect("it ends") {
            Ok(done) if done.after.is_half_way() => half += 1,
            Ok(_) => whole += 1,
            Err(error) => panic!("seed {seed}, {place} to {goal:?}: {}", measure::error_chain(&*error)),
        }
    }
    (whole, half)
}

#[test]
fn several_threads_get_the_results_of_plain_directories_while_theirs_are_converted() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let online = scene.mount.as_ref().unwrap().online();
    let (mut whole, mut half) = (0, 0);
    for round in 0..share(15) / (THREADS * STEPS) {
        let seed = first_seed() + round;
        let (attempt, over) = (format!("round{round}"), AtomicBool::new(false));
        let plain = scene.folder.path().join("plain").join(&attempt);
        let mut places = vec![format!("{attempt}/shared")];
        for thread in 0..THREADS {
            for (side, is_lower) in [(scene.lower(&attempt), true), (plain.clone(), false)] {
                let root = side.join(format!("t{thread}"));
                fs::create_dir_all(&root).unwrap();
                Ground::sharing(thread).lay(&root, is_lower);
            }
            places.extend(["m1", "m2", "p"].map(|top| format!("{attempt}/t{thread}/{top}")));
        }
        std::thread::scope(|scope| {
            let converter = scope.spawn(|| convert_until(&scene, &online, &places, seed, &over));
            let workers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let own = format!("t{thread}");
                    let (mounted, plain) = (scene.at(&attempt).join(&own), plain.join(&own));
                    scope.spawn(move || {
                        let (ground, mut dice) = (Ground::sharing(thread), Dice(seed << 8 | thread));
                        for at in 0..STEPS {
                            let step = dice.step();
                            let through = apply(&ground, &mounted, &step);
                            let beside = apply(&ground, &plain, &step);
                            assert_eq!(through, beside, "seed {seed}, thread {thread}, step {at}, {step:?}");
                        }
                    })
                })
                .collect();
            let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            over.store(true, Ordering::Relaxed);
            let (of_whole, of_half) = converter.join().expect("no conversion fails");
            whole += of_whole;
            half += of_half;
            assert!(outcomes.iter().all(Result::is_ok), "see above");
        });
        assert_eq!(tree(&scene.at(&attempt)), tree(&plain), "seed {seed}");
        fs::remove_dir_all(&plain).unwrap();
        fs::remove_dir_all(scene.at(&attempt)).expect("removed, also what is half converted");
        assert!(!scene.lower(&attempt).exists());
    }
    assert!(whole > 20 && half > 5, "{whole} conversions and {half} half ones while they worked");
}

fn opened(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

/// Up to `count` names from where the descriptor stands, with the position behind each.
fn some(directory: &OwnedFd, count: usize) -> Vec<(String, u64)> {
    let mut buffer = [MaybeUninit::uninit(); 2000];
    let mut raw = RawDir::new(directory, &mut buffer);
    let mut all = Vec::new();
    while all.len() < count || !raw.is_buffer_empty() {
        let Some(entry) = raw.next() else { break };
        let entry = entry.unwrap();
        all.push((entry.file_name().to_str().unwrap().to_owned(), entry.next_entry_cookie()));
    }
    all
}

const STABLE: usize = 1500;

#[test]
fn listings_that_last_over_conversions_miss_no_name_and_return_none_twice() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let online = scene.mount.as_ref().unwrap().online();
    fs::create_dir(scene.lower("group")).unwrap();
    for number in 0..STABLE {
        let name = if number % 10 == 0 { format!("stable-{number}") } else { format!("{}", 10_000 + number) };
        fs::write(scene.lower("group").join(name), "").unwrap();
    }
    let group = scene.at("group");
    let over = AtomicBool::new(false);
    let conversions = AtomicU64::new(0);
    let is_stable = |name: &str| name.starts_with("stable-") || (name.len() == 5 && name.starts_with('1'));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut goal = MANAGE;
            while !over.load(Ordering::Relaxed) {
                convert(&online, "group", goal).unwrap();
                conversions.fetch_add(1, Ordering::Relaxed);
                goal = if goal == MANAGE { Goal::Flat } else { MANAGE };
            }
        });
        scope.spawn(|| {
            let mut number = 0;
            while !over.load(Ordering::Relaxed) {
                number = (number + 7919) % 30_000;
                let path = group.join(format!("9{number}"));
                if fs::write(&path, "").is_ok() && number % 3 > 0 {
                    let _ = fs::rename(&path, group.join(format!("renamed-{number}")));
                    let _ = fs::remove_file(group.join(format!("renamed-{number}")));
                }
            }
        });
        let listers: Vec<_> = (0..3)
            .map(|lister| {
                let (group, conversions) = (&group, &conversions);
                scope.spawn(move || {
                    let mut dice = Dice(lister);
                    let (mut spanned, mut went_back) = (0, 0);
                    for round in 0..4 {
                        let directory = opened(group);
                        let begun = conversions.load(Ordering::Relaxed);
                        let (mut seen, mut last) =
                            (BTreeMap::<String, u32>::new(), None::<(Vec<String>, u64)>);
                        loop {
                            // Back to where it was some names ago: they come again, and nothing else.
                            if let Some((names, position)) = last.take().filter(|_| dice.below(8) == 0) {
                                rustix::fs::seek(&directory, SeekFrom::Start(position)).unwrap();
                                names.iter().for_each(|name| *seen.get_mut(name).unwrap() -= 1);
                                went_back += 1;
                            }
                            let position = rustix::fs::tell(&directory).unwrap();
                            let part = some(&directory, 1);
                            if part.is_empty() {
                                break;
                            }
                            let names: Vec<String> = part
                                .into_iter()
                                .map(|(name, _)| name)
                                .filter(|name| is_stable(name))
                                .collect();
                            names.iter().for_each(|name| *seen.entry(name.clone()).or_default() += 1);
                            last = (position > 0).then_some((names, position));
                            // Slow ones, so that conversions begin and end meanwhile.
                            let ended = conversions.load(Ordering::Relaxed);
                            let waits = lister > 0 && dice.below(12) == 0;
                            while waits && conversions.load(Ordering::Relaxed) == ended {
                                std::thread::yield_now();
                            }
                        }
                        let wrong: Vec<_> = seen.iter().filter(|(_, times)| **times != 1).collect();
                        assert!(wrong.is_empty(), "round {round} of {lister}: {wrong:?}");
                        assert_eq!(seen.len(), STABLE, "round {round} of {lister}: missed");
                        spanned += u64::from(conversions.load(Ordering::Relaxed) > begun + 1);
                    }
                    (spanned, went_back)
                })
            })
            .collect();
        let outcomes: Vec<_> = listers.into_iter().map(|lister| lister.join()).collect();
        over.store(true, Ordering::Relaxed);
        let done: Vec<(u64, u64)> = outcomes.into_iter().map(|outcome| outcome.expect("see above")).collect();
        let (spanned, went_back) = done.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        assert!(spanned > 3 && went_back > 5, "{spanned} lasted over conversions, {went_back} went back");
    });
}

/// Symptom: a listing that began again just when a conversion began ended early, or returned names twice.
#[test]
fn a_descriptor_that_is_rewound_again_and_again_lists_all_names_each_time() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let online = scene.mount.as_ref().unwrap().online();
    fs::create_dir(scene.lower("group")).unwrap();
    (0..STABLE).for_each(|number| fs::write(scene.lower(&format!("group/{number}")), "").unwrap());
    let (over, listings) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let directory = opened(&scene.at("group"));
                while !over.load(Ordering::Relaxed) {
                    rustix::fs::seek(&directory, SeekFrom::Start(0)).unwrap();
                    let mut listed: Vec<_> =
                        some(&directory, usize::MAX).into_iter().map(|(name, _)| name).collect();
                    let all = listed.len();
                    listed.sort_unstable();
                    listed.dedup();
                    // With the two dots.
                    assert_eq!((all, listed.len()), (STABLE + 2, STABLE + 2));
                    listings.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..60 {
            let goal = if round % 2 == 0 { Goal::Managed(Some(Layout::Hash2)) } else { Goal::Flat };
            convert(&online, "group", goal).unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(listings.into_inner() > 60);
}

#[test]
fn open_files_locks_and_where_programs_stand_survive_and_what_is_known_to_be_missing_can_be_made() {
    if cannot_mount() {
        return;
    }
    // Missing names are believed for a day.
    let scene = Scene::with(|options| options.exclusive());
    let online = scene.mount.as_ref().unwrap().online();
    let group = scene.at("group");
    fs::create_dir(&group).unwrap();
    fs::create_dir(group.join("2600")).unwrap();
    for number in 0..2000 {
        fs::write(group.join(number.to_string()), "").unwrap();
    }
    let mut log = File::options().append(true).create(true).open(group.join("log")).unwrap();
    let lock = File::open(group.join("7")).unwrap();
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
    let removed = File::open(group.join("8")).unwrap();
    fs::remove_file(group.join("8")).unwrap();
    let mut child = std::process::Command::new("/bin/sh")
        .args(["-c", "while read name; do : > $name && ls -d ../7 ../8 2>&1 | wc -l; done"])
        .current_dir(group.join("2600"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stands = child.stdin.take().unwrap();
    for round in 0..6u32 {
        let missing = group.join(format!("missing-{round}"));
        assert!(!missing.exists());
        let goal = if round % 2 == 0 { MANAGE } else { Goal::Flat };
        convert(&online, "group", goal).unwrap();
        log.write_all(b"line\n").unwrap();
        writeln!(stands, "made-{round}").unwrap();
        let second = File::open(group.join("7")).unwrap();
        assert!(
            rustix::fs::flock(&second, FlockOperation::NonBlockingLockExclusive).is_err(),
            "locked twice"
        );
        assert_eq!(removed.metadata().unwrap().nlink(), 0);
        assert!(!missing.exists());
        fs::write(&missing, "made").unwrap();
        assert_eq!(fs::read_to_string(&missing).unwrap(), "made");
    }
    drop(stands);
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2\n".repeat(6));
    assert_eq!(fs::read_to_string(group.join("log")).unwrap(), "line\n".repeat(6));
    assert_eq!(sorted(&group.join("2600")).len(), 6);
    assert!(!group.join("8").exists());
}

#[test]
fn owner_mode_group_and_times_set_half_way_are_those_of_all_when_it_has_ended() {
    if cannot_mount() || me() != 0 {
        return;
    }
    let scene = Scene::new();
    let online = scene.mount.as_ref().unwrap().online();
    let (group, lower) = (scene.at("group"), scene.lower("group"));
    for (goal, before) in [(MANAGE, Goal::Flat), (Goal::Flat, MANAGE)] {
        let mut tries = 0u64;
        loop {
            fs::create_dir(&group).unwrap();
            for number in 0..10_000 {
                fs::write(group.join(number.to_string()), "").unwrap();
            }
            convert(&online, "group", before).unwrap();
            let run = online.begin(Path::new("group"), goal, 0).unwrap();
            run.wait(Duration::from_millis(5 + tries % 40));
            run.stop();
            tries += 7;
            let ended = run.wait(Duration::from_secs(60)).unwrap().unwrap();
            if ended.after.is_half_way() {
                break;
            }
            assert!(tries < 700, "never half way");
            fs::remove_dir_all(&group).unwrap();
        }
        chown(&group, Some(4321), Some(1234)).unwrap();
        fs::set_permissions(&group, fs::Permissions::from_mode(0o2770)).unwrap();
        let long_ago = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let of = fs::metadata(&group).unwrap();
        assert_eq!((of.uid(), of.gid(), of.mode() & 0o7777), (4321, 1234, 0o2770));
        for name in ["new-one", "123456", "3"] {
            fs::write(group.join(name), "").unwrap();
        }
        assert_eq!(fs::metadata(group.join("new-one")).unwrap().gid(), 1234, "the group is inherited");
        assert_eq!(fs::metadata(group.join("123456")).unwrap().gid(), 1234, "the group is inherited");
        File::open(&group).unwrap().set_times(fs::FileTimes::new().set_modified(long_ago)).unwrap();
        assert_eq!(fs::metadata(&group).unwrap().mtime(), 1_000_000);
        convert(&online, "group", MANAGE).unwrap();
        std::thread::park_timeout(Duration::from_millis(1100));
        assert_eq!(fs::metadata(&group).unwrap().mtime(), 1_000_000);
        let below = fs::metadata(&lower).unwrap();
        assert_eq!((below.mode() & 0o7777, below.mtime()), (0o6770, 1_000_000));
        for level in fs::read_dir(&lower).unwrap() {
            let level = level.unwrap();
            let of = level.metadata().unwrap();
            let is = (of.uid(), of.gid(), of.mode() & 0o7777);
            assert_eq!(is, (4321, 1234, 0o2770), "{:?}", level.file_name());
        }
        assert_eq!(names(&group).len(), 10_002);
        fs::remove_dir_all(&group).unwrap();
    }
}

#[test]
fn a_directory_is_removed_or_replaced_while_it_is_half_converted() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let online = scene.mount.as_ref().unwrap().online();
    let group = scene.at("group");
    let (mut half, mut removed) = (0, 0);
    for round in 0..24u64 {
        fs::create_dir(&group).unwrap();
        for number in 0..1500 {
            fs::write(group.join(number.to_string()), "").unwrap();
        }
        if round % 2 == 1 {
            convert(&online, "group", MANAGE).unwrap();
        }
        let goal = if round % 2 == 1 { Goal::Flat } else { MANAGE };
        let run = online.begin(Path::new("group"), goal, me()).unwrap();
        run.wait(Duration::from_millis(round % 12));
        if round % 4 < 2 {
            run.stop();
            half += u32::from(run.wait(Duration::from_secs(60)).unwrap().unwrap().after.is_half_way());
        }
        let refused = fs::remove_dir(&group).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(39), "it has entries: {refused}");
        for number in 0..1500 {
            fs::remove_file(group.join(number.to_string())).unwrap();
        }
        if round % 3 == 0 {
            fs::create_dir(scene.at("other")).unwrap();
            fs::rename(scene.at("other"), &group).unwrap();
            assert!(!scene.at("other").exists());
        }
        fs::remove_dir(&group).unwrap();
        assert!(!scene.lower("group").exists());
        let outcome = run.wait(Duration::from_secs(60)).expect("it ends with the directory");
        removed += u32::from(outcome.is_err());
    }
    assert!(half > 3, "{half} half way, {removed} removed while under way");
}
