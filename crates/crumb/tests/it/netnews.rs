//! `crumb run netnews` on a memory file system: tables, record, keeping and going on, places, sides, wrong usage.
use std::path::Path;

use crate::binary::{Bench, assert_fits, is_sound};
use measure::RunRecord;

/// Runs in memory where there is such a directory: the test is not about the disk.
fn target() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

fn args<'a>(target: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    [&["run", "netnews", target.to_str().unwrap()], more].concat()
}

const SMALL: [&str; 5] = ["--quick", "--articles", "2000", "--seed", "7"];

#[test]
fn a_quick_run_shows_each_pass_keeps_its_record_and_leaves_nothing() {
    let (bench, target) = (Bench::new(), target());
    let out =
        bench.fine(&args(target.path(), &[&SMALL[..], &["--json", "run.json", "--readers", "1"]].concat()));
    assert_fits(&out);
    assert!(out.contains("Articles stored, batched, files deleted"), "{out}");
    assert!(out.contains("Where the time went, readers included") && out.contains("Ageing: "), "{out}");
    assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 0);

    let record = RunRecord::from_json(&bench.read("run.json")).unwrap();
    assert!(record.complete && is_sound(&record.verdict), "{:?}", record.verdict);
    let passes = |name: &str| -> Vec<u32> {
        record.phases.iter().filter(|phase| phase.name == name).map(|phase| phase.pass).collect()
    };
    assert_eq!(
        (passes("unbatch"), passes("batch"), passes("expire")),
        (vec![1, 2, 3, 4, 5], vec![2, 4], vec![3, 4, 5])
    );
    for name in ["unbatch_articles_per_sec", "ageing_percent", "expire_files_per_sec", "read_latency_p99_us"]
    {
        assert!(record.metrics.get(name).is_some_and(|value| *value > 0.0), "{name}: {:?}", record.metrics);
    }
    let curves: Vec<&str> = record.curves.iter().map(|curve| curve.name.as_str()).collect();
    assert_eq!(curves, ["unbatch_per_sec", "batch_minutes", "expire_minutes"]);
    assert!(bench.fine(&["runs", "list"]).contains("netnews"));
}

#[test]
fn a_kept_spool_lies_in_its_places_and_is_gone_on_with_only_as_it_was_begun() {
    let (bench, disk2, library) = (Bench::new(), target(), target());
    let target = target();
    let place = format!("alt.*={}", disk2.path().display());
    let history = library.path().to_str().unwrap();
    let begun = [&SMALL[..], &["--place", &place, "--history", history]].concat();
    let first = [&begun[..], &["--passes", "2", "--batches-per-pass", "3", "--keep", "mine"]].concat();
    bench.fine(&args(target.path(), &first));
    assert!(disk2.path().join("crumb-netnews-mine/articles/alt").is_dir());
    assert!(library.path().join("crumb-netnews-mine/lib/history").is_file());
    let again = bench.fails(1, &args(target.path(), &first));
    assert!(again.contains("there is a spool named mine"), "{again}");
    let elsewhere = [&SMALL[..], &["--passes", "3", "--batches-per-pass", "3", "--resume", "mine"]].concat();
    let refused = bench.fails(1, &args(target.path(), &elsewhere));
    assert!(refused.contains("ask for the same"), "{refused}");
    let on =
        [&begun[..], &["--passes", "4", "--batches-per-pass", "3", "--resume", "mine", "--json", "run.json"]]
            .concat();
    bench.fine(&args(target.path(), &on));
    let record = RunRecord::from_json(&bench.read("run.json")).unwrap();
    let passes: Vec<u32> =
        record.phases.iter().filter(|phase| phase.name == "unbatch").map(|phase| phase.pass).collect();
    assert_eq!(passes, [1, 2, 3, 4]);
    assert!(record.verdict.has("resumed"), "{}", record.verdict);
    // Symptom: resuming a spool whose passes were all done stored the old figures as a new run, and VALID. Fix: there is nothing
    // left to measure, and no run.
    let runs = bench.fine(&["runs", "list"]);
    let refused = bench.fails(1, &args(target.path(), &on));
    assert!(refused.contains("all 4 passes are done"), "{refused}");
    assert_eq!(bench.fine(&["runs", "list"]), runs);
}

