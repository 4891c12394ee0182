//! Records in, figures' values out.

use std::collections::BTreeMap;

use measure::view::PublishedValue;
use measure::{Environment, MountPoint, RunId, Verdict};
use serde_json::json;

use super::*;

/// `passes` passes of which the first stores `per_sec` articles a second and each later one `ageing` percent of that less.
/// From pass 7 on files are deleted, and every third pass is batched.
fn news_run(target: &str, passes: u32, per_sec: f64, ageing: f64) -> RunRecord {
    let phase = |name: &str, pass: u32, items: u64, per_sec: f64| Phase {
        name: name.to_owned(),
        pass,
        wall_s: items as f64 / per_sec,
        items,
        items_per_sec: per_sec,
        ..Phase::default()
    };
    let mut phases = Vec::new();
    for pass in 1..=passes {
        let left = 1.0 - ageing / 100.0 * f64::from(pass - 1);
        phases.push(phase("unbatch", pass, 20_000, per_sec * left));
        if pass % 3 == 0 {
            phases.push(phase("batch", pass, 20_000, 2.0 * per_sec));
        }
        phases.push(phase("expire-scan", pass, 20_000, 1e6));
        phases.push(phase("expire", pass, if pass >= 7 { 30_000 } else { 0 }, 4.0 * per_sec));
    }
    let mount = MountPoint {
        path: target.to_owned(),
        device: "/dev/vdb".to_owned(),
        fs_type: "ext4".to_owned(),
        options: "rw,relatime".to_owned(),
    };
    RunRecord {
        schema: measure::RECORD_SCHEMA,
        id: RunId(format!("20261122-200000-netnews-{:04x}", per_sec as u64 & 0xffff)),
        benchmark: "netnews".to_owned(),
        label: format!("news on {target}"),
        target: target.to_owned(),
        started: "2026-11-21T18:00:00Z".parse().unwrap(),
        ended: "2026-11-21T18:01:00Z".parse().unwrap(),
        command: vec![],
        // As version 1.0 wrote it: without `sync`, `cold` and `history_index`.
        config: json!({
            "feed": null, "feed_articles": 300_000, "feed_bytes": 900_000_000, "feed_batches": 2_752,
            "passes": passes, "retention_passes": 6, "batch_every_passes": 3, "batches_per_pass": null,
            "rm": "fastrm", "link": "hard", "readers": 0, "history": null, "places": [],
            "spool": format!("crumb-netnews-{per_sec}"), "storage": null,
        }),
        environment: Environment { mount: Some(mount), ..Environment::default() },
        seed: 1,
        complete: true,
        points: vec![],
        phases,
        curves: vec![],
        series: None,
        metrics: BTreeMap::new(),
        annotations: vec![],
        not_seen: Default::default(),
        headline: vec![],
        declarations: vec![],
        verdict: Verdict::valid(),
    }
}

fn figures(runs: &[RunRecord]) -> Vec<ByPass> {
    let runs: Vec<&RunRecord> = runs.iter().collect();
    let items = views(&runs).into_iter().flat_map(|section| section.items);
    let figure = |view| match view {
        View::ByPass(figure) => figure,
        other => panic!("{other:?}"),
    };
    items.map(figure).collect()
}

fn figure(runs: &[RunRecord], id: &str) -> ByPass {
    let found = figures(runs).into_iter().find(|figure| figure.id == id);
    found.unwrap_or_else(|| panic!("no figure {id}"))
}

fn ids(figures: &[ByPass]) -> Vec<&'static str> {
    figures.iter().map(|figure| figure.id).collect()
}

fn passes_of(figure: &ByPass) -> Vec<u32> {
    figure.lines[0].points.iter().map(|point| point.pass).collect()
}

/// As many runs as rates, of one configuration.
fn repeats(rates: &[f64]) -> Vec<RunRecord> {
    rates.iter().map(|per_sec| news_run("/mnt/a", 14, *per_sec, 1.0)).collect()
}

#[test]
fn repeats_of_one_configuration_are_one_mark_with_their_spread() {
    let of = figure(&repeats(&[10_000.0, 12_000.0, 11_000.0]), "unbatch-passes");
    assert_eq!(of.lines.len(), 1);
    assert_eq!(of.lines[0].points.len(), 14);
    let third = of.lines[0].points[2];
    assert_eq!((third.pass, third.runs), (3, 3));
    assert!((third.y - 10_780.0).abs() < 1e-6, "{third:?}");
    assert!((third.low - 9_800.0).abs() < 1e-6 && (third.high - 11_760.0).abs() < 1e-6, "{third:?}");
}

