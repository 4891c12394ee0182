//! Each choice of features that a text offers is compiled by `make lint`.

use std::collections::BTreeSet;
use std::fs;

use super::{project_files, root};

#[test]
fn every_choice_of_features_that_a_text_offers_is_compiled_by_make_lint() {
    let lint = fs::read_to_string(root().join("Makefile")).expect("a Makefile");
    let compiled = choices_in(&lint);
    assert!(!compiled.is_empty(), "`make lint` compiles no choice of features");
    let mut offered = 0;
    for file in project_files().iter().filter(|path| path.extension().is_some_and(|it| it == "md")) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for choice in choices_in(&text) {
            offered += 1;
            assert!(
                compiled.contains(&choice),
                "{}: `make lint` does not compile --features {choice}",
                file.display()
            );
        }
    }
    assert!(offered > 0, "no text offers a choice of features");
}

/// What stands behind `--no-default-features --features`.
fn choices_in(text: &str) -> BTreeSet<String> {
    let is_part = |char: &char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | ',');
    let behind = text.split("--no-default-features --features ").skip(1);
    behind.map(|rest| rest.chars().take_while(is_part).collect()).collect()
}

#[test]
fn a_choice_ends_where_the_word_ends() {
    let text = "`cargo install --no-default-features --features bench`, or\n--no-default-features --features pack,mount --all";
    assert_eq!(choices_in(text).into_iter().collect::<Vec<_>>(), ["bench", "pack,mount"]);
}
