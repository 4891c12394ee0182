//! http-cache-semantics, asked the same questions: a second opinion that is sometimes wrong. Every case in which it
//! serves and the rules do not, or the other way round, must be one of [`DISAGREEMENTS`], each with the section that
//! decides; and each of them must come up, so that none outlives its cause.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_cache_rules::reuse::{Held, evaluate};
use http_cache_rules::{
    Exchange, Policy, RequestDirectives, RequestFacts, ResponseDirectives, Reuse, WallSeconds, freshness,
    judge,
};
use http_cache_semantics::{BeforeRequest, CacheOptions, CachePolicy};

use crate::{NOW, fields};

/// One question: a reply stored, and a request some time later.
struct Case {
    status: u16,
    reply: HeaderMap,
    request: HeaderMap,
    later_s: i64,
}

impl Case {
    fn said(&self) -> ResponseDirectives {
        ResponseDirectives::of(&self.reply, &[])
    }

    fn asked(&self) -> RequestDirectives {
        RequestDirectives::of(&self.request)
    }

    /// The reply's Cache-Control, a bar before each directive.
    fn text(&self) -> String {
        let lines = self.reply.get_all("cache-control").iter();
        lines.map(|line| format!("|{}", line.to_str().expect("ASCII"))).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.reply.contains_key(name)
    }
}

/// What is looked at, the section that decides, and whether a case is of this kind.
type Disagreement = (&'static str, &'static str, fn(&Case) -> bool);

const DISAGREEMENTS: &[Disagreement] = &[
    ("a fresh proxy-revalidate is fresh", "RFC 9111 section 5.2.2.8", |case| case.said().proxy_revalidate),
    ("max-stale does not override no-cache", "RFC 9111 section 5.2.2.4", |case| {
        case.said().no_cache && case.asked().max_stale.is_some()
    }),
    ("max-stale does not override s-maxage", "RFC 9111 section 5.2.2.10", |case| {
        case.said().s_maxage.is_some() && case.asked().max_stale.is_some()
    }),
    ("a second past the lifetime is within max-stale=1", "RFC 9111 section 5.2.1.2", |case| {
        case.asked().max_stale.is_some_and(|most| most < u32::MAX)
    }),
    ("no-cache with fields is not no-cache", "RFC 9111 section 5.2.2.4", |case| case.said().no_cache_fields),
    ("private with fields is not private", "RFC 9111 section 5.2.2.7", |case| case.said().private_fields),
    ("must-understand sets no-store aside", "RFC 9111 section 5.2.2.3", |case| {
        case.said().must_understand && case.said().no_store
    }),
    ("a status need not be known to be stored", "RFC 9111 section 3", |case| {
        [206, 299, 403, 500].contains(&case.status)
    }),
    ("two lifetimes that differ are none", "RFC 9111 section 4.2.1", |case| {
        ["max-age", "s-maxage"].iter().any(|name| case.text().matches(&format!("|{name}=")).count() > 1)
    }),
    ("names have no regard to case", "RFC 9111 section 5.2", |case| case.text().contains("MAX-AGE")),
    ("Date tells the age as well", "RFC 9111 section 4.2.3", |case| {
        freshness::made_at(&case.reply, NOW) < NOW
    }),
    ("immutable gives no lifetime", "RFC 8246 section 2", |case| case.said().immutable),
    ("a reply's Pragma means nothing", "RFC 9111 section 5.4", |case| case.has("pragma")),
    ("a request's Pragma does not count beside Cache-Control", "RFC 9111 section 5.4", |case| {
        case.request.contains_key("pragma") && case.request.contains_key("cache-control")
    }),
    ("max-age=0 reloads in the first second too", "RFC 9111 section 5.2.1.1", |case| {
        case.asked().max_age == Some(0)
    }),
    ("s-maxage tells that cookies may be stored", "RFC 9111 section 7.3, left open", |case| {
        case.has("set-cookie")
    }),
    ("stale-while-revalidate", "RFC 5861 section 3", |case| case.said().stale_while_revalidate.is_some()),
    ("what can neither be fresh nor validated is not stored", "RFC 9111 section 3, left open", |case| {
        let validator = case.has("etag") || case.has("last-modified");
        !validator && case.asked().max_stale.is_some()
    }),
    ("white space in a varying field's list does not count", "RFC 9111 section 4.1", |case| {
        case.has("vary") && case.request.get("foo").is_some_and(|value| value == "1, 2")
    }),
];

