//! The page as text: whole, escaped, and readable without any script.

use crate::made_up::{PASS_FIGURES, REGISTRY};
use crate::sample::{Sweep, dirscale_run, postmark_series, rounds_run, search_run, two_runs};
use report::html::{self, Options, Plots};
use report::{Reference, ReportError, svg};

const HOSTILE: &str = r#"</script><img src=x onerror="alert(1)">{{ 7 * 7 }}&amp;"#;

fn page(runs: &[measure::RunRecord], plots: Plots) -> String {
    html::render(runs, REGISTRY, &Options { title: None, plots, ..Options::default() }).unwrap()
}

#[test]
fn a_hostile_name_is_text_wherever_it_appears() {
    let mut record = Sweep::new(HOSTILE, 400.0, 3_000.0).outstanding(&[4, 16]).named(HOSTILE).record();
    record.target = HOSTILE.to_owned();
    record.command.push(HOSTILE.to_owned());
    record.benchmark = HOSTILE.to_owned();
    record.config = serde_json::json!({ HOSTILE: HOSTILE });
    record.environment.cpu_model = HOSTILE.to_owned();
    record.metrics.insert(HOSTILE.to_owned(), 1.0);
    record.phases[0].name = HOSTILE.to_owned();
    record.verdict.invalidate("x", HOSTILE);
    let op = record.points[0].ops.remove("read").unwrap();
    record.points[0].ops.insert(HOSTILE.to_owned(), op);
    record.points[0].ops.get_mut("lookup").unwrap().errors.insert(HOSTILE.to_owned(), 1);
    record.points[0].verdict.remark("x", HOSTILE);
    for plots in [Plots::Interactive, Plots::Fixed] {
        let html = page(&[record.clone(), record.clone()], plots);
        assert!(!html.contains("<img"), "an element came out of a name ({plots:?})");
        assert!(!html.contains("49&amp;"), "a name was run as a template ({plots:?})");
        let ends = html.matches("</script>").count();
        let begins = html.matches("<script").count();
        assert_eq!(ends, begins, "a name ended a script element ({plots:?})");
    }
    for (name, svg) in svg::all(&[record], REGISTRY, Reference::Auto).unwrap() {
        assert!(!svg.contains("<img") && !name.contains(['/', '<']), "{name}");
    }
}

#[test]
fn the_fixed_page_holds_every_svg_and_says_why() {
    let runs = two_runs();
    let html = page(&runs, Plots::Fixed);
    assert!(html.contains("This page shows fixed SVG plots"));
    assert_eq!(
        html.matches("<svg width=").count(),
        svg::all(&runs, REGISTRY, Reference::Auto).unwrap().len()
    );
    assert!(!html.contains("inlined below under this licence"), "uPlot itself is not needed here");
}

/// The page of a build depended on whether npm worked while it was built.
#[test]
fn an_interactive_page_carries_uplot_with_its_licence_and_is_the_same_each_time() {
    let vendored = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("web/vendor/uplot");
    let html = page(&two_runs(), Plots::Interactive);
    for name in ["uPlot.iife.min.js", "uPlot.min.css", "LICENSE"] {
        let text = std::fs::read_to_string(vendored.join(name)).unwrap();
        assert!(html.contains(text.trim_end()), "{name} is not in the page as it is");
        // Inlined between tags, such a text would end them early.
        assert!(!["</script", "</style", "-->"].iter().any(|end| text.contains(end)), "{name}");
    }
    assert_eq!(html, page(&two_runs(), Plots::Interactive));
}

#[test]
fn every_run_shows_its_verdict_and_an_interrupted_one_says_so() {
    let html = page(&two_runs(), Plots::Interactive);
    assert!(html.contains("✓ VALID") && html.contains("✕ INVALID") && html.contains("INCOMPLETE"));
    assert!(html.contains("the generator was the limit at 3,500"));
}