#[test]
fn the_mean_is_all_articles_through_all_the_time_and_not_the_mean_of_rates() {
    let mut run = news_run("/mnt/a", 2, 1_000.0, 0.0);
    let mut unbatch = run.phases.iter_mut().filter(|phase| phase.name == "unbatch");
    let (first, second) = (unbatch.next().unwrap(), unbatch.next().unwrap());
    (first.items, first.wall_s, second.items, second.wall_s) = (1_000, 1.0, 1_000, 3.0);
    assert_eq!(figure(&[run], "unbatch-mean").lines[0].points[0].y, 500.0);
}

#[test]
fn ageing_is_each_pass_as_percent_of_the_first_and_has_its_trend_in_words() {
    let of = figure(&repeats(&[10_000.0]), "unbatch-ageing");
    let shares: Vec<f64> = of.lines[0].points.iter().map(|point| point.y.round()).collect();
    assert_eq!((shares[0], shares[6], shares[13]), (100.0, 94.0, 87.0));
    assert!(of.findings[0].contains("pass 14 stores at 87.0% of pass 1’s rate"), "{:?}", of.findings);
    assert!(
        of.findings[0]
            .contains("trend −1.00% a pass; pass 8, after the first deletion, −1.1% against pass 7"),
        "{:?}",
        of.findings
    );
}

#[test]
fn times_of_deleting_and_batching_stand_at_their_passes() {
    let runs = repeats(&[10_000.0]);
    let (expire, batch) = (figure(&runs, "expire-passes"), figure(&runs, "batch-passes"));
    assert_eq!(passes_of(&expire), (7..=14).collect::<Vec<u32>>(), "nothing is deleted before pass 7");
    assert_eq!(passes_of(&batch), [3, 6, 9, 12]);
    assert_eq!((expire.unit, expire.lines[0].points[0].y), ("s", 0.75));
    assert!(
        expire.findings[0].ends_with("mean 0.750 s for 30,000 files, which is 40,000/s"),
        "{:?}",
        expire.findings
    );
}

#[test]
fn history_elsewhere_is_held_against_history_here_and_nothing_else() {
    let here = news_run("/mnt/a", 10, 10_000.0, 0.0);
    let mut there = news_run("/mnt/a", 10, 5_000.0, 2.0);
    there.config["history"] = "nfs://filer/vol".into();
    there.label = "with history on the filer".to_owned();
    let other = news_run("/mnt/b", 10, 7_000.0, 0.0);
    let runs = [there, other, here];
    let rates = figure(&runs, "history-passes");
    assert_eq!(rates.lines.len(), 2, "/mnt/b has no partner");
    let cost = figure(&runs, "history-cost");
    assert_eq!(cost.lines.len(), 1);
    assert!(cost.lines[0].name.contains("history on nfs://filer/vol against"), "{}", cost.lines[0].name);
    let values: Vec<f64> = cost.lines[0].points.iter().map(|point| point.y.round()).collect();
    assert_eq!((values[0], values[9]), (200.0, 244.0));
    assert!(!ids(&figures(&runs[..2])).contains(&"history-cost"));
}

#[test]
fn configurations_are_named_by_what_differs() {
    let name = |runs: &[RunRecord]| -> Vec<String> {
        let of = figure(runs, "unbatch-mean");
        of.lines.iter().map(|line| line.name.clone()).collect()
    };
    let plain = || news_run("/mnt/a", 14, 1_000.0, 0.0);
    let mut dumb = plain();
    dumb.config["rm"] = "dumbrm".into();
    assert_eq!(name(&[plain(), dumb]), ["fastrm", "dumbrm"]);
    let (mut memory, mut file) = (plain(), plain());
    memory.config["history_index"] = "memory".into();
    file.config["history_index"] = "file".into();
    assert_eq!(
        name(&[plain(), memory]),
        ["news on /mnt/a"],
        "memory is what it was before there was a choice"
    );
    assert_eq!(name(&[plain(), file]), ["history’s index in memory", "history’s index in a file"]);
    let mut linked = plain();
    linked.config["link"] = "symlink".into();
    assert_eq!(name(&[plain(), linked]), ["hard links", "symbolic links"]);
    let mut read = news_run("/mnt/b", 14, 1_000.0, 0.0);
    read.config["readers"] = 8.into();
    assert_eq!(name(&[plain(), read.clone()]), ["/mnt/a", "/mnt/b, 8 readers"]);
    read.label = "busy".to_owned();
    let mut idle = plain();
    idle.label = "idle".to_owned();
    assert_eq!(name(&[idle, read]), ["idle", "busy"]);
    let mut noatime = plain();
    noatime.environment.mount.as_mut().unwrap().options = "rw,noatime".to_owned();
    assert_eq!(name(&[plain(), noatime]), ["rw,relatime", "rw,noatime"]);
    assert_eq!(name(&[plain()]), ["news on /mnt/a"]);
}

