//! `crumb mark` on a run whose server stands still for two seconds: the mark is at the gap in record, CSV and picture.

use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use measure::{RunRecord, TimeSeries};

use super::binary::{Bench, Said};

/// How far a mark may be from the gap that it is for, seconds.
const WITHIN_S: f64 = 0.2;

/// A bench whose runs have their sockets in its own directory.
struct Marked(Bench);

impl Marked {
    fn new() -> Self {
        Self(Bench::new())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crumb"));
        command
            .args(args)
            .current_dir(self.0.directory())
            .env("CRUMB_STORE", self.0.path("runs.db"))
            .env("XDG_RUNTIME_DIR", self.0.directory())
            .env("TMPDIR", self.0.directory())
            .stdin(Stdio::null());
        command
    }

    fn says(&self, args: &[&str]) -> Said {
        let output = self.command(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Seconds after the run's begin at which the mark was set.
    fn mark(&self, text: &str) -> f64 {
        let said = self.says(&["mark", text]);
        assert_eq!(said.code, 0, "{}", said.err);
        assert!(said.out.starts_with("marked 1 run:"), "{}", said.out);
        let (_, rest) = said.out.split_once(", ").expect("the run's name comes first");
        rest.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number of seconds")
    }

    /// Waits until the run under way can be marked.
    fn wait_for_a_run(&self, run: &mut Child) {
        let limit = Instant::now() + Duration::from_secs(30);
        while self.says(&["mark", "begun"]).code != 0 {
            assert!(run.try_wait().unwrap().is_none(), "the run ended before it could be marked");
            assert!(Instant::now() < limit, "no run could be marked within 30 s");
        }
    }
}

fn signal(process: &Child, signal: rustix::process::Signal) {
    let process = rustix::process::Pid::from_child(process);
    rustix::process::kill_process(process, signal).expect("a process of our own");
}

/// The longest time without a reply, in seconds of the series.
fn gap(series: &TimeSeries) -> (f64, f64) {
    let steps: Vec<_> = series.steps().collect();
    let silent = steps.chunk_by(|a, b| (a.ok == 0) == (b.ok == 0)).filter(|steps| steps[0].ok == 0);
    let gaps = silent.map(|steps| (steps[0].from_s, steps[steps.len() - 1].to_s));
    gaps.max_by(|a, b| (a.1 - a.0).total_cmp(&(b.1 - b.0))).expect("the server stood still")
}

/// The same in the page's picture of the first series, and where its marks are.
fn gap_in_picture(page: &str, series: &TimeSeries) -> ((f64, f64), Vec<f64>) {
    let from = page.find("id=\"series-0-rate\"").expect("a picture of the rate");
    let picture = &page[from..from + page[from..].find("</svg>").expect("its end")];
    let (_, line) = picture.split_once("<polyline class=\"over-time\" points=\"").expect("a line");
    let points: Vec<(f64, f64)> = line[..line.find('"').expect("its end")]
        .split(' ')
        .map(|point| point.split_once(',').expect("two numbers"))
        .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
        .collect();
    // Points are in the middle of steps.
    let scale = (series.wall_s - series.step_s / 2.0) / points[points.len() - 1].0;
    let on_the_axis =
        points.chunk_by(|a, b| (a.1 >= 999.9) == (b.1 >= 999.9)).filter(|points| points[0].1 >= 999.9);
    let longest = on_the_axis.max_by_key(|points| points.len()).expect("a gap in the picture");
    let half = series.step_s / 2.0;
    let gap = (longest[0].0 * scale - half, longest[longest.len() - 1].0 * scale + half);
    let notes = picture.split("class=\"note\" x1=\"").skip(1);
    let notes = notes.map(|rest| scale * rest[..rest.find('"').unwrap()].parse::<f64>().unwrap());
    (gap, notes.collect())
}

#[test]
fn a_mark_set_while_the_server_stands_still_is_at_the_gap_in_record_csv_and_picture() {
    let bench = Marked::new();
    let (mut server, url) = bench.0.null_server();
    // A closed loop: no level of it is measured again, on a busy machine either.
    let mut run = bench
        .command(&[
            "run",
            "fstress",
            &url,
            "-w",
            "null",
            "--rate",
            "max",
            "--outstanding",
            "1",
            "--warm",
            "1s",
            "--measure",
            "9s",
        ])
        .args(["--json", "run.json", "--report", "page.html", "--quiet"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    bench.wait_for_a_run(&mut run);
    // Well within the level: the run's own clock says when.
    while bench.mark("waits") < 2.5 {}
    let before_s = bench.mark("stops");
    signal(&server, rustix::process::Signal::STOP);
    let stopped_s = bench.mark("stopped");
    // These two seconds are what is tested: nothing happens in them.
    let (_silent, nothing) = mpsc::channel::<()>();
    assert!(nothing.recv_timeout(Duration::from_secs(2)).is_err());
    let still_s = bench.mark("resumes");
    signal(&server, rustix::process::Signal::CONT);
    let after_s = bench.mark("resumed");
    run.wait().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();

    let record = RunRecord::from_json(&bench.0.read("run.json")).unwrap();
    let series = record.points[0].time_series.as_ref().expect("a level has a time series");
    assert!(series.step_s <= WITHIN_S, "{} s", series.step_s);
    let begin_s = series.started.duration_since(record.started).as_secs_f64();
    let is_at_the_gap = |(from_s, to_s): (f64, f64), what: &str| {
        let (from_s, to_s) = (begin_s + from_s, begin_s + to_s);
        let is_begin = (before_s - WITHIN_S..=stopped_s + WITHIN_S).contains(&from_s);
        let is_end = (still_s - WITHIN_S..=after_s + WITHIN_S).contains(&to_s);
        assert!(
            is_begin && is_end,
            "{what}: gap {from_s} to {to_s}, marks {before_s} {stopped_s} {still_s} {after_s}"
        );
    };
    is_at_the_gap(gap(series), "record");
    let texts: Vec<&str> = record.annotations.iter().map(|mark| mark.text.as_str()).collect();
    assert!(texts.ends_with(&["stops", "stopped", "resumes", "resumed"]), "{texts:?}");

    let page = bench.0.read("page.html");
    let (in_picture, marks) = gap_in_picture(&page, series);
    is_at_the_gap(in_picture, "picture");
    for at_s in [stopped_s, still_s] {
        assert!(marks.iter().any(|mark| (begin_s + mark - at_s).abs() < 0.05), "{at_s}: {marks:?}");
    }
    assert!(page.contains("resumed"), "the page says what a mark is");

    let csv = bench.says(&["runs", "export", "last", "--csv"]).out;
    assert!(csv.starts_with("run,series,from_s,to_s,ok,failed,ok_per_sec,p50_us,p99_us,annotation\n"));
    let row = csv.lines().find(|row| row.ends_with(",stopped")).expect("the mark has a row");
    let at_s: f64 = row.split(',').nth(2).and_then(|text| text.parse().ok()).expect("a number of seconds");
    // What `crumb mark` prints has two digits.
    assert!((at_s - stopped_s).abs() < 0.01, "{row} {stopped_s}");
    assert!(!bench.0.path("crumb").exists(), "the socket is gone with its run");
}

#[test]
fn without_a_run_under_way_a_mark_fails_and_says_so_and_a_wrong_text_is_bad_usage() {
    let bench = Marked::new();
    let none = bench.says(&["mark", "without", "a", "run"]);
    assert_eq!(none.code, 1, "{}", none.err);
    assert!(none.err.contains("no run of this user is under way"), "{}", none.err);
    for (text, why) in
        [("", "needs a text"), ("a\u{1b}[2Jb", "control character"), (&"x".repeat(201), "at most 200")]
    {
        let said = bench.says(&["mark", text]);
        assert!(said.code == 2 && said.err.contains(why), "{text:?}: {} {}", said.code, said.err);
    }
}
