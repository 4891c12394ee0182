//! The cache's key, and references found in replies (RFC 9110 section 4.2.3, RFC 3986).

use http::Uri;
use http_cache_rules::key::{CacheKey, KeyError, Realm, prefix, resolve};

/// Section, target, key.
#[rustfmt::skip]
const KEYS: &[(&str, &str, &str)] = &[
    ("9110 4.2.3 as it is", "http://a.example/x?y=1", "http://a.example/x?y=1"),
    ("9110 4.2.3 case of scheme and host", "HTTP://A.Example/X", "http://a.example/X"),
    ("9110 4.2.3 the default port", "http://a.example:80/", "http://a.example/"),
    ("9110 4.2.3 the default port of https", "https://a.example:443/", "https://a.example/"),
    ("9110 4.2.3 another port", "http://a.example:443/", "http://a.example:443/"),
    ("9110 4.2.3 an empty port", "http://a.example:/", "http://a.example/"),
    ("9110 4.2.3 an empty path", "http://a.example", "http://a.example/"),
    ("9110 4.2.3 an empty path with a query", "http://a.example?y", "http://a.example/?y"),
    ("9110 4.2.3 escapes of letters", "http://a.example/%7Ea%41", "http://a.example/~aA"),
    ("9110 4.2.3 small digits of escapes", "http://a.example/%c3%bc", "http://a.example/%C3%BC"),
    ("3986 2.2 escapes of reserved letters stay", "http://a.example/a%2Fb", "http://a.example/a%2Fb"),
    ("3986 2.4 an escaped percent sign stays", "http://a.example/%2541", "http://a.example/%2541"),
    ("3986 2.1 a percent sign that escapes nothing stays", "http://a.example/100%", "http://a.example/100%"),
    ("3986 2.1 nor does it make an escape with what is unescaped", "http://a.example/%2%35", "http://a.example/%2%35"),
    ("3986 2.1 nor does a sign alone", "http://a.example/%%32%35", "http://a.example/%%325"),
    ("3986 2.1 nor this", "http://a.example/%zz%4", "http://a.example/%zz%4"),
    ("3986 2.1 what is further off is unescaped all the same", "http://a.example/%41/%zz%41", "http://a.example/A/%zzA"),
    ("9111 2 order of the query stays", "http://a.example/?b=2&a=1", "http://a.example/?b=2&a=1"),
    ("9111 2 an empty query is one", "http://a.example/?", "http://a.example/?"),
    ("9111 2 dots in the path stay", "http://a.example/a/../b/./c", "http://a.example/a/../b/./c"),
    ("9111 2 slashes stay", "http://a.example//a//", "http://a.example//a//"),
    ("3986 3.2.2 an address", "http://[::1]:8080/", "http://[::1]:8080/"),
    ("3986 3.2.2 a dot behind the host is another name", "http://a.example./", "http://a.example./"),
];

#[test]
fn one_uri_has_one_key() {
    for (section, target, key) in KEYS {
        let target: Uri = target.parse().expect("a target");
        assert_eq!(CacheKey::of(&target).expect("a key").as_str(), *key, "{section}");
    }
    for (target, error) in [
        ("/x", KeyError::NotAbsolute),
        ("a.example:80", KeyError::NotAbsolute),
        ("ftp://a.example/", KeyError::Scheme),
        ("http://me:pw@a.example/", KeyError::UserInfo),
        ("http://a.example:80;/", KeyError::Port),
        ("http://a.example:+80/", KeyError::Port),
        ("http://a.example:65536/", KeyError::Port),
        ("http://a.example:x", KeyError::Port),
        ("https://[::1]:44;?x", KeyError::Port),
        ("http://[;:1]/", KeyError::Host),
        ("http://:80/", KeyError::Host),
        ("http://[::1%25eth0]/", KeyError::Host),
        ("http://a.example[]/", KeyError::Host),
        ("http://a.example[]:8080/", KeyError::Host),
        ("http://a[.]example/", KeyError::Host),
    ] {
        assert_eq!(
            CacheKey::of(&target.parse().expect("a target")),
            Err(error),
            "RFC 9110 section 4.2: {target}"
        );
    }
}

