//! What packages and shells take from `crumb generate`.

use std::fs;

use crate::binary::Bench;

#[test]
fn each_verb_gets_a_man_page_and_each_shell_completions_and_they_are_the_same_each_time() {
    let bench = Bench::new();
    for place in ["one", "two"] {
        assert!(bench.fine(&["generate", place]).contains("man pages"));
    }
    for page in ["crumb", "crumb-run-fstress", "crumb-runs-show", "crumb-proxy", "crumb-mount"] {
        let text = bench.read(&format!("one/man/man1/{page}.1"));
        assert!(text.contains(".TH") && text.contains("SYNOPSIS"), "{page}: {text}");
        assert_eq!(text, bench.read(&format!("two/man/man1/{page}.1")), "{page}");
    }
    for place in [
        "bash-completion/completions/crumb",
        "fish/vendor_completions.d/crumb.fish",
        "zsh/site-functions/_crumb",
    ] {
        let text = bench.read(&format!("one/{place}"));
        assert!(text.contains("fstress") && text.contains("store"), "{place} knows no verbs or flags");
        assert_eq!(text, bench.read(&format!("two/{place}")), "{place}");
    }
    assert!(fs::read_dir(bench.path("one/man/man1")).unwrap().count() > 20);
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let bench = Bench::new();
    bench.write("file", "");
    assert!(bench.fails(1, &["generate", "file/below"]).contains("file/below/man/man1"));
}
