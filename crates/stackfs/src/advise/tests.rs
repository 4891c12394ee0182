use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn curve(points: &[(f64, f64)]) -> CostCurve {
    CostCurve::new(points.iter().map(|(files, us)| (*files, Cost { us: *us, low: us * 0.9, high: us * 1.1 })))
}

fn counted(path: &str, files: u64, managed: bool) -> Counted {
    Counted { path: path.into(), files, managed }
}

#[test]
fn between_sizes_a_cost_lies_on_a_straight_line_of_log_log_paper_and_beyond_them_its_interval_widens() {
    let curve = curve(&[(10_000.0, 1000.0), (100.0, 10.0), (-5.0, 1.0), (1000.0, f64::NAN)]);
    assert_eq!(curve.sizes(), 2);
    let at = |files| curve.at(files).unwrap().us;
    assert!((at(1000.0) - 100.0).abs() < 1e-6, "{}", at(1000.0));
    assert_eq!(at(1.0), 10.0);
    let beyond = curve.at(1e6).unwrap();
    assert!((beyond.us - 1e5).abs() < 1e-3 && beyond.us <= beyond.high, "{beyond:?}");
    assert!((beyond.low - 900.0).abs() < 1e-6 && (beyond.high - 1.1e5).abs() < 1e-3, "{beyond:?}");
    assert_eq!(CostCurve::default().at(1.0), None);
}

#[test]
fn where_costs_grow_with_the_size_the_large_directories_gain_and_the_small_ones_lose() {
    let (linear, constant) =
        (curve(&[(100.0, 1.0), (100_000.0, 1000.0)]), curve(&[(100.0, 30.0), (100_000.0, 30.0)]));
    let directories =
        [counted("small", 500, false), counted("large", 50_000, false), counted("old", 500, true)];
    let worth = weigh(&directories, 100_000, 1e6, &costs(&linear, &constant));
    let advised: Vec<_> = worth.iter().map(|worth| (worth.path.to_str().unwrap(), worth.advice)).collect();
    assert_eq!(advised, [("large", Advice::Manage), ("old", Advice::Unmanage), ("small", Advice::LeaveFlat)]);
    // Half of a million operations, 500 us less 30 us each.
    assert!((worth[0].gain_s - 235.0).abs() < 1.0, "{:?}", worth[0]);
    assert!(worth[0].gain_s_range.0 < worth[0].gain_s && worth[0].gain_s < worth[0].gain_s_range.1);
}

#[test]
fn where_the_intervals_meet_no_gain_is_shown() {
    let (flat, managed) =
        (curve(&[(100.0, 10.0), (10_000.0, 10.0)]), curve(&[(100.0, 9.5), (10_000.0, 9.5)]));
    let worth = weigh(&[counted("a", 5000, false)], 5000, 1e6, &costs(&flat, &managed));
    assert_eq!(worth[0].advice, Advice::NotShown);
    assert!(worth[0].gain_s > 0.0);
}

#[test]
fn errors_of_measurements_make_up_for_one_another_and_those_of_extrapolation_add_up() {
    let wide = |us: f64, off: f64| {
        CostCurve::new([512.0, 1e4].map(|files| (files, Cost { us, low: us - off, high: us + off })))
    };
    let mount = MountCost { each: Cost { us: 20.0, low: 8.0, high: 32.0 }, per_file: exact(0.0) };
    let costs = |managed| Costs { flat: wide(200.0, 30.0), managed, mount: Some(mount) };
    let range_us = |costs: &Costs| {
        let (low, high) = weigh(&[counted("a", 5000, false)], 5000, 1e6, costs)[0].gain_s_range;
        (low.round(), high.round())
    };
    // The root of 900 + 1600 + 144 is 51.
    assert_eq!(range_us(&costs(wide(100.0, 40.0))), (29.0, 131.0));
    // Of a curve that ends before, all it may be off by is added to 32.
    let short = CostCurve::new([(512.0, Cost { us: 100.0, low: 60.0, high: 101.0 })]);
    assert_eq!(range_us(&costs(short)).1, (80.0f64 + 32.0 + 40.0).round());
}

/// Symptom: measured up to 1,020 files, a directory of 60,000 on a linear file system was to be left flat, for 28 minutes a
/// day; managing it saves 45. Cause: beyond the largest size its cost was taken, with its interval. Fix: extrapolated, and
/// the interval holds all that is possible.
#[test]
fn a_directory_far_larger_than_any_measured_is_not_judged_by_the_largest_size() {
    // 1 us for each 10 files, against what is constant: it pays from 2,000 files on.
    let (flat, managed) =
        (curve(&[(256.0, 60.0), (1020.0, 102.0)]), curve(&[(256.0, 200.0), (1020.0, 205.0)]));
    let worth = weigh(&[counted("a", 60_000, false)], 60_000, 1e6, &costs(&flat, &managed));
    assert!(worth[0].beyond_measured);
    assert_eq!(worth[0].advice, Advice::NotShown, "{:?}", worth[0]);
    let (low, high) = worth[0].gain_s_range;
    assert!(low < 0.0 && high > 5700.0, "the truth, 5,800 s, is within {low} to {high}");
    // The managed directory's cost was growing too, and would overtake the other's.
    let (flat, managed) = (curve(&[(512.0, 50.0), (4096.0, 100.0)]), curve(&[(512.0, 30.0), (4096.0, 75.0)]));
    let worth = weigh(&[counted("a", 500_000, false)], 500_000, 1e6, &costs(&flat, &managed));
    let (low, high) = worth[0].gain_s_range;
    assert!(low <= worth[0].gain_s && worth[0].gain_s <= high, "{:?}", worth[0]);
    // A gain that was growing is at least what it was at the largest size measured.
    let (flat, managed) = (curve(&[(100.0, 10.0), (1000.0, 100.0)]), curve(&[(100.0, 5.0), (1000.0, 5.0)]));
    let worth = weigh(&[counted("a", 5000, false)], 5000, 1e6, &costs(&flat, &managed));
    assert_eq!(worth[0].advice, Advice::Manage, "{:?}", worth[0]);
    assert!((worth[0].gain_s - 495.0).abs() < 1e-6, "{:?}", worth[0]);
    assert!((worth[0].gain_s_range.0 - (90.0 - 5.5)).abs() < 1e-6, "{:?}", worth[0]);
}

