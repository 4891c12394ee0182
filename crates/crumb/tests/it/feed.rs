//! `crumb feed`: feeds made, multiplied, brought in and described.

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::binary::{Bench, assert_fits};

#[test]
fn a_feed_is_made_up_described_multiplied_and_brought_in_again() {
    let bench = Bench::new();
    let made = bench.fine(&["feed", "synthesize", "--articles", "3000", "--seed", "1", "-o", "feed"]);
    assert_fits(&made);
    assert!(made.contains("model usenet-1995-1, seed 1") && made.contains("cross-posted (%)"), "{made}");
    assert!(!made.contains("OFF"), "{made}");

    let stat = bench.fine(&["feed", "stat", "feed", "--top", "3"]);
    assert_fits(&stat);
    assert!(stat.contains("Articles                3,000, ") && stat.contains("more groups"), "{stat}");

    let cloned = bench.fine(&["feed", "clone", "feed", "2", "-o", "x3", "--gzip"]);
    assert!(cloned.contains("9,000") && cloned.contains("1 to 2"), "{cloned}");
    assert_fits(&cloned);

    // Its batches, as another server would send them.
    fs::create_dir(bench.path("batches")).unwrap();
    for number in 1..=28 {
        let name = format!("{number:06}.rnews");
        fs::copy(bench.path("feed").join(&name), bench.path("batches").join(&name)).unwrap();
    }
    fs::write(bench.path("batches/notes"), "not an article\n").unwrap();
    let imported = bench.fine(&["feed", "import", "batches", "--order", "path", "-o", "again"]);
    assert_fits(&imported);
    assert!(imported.contains("Rejected                1 in again/broken"), "{imported}");
    let json = |feed: &str| -> serde_json::Value {
        serde_json::from_str(&bench.fine(&["feed", "stat", feed, "--json", "-"])).unwrap()
    };
    assert_eq!(json("feed")["stat"], json("again")["stat"]);
    assert_eq!(json("again")["feed"]["origin"]["broken"]["bad-header"], 1);
}

#[test]
fn mistakes_are_told_with_what_to_do() {
    let bench = Bench::new();
    assert!(bench.fails(2, &["feed", "stat", "none"]).contains("crumb feed synthesize"));
    bench.fine(&["feed", "synthesize", "--articles", "10", "-o", "feed"]);
    assert!(bench.fails(2, &["feed", "synthesize", "--articles", "10", "-o", "feed"]).contains("rm -r feed"));
    assert!(bench.fails(2, &["feed", "import", "feed", "-o", "copy"]).contains("feed clone"));
    assert!(bench.fails(1, &["feed", "import", "nowhere", "-o", "copy"]).contains("nowhere"));
    bench.fails(2, &["feed", "clone", "feed", "0", "-o", "copy"]);
    fs::remove_file(bench.path("feed/feed.json")).unwrap();
    fs::write(bench.path("feed/feed.unfinished"), "").unwrap();
    assert!(bench.fails(1, &["feed", "stat", "feed"]).contains("rm -r feed"));
    assert!(!bench.path("copy").exists());
}

/// `crumb feed synthesize` of a feed far too large to end by itself, some batches of it written.
fn far_from_done(bench: &Bench) -> Child {
    let child = Command::new(assert_cmd::cargo::cargo_bin!("crumb"))
        .args(["feed", "synthesize", "--quiet", "--articles", "100000000", "-o", "feed"])
        .current_dir(bench.directory())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !bench.path("feed/000005.rnews").exists() {
        std::thread::yield_now();
    }
    child
}

#[test]
fn a_killed_synthesis_leaves_no_feed_that_looks_whole_and_a_stopped_one_nothing() {
    let bench = Bench::new();
    let mut child = far_from_done(&bench);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!bench.path("feed").exists());

    let mut child = far_from_done(&bench);
    child.kill().unwrap();
    child.wait().unwrap();
    for args in [&["feed", "stat", "feed"][..], &["feed", "synthesize", "--articles", "10", "-o", "feed"]] {
        let told = bench.fails(1, args);
        assert!(told.contains("unfinished feed") && told.contains("rm -r feed"), "{told}");
    }
    fs::remove_dir_all(bench.path("feed")).unwrap();
    bench.fine(&["feed", "synthesize", "--articles", "10", "-o", "feed"]);
}

/// Symptom: of 6,294 letters 6 were imported, exit status 0, without a hint.
#[test]
fn mail_becomes_a_feed_by_folder_by_list_or_as_one_group_and_without_it_is_told_how() {
    let bench = Bench::new();
    let letter = |number: u32| {
        let list = if number.is_multiple_of(2) { "List-Id: Dev <dev.example.org>\n" } else { "" };
        format!(
            "Message-ID: <{number}@h.example>\nDate: Tue, 6 Apr 1993 12:00:0{number} +0000\n{list}\nletter {number}\n"
        )
    };
    for folder in ["mail/.Lists.Dev/cur", "mail/inbox"] {
        fs::create_dir_all(bench.path(folder)).unwrap();
    }
    for number in 1..=4 {
        let folder = if number <= 2 { "mail/.Lists.Dev/cur" } else { "mail/inbox" };
        fs::write(bench.path(folder).join(number.to_string()), letter(number)).unwrap();
    }
    let mailbox = format!(
        "From a@h.example Tue Apr  6 12:00:00 1993\n{}\nFrom here on it is one letter still.\n",
        letter(5)
    );
    fs::write(bench.path("mail/Old Mail.mbox"), mailbox).unwrap();

    let none = bench.fails(1, &["feed", "import", "mail", "-o", "none"]);
    assert!(none.contains("3 articles name no newsgroups") && none.contains("--letters folder"), "{none}");
    assert!(!bench.path("none").exists());

    let groups = |feed: &str| -> Vec<String> {
        let stat = bench.fine(&["feed", "stat", feed, "--json", "-"]);
        let json: serde_json::Value = serde_json::from_str(&stat).unwrap();
        let groups = json["stat"]["by_group"].as_array().unwrap();
        let mut names: Vec<String> = groups
            .iter()
            .map(|group| format!("{} {}", group["name"].as_str().unwrap(), group["articles"]))
            .collect();
        names.sort();
        names
    };
    let said = bench.fine(&["feed", "import", "mail", "--letters", "folder", "-o", "folder"]);
    assert_fits(&said);
    assert!(said.contains("Letters                 5 given a group"), "{said}");
    assert_eq!(groups("folder"), ["inbox 2", "lists.dev 2", "old-mail 1"]);
    bench.fine(&["feed", "import", "mail", "--letters", "mail.all", "-o", "one"]);
    assert_eq!(groups("one"), ["mail.all 5"]);
    // Most have no list: what could be taken is, and the rest told.
    let most = bench.fails(3, &["feed", "import", "mail", "--letters", "list-id", "-o", "lists"]);
    assert!(most.contains("3 were rejected and 2 imported") && most.contains("no List-Id"), "{most}");
    assert_eq!(groups("lists"), ["dev.example.org 2"]);
    bench.fails(2, &["feed", "import", "mail", "--letters", "no group", "-o", "x"]);
}
