//! What the rules cost of a hit: facts from meta bytes, the request's facts, the decision, conditions, range, Age; and
//! what the framing check costs of every request.
//!
//! `cargo bench -p http-cache-rules --bench hit`; runs once as a test (`cargo test --benches`).
#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_cache_rules::facts::meta_bytes;
use http_cache_rules::reuse::{Held, evaluate};
use http_cache_rules::{
    Exchange, Meta, Policy, RequestFacts, WallSeconds, conditional, forwarding, framing, judge, ranges,
};

const NOW: WallSeconds = WallSeconds(1_795_305_600);

fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers
}

/// As a browser asks.
const REQUEST: [(&str, &str); 6] = [
    ("host", "www.example.com"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("accept-language", "en-US,en;q=0.5"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("cookie", "session=abcdefghijklmnopqrstuvwxyz"),
];

/// As an origin answers, without Vary.
const REPLY: [(&str, &str); 6] = [
    ("date", "Sun, 22 Nov 2026 00:00:00 GMT"),
    ("cache-control", "public, max-age=3600, stale-while-revalidate=60"),
    ("last-modified", "Sun, 22 Nov 2026 00:00:00 GMT"),
    ("etag", "\"0123456789abcdef\""),
    ("content-type", "text/html; charset=utf-8"),
    ("content-length", "10700"),
];

fn hit(bench: &mut Criterion) {
    let policy = Policy::default();
    for (name, asked, varies) in [
        ("hit/plain", None, None),
        ("hit/if_none_match", Some(("if-none-match", "\"fedcba9876543210\", \"0123456789abcdef\"")), None),
        ("hit/vary_accept_encoding", None, Some(("vary", "Accept-Encoding"))),
    ] {
        let mut request = fields(&REQUEST);
        request.extend(fields(asked.as_slice()));
        let mut reply = fields(&REPLY);
        reply.extend(fields(varies.as_slice()));
        let target = "http://www.example.com/index.html".parse().expect("a target");
        let first = RequestFacts::of(&Method::GET, &request);
        let exchange = Exchange {
            target: &target,
            request: &first,
            request_headers: &request,
            requested_at: NOW,
            answered_at: NOW,
            status: StatusCode::OK,
            headers: &reply,
        };
        let bytes = meta_bytes(judge(&exchange, &policy).expect("stored"), &reply, &request);
        let mut scratch = Vec::new();
        bench.bench_function(name, |bench| {
            bench.iter(|| {
                let meta = Meta::from_bytes(black_box(&bytes)).expect("facts");
                assert!(meta.answers(&request, &mut scratch));
                let asked = RequestFacts::of(&Method::GET, black_box(&request));
                let decision = evaluate(&asked, Held::Reply(&meta.facts), &policy, WallSeconds(NOW.0 + 60));
                let outcome = conditional::evaluate(&request, &meta, NOW);
                let plan = asked.ranged.then(|| ranges::plan(&request, &meta, NOW));
                black_box((decision, outcome, plan, forwarding::age_value(60)))
            });
        });
        bench.bench_function(&name.replace("hit", "store"), |bench| {
            bench
                .iter(|| meta_bytes(judge(black_box(&exchange), &policy).expect("stored"), &reply, &request));
        });
    }
}

fn head(bench: &mut Criterion) {
    let lines: String = REQUEST.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("GET /index.html HTTP/1.1\r\n{lines}\r\n");
    bench.bench_function("framing/request", |bench| {
        bench.iter(|| framing::check_request(black_box(head.as_bytes())).expect("well formed"));
    });
}

criterion_group!(benches, hit, head);
criterion_main!(benches);
