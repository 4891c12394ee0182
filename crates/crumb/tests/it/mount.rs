//! `crumb mount` and `crumb unmount` as a user types them: daemon and foreground, told in one line what is wrong.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::binary::{Bench, assert_fits, is_one_error};
use rustix::process::{Pid, Signal, kill_process};
use testkit::need::{self, HostFeature, host, need};

/// Whether nothing can be mounted here; the test is then listed as skipped.
fn cannot_mount() -> bool {
    !testkit::need::fuse()
}

/// A directory with a managed spool and a place to show it; unmounted at the end whatever happens.
struct Place(Bench);

impl Place {
    fn new() -> Self {
        let bench = Bench::in_memory();
        fs::create_dir_all(bench.path("spool/cancel")).unwrap();
        fs::set_permissions(bench.path("spool/cancel"), fs::Permissions::from_mode(0o4755)).unwrap();
        fs::create_dir(bench.path("at")).unwrap();
        Self(bench)
    }

    fn serving(&self, args: &[&str]) -> Child {
        self.0.started(args, "is shown at")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for place in ["at", "second", "spool"] {
            let _ = stackfs::mounts::unmount(&self.0.path(place), true);
        }
    }
}

/// Waits until the daemon has seen that its mount is gone.
fn gone(path: &Path) -> bool {
    within_20_s(|| !path.exists())
}

fn within_20_s(so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !so() {
        if begun.elapsed() > Duration::from_secs(20) {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    true
}

#[test]
fn a_daemon_is_ready_when_the_command_returns_and_ends_with_its_mount() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    bench.fine(&[
        "mount",
        "spool",
        "at",
        "--daemon",
        "--pid-file",
        "pid",
        "--log",
        "log",
        "-o",
        "rw,noatime",
    ]);
    fs::write(bench.path("at/cancel/123456"), "article").unwrap();
    assert_eq!(bench.read("spool/cancel/345/123456"), "article");
    let stats = bench.fine(&["mount", "--stats", "at"]);
    assert!(stats.contains("create") && stats.contains("% of these"), "{stats}");
    assert_fits(&stats);
    let text = bench.fine(&["mount", "--stats", "at", "--prometheus"]);
    assert!(text.contains("crumb_mount_operation_seconds_count{operation=\"create\"} 1\n"), "{text}");
    let twice = bench.fails(2, &["mount", "spool", "at", "--daemon"]);
    assert!(twice.contains("already mounted") && twice.lines().count() == 1, "{twice}");
    assert!(bench.path("pid").exists());
    bench.fine(&["unmount", "at"]);
    assert!(gone(&bench.path("pid")), "the daemon stays");
    let runs = bench.fine(&["runs", "list"]);
    assert!(runs.contains("mount"), "{runs}");
    let run: serde_json::Value =
        serde_json::from_str(&bench.fine(&["runs", "show", "last", "--json"])).unwrap();
    // It is root's, on a local file system, so changes below are watched.
    for name in ["entry_timeout_s", "attributes_timeout_s", "missing_timeout_s"] {
        assert_eq!(run["config"][name], 120.0, "{name}: {run}");
    }
    let command = run["command"].as_array().unwrap();
    assert_eq!((&command[0], command.last().unwrap()), (&"crumb".into(), &"rw,noatime".into()), "{run}");
    let not = bench.fails(2, &["unmount", "at"]);
    assert!(not.contains("no mount of Crumb's") && not.lines().count() == 1, "{not}");
}

#[test]
fn a_signal_unmounts_and_a_kill_leaves_a_tree_that_mounts_again() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    let mut child = place.serving(&["mount", "spool", "spool"]);
    fs::write(bench.path("spool/cancel/7"), "seven").unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(bench.read("spool/cancel/000/7"), "seven", "unmounted: the tree below shows");
    let mut child = place.serving(&["mount", "spool", "at", "-o", "readers=follow"]);
    fs::write(bench.path("at/cancel/8"), "eight").unwrap();
    // Many by one caller: the reader is on this CPU when it is killed.
    (0..1000).for_each(|_| assert!(!bench.path("at/missing").exists()));
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    assert!(fs::read(bench.path("at/cancel/8")).is_err());
    // As a service manager does that starts it again.
    bench.fine(&["mount", "spool", "at", "--daemon", "--no-store"]);
    let spool = bench.path("spool").canonicalize().unwrap();
    assert_eq!(stackfs::mounts::showing(&spool).unwrap().len(), 1, "the dead mount is gone");
    assert_eq!(bench.read("at/cancel/7") + &bench.read("at/cancel/8"), "seveneight");
    bench.fine(&["unmount", "at"]);
}

