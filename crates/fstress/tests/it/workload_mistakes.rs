//! A mistake in a workload is told with file, line and what was expected, in both forms of workloads.

use std::path::Path;

use fstress::{Dimension, Distribution, Workload};

/// A correct file whose lines tests then spoil.
const GOOD: &str = r#"about = "test"
[tree]
files_per_directory = "uniform 20..60"
depth_max = 3
[popularity]
file = "zipf 0.75"
[sizes]
file = "10KB"
read = 8192
[access]
read = "random"
[mix]
lookup = 40
read = 60.5
[scale]
files_per_op = 2.5
files_min = 10
"#;

fn error_of(text: &str) -> String {
    Workload::from_toml(text, "w.toml", None).expect_err(text).to_string()
}

#[test]
fn the_unspoilt_file_is_accepted_and_its_defaults_are_the_documented_ones() {
    let workload = Workload::from_toml(GOOD, "some/w.toml", None).unwrap();
    assert_eq!(workload.name, "w");
    assert_eq!(workload.tree.directories_per_directory.constant_value(), Some(3.0));
    assert_eq!(workload.sizes.read.mean(), 8192.0);
    assert_eq!(workload.scale.files_at(100.0), 250);
    assert_eq!(workload.scale.files_at(1.0), 10);
}

#[test]
fn every_mistake_names_file_and_line_and_what_was_expected() {
    for (good, bad, line, expected) in [
        (
            "files_per_directory =",
            "file_per_directory =",
            3,
            "did you mean `files_per_directory`?; expected one of files_per_directory, directories_per_directory",
        ),
        ("uniform 20..60", "uniform 20-60", 3, "LOW..HIGH"),
        ("depth_max = 3", "depth_max = -3", 4, "whole number from 0 to 65535"),
        ("depth_max = 3", "depth_max = [3]", 4, "a number or a text"),
        (
            "[popularity]",
            "[popularities]",
            5,
            "unknown key or section `popularities`, did you mean `popularity`?",
        ),
        ("zipf 0.75", "zipf -1", 6, "ALPHA from 0 to 3"),
        ("zipf 0.75", "0", 6, "no file could ever be chosen"),
        ("\"10KB\"", "\"10 KX\"", 8, "KiB"),
        ("read = 8192", "read = 0", 9, "something above 0, as the mix has reads"),
        ("read = \"random\"", "read = \"randomly\"", 11, "sequential or random"),
        ("lookup = 40", "lokup = 40", 13, "unknown operation `lokup`, did you mean `lookup`?"),
        ("lookup = 40", "lookup = -40", 13, "a percentage of 0 or more"),
        ("lookup = 40", "lookup = nan", 13, "a percentage of 0 or more"),
        ("lookup = 40", "lookup = \"many\"", 13, "a percentage of 0 or more"),
        ("lookup = 40", "readlink = 40", 0, "the mix has readlink"),
        ("lookup = 40\nread = 60.5", "lookup = 0", 12, "at least one operation"),
        ("lookup = 40\nread = 60.5", "", 12, "at least one operation"),
        ("[mix]\nlookup = 40\nread = 60.5", "", 0, "`mix` is missing"),
        ("file = \"10KB\"\n", "", 0, "`sizes.file` is missing: the mix asks for files"),
        ("read = 8192\n", "", 0, "`sizes.read` is missing: the mix has reads"),
        ("lookup = 40", "write = 40", 0, "`sizes.write` is missing"),
        ("files_per_op = 2.5\nfiles_min = 10", "files_per_op = 0\nfiles_min = 0", 17, "at least 1"),
        ("about = \"test\"", "about = \"test", 1, "not valid TOML"),
        ("lookup = 40", "read = 40", 14, "not valid TOML"),
        ("\"10KB\"", "\"file sizes.txt\"", 8, "not in a folder"),
    ] {
        assert!(GOOD.contains(good), "{good}");
        let error = error_of(&GOOD.replacen(good, bad, 1));
        assert!(error.contains(expected), "{bad}: {error}");
        let place = if line == 0 { "w.toml:".to_owned() } else { format!("w.toml, line {line}:") };
        assert!(error.starts_with(&place), "{bad}: expected {place} in: {error}");
    }
}

