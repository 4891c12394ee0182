//! The guide knows every verdict code, and quotes messages as the program prints them.

use std::collections::BTreeSet;
use std::fs;

use super::{project_files, root};

/// Calls whose first argument is a code.
const BEFORE_CODES: [&str; 3] = ["invalidate(", "remark(", "LocalFinding::new("];

/// Codes that are constants or results of functions, which the search below does not find.
const OTHER_CODES: [&str; 16] = [
    "transport-full",
    "storage-gone",
    "rate-off",
    "generator-late",
    "generator-busy",
    "figures-late",
    "rank-short",
    "start-skew",
    "uneven-ranks",
    "unanswered",
    "overtaken",
    "device-bound",
    "server-bound",
    "cpu-bound",
    "cache-bound",
    "bound-unclear",
];

#[test]
fn every_verdict_code_is_in_the_guide() {
    let guide = ["trust.md", "troubleshooting.md"]
        .map(|page| fs::read_to_string(root().join("docs/guide").join(page)).expect("a page of the guide"))
        .concat();
    let sources = sources();
    let mut codes: BTreeSet<String> = OTHER_CODES.map(str::to_owned).into();
    for code in OTHER_CODES {
        assert!(sources.contains(&format!("\"{code}\"")), "{code} is no code any more: correct OTHER_CODES");
    }
    codes.extend(BEFORE_CODES.iter().flat_map(|before| codes_after(&sources, before)));
    assert!(codes.len() > 50, "only {} codes were found: {codes:?}", codes.len());
    let missing: Vec<&String> =
        codes.iter().filter(|code| !guide.contains(&format!("| `{code}` |"))).collect();
    assert!(missing.is_empty(), "no row of trust.md or troubleshooting.md explains {missing:?}");
}

#[test]
fn messages_that_the_guide_explains_are_printed_by_the_program() {
    let page = fs::read_to_string(root().join("docs/guide/troubleshooting.md")).expect("the page");
    let sources = sources();
    let mut checked = 0;
    let mut wrong = Vec::new();
    for message in messages_of(&page) {
        for part in message.split('…').map(str::trim).filter(|part| part.len() > 3) {
            checked += 1;
            if !sources.contains(part) && !FROM_ELSEWHERE.contains(&part) {
                wrong.push(part.to_owned());
            }
        }
    }
    assert!(checked > 40, "only {checked} messages were found");
    assert!(wrong.is_empty(), "the program does not print these any more; correct the page: {wrong:#?}");
}

/// Messages of the kernel and of the C library.
const FROM_ELSEWHERE: [&str; 3] =
    ["Transport endpoint is not connected", "Too many open files", "Input/output error"];

/// All sources that are not tests, with string literals over several lines joined.
fn sources() -> String {
    let mut all = String::new();
    for path in project_files() {
        let below = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
        let is_source = below.starts_with("crates/") && below.contains("/src/") && below.ends_with(".rs");
        if !is_source || below.ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{below}: {error}"));
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let mut rest = code;
        while let Some(at) = rest.find("\\\n") {
            all.push_str(&rest[..at]);
            rest = rest[at + 2..].trim_start();
        }
        all.push_str(rest);
    }
    all
}

/// String literals that follow `before`, blanks between left out.
fn codes_after(sources: &str, before: &str) -> Vec<String> {
    let after = sources.split(before).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
    let literals = after.filter_map(|rest| rest.split('"').next());
    literals.filter(|code| code.contains('-') || code.len() > 3).map(str::to_owned).collect()
}

/// What stands between backticks in the first column of the tables of messages.
fn messages_of(page: &str) -> Vec<String> {
    let mut in_messages = false;
    let mut found = Vec::new();
    for line in page.lines() {
        if line.starts_with("| message |") {
            in_messages = true;
        } else if !line.starts_with('|') {
            in_messages = false;
        } else if in_messages {
            let first = line.trim_start_matches('|').split(" | ").next().unwrap_or_default();
            found.extend(first.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    found
}

#[test]
fn codes_and_messages_are_found() {
    let sources =
        "verdict.remark(\n    \"too-short\", text); verdict.invalidate(\"errors\", x); v.remark(code, y)";
    assert_eq!(codes_after(sources, "remark("), ["too-short"]);
    assert_eq!(codes_after(sources, "invalidate("), ["errors"]);
    let page =
        "| code | x |\n|---|---|\n| `no` | y |\n\n| message | x |\n|---|---|\n| `a … b` (403) | `c` |\n";
    assert_eq!(messages_of(page), ["a … b"]);
}