#[test]
fn by_io_uring_a_daemon_that_is_stopped_holds_up_and_one_that_is_killed_fails_its_callers() {
    let place = Place::new();
    let bench = &place.0;
    let begin = || place.serving(&["mount", "spool", "at", "--transport", "ring"]);
    let Some(mut child) = testkit::with_fuse_ring(begin) else { return };
    let table = bench.fine(&["mount", "--stats", "at"]);
    assert!(table.contains("by io_uring"), "{table}");
    fs::write(bench.path("at/cancel/8"), "eight").unwrap();
    let pid = Pid::from_child(&child);
    std::thread::scope(|scope| {
        kill_process(pid, Signal::STOP).unwrap();
        let (answer, answers) = mpsc::channel();
        scope.spawn(move || answer.send(bench.path("at/missing").exists()));
        let early = answers.recv_timeout(Duration::from_millis(200));
        assert!(early.is_err(), "no program answers");
        kill_process(pid, Signal::CONT).unwrap();
        assert_eq!(answers.recv_timeout(Duration::from_secs(20)), Ok(false));
    });
    let made = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let made = &made;
            scope.spawn(move || {
                for number in 0u64.. {
                    let written = fs::write(bench.path(&format!("at/cancel/{caller}{number}0")), "x");
                    made.fetch_add(1, Ordering::SeqCst);
                    if let Err(error) = written {
                        let errno = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
                        let expected = [rustix::io::Errno::NOTCONN, rustix::io::Errno::CONNABORTED];
                        assert!(errno.is_some_and(|errno| expected.contains(&errno)), "{error}");
                        return;
                    }
                }
            });
        }
        assert!(within_20_s(|| made.load(Ordering::SeqCst) > 100));
        kill_process(pid, Signal::KILL).unwrap();
    });
    child.wait().unwrap();
    assert!(fs::read(bench.path("at/cancel/8")).is_err());
    bench.fine(&["mount", "spool", "at", "--daemon", "--no-store"]);
    assert_eq!(bench.read("at/cancel/8"), "eight");
    bench.fine(&["unmount", "at"]);
}

/// Symptom: files of a fresh mount were not there, on a busy machine. Cause: the ended daemon unmounts its place by path
/// once more, and takes the new mount away. Fix: `crumb unmount` returns when that daemon is done, and no session unmounts by itself.
#[test]
fn unmounted_and_mounted_again_at_once_the_new_mount_stays() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    for round in 0..10 {
        bench.fine(&["mount", "spool", "at", "--daemon", "--no-store"]);
        fs::write(bench.path(&format!("at/cancel/{round}")), "x").unwrap();
        bench.fine(&["unmount", "at"]);
        assert!(
            bench.path(&format!("spool/cancel/000/{round}")).exists(),
            "round {round} went past the mount"
        );
    }
}

#[test]
fn mount_8_finds_its_helper_by_name() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    let helper = bench.path("mount.fuse.crumb");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_crumb"), &helper).unwrap();
    let status = Command::new(&helper)
        .args([&bench.path("spool"), &bench.path("at")])
        .args(["-o", "rw,exclusive,x-systemd.automount"])
        .env("CRUMB_STORE", bench.path("runs.db"))
        .status()
        .unwrap();
    assert!(status.success());
    fs::write(bench.path("at/cancel/123456"), "").unwrap();
    bench.fine(&["unmount", "at"]);
}

#[test]
fn wrong_places_and_options_are_told_in_one_error() {
    let bench = Bench::in_memory();
    bench.write("file", "");
    fs::create_dir_all(bench.path("at/below")).unwrap();
    fs::create_dir_all(bench.path("full/x")).unwrap();
    for (args, says) in [
        (&["mount", "file", "at"][..], "not a directory"),
        (&["mount", "none", "at"], "none: cannot be used"),
        (&["mount", "at", "none"], "none: cannot be used"),
        (&["mount", "at", "at", "-o", "colour=red"], "`colour=red`"),
        (&["mount", "at", "at", "--layout", "flat"], "flat"),
        (&["mount", "at", "full"], "full: not empty"),
        (&["mount", "at", "at/below"], "lies within"),
    ] {
        for daemon in [false, true] {
            let args: Vec<&str> = args.iter().copied().chain(daemon.then_some("--daemon")).collect();
            let told = bench.fails(2, &args);
            assert!(told.contains(says), "{args:?}: {told}");
            assert!(is_one_error(&told), "{args:?}: {told}");
        }
    }
    for (args, says) in [
        (&["mount"][..], "<LOWER>"),
        (&["mount", "at"], "<MOUNTPOINT>"),
        (&["unmount"], "<MOUNTPOINT>"),
        (&["mount", "--prometheus", "at", "at"], "--stats"),
    ] {
        assert!(bench.fails(2, args).contains(says), "{args:?}");
    }
    for (code, args) in [(2, ["unmount", "none"]), (2, ["unmount", "file"]), (1, ["mount", "--stats=at"])] {
        let told = bench.fails(code, &args);
        assert!(told.contains("no mount of Crumb's") && told.lines().count() == 1, "{args:?}: {told}");
    }
    for verb in ["mount", "unmount", "manage", "unmanage", "check", "advise"] {
        assert!(bench.fine(&[verb, "--help"]).contains("Examples:"), "{verb}");
    }
}

/// Whether a mount namespace can be made; the test is listed as skipped where it cannot.
fn can_unshare() -> bool {
    let tried = Command::new("unshare").args(["-m", "true"]).output();
    let made = match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(format!("unshare: {error}")),
    };
    host(HostFeature::Namespaces, made).is_some()
}

/// Whether this process has a mount namespace of its own, and in it a /dev/fuse for everybody, whatever the machine's is
/// like. If not, it runs `test` again in a process that has, and fails when that fails.
fn has_own_device(test: &str) -> bool {
    const IS_THERE: &str = "CRUMB_TEST_OWN_DEVICE";
    if std::env::var_os(IS_THERE).is_some() {
        return true;
    }
    if !can_unshare() {
        return false;
    }
    let scratch = tempfile::tempdir().unwrap();
    let script = "mount --make-rprivate /; mount -t tmpfs none \"$0\"; mknod -m 666 \"$0/fuse\" c 10 229
        mount --bind \"$0/fuse\" /dev/fuse; umount \"$0\"; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-ec", script]).arg(scratch.path()).arg(std::env::current_exe().unwrap());
    let (_program, module) = module_path!().split_once("::").unwrap();
    let test = format!("{module}::{test}");
    let output = command.args(["--exact", &test, "--nocapture"]).env(IS_THERE, "1").output().unwrap();
    let (code, text) = said(&output);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("1 passed"), "{test} is the test's name: {text}");
    false
}

