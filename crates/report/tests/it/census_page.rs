//! The page of a mount's census: shares beside the paper's day, times, and every number in a table.

use measure::{Phase, RunRecord};
use report::html::{Options, Plots, render};

fn page(runs: &[RunRecord]) -> String {
    render(runs, &Options { plots: Plots::Fixed, ..Options::default() }).expect("renders")
}

/// As `crumb mount` writes one: what a busy news reader's server was asked within an hour.
fn census() -> RunRecord {
    let mut record = crate::sample::two_runs().remove(0);
    record.benchmark = "mount".to_owned();
    record.label = "the news spool".to_owned();
    record.points.clear();
    record.metrics.clear();
    let mut phase = Phase { name: "mounted".to_owned(), pass: 1, wall_s: 3600.0, ..Phase::default() };
    let rows: [(&str, f64, f64, [f64; 6]); 9] = [
        ("lookup", 294_535.0, 41_203.0, [6.1, 4.3, 9.8, 41.0, 210.0, 18_400.0]),
        ("open", 120_018.0, 0.0, [11.2, 8.9, 17.4, 60.1, 390.0, 9_120.0]),
        ("release", 120_016.0, 0.0, [3.0, 2.4, 4.8, 11.0, 80.0, 2_010.0]),
        ("forget", 77_000.0, 0.0, [0.4, 0.3, 0.6, 1.8, 9.0, 310.0]),
        ("unlink", 18_011.0, 0.0, [31.0, 24.0, 52.0, 180.0, 2_100.0, 41_000.0]),
        ("create", 14_402.0, 3.0, [48.0, 37.0, 71.0, 260.0, 3_800.0, 62_300.0]),
        ("getattr", 4_100.0, 0.0, [3.9, 3.1, 5.9, 21.0, 88.0, 900.0]),
        ("readdir", 1_599.0, 0.0, [820.0, 410.0, 1_900.0, 6_800.0, 14_000.0, 21_500.0]),
        ("rename", 400.0, 1.0, [61.0, 50.0, 90.0, 300.0, 900.0, 1_200.0]),
    ];
    for (name, count, failed, latencies) in rows {
        phase.counters.insert(format!("{name}_count"), count);
        phase.counters.insert(format!("{name}_failed"), failed);
        for (of, us) in ["mean", "p50", "p90", "p99", "p999", "max"].into_iter().zip(latencies) {
            phase.counters.insert(format!("{name}_{of}_us"), us);
        }
    }
    record.phases = vec![phase];
    record
}

#[test]
fn a_census_shows_shares_beside_the_papers_day_and_all_latencies_in_place_of_its_phase() {
    let page = page(&[census()]);
    if let Some(path) = std::env::var_os("CRUMB_CENSUS_PAGE") {
        std::fs::write(path, &page).expect("written");
    }
    for words in [
        "What the mount was asked",
        "88.41%",
        "Time in the mount's program",
        ">294,535<",
        ">18,400<",
        "A look-up of a name that is not there counts as failed",
    ] {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains(r#"id="phases""#), "a table of hundred counters says nothing");
    // 294,535 of 333,047 operations that use a name.
    assert!(page.contains("88.44%"), "share of lookups");
}

#[test]
fn nonsense_and_hostile_names_in_an_imported_census_are_left_out_or_text() {
    let mut record = census();
    let counters = &mut record.phases[0].counters;
    counters.insert("<img src=x>_count".to_owned(), 7.0);
    counters.insert("unlink_count".to_owned(), f64::NAN);
    counters.insert("create_p50_us".to_owned(), -3.0);
    counters.insert("readdir_max_us".to_owned(), 1e300);
    record.phases[0].wall_s = f64::INFINITY;
    let drawn = page(&[record.clone()]);
    assert!(!drawn.contains("<img src=x>") && drawn.contains("&lt;img src=x&gt;"));
    assert!(!drawn.contains("NaN") && !drawn.contains(">inf<"));
    record.phases[0].counters.clear();
    assert!(!page(&[record]).contains("What the mount was asked"));
}

#[test]
fn two_mounts_are_drawn_one_below_the_other_by_their_names() {
    let mut second = census();
    second.label = "the mail".to_owned();
    second.id.0.push('b');
    let page = page(&[census(), second]);
    assert!(page.contains("What the mount was asked: the news spool"));
    assert!(page.contains("What the mount was asked: the mail"));
}
