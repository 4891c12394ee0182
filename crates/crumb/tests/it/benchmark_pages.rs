//! What benchmarks show of their runs, on the page: those of this program, and one that was made up here, for which
//! `report` needed no edit.

use measure::view::{Bar, Bars, Section, Usual, View};
use measure::{
    Answer, BenchmarkEntry, BenchmarkRegistry, Curve, CurveLine, CurvePoint, MetricDeclaration, Phase, Role,
    RunId, RunRecord, SeriesPlace,
};
use report::html::{Options, Plots, render};
use report::sides::{self, Source};
use report::{Reference, ReportError, Store};

use crate::sample;

/// A run without load points.
fn plain(benchmark: &str, id: &str, label: &str) -> RunRecord {
    let mut record = sample::record(id, label);
    record.benchmark = benchmark.to_owned();
    record.target = format!("/mnt/{label}");
    (record.points, record.phases, record.declarations) = Default::default();
    record.metrics.clear();
    record.config = serde_json::json!({});
    record
}

fn page(runs: &[RunRecord], registry: BenchmarkRegistry) -> String {
    render(runs, registry, &Options { plots: Plots::Fixed, ..Options::default() }).unwrap()
}

fn phase(name: &str, pass: u32, items: u64, wall_s: f64) -> Phase {
    let items_per_sec = items as f64 / wall_s;
    Phase { name: name.to_owned(), pass, items, wall_s, items_per_sec, ..Phase::default() }
}

