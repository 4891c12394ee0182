//! The house itself: who imports whom, and what every file must have or must not.

#[path = "it/binary.rs"]
mod binary;
#[path = "house/errors.rs"]
mod errors;
#[path = "house/features.rs"]
mod features;
#[path = "house/flags.rs"]
mod flags;
#[path = "house/functions.rs"]
mod functions;
#[path = "house/help.rs"]
mod help;
#[path = "house/links.rs"]
mod links;
#[path = "house/messages.rs"]
mod messages;
#[path = "house/metrics.rs"]
mod metrics;
#[path = "house/results.rs"]
mod results;
#[path = "house/waits.rs"]
mod waits;
#[path = "house/words.rs"]
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// The import table of the design: a crate, and what it may import of ours. What a crate may import it may also use
/// through another one. A crate that is not here has no place yet: give it one, in ARCHITECTURE.md too.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("measure", &[]),
    ("disk", &[]),
    ("files", &["measure"]),
    ("harness", &["files", "measure", "sys"]),
    ("nfs", &["files", "sys"]),
    ("fstress", &["files", "harness", "measure"]),
    ("postmark", &["files", "harness", "measure"]),
    ("netnews", &["files", "harness", "measure"]),
    ("dirscale", &["files", "harness", "measure"]),
    ("fuse", &["sys"]),
    ("overhead", &["files", "fuse", "harness", "measure"]),
    ("dirlimit", &["measure"]),
    ("webload", &["harness", "measure"]),
    ("doctor", &["dirlimit", "files", "measure"]),
    ("stackfs", &["files", "fuse", "measure", "sys"]),
    ("packstore", &["disk"]),
    ("packfs", &["disk", "packstore", "files"]),
    ("packtree", &["disk", "files"]),
    ("sys", &[]),
    ("http-cache-rules", &[]),
    ("webcache", &["http-cache-rules", "packstore", "sys", "measure"]),
    ("report", &["measure"]),
    ("testkit", &["disk", "files", "fuse", "measure"]),
];
/// They join the others and may import all of them.
const BINARIES: &[&str] = &["crumb", "crumb-mpi"];
/// For tests only.
const DEV_ONLY: &str = "testkit";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// Crates of the workspace with what of ours they import, apart for tests and for use.
fn imports() -> BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)> {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .expect("cargo metadata");
    let ours: BTreeSet<String> = metadata.packages.iter().map(|package| package.name.to_string()).collect();
    let of = |package: &cargo_metadata::Package, dev: bool| {
        let mine = package.dependencies.iter().filter(|dependency| ours.contains(&dependency.name));
        mine.filter(|dependency| (dependency.kind == DependencyKind::Development) == dev)
            .map(|dependency| dependency.name.clone())
            .collect()
    };
    metadata.packages.iter().map(|p| (p.name.to_string(), (of(p, false), of(p, true)))).collect()
}

#[test]
fn no_crate_imports_upwards_and_no_benchmark_a_remedy() {
    let table: BTreeMap<&str, &[&str]> = MAY_IMPORT.iter().copied().collect();
    for (name, (uses, tests_with)) in imports() {
        if BINARIES.contains(&name.as_str()) {
            assert!(!uses.contains(DEV_ONLY), "{name} uses {DEV_ONLY} outside its tests");
            continue;
        }
        let allowed = table.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not in the import table"));
        for import in uses {
            assert!(allowed.contains(&import.as_str()), "{name} imports {import}; it may import {allowed:?}");
        }
        for import in tests_with {
            let fine = import == DEV_ONLY || allowed.contains(&import.as_str());
            assert!(fine, "the tests of {name} import {import}; they may import {allowed:?} and {DEV_ONLY}");
        }
    }
}

/// Files of the project: what git would keep, without asking git.
fn project_files() -> Vec<PathBuf> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).expect("a readable directory").flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() {
                if !["target", ".git", "node_modules", "demo", "corpus", "artifacts"].contains(&name.as_str())
                {
                    walk(&path, found);
                }
            } else {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), &mut found);
    assert!(found.len() > 50, "the walk of the project found only {} files", found.len());
    found
}

