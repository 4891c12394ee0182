//! A function fits on a screen. Longer ones are listed with the reason; the list only shrinks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{project_files, root};

/// From the line of `fn` to that of its closing brace.
const LINES_MAX: usize = 70;

/// Longer functions: file, name, why it is in one piece. Take out what has become short; nothing is added.
const LONGER: &[(&str, &str, &str)] = &[
    ("crates/files/src/directory/listing.rs", "list", "one pass over a listing with its cursor"),
    ("crates/files/src/directory_transport/job.rs", "load", "one arm for each procedure of NFS"),
    (
        "crates/fstress/src/file_set/crew.rs",
        "turn",
        "one step of a level after the other; to be split with the common open loop",
    ),
    (
        "crates/fstress/src/file_set/crew.rs",
        "settle",
        "one step of a level after the other; to be split with the common open loop",
    ),
    (
        "crates/fstress/src/results/judge.rs",
        "judge",
        "one finding after the other, in the order in which they are told",
    ),
    (
        "crates/fstress/src/open_loop/metronome.rs",
        "run",
        "the open loop with its clocks in one view; to be split when both open loops become one",
    ),
    (
        "crates/fstress/src/open_loop/planner/request.rs",
        "request",
        "one arm for each operation of a workload",
    ),
    (
        "crates/fstress/src/run.rs",
        "run_watched",
        "one step of a level after the other; to be split with the common open loop",
    ),
    (
        "crates/fstress/src/run/level.rs",
        "measure",
        "one step of a level after the other; to be split with the common open loop",
    ),
    ("crates/fstress/src/workload/parse.rs", "checked", "one check for each setting of a workload"),
    ("crates/fstress/src/workload/write.rs", "toml", "one line for each setting of a workload"),
    ("crates/http-cache-rules/src/storing.rs", "judge", "one rule of the caching standard after the other"),
    (
        "crates/netnews/src/feed/synthesize/write.rs",
        "write",
        "the steps of a phase in the order in which they must happen",
    ),
    (
        "crates/netnews/src/spool/expire.rs",
        "rebuild",
        "the steps of a phase in the order in which they must happen",
    ),
    (
        "crates/netnews/src/spool/recovery.rs",
        "recover",
        "the steps of a phase in the order in which they must happen",
    ),
    (
        "crates/netnews/src/spool/verify.rs",
        "against",
        "the steps of a phase in the order in which they must happen",
    ),
    ("crates/nfs/src/wire/nfs3/replies.rs", "put_success", "one arm for each procedure of NFS"),
    ("crates/nfs/src/wire/nfs3/replies.rs", "success", "one arm for each procedure of NFS"),
    ("crates/nfs/src/wire/nfs3/requests.rs", "put_request", "one arm for each procedure of NFS"),
    ("crates/nfs/src/wire/nfs3/requests.rs", "decode_request", "one arm for each procedure of NFS"),
    (
        "crates/packfs/src/file_system.rs",
        "rename",
        "one arm for each kind of file, under locks taken in order",
    ),
    (
        "crates/packstore/src/store/opening.rs",
        "open",
        "the steps of opening a store in the order in which they must happen",
    ),
    (
        "crates/packstore/src/procedures/rewrite_index.rs",
        "rewrite_index",
        "steps whose order keeps objects safe over a crash",
    ),
    (
        "crates/packstore/src/write_queue/staging.rs",
        "stage_on",
        "steps whose order keeps objects safe over a crash",
    ),
    (
        "crates/packstore/src/write_queue/writing.rs",
        "write",
        "steps whose order keeps objects safe over a crash",
    ),
    ("crates/stackfs/src/check/examine.rs", "of", "one thing to look for after the other"),
    ("crates/testkit/src/ganesha.rs", "start_in", "the steps of starting a server"),
    (
        "crates/webcache/src/config/destinations.rs",
        "internal_addresses_are_denied_however_they_are_written_and_their_neighbours_are_not",
        "a table of addresses in a test",
    ),
    (
        "crates/webcache/src/server/fetch.rs",
        "pass_on",
        "the steps of an exchange in the order in which they must happen",
    ),
    (
        "crates/webcache/src/server.rs",
        "start",
        "the steps of an exchange in the order in which they must happen",
    ),
    ("crates/webload/src/origin/connection.rs", "answer", "one arm for each kind of reply of the origin"),
];

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    lines: usize,
}