#[test]
fn a_value_where_a_section_belongs_is_told_by_its_line() {
    let error = error_of("about = \"x\"\ntree = 5\n[mix]\nnull = 1\n");
    assert!(error.starts_with("w.toml, line 2:") && error.contains("a section of keys"), "{error}");
}

#[test]
fn an_unknown_name_lists_the_workloads_there_are() {
    let error = Workload::find("web-sever").unwrap_err().to_string();
    assert!(error.contains("did you mean `web-server`?") && error.contains("p2p"), "{error}");
    let error = Workload::find("./no-such.toml").unwrap_err().to_string();
    assert!(error.contains("no-such.toml"), "{error}");
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}

fn good_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "README", "Files of my department.\n");
    write(folder.path(), "mix", "# percent\nlookup:14\nread:28 # sequential\n");
    write(folder.path(), "files_per_directory", "10:1\n20:3\n");
    write(folder.path(), "file_popularity", "zipf 0.8\n");
    write(folder.path(), "file_size", "# bytes\n1024:33\n2KiB:21\n\n4096:13\n");
    write(folder.path(), "read_size", "8192:1\n");
    write(folder.path(), "read_access", "random\n");
    write(folder.path(), "files_min", "50\n");
    folder
}

#[test]
fn a_directory_of_value_weight_files_is_a_workload() {
    let folder = good_folder();
    let workload = Workload::load(folder.path()).unwrap();
    let same = Distribution::parse("histogram 1KiB:33 2KiB:21 4KiB:13", Dimension::Bytes).unwrap();
    assert_eq!(workload.sizes.file, same);
    assert_eq!(workload.tree.files_per_directory.mean(), 17.5);
    assert_eq!(workload.popularity.file.zipf_alpha(), Some(0.8));
    assert_eq!(workload.scale.files_min, 50);
    let again = Workload::from_toml(&workload.to_toml(), "again.toml", None).unwrap();
    assert_eq!(again, workload);
}

#[test]
fn a_mistake_in_one_file_of_a_directory_names_that_file_and_line() {
    for (name, text, line, expected) in [
        ("file_size", "1024:33\n2KiB\n", 2, "value:weight"),
        ("file_size", "1024:33\n2KiB:-1\n", 2, "weight of 0 or more"),
        ("file_size", "# nothing\n", 1, "at least one value:weight"),
        ("file_size", "1024:0\n", 1, "above zero"),
        ("mix", "lookup:14\nread 28\n", 2, "operation:percent"),
        ("mix", "lookup:14\nreed:28\n", 2, "did you mean `read`?"),
        ("mix", "lookup:14\nlookup:28\n", 2, "each operation once"),
        ("files_min", "50\n60\n", 2, "one value and no more"),
        ("files_min", "fifty\n", 1, "whole number"),
    ] {
        let folder = good_folder();
        write(folder.path(), name, text);
        let error = Workload::load(folder.path()).expect_err(text).to_string();
        assert!(error.contains(expected), "{name}, {text}: {error}");
        assert!(error.contains(&format!("{name}, line {line}:")), "{name}, {text}: {error}");
    }
    let folder = good_folder();
    write(folder.path(), "file_sizes", "1:1\n");
    let error = Workload::load(folder.path()).unwrap_err().to_string();
    assert!(error.contains("did you mean `file_size`?"), "{error}");
}

#[test]
fn a_toml_file_may_name_a_histogram_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "sizes.txt", "1KiB:1\n3KiB:1\n");
    write(folder.path(), "w.toml", &GOOD.replace("\"10KB\"", "\"file sizes.txt\""));
    let workload = Workload::load(&folder.path().join("w.toml")).unwrap();
    assert_eq!(workload.sizes.file.mean(), 2048.0);
    write(folder.path(), "sizes.txt", "1KiB:1\n3KiB:x\n");
    let error = Workload::load(&folder.path().join("w.toml")).unwrap_err().to_string();
    assert!(error.contains("sizes.txt, line 2:"), "{error}");
}

/// Symptom: `--workload /dev/zero` took all memory of the machine. Cause: a workload was read until the file's end.
#[test]
fn a_workload_or_histogram_without_an_end_is_refused() {
    for error in [
        Workload::load(Path::new("/dev/zero")).unwrap_err(),
        Distribution::load(Path::new("/dev/zero"), Dimension::Bytes).unwrap_err(),
    ] {
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("more than 1 MiB"), "{error}: {cause}");
    }
}