#[test]
fn the_page_begins_with_what_each_run_answers_and_an_invalid_run_gives_no_figure_there() {
    let runs = two_runs();
    let html = page(&runs, Plots::Fixed);
    let first =
        html.split("id=\"answer-title\"").nth(1).and_then(|rest| rest.split("</section>").next()).unwrap();
    assert!(first.contains("<strong>Holds 3500 requests a second.</strong>"), "{first}");
    assert!(
        first.contains("said bad\">")
            && first.contains("INVALID, so no figure of this run counts: send lateness")
    );
    assert_eq!(first.matches("requests a second").count(), 1, "a figure of the INVALID run: {first}");
    let place = |words: &str| html.find(words).unwrap_or_else(|| panic!("{words}"));
    assert!(
        place("id=\"answer-title\"") < place("aria-label=\"Verdicts\"")
            && place("Verdicts") < place("class=\"tiles\"")
    );
    let alone = page(&runs[..1], Plots::Fixed);
    assert!(alone.contains("<p class=\"said good\"><strong>Holds 3500"), "a run alone needs no name");
}

#[test]
fn every_plot_of_a_run_carries_its_answer_and_one_of_many_runs_none() {
    let runs = two_runs();
    for (name, svg) in svg::all(&runs[..1], REGISTRY, Reference::Auto).unwrap() {
        assert!(svg.contains("Holds 3500 requests a second."), "{name}");
    }
    let files = svg::all(&runs, REGISTRY, Reference::Auto).unwrap();
    let (_, both) = files.iter().find(|(name, _)| name == "latency-load-log.svg").unwrap();
    assert!(
        both.contains("filer A, web-server: Holds 3500") && both.contains("filer B, web-server: INVALID")
    );
    let four = [runs.clone(), runs].concat();
    let files = svg::all(&four, REGISTRY, Reference::Auto).unwrap();
    let (_, svg) = files.iter().find(|(name, _)| name == "latency-load-log.svg").unwrap();
    assert!(!svg.contains("Holds 3500"), "there is no room for four sentences");
}

/// Symptom: every saturated level of a sweep was called INVALID. Cause: its verdict says that too little was answered, which
/// is what saturation is.
#[test]
fn a_saturated_level_is_amber_and_named_so_and_invalid_in_red_only_for_another_reason() {
    let mut run = Sweep::new("filer", 420.0, 3_800.0).record();
    let last = run.points.last_mut().unwrap();
    assert!(last.saturated);
    last.verdict.invalidate(measure::RATE_OFF, "3% of the requests due were not answered in time");
    let of = |run: &measure::RunRecord| {
        let html = page(std::slice::from_ref(run), Plots::Fixed);
        let points =
            html.split("id=\"points\"").nth(1).unwrap().split("</section>").next().unwrap().to_owned();
        let plots: String = svg::all(std::slice::from_ref(run), REGISTRY, Reference::Auto)
            .unwrap()
            .into_iter()
            .map(|(_, svg)| svg)
            .collect();
        (
            points.contains("◑ saturated"),
            points.contains("✕ INVALID"),
            plots.contains("#B87A00"),
            plots.contains("#A8321D"),
        )
    };
    assert_eq!(of(&run), (true, false, true, false));
    run.points.last_mut().unwrap().verdict.invalidate("generator-late", "the generator was late");
    assert_eq!(of(&run), (true, true, true, true));
}

#[test]
fn the_large_figures_of_an_invalid_run_are_marked_and_the_machines_are_never_among_them() {
    let mut run = Sweep::new("filer", 420.0, 3_800.0).record();
    run.metrics.clear();
    run.metrics.insert(measure::MACHINE_METRICS[0].name.to_owned(), 41.0);
    run.verdict.invalidate("machine-disturbed", "the machine was disturbed");
    let html = page(&[run.clone()], Plots::Fixed);
    assert!(!html.contains("class=\"tiles\"") && html.contains("1 other figure<"), "they are in the table");
    run.metrics.insert("saturation_per_sec".to_owned(), 3_000.0);
    let html = page(&[run], Plots::Fixed);
    let tiles = html.split("class=\"tiles\"").nth(1).unwrap().split("</section>").next().unwrap();
    assert!(tiles.contains("<b>3,000</b>") && tiles.contains("✕ INVALID"), "{tiles}");
}

