//! No test waits for the clock: it waits for an event or a condition, or its clock is a made-up one. The few that must
//! sleep are listed with the reason; the list only shrinks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{project_files, root};

/// Files that sleep in tests: file, how often, why there is nothing else to wait for.
const SLEEPERS: &[(&str, usize, &str)] = &[
    (
        "crates/stackfs/tests/it/watching.rs",
        7,
        "time-outs of the kernel's cache are under test, and nothing reports that it has dropped something",
    ),
    (
        "crates/stackfs/tests/lost_changes.rs",
        1,
        "between two looks at whether the kernel has dropped what it cached",
    ),
    ("crates/sys/src/arrivals.rs", 1, "the kernel's own clock is under test: bytes lie for a while"),
    ("crates/testkit/src/ganesha.rs", 2, "between two looks at whether the server is ready, or has ended"),
    ("crates/testkit/src/inn/server.rs", 2, "between two looks at whether the server is ready, or has ended"),
    ("crates/testkit/src/slow_fuse.rs", 1, "the volume's own delay is what the fixture is for"),
    (
        "crates/webcache/tests/server/framing.rs",
        6,
        "five slow clients, on real sockets; the kernel tells nothing when a socket takes no more",
    ),
    ("crates/webcache/tests/server/slow_misses.rs", 2, "an origin that takes its time, on real sockets"),
    ("crates/webcache/tests/server/tls.rs", 2, "slow clients of HTTP/2, on real sockets"),
    ("crates/webload/tests/direct.rs", 1, "an origin that sends no reply: what sleeps is not waited for"),
];

#[test]
fn no_test_sleeps_but_those_listed_with_a_reason() {
    let mut sleepers: BTreeMap<String, usize> = BTreeMap::new();
    let mut tests = 0;
    for path in project_files() {
        let below = path.strip_prefix(root()).expect("below the root");
        if below.extension().is_none_or(|extension| extension != "rs") || below.ends_with("house/waits.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let code = test_code(below, &text);
        tests += code.matches("#[test]").count();
        let sleeps = sleeps(code);
        if sleeps > 0 {
            sleepers.insert(below.display().to_string(), sleeps);
        }
    }
    assert!(tests > 1000, "only {tests} tests were found");
    let mut wrong = Vec::new();
    for (file, listed, reason) in SLEEPERS {
        assert!(reason.len() > 10, "{file}: no reason is given");
        let found = sleepers.remove(*file).unwrap_or(0);
        if found < *listed {
            wrong.push(format!("{file}: sleeps {found} times and not {listed} any more: correct the list"));
        } else if found > *listed {
            wrong.push(format!("{file}: sleeps {found} times, {listed} are listed: wait for a condition"));
        }
    }
    for (file, found) in sleepers {
        wrong.push(format!("{file}: sleeps {found} times in tests: wait for an event or a condition"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What of a file is test code.
fn test_code<'a>(below: &Path, text: &'a str) -> &'a str {
    let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
    let all = parts.iter().any(|part| part == "tests" || part == "tests.rs" || part == "testkit");
    let from = if all { Some(0) } else { text.find("#[cfg(test)]\nmod tests {") };
    from.map_or("", |from| &text[from..])
}

/// Sleeps by a real clock: tokio's paused one passes at once.
fn sleeps(code: &str) -> usize {
    let real = code.matches("thread::sleep(").count();
    let paused = code.contains("start_paused = true") || code.contains(".start_paused(true)");
    real + if paused { 0 } else { code.matches("time::sleep(").count() }
}

#[test]
fn sleeps_are_found_in_tests_and_not_beside_them() {
    let of = |file: &str, text: &str| sleeps(test_code(Path::new(file), text));
    let beside = "fn retry() { std::thread::sleep(PAUSE); }\n";
    let within = format!("{beside}#[cfg(test)]\nmod tests {{ fn test() {{ std::thread::sleep(LONG); }} }}\n");
    assert_eq!(of("crates/a/src/b.rs", beside), 0);
    assert_eq!(of("crates/a/src/b.rs", &within), 1);
    assert_eq!(of("crates/a/tests/it/b.rs", &within), 2);
    assert_eq!(of("crates/a/src/b/tests.rs", "tokio::time::sleep(LONG).await"), 1);
    assert_eq!(of("crates/a/tests/b.rs", "#[tokio::test(start_paused = true)] tokio::time::sleep(LONG)"), 0);
}
