//! `crumb report`: from the store or from files, to a page or to plots.

use crate::binary::Bench;
use crate::sample;
use measure::{Phase, RunRecord};

fn with_a_run() -> Bench {
    let bench = Bench::new();
    bench.write("a.json", &sample::record("20261121-180000-fstress-3f9a", "filer A <old>").to_json());
    bench.write("b.json", &sample::record("20261122-090000-fstress-77c0", "filer B").to_json());
    bench.fine(&["runs", "import", "a.json"]);
    bench
}

#[test]
fn the_page_of_the_last_run_holds_its_label_and_is_said_where_it_is() {
    let bench = with_a_run();
    let said = bench.fine(&["report"]);
    assert!(said.starts_with("wrote report.html of 1 run with 3 load points"), "{said}");
    assert!(bench.read("report.html").contains("filer A &lt;old&gt;"));
    assert_eq!(bench.fine(&["report", "last", "-o", "quiet.html", "--quiet"]), "");
    assert!(bench.path("quiet.html").is_file());
}

#[test]
fn runs_of_the_store_and_of_files_share_a_page() {
    let bench = with_a_run();
    let page = bench.fine(&["report", "3f9a", "b.json", "-o", "-", "--title", "Old filer and new"]);
    assert!(
        page.contains("<title>Old filer and new")
            && page.contains("filer A &lt;old&gt;")
            && page.contains("filer B")
    );
    assert!(page.trim_end().ends_with("</html>"), "nothing but the page goes to standard output");
}

#[test]
fn files_need_no_store() {
    let bench = Bench::new();
    bench.write("a.json", &sample::record("20261121-180000-fstress-3f9a", "filer A").to_json());
    bench.fine(&["report", "a.json", "-o", "a.html"]);
    assert!(bench.path("a.html").is_file() && !bench.path("runs.db").exists());
}

#[test]
fn plots_alone_go_into_a_directory_and_no_page_is_written() {
    let bench = with_a_run();
    let refused = bench.fails(2, &["report", "last", "--svg", "plots/of/today"]);
    assert!(refused.contains("make it (mkdir -p plots/of)") && !bench.path("plots").exists(), "{refused}");
    let said = bench.fine(&["report", "last", "--svg", "today"]);
    assert_eq!(said, "wrote 4 plots to today\n");
    assert!(bench.read("today/latency-load-log.svg").contains("</svg>"));
    assert!(!bench.path("report.html").exists());
    bench.fine(&["report", "--svg", "plots", "-o", "both.html"]);
    assert!(bench.path("both.html").is_file());
}

/// 14 passes that store 20,000 articles a second.
fn netnews() -> RunRecord {
    let mut record = sample::record("20261122-200000-netnews-5a5a", "news");
    record.benchmark = "netnews".to_owned();
    record.points.clear();
    let unbatch = |pass| Phase {
        name: "unbatch".to_owned(),
        pass,
        wall_s: 1.0,
        items: 20_000,
        items_per_sec: 20_000.0,
        ..Phase::default()
    };
    record.phases = (1..=14).map(unbatch).collect();
    record
}

#[test]
fn published_values_are_drawn_where_they_are_asked_for() {
    let bench = Bench::new();
    bench.write("news.json", &netnews().to_json());
    let of = |directory: &str, reference: &[&str]| {
        bench.fine(&[&["report", "news.json", "--svg", directory][..], reference].concat());
        bench.read(&format!("{directory}/passes-unbatch-mean.svg"))
    };
    assert!(!of("auto", &[]).contains("about 40/s"), "20,000/s and 40/s need a logarithmic axis");
    assert!(of("on", &["--reference", "on"]).contains("about 40/s"));
    assert!(bench.read("on/passes-unbatch-ageing.svg").contains("86.5%"));
    assert!(!of("off", &["--reference", "off"]).contains("about 40/s"));
    assert!(!bench.read("off/passes-unbatch-ageing.svg").contains("86.5%"));
    bench.fine(&["report", "news.json", "-o", "news.html"]);
    assert!(bench.read("news.html").contains("id=\"published-unbatch-mean\""));
    assert!(bench.fails(2, &["report", "news.json", "--reference", "some"]).contains("--reference"));
}

#[test]
fn what_is_wrong_is_said_with_the_name_that_was_given() {
    let bench = with_a_run();
    assert!(bench.fails(1, &["report", "missing.json"]).contains("missing.json"));
    assert!(bench.fails(1, &["report", "ffff"]).contains("\"ffff\""));
    bench.write("text.json", "no record");
    assert!(bench.fails(1, &["report", "text.json"]).contains("text.json: cannot be reported on"));
    assert!(bench.fails(1, &["report", "-o", "no/such/report.html"]).contains("no/such/report.html"));
    assert!(bench.fails(2, &["report", "--svg", "a.json/plots"]).contains("a.json/plots"));
    assert!(bench.fails(1, &["report", "--store", "none.db"]).contains("none.db: no runs yet"));
}
