//! The facts of a stored reply in the object's meta bytes.

use http_cache_rules::facts::{TAG_BYTES_MAX, meta_bytes};
use http_cache_rules::{Meta, MetaError, Policy, StoredFacts};

use crate::fields;
use crate::storing::judged;

const REPLY: &str = "cache-control: max-age=60, stale-if-error=5|etag: W/\"a\"|last-modified: @-60|vary: foo, bar|content-length: 10";

fn bytes() -> Vec<u8> {
    let facts = judged("GET", "foo: 1", 200, REPLY, &Policy::default()).expect("stored");
    meta_bytes(facts, &fields(REPLY), &fields("foo: 1"))
}

#[test]
fn facts_come_back_as_they_were_written() {
    let bytes = bytes();
    let meta = Meta::from_bytes(&bytes).expect("facts");
    assert_eq!(meta.facts, judged("GET", "foo: 1", 200, REPLY, &Policy::default()).expect("stored"));
    assert_eq!(
        (meta.tag, meta.vary_names, meta.variant),
        (&b"W/\"a\""[..], &b"bar,foo"[..], &b"\x01\x001\0"[..])
    );
    assert_eq!(meta.to_bytes(), bytes);
}

#[test]
fn facts_are_small() {
    assert!(size_of::<StoredFacts>() <= 96, "{} bytes in memory", size_of::<StoredFacts>());
    let plain = "cache-control: max-age=60";
    let facts = judged("GET", "", 200, plain, &Policy::default()).expect("stored");
    assert_eq!(
        meta_bytes(facts, &fields(plain), &fields("")).len(),
        75,
        "bytes in the store, without tag and variant"
    );
}

#[test]
fn bytes_that_are_no_facts_are_told_apart_from_facts() {
    let good = bytes();
    for cut in 0..good.len() {
        assert!(matches!(Meta::from_bytes(&good[..cut]), Err(MetaError::Length { .. })), "cut at {cut}");
    }
    let mut long = good.clone();
    long.push(0);
    assert_eq!(Meta::from_bytes(&long), Err(MetaError::Length { bytes: good.len() + 1 }));
    // What is changed, where, to what.
    #[rustfmt::skip]
    let damages: [(&str, usize, &[u8], MetaError); 6] = [
        ("the version", 0, &[2], MetaError::Version { version: 2 }),
        ("the flags", 2, &[0x80], MetaError::Impossible { what: "flag" }),
        ("the tagged flag", 1, &[0], MetaError::Impossible { what: "entity tag" }),
        ("the status", 3, &[0, 0], MetaError::Impossible { what: "status" }),
        ("the first byte", 45, &[0xff; 8], MetaError::Impossible { what: "range" }),
        ("the total", 61, &[1, 0, 0, 0, 0, 0, 0, 0], MetaError::Impossible { what: "range" }),
    ];
    for (what, place, with, error) in damages {
        let mut damaged = good.clone();
        damaged[place..place + with.len()].copy_from_slice(with);
        assert_eq!(Meta::from_bytes(&damaged), Err(error), "{what}");
        assert!(error.to_string().ends_with("drop the object"), "{error}");
    }
}

#[test]
fn an_absurd_tag_is_no_tag() {
    let reply = format!("cache-control: max-age=60|etag: \"{}\"", "a".repeat(TAG_BYTES_MAX));
    let facts = judged("GET", "", 200, &reply, &Policy::default()).expect("stored");
    let bytes = meta_bytes(facts, &fields(&reply), &fields(""));
    assert_eq!(Meta::from_bytes(&bytes).expect("facts").tag, b"");
}