/// Symptom: measured up to 30,000 files, nothing was certain of a linear directory of 60,000. Cause: of a larger directory it
/// was only certain that it costs no less than the largest one measured. Fix: where three sizes show that each file adds as
/// much as those before, further files are taken to add most of that.
#[test]
fn a_cost_that_grows_with_each_file_grows_on_and_one_that_flattens_out_need_not() {
    let of = |cost: fn(f64) -> f64| curve(&[4096.0, 15_000.0, 30_000.0].map(|files| (files, cost(files))));
    let linear = of(|files| 10.0 + 0.008 * files);
    let at = |files: f64| linear.at(files).unwrap();
    let (cost, truth) = (at(60_000.0), 490.0);
    assert!(cost.low > 1.3 * at(30_000.0).low, "it grows on for certain: {cost:?}");
    assert!(cost.low < truth && truth < cost.high && (cost.us - truth).abs() < 1e-6, "{cost:?}");
    assert!(at(600_000.0).low < 4810.0 && 4810.0 < at(600_000.0).high, "{:?}", at(600_000.0));
    // A linear directory that outgrows the processor's caches costs more than in proportion.
    let faster = of(|files| files.powf(1.2) / 1000.0);
    let (cost, truth) = (faster.at(60_000.0).unwrap(), 60_000f64.powf(1.2) / 1000.0);
    assert!(cost.low < truth && truth < cost.high, "{truth} {cost:?}");
    // Trees grow with the logarithm, and what a thousand operations find in caches with the root or so.
    for flattening in
        [of(|files| 100.0 * files.ln()), of(|files| files.sqrt()), of(|_| 7.0), of(|files| 1e6 / files)]
    {
        let (last, cost) = (flattening.at(30_000.0).unwrap(), flattening.at(60_000.0).unwrap());
        assert!((cost.low - last.low).abs() < 1e-6, "{flattening:?}");
    }
}

#[test]
fn what_the_mount_costs_is_taken_off_in_every_directory_and_in_the_rest_of_the_tree() {
    let costs = Costs {
        mount: Some(MountCost { each: exact(30.0), per_file: exact(0.001) }),
        ..costs(&curve(&[(100.0, 10.0), (10_000.0, 1000.0)]), &curve(&[(100.0, 10.0), (10_000.0, 10.0)]))
    };
    // A million operations, half of them in the large directory, a quarter in small ones that are not listed.
    let directories = [counted("large", 10_000, false), counted("plain", 5000, false)];
    let mut worth = weigh(&directories, 20_000, 1e6, &costs);
    assert!((worth[0].gain_s - 0.5 * (1000.0 - 10.0 - 40.0)).abs() < 1e-6, "{:?}", worth[0]);
    assert!((worth[0].mount_s - 20.0).abs() < 1e-6, "{:?}", worth[0]);
    worth[1].advice = Advice::LeaveFlat;
    let total = total(&worth, 20_000, 1e6, &costs);
    assert!((total.gain_s - 475.0).abs() < 1e-6, "{total:?}");
    assert!((total.elsewhere_s - (0.25 * 35.0 + 0.25 * 30.0)).abs() < 1e-6, "{total:?}");
    // A gain that is less than that is none.
    let small = weigh(&[counted("a", 300, false)], 300, 1e6, &costs);
    assert_eq!(small[0].advice, Advice::LeaveFlat, "{:?}", small[0]);
}

fn exact(us: f64) -> Cost {
    Cost { us, low: us, high: us }
}

fn costs(flat: &CostCurve, managed: &CostCurve) -> Costs {
    Costs { flat: flat.clone(), managed: managed.clone(), mount: None }
}

#[test]
fn a_scan_counts_users_entries_through_the_hidden_level_and_adds_small_directories_up() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path();
    fs::create_dir_all(tree.join("flat/345")).unwrap();
    fs::create_dir_all(tree.join("managed/345")).unwrap();
    fs::create_dir_all(tree.join("managed/aaa/sub")).unwrap();
    for number in 0..5 {
        fs::write(tree.join(format!("flat/{number}")), "").unwrap();
        fs::write(tree.join(format!("managed/345/{}", 3450 + number)), "").unwrap();
    }
    fs::write(tree.join("flat/345/1"), "").unwrap();
    fs::write(tree.join("managed/aaa/sub/1"), "").unwrap();
    fs::set_permissions(tree.join("managed"), fs::Permissions::from_mode(0o4755)).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let scan = scan(tree, 5, &mut ScanWatch { progress: &mut |_, _| {}, stop: &stop }).unwrap();
    assert_eq!((scan.directories, scan.files, scan.largest, scan.unreadable), (5, 12, 5, 0));
    let large: Vec<_> = scan
        .large
        .iter()
        .map(|one| (one.path.file_name().unwrap().to_str().unwrap(), one.files, one.managed))
        .collect();
    assert_eq!(large, [("flat", 5, false), ("managed", 5, true)]);
}
