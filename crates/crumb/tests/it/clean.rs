//! `crumb clean`: what it removes of what runs left, and what it leaves alone.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::binary::{Bench, assert_fits};

/// Long enough to be killed in the middle, on any machine.
const LONG: [(&str, &[&str]); 4] = [
    ("fstress", &["--rate", "20", "--files", "50", "--file-size", "1000", "--warm", "60s"]),
    ("postmark", &["--transactions", "100000000"]),
    ("netnews", &["--articles", "20000"]),
    ("dirscale", &["--warm", "--sizes", "64", "--rounds", "100000"]),
];

fn bench() -> Bench {
    let bench = Bench::in_memory();
    std::fs::create_dir(bench.path("a")).unwrap();
    bench
}

/// A run under way, whose directory carries its mark.
fn started(bench: &Bench, benchmark: &str, more: &[&str]) -> Child {
    let child = Command::new(env!("CARGO_BIN_EXE_crumb"))
        .args([&["run", benchmark, "a", "--no-store", "--quiet"], more].concat())
        .current_dir(bench.directory())
        .env("TMPDIR", bench.directory())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let marked = || {
        let mut directories = std::fs::read_dir(bench.path("a")).unwrap().flatten();
        directories.any(|entry| {
            entry.file_name().to_string_lossy().starts_with(&format!("crumb-{benchmark}-"))
                && std::fs::read_to_string(entry.path().join("crumb-run"))
                    .is_ok_and(|mark| mark.ends_with('\n'))
        })
    };
    let mut child = child;
    while !marked() {
        assert!(child.try_wait().unwrap().is_none(), "{benchmark} ended by itself");
        std::thread::yield_now();
    }
    child
}

fn killed(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// What `crumb clean a ARGS` found, by state.
fn found(bench: &Bench, more: &[&str]) -> Vec<(String, bool)> {
    let out = bench.fine(&[&["clean", "a", "--json", "-"], more].concat());
    let json: Value = serde_json::from_str(&out).unwrap();
    let found = json["found"].as_array().unwrap().iter();
    found.map(|it| (it["state"].as_str().unwrap().to_owned(), it["removed"] == true)).collect()
}

#[test]
fn what_a_killed_run_of_each_benchmark_left_is_removed_and_what_is_in_use_is_not() {
    let bench = bench();
    for (benchmark, long) in LONG {
        let child = started(&bench, benchmark, long);
        assert_eq!(found(&bench, &[]), [("in-use".to_owned(), false)], "{benchmark}");
        killed(child);
        assert_eq!(found(&bench, &["--dry-run"]), [("left-over".to_owned(), false)], "{benchmark}");
        assert_eq!(found(&bench, &[]), [("left-over".to_owned(), true)], "{benchmark}");
        assert_eq!(std::fs::read_dir(bench.path("a")).unwrap().count(), 0, "{benchmark}");
    }
    let text = bench.fine(&["clean", "a"]);
    assert!(text.contains("No directories of runs are in a"), "{text}");
}

#[test]
fn links_kept_sets_and_directories_of_other_machines_stay() {
    let bench = bench();
    let precious = bench.path("precious");
    std::fs::create_dir(&precious).unwrap();
    std::fs::write(precious.join("file"), "x").unwrap();
    let gone = "crumb run 1 host=elsewhere machine=m boot=b pidns=n pid=1 begun=1\n";
    let directory = |name: &str| {
        let path = bench.path("a").join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("data"), "0123456789").unwrap();
        path
    };
    std::os::unix::fs::symlink("../precious", bench.path("a/crumb-fstress-link")).unwrap();
    directory("crumb-fstress-kept");
    std::fs::write(directory("crumb-netnews-far").join("crumb-run"), gone).unwrap();
    directory("another");
    let text = bench.fine(&["clean", "a"]);
    assert_fits(&text);
    for says in ["kept by name", "of another machine", "left alone", "Removed 0 directories", "--other-hosts"]
    {
        assert!(text.contains(says), "{says}: {text}");
    }
    let text = bench.fine(&["clean", "a", "--other-hosts"]);
    assert!(text.contains("Removed 1 directory with 2 files"), "{text}");
    let left = |name: &str| Path::new(&bench.path("a")).join(name).symlink_metadata().is_ok();
    assert!(
        left("crumb-fstress-link")
            && left("crumb-fstress-kept")
            && left("another")
            && !left("crumb-netnews-far")
    );
    assert!(precious.join("file").exists());
}

