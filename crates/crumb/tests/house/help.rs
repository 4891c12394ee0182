//! What a newcomer meets: help everywhere, and wrong usage that says what is right.

use crate::binary::Bench;

const VERBS: [&[&str]; 13] = [
    &["run", "fstress"],
    &["runs", "list"],
    &["runs", "show"],
    &["runs", "export"],
    &["runs", "import"],
    &["runs", "rm"],
    &["report"],
    &["serve", "null"],
    &["serve", "dir"],
    &["workload", "list"],
    &["workload", "show"],
    &["workload", "derive"],
    &["help"],
];

#[test]
fn alone_it_prints_its_help_and_names_every_verb() {
    let help = Bench::new().fine(&[]);
    for verb in ["run ", "runs ", "report ", "serve ", "workload ", "Exit codes"] {
        assert!(help.contains(verb), "{verb}\n{help}");
    }
}

#[test]
fn every_verb_shows_examples_that_name_it() {
    let bench = Bench::new();
    for verb in &VERBS[..12] {
        let help = bench.fine(&[verb, &["--help"][..]].concat());
        let examples = help.split_once("Examples:").unwrap_or_else(|| panic!("{verb:?}\n{help}")).1;
        assert!(examples.contains(&format!("crumb {}", verb.join(" "))), "{verb:?}\n{help}");
    }
}

#[test]
fn a_group_without_its_verb_and_an_unknown_verb_are_bad_usage() {
    let bench = Bench::new();
    for group in ["run", "runs", "serve", "workload"] {
        assert!(bench.fails(2, &[group]).contains("Usage:"), "{group}");
    }
    assert!(bench.fails(2, &["rnus"]).contains("runs"));
    assert!(bench.fails(2, &["runs", "lst"]).contains("list"));
    bench.fails(2, &["runs", "list", "--no-such-flag"]);
    bench.fails(2, &["runs", "list", "--quiet", "--verbose"]);
}

#[test]
fn the_version_names_the_commit_or_says_why_not() {
    assert_eq!(Bench::new().fine(&["--version"]), format!("crumb {}\n", crumb::VERSION));
    let rest = crumb::VERSION.strip_prefix(concat!(env!("CARGO_PKG_VERSION"), " (")).expect("the version");
    let from = rest.strip_suffix(')').expect("the commit in parentheses");
    let commit = from.strip_suffix("-modified").unwrap_or(from);
    let is_commit = commit.len() == 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(is_commit || ["commit unknown", "debug build"].contains(&from), "{from}");
}
