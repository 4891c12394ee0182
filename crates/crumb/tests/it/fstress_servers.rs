//! `crumb run fstress` against real servers: nfs-ganesha, Crumb's own, and none.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use assert_cmd::cargo::CommandCargoExt as _;
use measure::{LatencyHistogram, LoadPoint, RunRecord};
use testkit::{Ganesha, Tmpfs};

/// A place for file sets where deleting is cheap.
fn scratch() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("crumb-test").tempdir_in(parent).expect("a scratch folder")
}

/// Runs a sweep and gives its record; the target and the flags as a user would type them.
fn fstress(target: &str, flags: &[&str]) -> RunRecord {
    let output = Command::cargo_bin("crumb")
        .expect("the binary is built")
        .args(["--quiet", "run", "fstress", target, "--no-store", "--json", "-", "--warm", "100ms"])
        .args(flags)
        .output()
        .expect("crumb starts");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    // 3: done, and on a busy machine the verdict may well be INVALID.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{target} {flags:?}: {:?} {told}", output.status);
    RunRecord::from_json(&String::from_utf8_lossy(&output.stdout))
        .unwrap_or_else(|error| panic!("{error}: {told}"))
}

fn assert_everything_succeeded(record: &RunRecord) {
    assert!(record.complete);
    for point in &record.points {
        for (name, stats) in &point.ops {
            let (label, errors) = (&record.label, &stats.errors);
            assert_eq!(
                stats.ok, stats.attempted,
                "{label} {name}: {} cancelled, {errors:?}",
                stats.cancelled
            );
        }
        assert!(point.latency_us.count > 0);
    }
}

fn entries(dir: &Path) -> Vec<String> {
    fs::read_dir(dir)
        .expect("readable")
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn ganesha_bears_every_workload_over_tcp_and_udp_without_an_error() {
    let scratch = scratch();
    let Some(ganesha) = Ganesha::needed(scratch.path()) else { return };
    for workload in ["sfs97", "web-server", "web-proxy", "mail", "news", "null"] {
        for proto in ["tcp", "udp"] {
            let flags =
                ["-w", workload, "--rate", "200", "--measure", "1s", "--files", "200", "--proto", proto];
            assert_everything_succeeded(&fstress(&ganesha.url(), &flags));
        }
    }
    for workload in ["database", "p2p"] {
        let flags =
            ["-w", workload, "--rate", "100", "--measure", "1s", "--files", "12", "--file-size", "4MiB"];
        assert_everything_succeeded(&fstress(&ganesha.url(), &flags));
    }
    assert_eq!(entries(ganesha.export()), Vec::<String>::new(), "file sets are removed");
}

#[test]
fn a_file_tree_takes_every_ready_made_workload_without_an_error_and_is_empty_afterwards() {
    let scratch = scratch();
    let tree = scratch.path().join("tree");
    let crumb = |args: &[&str]| {
        let output = Command::cargo_bin("crumb").expect("the binary is built").args(args).output();
        let output = output.expect("crumb starts");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let shown = tree.to_str().expect("a path of letters");
    crumb(&["pack", "create", shown, "--tree"]);
    let target = format!("pack:{shown}");
    for workload in fstress::Workload::builtin_names() {
        let (files, size) = match workload {
            "database" | "p2p" => ("12", "4MiB"),
            _ => ("200", "8KiB"),
        };
        let flags =
            ["-w", workload, "--rate", "100", "--measure", "1s", "--files", files, "--file-size", size];
        assert_everything_succeeded(&fstress(&target, &flags));
    }
    // As fast as it can be, with cuts and syncs.
    let fast = ["-w", "mail", "--rate", "max", "--outstanding", "16", "--measure", "1s", "--files", "100"];
    assert_everything_succeeded(&fstress(&target, &fast));
    let report = crumb(&["pack", "check", shown, "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!((&report["names"], &report["directories"]), (&0.into(), &0.into()), "file sets are removed");
    assert_eq!(report["faults"].as_array().map(Vec::len), Some(0), "{report}");
}

#[test]
fn a_run_repeated_with_the_same_seed_issues_the_same_operations_on_a_real_server() {
    let scratch = scratch();
    let Some(ganesha) = Ganesha::needed(scratch.path()) else { return };
    let level = |seed| {
        let flags = ["-w", "mail", "--rate", "100", "--measure", "500ms", "--files", "300", "--seed", seed];
        fstress(&ganesha.url(), &flags).points.swap_remove(0)
    };
    // On a busy machine a reply may come later than the schedule expects, and requests that are due at the very end may not be
    // planned any more. Both change what is done, and both are in the record: such a level is made again.
    let is_as_planned = |point: &LoadPoint| point.overtaken == 0 && point.unsent == 0;
    // A level that was measured a second time has the operations that follow those of the first time, in which the same may
    // have happened unseen: two of 20 agree all the same.
    let is_second = |point: &LoadPoint| point.verdict.has("measured-again");
    let mut earlier: Vec<LoadPoint> = Vec::new();
    let pair = (0..20).map(|_| level("5")).filter(is_as_planned).find_map(|point| {
        let same = |other: &&LoadPoint| match (is_second(other), is_second(&point)) {
            (false, false) => true,
            (true, true) => other.operations_digest == point.operations_digest,
            _ => false,
        };
        let found = earlier.iter().find(same).cloned();
        earlier.push(point.clone());
        found.map(|other| (other, point))
    });
    let digests: Vec<_> = earlier.iter().map(|point| (is_second(point), &point.operations_digest)).collect();
    let (first, again) = pair.unwrap_or_else(|| panic!("no two alike: {digests:?}"));
    assert_eq!(first.operations_digest, again.operations_digest);
    assert_eq!(first.file_set, again.file_set);
    let other = level("6").operations_digest;
    assert!(digests.iter().all(|(_, digest)| **digest != other), "{digests:?} {other}");
}

#[test]
fn a_server_that_dies_in_the_middle_leaves_what_was_measured() {
    let scratch = scratch();
    let Some(mut ganesha) = Ganesha::needed(scratch.path()) else { return };
    let record = scratch.path().join("record.json");
    let mut child = Command::cargo_bin("crumb")
        .expect("the binary is built")
        .args(["run", "fstress", &ganesha.url(), "--no-store", "--warm", "100ms", "--measure", "2s"])
        .args(["--rate", "200,200,200", "--files", "100", "--proto", "tcp"])
        .args(["--reconnect-timeout", "1s", "--json"])
        .arg(&record)
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("crumb starts");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().expect("piped")));
    // The first load point's line says that there is something to keep.
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains("achieved"))), "no load point was finished");
    ganesha.kill();
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(child.wait().expect("waited").code(), Some(1), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("is the server still running")), "{rest:?}");
    let record = RunRecord::from_json(&fs::read_to_string(&record).expect("a record")).expect("a good one");
    assert!(!record.complete && record.points[0].latency_us.count > 0);
}

