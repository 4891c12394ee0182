//! `crumb advise --predict`: when a directory is full, as users ask it.

use std::fs;

use testkit::LoopImage;

use crate::binary::{Bench, assert_fits, is_one_error};

#[test]
fn on_ext4_a_directory_has_a_range_of_names_and_of_dates() {
    let Some(image) = LoopImage::needed("ext4", 32 << 20, &["-b", "1024", "-N", "4096"]) else { return };
    let bench = Bench::in_memory();
    let spool = image.path().join("spool");
    fs::create_dir(&spool).unwrap();
    (0..600).for_each(|number| fs::write(spool.join(format!("{number:016}")), "").unwrap());
    let tree = image.path().display().to_string();
    let asked = ["advise", "--predict", &tree, "--growth", "600/day", "--json", "full.json"];
    let out = bench.fine(&asked);
    assert_fits(&out);
    for words in ["without large_dir, with", "600 names a day, as given", "refuses a name at", "spool"] {
        assert!(out.contains(words), "{words}\n{out}");
    }
    // 3,400 inodes are gone in six days, long before the index is full.
    assert!(out.contains("first, the inodes run out: on 20"), "{out}");
    let json: serde_json::Value = serde_json::from_str(&bench.read("full.json")).unwrap();
    let directory = &json["directories"][0];
    assert_eq!((&directory["names"], &directory["limit"]), (&600.into(), &"index".into()));
    let names = |key: &str| directory[key].as_f64().unwrap();
    let (low, high) = (names("names_when_full_low"), names("names_when_full_high"));
    assert!(low > 200_000.0 && low < high && high < 1.15 * low, "{low} to {high}");
    let days = &directory["full"];
    assert!(days["days_low"].as_f64().unwrap() > 300.0, "{days}");
    assert!(days["date_low"].as_str() < days["date_high"].as_str(), "{days}");
    // Longer names fill it sooner.
    let longer = bench.fine(&["advise", "--predict", &tree, "--name-length", "250", "--json", "-"]);
    let longer: serde_json::Value = serde_json::from_str(&longer).unwrap();
    assert!(longer["directories"][0]["names_when_full_high"].as_f64().unwrap() < low / 5.0, "{longer:#}");
    assert_eq!(longer["growth_per_day"], serde_json::Value::Null, "all names are new: {longer:#}");
}

#[test]
fn where_directories_have_no_limit_of_their_own_that_is_what_it_says() {
    let bench = Bench::in_memory();
    fs::create_dir(bench.path("new")).unwrap();
    (0..520).for_each(|number| fs::write(bench.path(&format!("new/{number}")), "x").unwrap());
    let out = bench.fine(&["advise", "new", "--predict"]);
    assert_fits(&out);
    assert!(out.contains("520 names in 1 directory"), "{out}");
    assert!(out.contains("no date: the growth is not known; give it with --growth"), "{out}");
    if out.contains("tmpfs") {
        assert!(out.contains("no limit"), "{out}");
    }
}

#[test]
fn flags_of_one_question_are_refused_with_the_other() {
    let bench = Bench::in_memory();
    fs::create_dir(bench.path("new")).unwrap();
    assert!(bench.fails(2, &["advise", "new", "--growth", "5"]).contains("--predict"));
    assert!(bench.fails(2, &["advise", "new", "--predict", "--cold"]).contains("cannot be used with"));
    assert!(bench.fails(2, &["advise", "new", "--predict", "--growth", "0/day"]).contains("--growth"));
    assert!(bench.fails(2, &["advise", "new", "--predict", "--name-length", "256"]).contains("255"));
    let missing = bench.fails(1, &["advise", "none", "--predict"]);
    assert!(is_one_error(&missing) && missing.contains("No such file"), "{missing}");
}
