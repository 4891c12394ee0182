//! Whole runs on a memory file system: what lies on the storage at each step, and what is left.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dirscale::{Cache, Dirscale, DirscaleConfig, DirscaleError, Event, Keep, Measure, Work};
use files::{Layout, LocalFs};
use harness::{Benchmark as _, Figures, Surroundings};
use measure::{CacheControl, CacheState, Forget, MACHINE_DISTURBED, UnreachableCaches};
use tempfile::TempDir;

/// Nothing speaks against a run but what other tests did meanwhile.
fn is_sound(figures: &Figures) -> bool {
    figures.verdict.reasons.iter().all(|reason| !reason.fatal || reason.code == MACHINE_DISTURBED)
}

fn bench() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

fn config(sizes: &str) -> DirscaleConfig {
    DirscaleConfig {
        sizes: sizes.parse().unwrap(),
        operations: NonZeroU32::new(50).unwrap(),
        file_bytes: 100,
        cache: Cache::Warm,
        rounds: NonZeroU32::MIN,
        ..DirscaleConfig::new("t")
    }
}

/// What came of a run: its figures, and what ended it early.
#[derive(Debug)]
struct Outcome {
    figures: Figures,
    error: Option<DirscaleError>,
}

impl std::ops::Deref for Outcome {
    type Target = Figures;

    fn deref(&self) -> &Figures {
        &self.figures
    }
}

fn run_on(root: &Path, config: &DirscaleConfig, tell: &mut dyn FnMut(Event)) -> Outcome {
    let mut caches = UnreachableCaches { why: "a test".to_owned() };
    run_with(root, config, &mut caches, &AtomicBool::new(false), tell)
}

fn run_with(
    root: &Path,
    config: &DirscaleConfig,
    caches: &mut dyn CacheControl,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> Outcome {
    let fs = Arc::new(LocalFs::open(root).unwrap());
    let ended = dirscale::run(config, fs, caches, stop, tell);
    let part = ended.part.expect("a part, whatever ended the run");
    let figures = Dirscale { config: config.clone() }.figures(&part, &Surroundings::default());
    Outcome { figures, error: ended.error }
}

fn quietly(root: &Path, config: &DirscaleConfig) -> Outcome {
    run_on(root, config, &mut |_| {})
}

/// Files below a directory, as paths from it.
fn files_below(directory: &Path) -> BTreeSet<PathBuf> {
    fn walk(root: &Path, directory: &Path, files: &mut BTreeSet<PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                walk(root, &path, files);
            } else {
                files.insert(path.strip_prefix(root).unwrap().to_owned());
            }
        }
    }
    let mut files = BTreeSet::new();
    walk(directory, directory, &mut files);
    files
}

fn numbers(files: &BTreeSet<PathBuf>) -> BTreeSet<u64> {
    files.iter().map(|path| path.file_name().unwrap().to_str().unwrap().parse().unwrap()).collect()
}

fn set(root: &Path) -> PathBuf {
    root.join("crumb-dirscale-t")
}

fn text_of(outcome: &Outcome) -> String {
    outcome.error.as_ref().map(|error| measure::error_chain(error)).unwrap_or_default()
}

#[test]
fn after_every_step_each_directory_holds_exactly_the_row_of_numbers_it_should() {
    let bench = bench();
    let root = bench.path();
    let all = DirscaleConfig { layouts: vec![Layout::Flat, Layout::D345, Layout::D456], ..config("1..64") };
    let mut checked = 0;
    let outcome = run_on(root, &all, &mut |event| {
        let Event::Measured { layout, files, measure, .. } = event else { return };
        let found = files_below(&set(root).join(layout.name().replace('/', "-")));
        let held = if measure == Measure::Add { files + 50 } else { files };
        let numbers = numbers(&found);
        assert_eq!(numbers.len() as u64, held, "{layout} {files} {measure:?}");
        let (first, last) = (numbers.first().unwrap(), numbers.last().unwrap());
        assert_eq!(last - first + 1, held, "{layout} {files} {measure:?}: a row without holes");
        for path in &found {
            let mut place = Vec::new();
            layout.place(path.file_name().unwrap().as_encoded_bytes(), &mut place);
            assert_eq!(path.as_os_str().as_encoded_bytes(), place);
        }
        checked += 1;
    });
    assert!(outcome.complete && is_sound(&outcome), "{outcome:?}");
    assert_eq!(checked, 7 * 3 * 5);
    assert_eq!(std::fs::read_dir(root).unwrap().count(), 0, "removed at the end");
}

