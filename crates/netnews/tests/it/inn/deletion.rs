//! Our list of expired files in the hands of INN's `fastrm`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::AtomicBool;

use netnews::spool::{Event, Keep, NetnewsConfig, Removal, Storage};
use testkit::InnTools;

use crate::spool_scene::{Scene, config, run_until};

/// A spool just before its expired files were deleted, twice the same, and what was left of it afterwards.
struct Expiry {
    scene: Scene,
    list: PathBuf,
    listed: usize,
    before: BTreeSet<String>,
    left: BTreeSet<String>,
}

#[test]
fn fastrm_deletes_by_our_sorted_list_exactly_what_we_delete() {
    let Some(tools) = testkit::need(InnTools::find()) else { return };
    let expiry = Expiry::by(Removal::Fastrm);
    for flags in [&[][..], &["-s"], &["-u2"], &["-c0"], &["-c1", "-s1"]] {
        let copy = expiry.copy();
        assert_eq!(expiry.fastrm(&tools, flags, &copy).lines().count(), 0);
        assert_eq!(names_below(&copy), expiry.left, "fastrm {flags:?}");
        fs::remove_dir_all(copy).unwrap();
    }
}

#[test]
fn fastrm_without_deleting_names_every_line_of_our_list_once() {
    let Some(tools) = testkit::need(InnTools::find()) else { return };
    let expiry = Expiry::by(Removal::Fastrm);
    let copy = expiry.copy();
    let said = expiry.fastrm(&tools, &["-d", "-c0"], &copy);
    // Where it would be, a slash between blanks, and the name it would unlink there.
    let base = format!("{}/", copy.display());
    let named: BTreeSet<String> = said
        .lines()
        .filter_map(|line| Some(line.replace(" / ", "/").strip_prefix(&base)?.to_owned()))
        .collect();
    assert_eq!(said.lines().count(), expiry.listed);
    assert_eq!(named, expiry.before.difference(&expiry.left).cloned().collect());
    assert_eq!(names_below(&copy), expiry.before, "-d deletes nothing");
}

#[test]
fn the_sorted_list_has_each_directory_in_one_piece_and_the_one_by_history_leads_to_the_same_spool() {
    let Some(tools) = testkit::need(InnTools::find()) else { return };
    let (sorted, unsorted) = (Expiry::by(Removal::Fastrm), Expiry::by(Removal::Dumbrm));
    assert_eq!(sorted.left, unsorted.left);
    let lines = |expiry: &Expiry| -> Vec<String> {
        fs::read_to_string(&expiry.list).unwrap().lines().map(str::to_owned).collect()
    };
    let (in_order, by_history) = (lines(&sorted), lines(&unsorted));
    assert_ne!(in_order, by_history);
    assert_eq!(in_order.iter().collect::<BTreeSet<_>>(), by_history.iter().collect::<BTreeSet<_>>());
    // Each directory's files stand together.
    let directory = |line: &String| line.rsplit_once('/').unwrap().0.to_owned();
    let stretches = in_order.chunk_by(|a, b| directory(a) == directory(b)).count();
    assert_eq!(stretches, in_order.iter().map(directory).collect::<BTreeSet<_>>().len());
    let copy = unsorted.copy();
    unsorted.fastrm(&tools, &[], &copy);
    assert_eq!(names_below(&copy), unsorted.left);
}

impl Expiry {
    /// Two passes, the second of which expires the first.
    fn by(removal: Removal) -> Self {
        let scene = super::open_scene();
        let feed = super::synthetic(3_000, 5, &scene.path("feed"));
        let storage = Storage::of(scene.fs("target"));
        let spool = scene.path("target/crumb-netnews-s");
        let (articles, before_path, list) =
            (spool.join("articles"), scene.path("before"), scene.path("list"));
        let config = NetnewsConfig { removal, ..config(2, 1, Keep::Keep) };
        let outcome = run_until(&config, &storage, &feed, &AtomicBool::new(false), &mut |event| {
            if matches!(&event, Event::PhaseDone { phase, .. } if phase.name == "expire-scan") {
                linked(&articles, &before_path);
                fs::copy(spool.join("lib/expire.list"), &list).unwrap();
            }
        });
        assert!(outcome.part.is_complete(), "{:?}", outcome.error);
        assert_eq!(outcome.part.counts.expire.names_missing, 0);
        let listed = fs::read_to_string(&list).unwrap().lines().count();
        let (before, left) = (names_below(&before_path), names_below(&articles));
        assert!(listed > 1_000 && left.len() > 1_000 && before.len() == left.len() + listed);
        Self { scene, list, listed, before, left }
    }

    fn copy(&self) -> PathBuf {
        let copy = self.scene.path("copy");
        linked(&self.scene.path("before"), &copy);
        copy
    }

    /// What it said on standard output.
    fn fastrm(&self, tools: &InnTools, flags: &[&str], base: &Path) -> String {
        let conf = tools.settings_over(&self.scene.path("inn"), base, &[]).unwrap();
        let mut command = tools.command("fastrm", &conf);
        command.args(flags).arg(base).stdin(File::open(&self.list).unwrap()).stderr(Stdio::piped());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.is_empty(), "fastrm {flags:?}: {}: {said}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The same tree with the same files.
fn linked(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            linked(&entry.path(), &target);
        } else {
            fs::hard_link(entry.path(), target).unwrap();
        }
    }
}

fn names_below(directory: &Path) -> BTreeSet<String> {
    crate::spool_scene::files_below(directory).into_keys().collect()
}
