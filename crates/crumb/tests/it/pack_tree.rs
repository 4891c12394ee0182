//! A file tree as a target: made by `crumb pack create --tree`, driven by benchmarks, checked by `crumb pack check`.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use disk::{Disk as _, LocalDisk};
use serde_json::Value;
use testkit::LoopImage;

use crate::binary::Bench;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn with_tree() -> Bench {
    let bench = Bench::in_memory();
    bench.fine(&["pack", "create", "store", "--tree"]);
    bench
}

#[test]
fn postmark_the_news_and_dirscale_run_on_a_tree_and_what_is_kept_is_verified() {
    let bench = with_tree();
    let postmark =
        ["run", "postmark", "pack:store", "--number", "200", "--transactions", "300", "--json", "-"];
    let said = bench.crumb(&postmark);
    assert!(said.code == 0 || said.code == 3, "{}", said.err);
    assert!(json(&said.out)["metrics"]["transactions_per_sec"].as_f64() > Some(0.0), "{}", said.out);
    let said = bench.crumb(&["run", "netnews", "pack:store", "--quick", "--passes", "2", "--keep", "kept"]);
    assert!(said.code == 0 || said.code == 3, "{}", said.err);
    let verified = bench.fine(&["feed", "verify", "pack:store/crumb-netnews-kept"]);
    assert!(verified.contains("RIGHT"), "{verified}");
    let said = bench.crumb(&["run", "dirscale", "pack:store", "--sizes", "1..100", "--warm", "--json", "-"]);
    assert!(said.code == 0 || said.code == 3, "{}", said.err);
    bench.fine(&["pack", "check", "store"]);
}

#[test]
fn a_damaged_tree_is_reported_can_be_read_and_takes_nothing_more() {
    let bench = with_tree();
    bench.crumb(&["run", "netnews", "pack:store", "--quick", "--passes", "1", "--keep", "kept"]);
    let whole = json(&bench.fine(&["pack", "check", "store", "--json"]));
    assert!(
        whole["files"].as_u64() > Some(50) && whole["names"].as_u64() >= whole["files"].as_u64(),
        "{whole}"
    );
    assert_eq!(whole["faults"].as_array().map(Vec::len), Some(0), "{whole}");
    // What says which runs of names count.
    let mut bytes = fs::read(bench.path("store/manifest")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(bench.path("store/manifest"), &bytes).unwrap();
    let found = bench.fails(1, &["pack", "check", "store"]);
    assert!(found.contains("the rest can be read"), "{found}");
    let said = bench.crumb(&["run", "postmark", "pack:store", "--number", "10", "--transactions", "10"]);
    assert!(said.code != 0 && said.err.contains("can only be read"), "{}", said.err);
    // A copy of what can be read is a whole tree.
    let refused = bench.fails(2, &["pack", "repair", "store"]);
    assert!(refused.contains("--to NEW"), "{refused}");
    let reported = bench.fails(1, &["pack", "repair", "store", "--to", "copy"]);
    assert!(reported.contains("store is as it was"), "{reported}");
    let copy = json(&bench.fine(&["pack", "check", "copy", "--json"]));
    assert!(copy["files"].as_u64() >= whole["files"].as_u64().map(|files| files - 2), "{whole}, {copy}");
    assert_eq!(copy["faults"].as_array().map(Vec::len), Some(0), "{copy}");
    assert!(fs::read(bench.path("store/manifest")).unwrap() == bytes, "the damaged tree was changed");
}

#[test]
fn damage_to_a_block_of_names_costs_nothing_and_a_repair_in_place_removes_it() {
    let bench = with_tree();
    bench.crumb(&["run", "netnews", "pack:store", "--quick", "--passes", "1", "--keep", "kept"]);
    assert!(bench.fine(&["pack", "repair", "store", "--json"]).contains("\"repaired\": []"));
    let whole = json(&bench.fine(&["pack", "check", "store", "--json"]));
    assert_eq!(whole["leaked_bytes"], 0, "{whole}");
    let run = fs::read_dir(bench.path("store")).unwrap().map(|entry| entry.unwrap().path());
    let run =
        run.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("names-")));
    let run = run.max_by_key(|path| fs::metadata(path).unwrap().len()).expect("a run");
    let mut bytes = fs::read(&run).unwrap();
    // In the first block, behind the two heads.
    bytes[128 + 20] ^= 4;
    fs::write(&run, &bytes).unwrap();
    let found = bench.fails(1, &["pack", "check", "store"]);
    assert!(found.contains("nothing is lost") && found.contains("`crumb pack repair store`"), "{found}");
    let repaired = json(&bench.fine(&["pack", "repair", "store", "--json"]));
    assert_eq!(repaired["repaired"].as_array().map(Vec::len), Some(1), "{repaired}");
    assert_eq!(json(&bench.fine(&["pack", "check", "store", "--json"])), whole);
}