#[test]
fn all_layouts_hold_the_same_numbers_with_the_same_bytes() {
    let bench = bench();
    let kept = DirscaleConfig { layouts: Layout::ALL.into(), keep: Keep::Keep, ..config("20,60") };
    assert!(quietly(bench.path(), &kept).complete);
    let of = |layout: Layout| {
        let directory = set(bench.path()).join(layout.name().replace('/', "-"));
        let files = files_below(&directory);
        let bytes = |path: &PathBuf| std::fs::read(directory.join(path)).unwrap();
        files.iter().map(|path| (path.file_name().unwrap().to_owned(), bytes(path))).collect::<BTreeSet<_>>()
    };
    let flat = of(Layout::Flat);
    assert_eq!(flat.len(), 60);
    assert!(flat.iter().all(|(_, bytes)| bytes.len() == 100));
    for layout in Layout::ALL {
        assert_eq!(of(layout), flat, "{layout}");
    }
}

#[test]
fn a_reused_set_goes_on_at_the_next_size_with_the_very_same_files() {
    let bench = bench();
    let root = bench.path();
    assert!(quietly(root, &DirscaleConfig { keep: Keep::Keep, ..config("1..64") }).complete);
    let inodes = || -> BTreeSet<(u64, PathBuf)> {
        let inode = |path: PathBuf| (std::fs::metadata(set(root).join(&path)).unwrap().ino(), path);
        files_below(&set(root)).into_iter().map(inode).collect()
    };
    let before = inodes();
    let (mut sizes, mut made) = (Vec::new(), Vec::new());
    // 128 files are enough to keep some of the 64 while 50 are added and removed.
    let again = DirscaleConfig { keep: Keep::Reuse, ..config("1..128") };
    let outcome = run_on(root, &again, &mut |event| match event {
        Event::SizeBegins { files, .. } => {
            sizes.push(files);
            made = before.intersection(&inodes()).cloned().collect();
        }
        Event::Measured { measure: Measure::Remove, .. } => {
            let kept = before.intersection(&inodes()).count();
            assert!(kept > 0, "the oldest 50 of 64 are gone, the others must be the same inodes");
        }
        _ => {}
    });
    assert!(outcome.complete, "{outcome:?}");
    assert_eq!(sizes, [128]);
    assert_eq!(made.iter().filter(|(_, path)| !path.ends_with("crumb-set")).count(), 2 * 64);
    let filled = outcome.phases.iter().find(|phase| phase.name == "fill flat 128").unwrap();
    assert_eq!(filled.items, 64);
    assert_eq!(outcome.curves[0].lines[0].points.iter().map(|point| point.x).collect::<Vec<_>>(), [128.0]);
}

#[test]
fn a_size_measured_before_is_measured_again_when_nothing_larger_is_asked_for() {
    let bench = bench();
    assert!(quietly(bench.path(), &DirscaleConfig { keep: Keep::Keep, ..config("64") }).complete);
    let again = DirscaleConfig { keep: Keep::Reuse, ..config("64") };
    assert_eq!(quietly(bench.path(), &again).curves[0].lines[0].points.len(), 1);
    let smaller = quietly(bench.path(), &DirscaleConfig { keep: Keep::Reuse, ..config("32") });
    assert!(matches!(smaller.error, Some(DirscaleError::SetOutgrown { .. })), "{smaller:?}");
}

#[test]
fn a_run_killed_in_the_middle_of_a_write_can_be_gone_on_with() {
    let bench = bench();
    let root = bench.path();
    assert!(quietly(root, &DirscaleConfig { keep: Keep::Keep, ..config("16") }).complete);
    // As a kill leaves it: not at rest, files beyond what is written down, the last one short.
    let state = std::fs::read_to_string(set(root).join("crumb-set")).unwrap();
    std::fs::write(set(root).join("crumb-set"), state.replace("at-rest", "in-use")).unwrap();
    let last = *numbers(&files_below(&set(root).join("flat"))).last().unwrap();
    std::fs::write(set(root).join(format!("flat/{}", last + 1)), [0; 100]).unwrap();
    std::fs::write(set(root).join(format!("flat/{}", last + 2)), [0; 3]).unwrap();
    let mut notes = Vec::new();
    let again = DirscaleConfig { keep: Keep::Reuse, ..config("32") };
    let outcome = run_on(root, &again, &mut |event| {
        if let Event::Note(text) = event {
            notes.push(text);
        }
    });
    assert!(outcome.complete && is_sound(&outcome), "{outcome:?}");
    assert!(
        notes
            .iter()
            .any(|note| note.contains("flat: an earlier run was cut off; going on with the 17 files"))
    );
    assert_eq!(files_below(&set(root).join("flat")).len(), 32);
}