/// A level of three seconds at `target`, whose server `kill` ends when requests begin to count.
fn level_with_a_kill(target: &str, proto: &str, kill: impl FnOnce()) -> RunRecord {
    let scratch = scratch();
    let record = scratch.path().join("record.json");
    let mut child = Command::cargo_bin("crumb")
        .expect("the binary is built")
        .args(["run", "fstress", target, "--no-store", "-w", "null", "--quick", "--rate", "200"])
        .args(["--warm", "500ms", "--measure", "3s", "--proto", proto, "--json"])
        .arg(&record)
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("crumb starts");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().expect("piped")));
    // How the generator waits is chosen, and said, as the warm-up ends.
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains("the generator s"))), "no level began");
    kill();
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(child.wait().expect("waited").code(), Some(3), "{rest:?}");
    RunRecord::from_json(&fs::read_to_string(&record).expect("a record")).expect("a good one")
}

fn assert_gone(record: &RunRecord, what: &str) {
    let point = &record.points[0];
    assert!(point.verdict.has("storage-gone") && !point.saturated, "{what}: {}", point.verdict);
    for code in ["transport-full", "errors", "rate-off"] {
        assert!(!point.verdict.has(code), "{what}: {}", point.verdict);
    }
    assert_eq!(point.latency_us.count, 600, "{what}: each request that was due counts");
    // With --quick replies are waited for 3 s.
    assert!(point.latency_us.p50 >= 2.99e6, "{what}: {:?}", point.latency_us);
    assert!(!record.verdict.valid && record.verdict.has("storage-gone"), "{what}: {}", record.verdict);
    assert!(!record.metrics.contains_key("held_per_sec"), "{what}: {:?}", record.metrics);
}