#[test]
fn a_search_is_drawn_on_logarithmic_axes_at_first_and_a_sweep_on_linear_ones() {
    let (search, sweep) = ([search_run()], [Sweep::new("filer", 420.0, 3_800.0).record()]);
    let checked =
        |html: &str, value: &str| html.contains(&format!("name=\"scale\" value=\"{value}\" checked"));
    let html = page(&search, Plots::Interactive);
    assert!(checked(&html, "log") && !checked(&html, "linear") && html.contains("\"search\":true"));
    let html = page(&sweep, Plots::Interactive);
    assert!(checked(&html, "linear") && !checked(&html, "log") && html.contains("\"search\":false"));
    let first = |runs: &[measure::RunRecord]| svg::all(runs, REGISTRY, Reference::Auto).unwrap().remove(0);
    let (name, svg) = first(&search);
    // Ticks that only a logarithmic axis of these rates has.
    assert!(
        name == "latency-load-log.svg" && svg.contains(">\n200\n") && svg.contains(">\n5,000\n"),
        "{name}"
    );
    assert_eq!(first(&sweep).0, "latency-load-linear.svg");
}

#[test]
fn the_knee_and_the_highest_rate_held_are_named_on_the_picture_but_not_those_of_an_invalid_run() {
    let mut run = search_run();
    let drawn = |run: &measure::RunRecord| {
        let runs = std::slice::from_ref(run);
        let files = svg::all(runs, REGISTRY, Reference::Auto).unwrap();
        let count = |words: &str| {
            let plots = files.iter().filter(|(name, _)| name.starts_with("latency-load"));
            plots.filter(|(_, svg)| svg.contains(words)).count()
        };
        let named = page(runs, Plots::Interactive).contains("\"text\":\"highest held 3,600/s\"");
        (count("knee 2,400/s"), count("highest held 3,600/s"), named)
    };
    assert_eq!(drawn(&run), (2, 2, true));
    run.verdict.invalidate("x", "the machine was disturbed");
    assert_eq!(drawn(&run), (0, 0, false));
}

#[test]
fn the_cumulative_plot_draws_a_few_levels_with_their_names_on_the_lines_and_its_table_has_all() {
    let run = search_run();
    let files = svg::all(std::slice::from_ref(&run), REGISTRY, Reference::Auto).unwrap();
    let (_, svg) = files.iter().find(|(name, _)| name.starts_with("cumulative-")).unwrap();
    let names = [
        "100/s",
        "200/s",
        "400/s",
        "800/s",
        "1,600/s",
        "2,400/s",
        "3,200/s",
        "3,600/s",
        "3,900/s, saturated",
        "6,400/s, saturated",
    ];
    let drawn: Vec<&str> = names.into_iter().filter(|name| svg.contains(&format!(">\n{name}\n"))).collect();
    assert_eq!(drawn, ["100/s", "200/s", "800/s", "2,400/s", "3,600/s", "3,900/s, saturated"]);
    assert!(svg.contains("A line for 6 load levels of 10."));
    let html = page(&[run], Plots::Interactive);
    assert_eq!(html.matches("\"shown\":true").count(), 6);
    let table = html.split("class=\"cumulative-table\"").nth(1).unwrap().split("</thead>").next().unwrap();
    assert_eq!(table.matches("/s offered").count() + table.matches("&#x2f;s offered").count(), 10, "{table}");
}

#[test]
fn closed_loop_points_are_called_so_wherever_they_appear() {
    let runs = [Sweep::new("null", 20.0, 300_000.0).rates(&[]).outstanding(&[1, 64]).record()];
    let html = page(&runs, Plots::Interactive);
    assert!(html.contains("closed loop, 64 outstanding"));
    assert!(html.contains("latency is measured from the send"));
    assert!(!html.contains("achieved-title"), "a closed loop offers no rate to compare with");
    for (name, svg) in svg::all(&runs, REGISTRY, Reference::Auto).unwrap() {
        assert!(svg.contains("closed loop"), "{name}");
    }
}