#[test]
fn a_run_killed_just_after_it_made_its_folder_can_be_gone_on_with() {
    let again = DirscaleConfig { keep: Keep::Reuse, ..config("16") };
    for left in [&[][..], &["crumb-set.new"]] {
        let bench = bench();
        let root = bench.path();
        std::fs::create_dir(set(root)).unwrap();
        left.iter().for_each(|name| std::fs::write(set(root).join(name), "crumb dir").unwrap());
        let refused = quietly(root, &DirscaleConfig { keep: Keep::Keep, ..config("16") });
        assert!(text_of(&refused).contains("--reuse t"), "{refused:?}");
        let outcome = quietly(root, &again);
        assert!(outcome.complete, "what the refusal advises must work, with {left:?} left: {outcome:?}");
        assert_eq!(files_below(&set(root).join("flat")).len(), 16);
    }
    // Killed when the set had said that it is in use, and some directories were made.
    let bench = bench();
    let root = bench.path();
    std::fs::create_dir_all(set(root).join("345/000")).unwrap();
    std::fs::write(set(root).join("crumb-set"), "crumb dirscale set 1\nfile_bytes 100\nin-use\n").unwrap();
    assert!(quietly(root, &again).complete);
    // What somebody else made is no set.
    std::fs::remove_file(set(root).join("crumb-set")).unwrap();
    assert!(text_of(&quietly(root, &again)).contains("it has no file crumb-set"));
}

#[test]
fn a_set_that_someone_changed_is_refused_and_left_alone() {
    let bench = bench();
    let root = bench.path();
    let again = DirscaleConfig { keep: Keep::Reuse, ..config("32") };
    assert!(text_of(&quietly(root, &again)).contains("make it with --keep t"));
    assert!(quietly(root, &DirscaleConfig { keep: Keep::Keep, ..config("16") }).complete);
    let first = *numbers(&files_below(&set(root).join("flat"))).first().unwrap();

    let hole = set(root).join(format!("flat/{}", first + 3));
    std::fs::remove_file(&hole).unwrap();
    assert!(text_of(&quietly(root, &again)).contains("1 of the files"));
    std::fs::write(&hole, [0; 100]).unwrap();

    let stranger = set(root).join("345/000/notes");
    std::fs::write(&stranger, b"mine").unwrap();
    assert!(text_of(&quietly(root, &again)).contains("000/notes was not put there by Crumb"));
    assert_eq!(std::fs::read(&stranger).unwrap(), b"mine");
    std::fs::remove_file(&stranger).unwrap();

    let other_bytes = DirscaleConfig { file_bytes: 7, ..again.clone() };
    assert!(text_of(&quietly(root, &other_bytes)).contains("its files have 100 bytes, not 7"));

    std::fs::write(set(root).join("crumb-set"), "something else").unwrap();
    assert!(text_of(&quietly(root, &again)).contains("is not what this Crumb writes"));
}

#[test]
fn a_folder_of_the_name_is_never_written_over_and_others_are_told_of() {
    let bench = bench();
    let root = bench.path();
    std::fs::create_dir(set(root)).unwrap();
    std::fs::create_dir(root.join("crumb-dirscale-old")).unwrap();
    let mut notes = Vec::new();
    let outcome = run_on(root, &DirscaleConfig { keep: Keep::Keep, ..config("4") }, &mut |event| {
        if let Event::Note(text) = event {
            notes.push(text);
        }
    });
    assert!(text_of(&outcome).contains("go on with it by --reuse t, or remove it (rm -r "), "{outcome:?}");
    assert!(outcome.phases.is_empty() && !outcome.complete);
    assert!(notes.iter().any(|note| note.contains("crumb-dirscale-old of another run")), "{notes:?}");
    assert_eq!(std::fs::read_dir(set(root)).unwrap().count(), 0);
}