#[test]
fn wrong_usage_says_what_is_expected() {
    let (bench, target) = (Bench::new(), target());
    let expected = [
        (&["--rm", "quickrm"][..], "dumbrm or fastrm"),
        (&["--link", "soft"], "hard or symlink"),
        (&["--place", "alt.*"], "HIERARCHY=TARGET"),
        (&["--place", "../x=/d"], "alt.binaries.*"),
        (&["--keep", "a/b"], "letters, digits"),
        (&["--keep", "a", "--repeat", "2"], "a run made alone"),
        (&["--articles", "5", "--feed", "x"], "cannot be used with"),
        (&["--history-index", "disk"], "memory or file"),
        (&["--vs", "rmm=dumbrm"], "there are rm, link, history"),
        (&["--vs", "rm=quickrm"], "dumbrm or fastrm"),
        (&["--vs", "readers=2000"], "1024 readers at most"),
        (&["--vs", "mount="], "noatime"),
        (&["--vs", "nfs://filer/vol,mount=noatime"], "without a mount"),
        (&["--keep", "a", "--vs", "rm=dumbrm"], "a run made alone"),
        (
            &["--vs", "rm=dumbrm", "--passes", "2", "--retention", "2"],
            "nothing is ever deleted in 2 passes that keep 2",
        ),
        (&["--sync", "always"], "none, article or batch"),
        (&["--place", "alt.*=/tmp,rec.*=/tmp,alt=/tmp/b"], "--place names alt.* twice"),
        (&["--feed-bytes", "3"], "1MiB or more"),
        (&["--feed-bytes", "auto", "--articles", "9"], "cannot be used with"),
    ];
    for (flags, words) in expected {
        let told = bench.fails(2, &args(target.path(), flags));
        assert!(told.contains(words), "{flags:?}: {told}");
    }
    let missing = bench.fails(2, &args(target.path(), &["--feed", "nowhere"]));
    assert!(missing.contains("no feed there"), "{missing}");
}

#[test]
fn a_kept_spool_is_verified_against_its_feed_and_damage_is_found() {
    let (bench, target) = (Bench::new(), target());
    bench.fine(&["feed", "synthesize", "--articles", "1000", "--seed", "3", "-o", "feed"]);
    bench.fine(&args(target.path(), &["--quick", "--feed", "feed", "--keep", "mine"]));
    let spool = target.path().join("crumb-netnews-mine");
    let verify = ["feed", "verify", spool.to_str().unwrap(), "--feed", "feed"];
    let right = bench.fine(&verify);
    assert_fits(&right);
    assert!(right.contains("RIGHT: ") && right.contains("those of the feed"), "{right}");
    // What was not looked at is said too.
    let alone = bench.fine(&verify[..3]);
    let words = alone.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("RIGHT: ") && words.contains("as no --feed was given"), "{alone}");
    assert!(words.contains("Compared with the feed not at all"), "{alone}");
    bench.fails(2, &[&verify[..4], &["nowhere"]].concat());
    let json: serde_json::Value =
        serde_json::from_str(&bench.fine(&[&verify[..], &["--json", "-"]].concat())).unwrap();
    assert!(
        json["articles"].as_u64().is_some_and(|count| count > 100 && json["compared"] == count),
        "{json}"
    );

    let mut files = vec![spool.join("articles")];
    while files.last().unwrap().is_dir() {
        let dir = files.pop().unwrap();
        files.extend(std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()));
    }
    std::fs::write(files.last().unwrap(), "something else").unwrap();
    let wrong = bench.crumb(&verify);
    assert_eq!(wrong.code, 1, "{}{}", wrong.out, wrong.err);
    assert!(wrong.out.contains("wrong-content") && wrong.out.ends_with("WRONG\n"), "{}", wrong.out);
    assert!(bench.fails(2, &["feed", "verify", "/tmp/no-spool"]).contains("crumb-netnews-NAME"));
    assert!(bench.fails(1, &["feed", "verify", "crumb-netnews-none"]).contains("none"));
}