/// What puts a program into an ordinary user's place.
const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// Whether no ordinary user can mount here; the test is then listed as skipped.
fn no_nobody(bench: &Bench) -> bool {
    let programs = [("fusermount3", "fuse3"), ("setpriv", "util-linux")];
    if programs.iter().any(|(program, package)| need::program(program, package).is_none()) {
        return true;
    }
    let (code, text) = said(&as_nobody(bench, &["--version"]));
    let runs = if code == 0 { Ok(()) } else { Err(format!("user nobody cannot run this program: {text}")) };
    need(runs).is_none()
}

/// `crumb ARGS` as user nobody, within the bench.
fn as_nobody(bench: &Bench, args: &[&str]) -> std::process::Output {
    in_a_place_of(bench, &AS_NOBODY, args)
}

fn in_a_place_of(bench: &Bench, place: &[&str], args: &[&str]) -> std::process::Output {
    let mut command = Command::new(place[0]);
    command.args(&place[1..]).arg(env!("CARGO_BIN_EXE_crumb")).args(args).current_dir(bench.directory());
    command.env("CRUMB_STORE", bench.path("spool/runs.db")).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &std::process::Output) -> (i32, String) {
    let text = [&output.stdout[..], &output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8(text).unwrap())
}

fn shell_as_nobody(bench: &Bench, script: &str) -> String {
    let mut command = Command::new(AS_NOBODY[0]);
    command.args(&AS_NOBODY[1..]).args(["sh", "-ec", script]).current_dir(bench.directory());
    let (code, text) = said(&command.output().unwrap());
    assert_eq!(code, 0, "{script}\n{text}");
    text
}

