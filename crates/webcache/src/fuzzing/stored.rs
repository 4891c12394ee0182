//! Data read from the disk: heads of stored replies, lists of variants, bans.

use http::{HeaderMap, Uri};
use http_cache_rules::Meta;
use http_cache_rules::key::CacheKey;

use crate::object_cache::{NewHead, StoredHead, encode_list, encode_reply};
use crate::server::Bans;

/// Attributes of an object, and a list of bans. Returns whether it is a head.
pub fn stored(bytes: &[u8]) -> bool {
    if let Ok(text) = std::str::from_utf8(bytes) {
        listed(text);
    }
    if let Ok(meta) = Meta::from_bytes(bytes) {
        assert_eq!(meta.to_bytes(), bytes, "facts are others when they are written again");
        let _never_panics = meta.answers(&HeaderMap::new(), &mut Vec::new());
    }
    match StoredHead::read(bytes) {
        Err(_) => false,
        Ok(StoredHead::Variants(list)) => {
            let Ok(StoredHead::Variants(again)) = StoredHead::read(&encode_list(&list)) else {
                panic!("a list of variants is none when it is written again");
            };
            assert_eq!(again.generation, list.generation);
            assert!(list.names.ends_with(&again.names), "the latest are kept");
            true
        }
        Ok(StoredHead::Reply { facts, .. }) => {
            let key = CacheKey::of(&Uri::from_static("http://a/")).expect("a key");
            let facts = bytes[facts].to_vec();
            let head = NewHead { key, meta: bytes.to_vec(), facts: facts.clone(), expires_s: 0 };
            let Some(fields) = head.fields() else { return false };
            let again = encode_reply(&facts, &fields.iter().collect::<Vec<_>>())
                .expect("what was as long was stored");
            let again = NewHead { meta: again, ..head };
            assert_eq!(
                again.fields().as_ref(),
                Some(&fields),
                "fields are others when they are written again"
            );
            true
        }
    }
}

/// Bans of an earlier run.
fn listed(text: &str) {
    let Ok(bans) = Bans::parse(text) else { return };
    let again = Bans::parse(&bans.text());
    let again = again.unwrap_or_else(|error| panic!("bans are none when they are written again: {error}"));
    assert_eq!(again.text(), bans.text());
    assert!(bans.count() <= text.lines().count());
}