#[test]
fn sides_that_differ_in_an_option_run_in_turns_and_are_called_by_it() {
    let (bench, target, library) = (Bench::new(), target(), target());
    let history = format!("history={},history-index=file", library.path().display());
    let vs = ["--vs", "rm=dumbrm", "--vs", &history, "--vs", "link=symlink", "--repeat", "2"];
    let out = bench.fine(&args(target.path(), &[&SMALL[..], &vs, &["--json", "all.json"]].concat()));
    assert_fits(&out);
    let records: Vec<RunRecord> = serde_json::from_str(&bench.read("all.json")).unwrap();
    let turns: Vec<(&str, &str)> = records
        .iter()
        .map(|record| (record.series.as_ref().unwrap().side.as_str(), record.label.as_str()))
        .collect();
    let third = history.replace(",", ", ");
    let sides = [("A", "as given"), ("B", "rm=dumbrm"), ("C", third.as_str()), ("D", "link=symlink")];
    // The seed draws the first round's order, and the second goes back.
    let (there, mut back) = (turns[..4].to_vec(), turns[4..].to_vec());
    back.reverse();
    assert_eq!(there, back);
    assert!(sides.iter().all(|side| there.contains(side)), "{there:?}");
    for record in &records {
        let setting = |name: &str| record.config[name].as_str().unwrap_or("none").to_owned();
        let is = |label: &str, yes: &'static str, no: &'static str| match record.label.contains(label) {
            true => yes,
            false => no,
        };
        assert_eq!(setting("rm"), is("dumbrm", "dumbrm", "fastrm"));
        assert_eq!(setting("link"), is("symlink", "symlink", "hard"));
        assert_eq!(setting("history_index"), is("index=file", "file", "memory"));
        let metric = |name: &str| record.metrics[name];
        assert_eq!(metric("symlinks") > 0.0, record.label.contains("symlink"), "{}", record.label);
        assert_eq!(metric("history_index_writes") > 0.0, record.label.contains("index=file"));
    }
    let headline = |label: &str| &records.iter().find(|record| record.label == label).unwrap().headline;
    assert_eq!(headline("rm=dumbrm"), &["expire_files_per_sec"]);
    assert!(headline("as given").is_empty() && headline("link=symlink").is_empty());
    let again = bench.fine(&["compare", "last"]);
    assert!(again.contains("A  as given (2 runs)\nB  rm=dumbrm (2 runs)"), "{again}");
    assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(library.path()).unwrap().count(), 0);
}

#[test]
fn one_option_names_both_sides_and_a_rival_that_cannot_be_used_is_told_before_anything_runs() {
    let (bench, target) = (Bench::new(), target());
    let out =
        bench.fine(&args(target.path(), &[&SMALL[..], &["--vs", "rm=dumbrm", "--repeat", "1"]].concat()));
    assert!(out.contains("A  rm=fastrm (1 run)\nB  rm=dumbrm (1 run)"), "{out}");
    for vs in ["history=nowhere", "place=alt.*=nowhere", "./nowhere,rm=dumbrm"] {
        let told = bench.fails(1, &args(target.path(), &[&SMALL[..], &["--vs", vs]].concat()));
        assert!(told.contains("nowhere") && !told.contains("making up"), "{vs}: {told}");
    }
}

