//! Links between the project's texts lead somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{project_files, root};

#[test]
fn every_relative_link_of_the_texts_leads_to_a_file_and_a_heading() {
    let mut checked = 0;
    let mut wrong = Vec::new();
    for file in project_files().into_iter().filter(|path| path.extension().is_some_and(|it| it == "md")) {
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for link in links_of(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            checked += 1;
            if let Some(why) = why_broken(&file, &link) {
                wrong
                    .push(format!("{}: ({link}) {why}", file.strip_prefix(root()).expect("below").display()));
            }
        }
    }
    assert!(checked > 50, "only {checked} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn why_broken(file: &Path, link: &str) -> Option<String> {
    let (path, heading) = link.split_once('#').map_or((link, None), |(path, heading)| (path, Some(heading)));
    let leads_to: PathBuf = if path.is_empty() {
        file.to_owned()
    } else {
        file.parent().expect("a file is in a directory").join(path)
    };
    let Ok(real) = leads_to.canonicalize() else { return Some("leads to nothing".to_owned()) };
    if !real.starts_with(root()) {
        return Some("leads out of the project".to_owned());
    }
    let heading = heading?;
    let text = fs::read_to_string(&real).ok()?;
    (!anchors_of(&text).contains(heading)).then(|| format!("has no heading `{heading}`"))
}

/// What is in parentheses behind brackets, outside code.
fn links_of(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    for line in prose_of(text) {
        let mut rest = line.as_str();
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let link: String = rest.chars().take_while(|char| !matches!(char, ')' | ' ')).collect();
            links.push(link);
        }
    }
    links
}

/// Lines outside blocks of code, without what is between backticks.
fn prose_of(text: &str) -> Vec<String> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code && !line.starts_with("    ") {
            lines.push(line.split('`').step_by(2).collect::<Vec<_>>().join(""));
        }
    }
    lines
}

/// As forges make them of headings: small letters, hyphens for blanks, without punctuation.
fn anchors_of(text: &str) -> BTreeSet<String> {
    let headings = text
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    headings
        .map(|heading| {
            let kept = heading
                .trim()
                .chars()
                .filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
            kept.map(|char| if char == ' ' { '-' } else { char.to_ascii_lowercase() }).collect()
        })
        .collect()
}

#[test]
fn links_in_code_are_none_and_headings_become_anchors() {
    let text = "# Which ones? `--cold`, say\nsee [a](b.md#c) and `[x](y)`\n```\n[no](no.md)\n```\n[d](e.md \"title\")";
    assert_eq!(links_of(text), ["b.md#c", "e.md"]);
    assert_eq!(anchors_of(text).into_iter().collect::<Vec<_>>(), ["which-ones---cold-say"]);
}