/// A small generator: the same cases each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn one_of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.roll(choices.len())]
    }

    fn case(&mut self) -> Case {
        const REPLY: [&str; 20] = [
            "max-age=60",
            "max-age=60",
            "max-age=0",
            "max-age=99999999999",
            "s-maxage=60",
            "s-maxage=5",
            "no-store",
            "no-cache",
            "private",
            "public",
            "must-revalidate",
            "proxy-revalidate",
            "immutable",
            "must-understand",
            "no-cache=\"a\"",
            "private=\"a\"",
            "MAX-AGE=60",
            "stale-while-revalidate=30",
            "foo",
            "max-age=x",
        ];
        const REQUEST: [&str; 9] = [
            "no-cache",
            "no-store",
            "max-age=0",
            "max-age=30",
            "max-stale",
            "max-stale=1",
            "max-stale=60",
            "min-fresh=30",
            "only-if-cached",
        ];
        let mut reply: Vec<String> =
            (0..self.roll(3)).map(|_| format!("cache-control: {}", self.one_of(&REPLY))).collect();
        for (lines, sides) in [
            (["expires: @60", "expires: @-60"], 8),
            (["last-modified: @-1000", "last-modified: @-100"], 4),
            (["date: @0", "date: @-40"], 6),
            (["age: 20", "age: 70"], 8),
            (["etag: \"a\"", "etag: W/\"a\""], 5),
            (["set-cookie: a=b", "pragma: no-cache"], 16),
            (["vary: foo", "vary: *"], 10),
        ] {
            reply.extend(lines.get(self.roll(sides)).map(|line| (*line).to_owned()));
        }
        let mut request = Vec::new();
        for (lines, sides) in [(["foo: 1,2", "foo: 1, 2"], 6), (["pragma: no-cache", "authorization: x"], 12)]
        {
            request.extend(lines.get(self.roll(sides)).map(|line| (*line).to_owned()));
        }
        if self.roll(2) == 0 {
            request.push(format!("cache-control: {}", self.one_of(&REQUEST)));
        }
        let status = [200, 200, 200, 206, 299, 301, 302, 403, 404, 500][self.roll(10)];
        let later_s = [0, 1, 29, 30, 59, 60, 61, 100, 120, 100_000][self.roll(10)];
        Case { status, reply: fields(&reply.join("|")), request: fields(&request.join("|")), later_s }
    }
}

/// The request that brought the reply: without the directives of the later one.
fn first_request(case: &Case) -> HeaderMap {
    let mut first = case.request.clone();
    first.remove("cache-control");
    first.remove("pragma");
    if first.contains_key("foo") {
        first.insert("foo", http::HeaderValue::from_static("1,2"));
    }
    first
}

fn ours(case: &Case) -> bool {
    let first = first_request(case);
    let status = StatusCode::from_u16(case.status).expect("a status");
    let exchange = Exchange {
        target: &"http://a.example/".parse().expect("a target"),
        request: &RequestFacts::of(&Method::GET, &first),
        request_headers: &first,
        requested_at: NOW,
        answered_at: NOW,
        status,
        headers: &case.reply,
    };
    let Ok(facts) = judge(&exchange, &Policy::default()) else { return false };
    let request = RequestFacts::of(&Method::GET, &case.request);
    let decision =
        evaluate(&request, Held::Reply(&facts), &Policy::default(), WallSeconds(NOW.0 + case.later_s));
    matches!(decision, Reuse::Serve { .. } | Reuse::ServeStaleWhileRevalidate { .. })
}

fn theirs(case: &Case) -> bool {
    let request = |headers: HeaderMap| {
        let mut request = Request::builder().uri("http://a.example/").body(()).expect("a request");
        *request.headers_mut() = headers;
        request
    };
    let mut reply = Response::builder().status(case.status).body(()).expect("a reply");
    *reply.headers_mut() = case.reply.clone();
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW.0.unsigned_abs());
    let policy =
        CachePolicy::new_options(&request(first_request(case)), &reply, then, CacheOptions::default());
    let later = then + Duration::from_secs(case.later_s.unsigned_abs());
    policy.is_storable()
        && matches!(policy.before_request(&request(case.request.clone()), later), BeforeRequest::Fresh(_))
}

#[test]
fn where_a_second_opinion_differs_a_section_decides() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut seen: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let (mut agreed, mut serve, mut unexplained) = (0, 0, Vec::new());
    for _ in 0..60_000 {
        let case = dice.case();
        let (ours, theirs) = (ours(&case), theirs(&case));
        serve += usize::from(ours);
        if ours == theirs {
            agreed += 1;
            continue;
        }
        let reasons: Vec<&str> =
            DISAGREEMENTS.iter().filter(|(_, _, is)| is(&case)).map(|(what, ..)| *what).collect();
        if reasons.is_empty() {
            let we = if ours { "we serve, they do not" } else { "they serve, we do not" };
            unexplained.push(format!(
                "{we}: {} {:?} after {} s {:?}",
                case.status, case.reply, case.later_s, case.request
            ));
        }
        for reason in &reasons {
            let (all, alone) = seen.entry(reason).or_default();
            *all += 1;
            *alone += usize::from(reasons.len() == 1);
        }
    }
    assert!(
        agreed > 40_000 && serve > 5_000,
        "{agreed} agreed, {serve} served: the cases say too little\n{seen:#?}"
    );
    assert!(
        unexplained.is_empty(),
        "{} unexplained, such as {:#?}",
        unexplained.len(),
        &unexplained[..unexplained.len().min(9)]
    );
    for (what, section, _) in DISAGREEMENTS {
        let alone = seen.get(what).map_or(0, |(_, alone)| *alone);
        assert!(alone > 0, "{what} ({section}) explains nothing by itself any more: take it out\n{seen:#?}");
    }
}
