//! What a test needs of the machine: a program, root, a device. A test that lacks it is never skipped silently.
//!
//! 1. A test asks for what it needs: `let Some(wrk) = need::program("wrk", "wrk") else { return };`.
//! 2. It is there: the test runs.
//! 3. It is missing: one line on standard error says so, past the harness, which hides the output of tests that pass. The
//!    same line is appended to the file that `CRUMB_TESTS_SKIPPED` names; `make test` prints that file at its end.
//! 4. It is missing and `CRUMB_TESTS_MUST_RUN=1` is set, as in CI: the test fails, with what to install.
//! 5. A [`HostFeature`] comes from the kernel and the machine, and no package installs it. CI lists in
//!    `CRUMB_TESTS_MAY_LACK` those that it cannot promise; their tests are skipped and listed as `cannot run here`.
//!
//! Not here: how the thing is started. `Ganesha::start_in`, `LoopImage::make` and others say in an error what is missing.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// `1`: what is missing fails a test.
pub const MUST_RUN: &str = "CRUMB_TESTS_MUST_RUN";
/// Names of host features that may be missing all the same, separated by commas.
pub const MAY_LACK: &str = "CRUMB_TESTS_MAY_LACK";
/// The file to which skipped tests are appended, one line each.
pub const SKIPPED: &str = "CRUMB_TESTS_SKIPPED";

/// What the machine or its kernel offers, and no package can install.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum HostFeature {
    /// `/dev/fuse`, which this process may open, as root.
    Fuse,
    /// FUSE over io_uring: Linux 6.14 and later.
    FuseRing,
    /// Loop devices, and file systems mounted from them; a small tmpfs, too.
    Mounts,
    /// Mount and network namespaces.
    Namespaces,
    /// Rings of io_uring; seccomp filters of some containers refuse them.
    IoUring,
    /// `/dev/cpu_dma_latency`, not held at 0 by another program of this machine.
    IdleStates,
    /// A kernel that mounts overlayfs.
    Overlay,
    /// Extended attributes and file flags in `/dev/shm`.
    Attributes,
    /// Two CPUs, and threads that may leave the idle class (`CAP_SYS_NICE`).
    IdleClass,
    /// Control groups of its own, with CPU quotas.
    CpuQuotas,
}

impl HostFeature {
    const ALL: [Self; 10] = [
        Self::Fuse,
        Self::FuseRing,
        Self::Mounts,
        Self::Namespaces,
        Self::IoUring,
        Self::IdleStates,
        Self::Overlay,
        Self::Attributes,
        Self::IdleClass,
        Self::CpuQuotas,
    ];

    /// How [`MAY_LACK`] calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fuse => "fuse",
            Self::FuseRing => "fuse-ring",
            Self::Mounts => "mounts",
            Self::Namespaces => "namespaces",
            Self::IoUring => "io-uring",
            Self::IdleStates => "idle-states",
            Self::Overlay => "overlay",
            Self::Attributes => "attributes",
            Self::IdleClass => "idle-class",
            Self::CpuQuotas => "cpu-quotas",
        }
    }
}

/// What was found, or none where it is missing: then the test returns. The error's text says what is missing and how
/// to get it.
///
/// # Panics
/// When it is missing and every test must run.
pub fn need<T>(found: Result<T, impl Display>) -> Option<T> {
    found.map_err(|missing| report(None, &missing.to_string())).ok()
}

/// A program in `PATH` or in `/usr/sbin`, where ordinary users have it too, or the Debian package that has it.
pub fn program(name: &str, package: &str) -> Option<PathBuf> {
    need(find_program(name).ok_or_else(|| format!("{name} is not installed (apt-get install {package})")))
}

/// Whether this process is root, which the test needs for `what`.
pub fn root(what: &str) -> bool {
    need(is_root().then_some(()).ok_or_else(|| format!("{what} needs root"))).is_some()
}

/// Whether a FUSE file system can be mounted here.
pub fn fuse() -> bool {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    root("mounting")
        && host(HostFeature::Fuse, device.map_err(|error| format!("/dev/fuse: {error}"))).is_some()
}

/// As [`need`], for what the machine has or has not.
///
/// # Panics
/// When it is missing, every test must run, and [`MAY_LACK`] does not list it.
pub fn host<T>(feature: HostFeature, found: Result<T, impl Display>) -> Option<T> {
    found.map_err(|missing| report(Some(feature), &missing.to_string())).ok()
}

fn find_program(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&paths).chain(["/usr/sbin".into(), "/sbin".into()]);
    places.find_map(|place| Some(place.join(name)).filter(|path| path.is_file()))
}

pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn report(feature: Option<HostFeature>, missing: &str) {
    let must_run = std::env::var(MUST_RUN).is_ok_and(|value| value == "1");
    let may_lack = std::env::var(MAY_LACK).unwrap_or_default();
    let line = match judge(must_run, &may_lack, feature, missing) {
        Ok(kind) => format!("{kind}: {}: {}\n", test_name(), missing.trim().replace('\n', " ")),
        Err(failure) => panic!("{failure}"),
    };
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(list) = std::env::var_os(SKIPPED) {
        append(Path::new(&list), &line).unwrap_or_else(|error| panic!("cannot append to {list:?}: {error}"));
    }
}

/// How the test is listed that lacks something, or why it fails.
fn judge(
    must_run: bool,
    may_lack: &str,
    feature: Option<HostFeature>,
    missing: &str,
) -> Result<&'static str, String> {
    let unknown = may_lack
        .split(',')
        .map(str::trim)
        .find(|name| !name.is_empty() && HostFeature::ALL.iter().all(|known| known.name() != *name));
    if let Some(unknown) = unknown {
        let known = HostFeature::ALL.map(HostFeature::name).join(", ");
        return Err(format!("{MAY_LACK} lists `{unknown}`, which is not a host feature; known: {known}"));
    }
    let allowed = feature.filter(|feature| may_lack.split(',').any(|name| name.trim() == feature.name()));
    match (must_run, allowed, feature) {
        (_, Some(_), _) => Ok("cannot run here"),
        (false, None, _) => Ok("skipped"),
        (true, None, Some(feature)) => Err(format!(
            "this test needs what is missing here: {missing}; {MUST_RUN}=1 forbids to skip it, and {MAY_LACK} does not list {}",
            feature.name()
        )),
        (true, None, None) => {
            Err(format!("this test needs what is missing here: {missing}; {MUST_RUN}=1 forbids to skip it"))
        }
    }
}

/// The test program and the test, which the harness runs in a thread of that name.
fn test_name() -> String {
    let program = std::env::current_exe().ok().and_then(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    let program = program.unwrap_or_else(|| "a test".to_owned());
    // Cargo appends a hash to the file name.
    let program = program.rsplit_once('-').map_or(&program[..], |(name, _)| name);
    let thread = std::thread::current();
    format!("{program}: {}", thread.name().unwrap_or("a thread of it"))
}

fn append(list: &Path, line: &str) -> std::io::Result<()> {
    // One write, which the kernel appends whole: several tests append at once.
    OpenOptions::new().append(true).create(true).open(list)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_fails_a_test_that_must_run_and_lists_it_otherwise() {
        assert_eq!(judge(false, "", None, "x is not installed"), Ok("skipped"));
        let failure = judge(true, "", None, "x is not installed (apt-get install x)").unwrap_err();
        assert!(failure.contains("apt-get install x") && failure.contains(MUST_RUN), "{failure}");
    }

    #[test]
    fn only_a_listed_host_feature_may_be_missing_where_every_test_must_run() {
        let missing = Some(HostFeature::IdleStates);
        assert_eq!(judge(true, "io-uring, idle-states", missing, "x"), Ok("cannot run here"));
        assert!(judge(true, "io-uring", missing, "x").unwrap_err().contains("does not list idle-states"));
        // A program comes by a package, whatever the list says.
        assert!(judge(true, "io-uring,idle-states", None, "x").is_err());
    }

    #[test]
    fn a_misspelt_host_feature_is_refused() {
        let failure = judge(true, "idle-state", Some(HostFeature::IdleStates), "x").unwrap_err();
        assert!(failure.contains("`idle-state`") && failure.contains("idle-states"), "{failure}");
        assert!(judge(false, "idle-state", None, "x").is_err());
    }

    #[test]
    fn lines_of_several_tests_are_appended_whole() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("skipped");
        std::thread::scope(|scope| {
            for number in 0..4 {
                let list = &list;
                scope
                    .spawn(move || (0..100).for_each(|_| append(list, &format!("test {number}\n")).unwrap()));
            }
        });
        let text = std::fs::read_to_string(list).unwrap();
        assert_eq!(text.lines().count(), 400);
        assert!(text.lines().all(|line| line.len() == "test 0".len() && line.starts_with("test ")));
    }

    #[test]
    fn a_program_is_found_by_its_name_and_the_test_is_named_by_program_and_thread() {
        assert!(program("sh", "dash").is_some_and(|path| path.ends_with("sh")));
        assert_eq!(find_program("no-such-program-anywhere"), None);
        let name = test_name();
        assert!(name.starts_with("testkit: "), "{name}");
    }
}
