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
fn between_sizes_a_cost_lies_on_a_straight_line_of_log_log_paper_and_beyond_them_at_the_ends() {
    let curve = curve(&[(10_000.0, 1000.0), (100.0, 10.0), (-5.0, 1.0), (1000.0, f64::NAN)]);
    assert_eq!(curve.sizes(), 2);
    let at = |files| curve.at(files).unwrap().us;
    assert!((at(1000.0) - 100.0).abs() < 1e-6, "{}", at(1000.0));
    assert_eq!((at(1.0), at(1e9)), (10.0, 1000.0));
    assert_eq!(CostCurve::default().at(1.0), None);
}

#[test]
fn where_costs_grow_with_the_size_the_large_directories_gain_and_the_small_ones_lose() {
    let (linear, constant) =
        (curve(&[(100.0, 1.0), (100_000.0, 1000.0)]), curve(&[(100.0, 30.0), (100_000.0, 30.0)]));
    let directories =
        [counted("small", 500, false), counted("large", 50_000, false), counted("old", 500, true)];
    let worth = weigh(&directories, 100_000, 1e6, &linear, &constant);
    let told: Vec<_> = worth.iter().map(|worth| (worth.path.to_str().unwrap(), worth.advice)).collect();
    assert_eq!(told, [("large", Advice::Manage), ("old", Advice::Unmanage), ("small", Advice::LeaveFlat)]);
    // Half of a million operations, 500 us less 30 us each.
    assert!((worth[0].gain_s - 235.0).abs() < 1.0, "{:?}", worth[0]);
    assert!(worth[0].gain_s_range.0 < worth[0].gain_s && worth[0].gain_s < worth[0].gain_s_range.1);
}

#[test]
fn where_the_intervals_meet_no_gain_is_shown() {
    let (flat, managed) =
        (curve(&[(100.0, 10.0), (10_000.0, 10.0)]), curve(&[(100.0, 9.5), (10_000.0, 9.5)]));
    let worth = weigh(&[counted("a", 5000, false)], 5000, 1e6, &flat, &managed);
    assert_eq!(worth[0].advice, Advice::NotShown);
    assert!(worth[0].gain_s > 0.0);
}

#[test]
fn a_directory_larger_than_any_measured_says_so_and_counts_at_the_largest_size() {
    let (flat, managed) = (curve(&[(100.0, 10.0), (1000.0, 100.0)]), curve(&[(100.0, 5.0), (1000.0, 5.0)]));
    let worth = weigh(&[counted("a", 1_000_000, false)], 1_000_000, 1e6, &flat, &managed);
    assert!(worth[0].beyond_measured);
    assert!((worth[0].gain_s - 95.0).abs() < 1e-6, "{:?}", worth[0]);
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