/// Symptom: a level in which the server was killed was `transport-full`: this program's own fault. See the test on the simulated
/// clock for cause and fix.
#[test]
fn a_level_in_which_the_server_is_killed_says_that_the_storage_is_gone() {
    let bench = crate::binary::Bench::in_memory();
    for proto in ["tcp", "udp"] {
        let (mut server, url) = served(&bench);
        let record = level_with_a_kill(&url, proto, || {
            server.kill().expect("killed");
            server.wait().expect("waited");
        });
        assert_gone(&record, proto);
    }
    let scratch = scratch();
    let Some(mut ganesha) = Ganesha::needed(scratch.path()) else { return };
    let url = ganesha.url();
    assert_gone(&level_with_a_kill(&url, "tcp", || ganesha.kill()), "nfs-ganesha");
}

/// A responder of its own, and its URL.
fn served(bench: &crate::binary::Bench) -> (std::process::Child, String) {
    let mut server = Command::cargo_bin("crumb")
        .expect("the binary is built")
        .args(["serve", "null", "--listen", "127.0.0.1:0"])
        .current_dir(bench.directory())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("a server starts");
    let mut line = String::new();
    let out = server.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("a line");
    let url = line.split_whitespace().find(|word| word.starts_with("nfs://")).expect("its URL").to_owned();
    (server, url)
}

#[test]
fn a_local_directory_and_nothing_at_all_are_targets_too() {
    let scratch = scratch();
    let target = scratch.path().to_str().expect("a plain path").to_owned();
    for workload in ["sfs97", "web-proxy", "mail"] {
        let flags = ["-w", workload, "--rate", "300", "--measure", "1s", "--files", "200"];
        assert_everything_succeeded(&fstress(&target, &flags));
        assert_everything_succeeded(&fstress("null:", &flags));
    }
    assert_eq!(entries(scratch.path()), Vec::<String>::new(), "file sets are removed");
}

/// Every operation that a mix may name, in one workload.
const EVERY_OPERATION: &str = r#"
name = "every-operation"
about = "all of them"
[tree]
files_per_directory = "uniform 5..20"
directories_per_directory = "2"
symlinks_per_directory = "2"
[sizes]
file = "uniform 1KiB..64KiB"
read = "8KiB"
write = "8KiB"
[access]
read = "random"
write = "append"
[mix]
null = 1
getattr = 5
setattr = 5
lookup = 5
access = 5
readlink = 5
read = 5
write = 5
create = 5
mkdir = 5
symlink = 5
mknod = 5
remove = 5
rmdir = 4
rename = 5
link = 5
readdir = 5
readdirplus = 5
fsstat = 1
fsinfo = 1
pathconf = 1
commit = 5
"#;

#[test]
fn all_22_operations_succeed_on_crumbs_own_server_and_leave_nothing_behind() {
    let scratch = scratch();
    let workload = scratch.path().join("every.toml");
    fs::write(&workload, EVERY_OPERATION).expect("written");
    let export = scratch.path().join("export");
    fs::create_dir(&export).expect("a folder");
    let server = serve(&export, false);
    for proto in ["tcp", "udp"] {
        let workload = workload.to_str().expect("a plain path");
        let flags = ["-w", workload, "--rate", "400", "--measure", "1s", "--files", "300", "--proto", proto];
        let record = fstress(&url(&server), &flags);
        assert_everything_succeeded(&record);
        assert_eq!(record.points[0].ops.len(), 22);
    }
    assert_eq!(entries(&export), Vec::<String>::new(), "what operations made beside the set is removed, too");
}

#[test]
fn a_disk_that_fills_in_the_middle_is_counted_by_name_and_told() {
    let Some(disk) = Tmpfs::needed("size=3m") else { return };
    let target = disk.path().to_str().expect("a plain path").to_owned();
    let flags = ["-w", "news", "--rate", "2000", "--measure", "3s", "--files", "100", "--file-size", "4KiB"];
    let record = fstress(&target, &flags);
    let unmounted = disk.unmount();
    let write = &record.points[0].ops["write"];
    assert!(write.errors.get("NFS3ERR_NOSPC").is_some_and(|count| *count > 0), "{:?}", write.errors);
    assert!(!record.verdict.valid);
    assert!(record.verdict.to_string().contains("NFS3ERR_NOSPC"), "{}", record.verdict);
    assert!(unmounted, "something still holds the disk");
}

fn serve(export: &Path, read_only: bool) -> nfs::server::Server {
    let directory = files::DirectoryOptions { read_only, ..Default::default() };
    nfs::server::serve_dir(export, nfs::server::ServerOptions::default(), directory).expect("a server")
}