#[test]
fn ctrl_c_while_filling_leaves_nothing_behind_and_keeps_what_was_measured() {
    let bench = bench();
    let stop = AtomicBool::new(false);
    let mut caches = UnreachableCaches { why: "a test".to_owned() };
    let outcome = run_with(bench.path(), &config("8,100000"), &mut caches, &stop, &mut |event| {
        if matches!(event, Event::Progress { work: Work::Fill(_), done: 1024.., .. }) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    assert!(!outcome.complete && outcome.error.is_none(), "{outcome:?}");
    assert!(!outcome.verdict.valid && outcome.verdict.has("interrupted"), "{:?}", outcome.verdict);
    assert_eq!(outcome.curves[0].lines[0].points.iter().map(|point| point.x).collect::<Vec<_>>(), [8.0]);
    assert_eq!(std::fs::read_dir(bench.path()).unwrap().count(), 0);
}

#[test]
fn a_kept_set_survives_ctrl_c_at_rest() {
    let bench = bench();
    let stop = AtomicBool::new(false);
    let mut caches = UnreachableCaches { why: "a test".to_owned() };
    let kept = DirscaleConfig { keep: Keep::Keep, ..config("8,4000") };
    run_with(bench.path(), &kept, &mut caches, &stop, &mut |event| {
        if matches!(event, Event::Progress { .. }) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let again = quietly(bench.path(), &DirscaleConfig { keep: Keep::Reuse, ..config("8,4000") });
    assert!(again.complete && is_sound(&again), "{again:?}");
    assert_eq!(again.curves[0].lines[1].points.iter().map(|point| point.x).collect::<Vec<_>>(), [4000.0]);
}

/// Says what it is told to, and counts.
struct Scripted {
    says: CacheState,
    chilled: u64,
    asked: Vec<Forget>,
}

impl CacheControl for Scripted {
    fn chill(&mut self, forget: Forget, names: &[PathBuf]) -> CacheState {
        assert!(!names.is_empty());
        self.asked.push(forget);
        self.chilled += 1;
        self.says.clone()
    }
}

fn with_caches(says: CacheState) -> (Outcome, u64) {
    of_kind(Cache::Cold, Forget::All, says)
}

fn of_kind(cache: Cache, forgets: Forget, says: CacheState) -> (Outcome, u64) {
    let bench = bench();
    let mut caches = Scripted { says, chilled: 0, asked: vec![] };
    let cold = DirscaleConfig { cache, ..config("16") };
    let outcome = run_with(bench.path(), &cold, &mut caches, &AtomicBool::new(false), &mut |_| {});
    assert!(outcome.complete && is_sound(&outcome), "{outcome:?}");
    assert!(caches.asked.iter().all(|forget| *forget == forgets), "{:?}", caches.asked);
    (outcome, caches.chilled)
}

#[test]
fn caches_are_dropped_before_every_measurement_and_proven_ones_need_no_remark() {
    let (outcome, chilled) = with_caches(CacheState::Cold);
    // Two layouts; two kinds of lookup, adding, removing, three readings.
    assert_eq!(chilled, 2 * (2 + 1 + 1 + 3));
    assert_eq!(outcome.metrics["cache_drops_proven_cold"], 14.0);
    assert!(!outcome.verdict.has("cache-state-unknown") && !outcome.verdict.has("cache-always-warm"));
}

#[test]
fn caches_that_were_not_proven_cold_mark_the_run() {
    let (outcome, chilled) = with_caches(CacheState::Unknown { why: "it is not root".to_owned() });
    assert!(outcome.verdict.has("cache-state-unknown"), "{:?}", outcome.verdict);
    assert!(
        outcome
            .verdict
            .reasons
            .iter()
            .any(|reason| reason.text.contains("in 14 of 14 measurements: it is not root"))
    );
    assert_eq!(chilled, 14, "each could have gone well");
}

#[test]
fn cold_names_alone_drop_names_alone_and_need_no_remark() {
    let (outcome, chilled) = of_kind(Cache::ColdNames, Forget::Names, CacheState::Cold);
    assert_eq!((chilled, outcome.metrics["cache_drops_proven_cold"]), (14, 14.0));
    assert!(!outcome.verdict.has("cold-pages-unproven"));
}

#[test]
fn pages_that_nobody_saw_go_mark_the_run() {
    let (outcome, _) = with_caches(CacheState::NamesCold { why: "it is FUSE".to_owned() });
    assert!(outcome.verdict.has("cold-pages-unproven"), "{:?}", outcome.verdict);
    assert_eq!(outcome.metrics["cache_drops_proven_cold"], 14.0);
}

#[test]
fn storage_that_is_always_warm_is_asked_once_and_marks_the_run() {
    let (outcome, chilled) = with_caches(CacheState::AlwaysWarm { why: "it is memory".to_owned() });
    assert!(outcome.verdict.has("cache-always-warm"), "{:?}", outcome.verdict);
    assert_eq!(chilled, 1);
}

/// A small tmpfs, where one may mount.
struct SmallMount(TempDir);

impl SmallMount {
    fn new(options: &str) -> Option<Self> {
        let bench = bench();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "crumb-test"]).arg(bench.path());
        let mounted = mount.output().is_ok_and(|done| done.status.success());
        mounted.then_some(Self(bench))
    }
}

impl Drop for SmallMount {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(self.0.path()).output());
    }
}