#[test]
fn no_function_is_longer_than_a_screen_but_those_listed_with_a_reason() {
    let mut longer: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut functions = 0;
    for path in project_files() {
        let below = path.strip_prefix(root()).expect("below the root");
        if !is_source(below) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for Function { name, lines } in functions_of(&text) {
            functions += 1;
            if lines > LINES_MAX {
                let longest = longer.entry((below.display().to_string(), name)).or_default();
                *longest = lines.max(*longest);
            }
        }
    }
    assert!(functions > 1000, "only {functions} functions were found");
    let mut wrong = Vec::new();
    for (file, name, reason) in LONGER {
        assert!(reason.len() > 10, "{file}: {name}: no reason is given");
        if longer.remove(&((*file).to_owned(), (*name).to_owned())).is_none() {
            wrong.push(format!("{file}: {name} is no longer there or no longer long: take it off the list"));
        }
    }
    for ((file, name), lines) in longer {
        wrong.push(format!(
            "{file}: {name} has {lines} lines, {LINES_MAX} are the most: give parts of it names"
        ));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn is_source(below: &Path) -> bool {
    let parts: Vec<_> =
        below.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    matches!(&parts[..], [crates, _, src, ..] if crates == "crates" && src == "src")
        && below.extension().is_some_and(|extension| extension == "rs")
}

/// All functions with a body, also those within others.
fn functions_of(text: &str) -> Vec<Function> {
    let code = code_of(text);
    let mut found = Vec::new();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    for (at, _) in text.match_indices("fn ") {
        if !code[at..].starts_with(b"fn ") || at > 0 && is_name(code[at - 1]) {
            continue;
        }
        let name: String =
            text[at + 3..].chars().take_while(|char| char.is_alphanumeric() || *char == '_').collect();
        if name.is_empty() {
            continue;
        }
        if let Some(end) = end_of_body(&code[at..]) {
            let lines = text[at..at + end].matches('\n').count() + 1;
            found.push(Function { name, lines });
        }
    }
    found
}

/// Behind the closing brace of what begins here; none when it has no body.
fn end_of_body(code: &[u8]) -> Option<usize> {
    let (mut braces, mut brackets) = (0usize, 0usize);
    for (at, byte) in code.iter().enumerate() {
        match byte {
            b'(' | b'[' if braces == 0 => brackets += 1,
            b')' | b']' if braces == 0 => brackets = brackets.saturating_sub(1),
            b';' if braces == 0 && brackets == 0 => return None,
            b'{' => braces += 1,
            b'}' => {
                braces = braces.checked_sub(1)?;
                if braces == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The text with comments, strings and characters as blanks, byte for byte.
fn code_of(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let length = match rest {
            [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
            [b'/', b'*', ..] => comment_length(rest),
            [b'"', ..] => string_length(rest),
            [b'r', b'"' | b'#', ..]
                if at == 0
                    || !bytes[at - 1].is_ascii_alphanumeric() && bytes[at - 1] != b'_'
                    || bytes[at - 1] == b'b' =>
            {
                raw_string_length(rest)
            }
            [b'\'', b'\\', ..] => {
                2 + rest[3..].iter().position(|byte| *byte == b'\'').map_or(0, |end| end + 2)
            }
            [b'\'', ..] => character_length(&text[at..]),
            _ => 0,
        };
        code[at..(at + length).min(bytes.len())]
            .iter_mut()
            .filter(|byte| **byte != b'\n')
            .for_each(|byte| *byte = b' ');
        at += length.max(1);
    }
    code
}

fn comment_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

fn string_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// 0 for a raw identifier.
fn raw_string_length(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let end: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = &rest[hashes + 2..];
    body.windows(end.len())
        .position(|window| window == end)
        .map_or(rest.len(), |at| hashes + 2 + at + end.len())
}

/// 0 for a lifetime.
fn character_length(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    let _character = chars.next();
    match chars.next() {
        Some((at, '\'')) => at + 1,
        _ => 0,
    }
}

#[test]
fn functions_are_counted_and_braces_in_texts_are_not() {
    let text = "impl<'a> X<'a> {\n    fn short(&'a self) -> [u8; 3] {\n        \"}\\\"{\"; '{'; '\\''; r#\"}\"#; b'}';\n    \
                }\n    fn declared(&self, f: fn(u64) -> u64);\n}\n// fn not {\nfn long<T>()\nwhere\n    T: Fn(),\n{\n    \
                /* } /* */ } */\n    fn within() {}\n}\n";
    let function = |name: &str, lines| Function { name: name.to_owned(), lines };
    assert_eq!(functions_of(text), [function("short", 3), function("long", 7), function("within", 1)]);
}