fn url(server: &nfs::server::Server) -> String {
    format!("nfs://{}/", server.addr())
}

#[test]
fn the_raw_samples_of_each_run_make_the_histograms_of_its_record() {
    let scratch = scratch();
    let (target, raw) = (scratch.path().join("target"), scratch.path().join("new/raw"));
    // The directory is made, and none above it.
    fs::create_dir(scratch.path().join("new")).expect("a folder");
    fs::create_dir(&target).expect("a folder");
    let [target, to] = [&target, &raw].map(|path| path.to_str().expect("a plain path").to_owned());
    let flags =
        ["-w", "web-server", "--rate", "300, 600", "--measure", "500ms", "--files", "150", "--raw", &to];
    for runs in 1..=2 {
        let record = fstress(&target, &flags);
        assert_eq!(entries(&raw).len(), runs, "each has a file of its own");
        let file = raw.join(format!("{}-rank-0.csv", record.id));
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("point,operation,due_ns,latency_ns,outcome"));
        let lines: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
        for (point, number) in record.points.iter().zip(["1", "2"]) {
            for (name, stats) in &point.ops {
                let mut rebuilt = LatencyHistogram::new();
                let of_kind = lines.iter().filter(|line| line[0] == number && line[1] == name);
                for line in of_kind.filter(|line| line[4] == "ok") {
                    rebuilt.record(Duration::from_nanos(line[3].parse().expect("nanoseconds")));
                }
                assert_eq!(rebuilt, stats.histogram, "{name} of load point {number}");
            }
            assert!(point.histogram.count() > 50, "{}", point.histogram.count());
        }
    }
}

#[test]
fn a_read_only_export_and_a_wrong_one_are_told_apart() {
    let scratch = scratch();
    let server = serve(scratch.path(), true);
    let told = |target: &str| {
        let output = Command::cargo_bin("crumb")
            .expect("the binary is built")
            .args(["run", "fstress", target, "--no-store"])
            .output()
            .expect("crumb starts");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let read_only = told(&url(&server));
    assert!(read_only.contains("NFS3ERR_ROFS") && read_only.contains("read-only"), "{read_only}");
    let wrong = told(&format!("nfs://{}/nowhere", server.addr()));
    assert!(wrong.contains("/nowhere") && wrong.contains("export"), "{wrong}");
}

#[test]
fn a_file_set_is_kept_and_used_again() {
    let scratch = scratch();
    let target = scratch.path().to_str().expect("a plain path").to_owned();
    let common = ["-w", "web-server", "--rate", "300", "--measure", "500ms", "--files", "150"];
    fstress(&target, &[&common[..], &["--keep", "mine"]].concat());
    assert_eq!(entries(scratch.path()), ["crumb-fstress-mine"]);
    let reused = fstress(&target, &[&common[..], &["--reuse", "mine"]].concat());
    assert_everything_succeeded(&reused);
    assert_eq!(reused.points[0].file_set.files, 150);
    assert_eq!(entries(scratch.path()), ["crumb-fstress-mine"], "and kept again");

    let other = Command::cargo_bin("crumb")
        .expect("the binary is built")
        .args(["run", "fstress", &target, "--no-store", "--reuse", "mine", "--seed", "9", "--rate", "100"])
        .output()
        .expect("crumb starts");
    let told = String::from_utf8_lossy(&other.stderr).into_owned();
    assert_eq!(other.status.code(), Some(1), "{told}");
    assert!(told.contains("was made for something else"), "{told}");
}

#[test]
fn what_cannot_work_is_told_with_what_to_do() {
    let scratch = scratch();
    let target = scratch.path().to_str().expect("a plain path").to_owned();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["nfs://127.0.0.1:1/vol"], 1, "127.0.0.1"),
        // No portmapper there, or one that knows of no server: not 127.0.0.1, where other tests have one.
        (&["nfs://127.0.0.3/"], 1, "127.0.0.3"),
        (&["/nowhere/at/all"], 1, "/nowhere/at/all"),
        (&["http://x/"], 2, "unknown target kind"),
        (&[&target, "--rate", "fast"], 2, "requests a second"),
        (&[&target, "-w", "web-servr"], 2, "did you mean `web-server`"),
        (&[&target, "--find-max", "20ms"], 2, "p99<20ms"),
        (&[&target, "--files", "900000000", "--rate", "100"], 1, "no room for the file set"),
        (
            &["null:", "-w", "null", "--rate", "500,1000000", "--measure", "1m", "--raw", &target],
            1,
            "60000000 requests",
        ),
        (&["null:", "-w", "null", "--rate", "500", "--raw", "/dev/null/x"], 1, "/dev/null/x"),
        (&[&target, "--rate", "20,300"], 2, "write 20300 or 20.3k"),
        // Each was once ignored without a word.
        (&[&target, "--rate", "100", "--outstanding", "8"], 2, "--outstanding is for --rate max"),
        (&["nfs://127.0.0.1:1/vol", "--threads", "8"], 2, "--threads is for a directory"),
        (&[&target, "--connections", "2"], 2, "--connections is for an nfs:// target"),
        (
            &["nfs://127.0.0.1:1/vol", "--udp-timeout", "1s"],
            2,
            "--udp-timeout is for an nfs:// target over UDP",
        ),
        (&[&target, "--find-max", "p99<20ms", "--rate", "100..300/100"], 2, "the first one only"),
        (&["filer:/export"], 2, "write nfs://filer/export"),
        (&[], 2, "<TARGET>"),
    ];
    for (args, code, says) in cases {
        let output = Command::cargo_bin("crumb")
            .expect("the binary is built")
            .args(["run", "fstress"])
            .args(*args)
            .args(if args.is_empty() { &[][..] } else { &["--no-store"][..] })
            .output()
            .expect("crumb starts");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(*code), "{args:?}: {told}");
        assert!(told.contains(says), "{args:?}: {told}");
        assert!(!told.contains("panicked") && !told.contains("backtrace"), "{args:?}: {told}");
    }
}