#[test]
fn a_mount_option_holds_for_the_turns_of_its_side_and_is_put_back() {
    let bench = Bench::in_memory();
    let Some(image) = testkit::LoopImage::needed("ext4", 64 << 20, &[]) else { return };
    let options = || measure::MountPoint::of(image.path()).expect("it is mounted").options;
    let was = options();
    assert!(!was.contains("noatime"), "{was}");
    let vs = ["--articles", "600", "--quick", "--vs", "mount=noatime,commit=30", "--repeat", "2"];
    bench.fine(&args(image.path(), &[&vs[..], &["--json", "all.json"]].concat()));
    assert_eq!(options(), was);
    let records: Vec<RunRecord> = serde_json::from_str(&bench.read("all.json")).unwrap();
    let mounted: Vec<bool> = records
        .iter()
        .map(|record| record.environment.mount.as_ref().unwrap().options.contains("noatime"))
        .collect();
    assert_eq!(mounted, [false, true, true, false]);
    let labels: Vec<&str> = records.iter().map(|record| record.label.as_str()).collect();
    assert_eq!(labels[..2], ["mounted as it is", "mount=noatime,commit=30"]);
    // What the file system refuses, and what it has already, ends it before anything is measured.
    let refused = [
        ("mount=nonsense", "cannot remount"),
        ("mount=relatime", "changes nothing"),
        ("mount=stripe=8", "could not be put back"),
    ];
    for (options, words) in refused {
        let told = bench.fails(1, &args(image.path(), &["--quick", "--articles", "600", "--vs", options]));
        assert!(told.contains(words), "{options}: {told}");
        assert!(!told.contains("articles"), "something was measured before: {told}");
    }
    assert_eq!(options(), was);
}

#[test]
fn phases_on_an_nfs_server_count_its_calls() {
    let bench = Bench::in_memory();
    let Some(ganesha) = testkit::Ganesha::needed(bench.directory()) else { return };
    let local = target();
    let url = ganesha.url();
    let small = ["--quick", "--articles", "600", "--seed", "7", "--json"];
    bench.fine(&[&["run", "netnews", &url][..], &small, &["spool.json"]].concat());
    let record = RunRecord::from_json(&bench.read("spool.json")).unwrap();
    for phase in &record.phases {
        let count = |name: &str| phase.counters.get(name).copied().unwrap_or(0.0);
        match phase.name.as_str() {
            "unbatch" => {
                assert!(count("nfs_calls_create") >= phase.items as f64, "{:?}", phase.counters);
                assert!(count("nfs_written_bytes") >= phase.bytes as f64, "{:?}", phase.counters);
            }
            // Files and links, less what had been cancelled.
            "expire" => assert!(count("nfs_calls_remove") >= phase.items as f64, "{:?}", phase.counters),
            // Lines between articles are counted as bytes and not read.
            "batch" => assert!(count("nfs_read_bytes") > 0.9 * phase.bytes as f64, "{:?}", phase.counters),
            _ => {}
        }
    }
    // History alone on the server, looked up slot by slot: figure 6's set-up.
    let history =
        ["--history", &url, "--history-index", "file", "--vs", "history-index=memory", "--repeat", "1"];
    let begin = ["run", "netnews", local.path().to_str().unwrap()];
    bench.fine(&[&begin[..], &history, &small, &["history.json"]].concat());
    let records: Vec<RunRecord> = serde_json::from_str(&bench.read("history.json")).unwrap();
    let reads = |record: &RunRecord| -> f64 {
        let unbatch = record.phases.iter().filter(|phase| phase.name == "unbatch");
        unbatch.map(|phase| phase.counters.get("history_nfs_calls_read").copied().unwrap_or(0.0)).sum()
    };
    assert!(reads(&records[0]) >= records[0].metrics["articles_stored"], "{}", reads(&records[0]));
    assert!(reads(&records[1]) < records[1].metrics["articles_stored"] / 10.0, "{}", reads(&records[1]));
}