#[test]
fn every_crate_opens_with_a_header_and_none_is_empty() {
    for name in imports().into_keys() {
        let src = root().join("crates").join(&name).join("src");
        let entry = [src.join("lib.rs"), src.join("main.rs")].into_iter().find(|path| path.exists());
        let text =
            fs::read_to_string(entry.unwrap_or_else(|| panic!("{name} has no lib.rs"))).expect("readable");
        let header: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        assert!(header.len() >= 3, "{name} does not open with a header of what it is and is not");
        assert!(text.lines().count() > header.len() + 3, "{name} is empty");
        if !BINARIES.contains(&name.as_str()) {
            assert!(
                header.iter().any(|line| line.contains("Not here:")),
                "the header of {name} does not say what is not here"
            );
        }
    }
}

#[test]
fn no_file_holds_a_path_of_one_machine() {
    // Spelt in two parts, so that this file does not find itself.
    let machine_paths = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    for path in project_files() {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            let found = machine_paths.iter().find(|machine_path| line.contains(*machine_path));
            assert!(found.is_none(), "{}:{}: {line}", path.display(), number + 1);
        }
    }
}

/// Also names that a benchmark has for its workloads.
#[test]
fn report_knows_no_benchmark_by_name() {
    let names = crumb::declarations::NAMES.iter().copied().chain(["polymix"]);
    let names: Vec<&str> = names.collect();
    let places = ["crates/report/src", "crates/report/web"].map(|place| root().join(place));
    let vendored = root().join("crates/report/web/vendor");
    let ours =
        |path: &Path| places.iter().any(|place| path.starts_with(place)) && !path.starts_with(&vendored);
    let mut looked_at = 0;
    for path in project_files().iter().filter(|path| ours(path)) {
        let Ok(text) = fs::read_to_string(path) else { continue };
        looked_at += 1;
        for (number, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            let found = names.iter().find(|name| lower.contains(*name));
            assert!(
                found.is_none(),
                "{}:{}: {found:?}: its crate says that: {line}",
                path.display(),
                number + 1
            );
        }
    }
    assert!(looked_at > 20, "only {looked_at} files of report were looked at");
}

/// A verb turns flags into a configuration and shows what came of it; what is longer has a part that belongs in a folder below it,
/// or in a library.
#[test]
fn no_verb_is_longer_than_200_lines() {
    let verbs = root().join("crates/crumb/src/verbs");
    let is_verb = |path: &Path| {
        let folder = path.parent().expect("it has one");
        path.extension().is_some_and(|ext| ext == "rs") && (folder == verbs || folder == verbs.join("run"))
    };
    let lengths: Vec<(usize, PathBuf)> = project_files()
        .into_iter()
        .filter(|path| is_verb(path))
        .map(|path| (std::fs::read_to_string(&path).expect("it can be read").lines().count(), path))
        .collect();
    assert!(lengths.len() > 20, "verbs are looked for in the wrong place: {lengths:?}");
    let long: Vec<_> = lengths.iter().filter(|(lines, _)| *lines > 200).collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn nothing_is_called_utils() {
    for path in project_files() {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
        let vague = ["util", "utils", "helpers", "misc", "common"].contains(&stem.as_str());
        assert!(!vague, "{}: name it after what it holds", path.display());
    }
}

#[test]
fn every_design_note_and_guide_page_is_reachable_from_the_readme_or_the_architecture() {
    let root = root();
    let index = ["README.md", "ARCHITECTURE.md", "docs/guide/README.md"]
        .map(|file| fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}")))
        .concat();
    for path in project_files().iter().filter(|path| path.extension().is_some_and(|ext| ext == "md")) {
        let name = path.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
        if name.starts_with("docs/") && name != "docs/guide/README.md" {
            let file = path.file_name().expect("a file").to_string_lossy().into_owned();
            assert!(index.contains(&file), "{name} is linked from nowhere");
        }
    }
}