#[test]
fn sizes_without_room_are_left_out_before_anything_is_filled() {
    let Some(small) = SmallMount::new("size=16m,nr_inodes=4000") else { return };
    let outcome = quietly(small.0.path(), &config("100,1000,50000"));
    assert!(outcome.complete && is_sound(&outcome), "{outcome:?}");
    assert!(outcome.verdict.has("no-room"), "{:?}", outcome.verdict);
    assert_eq!(
        outcome.curves[0].lines[0].points.iter().map(|point| point.x).collect::<Vec<_>>(),
        [100.0, 1000.0]
    );

    let hopeless = quietly(small.0.path(), &config("50000"));
    assert!(matches!(hopeless.error, Some(DirscaleError::NoRoom { size: 50_000, .. })), "{hopeless:?}");
    assert_eq!(std::fs::read_dir(small.0.path()).unwrap().count(), 0);
}

#[test]
fn storage_that_fills_up_in_the_middle_ends_the_run_and_is_emptied_again() {
    let Some(small) = SmallMount::new("size=40m") else { return };
    let root = small.0.path();
    let outcome = run_on(root, &config("10,2000"), &mut |event| {
        // Someone else takes the room that was there at the beginning.
        if matches!(event, Event::SizeBegins { files: 2000, .. }) {
            drop(std::fs::write(root.join("hog"), vec![1; 64 << 20]));
        }
    });
    assert!(matches!(outcome.error, Some(DirscaleError::Full { .. })), "{outcome:?}");
    assert!(text_of(&outcome).contains("measure smaller sizes"), "{}", text_of(&outcome));
    assert!(!outcome.complete && !outcome.curves.is_empty());
    let left: Vec<_> = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["hog"]);
}

/// What the owner of a target does who wants others' files removed: the set is moved away, and a link put in its place.
fn lead_astray(root: &Path, victim: &Path) {
    std::fs::rename(set(root), root.join("moved")).unwrap();
    std::os::unix::fs::symlink(victim, set(root)).unwrap();
}

/// A directory that looks like a set, so that each name a run uses is there.
fn victim() -> (TempDir, BTreeSet<PathBuf>) {
    let victim = bench();
    for directory in ["flat", "345/000", "345/OTH"] {
        std::fs::create_dir_all(victim.path().join(directory)).unwrap();
    }
    for file in ["crumb-set", "precious", "flat/1", "flat/2", "345/000/1", "345/precious"] {
        std::fs::write(victim.path().join(file), "precious").unwrap();
    }
    let files = files_below(victim.path());
    (victim, files)
}

/// Symptom: a run as root removed all below a directory that the target's owner had put a link to in the set's place.
/// Cause: the set was used and removed by its path from the target.
#[test]
fn a_link_put_in_the_place_of_the_set_leads_nobody_elsewhere() {
    for when in [Measure::Add, Measure::Remove] {
        let (bench, (victim, before)) = (bench(), victim());
        let root = bench.path();
        let config = DirscaleConfig { layouts: vec![Layout::Flat, Layout::D345], ..config("1,16") };
        let mut moved = false;
        let outcome = run_on(root, &config, &mut |event| {
            if matches!(event, Event::Measured { measure, .. } if measure == when) && !moved {
                lead_astray(root, victim.path());
                moved = true;
            }
        });
        assert!(moved);
        assert_eq!(files_below(victim.path()), before, "{outcome:?}");
        assert_eq!(std::fs::read(victim.path().join("crumb-set")).unwrap(), b"precious");
        assert_eq!(std::fs::read_dir(root.join("moved")).unwrap().count(), 0, "what it made itself is gone");
        // The link is not the run's to take away, and a run that could not remove its set says so.
        assert!(set(root).is_symlink() && text_of(&outcome).contains("crumb-dirscale-t"), "{outcome:?}");
    }
}