#[test]
fn an_ordinary_user_mounts_his_own_tree_through_fusermount3_and_only_he_sees_it() {
    let test = "an_ordinary_user_mounts_his_own_tree_through_fusermount3_and_only_he_sees_it";
    if cannot_mount() || !has_own_device(test) {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    if no_nobody(bench) {
        return;
    }
    fs::set_permissions(bench.directory(), fs::Permissions::from_mode(0o755)).unwrap();
    for path in ["spool", "spool/cancel", "at"] {
        std::os::unix::fs::chown(bench.path(path), Some(65534), Some(65534)).unwrap();
    }
    fs::set_permissions(bench.path("spool/cancel"), fs::Permissions::from_mode(0o4755)).unwrap();
    for at in ["at", "spool"] {
        let (code, text) = said(&as_nobody(bench, &["mount", "spool", at, "--daemon", "--log", "spool/log"]));
        assert_eq!((code, &text[..]), (0, ""), "{at}");
        let script = format!(
            "cd {at}; umask 027; echo article > cancel/123456; ln cancel/123456 cancel/7; mv cancel/7 outside
             mkdir cancel/2600; chmod 750 cancel; test $(stat -c %a cancel/123456) = 640
             test \"$(cat outside)\" = article; rm outside; printf x >> cancel/123456
             test $(stat -c %U cancel/2600) = nobody; truncate -s 3 cancel/123456
             mkdir shut; echo x > shut/in; echo y > locked; chmod 400 locked
             chmod 0 shut; ! cat shut/in 2>/dev/null; ! ls shut 2>/dev/null; ! test -x shut; ! test -w locked
             ! (printf x >> locked) 2>/dev/null; ! chown root locked 2>/dev/null; chmod 700 shut; test -x shut
             test $(cat locked shut/in | tr -d '\\n') = yx; rm -rf shut locked; ls cancel"
        );
        assert_eq!(shell_as_nobody(bench, &script), "123456\n2600\n", "{at}");
        // Not even root, as the kernel has it where allow_other is not given.
        assert!(fs::read_dir(bench.path(at)).is_err(), "{at}");
        let (code, text) = said(&as_nobody(bench, &["manage", "spool/cancel"]));
        assert!(code == 1 && text.contains("crumb unmount"), "{at}: {text}");
        let (code, text) = said(&as_nobody(bench, &["unmount", at]));
        assert_eq!(code, 0, "{at}: {text}");
        assert!(
            bench.path("spool/cancel/345/123456").is_file() && bench.path("spool/cancel/260/2600").is_dir()
        );
        assert_eq!(
            fs::metadata(bench.path("spool/cancel/260")).unwrap().permissions().mode() & 0o7777,
            0o750
        );
        shell_as_nobody(bench, "rm -r spool/cancel/*");
    }
    let mut child = Command::new(AS_NOBODY[0])
        .args(&AS_NOBODY[1..])
        .args([env!("CARGO_BIN_EXE_crumb"), "mount", "spool", "at", "--no-store"])
        .current_dir(bench.directory())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert!(ready.contains("is shown at"), "{ready}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "Ctrl-C unmounts an ordinary user's mount too");
    assert!(stackfs::mounts::showing(&bench.path("spool").canonicalize().unwrap()).unwrap().is_empty());
}

#[test]
fn without_the_rights_or_the_device_it_is_one_line_that_says_what_to_do() {
    let test = "without_the_rights_or_the_device_it_is_one_line_that_says_what_to_do";
    if cannot_mount() || !has_own_device(test) {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    let refused = |place: &[&str], args: &[&str], says: &str| {
        for daemon in [false, true] {
            let args: Vec<&str> = args.iter().copied().chain(daemon.then_some("--daemon")).collect();
            let (code, text) = said(&in_a_place_of(bench, place, &args));
            assert!(matches!(code, 1 | 2), "{args:?}: {code} {text}");
            assert!(text.contains(says) && is_one_error(&text), "{args:?} should say {says}:\n{text}");
        }
    };
    fs::create_dir(bench.path("dev")).unwrap();
    let missing =
        "mount -t tmpfs none dev; mknod -m 666 dev/null c 1 3; mkdir dev/shm; mount --bind /dev/shm dev/shm
        mount --rbind dev /dev; exec \"$0\" \"$@\"";
    let place = ["unshare", "-m", "sh", "-ec", missing];
    refused(&place, &["mount", "spool", "at"], "No such file");
    let without_admin = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"];
    refused(&without_admin, &["mount", "spool", "at"], "SYS_ADMIN");
    if no_nobody(bench) {
        return;
    }
    fs::set_permissions(bench.directory(), fs::Permissions::from_mode(0o755)).unwrap();
    refused(&AS_NOBODY, &["mount", "spool", "at"], "at: cannot mount");
    std::os::unix::fs::chown(bench.path("at"), Some(65534), Some(65534)).unwrap();
    refused(&AS_NOBODY, &["mount", "spool", "at", "-o", "allow_other"], "user_allow_other");
    fs::set_permissions(bench.path("spool"), fs::Permissions::from_mode(0o700)).unwrap();
    refused(&AS_NOBODY, &["mount", "spool", "at"], "spool: cannot be used");
    let (code, text) = said(&as_nobody(bench, &["check", "spool"]));
    assert!(code == 1 && text.contains("Permission denied") && is_one_error(&text), "{text}");
    // As on machines without udev. The node is this process's own.
    fs::set_permissions(bench.path("spool"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions("/dev/fuse", fs::Permissions::from_mode(0o600)).unwrap();
    refused(&AS_NOBODY, &["mount", "spool", "at"], "chmod 666 /dev/fuse");
    let (_, text) = said(&as_nobody(bench, &["mount", "spool", "at"]));
    assert!(text.contains("Permission denied") && !text.contains("modprobe"), "{text}");
}

/// Each text file that a Python program opened wrote three lines to the log: it asks whether the file is a terminal.
#[test]
fn the_question_whether_a_file_is_a_terminal_leaves_nothing_in_the_log() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    let log = bench.path("log");
    bench.fine(&["mount", "spool", "at", "--daemon", "--log", log.to_str().unwrap()]);
    fs::write(bench.path("at/text"), "").unwrap();
    let asked = Command::new("stty").arg("-F").arg(bench.path("at/text")).output().unwrap();
    let answer = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(answer.contains("Inappropriate ioctl"), "{answer}");
    stackfs::mounts::unmount(&bench.path("at"), false).unwrap();
    let text = fs::read_to_string(&log).unwrap();
    assert!(!text.to_lowercase().contains("ioctl"), "{text}");
}

#[test]
fn a_mount_over_a_half_converted_directory_says_in_its_log_which_and_what_finishes_it() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    // As a conversion leaves it that was killed when it had moved one entry.
    fs::create_dir_all(bench.path("spool/control/.crumb-converting-345/345")).unwrap();
    fs::write(bench.path("spool/control/.crumb-converting-345/.times"), "").unwrap();
    fs::write(bench.path("spool/control/.crumb-converting-345/345/123456"), "moved").unwrap();
    fs::write(bench.path("spool/control/123457"), "not yet").unwrap();
    bench.fine(&["mount", "spool", "at", "--daemon", "--log", "log"]);
    for name in ["control/123456", "control/123457", "control/9"] {
        assert_eq!(fs::read(bench.path("at").join(name)).unwrap_err().raw_os_error(), Some(5), "{name}");
    }
    let log = bench.read("log");
    let path = bench.path("spool/control").canonicalize().unwrap();
    assert!(log.contains(&format!("`crumb unmanage {}` finishes it", path.display())), "{log}");
    bench.fine(&["unmount", "at"]);
    bench.fine(&["manage", "spool/control"]);
    bench.fine(&["mount", "spool", "at", "--daemon"]);
    assert_eq!(bench.read("at/control/123456") + &bench.read("at/control/123457"), "movednot yet");
    bench.fine(&["unmount", "at"]);
}

/// Symptom: an old daemon that ended removed the pid file of the one that had replaced it. Cause: it removed whatever was
/// at the path. Fix: only what has its own process id. The old daemon held the new one's statistics socket as well.
#[test]
fn a_daemon_that_ends_late_leaves_the_pid_file_and_the_socket_to_the_one_that_replaced_it() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    bench.write("spool/used", "used");
    let mut old = place.serving(&["mount", "spool", "at", "--pid-file", "pid", "--no-store"]);
    let used = fs::File::open(bench.path("at/used")).unwrap();
    kill_process(Pid::from_child(&old), Signal::TERM).unwrap();
    let spool = bench.path("spool").canonicalize().unwrap();
    let detached = || stackfs::mounts::showing(&spool).unwrap().is_empty();
    assert!(within_20_s(detached), "the old mount stays");
    bench.fine(&["mount", "spool", "at", "--daemon", "--pid-file", "pid", "--no-store"]);
    let new = bench.read("pid");
    drop(used);
    assert_eq!(old.wait().unwrap().code(), Some(0));
    assert_eq!(bench.read("pid"), new);
    assert!(bench.fine(&["mount", "--stats", "at"]).contains("mounted for"));
    bench.fine(&["unmount", "at"]);
    assert!(gone(&bench.path("pid")), "its own it removes");
}

/// Symptom: a directory was converted while a detached mount of it was still in use, and what its users made then lay
/// beside the hidden level. Cause: only the kernel's table was asked. Fix: the program that serves holds locks on the
/// tree's root and all above it until it ends.
#[test]
fn a_detached_mount_that_is_in_use_keeps_conversions_and_exclusive_mounts_out() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    fs::create_dir(bench.path("second")).unwrap();
    fs::create_dir(bench.path("spool/plain")).unwrap();
    bench.write("spool/plain/used", "used");
    for exclusive in [true, false] {
        let args = ["mount", "spool", "at", "--no-store", "--exclusive"];
        let mut old = place.serving(if exclusive { &args } else { &args[..4] });
        let used = fs::File::open(bench.path("at/plain/used")).unwrap();
        kill_process(Pid::from_child(&old), Signal::TERM).unwrap();
        let spool = bench.path("spool").canonicalize().unwrap();
        assert!(within_20_s(|| stackfs::mounts::showing(&spool).unwrap().is_empty()), "the old mount stays");
        for args in [
            &["manage", "spool/plain"][..],
            &["manage", "spool"],
            &["unmanage", "spool/cancel"],
            &["manage", "."],
            &["check", "spool", "--repair"],
            &["mount", "spool", "second", "--daemon", "--exclusive"],
            &["mount", "spool/plain", "second", "--daemon", "--exclusive"],
        ] {
            let refused = bench.fails(1, args);
            assert!(refused.contains("detached") && refused.lines().count() == 1, "{args:?}: {refused}");
        }
        if exclusive {
            let refused = bench.fails(1, &["mount", "spool", "second", "--daemon"]);
            assert!(refused.contains("detached"), "{refused}");
        } else {
            bench.fine(&["mount", "spool", "second", "--daemon", "--no-store"]);
            bench.fine(&["unmount", "second"]);
        }
        assert!(bench.path("spool/plain/used").exists(), "still as it was");
        drop(used);
        assert_eq!(old.wait().unwrap().code(), Some(0));
    }
    bench.fine(&["manage", "spool/plain"]);
    bench.fine(&["mount", "spool", "at", "--daemon", "--no-store", "--exclusive"]);
    bench.fine(&["unmount", "at"]);
}

#[test]
fn a_second_mount_of_a_tree_is_reported_and_refused_beside_one_that_is_exclusive() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    fs::create_dir(bench.path("second")).unwrap();
    bench.fine(&["mount", "spool", "at", "--daemon", "--no-store"]);
    let said = bench.crumb(&["mount", "spool", "second", "--daemon", "--no-store"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("is shown at") && said.err.contains("too"), "{}", said.err);
    bench.fine(&["unmount", "second"]);
    let refused = bench.fails(1, &["mount", "spool/cancel", "second", "--daemon", "--exclusive"]);
    assert!(refused.contains("exclusive") && refused.lines().count() == 1, "{refused}");
    bench.fine(&["unmount", "at"]);
    bench.fine(&["mount", "spool", "at", "--daemon", "--no-store", "--exclusive"]);
    for args in [
        &["mount", "spool", "second"][..],
        &["mount", "spool/cancel", "second", "--daemon"],
        &["mount", "spool", "second", "--daemon", "--exclusive"],
    ] {
        let refused = bench.fails(1, args);
        assert!(refused.contains("exclusive") && refused.lines().count() == 1, "{args:?}: {refused}");
    }
    bench.fine(&["unmount", "at"]);
}

/// Holds the name of a mount's socket as this user would, until it is dropped: keeps each connection, or answers it.
struct Squatter {
    over: Arc<AtomicBool>,
    address: SocketAddr,
}

impl Squatter {
    fn of(mountpoint: &Path, uid: u32, answer: Option<&'static str>) -> Self {
        let path = mountpoint.as_os_str().as_bytes();
        let name = [b"crumb-mount:", &path[path.len().saturating_sub(90)..]].concat();
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let (ended, at) = (Arc::clone(&over), address.clone());
        let (told, bound) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // Of this thread alone.
            let (root, user) = (rustix::process::Uid::ROOT, rustix::process::Uid::from_raw(uid));
            rustix::thread::set_thread_res_uid(root, user, root).unwrap();
            let listener = UnixListener::bind_addr(&at).unwrap();
            told.send(()).unwrap();
            let mut kept = Vec::new();
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let mut stream = stream.unwrap();
                if let Some(text) = answer {
                    // Who asked may be gone.
                    let _ = stream.read(&mut [0; 64]);
                    let _ = stream.write_all(text.as_bytes());
                } else {
                    kept.push(stream);
                }
            }
        });
        bound.recv().unwrap();
        Self { over, address }
    }
}

