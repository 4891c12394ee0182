//! Plain words: patterns that mark a sentence for rewriting stay out of texts and shrink in sources.
//!
//! `words.txt` holds the patterns. Texts and help have none, except those listed with a reason. Each crate has a ceiling: more
//! fail, and so does a ceiling that has become far too high.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{project_files, root};

/// Texts that use a word in its plain sense: file, group, how often, why.
const EXCEPTIONS: &[(&str, &str, usize, &str)] = &[];

/// Hits in the sources of each crate: told, phrases, private. Lower a number when you remove words; none is raised.
const CEILINGS: &[(&str, [usize; 3])] =
    &[("fstress", [8, 2, 0]), ("sys", [0, 1, 0]), ("webcache", [2, 3, 2])];

/// So far may a ceiling be above what is found, so that two changes at once need not both correct it.
const SLACK: usize = 30;

#[test]
fn texts_use_plain_words() {
    let patterns = patterns();
    let mut wrong = Vec::new();
    let mut texts = 0;
    for (file, text) in files(is_text) {
        texts += 1;
        for (group, found) in counts(&patterns, &text) {
            let allowed = EXCEPTIONS.iter().find(|(of, in_group, ..)| *of == file && *in_group == group);
            let (allowed, reason) =
                allowed.map_or((0, "no reason"), |(_, _, count, reason)| (*count, *reason));
            assert!(reason.len() > 5, "{file}: no reason is given");
            if found.len() > allowed {
                wrong.push(format!("{file}: {group}: {found:?}, {allowed} allowed"));
            } else if found.len() < allowed {
                wrong.push(format!(
                    "{file}: {group}: only {} of {allowed} left: correct the list",
                    found.len()
                ));
            }
        }
    }
    assert!(texts > 30, "only {texts} texts were read");
    assert!(wrong.is_empty(), "see house/words.txt for what to write instead:\n{}", wrong.join("\n"));
}

#[test]
fn sources_use_fewer_private_words_each_time() {
    let patterns = patterns();
    let mut found: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    for (file, text) in files(is_source) {
        let of_crate = found.entry(crate_of(&file).to_owned()).or_default();
        for (group, (_, hits)) in counts(&patterns, &text).into_iter().enumerate() {
            of_crate[group] += hits.len();
        }
    }
    assert!(found.len() > 15, "only {} crates were read", found.len());
    let mut wrong = Vec::new();
    for (name, hits) in found {
        let ceiling = CEILINGS.iter().find(|(of, _)| *of == name).map_or([0; 3], |(_, ceiling)| *ceiling);
        for ((group, _), (hits, ceiling)) in patterns.iter().zip(hits.into_iter().zip(ceiling)) {
            if hits > ceiling {
                wrong.push(format!(
                    "{name}: {hits} words of `{group}`, {ceiling} allowed: see house/words.txt"
                ));
            } else if hits + SLACK < ceiling {
                wrong.push(format!(
                    "{name}: {hits} words of `{group}` are left: lower the ceiling of {ceiling}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Groups with their words, in the order of the file.
fn patterns() -> Vec<(String, Vec<String>)> {
    let lines = include_str!("words.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (group, words) = line.split_once('\t').expect("a group, a tab, words");
            (group.to_owned(), words.split('|').map(str::to_owned).collect())
        })
        .collect()
}

/// Of each group the lines on which its words stand, one entry a word.
fn counts(patterns: &[(String, Vec<String>)], text: &str) -> Vec<(String, Vec<String>)> {
    let lower = text.to_lowercase();
    let of = |words: &[String]| words.iter().flat_map(|word| hits(&lower, word)).collect();
    patterns.iter().map(|(group, words)| (group.clone(), of(words))).collect()
}

/// Where `word` is a word of its own, with some of the text around it.
fn hits(text: &str, word: &str) -> Vec<String> {
    let in_word = |char: char| char.is_alphanumeric() || char == '_';
    let found = text.match_indices(word).filter(|(at, _)| {
        let before = text[..*at].chars().next_back().is_some_and(in_word);
        let after = text[at + word.len()..].chars().next().is_some_and(in_word);
        !before && !after
    });
    found
        .map(|(at, _)| {
            let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
            text[line..].lines().next().unwrap_or_default().trim().to_owned()
        })
        .collect()
}

fn files(wanted: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let below = |path: &Path| path.strip_prefix(root()).expect("below the root").display().to_string();
    let files = project_files().into_iter().map(|path| (below(&path), path)).filter(|(file, _)| wanted(file));
    files.filter_map(|(file, path)| Some((file, fs::read_to_string(path).ok()?))).collect()
}

fn is_text(file: &str) -> bool {
    file.ends_with(".md")
        && (file.starts_with("docs/") || file.starts_with("results/") || !file.contains('/'))
}

fn is_source(file: &str) -> bool {
    file.strip_prefix("crates/")
        .and_then(|below| below.split_once('/'))
        .is_some_and(|(_, below)| below.starts_with("src/"))
}

fn crate_of(file: &str) -> &str {
    file.trim_start_matches("crates/").split('/').next().unwrap_or_default()
}

#[test]
fn words_are_counted_whole_and_in_any_case() {
    assert_eq!(hits("he told\nretold; told_once; (told)", "told"), ["he told", "retold; told_once; (told)"]);
    assert_eq!(hits("this goes on, the pangoes on\n", "goes on").len(), 1);
    let patterns = patterns();
    assert_eq!(patterns.len(), 3, "CEILINGS has three columns");
    assert_eq!(counts(&patterns, "Whoever Tells")[0].1.len(), 1);
    assert!(is_source("crates/nfs/src/lib.rs") && !is_source("crates/nfs/tests/it/main.rs"));
    assert!(
        is_text("README.md") && is_text("docs/guide/mount.md") && !is_text("crates/nfs/testdata/README.md")
    );
}
