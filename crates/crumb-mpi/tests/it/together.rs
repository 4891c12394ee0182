//! 1, 2 and 4 ranks of one host as one generator.

use std::time::Duration;

use measure::LatencyHistogram;
use nfs::server::{ServerOptions, serve_null};

use crate::job::{Job, kept, no_mpirun, place, times, verdicts};

const LIMIT: Duration = Duration::from_secs(90);

#[test]
fn one_two_and_four_ranks_offer_the_rate_of_the_whole_and_leave_one_run() {
    if no_mpirun() {
        return;
    }
    let server = serve_null(ServerOptions::default()).unwrap();
    let url = format!("nfs://{}/", server.addr());
    for ranks in [1, 2, 4] {
        let dir = place();
        let args = [
            "fstress",
            &url,
            "--workload",
            "null",
            "--rate",
            "400, 800",
            "--warm",
            "200ms",
            "--measure",
            "500ms",
        ];
        let ended = Job::start(ranks, dir.path(), &args).end(LIMIT);
        // 3: a loaded machine's figures may be INVALID, which is not what this is about.
        assert!(matches!(ended.code, 0 | 3), "{}: {}", ended.code, ended.said);
        assert_eq!(verdicts(&ended.said), 1, "only rank 0 tells:\n{}", ended.said);
        let [run] = &kept(dir.path())[..] else { panic!("one run is kept: {}", ended.said) };
        assert!(run.complete);
        assert_eq!(run.command[0], "crumb-mpi");
        let rates: Vec<_> = run.points.iter().filter_map(|point| point.offered_per_sec).collect();
        assert_eq!(rates, [400.0, 800.0]);
        for (point, due) in run.points.iter().zip([200, 400]) {
            let asked: u64 = point.ops.values().map(|stats| stats.attempted).sum();
            assert_eq!(asked + point.unsent, due, "{ranks} ranks");
            let of_ranks: u64 = point.parts.iter().map(|part| part.latency_us.count).sum();
            if ranks > 1 {
                assert_eq!(run.config["ranks"], ranks);
                assert_eq!((point.parts.len() as u32, of_ranks), (ranks, point.histogram.count()));
                assert!(ended.said.contains("Ranks at the same load"), "{}", ended.said);
            } else {
                assert!(point.parts.is_empty(), "one rank is a generator alone");
            }
        }
    }
    server.stop();
}

#[test]
fn the_histogram_of_the_whole_is_that_of_all_raw_samples_of_all_ranks() {
    if no_mpirun() {
        return;
    }
    let server = serve_null(ServerOptions::default()).unwrap();
    let url = format!("nfs://{}/", server.addr());
    let (dir, own) = (place(), place());
    let args = ["fstress", &url, "--workload", "null", "--rate", "500,1000", "--warm", "200ms"];
    let to = own.path().join("own");
    let further = ["--measure", "500ms", "--raw", to.to_str().unwrap()];
    let ended = Job::start(3, dir.path(), &[&args[..], &further].concat()).end(LIMIT);
    assert!(matches!(ended.code, 0 | 3), "{}: {}", ended.code, ended.said);
    let run = kept(dir.path()).remove(0);
    let mut sums = vec![LatencyHistogram::new(); 2];
    for rank in 0..3 {
        let path = to.join(format!("{}-rank-{rank}.csv", run.id));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let mut own = vec![0; 2];
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let [point, "null", _, ns, "ok"] = fields[..] else { panic!("{line}") };
            let index = point.parse::<usize>().unwrap() - 1;
            own[index] += 1;
            sums[index].record(Duration::from_nanos(ns.parse().unwrap()));
        }
        let told: Vec<u64> = run.points.iter().map(|point| point.parts[rank].latency_us.count).collect();
        assert_eq!(own, told, "rank {rank}");
    }
    for (point, sum) in run.points.iter().zip(&sums) {
        assert!(sum.count() > 0);
        assert_eq!(point.histogram, *sum);
    }
    server.stop();
}

#[test]
fn files_are_made_by_all_and_removed_by_all_on_a_real_server() {
    if no_mpirun() {
        return;
    }
    let dir = place();
    let Some(ganesha) = testkit::Ganesha::needed(std::path::Path::new("/var/tmp")) else { return };
    let url = ganesha.url();
    let args = [
        "fstress",
        &url[..],
        "--workload",
        "web-server",
        "--rate",
        "120",
        "--files",
        "400",
        "--warm",
        "300ms",
        "--measure",
        "1s",
    ];
    let ended = Job::start(2, dir.path(), &args).end(LIMIT);
    assert!(matches!(ended.code, 0 | 3), "{}: {}", ended.code, ended.said);
    let [run] = &kept(dir.path())[..] else { panic!("one run is kept: {}", ended.said) };
    let point = &run.points[0];
    assert_eq!(point.file_set.files_asked, 400);
    assert!(point.file_set.files.abs_diff(400) <= 20, "{:?}", point.file_set);
    let asked: u64 = point.ops.values().map(|stats| stats.attempted).sum();
    assert_eq!(asked + point.unsent, 120);
    for name in ["build", "remove"] {
        let phase = run.phases.iter().find(|phase| phase.name == name);
        assert!(phase.is_some_and(|phase| phase.items >= 380), "{name}: {:?}", run.phases);
    }
    assert_eq!(std::fs::read_dir(ganesha.export()).unwrap().count(), 0, "something is left");
}

#[test]
fn ranks_that_mean_to_run_something_else_are_refused_before_anything_is_made() {
    if no_mpirun() {
        return;
    }
    let dir = place();
    let here = dir.path();
    let one = |seed| ["fstress", "null:", "--workload", "null", "--rate", "100", "--seed", seed];
    let ended = Job::start_unlike(here, &[(here, &one("3")), (here, &one("4"))]).end(LIMIT);
    assert_ne!(ended.code, 0);
    assert!(ended.said.contains("the ranks differ in the seed: 3 on "), "{}", ended.said);
    assert_eq!(times(&ended.said, "error: "), 1, "{}", ended.said);
    assert!(kept(dir.path()).is_empty());
}

#[test]
fn wrong_usage_is_told_once() {
    if no_mpirun() {
        return;
    }
    let dir = place();
    let ended = Job::start(3, dir.path(), &["fstress", "null:", "--rate", "fast"]).end(LIMIT);
    assert_eq!((ended.code, times(&ended.said, "for '--rate <RATES>'")), (2, 1), "{}", ended.said);
    let ended = Job::start(3, dir.path(), &["fstress", "null:", "--no-such-flag"]).end(LIMIT);
    assert_eq!((ended.code, times(&ended.said, "Usage:")), (2, 1), "{}", ended.said);
}
