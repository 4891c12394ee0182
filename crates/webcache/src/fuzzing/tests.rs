//! Bytes of peers, of the disk and of the operator, changed, cut and put together again: the fuzz targets' functions on the
//! fuzz targets' seeds (`fuzz/seeds`). `make fuzz` runs them for longer, and with coverage to guide it.

use std::path::Path;

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::fuzzing;

/// What makes the difference in one grammar or another.
const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b"\0",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"=",
    b"\"",
    b"\\",
    b"/",
    b"?",
    b"#",
    b"%",
    b"%2",
    b"%41",
    b"@",
    b"..",
    b"*",
    b"-",
    b"0",
    b"1",
    b"ffffffffffffffff",
    b"9223372036854775807",
    b"18446744073709551615",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"chunked",
    b"max-age=1",
    b"no-cache=\"a\"",
    b"private",
    b"bytes=",
    b"<img srcset=",
    b"<script>",
    b"-->",
    b"[[site]]\n",
    b"\xff",
];

/// Each seed as it is, then changed in a few places again and again, always in the same way. How much of it all was good.
fn hostile<N: Into<usize>>(target: &str, rounds: usize, read: impl Fn(&[u8]) -> N) -> usize {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut files: Vec<_> =
        directory.read_dir().expect("seeds").map(|file| file.expect("a file").path()).collect();
    files.sort();
    let seeds: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).expect("a seed")).collect();
    let mut good: usize = seeds.iter().map(|seed| read(seed).into()).sum();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(17);
    for round in 0..rounds {
        let mut bytes = seeds[round % seeds.len()].clone();
        for _ in 0..random.random_range(1..6) {
            let at = random.random_range(0..=bytes.len());
            match random.random_range(0..7) {
                0 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
                1 if at < bytes.len() => bytes[at] = random.random(),
                2 => bytes.truncate(at),
                3 => {
                    let end = random.random_range(at..=bytes.len());
                    drop(bytes.drain(at..end));
                }
                4 => {
                    // A piece of another one, or of itself.
                    let other = &seeds[random.random_range(0..seeds.len())];
                    let from = random.random_range(0..other.len());
                    let to = random.random_range(from..=other.len().min(from + 60));
                    bytes.splice(at..at, other[from..to].iter().copied());
                }
                _ => {
                    let word = WORDS[random.random_range(0..WORDS.len())];
                    let end = if random.random() { at } else { (at + word.len()).min(bytes.len()) };
                    bytes.splice(at..end, word.iter().copied());
                }
            }
        }
        let read = std::panic::AssertUnwindSafe(|| read(&bytes));
        good += std::panic::catch_unwind(read).map(N::into).unwrap_or_else(|panic| {
            let what = panic.downcast_ref::<String>().map(String::as_str);
            let what = what.or(panic.downcast_ref().copied()).unwrap_or("it panicked");
            panic!("{target}, round {round}: {what}\n{}", bytes.escape_ascii());
        });
    }
    good
}

#[test]
fn requests_mean_the_same_to_the_request_guard_a_strict_reader_and_hyper_however_they_are_written_and_cut() {
    let whole = hostile("connection", 20_000, fuzzing::connection);
    assert!(whole > 3_000, "hardly anything passes: {whole}");
}

#[test]
fn fields_of_any_exchange_are_read_alike_and_judged_by_the_rules() {
    let stored = hostile("exchange", 20_000, fuzzing::exchange);
    assert!(stored > 1_000, "hardly anything may be stored: {stored}");
}

#[test]
fn any_target_has_one_key_that_is_its_own_key_and_is_banned_by_its_beginning() {
    let keys = hostile("url", 40_000, fuzzing::url);
    assert!(keys > 10_000, "hardly anything has a key: {keys}");
}

#[test]
fn any_datagram_is_a_message_that_can_be_said_again_or_none() {
    let read = hostile("datagram", 40_000, fuzzing::datagram);
    assert!(read > 1_000, "hardly anything is read: {read}");
}

#[test]
fn any_bytes_on_the_disk_are_a_head_that_can_be_written_again_or_none() {
    let read = hostile("stored", 40_000, fuzzing::stored);
    assert!(read > 1_000, "hardly anything is read: {read}");
}

#[test]
fn of_any_page_no_more_is_fetched_than_may_be() {
    let found = hostile("page", 10_000, fuzzing::embedded);
    assert!(found > 1_000, "hardly anything is found: {found}");
}

#[test]
fn any_text_is_a_configuration_that_is_printed_as_itself_or_refused_with_a_reason() {
    let read = hostile("config", 3_000, fuzzing::configuration);
    assert!(read > 20, "hardly anything is read: {read}");
}