#[test]
fn a_set_that_is_a_link_is_not_taken_up() {
    let (bench, elsewhere) = (bench(), bench());
    let (root, kept) = (bench.path(), DirscaleConfig { keep: Keep::Keep, ..config("1,16") });
    assert!(quietly(elsewhere.path(), &kept).complete);
    let before = files_below(elsewhere.path());
    std::os::unix::fs::symlink(set(elsewhere.path()), set(root)).unwrap();
    let outcome = quietly(root, &DirscaleConfig { keep: Keep::Reuse, ..config("32") });
    assert!(text_of(&outcome).contains("crumb-dirscale-t"), "{outcome:?}");
    assert_eq!(files_below(elsewhere.path()), before);
}

#[test]
fn a_set_in_which_others_may_write_is_not_taken_up() {
    use std::os::unix::fs::PermissionsExt as _;
    let bench = bench();
    let root = bench.path();
    assert!(quietly(root, &DirscaleConfig { keep: Keep::Keep, ..config("1,16") }).complete);
    std::fs::set_permissions(set(root), std::fs::Permissions::from_mode(0o777)).unwrap();
    let outcome = quietly(root, &DirscaleConfig { keep: Keep::Reuse, ..config("32") });
    assert!(text_of(&outcome).contains("others may write in it"), "{outcome:?}");
}

#[test]
fn a_link_that_comes_and_goes_in_the_sets_place_leads_nobody_elsewhere() {
    let (bench, (victim, before)) = (bench(), victim());
    let root = bench.path();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (moved, link) = (root.join("moved"), root.join("link"));
            std::os::unix::fs::symlink(victim.path(), &link).unwrap();
            while !ended.load(Ordering::Relaxed) {
                // Each fails while the run has no set, or where it made one anew in between.
                if std::fs::rename(set(root), &moved).is_ok() && std::fs::rename(&link, set(root)).is_ok() {
                    std::thread::yield_now();
                    let _ = std::fs::rename(set(root), &link);
                }
                let _ = std::fs::rename(&moved, set(root));
                if !link.is_symlink() {
                    let _ = std::fs::remove_file(set(root));
                    let _ = std::os::unix::fs::symlink(victim.path(), &link);
                }
            }
        });
        for _ in 0..30 {
            let all = DirscaleConfig { layouts: vec![Layout::Flat, Layout::D345], ..config("1,8") };
            let outcome = quietly(root, &all);
            if files_below(victim.path()) != before {
                ended.store(true, Ordering::Relaxed);
                panic!("{outcome:?}");
            }
            // What a run whose set was away at its end has left.
            for left in [set(root), root.join("moved")] {
                if !left.is_symlink() {
                    let _ = std::fs::remove_dir_all(left);
                }
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert_eq!(std::fs::read(victim.path().join("crumb-set")).unwrap(), b"precious");
}

#[test]
fn files_that_only_fill_a_directory_may_be_empty_and_those_that_are_added_are_not() {
    let bench = bench();
    let config = DirscaleConfig { fill_bytes: Some(0), ..config("200") };
    let mut bytes = Vec::new();
    let outcome = run_on(bench.path(), &config, &mut |event| {
        if let Event::Measured { layout: Layout::Flat, measure, .. } = event {
            let files = files_below(&set(bench.path()).join("flat"));
            let size = |name: &PathBuf| set(bench.path()).join("flat").join(name).metadata().unwrap().len();
            bytes.push((measure, files.len(), files.iter().map(size).sum::<u64>()));
        }
    });
    assert!(outcome.complete, "{}", text_of(&outcome));
    assert_eq!(bytes[0], (Measure::LookupRandom, 200, 0));
    assert_eq!(bytes[2], (Measure::Add, 250, 50 * 100));
    assert_eq!(bytes[3], (Measure::Remove, 200, 50 * 100));
    let fill = outcome.phases.iter().find(|phase| phase.name == "fill flat 200").unwrap();
    assert_eq!((fill.items, fill.bytes), (200, 0));
}
