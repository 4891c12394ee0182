//! Outside witnesses on real mounts: pjdfstest and fsx, over ext4, XFS and tmpfs, in managed and unmanaged directories.
//!
//! What passes on the lower file system passes through the mount; each exception is a line of `exceptions.txt`, with its
//! reason, and one that is no longer needed fails the test as well. `make test` runs fsx for 100,000 operations a
//! configuration; `CRUMB_FSX_OPERATIONS=1000000` is the soak, and `CRUMB_TESTS_TRANSPORT=ring` the same over io_uring. The programs come from crates.io by
//! `scripts/test-packages.sh`.

#![allow(clippy::print_stderr, reason = "how many cases there were is worth a line")]

#[path = "../it/scene.rs"]
mod scene;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use stackfs::{Mount, StackOptions};
use tempfile::TempDir;
use testkit::LoopImage;

/// Mode of a managed directory that everybody may write to.
const MANAGED: u32 = 0o4777;
const UNMANAGED: u32 = 0o777;

/// A lower file system for a test.
struct Lower {
    name: &'static str,
    root: PathBuf,
    _held: Held,
}

enum Held {
    Image(#[expect(dead_code, reason = "held")] LoopImage),
    Memory(#[expect(dead_code, reason = "held")] TempDir),
}

fn lowers() -> Option<Vec<Lower>> {
    let mut lowers = Vec::new();
    for (name, bytes) in [("ext4", 192 << 20), ("xfs", 320 << 20)] {
        let image = LoopImage::needed(name, bytes, &[])?;
        lowers.push(Lower { name, root: image.path().to_owned(), _held: Held::Image(image) });
    }
    let memory = TempDir::with_prefix_in("crumb-posix", "/dev/shm").expect("a directory in memory");
    lowers.push(Lower { name: "tmpfs", root: memory.path().to_owned(), _held: Held::Memory(memory) });
    Some(lowers)
}

/// A program that the script unpacked, or one in the path.
fn program(name: &str) -> Result<PathBuf, String> {
    let exe = std::env::current_exe().map_err(|error| error.to_string())?;
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let targets = exe.ancestors().skip(1).map(Path::to_owned).chain([workspace]);
    let ours = targets.map(|dir| dir.join("test-tools/bin").join(name));
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found =
        ours.chain(std::env::split_paths(&paths).map(|dir| dir.join(name))).find(|path| path.is_file());
    found.ok_or_else(|| format!("no {name} (scripts/test-packages.sh gets it)"))
}

fn ready(name: &str) -> Option<(PathBuf, Vec<Lower>)> {
    let program = testkit::need(program(name))?;
    if !testkit::need::fuse() {
        return None;
    }
    Some((program, lowers()?))
}

/// A directory of the lower file system with this mode.
fn directory(lower: &Lower, name: &str, mode: u32) -> PathBuf {
    let path = lower.root.join(name);
    fs::create_dir(&path).expect("made");
    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("mode set");
    path
}

fn mounted(lower: &Lower, no_open: bool) -> (TempDir, Mount) {
    let point = TempDir::with_prefix("crumb-posix-mount").expect("a mount point");
    let mut options = StackOptions::new(&lower.root, point.path());
    options.allow_other = true;
    options.no_open = no_open;
    options.flags.dev = true;
    options.flags.suid = true;
    let mount = scene::started(options);
    (point, mount)
}

/// Names of the cases that failed, and how many passed.
struct Cases {
    failed: BTreeSet<String>,
    passed: usize,
}

fn pjdfstest(program: &Path, settings: &Path, place: &Path) -> Cases {
    let mut suite = Command::new(program);
    // Backtraces would put lines between the cases.
    suite.env("RUST_BACKTRACE", "0").arg("-c").arg(settings).arg("-p").arg(place);
    let run = suite.output().expect("it starts");
    let text = String::from_utf8_lossy(&run.stdout);
    let with = |end: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.trim_end().strip_suffix(end));
        lines.map(|line| line.trim().to_owned()).filter(|name| name.contains("::")).collect()
    };
    let cases = Cases { failed: with("FAILED").into_iter().collect(), passed: with("ok").len() };
    assert!(
        cases.passed > 300,
        "only {} cases of pjdfstest passed in {}: {}",
        cases.passed,
        place.display(),
        said(&run)
    );
    cases
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&both);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

/// `lower file system, managed or not, case` to the reason why it may fail.
fn exceptions() -> BTreeMap<String, &'static str> {
    let lines = include_str!("exceptions.txt")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| {
            let (case, reason) = line.split_once(": ").expect("CASE: REASON");
            assert!(reason.len() > 20, "{case}: a reason says more than `{reason}`");
            (case.to_owned(), reason)
        })
        .collect()
}

