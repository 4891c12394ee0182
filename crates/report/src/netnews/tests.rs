//! Records in, figures' values out.

use super::*;

#[path = "../../tests/it/sample.rs"]
mod sample;

use sample::{netnews_run, two_runs};

fn figures(runs: &[RunRecord], reference: Reference) -> Vec<PassFigure> {
    section(runs, reference).map_or(vec![], |section| section.figures)
}

fn figure(runs: &[RunRecord], id: &str) -> PassFigure {
    let found = figures(runs, Reference::Auto).into_iter().find(|figure| figure.frame.id == id);
    found.unwrap_or_else(|| panic!("no figure {id}"))
}

fn ids(figures: &[PassFigure]) -> Vec<&'static str> {
    figures.iter().map(|figure| figure.frame.id).collect()
}

/// As many runs as rates, of one configuration.
fn repeats(rates: &[f64]) -> Vec<RunRecord> {
    rates.iter().map(|per_sec| netnews_run("/mnt/a", 14, *per_sec, 1.0)).collect()
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
    let mut run = netnews_run("/mnt/a", 2, 1_000.0, 0.0);
    let mut unbatch = run.phases.iter_mut().filter(|phase| phase.name == "unbatch");
    let (first, second) = (unbatch.next().unwrap(), unbatch.next().unwrap());
    (first.items, first.wall_s, second.items, second.wall_s) = (1_000, 1.0, 1_000, 3.0);
    assert_eq!(figure(&[run], "unbatch-mean").lines[0].points[0].y, 500.0);
}

#[test]
fn ageing_is_each_pass_as_percent_of_the_first_and_told_with_its_trend() {
    let of = figure(&repeats(&[10_000.0]), "unbatch-ageing");
    let shares: Vec<f64> = of.lines[0].points.iter().map(|point| point.y.round()).collect();
    assert_eq!((shares[0], shares[6], shares[13]), (100.0, 94.0, 87.0));
    assert!(of.frame.told[0].contains("pass 14 stores at 87.0% of pass 1’s rate"), "{:?}", of.frame.told);
    assert!(
        of.frame.told[0]
            .contains("trend −1.00% a pass; pass 8, after the first deletion, −1.1% against pass 7"),
        "{:?}",
        of.frame.told
    );
}

#[test]
fn times_of_deleting_and_batching_stand_at_their_passes_in_a_unit_of_their_size() {
    let runs = repeats(&[10_000.0]);
    let (expire, batch) = (figure(&runs, "expire-passes"), figure(&runs, "batch-passes"));
    assert_eq!(expire.passes(), (7..=14).collect::<Vec<u32>>(), "nothing is deleted before pass 7");
    assert_eq!(batch.passes(), [3, 6, 9, 12]);
    assert_eq!((expire.frame.unit.name, expire.lines[0].points[0].y), ("s", 0.75));
    assert!(
        expire.frame.told[0].ends_with("mean 0.750 s for 30,000 files, which is 40,000/s"),
        "{:?}",
        expire.frame.told
    );
    let with = &figure(&repeats(&[100_000.0]), "expire-passes").drawings;
    assert_eq!([&with[0].axis, &with[1].axis], ["time to delete, ms", "time to delete, s, logarithmic"]);
    let slow = figure(&[netnews_run("/mnt/a", 14, 40.0, 1.0)], "expire-passes");
    assert_eq!(slow.frame.unit.name, "min");
    assert_eq!(slow.drawings[0].lines[0].dots[0].text, "3.12 min");
}

#[test]
fn history_elsewhere_is_held_against_history_here_and_nothing_else() {
    let here = netnews_run("/mnt/a", 10, 10_000.0, 0.0);
    let mut there = netnews_run("/mnt/a", 10, 5_000.0, 2.0);
    there.config["history"] = "nfs://filer/vol".into();
    there.label = "with history on the filer".to_owned();
    let other = netnews_run("/mnt/b", 10, 7_000.0, 0.0);
    let runs = [there, other, here];
    let rates = figure(&runs, "history-passes");
    assert_eq!(rates.lines.len(), 2, "/mnt/b has no partner");
    let cost = figure(&runs, "history-cost");
    assert_eq!(cost.lines.len(), 1);
    assert!(cost.lines[0].name.contains("history on nfs://filer/vol against"), "{}", cost.lines[0].name);
    let values: Vec<f64> = cost.lines[0].points.iter().map(|point| point.y.round()).collect();
    assert_eq!((values[0], values[9]), (200.0, 244.0));
    let places: Vec<Option<bool>> =
        cost.drawings[1].references.iter().map(|of| of.across.map(|at| at < 50.0)).collect();
    assert_eq!(places, [Some(false), Some(true)], "250% at pass 10, above 122% at pass 1");
    assert!(!ids(&figures(&runs[..2], Reference::Auto)).contains(&"history-cost"));
}