#[test]
fn a_record_without_points_and_one_of_nonsense_still_make_a_page() {
    let mut empty = Sweep::new("empty", 400.0, 3_000.0).rates(&[]).record();
    (empty.phases, empty.config) = (Vec::new(), serde_json::Value::Null);
    (empty.metrics, empty.command) = Default::default();
    assert!(page(&[empty], Plots::Interactive).contains("empty"));
    let mut odd = Sweep::new("odd", 400.0, 3_000.0).rates(&[0.0, 500.0, 500.0]).record();
    odd.points[0].achieved_per_sec = -7.0;
    odd.points[1].latency_us = Default::default();
    odd.points[1].offered_per_sec = Some(f64::MAX);
    odd.points[2].latency_us.p99 = f64::NAN;
    odd.points[2].latency_us.mean = -1.0;
    odd.points[2].latency_us.p50 = 1e300;
    odd.points[2].generator_busy = f64::INFINITY;
    for plots in [Plots::Interactive, Plots::Fixed] {
        assert!(page(&[odd.clone()], plots).contains("odd"));
    }
    assert!(matches!(html::render(&[], REGISTRY, &Options::default()), Err(ReportError::NothingToDraw)));
}

#[test]
fn a_page_names_no_address_on_the_network_but_in_its_licence_comment() {
    let html = page(&two_runs(), Plots::Interactive);
    let markup = html.split("<main>").nth(1).unwrap().split("<script").next().unwrap();
    for attribute in ["src=", "href=\"http", "url("] {
        assert!(!markup.contains(attribute), "{attribute}");
    }
    assert!(html.contains("default-src 'none'"));
}

#[test]
fn a_series_is_answered_drawn_and_tabled_and_its_runs_are_listed() {
    let html = page(&postmark_series(1.09), Plots::Fixed);
    assert!(html.contains("<strong>B is faster by 8."), "the answer is missing");
    assert!(html.contains("XFS, new log against ext4") && html.contains("A: ext4"));
    assert!(html.contains("no difference shown") && html.contains("(Bonferroni)"));
    assert_eq!(html.matches("-postmark-00a").count() % 10, 0, "every run is listed as often as the others");
    assert!(!html.contains("around the load points") && !html.contains("latency-title"));
    let same = page(&postmark_series(1.0), Plots::Fixed);
    assert!(same.contains("no difference shown between A and B (ratio 0.9"));
}

#[test]
fn several_sides_are_a_table_and_a_short_title() {
    let mut runs = postmark_series(1.09);
    for at in 0..5 {
        let mut run = runs[at].clone();
        run.id = measure::RunId(format!("{}-c", run.id));
        run.label = "a third side, with a name that is said once".to_owned();
        run.series.as_mut().unwrap().side = "C".to_owned();
        runs.push(run);
    }
    let html = page(&runs, Plots::Fixed);
    let heading = html.split("<h1>").nth(1).and_then(|rest| rest.split("</h1>").next()).unwrap();
    assert_eq!(heading, "postmark: 3 sides compared");
    assert!(html.contains("aria-label=\"Sides and answers\"") && html.contains("B is faster by 8."));
    let table = html.split("Sides and answers").nth(1).unwrap().split("</table>").next().unwrap();
    assert!(
        table.contains("Transactions</th>") && !html.contains("class=\"tiles\""),
        "figures and answers are one table"
    );
    assert!(table.contains("class=\"what\">a third side, with a name that …<"), "{table}");
    let four = [two_runs(), two_runs()].concat();
    let html = page(&four, Plots::Fixed);
    let table = html.split("Headline figures of each run").nth(1).unwrap().split("</table>").next().unwrap();
    assert_eq!(
        (table.matches("✕ INVALID").count(), table.matches("class=\"what\">A, web-server<").count()),
        (2, 2)
    );
    assert!(!html.contains("aria-label=\"Sides\""), "the cards would say it again");
}

#[test]
fn a_run_at_one_load_draws_no_curve_and_still_shows_its_load_point() {
    let html =
        page(&[Sweep::new("one", 20.0, 300_000.0).rates(&[]).outstanding(&[1]).record()], Plots::Fixed);
    assert!(!html.contains("latency-title") && !html.contains("achieved-title"));
    assert!(html.contains("points-title") && html.contains("closed loop, 1 outstanding"));
    let two = page(&[Sweep::new("two", 20.0, 300_000.0).rates(&[500.0, 900.0]).record()], Plots::Fixed);
    assert!(two.contains("latency-title"));
}

