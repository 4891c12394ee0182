//! What unsafe methods make doubtful (RFC 9111 section 4.4).

use http::{Method, StatusCode};
use http_cache_rules::invalidation::invalidated;
use http_cache_rules::request::MethodKind;

use crate::fields;

/// Section, method, status, reply's fields, keys.
#[rustfmt::skip]
const ROWS: &[(&str, &str, u16, &str, &[&str])] = &[
    ("9111 4.4 POST", "POST", 200, "", &["http://a.example/x/y"]),
    ("9111 4.4 PUT", "PUT", 204, "", &["http://a.example/x/y"]),
    ("9111 4.4 DELETE", "DELETE", 200, "", &["http://a.example/x/y"]),
    ("9111 4.4 PATCH", "PATCH", 200, "", &["http://a.example/x/y"]),
    ("9111 4.4 a method we do not know", "M-SEARCH", 200, "", &["http://a.example/x/y"]),
    ("9111 4.4 a redirection is no error", "POST", 303, "", &["http://a.example/x/y"]),
    ("9111 4.4 an error changed nothing", "POST", 500, "", &[]),
    ("9111 4.4 a refusal changed nothing", "DELETE", 404, "", &[]),
    ("9110 9.2.1 GET is safe", "GET", 200, "location: /z", &[]),
    ("9110 9.2.1 HEAD is safe", "HEAD", 200, "", &[]),
    ("9110 9.2.1 OPTIONS is safe", "OPTIONS", 200, "", &[]),
    ("9110 18.2 PROPFIND is safe", "PROPFIND", 207, "", &[]),
    ("9111 4.4 Location", "POST", 201, "location: /z", &["http://a.example/x/y", "http://a.example/z"]),
    ("9111 4.4 Content-Location", "PUT", 200, "content-location: z?q#f", &["http://a.example/x/y", "http://a.example/x/z?q"]),
    ("9111 4.4 both", "POST", 201, "location: /a|content-location: /b", &["http://a.example/x/y", "http://a.example/a", "http://a.example/b"]),
    ("9111 4.4 absolute, the same origin", "POST", 201, "location: HTTP://A.EXAMPLE:80/z", &["http://a.example/x/y", "http://a.example/z"]),
    ("9111 4.4 another host: no", "POST", 201, "location: http://b.example/z", &["http://a.example/x/y"]),
    ("9111 4.4 another port: no", "POST", 201, "location: http://a.example:81/z", &["http://a.example/x/y"]),
    ("9111 4.4 another scheme: no", "POST", 201, "location: https://a.example/z", &["http://a.example/x/y"]),
    ("9111 4.4 a host that begins alike: no", "POST", 201, "location: http://a.example.b/z", &["http://a.example/x/y"]),
    ("9111 4.4 itself once", "POST", 201, "location: y", &["http://a.example/x/y"]),
    ("9111 4.4 unreadable", "POST", 201, "location: http://[", &["http://a.example/x/y"]),
];

#[test]
fn unsafe_methods_invalidate_what_the_section_says() {
    let target = "http://a.example/x/y".parse().expect("a target");
    for (section, method, status, reply, keys) in ROWS {
        let method = MethodKind::of(&Method::from_bytes(method.as_bytes()).expect("a method"));
        let found =
            invalidated(method, &target, StatusCode::from_u16(*status).expect("a status"), &fields(reply));
        let found: Vec<&str> = found.iter().map(|key| key.as_str()).collect();
        assert_eq!(found, *keys, "{section}: {reply}");
    }
}