#[test]
fn a_lost_head_and_an_unfinished_creation_are_named_and_the_latter_is_made_good() {
    let bench = with_tree();
    bench.crumb(&["run", "netnews", "pack:store", "--quick", "--passes", "1", "--keep", "kept"]);
    fs::rename(bench.path("store/tree"), bench.path("head")).unwrap();
    for args in [
        &["pack", "check", "store"][..],
        &["pack", "create", "store", "--tree"],
        &["pack", "ls", "store"],
        &["run", "postmark", "pack:store", "--number", "10", "--transactions", "10"],
        &["run", "fstress", "pack:store", "--rate", "10"],
    ] {
        let refused = bench.fails(1, args);
        assert!(refused.contains("the head of a file tree, its file `tree`, is missing"), "{refused}");
    }
    fs::rename(bench.path("head"), bench.path("store/tree")).unwrap();
    bench.fine(&["pack", "check", "store"]);
    // What a kill leaves before the head is there.
    bench.fine(&["pack", "create", "killed", "--tree"]);
    fs::remove_file(bench.path("killed/tree")).unwrap();
    let refused = bench.fails(1, &["pack", "check", "killed"]);
    assert!(refused.contains("`crumb pack create killed --tree` makes it"), "{refused}");
    bench.fine(&["pack", "create", "killed", "--tree"]);
    bench.fine(&["pack", "check", "killed"]);
}