impl Drop for Squatter {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect_addr(&self.address);
    }
}

/// Symptom: `crumb unmount` hung, and `--stats` printed what anybody liked, escapes too. Cause: whoever had taken the
/// socket's name first was believed, and waited for. Fix: the peer's user is looked at, and the wait has an end.
#[test]
fn a_stranger_who_holds_the_name_of_a_mounts_socket_is_neither_believed_nor_waited_for() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    fs::create_dir(bench.path("second")).unwrap();
    let [at, second, spool] = ["at", "second", "spool"].map(|name| bench.path(name).canonicalize().unwrap());
    let _stranger = Squatter::of(&at, 65534, None);
    bench.fine(&["mount", "spool", "at", "--daemon", "--no-store"]);
    let told = bench.fails(1, &["mount", "--stats", "at"]);
    assert!(told.contains("user 65534") && told.lines().count() == 1, "{told}");
    let begun = Instant::now();
    bench.fine(&["unmount", "at"]);
    assert!(begun.elapsed() < Duration::from_secs(10), "it waited for a stranger");
    // Root's own programs are believed, but not for ever, nor by a terminal.
    let _silent = Squatter::of(&second, 0, None);
    bench.fine(&["mount", "spool", "second", "--daemon", "--no-store"]);
    let told = bench.fails(1, &["mount", "--stats", "second"]);
    assert!(told.contains("did not answer within") && told.lines().count() == 1, "{told}");
    let _loud = Squatter::of(&spool, 0, Some("\u{1b}[2Jcleared\n"));
    stackfs::mounts::unmount(&second, false).unwrap();
    bench.fine(&["mount", "spool", "spool", "--daemon", "--no-store"]);
    assert_eq!(bench.fine(&["mount", "--stats", "spool"]), "?[2Jcleared\n");
}

