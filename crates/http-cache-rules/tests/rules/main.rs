//! The caching rules as tables: one row a rule, with the section that decides; and the rules as one whole, driven by
//! a proxy made of nothing but them (`proxy`).

mod cache_control;
mod completion;
mod conditional;
mod dates;
mod decide;
mod facts;
mod forwarding;
mod framing;
mod freshness;
mod invalidation;
mod keys;
mod properties;
mod proxy;
mod public_suite;
mod ranges;
mod response;
mod reuse;
mod scenarios;
mod second_opinion;
mod storing;
mod update;
mod vary;

use http::{HeaderMap, HeaderName, HeaderValue};
use http_cache_rules::WallSeconds;

/// The tests' now: 2026-11-22, 00:00:00.
pub const NOW: WallSeconds = WallSeconds(1_795_305_600);

/// Fields from `name: value` lines divided by `|`. A value of `@-30` is an HTTP-date 30 seconds before [`NOW`].
pub fn fields(text: &str) -> HeaderMap {
    fields_at(text, NOW)
}

/// The same, dates counted from `now`.
pub fn fields_at(text: &str, now: WallSeconds) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in text.split('|').filter(|line| !line.trim().is_empty()) {
        let (name, value) = line.split_once(':').expect("name: value");
        let value = value.strip_prefix(' ').unwrap_or(value);
        let value = match value.strip_prefix('@') {
            Some(seconds) => date(WallSeconds(now.0 + seconds.parse::<i64>().expect("seconds"))),
            None => value.to_owned(),
        };
        let name = HeaderName::from_bytes(name.trim().as_bytes()).expect("a field's name");
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("a field's value"));
    }
    headers
}

/// An HTTP-date.
pub fn date(at: WallSeconds) -> String {
    String::from_utf8(http_cache_rules::date::format(at).to_vec()).expect("ASCII")
}