#[test]
fn ctrl_c_keeps_what_was_measured_and_removes_the_file_set() {
    let scratch = scratch();
    let files = scratch.path().join("files");
    fs::create_dir(&files).expect("a folder");
    let record = scratch.path().join("record.json");
    let mut child = Command::cargo_bin("crumb")
        .expect("the binary is built")
        .args(["run", "fstress"])
        .arg(&files)
        .args(["--no-store", "--warm", "100ms", "--measure", "500ms", "--files", "100"])
        .arg("--json")
        .arg(&record)
        .args(["--rate", "200,200,200,200,200,200,200,200"])
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("crumb starts");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().expect("piped")));
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains("achieved"))), "no load point was finished");
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(interrupt.success());
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let status = child.wait().expect("waited");
    assert_eq!(status.code(), Some(130), "{rest:?}");
    let record = RunRecord::from_json(&fs::read_to_string(&record).expect("a record")).expect("a good one");
    assert!(!record.complete && !record.points.is_empty());
    assert_eq!(entries(&files), Vec::<String>::new(), "the file set is removed");
}

/// A run that only made its files was once told, and kept, as a run without load points.
#[test]
fn ctrl_c_while_files_are_made_leaves_no_run_and_no_file() {
    let scratch = scratch();
    let (files, store) = (scratch.path().join("files"), scratch.path().join("runs.db"));
    fs::create_dir(&files).expect("a folder");
    let child = Command::cargo_bin("crumb")
        .expect("the binary is built")
        .args(["run", "fstress"])
        .arg(&files)
        .args(["--files", "200000", "--file-size", "1", "--rate", "10", "--store"])
        .arg(&store)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("crumb starts");
    while entries(&files).is_empty() {
        std::thread::yield_now();
    }
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(interrupt.success());
    let output = child.wait_with_output().expect("waited");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{told}");
    assert!(told.contains("interrupted before anything was measured"), "{told}");
    assert!(output.stdout.is_empty());
    let mut listed = Command::cargo_bin("crumb").expect("the binary is built");
    let listed = listed.args(["runs", "list", "--json", "--store"]).arg(&store).output().expect("crumb runs");
    assert_eq!(String::from_utf8_lossy(&listed.stdout).trim(), "[]", "no run is kept");
    assert_eq!(entries(&files), Vec::<String>::new(), "the file set is removed");
}

/// A run on a directory with three load points, to be interfered with after the first.
fn three_levels(files: &Path, store: &Path) -> std::process::Child {
    Command::cargo_bin("crumb")
        .expect("the binary is built")
        .args(["run", "fstress"])
        .arg(files)
        .args(["--warm", "100ms", "--measure", "500ms", "--files", "100", "--rate", "200,200,200", "--store"])
        .arg(store)
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("crumb starts")
}