#[test]
fn hundreds_of_phases_are_folded_away() {
    let mut run = dirscale_run("ext4", true);
    let phase = measure::Phase { name: "lookup_random flat 65536".to_owned(), pass: 1, ..Default::default() };
    run.phases = vec![phase; 600];
    let html = page(&[run.clone()], Plots::Fixed);
    assert!(html.contains("<summary>All 600 phases</summary>"));
    run.phases.truncate(10);
    assert!(!page(&[run], Plots::Fixed).contains("All 10 phases"));
}

#[test]
fn two_runs_alone_are_drawn_and_not_compared() {
    assert!(!page(&two_runs(), Plots::Fixed).contains("comparison-title"));
    let one_side: Vec<_> = postmark_series(1.0).into_iter().filter(|run| run.target == "/mnt/xfs").collect();
    assert!(!page(&one_side, Plots::Fixed).contains("comparison-title"));
}

#[test]
fn curves_have_a_plot_a_name_and_a_table_and_nonsense_in_them_is_left_out() {
    let mut runs = [dirscale_run("ext2", false), dirscale_run("XFS", true)];
    runs[0].curves[0].lines[0].points[3].y = -1.0;
    runs[0].curves[0].lines[0].points[4].y = f64::NAN;
    runs[0].curves[0].lines[0].points[5].low = Some(f64::INFINITY);
    runs[0].curves[1].lines.clear();
    runs[1].curves[1].lines.clear();
    let html = page(&runs, Plots::Fixed);
    assert_eq!(html.matches("<svg width=").count(), 3, "a curve without a line is no plot");
    assert!(html.contains("Lookup, random order") && html.contains("34/56, XFS"));
    assert!(!html.contains("NaN") && !html.contains("Infinity"));
    let names: Vec<String> =
        svg::all(&runs, REGISTRY, Reference::Auto).unwrap().into_iter().map(|(name, _)| name).collect();
    assert!(names.contains(&"curve-lookup_random_us.svg".to_owned()), "{names:?}");
}

#[test]
fn a_hostile_label_of_a_side_or_a_line_is_text() {
    let mut runs = postmark_series(1.09);
    runs.iter_mut().for_each(|run| run.label = HOSTILE.to_owned());
    runs[0].metrics.insert(HOSTILE.to_owned(), 1.0);
    let mut curves = dirscale_run(HOSTILE, true);
    curves.curves[0].name = HOSTILE.to_owned();
    curves.curves[0].over = HOSTILE.to_owned();
    curves.curves[0].lines[0].label = HOSTILE.to_owned();
    for plots in [Plots::Interactive, Plots::Fixed] {
        for html in [page(&runs, plots), page(&[curves.clone()], plots)] {
            assert!(!html.contains("<img") && !html.contains("49&amp;"), "{plots:?}");
            assert_eq!(html.matches("</script>").count(), html.matches("<script").count(), "{plots:?}");
        }
    }
    let comparison = report::compare::compare(&report::sides::of_series(runs), &[], REGISTRY).unwrap();
    assert!(!svg::comparison(&comparison).unwrap().unwrap().contains("<img"));
    assert_eq!(svg::all(&postmark_series(1.1), REGISTRY, Reference::Auto).unwrap()[0].0, "comparison.svg");
}

fn rounds_pair() -> Vec<measure::RunRecord> {
    vec![rounds_run("/mnt/a", 14, 20_000.0, 1.0), rounds_run("/mnt/b", 14, 15_000.0, 2.0)]
}