/// Cases that pass in a plain directory and fail in a mounted one: `lower file system, managed or not`, case.
fn failed_only_through_the_mount(program: &Path, settings: &Path, lower: &Lower) -> Vec<(String, String)> {
    let below = pjdfstest(program, settings, &directory(lower, "plain", UNMANAGED));
    directory(lower, "unmanaged", UNMANAGED);
    directory(lower, "managed", MANAGED);
    let (point, _mount) = mounted(lower, false);
    let mut failed = Vec::new();
    for place in ["unmanaged", "managed"] {
        let through = pjdfstest(program, settings, &point.path().join(place));
        let place = format!("{}, {place}", lower.name);
        eprintln!("{place}: {} cases passed through the mount, {} below", through.passed, below.passed);
        failed.extend(through.failed.difference(&below.failed).map(|case| (place.clone(), case.clone())));
    }
    failed
}

#[test]
fn what_passes_below_passes_through_the_mount() {
    let Some((program, lowers)) = ready("pjdfstest") else { return };
    let excused = exceptions();
    let mut needed = BTreeSet::new();
    let mut wrong = Vec::new();
    let folder = TempDir::new().expect("a folder");
    let settings = folder.path().join("settings.toml");
    // Long enough for the coarsest clock of the lower file systems' time stamps.
    let text = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutimensat = {}\nutime_now = {}\n\
        [settings]\nnaptime = 0.02\n[dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";
    fs::write(&settings, text).expect("written");
    // At once: most of a case is waiting, for its naps and for the daemon.
    std::thread::scope(|scope| {
        let compared = lowers.iter().map(|lower| {
            let (program, settings) = (&program, &settings);
            scope.spawn(move || failed_only_through_the_mount(program, settings, lower))
        });
        for compared in compared.collect::<Vec<_>>() {
            for (place, case) in compared.join().expect("compared") {
                if excused.contains_key(&case) {
                    needed.insert(case);
                } else {
                    wrong.push(format!("{place}: {case}"));
                }
            }
        }
    });
    assert!(wrong.is_empty(), "passes below and not through the mount:\n{}", wrong.join("\n"));
    let idle: Vec<&String> = excused.keys().filter(|case| !needed.contains(*case)).collect();
    assert!(idle.is_empty(), "exceptions that are not needed: {idle:?}");
}

/// Operations per configuration (CRUMB_FSX_OPERATIONS overrides it) and per fsx process.
const FSX_OPERATIONS: usize = 100_000;

#[test]
fn a_file_is_the_bytes_that_were_written_to_it() {
    let Some((program, lowers)) = ready("fsx") else { return };
    let operations =
        std::env::var("CRUMB_FSX_OPERATIONS").map_or(FSX_OPERATIONS, |text| text.parse().expect("a number"));
    let folder = TempDir::new().expect("a folder");
    let settings = folder.path().join("fsx.toml");
    // Small, so that the operations cost system calls and not copying; every kind that Linux has.
    let text = "flen = 32768\nnomsyncafterwrite = true\n[opsize]\nmin = 1\nmax = 4000\n[weights]\nclose_open = 1\ninvalidate = 1\nmapread = 10\n\
        mapwrite = 3\nread = 10\nwrite = 10\ntruncate = 5\nfsync = 0.02\nfdatasync = 0.02\nposix_fallocate = 2\n\
        punch_hole = 2\nsendfile = 5\nposix_fadvise = 1\ncopy_file_range = 5\n";
    fs::write(&settings, text).expect("written");
    let modes = lowers.iter().flat_map(|lower| [(lower, false), (lower, true)]);
    for (lower, no_open) in modes {
        // Where nothing is opened by a request all data goes through the daemon.
        let operations = if no_open { operations / 4 } else { operations };
        if !no_open {
            directory(lower, "unmanaged", UNMANAGED);
            directory(lower, "managed", MANAGED);
        }
        let (point, mount) = mounted(lower, no_open);
        // Both at once: two files of one mount do not get into each other's way.
        std::thread::scope(|scope| {
            for (place, first_seed) in [("unmanaged", 1), ("managed", 2)] {
                let (program, settings, folder) = (&program, &settings, &folder);
                let file = point.path().join(place).join("123456");
                scope.spawn(move || {
                    // Start a new process every FSX_OPERATIONS: fsx leaks a thread on some operations and
                    // slows down with the square of their number.
                    for (turn, done) in (0..operations).step_by(FSX_OPERATIONS).enumerate() {
                        let (seed, count) = (first_seed + 2 * turn, FSX_OPERATIONS.min(operations - done));
                        let mut fsx = Command::new(program);
                        fsx.args(["-q", "-N", &count.to_string(), "-S", &seed.to_string(), "-f"]);
                        let run = fsx.arg(settings).arg("-P").arg(folder.path()).arg(&file).output();
                        let run = run.expect("it starts");
                        assert!(run.status.success(), "{}, {place}, seed {seed}: {}", lower.name, said(&run));
                        eprintln!(
                            "{}, {place}, no-open {no_open}: {count} operations of fsx, seed {seed}",
                            lower.name
                        );
                    }
                });
            }
        });
        assert!(
            lower.root.join("managed/345/123456").is_file(),
            "the managed file is not where the layout keeps it"
        );
        drop(mount);
    }
}
