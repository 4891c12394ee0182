//! What runs say of their costs, held against what the kernel, du and find say, on real file systems and servers.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use measure::RunRecord;
use testkit::{LoopImage, Tmpfs};

use crate::binary::Bench;

/// A server of `crumb serve`, ended when dropped.
struct Serving(Child);

impl Serving {
    /// Gives it with the URL at which it is ready.
    fn start(args: &[&str], scheme: &str) -> (Self, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crumb"));
        command.arg("serve").args(args).args(["--listen", "127.0.0.1:0"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let url = ready.split_whitespace().find(|word| word.starts_with(scheme)).expect("its URL").to_owned();
        (Self(child), url)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The record of `crumb run ARGS`; on a busy machine it may be INVALID.
fn record(args: &[&str]) -> RunRecord {
    let bench = Bench::new();
    let said = bench.crumb(&[&["--quiet", "run"], args, &["--no-store", "--json", "run.json"]].concat());
    assert!(matches!(said.code, 0 | 3), "{}", said.err);
    RunRecord::from_json(&bench.read("run.json")).unwrap()
}

/// Bytes on disk, inodes, and the number of files that `counts`, below a directory.
fn found(directory: &Path, seen: &mut HashSet<u64>, counts: &dyn Fn(&str) -> bool) -> (u64, u64, u64) {
    let (mut bytes, mut inodes, mut files) = (0, 0, 0);
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let about = entry.path().symlink_metadata().unwrap();
        if entry.file_name() == "lost+found" || !seen.insert(about.ino()) {
            continue;
        }
        (bytes, inodes) = (bytes + about.blocks() * 512, inodes + 1);
        if about.is_dir() {
            let below = found(&entry.path(), seen, counts);
            (bytes, inodes, files) = (bytes + below.0, inodes + below.1, files + below.2);
        } else {
            files += u64::from(counts(&entry.file_name().to_string_lossy()));
        }
    }
    (bytes, inodes, files)
}

fn written_bytes(device: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/diskstats").unwrap();
    let line = text.lines().find(|line| line.split_whitespace().nth(2) == Some(device)).unwrap();
    512 * line.split_whitespace().nth(9).unwrap().parse::<u64>().unwrap()
}

fn assert_close(what: &str, ours: f64, theirs: f64, share: f64) {
    assert!((ours / theirs - 1.0).abs() < share, "{what}: {ours}, and by hand {theirs}");
}

#[test]
fn names_of_dirscale_and_articles_of_netnews_cost_what_the_file_system_and_the_device_say() {
    let Some(image) = LoopImage::needed("ext4", 1 << 28, &["-E", "lazy_itable_init=0,lazy_journal_init=0"])
    else {
        return;
    };
    let target = image.path().to_str().unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let device = mounts.lines().find(|line| line.split(' ').nth(1) == Some(target)).unwrap();
    let device = device.split(' ').next().unwrap().trim_start_matches("/dev/").to_owned();
    let names = ["--sizes", "3000", "--operations", "10", "--rounds", "1", "--readings", "1"];
    let articles = ["--articles", "2000", "--passes", "2", "--batch-every", "0"];
    for (benchmark, flags, kept) in
        [("dirscale", &names[..], "crumb-dirscale-k"), ("netnews", &articles, "crumb-netnews-k")]
    {
        rustix::fs::sync();
        let before = written_bytes(&device);
        let run = record(&[&[benchmark, target, "--keep", "k"], flags].concat());
        let written = (written_bytes(&device) - before) as f64;
        let is_counted =
            |name: &str| !name.starts_with("crumb-") && name.bytes().all(|byte| byte.is_ascii_digit());
        let (disk, inodes, files) = found(&image.path().join(kept), &mut HashSet::new(), &is_counted);
        assert!(files >= 1_900, "{benchmark}: {files} files");
        let cost =
            |name: &str| run.metrics.get(name).copied().unwrap_or_else(|| panic!("{:?}", run.not_seen));
        let share = 0.05;
        assert_close(benchmark, cost("cost_disk_per_file_bytes"), disk as f64 / files as f64, share);
        assert_close(benchmark, cost("cost_inodes_per_file"), inodes as f64 / files as f64, share);
        let of_stored = |name: &str| matches!(name.split(' ').next(), Some("fill" | "add" | "unbatch"));
        let stored: u64 =
            run.phases.iter().filter(|phase| of_stored(&phase.name)).map(|phase| phase.bytes).sum();
        // What is written while the run closes its files is not the articles'.
        assert_close(benchmark, cost("cost_written_per_byte"), written / stored as f64, 0.1);
        assert!(cost("cost_cpu_us") > 0.0 && run.not_seen.is_empty(), "{:?}", run.not_seen);
    }
}

#[test]
fn a_server_on_this_machine_costs_its_own_cpu_time_and_files_what_its_file_system_says() {
    let Some(files) = Tmpfs::needed("size=256m") else { return };
    let (server, url) = Serving::start(&["dir", files.path().to_str().unwrap()], "nfs://");
    let run = record(&[
        "fstress",
        &url,
        "-w",
        "web-server",
        "--rate",
        "2000",
        "--files",
        "2000",
        "--warm",
        "200ms",
        "--measure",
        "2s",
    ]);
    let stat = measure::proc::ProcessStat::of(server.0.id()).unwrap();
    let (cost, whole_us) = (run.metrics["cost_cpu_us"], 1e6 * (stat.user + stat.sys).as_secs_f64());
    // It made and removed the file set too, which is not in the levels.
    let requests =
        run.points.iter().map(|point| point.ops.values().map(|op| op.ok).sum::<u64>()).sum::<u64>();
    assert!(cost > 0.0 && cost * (requests as f64) < whole_us, "{cost} us of {requests}, all {whole_us} us");
    assert!((1.0..1.5).contains(&run.metrics["cost_inodes_per_file"]), "{:?}", run.metrics);
    assert!((1.0..3.0).contains(&run.metrics["cost_disk_per_byte"]), "{:?}", run.metrics);
    assert!(run.not_seen["cost_written_per_byte"].ends_with('.'), "{:?}", run.not_seen);

    let nothing = record(&[
        "fstress",
        "null:",
        "-w",
        "web-server",
        "--rate",
        "500",
        "--files",
        "100",
        "--warm",
        "50ms",
        "--measure",
        "1s",
    ]);
    let costs =
        nothing.metrics.keys().chain(nothing.not_seen.keys()).filter(|name| name.starts_with("cost_"));
    assert_eq!(costs.count(), 0, "there is nothing behind null:");
}

#[test]
fn what_serves_web_objects_costs_cpu_time_by_its_port_alone_and_by_its_number() {
    let (server, url) = Serving::start(&["origin"], "http://");
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let process = server.0.id().to_string();
    for watch in [&[][..], &["--watch", &process]] {
        let flags = ["webload", "--workload", "stores", "--direct", "--origin", address, "--quick"];
        let run = record(&[&flags[..], watch].concat());
        assert!(run.metrics["cost_cpu_us"] > 0.0, "{watch:?}: {:?}", run.not_seen);
        assert_eq!(run.metrics.contains_key("proxy_cpu_a_request_us"), !watch.is_empty());
        assert!(
            run.not_seen.contains_key("cost_written_per_byte"),
            "an origin stores nothing, which is not zero"
        );
        assert!(run.not_seen["cost_disk_per_byte"].contains("its own store"), "{:?}", run.not_seen);
    }
}

/// Its free inodes are reckoned from its free room: 53 to 86 were reported for each file where the file system had one less in all.
#[test]
fn the_room_inside_a_packed_store_is_not_taken_for_the_file_systems() {
    let bench = Bench::in_memory();
    bench.fine(&["pack", "create", "tree", "--tree"]);
    bench.fine(&["pack", "create", "objects", "--size", "64M"]);
    for args in [
        &["postmark", "pack:tree", "--number", "50", "--transactions", "50"][..],
        &["postmark", "pack:objects", "--number", "50", "--transactions", "50"],
        &["dirscale", "pack:tree", "--sizes", "1..64", "--warm", "--operations", "10", "--rounds", "1"],
        &["netnews", "pack:tree", "--articles", "50", "--passes", "1", "--batch-every", "0"],
        &[
            "fstress",
            "pack:tree",
            "-w",
            "web-server",
            "--rate",
            "50",
            "--files",
            "50",
            "--warm",
            "50ms",
            "--measure",
            "1s",
        ],
    ] {
        let said = bench.crumb(&[&["--quiet", "run"], args, &["--no-store", "--json", "run.json"]].concat());
        assert!(matches!(said.code, 0 | 3), "{args:?}: {}", said.err);
        let run = RunRecord::from_json(&bench.read("run.json")).unwrap();
        for name in ["cost_inodes_per_file", "cost_disk_per_file_bytes"] {
            assert!(!run.metrics.contains_key(name), "{args:?}: {name} {:?}", run.metrics);
            let why = run.not_seen.get(name).unwrap_or_else(|| panic!("{args:?}: {:?}", run.not_seen));
            assert!(why.contains("packed store"), "{args:?}: {why}");
        }
    }
}
