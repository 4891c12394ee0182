//! The page of what a benchmark shows as data: bars, ranges, tables, lines, in place of what every run has.

use measure::RunRecord;
use report::html::{Options, Plots, render};

use crate::made_up::REGISTRY;
use crate::sample::{dirscale_run, rounds_run, tally_run};

fn page(runs: &[RunRecord]) -> String {
    render(runs, REGISTRY, &Options { plots: Plots::Fixed, ..Options::default() }).expect("renders")
}

#[test]
fn a_benchmarks_views_are_drawn_in_place_of_phases_curves_and_figures() {
    let page = page(&[tally_run("the server")]);
    for words in [
        r#"id="tally-0-title">What the server was asked<"#,
        "Counted by the server.",
        ">294535<",
        r#"colspan="2" class="group">Time, µs<"#,
        r#"–</td>"#,
        "All that was asked.",
        r#"class="over-time dashed""#,
        "Dotted, from left to right: begin, half.",
        r#"class="published-mark" x1="50"#,
    ] {
        assert!(page.contains(words), "{words}");
    }
    assert!(
        !page.contains(r#"id="phases""#)
            && !page.contains(r#"id="curve-0""#)
            && !page.contains(r#"class="tiles""#)
    );
}

#[test]
fn nonsense_and_hostile_names_in_views_are_left_out_or_text() {
    let mut record = tally_run("the server");
    let counters = &mut record.phases[0].counters;
    counters.insert("<img src=x>_count".to_owned(), 7.0);
    counters.insert("find_p50_us".to_owned(), -3.0);
    counters.insert("drop_max_us".to_owned(), 1e300);
    counters.insert("list_count".to_owned(), f64::INFINITY);
    record.curves[0].lines[0].points[3].y = f64::NAN;
    let drawn = page(&[record.clone()]);
    assert!(!drawn.contains("<img src=x>") && drawn.contains("&lt;img src=x&gt;"));
    // Bars and ranges that cannot be drawn are not; what the benchmark wrote as text is its own.
    assert_eq!(drawn.matches(r#"class="to-p99""#).count(), 2);
    assert_eq!(drawn.matches(r#"<rect class="full""#).count(), 3);
    assert!(!drawn.contains(r#"x2="inf"#) && !drawn.contains("NaN,"));
    record.phases[0].counters.clear();
    let without = page(&[record]);
    assert!(!without.contains("was asked<") && without.contains(r#"id="phases""#), "drawn as any run is");
}

#[test]
fn runs_of_several_benchmarks_share_a_page_and_each_keeps_what_its_own_does_not_show() {
    let runs = [
        dirscale_run("ext4", true),
        tally_run("first"),
        rounds_run("/mnt/a", 3, 200.0, 1.0),
        tally_run("second one"),
    ];
    let page = page(&runs);
    assert!(page.contains("What first was asked") && page.contains("What second one was asked"));
    assert!(page.contains("Round after round") && page.contains("Headline figures of each run"));
    // The line of the second tally has the colour of the fourth run of the page.
    assert!(page.contains(r#"<g class="run3"><polyline"#) && page.contains(r#"<g class="run1"><polyline"#));
    assert!(page.contains("id=\"curve-0\""));
    let phases = page
        .split(r#"id="phases""#)
        .nth(1)
        .expect("phases of the others")
        .split("</section>")
        .next()
        .unwrap();
    assert!(phases.contains("<h3>") && !phases.contains("first"), "the others alone");
}

#[test]
fn a_run_of_a_benchmark_that_is_not_known_is_drawn_by_what_every_run_has() {
    let mut record = rounds_run("/mnt/a", 14, 20_000.0, 1.0);
    record.benchmark = "of another version".to_owned();
    let page = page(&[record]);
    assert!(
        page.contains("Storing files") && page.contains("id=\"curve-0\"") && page.contains(r#"id="phases""#)
    );
    assert!(!page.contains("Round after round"));
}
