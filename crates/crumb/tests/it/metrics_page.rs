//! `docs/guide/metrics.md` names every metric and every counter that the benchmarks emit, and promises none that is not there.

use std::collections::BTreeSet;

use crate::binary::Bench;
use measure::RunRecord;

/// Declared for their titles: the page has metrics and counters only.
const CURVES: [(&str, &str); 8] = [
    ("netnews", "unbatch_per_sec"),
    ("dirscale", "lookup_random_us"),
    ("dirscale", "lookup_sequential_us"),
    ("dirscale", "add_us"),
    ("dirscale", "remove_us"),
    ("dirscale", "readdir_us"),
    ("dirscale", "day_us"),
    ("webload", "response_us"),
];

/// A row's names, and whether each run has them.
struct Row {
    names: Vec<String>,
    always: bool,
}

/// Rows of the tables below the headings for which `wanted` says so.
fn rows(page: &str, wanted: impl Fn(&str) -> bool) -> Vec<Row> {
    let mut heading = "";
    let mut found = Vec::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            heading = title;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if wanted(heading) && line.starts_with("| `") {
            let names = cells[0].split('`').skip(1).step_by(2).map(str::to_owned).collect();
            found.push(Row { names, always: cells[2].is_empty() });
        }
    }
    assert!(!found.is_empty(), "the page has no such heading");
    found
}

/// Whether `name` is what `pattern` stands for: `{…}` is one or more letters, `…` at the end anything.
fn is_named(pattern: &str, name: &str) -> bool {
    match pattern.find(['{', '…']) {
        None => pattern == name,
        Some(at) => {
            let Some(rest) = name.strip_prefix(&pattern[..at]) else { return false };
            let Some(end) = pattern[at..].find('}') else { return !rest.is_empty() };
            let after = &pattern[at + end + 1..];
            (1..=rest.len())
                .filter(|cut| rest.is_char_boundary(*cut))
                .any(|cut| is_named(after, &rest[cut..]))
        }
    }
}

fn record(bench: &Bench, args: &[&str]) -> RunRecord {
    let said = bench.crumb(&[args, &["--json", "run.json", "--quiet"]].concat());
    assert!(matches!(said.code, 0 | 3), "{args:?}: {} {}{}", said.code, said.out, said.err);
    RunRecord::from_json(&bench.read("run.json")).unwrap()
}

#[test]
fn every_metric_and_counter_is_on_the_page_and_every_one_promised_is_emitted() {
    let page = include_str!("../../../../docs/guide/metrics.md");
    let bench = Bench::in_memory();
    std::fs::create_dir(bench.path("a")).unwrap();
    let runs: [&[&str]; 5] = [
        &["run", "postmark", "a", "--number", "50", "--transactions", "500"],
        &["run", "netnews", "a", "--articles", "2000", "--passes", "4", "--retention", "2", "--readers", "1"],
        &["run", "dirscale", "a", "--sizes", "1..64", "--operations", "30", "--warm"],
        &[
            "run",
            "fstress",
            "null:",
            "--rate",
            "500,1000",
            "--files",
            "100",
            "--warm",
            "10ms",
            "--measure",
            "200ms",
        ],
        &[
            "run",
            "webload",
            "--direct",
            "--workload",
            "polymix-3",
            "--peak",
            "250",
            "--cache-size",
            "1MB",
            "--time-scale",
            "20000",
            "--think",
            "20ms,5ms",
        ],
    ];
    for args in runs {
        let record = record(&bench, args);
        let metrics: BTreeSet<&str> = record.metrics.keys().map(String::as_str).collect();
        let counters: BTreeSet<&str> =
            record.phases.iter().flat_map(|phase| phase.counters.keys()).map(String::as_str).collect();
        let of = record.benchmark.as_str();
        let own_counters = format!("Counters of {of}'s phases");
        let own = |heading: &str| heading.replace("netnews'", "netnews's") == own_counters;
        let of_metrics = rows(page, |heading| heading == format!("{of}: metrics"));
        let of_counters = rows(page, |heading| heading == "Counters of all phases" || own(heading));
        // A device's counters are metrics of PostMark too, where there is a device.
        for (emitted, rows) in [(&metrics, &of_metrics), (&counters, &of_counters)] {
            let missing: Vec<_> = emitted
                .iter()
                .filter(|name| !rows.iter().flat_map(|row| &row.names).any(|pattern| is_named(pattern, name)))
                .collect();
            assert!(missing.is_empty(), "{of} emits what the page does not name: {missing:?}");
            for promised in rows.iter().filter(|row| row.always).flat_map(|row| &row.names) {
                let there = emitted.iter().any(|name| is_named(promised, name));
                assert!(there, "{of} does not emit {promised}, which the page promises: {emitted:?}");
            }
        }
    }
}

/// A declaration is on the page when a row names it, or the family that it is of or that it is itself.
#[test]
fn what_the_benchmarks_declare_is_what_the_page_lists() {
    let page = include_str!("../../../../docs/guide/metrics.md");
    for of in ["fstress", "postmark", "netnews", "dirscale", "webload", "mount"] {
        let declared = crumb::declarations::of(of);
        let rows = rows(page, |heading| heading == format!("{of}: metrics"));
        let names: Vec<&String> = rows.iter().flat_map(|row| &row.names).collect();
        // A family's name with letters in place of its braces.
        let sample = |pattern: &str| pattern.replace(['{', '}'], "").replace('…', "busy_percent");
        for name in &names {
            let known = measure::declared(&declared, &sample(name));
            assert!(known.is_some(), "{of}: the page lists {name}, which is not declared");
        }
        let is_curve = |name: &str| CURVES.contains(&(of, name));
        for one in declared.iter().filter(|one| !is_curve(one.name)) {
            let listed = names.iter().any(|pattern| is_named(pattern, &sample(one.name)))
                || names.iter().any(|name| one.metric(&sample(name)).is_some());
            assert!(listed, "{of} declares {}, which the page does not list", one.name);
        }
        assert!(of == "mount" || declared.iter().any(|one| one.headline), "{of} has no headline");
    }
}

#[test]
fn what_is_not_on_the_page_is_found_out() {
    assert!(is_named("{op}_p50_us", "create_p50_us") && is_named("device_…", "device_busy_percent"));
    assert!(is_named("pays_from_files_{layout}_{question}", "pays_from_files_345_readdir"));
    assert!(!is_named("{op}_p50_us", "_p50_us") && !is_named("total_s", "total_seconds"));
    assert!(!is_named("{op}_p50_us", "create_p50_us_max") && !is_named("device_…", "device_"));
}