#[test]
fn each_published_value_is_there_once_with_its_place_in_the_paper_and_drawn_in_a_figure_that_exists() {
    let known =
        ["unbatch-mean", "unbatch-passes", "unbatch-ageing", "expire-passes", "batch-passes", "history-cost"];
    for (at, value) in published::PAPER.values.iter().enumerate() {
        assert!(value.source.contains("figure") || value.source.contains("section"), "{value:?}");
        assert!(value.drawn.iter().all(|id| known.contains(id)), "{value:?}");
        let same = |other: &&PublishedValue| {
            (other.name, other.of, other.pass) == (value.name, value.of, value.pass)
        };
        assert_eq!(
            published::PAPER.values.iter().position(|other| same(&other)),
            Some(at),
            "{value:?} is there twice"
        );
    }
    let drawn = published::PAPER.values.iter().filter(|value| value.drawn.contains(&"unbatch-mean"));
    let drawn: Vec<(&str, f64)> = drawn.map(|value| (value.name, value.value)).collect();
    assert_eq!(
        drawn,
        [
            ("NetApp F540", 40.0),
            ("NetApp 1400", 30.0),
            ("symlinked disks", 8.0),
            ("striped disks", 6.0),
            ("mirrored disks", 4.5),
            ("needed in 1997", 3.0)
        ]
    );
}

#[test]
fn one_pass_is_a_bar_and_no_line_and_nothing_measured_is_no_section() {
    assert_eq!(ids(&figures(&[news_run("/mnt/a", 1, 10_000.0, 0.0)])), ["unbatch-mean"]);
    let mut empty = news_run("/mnt/a", 14, 10_000.0, 0.0);
    empty.phases.clear();
    assert!(views(&[&empty]).is_empty() && views(&[]).is_empty());
}

#[test]
fn phases_of_nonsense_are_left_out() {
    let mut odd = news_run("/mnt/a", 14, 10_000.0, 0.0);
    let values = [f64::NAN, -1.0, 0.0, f64::INFINITY, 1e-300, 1e300];
    for (phase, wall_s) in odd.phases.iter_mut().zip(values.into_iter().cycle()) {
        phase.wall_s = wall_s;
    }
    odd.phases[0].pass = u32::MAX;
    for figure in figures(&[odd]) {
        for point in figure.lines.iter().flat_map(|line| &line.points) {
            assert!(point.low > 0.0 && point.high.is_finite(), "{}: {point:?}", figure.id);
        }
    }
}

#[test]
fn a_configuration_of_a_shape_that_is_not_known_still_tells_runs_apart() {
    let mut odd = news_run("/mnt/a", 14, 1_000.0, 0.0);
    odd.config = json!({ "readers": "many", "rm": ["fastrm"] });
    let mut none = news_run("/mnt/a", 14, 1_000.0, 0.0);
    none.config = json!(null);
    let of = figure(&[odd, none], "unbatch-mean");
    let names: Vec<&str> = of.lines.iter().map(|line| line.name.as_str()).collect();
    assert_eq!(names.len(), 2);
    assert!(names[0].contains("readers many"), "{names:?}");
}

#[test]
fn the_spools_own_name_is_a_place_and_no_setting() {
    assert_eq!([ENTRY.role("spool"), ENTRY.role("storage.proto")], [Role::Place, Role::Reach]);
    assert_eq!(ENTRY.role("readers"), Role::Setting);
}

#[test]
fn configurations_of_a_series_are_in_the_order_of_its_sides_whichever_ran_first() {
    let turn = |target: &str, side: &str, turn| {
        let place = measure::SeriesPlace { of: RunId("s".to_owned()), side: side.to_owned(), turn };
        RunRecord { series: Some(place), ..news_run(target, 3, 9_000.0, 0.0) }
    };
    let mut runs = vec![turn("/mnt/b", "B", 1), turn("/mnt/a", "A", 2), turn("/mnt/z", "AA", 3)];
    let names = |runs: &[RunRecord]| -> Vec<String> {
        figure(runs, "unbatch-mean").lines.into_iter().map(|line| line.name).collect()
    };
    let in_order = names(&runs);
    assert!(in_order[0].contains("/mnt/a") && in_order[2].contains("/mnt/z"), "{in_order:?}");
    runs[1].series = None;
    assert!(names(&runs)[0].contains("/mnt/b"), "runs of no one series are as they come");
}