/// Symptom: a run that was killed left 0.9 GB, and a full disk showed only after hours.
#[test]
fn the_feed_made_up_for_a_run_goes_also_when_the_run_was_killed_and_room_is_looked_at_first() {
    let (bench, target, temporary) = (Bench::new(), target(), target());
    let left = temporary.path().join("crumb-feed-4294967295");
    std::fs::create_dir_all(left.join("feed")).unwrap();
    std::fs::write(left.join("lock"), "").unwrap();
    let crumb = |more: &[&str]| {
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("crumb"));
        command.args(args(target.path(), &[&["--no-store"], more].concat())).current_dir(bench.path(""));
        let done = command.env("TMPDIR", temporary.path()).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let (code, said) = crumb(&SMALL);
    // 3 beside other tests, which disturb the machine.
    assert!([Some(0), Some(3)].contains(&code), "{said}");
    assert!(said.contains("which a run that was killed left"), "{said}");
    assert!(said.contains("on the disk that is measured"), "both are in one place here: {said}");
    let entries = |path: &Path| std::fs::read_dir(path).unwrap().count();
    assert_eq!((entries(temporary.path()), entries(target.path())), (0, 0));

    let (code, said) = crumb(&["--feed-bytes", "4PiB"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("are free") && said.contains("--retention"), "{said}");
    assert_eq!((entries(temporary.path()), entries(target.path())), (0, 0));
}

/// Symptom: a user who made `crumb-feed-1` to `crumb-feed-4194304` in /tmp kept all runs of netnews there from starting, and only
/// the next run removed what a killed one had left.
#[test]
fn the_feed_of_a_killed_run_has_a_name_that_cannot_be_foreseen_and_is_found_by_clean() {
    use std::os::unix::fs::MetadataExt as _;
    let (bench, target, temporary) = (Bench::new(), target(), target());
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("crumb"));
    command.args(["run", "netnews", target.path().to_str().unwrap(), "--articles", "300000", "--no-store"]);
    command.env("TMPDIR", temporary.path()).current_dir(bench.path("")).stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    let pid = child.id();
    let folders = || -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(temporary.path()).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let feed = loop {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        if let Some(feed) = folders().into_iter().find(|folder| folder.join("feed").exists()) {
            break feed;
        }
        std::thread::yield_now();
    };
    child.kill().unwrap();
    child.wait().unwrap();
    let name = feed.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name.strip_prefix("crumb-feed-").is_some_and(|random| random.len() == 16), "{name}");
    assert_ne!(name, format!("crumb-feed-{pid}"));
    assert_eq!(feed.metadata().unwrap().mode() & 0o777, 0o700);
    // Not a run's: a link, and a name that would colour the terminal.
    std::os::unix::fs::symlink(bench.path(""), temporary.path().join("crumb-feed-link")).unwrap();
    std::fs::create_dir(temporary.path().join("crumb-feed-\u{1b}[31m")).unwrap();
    let place = temporary.path().to_str().unwrap();
    let shown = bench.fine(&["clean", place, "--dry-run"]);
    let line = shown.lines().find(|line| line.contains(&name)).unwrap_or_else(|| panic!("{shown}"));
    assert!(line.contains("left over") && !shown.contains('\u{1b}'), "{shown}");
    let shown = bench.fine(&["clean", place]);
    assert!(shown.contains("Removed 1 directory"), "{shown}");
    assert_eq!(folders().len(), 2, "{shown}");
    assert!(bench.path("").is_dir());
}

/// Symptom: a pack: target left a store of up to 10 GB.
#[test]
fn a_packed_store_made_for_a_run_goes_with_it_unless_the_spool_is_kept() {
    let (bench, folder) = (Bench::new(), target());
    let store = |name: &str| folder.path().join(name);
    let on = |name: &str, more: &[&str]| {
        let target = format!("pack:{}", store(name).display());
        bench.fine(&[&["run", "netnews", &target], &SMALL[..], more].concat())
    };
    on("gone", &[]);
    assert!(!store("gone").exists());
    std::fs::create_dir(store("empty")).unwrap();
    on("empty", &[]);
    assert_eq!(std::fs::read_dir(store("empty")).unwrap().count(), 0);
    on("kept", &["--keep", "mine"]);
    assert!(store("kept").join("volume").exists());
}