/// The examples of RFC 3986 section 5.4, as far as they are of http, their fragments off and with our own host.
#[rustfmt::skip]
const REFERENCES: &[(&str, &str)] = &[
    ("g", "http://a/b/c/g"),
    ("./g", "http://a/b/c/g"),
    ("g/", "http://a/b/c/g/"),
    ("/g", "http://a/g"),
    ("//g", "http://g/"),
    ("?y", "http://a/b/c/d;p?y"),
    ("g?y", "http://a/b/c/g?y"),
    ("#s", "http://a/b/c/d;p?q"),
    ("g#s", "http://a/b/c/g"),
    (";x", "http://a/b/c/;x"),
    ("", "http://a/b/c/d;p?q"),
    (".", "http://a/b/c/"),
    ("./", "http://a/b/c/"),
    ("..", "http://a/b/"),
    ("../", "http://a/b/"),
    ("../g", "http://a/b/g"),
    ("../..", "http://a/"),
    ("../../g", "http://a/g"),
    ("../../../g", "http://a/g"),
    ("/./g", "http://a/g"),
    ("/../g", "http://a/g"),
    ("g.", "http://a/b/c/g."),
    (".g", "http://a/b/c/.g"),
    ("g..", "http://a/b/c/g.."),
    ("./../g", "http://a/b/g"),
    ("./g/.", "http://a/b/c/g/"),
    ("g/./h", "http://a/b/c/g/h"),
    ("g/../h", "http://a/b/c/h"),
    ("g?y/./x", "http://a/b/c/g?y/./x"),
    ("http://b/x", "http://b/x"),
];

#[test]
fn references_resolve_as_in_the_examples_of_rfc_3986_section_5_4() {
    let base: Uri = "http://a/b/c/d;p?q".parse().expect("a base");
    for (reference, key) in REFERENCES {
        let resolved = resolve(&base, reference.as_bytes());
        assert_eq!(resolved.as_ref().map(CacheKey::as_str), Some(*key), "{reference}");
    }
    for none in ["g:h", "mailto:x@y", "http://u@a/", "\u{0}", "http://"] {
        assert_eq!(resolve(&base, none.as_bytes()), None, "{none}");
    }
    assert_eq!(resolve(&base, b"\xff"), None);
}

#[test]
fn a_prefix_is_spelt_as_the_keys_are_that_it_is_to_match() {
    #[rustfmt::skip]
    let rows = [
        ("HTTP://A.Example/Img", "http://a.example/Img"),
        ("http://a.example:80/img", "http://a.example/img"),
        ("https://a.example:443/img", "https://a.example/img"),
        ("http://a.example:8080/", "http://a.example:8080/"),
        ("http://a.example:80", "http://a.example"),
        ("http://a.example:080/x", "http://a.example/x"),
        ("http://a.example:08/x", "http://a.example:8/x"),
        ("http://[::1]/x", "http://[::1]/x"),
        ("http://a.exam", "http://a.exam"),
        ("http://a.example?y=1", "http://a.example/?y=1"),
        ("http://a.example/%7eb/%c3", "http://a.example/~b/%C3"),
        ("http://a.example/%7eb/%c", "http://a.example/~b/"),
        ("http://a.example/b%", "http://a.example/b"),
        ("http://a.example/%41/%zz%41", "http://a.example/A/%zzA"),
        ("HTTP", "http"),
        ("", ""),
    ];
    for (text, key) in rows {
        assert_eq!(prefix(text), key, "{text}");
    }
}

#[test]
fn a_site_s_key_is_not_that_of_the_web_for_the_same_uri() {
    let key = CacheKey::of(&"http://a.example/".parse().expect("a target")).expect("a key");
    assert_ne!(key.clone().within(Realm::Sites), key);
    assert_eq!(key.clone().within(Realm::Sites).within(Realm::Web), key);
}
