//! Feeds it whatever libfuzzer thinks of.
#![no_main]

#[path = "../entry.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|input: &[u8]| entry::index(input));