#[test]
fn on_a_disk_cold_batches_are_read_from_it_and_what_memory_did_is_told() {
    let bench = Bench::in_memory();
    let Some(image) = testkit::LoopImage::needed("ext4", 128 << 20, &[]) else { return };
    let measured = |more: &[&str]| {
        bench.fine(&args(image.path(), &[&SMALL[..], &["--json", "run.json"], more].concat()));
        RunRecord::from_json(&bench.read("run.json")).unwrap()
    };
    let told = |record: &RunRecord| {
        let bound = record.verdict.reasons.iter().find(|reason| reason.code == "cache-bound");
        bound.map(|reason| reason.text.clone()).unwrap_or_default()
    };
    let warm = measured(&[]);
    assert!(told(&warm).contains("batch read"), "{:?}", warm.verdict);
    let cold = measured(&["--cold", "--sync", "batch"]);
    assert_eq!((&cold.config["cold"], &cold.config["sync"]), (&true.into(), &"batch".into()));
    // Others may use the image's names at the very moment; then the run says so.
    let drops = cold.metrics["cache_drops"];
    assert!(drops > 0.0);
    if cold.metrics["cache_drops_proven_cold"] < drops {
        assert!(cold.verdict.has("cache-state-unknown"), "{:?}", cold.verdict);
        return;
    }
    let text = told(&cold);
    assert!(!text.contains("batch read") && !text.contains("unbatch wrote"), "{text}");
}

#[test]
fn a_place_that_no_group_belongs_to_is_told() {
    let bench = Bench::in_memory();
    for name in ["a", "b"] {
        std::fs::create_dir(bench.path(name)).unwrap();
    }
    let place = format!("alt.*={0},nosuch.*={0}", bench.path("b").display());
    let run = ["run", "netnews", "a", "--place", &place, "--json", "run.json"];
    bench.fine(&[&run[..], &SMALL].concat());
    let record = RunRecord::from_json(&bench.read("run.json")).unwrap();
    let told: Vec<_> =
        record.verdict.reasons.iter().filter(|reason| reason.code == "place-without-groups").collect();
    assert!(told.len() == 1 && told[0].text.contains("nosuch.*") && !told[0].fatal, "{told:?}");
}

/// Symptom: `feed verify a/crumb-netnews-p` called a right spool WRONG: the links between its places hold whole paths.
#[test]
fn a_spool_of_several_places_is_right_by_whatever_path_it_is_named() {
    let bench = Bench::in_memory();
    for name in ["a", "b"] {
        std::fs::create_dir(bench.path(name)).unwrap();
    }
    std::os::unix::fs::symlink(bench.path("a"), bench.path("link")).unwrap();
    let place = format!("alt.*={0},rec.*={0}", bench.path("b").display());
    let run = ["run", "netnews", "a", "--place", &place, "--keep", "p"];
    bench.fine(&[&run[..], &SMALL].concat());
    let whole = bench.path("a/crumb-netnews-p");
    for spool in ["a/crumb-netnews-p", "link/crumb-netnews-p", whole.to_str().unwrap()] {
        let said = bench.fine(&["feed", "verify", spool]);
        assert!(said.contains("RIGHT: "), "{spool}: {said}");
    }
    // A link that leads elsewhere is found still.
    let links = std::fs::read_dir(bench.path("b/crumb-netnews-p/articles/alt")).unwrap().flatten();
    let link = links
        .flat_map(|group| std::fs::read_dir(group.path()).into_iter().flatten().flatten())
        .find(|entry| entry.path().is_symlink())
        .expect("a cross-post that came from another place")
        .path();
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(bench.path("a"), &link).unwrap();
    let said = bench.crumb(&["feed", "verify", "a/crumb-netnews-p"]);
    assert!(said.code == 1 && said.out.contains("not-linked              1"), "{}{}", said.out, said.err);
}