#[test]
fn what_another_user_left_is_left_alone_and_whose_it_is_is_said() {
    if !testkit::need::root("a directory of another user") {
        return;
    }
    let bench = bench();
    let left = bench.path("a/crumb-postmark-theirs");
    std::fs::create_dir(&left).unwrap();
    std::os::unix::fs::chown(&left, Some(65_534), Some(65_534)).unwrap();
    let text = bench.fine(&["clean", "a"]);
    assert_fits(&text);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("it belongs to user 65534, not to user 0, who runs this"), "{text}");
    assert!(left.exists());
}

/// Symptom: a server that stopped answering while the doctor removed its directory left it empty and without its mark, and it
/// was taken for one that was kept by name.
#[test]
fn an_empty_directory_of_the_doctor_is_a_left_over_and_others_without_a_mark_are_not() {
    let bench = bench();
    for name in ["a/crumb-doctor-1f", "a/crumb-doctor-2f", "a/crumb-postmark-k"] {
        std::fs::create_dir(bench.path(name)).unwrap();
    }
    std::fs::write(bench.path("a/crumb-doctor-2f/mine"), "x").unwrap();
    bench.fine(&["clean", "a"]);
    let left = |name: &str| bench.path(name).exists();
    assert!(!left("a/crumb-doctor-1f") && left("a/crumb-doctor-2f/mine") && left("a/crumb-postmark-k"));
}

#[test]
fn left_overs_on_an_nfs_server_are_removed_through_it() {
    let bench = bench();
    killed(started(&bench, "postmark", LONG[1].1));
    let (server, url) = bench.nfs_server("a");
    std::os::unix::fs::symlink("..", bench.path("a/crumb-netnews-link")).unwrap();
    let said = bench.crumb(&["clean", &url]);
    killed(server);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("Removed 1 directory") && said.out.contains("left alone"), "{}", said.out);
    assert_eq!(std::fs::read_dir(bench.path("a")).unwrap().count(), 1, "the link");
}

/// Symptom: files that a bind mount showed inside a left-over were deleted. A bind mount has the device number of what is around
/// it, so that only the table of mounts shows it.
#[test]
fn what_is_mounted_in_a_left_over_stays() {
    if !testkit::need::root("a mount in a namespace of its own") {
        return;
    }
    let bench = bench();
    let (left_over, precious) = (bench.path("a").join("crumb-postmark-0001"), bench.path("precious"));
    std::fs::create_dir_all(left_over.join("m")).unwrap();
    std::fs::create_dir(&precious).unwrap();
    std::fs::write(precious.join("file"), "x").unwrap();
    let gone = "crumb run 1 host=elsewhere machine=m boot=b pidns=n pid=1 begun=1\n";
    std::fs::write(left_over.join("crumb-run"), gone).unwrap();
    let cleaned = |mounted: &str| {
        let script = format!("mount --bind precious {mounted} && exec \"$0\" clean a --other-hosts");
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", &script, env!("CARGO_BIN_EXE_crumb")])
            .current_dir(bench.directory())
            .output()
            .unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    let text = cleaned("a/crumb-postmark-0001/m");
    assert!(text.contains("left alone") && text.contains("Removed 0 directories"), "{text}");
    assert!(precious.join("file").exists() && left_over.join("crumb-run").exists(), "{text}");
    std::fs::write(precious.join("crumb-run"), gone).unwrap();
    let text = cleaned("a/crumb-postmark-0001");
    assert!(precious.join("file").exists(), "{text}");
}