#[test]
fn remount_changes_what_the_kernel_keeps_and_nothing_else() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    let not = bench.fails(2, &["mount", "spool", "at", "-o", "remount,ro"]);
    assert!(not.contains("no mount of Crumb's"), "{not}");
    bench.fine(&["mount", "spool", "at", "--daemon", "--no-store", "-o", "rw,sync,lazytime"]);
    bench.write("at/cancel/1", "synchronous");
    bench.fine(&["mount", "spool", "at", "--daemon", "-o", "rw,remount,ro"]);
    let refused = fs::write(bench.path("at/cancel/2"), "").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    bench.fine(&["mount", "spool", "at", "--daemon", "-o", "remount,rw"]);
    bench.write("at/cancel/2", "two");
    assert_eq!(bench.read("spool/cancel/000/1") + &bench.read("spool/cancel/000/2"), "synchronoustwo");
    bench.fine(&["unmount", "at"]);
    // What is not named stays: `remount,noatime` made a read-only mount writable.
    bench.fine(&[
        "mount",
        "spool",
        "at",
        "--daemon",
        "--no-store",
        "--exclusive",
        "-o",
        "ro,noexec,sync,dev",
    ]);
    let flags = || {
        let at = bench.path("at").canonicalize().unwrap();
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table.lines().find(|line| line.split(' ').nth(4) == at.to_str()).unwrap().to_owned();
        let has = |flag: &str| line.split([' ', ',']).any(|one| one == flag);
        ["ro", "noexec", "sync", "nodev", "nosuid", "noatime"].map(has)
    };
    assert_eq!(flags(), [true, true, true, false, true, false]);
    bench.fine(&["mount", "spool", "at", "-o", "exclusive,allow_other,remount,noatime"]);
    assert_eq!(flags(), [true, true, true, false, true, true]);
    for (args, says) in [
        (&["mount", "spool", "at", "-o", "remount,entry_timeout=5"][..], "`entry_timeout` cannot be changed"),
        (&["mount", "spool", "at", "-o", "remount,rw,threads=3"], "`threads` cannot be changed"),
        (&["mount", "spool", "at", "-o", "remount,rw", "--awake"], "`awake` cannot be changed"),
        (&["mount", "spool/cancel", "at", "-o", "remount,rw"], "not spool/cancel"),
    ] {
        let told = bench.fails(2, args);
        assert!(told.contains(says) && told.lines().count() == 1, "{args:?}: {told}");
    }
    assert_eq!(flags(), [true, true, true, false, true, true], "refused, nothing changes");
    bench.fine(&["mount", "spool", "at", "-o", "remount,rw,exec,async,nodev,suid,atime"]);
    assert_eq!(flags(), [false, false, false, true, false, false]);
    bench.fine(&["unmount", "at"]);
    // As mount(8) does by /etc/fstab.
    bench.fine(&["mount", "spool", "spool", "--daemon", "--no-store", "--exclusive"]);
    bench.fine(&["mount", "spool", "spool", "--daemon", "-o", "rw,exclusive,remount,ro"]);
    assert!(fs::write(bench.path("spool/cancel/9"), "").is_err(), "it is read-only now");
    bench.fine(&["unmount", "spool"]);
}

/// How often the threads of a process went to sleep up to now.
fn sleeps(pid: &str) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let of = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let line =
            status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:").map(str::to_owned));
        line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    tasks.map(of).sum()
}