#[test]
fn a_page_of_passes_has_its_figures_a_switch_for_published_values_and_a_table_each() {
    for plots in [Plots::Interactive, Plots::Fixed] {
        let html = page(&rounds_pair(), plots);
        for id in PASS_FIGURES {
            assert_eq!(html.matches(&format!("id=\"rounds-{id}\"")).count(), 1, "{id}, {plots:?}");
        }
        assert_eq!(html.matches("The figure’s data as a table").count(), PASS_FIGURES.len());
        // The last has nothing published beside it.
        assert_eq!(html.matches("class=\"published-switch\"").count(), PASS_FIGURES.len() - 1);
        assert!(html.contains(r#"id="published-rate-left" data-fits="yes" checked"#));
        assert!(
            html.contains(r#"id="published-rate-mean" data-fits="no">"#),
            "the axis would be logarithmic"
        );
        assert_eq!(html.matches("id=\"published-all\"").count(), 1);
        assert!(html.contains("Published values, 1996"));
        assert!(!html.contains("plot-curve-0\"") && !html.contains("NaN"));
    }
}

#[test]
fn each_published_value_is_tabled_once_with_its_source_and_left_out_when_not_wanted() {
    let html = page(&rounds_pair(), Plots::Fixed);
    let table = html.split("published-values\"").nth(1).unwrap().split("</section>").next().unwrap();
    for row in [
        "<th scope=\"row\">Old filer</th><td>about 40&#x2f;s</td>",
        "<th scope=\"row\">Not drawn</th><td>1&#x2f;s</td>",
        "<td>86.5%</td><td>what was left</td><td class=\"n\">14</td><td>figure 2</td>",
    ] {
        assert_eq!(table.matches(row).count(), 1, "{row}");
    }
    assert!(table.contains("A. N. Author, Storage of Old"));
    let options = Options { plots: Plots::Fixed, reference: Reference::Off, ..Options::default() };
    let without = html::render(&rounds_pair(), REGISTRY, &options).unwrap();
    assert!(
        !without.contains("Author")
            && !without.contains("Old filer")
            && !without.contains("class=\"published-switch\"")
    );
    let options = Options { reference: Reference::On, ..options };
    let with = html::render(&rounds_pair(), REGISTRY, &options).unwrap();
    assert_eq!(with.matches("\" checked>").count(), PASS_FIGURES.len() - 1);
}

#[test]
fn figures_of_passes_are_svg_files_too_with_published_values_as_asked() {
    let files = svg::all(&rounds_pair(), REGISTRY, Reference::On).unwrap();
    for id in PASS_FIGURES {
        let (_, svg) = files.iter().find(|(name, _)| *name == format!("rounds-{id}.svg")).expect(id);
        assert!(svg.contains("</svg>") && !svg.contains("NaN"), "{id}");
        assert_eq!(svg.contains("published by Author, Nowhere, 1996"), id != "rate-again", "{id}");
    }
    let of = |reference, id: &str| {
        let files = svg::all(&rounds_pair(), REGISTRY, reference).unwrap();
        files.into_iter().find(|(name, _)| name.contains(id)).unwrap().1
    };
    assert!(of(Reference::On, "rate-mean").contains("about 40/s"));
    assert!(!of(Reference::Auto, "rate-mean").contains("about 40/s"));
    assert!(of(Reference::Auto, "left").contains("86.5%") && !of(Reference::Off, "left").contains("86.5%"));
}

#[test]
fn a_run_of_one_pass_or_of_none_still_makes_a_page() {
    let one = page(&[rounds_run("/mnt/a", 1, 20_000.0, 0.0)], Plots::Fixed);
    assert_eq!(one.matches("card pass-figure").count(), 1);
    let mut none = rounds_run("/mnt/a", 1, 20_000.0, 0.0);
    none.phases.clear();
    assert!(!page(&[none], Plots::Fixed).contains("rounds-title"));
}

#[test]
fn of_many_figures_six_are_shown_large_and_all_are_tabled() {
    let mut run = rounds_run("/mnt/a", 14, 10_000.0, 1.0);
    run.metrics = (0..20).map(|at| (format!("figure_{at:02}"), f64::from(at))).collect();
    let html = page(&[run.clone()], Plots::Fixed);
    assert_eq!(html.matches("class=\"tile").count() - html.matches("class=\"tiles").count(), 6);
    assert!(html.contains("All 20 figures"));
    run.metrics.retain(|name, _| name.as_str() < "figure_05");
    let html = page(&[run], Plots::Fixed);
    assert_eq!(html.matches("class=\"tile").count() - html.matches("class=\"tiles").count(), 5);
    assert!(!html.contains("All 5 figures"), "a table that repeats the tiles");
}

#[test]
fn a_hostile_name_of_a_configuration_is_text() {
    let mut runs = rounds_pair();
    runs[0].target = HOSTILE.to_owned();
    runs[0].label = HOSTILE.to_owned();
    runs[1].config[HOSTILE] = HOSTILE.into();
    runs[1].environment.mount.as_mut().unwrap().fs_type = HOSTILE.to_owned();
    for plots in [Plots::Interactive, Plots::Fixed] {
        let html = page(&runs, plots);
        assert!(!html.contains("<img") && !html.contains("49&amp;"), "{plots:?}");
        assert_eq!(html.matches("</script>").count(), html.matches("<script").count(), "{plots:?}");
    }
    for (name, svg) in svg::all(&runs, REGISTRY, Reference::On).unwrap() {
        assert!(!svg.contains("<img"), "{name}");
    }
}

#[test]
fn latencies_that_are_not_the_storage_s_own_are_marked_in_tables_and_plots() {
    let mut record = two_runs().swap_remove(0);
    let latency = record.points[0].latency_us;
    let half = measure::LatencySummary { mean: latency.mean / 2.0, ..latency };
    record.points[0].pacing = Some(measure::Pacing {
        sent_together_share: 0.0,
        latency_without_lateness_us: half,
        unanswered: latency.count / 200,
        ..measure::Pacing::default()
    });
    let registry = REGISTRY.marking_moved(|with, without| with > 1.5 * without);
    let page = |record: &measure::RunRecord, registry| {
        html::render(std::slice::from_ref(record), registry, &Options::default()).unwrap()
    };
    let plots = |record: &measure::RunRecord| -> String {
        let files = svg::all(std::slice::from_ref(record), registry, Reference::Auto).unwrap();
        files.into_iter().map(|(_, svg)| svg).collect()
    };
    // Mean and maximum rest on all requests.
    assert!(page(&record, registry).contains("class=\"n\">&gt;"));
    assert!(plots(&record).contains(": at least, as some"));
    record.points[0].pacing.as_mut().unwrap().unanswered = 0;
    assert!(page(&record, registry).contains("class=\"n\">~"));
    assert!(plots(&record).contains("~: moved by the generator"));
    assert!(!page(&record, REGISTRY).contains("class=\"n\">~"), "this registry has no such rule");
}

#[test]
fn the_chains_of_a_level_are_a_table_with_the_rate_and_latency_of_each_as_a_whole() {
    let mut run = Sweep::new("a", 400.0, 3_000.0).rates(&[500.0, 1_000.0]).record();
    assert!(!page(&[run.clone()], Plots::Fixed).contains("Chains of requests"), "none without chains");
    let mut histogram = measure::LatencyHistogram::new();
    (0..100).for_each(|_| histogram.record(std::time::Duration::from_micros(2_500)));
    let chain = measure::ChainStats {
        begun: 24_010,
        complete: 24_000,
        failed: 7,
        unanswered: 3,
        requests_sent: 60_000,
        requests_not_sent: 13,
        latency_us: histogram.summary(),
        histogram,
    };
    run.points[1].chains.insert("create-write-<commit>".to_owned(), chain);
    let html = page(&[run], Plots::Fixed);
    assert_eq!(html.matches("Chains of requests as a whole").count(), 1, "of the level that has them");
    let row = html.split("create-write-&lt;commit&gt;</th>").nth(1).unwrap().split("</tr>").next().unwrap();
    let cells: Vec<&str> =
        row.split("<td class=\"n\">").skip(1).map(|cell| cell.trim_end_matches("</td>")).collect();
    assert_eq!(cells[..4], ["100.0", "2.50", "2.50", "2.50"], "24,000 in 240 s, each of 2.5 ms: {row}");
    assert_eq!(cells[5..], ["24,010", "24,000", "7", "3", "13"], "{row}");
}