/// Symptom: with a link in the place of `tree`, `pack create` made a store of objects over the tree, and a target pack:STORE/DIR another
/// one in it.
#[test]
fn a_tree_with_something_else_in_the_place_of_a_file_is_refused_by_every_verb_and_left_as_it_is() {
    let bench = with_tree();
    bench.crumb(&["run", "netnews", "pack:store", "--quick", "--passes", "1", "--keep", "kept"]);
    let listed = || {
        let entries = fs::read_dir(bench.path("store")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    for name in ["tree", "space"] {
        let (path, away) = (bench.path(&format!("store/{name}")), bench.path("away"));
        fs::rename(&path, &away).unwrap();
        std::os::unix::fs::symlink(&away, &path).unwrap();
        let before = listed();
        for args in [
            &["pack", "create", "store", "--tree"][..],
            &["pack", "create", "store", "--size", "64M"],
            &["pack", "create", "other", "--size", "64M", "--volume", "store"],
            &["pack", "check", "store"],
            &["pack", "repair", "store"],
            &["pack", "repair", "store", "--to", "copy"],
            &["run", "postmark", "pack:store", "--number", "10", "--transactions", "10"],
            &["run", "postmark", "pack:store/new", "--number", "10", "--transactions", "10"],
            &["run", "fstress", "pack:store", "--rate", "10"],
            &["clean", "pack:store"],
        ] {
            let said = bench.crumb(args);
            let wanted = format!("a symbolic link is in the place of the file `{name}`");
            // With a whole head it is a tree to the verbs for objects.
            let is_refused =
                said.err.contains(&wanted) || name == "space" && said.err.contains("holds a file tree");
            assert!(said.code != 0 && is_refused, "{args:?}: {}", said.err);
        }
        assert_eq!(listed(), before);
        fs::remove_file(&path).unwrap();
        fs::rename(&away, &path).unwrap();
    }
    bench.fine(&["pack", "check", "store"]);
}

/// Symptom: after a kill on a full disk the tree could only be read, and nothing in it be removed to make room.
#[test]
fn what_a_killed_run_left_in_a_tree_on_a_full_disk_is_cleaned_and_its_room_is_free() {
    let Some(image) = LoopImage::needed("ext4", 230 << 20, &["-m", "0", "-b", "4096"]) else { return };
    let bench = Bench::in_memory();
    let tree = image.path().join("tree").display().to_string();
    bench.fine(&["pack", "create", &tree, "--tree"]);
    let target = format!("pack:{tree}");
    let files = ["--number", "8000", "--size", "10KiB..12KiB", "--transactions", "100000000", "--no-store"];
    let mut run = Command::new(env!("CARGO_BIN_EXE_crumb"))
        .args([&["run", "postmark", &target][..], &files].concat())
        .current_dir(bench.directory())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It has begun its second segment.
    while fs::metadata(image.path().join("tree/space")).unwrap().len() < 128 << 20 {
        assert!(run.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let ballast = fs::File::create(image.path().join("ballast")).unwrap();
    while (&ballast).write_all(&[1; 4096]).is_ok() {}
    ballast.sync_all().unwrap();
    let free = || LocalDisk::open(image.path()).unwrap().room().unwrap().free_bytes;
    assert_eq!(free(), 0);
    let cleaned = json(&bench.fine(&["clean", &target, "--json", "-"]));
    assert_eq!(cleaned["found"][0]["removed"], true, "{cleaned}");
    assert!(free() > 50 << 20, "{} bytes are free", free());
    bench.fine(&["pack", "check", &tree]);
}

/// Symptom: `cannot open: NFS3ERR_NOTDIR`, where no server is.
#[test]
fn a_target_below_a_tree_that_is_no_directory_is_refused_in_plain_words() {
    let bench = with_tree();
    let run = ["run", "netnews", "pack:store", "--quick", "--passes", "1", "--keep", "kept"];
    bench.crumb(&run);
    let file = "pack:store/crumb-netnews-kept/lib/history";
    for (target, words) in
        [(file, "not a directory (ENOTDIR)"), ("pack:store/none", "no such file or directory")]
    {
        for args in [&["clean", target][..], &["run", "fstress", target, "--rate", "10"]] {
            let refused = bench.crumb(args);
            assert_ne!(refused.code, 0, "{args:?}");
            let err = refused.err;
            assert!(
                err.contains(words) && err.contains("or the tree itself") && !err.contains("NFS3ERR"),
                "{err}"
            );
        }
    }
}

#[test]
fn fstress_says_what_it_needs_where_no_tree_is() {
    let bench = with_tree();
    bench.fine(&["pack", "create", "objects", "--size", "64M"]);
    for (target, wanted) in [
        ("pack:objects", "which a packed store of objects does not take; a file tree does"),
        ("pack:missing", "missing --tree` makes one"),
    ] {
        let refused = bench.fails(2, &["run", "fstress", target, "--rate", "10"]);
        assert!(refused.contains(wanted), "{refused}");
    }
    assert!(!bench.path("missing").exists());
}

#[test]
fn a_tree_and_a_store_of_objects_are_not_mistaken_for_each_other() {
    let bench = with_tree();
    for args in [&["pack", "ls", "store"][..], &["pack", "stat", "store"]] {
        let refused = bench.fails(2, args);
        assert!(refused.contains("holds a file tree"), "{refused}");
    }
    bench.fails(1, &["pack", "create", "store", "--tree"]);
    let refused = bench.fails(2, &["pack", "create", "other", "--tree", "--size", "1G"]);
    assert!(refused.contains("--tree"), "{refused}");
    bench.fails(2, &["pack", "create", "other"]);
    bench.fine(&["pack", "create", "objects", "--size", "64M"]);
    bench.fine(&["pack", "check", "objects"]);
    let said = bench.crumb(&["run", "postmark", "pack:objects", "--number", "20", "--transactions", "20"]);
    assert!(said.code == 0 || said.code == 3, "{}", said.err);
}
