//! The page in headless Chromium, driven by Playwright: what a reader sees, hovers, types and prints.
//!
//! Needs Chromium, node and npm's registry, or what npm fetched in an earlier run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

use crate::made_up::REGISTRY;
use crate::sample::{Sweep, dirscale_run, postmark_series, rounds_run, search_run, tally_run, two_runs};
use report::html::{Options, Plots, render};

/// Directory with Playwright, and the browser; or what is missing.
static TOOLS: OnceLock<Result<(PathBuf, PathBuf), String>> = OnceLock::new();

fn tools() -> Result<(PathBuf, PathBuf), String> {
    let find = || {
        let browser = ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(in_path);
        let browser = browser.ok_or("chromium is not installed (apt-get install chromium)")?;
        let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("web");
        // Outside the source tree, and kept from one run of the tests to the next.
        let npm = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-web");
        fs::create_dir_all(&npm).unwrap();
        let lock = fs::read(web.join("package-lock.json")).unwrap();
        let done = npm.join("done-for");
        if fs::read(&done).is_ok_and(|before| before == lock) {
            return Ok((npm, browser));
        }
        for name in ["package.json", "package-lock.json"] {
            fs::copy(web.join(name), npm.join(name)).unwrap();
        }
        let run = Command::new("npm")
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1"])
            .current_dir(&npm)
            .output()
            .map_err(|error| format!("npm does not start (apt-get install npm): {error}"))?;
        if !run.status.success() {
            return Err(format!("npm ci failed: {}", String::from_utf8_lossy(&run.stderr)));
        }
        fs::write(done, lock).unwrap();
        Ok((npm, browser))
    };
    TOOLS.get_or_init(find).clone()
}

fn in_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|directory| directory.join(name)).find(|path| path.is_file())
}

fn drive(kind: &str, html: &str) {
    let Some((npm, browser)) = testkit::need(tools()) else { return };
    let scratch = tempfile::tempdir().unwrap();
    let page = scratch.path().join("report page #1.html");
    fs::write(&page, html).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/web/drive.cjs");
    let run = Command::new("node")
        .arg(script)
        .args([&npm, &browser, &scratch.path().join("profile")])
        .arg(kind)
        .arg(&page)
        .output()
        .expect("node is there where npm is");
    let told = String::from_utf8_lossy(&run.stdout);
    let passed = run.status.success() && told.ends_with("all checks passed\n");
    assert!(passed, "{kind}:\n{told}{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn a_reader_can_hover_choose_switch_and_print_the_interactive_page() {
    drive("interactive", &render(&two_runs(), REGISTRY, &Options::default()).unwrap());
}

#[test]
fn a_search_begins_on_logarithmic_axes_and_names_its_knee_and_the_levels_of_the_cumulative_plot() {
    drive("search", &render(&[search_run()], REGISTRY, &Options::default()).unwrap());
}

#[test]
fn the_fixed_page_works_without_uplot() {
    let options = Options { plots: Plots::Fixed, ..Options::default() };
    drive("fixed", &render(&two_runs(), REGISTRY, &options).unwrap());
}

#[test]
fn a_hostile_name_runs_nothing_in_a_browser() {
    let label = format!(r#"</script><img src=x onerror="window.pwned=1">{}"#, "x".repeat(200));
    let mut record = Sweep::new(&label, 400.0, 3_000.0).outstanding(&[4]).record();
    record.target.clone_from(&label);
    record.command.push(label.clone());
    drive("hostile", &render(&[record], REGISTRY, &Options::default()).unwrap());
}

#[test]
fn a_comparison_of_a_series_is_drawn_told_and_printed_without_load_points() {
    drive("comparison", &render(&postmark_series(1.09), REGISTRY, &Options::default()).unwrap());
}

#[test]
fn curves_of_two_runs_are_drawn_on_logarithmic_axes_and_tell_their_points() {
    let runs = [dirscale_run("ext4 without dir_index", false), dirscale_run("XFS", true)];
    drive("curves", &render(&runs, REGISTRY, &Options::default()).unwrap());
}

#[test]
fn published_values_are_switched_figure_by_figure_and_all_at_once_and_fit_on_a_phone() {
    let runs = [rounds_run("/mnt/a", 14, 20_000.0, 1.0), rounds_run("/mnt/b", 14, 15_000.0, 2.0)];
    drive("passes", &render(&runs, REGISTRY, &Options::default()).unwrap());
}

#[test]
fn tables_bars_ranges_and_lines_of_a_benchmark_tell_their_values_and_fit_on_a_phone() {
    drive("views", &render(&[tally_run("the server")], REGISTRY, &Options::default()).unwrap());
}
