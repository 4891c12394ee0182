//! `crumb compare`: from stored runs to an answer, a page, JSON and an exit code.

use crate::binary::{Bench, assert_fits};
use crate::sample;
use measure::{RunId, RunRecord, SeriesPlace};

/// One run of a series in turns; `at` from 0, B on every second turn.
fn run(at: usize, per_sec: f64) -> RunRecord {
    let b = at % 2 == 1;
    let wobble = 1.0 + 0.01 * ((at / 2 * 7 % 5) as f64 - 2.0);
    let mut record = sample::record(
        &format!("20261122-1800{at:02}-postmark-{:04x}", 0xa0 + at),
        if b { "XFS" } else { "ext4" },
    );
    record.benchmark = "postmark".to_owned();
    // As of an earlier version: what its metrics are, the program's own list says.
    record.declarations.clear();
    record.target = if b { "/mnt/xfs" } else { "/mnt/ext4" }.to_owned();
    record.points.clear();
    record.started += std::time::Duration::from_secs(60 * at as u64);
    record.series = Some(SeriesPlace {
        of: RunId("20261122-180000-postmark-00a0".to_owned()),
        side: if b { "B" } else { "A" }.to_owned(),
        turn: at as u32 + 1,
    });
    record.metrics = [
        ("transactions_per_sec", per_sec * wobble),
        ("total_s", 60_000.0 / per_sec / wobble),
        ("create_p99_us", 2_400.0 * wobble),
        ("read_bytes_per_sec", 3_100.0 * per_sec),
        ("a_metric_with_a_name_that_goes_on_and_on_until_no_terminal_has_room_for_it_us", 1.5),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    record
}

/// A store with a series of `turns` runs, B doing `b_per_sec` to A's 1000.
fn bench(turns: usize, b_per_sec: f64) -> Bench {
    let bench = Bench::new();
    let names: Vec<String> = (0..turns).map(|at| format!("{at}.json")).collect();
    for (at, name) in names.iter().enumerate() {
        bench.write(name, &run(at, if at % 2 == 1 { b_per_sec } else { 1000.0 }).to_json());
    }
    let mut import = vec!["runs", "import"];
    import.extend(names.iter().map(String::as_str));
    bench.fine(&import);
    bench
}

#[test]
fn a_series_is_answered_in_a_sentence_below_a_table_of_80_columns() {
    let bench = bench(10, 1120.0);
    let said = bench.fine(&["compare", "last"]);
    assert_fits(&said);
    assert!(said.starts_with("A  ext4 (5 runs)\nB  XFS (5 runs)\n"), "{said}");
    let first = said.lines().nth(5).unwrap_or_default();
    assert!(first.starts_with("Transactions ") && first.ends_with("faster"), "{said}");
    assert!(said.contains("\nB is faster by 12.0% (95% CI "), "{said}");
    assert!(
        said.contains("none shown") && said.contains("Bonferroni") && !said.contains("Warnings"),
        "{said}"
    );
}

#[test]
fn sides_are_named_in_every_way_and_mean_the_same() {
    let bench = bench(10, 1120.0);
    let all = bench.fine(&["compare", "00a0"]);
    assert_eq!(bench.fine(&["compare", "00a0:A", "00a0:B"]), all);
    assert_eq!(bench.fine(&["compare", "label:ext4", "label:XFS"]), all);
    let a = "00a0,00a2,00a4,00a6,00a8";
    assert_eq!(bench.fine(&["compare", a, "00a1,00a3,00a5,00a7,00a9"]), all);
    assert_eq!(bench.fine(&["compare", a, "1.json,3.json,5.json,7.json,9.json"]), all);
    let turned = bench.fine(&["compare", "00a0:B", "00a0:A"]);
    assert!(turned.contains("\nB is slower by 10.7% (95% CI "), "{turned}");
}

/// Symptom: the list that `run --json` writes for a series was read by no verb.
#[test]
fn the_file_of_a_series_is_compared_and_drawn_as_the_series_is() {
    let bench = bench(10, 1120.0);
    let all = bench.fine(&["compare", "00a0"]);
    let runs: Vec<String> = (0..10).map(|number| bench.read(&format!("{number}.json"))).collect();
    bench.write("all.json", &format!("[{}]", runs.join(",")));
    assert_eq!(bench.fine(&["compare", "all.json"]), all);
    assert_eq!(bench.fine(&["compare", "./all.json:A", "all.json:B"]), all);
    let said = bench.fine(&["report", "all.json"]);
    assert!(said.contains("of 10 runs"), "{said}");
    bench.write("none.json", "[]");
    bench.fails(2, &["compare", "none.json"]);
    bench.fails(1, &["report", "none.json"]);
}

#[test]
fn the_gate_gives_1_when_slower_0_when_not_and_3_when_it_cannot_tell() {
    let slower = bench(10, 900.0);
    let said = slower.crumb(&["compare", "last", "--fail-if-slower", "5%", "--quiet"]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(
        said.err.contains("slower than --fail-if-slower 5% allows: Transactions on B is slower by"),
        "{}",
        said.err
    );
    assert_eq!(slower.crumb(&["compare", "last", "--fail-if-slower", "20%"]).code, 0);
    // Its near end lies below the limit, its far end beyond.
    let near = slower.crumb(&["compare", "last", "--fail-if-slower", "9.9%"]);
    assert!(near.code == 0 && near.err.contains("ruled out"), "{}{}", near.code, near.err);
    let p99 = slower.crumb(&["compare", "last", "--metric", "create_p99_us", "--fail-if-slower", "5%"]);
    assert_eq!(p99.code, 0, "{}", p99.err);
    let few = bench(4, 100.0).crumb(&["compare", "last", "--fail-if-slower", "5%"]);
    assert_eq!(few.code, 3, "{}", few.err);
    assert!(
        few.err.contains("cannot tell") && few.out.contains("too few repeats to tell A and B apart"),
        "{}{}",
        few.out,
        few.err
    );
}

#[test]
fn json_and_the_page_hold_what_the_table_says() {
    let bench = bench(10, 1120.0);
    let said = bench.crumb(&["compare", "last", "--report", "page.html"]);
    assert!(said.code == 0 && said.err.contains("wrote the report to page.html"), "{}", said.err);
    assert!(bench.read("page.html").contains("<strong>B is faster by 12.0% (95% CI "));
    let json: serde_json::Value =
        serde_json::from_str(&bench.fine(&["compare", "last", "--json", "-"])).unwrap();
    let headline = &json["figures"][0];
    assert_eq!((&headline["name"], &headline["headline"]), (&"transactions_per_sec".into(), &true.into()));
    assert_eq!(headline["against"][0]["verdict"], "faster");
    assert_eq!(json["sides"][1]["runs"].as_array().map(Vec::len), Some(5));
}

#[test]
fn two_names_that_differ_at_their_ends_are_two_names_in_the_table() {
    let bench = Bench::new();
    for at in 0..10 {
        let mut record = run(at, 1000.0);
        for end in ["first", "second"] {
            let name = format!("created_in_a_folder_with_a_name_that_is_as_long_as_this_{end}_us");
            record.metrics.insert(name, 5.0 + (at / 2) as f64);
        }
        bench.write(&format!("{at}.json"), &record.to_json());
        bench.fine(&["runs", "import", &format!("{at}.json")]);
    }
    let said = bench.fine(&["compare", "last"]);
    assert_fits(&said);
    for end in ["first", "second"] {
        assert!(said.lines().any(|line| line.trim_end().ends_with(end)), "{end} is cut off:\n{said}");
    }
}

#[test]
fn sides_that_did_other_work_do_not_pass_the_gate() {
    let bench = Bench::new();
    let names: Vec<String> = (0..10).map(|at| format!("{at}.json")).collect();
    for (at, name) in names.iter().enumerate() {
        let mut record = run(at, 1000.0);
        record.series = None;
        record.config = serde_json::json!({"transactions": if at % 2 == 1 { 500 } else { 50_000 }});
        bench.write(name, &record.to_json());
    }
    let side = |from: usize| names.iter().skip(from).step_by(2).cloned().collect::<Vec<_>>().join(",");
    let (a, b) = (side(0), side(1));
    let said = bench.crumb(&["compare", &a, &b, "--fail-if-slower", "5%"]);
    assert_eq!(said.code, 3, "{}", said.err);
    assert!(said.err.contains("transactions") && said.err.contains("--may-differ"), "{}", said.err);
    bench.fine(&["compare", &a, &b, "--fail-if-slower", "5%", "--may-differ", "transactions"]);
    bench.fine(&["compare", &a, &b]);
}

#[test]
fn a_series_answers_by_the_metric_its_records_name_in_the_table_the_page_and_the_gate() {
    let bench = Bench::new();
    for at in 0..10 {
        let mut record = run(at, if at % 2 == 1 { 500.0 } else { 1000.0 });
        if at % 2 == 1 {
            record.headline = vec!["create_p99_us".to_owned()];
        }
        bench.write(&format!("{at}.json"), &record.to_json());
        bench.fine(&["runs", "import", &format!("{at}.json")]);
    }
    let said = bench.crumb(&["compare", "last", "--fail-if-slower", "5%"]);
    assert_eq!(said.code, 0, "it does half the transactions, but is judged by create_p99_us: {}", said.err);
    assert!(said.out.contains("no difference shown between A and B"), "{}", said.out);
    bench.fine(&["report", "last", "-o", "page.html"]);
    assert!(bench.read("page.html").contains("<strong>no difference shown between A and B"));
    let chosen =
        bench.crumb(&["compare", "last", "--metric", "transactions_per_sec", "--fail-if-slower", "5%"]);
    assert_eq!(chosen.code, 1, "{}", chosen.err);
}

#[test]
fn all_that_keeps_it_from_comparing_is_2_as_1_means_slower() {
    let bench = bench(4, 1000.0);
    bench.write("other.json", &sample::record("20261121-180000-fstress-3f9a", "filer A").to_json());
    bench.fine(&["runs", "import", "other.json"]);
    assert!(bench.fails(2, &["compare"]).contains("Usage: crumb compare"));
    assert!(bench.fails(2, &["compare", "3f9a"]).contains("is no series"));
    assert!(bench.fails(2, &["compare", "00a0", "3f9a"]).contains("cannot be compared: the benchmark"));
    assert!(bench.fails(2, &["compare", "00a0", "00a0"]).contains("cannot be compared with itself"));
    assert!(bench.fails(2, &["compare", "00a0:A", "00a0:C"]).contains("no side \"C\"; it has A, B"));
    assert!(bench.fails(2, &["compare", "00a0", "--metric", "tps"]).contains("transactions_per_sec"));
    assert!(bench.fails(2, &["compare", "00a0", "--fail-if-slower", "much"]).contains("percentage"));
    assert!(bench.fails(2, &["compare", "00a0", "ffff"]).contains("\"ffff\""));
    assert!(bench.fails(2, &["compare", "2026112", "00a0"]).contains("say which"));
    assert!(bench.fails(2, &["compare", "label:none", "00a0"]).contains("no run is labelled"));
    let gate = ["compare", "label:none", "00a0", "--fail-if-slower", "5%"];
    assert!(bench.fails(2, &gate).contains("no run is labelled"));
    assert!(bench.fails(2, &["compare", "missing.json", "00a0"]).contains("missing.json"));
    assert!(bench.fails(2, &["compare", "last", "--store", "none.db"]).contains("no runs yet"));
    // Symptom: two directories gave "Is a directory", and nothing said how to compare them.
    std::fs::create_dir_all(bench.path("old disk")).unwrap();
    for sides in [["./old disk", "nfs://filer/export"], ["old disk", "nfs://filer/export"]] {
        let refused = bench.fails(2, &["compare", sides[0], sides[1]]);
        let command = format!("crumb run shootout '{}' nfs://filer/export --quick", sides[0]);
        assert!(refused.split_whitespace().collect::<Vec<_>>().join(" ").contains(&command), "{refused}");
    }
    // Symptom: a benchmark without `run` was an unknown subcommand, and nothing more.
    let refused = bench.fails(2, &["shootout", "/mnt/a", "/mnt/b"]);
    assert!(refused.contains("crumb run shootout"), "{refused}");
}