fn stored(store: &Path) -> Vec<RunRecord> {
    let store = report::Store::open(store).expect("a store");
    let runs = store.list().expect("readable");
    runs.iter().map(|run| store.find(&run.id.0).expect("a good one")).collect()
}

/// Symptom: kill -9, SIGHUP, a second Ctrl-C lost every load point that was done. Cause: the run was stored at its end,
/// behind the removal of its files. Fix: each load point is stored before it is shown.
#[test]
fn a_run_that_is_killed_keeps_the_load_points_it_had() {
    let scratch = scratch();
    let (files, store) = (scratch.path().join("files"), scratch.path().join("runs.db"));
    fs::create_dir(&files).expect("a folder");
    let mut child = three_levels(&files, &store);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().expect("piped")));
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains("achieved"))), "no load point was finished");
    child.kill().expect("SIGKILL");
    child.wait().expect("waited");
    let runs = stored(&store);
    let [run] = &runs[..] else { panic!("{} runs", runs.len()) };
    assert!(!run.complete && !run.points.is_empty() && run.points[0].latency_us.count > 0);
}

/// Symptom: `crumb run fstress … 2>&1 | head -1` panicked at its next line of progress. Fix: it goes on without a reader.
#[test]
fn a_run_whose_progress_nobody_reads_goes_on_to_its_end() {
    let scratch = scratch();
    let (files, store) = (scratch.path().join("files"), scratch.path().join("runs.db"));
    fs::create_dir(&files).expect("a folder");
    let mut child = three_levels(&files, &store);
    drop(child.stderr.take());
    let status = child.wait().expect("waited");
    assert!(matches!(status.code(), Some(0 | 3)), "{status:?}");
    let runs = stored(&store);
    let [run] = &runs[..] else { panic!("{} runs", runs.len()) };
    assert!(run.complete);
    assert_eq!(run.points.len(), 3);
    assert_eq!(entries(&files), Vec::<String>::new(), "the file set is removed");
}

/// Symptom: a 7-second run against a UDP server that had gone silent lasted 32 minutes and blamed NFS3ERR_JUKEBOX, which
/// nobody had said. Fix: a silence is measured, has a limit of its own and a message of its own, over TCP too.
#[test]
fn a_server_that_falls_silent_ends_the_run_with_what_was_measured() {
    for proto in ["udp", "tcp"] {
        let scratch = scratch();
        let export = scratch.path().join("export");
        fs::create_dir(&export).expect("a folder");
        let mut server = Command::cargo_bin("crumb")
            .expect("the binary is built")
            .args(["serve", "dir", "--listen", "127.0.0.1:0"])
            .arg(&export)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("crumb starts");
        let mut lines =
            std::io::BufRead::lines(std::io::BufReader::new(server.stdout.take().expect("piped")));
        let ready = lines.next().expect("a line").expect("readable");
        let at = ready.split("nfs://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
        let record = scratch.path().join("record.json");
        let mut child = Command::cargo_bin("crumb")
            .expect("the binary is built")
            .args(["run", "fstress", &format!("nfs://{at}/"), "--no-store", "--proto", proto])
            .args(["--warm", "100ms", "--measure", "500ms", "--files", "100", "--rate", "200,200,200,200"])
            .args(["--reconnect-timeout", "2s", "--json"])
            .arg(&record)
            .stderr(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("crumb starts");
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().expect("piped")));
        assert!(
            lines.any(|line| line.is_ok_and(|line| line.contains("achieved"))),
            "no load point was finished"
        );
        let pause = Command::new("kill").args(["-STOP", &server.id().to_string()]).status().expect("kill");
        assert!(pause.success());
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        let status = child.wait().expect("waited");
        server.kill().expect("SIGKILL");
        server.wait().expect("waited");
        let told = rest.join("\n");
        assert_eq!(status.code(), Some(1), "{proto}: {told}");
        assert!(told.contains("no reply for") && told.contains("still running"), "{proto}: {told}");
        assert!(!told.contains("JUKEBOX"), "{proto}: {told}");
        // The file set is on the server, where nobody can remove it now.
        assert!(told.contains("is not removed"), "{proto}: {told}");
        let record =
            RunRecord::from_json(&fs::read_to_string(&record).expect("a record")).expect("a good one");
        assert!(!record.complete && !record.points.is_empty(), "{proto}");
    }
}
