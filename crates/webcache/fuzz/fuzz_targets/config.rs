//! Feeds it whatever libfuzzer thinks of.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    webcache::fuzzing::configuration(input);
});