#[test]
fn a_page_of_netnews_has_the_papers_figures_and_its_published_values() {
    let mut runs = [plain("netnews", "a", "a"), plain("netnews", "b", "b")];
    for run in &mut runs {
        run.config =
            serde_json::json!({ "passes": 9, "feed_articles": 20_000, "rm": "fastrm", "history": null });
        for pass in 1..=9 {
            run.phases.push(phase("unbatch", pass, 20_000, 1.0 + f64::from(pass) / 50.0));
            run.phases.push(phase("expire", pass, if pass >= 7 { 30_000 } else { 0 }, 2.0));
        }
        let points = (1..=9).map(|pass| CurvePoint { x: f64::from(pass), y: 9.0, ..CurvePoint::default() });
        let lines = vec![CurveLine { label: "unbatch".to_owned(), points: points.collect() }];
        run.curves = vec![Curve { name: "unbatch_per_sec".to_owned(), over: "pass".to_owned(), lines }];
    }
    (runs[1].label, runs[1].target) = (runs[0].label.clone(), runs[0].target.clone());
    runs[1].config["history"] = "/mnt/b".into();
    let page = page(&runs, crumb::declarations::REGISTRY);
    for figure in [
        "unbatch-mean",
        "unbatch-passes",
        "unbatch-ageing",
        "expire-passes",
        "history-passes",
        "history-cost",
    ] {
        assert_eq!(page.matches(&format!("id=\"passes-{figure}\"")).count(), 1, "{figure}");
    }
    assert!(page.contains("history with the articles") && page.contains("history on &#x2f;mnt&#x2f;b"));
    assert!(page.contains("Karl L. Swartz, The Brave Little Toaster Meets Usenet"));
    assert!(page.contains("<th scope=\"row\">NetApp F540</th><td>about 40&#x2f;s</td>"));
    assert!(page.contains(r#"id="phases""#) && !page.contains("id=\"curve-0\""), "drawn pass by pass alone");
    let files = report::svg::all(&runs, crumb::declarations::REGISTRY, Reference::On).unwrap();
    let (_, ageing) = files.iter().find(|(name, _)| name == "passes-unbatch-ageing.svg").unwrap();
    assert!(ageing.contains("published by Swartz, LISA X, 1996") && ageing.contains("86.5%"));
}

#[test]
fn a_page_of_a_mount_has_its_operations_beside_the_papers_day_in_place_of_phase_and_figures() {
    let mut run = plain("mount", "a", "spool");
    let mut mounted = phase("mounted", 1, 100, 3_600.0);
    for (name, count) in [("lookup", 294_535.0), ("open", 120_018.0), ("unlink", 38_512.0)] {
        mounted.counters.insert(format!("{name}_count"), count);
        for (of, us) in [("mean_us", 6.0), ("p50_us", 4.3), ("p99_us", 41.0), ("max_us", 18_400.0)] {
            mounted.counters.insert(format!("{name}_{of}"), us);
        }
    }
    run.phases = vec![mounted];
    run.metrics.insert("lookup_p50_us".to_owned(), 4.3);
    let page = page(&[run], crumb::declarations::REGISTRY);
    // 294,535 of 333,047 operations that use a name.
    for words in
        ["What the mount was asked", "88.41%", "88.44%", "Time in the mount&#x27;s program", ">294,535<"]
    {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains(r#"id="phases""#) && !page.contains(r#"class="tiles""#));
}

#[test]
fn a_page_of_webload_has_proxies_side_by_side_and_the_talk_below_them() {
    let mut run = plain("webload", "a", "squid");
    run.config = serde_json::json!({ "workload": "polymix-3" });
    run.metrics.insert("requests_per_sec".to_owned(), 299.5);
    let point = |x: f64| CurvePoint { x, y: 300.0, ..CurvePoint::default() };
    let lines = vec![CurveLine { label: "achieved".to_owned(), points: vec![point(0.5), point(1.5)] }];
    run.curves = vec![Curve { name: "requests_per_sec".to_owned(), over: "minutes".to_owned(), lines }];
    let page = page(&[run], crumb::declarations::REGISTRY);
    for words in [
        "Traffic through the proxy",
        "KOTETU 1.5b, 2000 (the talk)",
        "42.91",
        ">299.5<",
        "id=\"traffic-requests-per-sec\"",
    ] {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains("id=\"curve-0\""), "drawn over the minutes alone");
}

// A sixth benchmark, which stacks plates.

const PLATES: BenchmarkEntry = BenchmarkEntry {
    metrics: &[
        MetricDeclaration::rate("plates_per_sec", "Plates stacked").answers(),
        MetricDeclaration::micros("plate_p99_us", "Slowest plates"),
    ],
    settings: &[("plate", Role::Identity), ("shelf", Role::Place)],
    answers: &["stack-stands"],
    answer: |run| Answer::of(format!("Stacks {} plates a second", run.metrics["plates_per_sec"])),
    is_compared: |_| true,
    views: plates_views,
};

const WITH_PLATES: BenchmarkRegistry = BenchmarkRegistry::new(|name| match name {
    "plates" => Some(PLATES),
    other => crumb::declarations::entry(other),
});

fn plates_views(runs: &[&RunRecord]) -> Vec<Section> {
    let bar = |run: &&RunRecord| Bar {
        name: run.label.clone(),
        value: run.metrics["plates_per_sec"],
        text: format!("{} plates a second", run.metrics["plates_per_sec"]),
        published: None,
        facts: vec![],
    };
    vec![Section {
        id: "plates".to_owned(),
        title: "How high the stacks are".to_owned(),
        runs: (0..runs.len()).collect(),
        instead_of: &[Usual::Phases],
        items: vec![View::Bars(Bars {
            title: "Plates",
            read: "Longer is better.",
            axis: "plates a second",
            unit: "/s",
            rows: runs.iter().map(bar).collect(),
        })],
        ..Section::default()
    }]
}

/// Ten runs in turns, of which those of B are faster by a tenth. Records as of an earlier version: nothing declared.
fn plates() -> Vec<RunRecord> {
    let run = |turn: u32| {
        let side = if turn % 2 == 1 { "A" } else { "B" };
        let mut run = plain("plates", &format!("20261125-1000{turn:02}-plates-000{:x}", turn % 16), side);
        run.config = serde_json::json!({ "plate": "soup", "shelf": format!("shelf {turn}"), "hands": 2 });
        let rate = if side == "A" { 100.0 } else { 110.0 } + f64::from(turn) / 10.0;
        run.metrics = [("plates_per_sec", rate), ("plate_p99_us", 900.0 + f64::from(turn))]
            .map(|(name, value)| (name.to_owned(), value))
            .into();
        run.phases = vec![phase("stack", 1, 100, 1.0)];
        run.verdict.remark("stack-stands", "the stack stands");
        run.series = Some(SeriesPlace {
            of: RunId("20261125-100001-plates-0001".to_owned()),
            side: side.to_owned(),
            turn,
        });
        run
    };
    (1..=10).map(run).collect()
}

#[test]
fn a_made_up_benchmark_is_stored_listed_compared_and_drawn_by_its_entry_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = Store::open(&path).unwrap().declaring(WITH_PLATES);
    plates().iter().for_each(|run| store.insert(run).unwrap());

    let listed = store.list().unwrap();
    assert_eq!((listed.len(), listed[0].benchmark.as_str()), (10, "plates"));
    let found = store.find("0003").unwrap();
    assert_eq!(found.headlines().next(), Some("plates_per_sec"), "declared by the registry");
    assert_eq!(found.metric("plate_p99_us").title, "Slowest plates");

    let source = Source::new(|| Store::open(&path), WITH_PLATES);
    let sides = sides::named(&["last".to_owned()], &source).unwrap();
    let comparison = report::compare::compare(&sides, &[], WITH_PLATES).unwrap();
    assert!(comparison.answer(1).starts_with("B is faster by 10"), "{}", comparison.answer(1));
    assert_eq!(comparison.figures[0].title, "Plates stacked");
    assert_eq!(comparison.settings_differ, [""; 0], "a shelf is a place");
    assert!(
        comparison.cautions.iter().all(|caution| caution.code != "stack-stands"),
        "an answer is no caution"
    );
    let mut other = sides.clone();
    other[1].runs[0].config["plate"] = "dinner".into();
    let refused = report::compare::compare(&other, &[], WITH_PLATES);
    assert!(matches!(refused, Err(ReportError::NotComparable { .. })));

    let runs = store.series("last").unwrap();
    let page = page(&runs, WITH_PLATES);
    assert!(page.contains("How high the stacks are") && page.contains("B is faster by 10"));
    assert_eq!(page.matches(r#"<rect class="full""#).count(), 10, "a bar a run");
    assert!(!page.contains(r#"id="phases""#));
    let files = report::svg::all(&runs, WITH_PLATES, Reference::Auto).unwrap();
    assert_eq!(files[0].0, "comparison.svg");
}

#[test]
fn the_same_record_is_listed_compared_and_drawn_where_its_benchmark_is_not_known() {
    let runs = plates();
    let comparison =
        report::compare::compare(&sides::of_series(runs.clone()), &[], BenchmarkRegistry::NONE).unwrap();
    assert!(comparison.answer(1).contains("B"), "{}", comparison.answer(1));
    let page = page(&runs, BenchmarkRegistry::NONE);
    assert!(page.contains(r#"id="phases""#) && page.contains("Plates per") || page.contains("Plates"));
    assert!(!page.contains("How high the stacks are"));
}