#[test]
fn configurations_are_named_by_what_differs() {
    let name = |runs: &[RunRecord]| -> Vec<String> {
        let of = figure(runs, "unbatch-mean");
        of.lines.iter().map(|line| line.name.clone()).collect()
    };
    let plain = || netnews_run("/mnt/a", 14, 1_000.0, 0.0);
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
    let mut read = netnews_run("/mnt/b", 14, 1_000.0, 0.0);
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
fn published_values_are_drawn_at_first_only_where_one_linear_axis_holds_both() {
    let first = |per_sec: f64, reference: Reference| -> Vec<&'static str> {
        let all = figures(&[netnews_run("/mnt/a", 14, per_sec, 1.0)], reference);
        let first = all.into_iter().filter(|figure| figure.published_first);
        first.map(|figure| figure.frame.id).collect()
    };
    assert_eq!(first(20_000.0, Reference::Auto), ["unbatch-ageing"]);
    assert_eq!(
        first(30.0, Reference::Auto),
        ["unbatch-mean", "unbatch-passes", "unbatch-ageing", "expire-passes", "batch-passes"]
    );
    assert_eq!(first(20_000.0, Reference::On).len(), 5);
    let without = section(&[netnews_run("/mnt/a", 14, 30.0, 1.0)], Reference::Off).unwrap();
    assert!(without.published.is_empty() && without.source.is_none());
    assert!(without.figures.iter().all(|figure| figure.drawings.len() == 1 && !figure.published_first));
}

#[test]
fn each_published_value_is_there_once_with_its_place_in_the_paper_and_drawn_in_a_figure_that_exists() {
    let known =
        ["unbatch-mean", "unbatch-passes", "unbatch-ageing", "expire-passes", "batch-passes", "history-cost"];
    for (at, value) in published::ALL.iter().enumerate() {
        assert!(value.source.contains("figure") || value.source.contains("section"), "{value:?}");
        assert!(value.drawn.iter().all(|id| known.contains(id)), "{value:?}");
        let same =
            |other: &&Published| (other.name, other.of, other.pass) == (value.name, value.of, value.pass);
        assert_eq!(
            published::ALL.iter().position(|other| same(&other)),
            Some(at),
            "{value:?} is there twice"
        );
    }
    let of = figure(&repeats(&[10_000.0]), "unbatch-mean");
    let drawn: Vec<(&str, f64)> = of.published.iter().map(|value| (value.name, value.value)).collect();
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
    assert!(of.drawings[1].log && !of.drawings[0].log && of.drawings[0].references.is_empty());
}

#[test]
fn a_pass_that_the_runs_do_not_reach_is_a_line_all_across() {
    let of = figure(&[netnews_run("/mnt/a", 5, 10_000.0, 1.0)], "unbatch-ageing");
    assert!(of.drawings[1].references.iter().all(|reference| reference.across.is_none()));
    let of = figure(&[netnews_run("/mnt/a", 14, 10_000.0, 1.0)], "unbatch-ageing");
    assert!(of.drawings[1].references.iter().all(|reference| reference.across.is_some()));
}

#[test]
fn one_pass_is_a_bar_and_no_line_and_nothing_measured_is_no_figure() {
    assert_eq!(ids(&figures(&[netnews_run("/mnt/a", 1, 10_000.0, 0.0)], Reference::Auto)), ["unbatch-mean"]);
    let mut empty = netnews_run("/mnt/a", 14, 10_000.0, 0.0);
    empty.phases.clear();
    assert!(section(&[empty], Reference::Auto).is_none());
    assert!(section(&two_runs(), Reference::Auto).is_none(), "fstress has no passes");
}

#[test]
fn phases_of_nonsense_are_left_out() {
    let mut odd = netnews_run("/mnt/a", 14, 10_000.0, 0.0);
    let values = [f64::NAN, -1.0, 0.0, f64::INFINITY, 1e-300, 1e300];
    for (phase, wall_s) in odd.phases.iter_mut().zip(values.into_iter().cycle()) {
        phase.wall_s = wall_s;
    }
    odd.phases[0].pass = u32::MAX;
    for figure in figures(&[odd], Reference::On) {
        for point in figure.lines.iter().flat_map(|line| &line.points) {
            assert!(point.low > 0.0 && point.high.is_finite(), "{}: {point:?}", figure.frame.id);
        }
        let places = figure.drawings.iter().flat_map(|drawing| &drawing.lines).flat_map(|line| &line.dots);
        assert!(
            places.flat_map(|dot| [dot.at, dot.across]).all(|at| (0.0..=100.0).contains(&at)),
            "{}",
            figure.frame.id
        );
    }
}

#[test]
fn curves_over_passes_are_not_drawn_a_second_time() {
    let runs = repeats(&[10_000.0]);
    assert!(!runs[0].curves.is_empty() && crate::lines::plots(&runs).is_empty());
}

#[test]
fn the_spools_own_name_is_no_difference_between_sides() {
    let side = |name: &str, target: &str, per_sec: f64| crate::compare::Side {
        name: name.to_owned(),
        label: target.to_owned(),
        runs: vec![netnews_run(target, 14, per_sec, 1.0)],
    };
    let sides = [side("A", "/mnt/a", 10_000.0), side("B", "/mnt/b", 11_000.0)];
    let comparison = crate::compare::compare(&sides, &[]).unwrap();
    let told: Vec<&str> = comparison.cautions.iter().map(|caution| caution.text.as_str()).collect();
    assert!(!told.iter().any(|text| text.contains("spool")), "{told:?}");
}