/// Symptom: an idle mount woke a processor some 25 times a second. Cause: the program looked for signals, and a thread for
/// requests, by the clock. Fix: both are woken by what they wait for.
#[test]
fn a_mount_that_nobody_uses_sleeps_until_it_is_used_or_ended() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    bench.fine(&["mount", "spool", "at", "--daemon", "--no-store", "--pid-file", "pid", "-o", "threads=4"]);
    for number in 0..100 {
        bench.write(&format!("at/cancel/{number}"), "in use");
    }
    let pid = bench.read("pid");
    // What was read last is given up every five seconds: one thread wakes for that.
    const WINDOW: Duration = Duration::from_secs(2);
    let idle = || {
        let (before, until) = (sleeps(pid.trim()), Instant::now() + WINDOW);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left);
        }
        sleeps(pid.trim()) - before
    };
    let least = (0..5).map(|_| idle()).take_while(|count| *count > 2).count();
    assert!(least < 5, "it never sleeps");
    assert_eq!(bench.read("at/cancel/99"), "in use", "and wakes");
    bench.fine(&["unmount", "at"]);
    assert!(gone(&bench.path("pid")), "and ends");
}

#[test]
fn the_service_manager_hears_when_the_mount_answers_and_when_it_ends() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    let manager = std::os::unix::net::UnixDatagram::bind(bench.path("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_crumb"))
        .args(["mount", "spool", "at", "--no-store"])
        .current_dir(bench.directory())
        .env("NOTIFY_SOCKET", bench.path("notify"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let heard = || {
        let mut word = [0; 64];
        let len = manager.recv(&mut word).expect("the service manager hears");
        String::from_utf8(word[..len].to_vec()).unwrap()
    };
    assert_eq!(heard(), "READY=1");
    assert!(bench.path("at/cancel").exists());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(heard(), "STOPPING=1");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Symptom: one user with many open files, and open(2) failed with EMFILE for everybody. Cause: they all are descriptors of
/// the daemon. Fix: nobody gets more than what is left for others.
#[test]
fn a_user_with_many_open_files_leaves_some_for_others() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    if no_nobody(bench) {
        return;
    }
    fs::set_permissions(bench.directory(), fs::Permissions::from_mode(0o755)).unwrap();
    for number in 0..1500 {
        bench.write(&format!("spool/{number}"), "x");
    }
    // Without SYS_RESOURCE it cannot raise its hard limit.
    let few =
        "ulimit -n 1200; exec setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource \"$0\" \"$@\"";
    let (code, text) =
        said(&in_a_place_of(bench, &["sh", "-ec", few], &["mount", "spool", "at", "--daemon"]));
    assert_eq!(code, 0, "{text}");
    let many = "ulimit -n 4096; cd at; exec tail -n 0 -f $(seq 0 1499)";
    let mut greedy = Command::new(AS_NOBODY[0])
        .args(&AS_NOBODY[1..])
        .args(["sh", "-ec", many])
        .current_dir(bench.directory())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut refused = String::new();
    let mut said_by_it = BufReader::new(greedy.stderr.take().unwrap());
    while !refused.contains("Too many open files") {
        refused.clear();
        assert!(said_by_it.read_line(&mut refused).unwrap() > 0, "it got all it wanted");
    }
    let others: Vec<_> =
        (1400..1450).map(|number| fs::File::open(bench.path(&format!("at/{number}")))).collect();
    greedy.kill().unwrap();
    greedy.wait().unwrap();
    let failed = others.iter().filter_map(|opened| opened.as_ref().err()).next();
    assert!(failed.is_none(), "{failed:?}");
    drop(others);
    bench.fine(&["unmount", "at"]);
}

/// Symptom: names vanished from a directory whose set-user-id bit was set by hand, and nothing said why. Cause: a managed
/// directory shows its hidden level only. Fix: the log says so when it is first opened.
#[test]
fn names_beside_the_hidden_level_are_reported_in_the_log_when_the_directory_is_first_opened() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    for name in ["one", "two", "123456"] {
        bench.write(&format!("spool/cancel/{name}"), "not shown");
    }
    bench.fine(&["mount", "spool", "at", "--daemon", "--no-store", "--log", "log"]);
    assert_eq!(fs::read_dir(bench.path("at/cancel")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(bench.path("at/cancel")).unwrap().count(), 0);
    let log = bench.read("log");
    let path = bench.path("spool/cancel").canonicalize().unwrap();
    let says = [format!("crumb check {} --repair", path.display()), "3 names in it are not shown".to_owned()];
    assert!(says.iter().all(|says| log.contains(says)), "{log}");
    assert_eq!(log.matches("not shown").count(), 1, "said once: {log}");
    assert!(!log.contains('\u{1b}'), "a file has no colours: {log:?}");
    bench.fine(&["unmount", "at"]);
    bench.fine(&["check", "spool", "--repair"]);
    bench.fine(&["mount", "spool", "at", "--daemon", "--no-store"]);
    assert_eq!(bench.read("at/cancel/one") + &bench.read("at/cancel/123456"), "not shownnot shown");
}

#[test]
fn a_census_is_drawn_by_report_and_taken_as_the_day_by_advise() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    assert!(bench.fails(1, &["advise", "spool", "--census", "last"]).contains("no "), "no store yet");
    let mut child = place.serving(&["mount", "spool", "at"]);
    for number in 0..200 {
        fs::write(bench.path(&format!("at/cancel/{number}")), "x").unwrap();
    }
    for number in 0..100 {
        fs::remove_file(bench.path(&format!("at/cancel/{number}"))).unwrap();
    }
    fs::read_dir(bench.path("at/cancel")).unwrap().count();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
    let advice = bench.fine(&["advise", "spool", "--census", "last", "--json", "-"]);
    let advice: serde_json::Value = serde_json::from_str(&advice).unwrap();
    let mix = advice["mix_per_day"].as_str().unwrap();
    let counts: Vec<f64> =
        mix.split(',').map(|part| part.split_once('=').unwrap().1.parse().unwrap()).collect();
    let [lookup, unlink, create, readdir] = counts[..] else { panic!("{mix}") };
    assert!(lookup >= create && readdir > 0.0, "{mix}");
    assert!((create / unlink - 2.0).abs() < 1e-6 && create >= 200.0 * 86_400.0 / 60.0, "{mix}");
    assert!(advice["mix_from"].as_str().unwrap().contains("-mount-"), "{advice}");
    bench.fine(&["report", "last", "-o", "census.html"]);
    let page = bench.read("census.html");
    for words in ["What the mount was asked", "Operations that use a name", "news spool, 1998", "88.41%"] {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains(r#"id="phases""#), "the census stands in place of its phase");
    bench.write("no.json", "{}");
    assert!(bench.fails(1, &["advise", "spool", "--census", "no.json"]).contains("no.json"));
    assert!(bench.fails(2, &["advise", "spool", "--census", "last", "--mix", "lookup=1"]).contains("--mix"));
}

/// A feed of short articles in groups whose names are numbers, or hold such groups.
fn numeric_feed(bench: &Bench, articles: u32) {
    let mut batches = String::new();
    for number in 0..articles {
        let groups = match number % 5 {
            0 => "alt.2600",
            1 => "alt.autos.porsche.944,alt.2600",
            2 | 3 => "alt.autos.porsche",
            _ => "alt,alt.autos.porsche",
        };
        let article = format!(
            "Path: a.example!b\nFrom: c@b.example (C)\nNewsgroups: {groups}\nSubject: {number}\nMessage-ID: <{number}@b.example>\n\
             Date: 13 Aug 1995 22:46:48 GMT\nLines: 1\n\nArticle {number}.\n"
        );
        batches.push_str(&format!("#! rnews {}\n{article}", article.len()));
    }
    fs::create_dir(bench.path("batches")).unwrap();
    bench.write("batches/all.rnews", &batches);
    bench.fine(&["feed", "import", "--order", "path", "batches", "-o", "feed"]);
}

#[test]
fn a_news_server_stores_and_expires_in_managed_groups_that_are_called_like_articles() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    // Enough that article 944 of alt.autos.porsche comes by, whose name is a group's.
    numeric_feed(bench, 2200);
    let spool = |root: &str| format!("{root}/crumb-netnews-n");
    let netnews = |passes: &str, keep: &str| {
        let args =
            ["run", "netnews", "at", "--feed", "feed", "--passes", passes, "--retention", "3", keep, "n"];
        let run = bench.crumb(&[&args[..], &["--batches-per-pass", "5", "--batch-every", "2"]].concat());
        // 3: the figures of so short a run are not to be trusted, which is not what this is about.
        assert!(matches!(run.code, 0 | 3), "{}{}", run.out, run.err);
    };
    let verified = |root: &str| {
        let out = bench.fine(&["feed", "verify", &spool(root), "--feed", "feed"]);
        assert!(out.contains("RIGHT"), "{out}");
    };
    let mount = || bench.fine(&["mount", "spool", "at", "--daemon", "--no-store", "--log", "log"]);
    mount();
    netnews("1", "--keep");
    bench.fine(&["unmount", "at"]);
    let groups = spool("spool") + "/articles/";
    // From the leaves up: the sub-groups of a managed group lie a level deeper.
    for group in ["alt/autos/porsche/944", "alt/autos/porsche", "alt/2600", "alt"] {
        bench.fine(&["manage", &format!("{groups}{group}")]);
    }
    mount();
    netnews("4", "--resume");
    verified("at");
    assert!(bench.path("at/crumb-netnews-n/articles/alt/autos/porsche/944").is_dir());
    assert!(bench.path("at/crumb-netnews-n/articles/alt/autos/porsche/943").is_file());
    bench.fine(&["unmount", "at"]);
    // The hidden levels: groups among the numbers, articles ten by ten.
    let porsche = bench.path(&format!("{groups}alt/aaa/autos/porsche"));
    assert!(porsche.join("094/944").is_dir() && porsche.join("094/943").is_file());
    let articles = |group: &Path| -> usize {
        let levels = fs::read_dir(group).unwrap().flatten().filter(|level| level.path().is_dir());
        levels.map(|level| fs::read_dir(level.path()).unwrap().count()).sum()
    };
    for (group, articles) in [
        ("alt.autos.porsche.944", articles(&porsche.join("094/944"))),
        ("alt.2600", articles(&bench.path(&format!("{groups}alt/260/2600")))),
    ] {
        assert!(articles > 200, "{group}: {articles} articles in its subdirectories");
    }
    let checked = bench.fine(&["check", "spool"]);
    assert!(checked.contains("RIGHT"), "{checked}");
    for group in ["alt", "alt/autos/porsche", "alt/autos/porsche/944", "alt/2600"] {
        bench.fine(&["unmanage", &format!("{groups}{group}")]);
    }
    verified("spool");
    assert!(!bench.read("log").contains("ERROR"), "{}", bench.read("log"));
}
