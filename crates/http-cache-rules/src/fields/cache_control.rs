//! Cache-Control of replies and requests (RFC 9111 section 5.2), and Pragma (5.4).
//!
//! Always holds: names are case-insensitive. Arguments may be quoted or not. An invalid or contradictory lifetime is 0 (RFC 9111
//! section 4.2.1). Unknown directives are skipped. A `no-cache` or `private` with an invalid list of fields counts as one without
//! a list. A line with an unclosed quote counts as `no-store`, in a request as `no-cache` too: the quote may hide either.
//! Not here: what the directives lead to (`storing`, `freshness`, `reuse`).

use http::header::{CACHE_CONTROL, HeaderMap, PRAGMA};
use http::{HeaderName, HeaderValue};

use super::lists::{self, DELTA_MAX, Directive, all_members, delta_seconds, directive};

/// The directives of a reply's Cache-Control, or of the targeted field that replaces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseDirectives {
    /// Do not store (5.2.2.5).
    pub no_store: bool,
    /// Validate before every use (5.2.2.4); the form without fields.
    pub no_cache: bool,
    /// The form with fields: do not use those without validation.
    pub no_cache_fields: bool,
    /// For one user (5.2.2.7), the form without fields.
    pub private: bool,
    /// The form with fields: do not store those.
    pub private_fields: bool,
    /// May be stored even if other rules forbid it (5.2.2.9).
    pub public: bool,
    /// Never serve stale (5.2.2.2).
    pub must_revalidate: bool,
    /// The same for shared caches (5.2.2.8).
    pub proxy_revalidate: bool,
    /// Store only if the status is understood, and then in spite of no-store (5.2.2.3).
    pub must_understand: bool,
    /// Does not change while fresh (RFC 8246).
    pub immutable: bool,
    /// Seconds (5.2.2.1). Invalid or contradictory: 0.
    pub max_age: Option<u32>,
    /// Seconds, for shared caches (5.2.2.10). Invalid or contradictory: 0.
    pub s_maxage: Option<u32>,
    /// Seconds past its lifetime for which it may be served while it is revalidated (RFC 5861 section 3).
    pub stale_while_revalidate: Option<u32>,
    /// Seconds past its lifetime for which it may stand in for an error (RFC 5861 section 4).
    pub stale_if_error: Option<u32>,
    /// A targeted field was used, so that Expires is ignored (RFC 9213 section 2.2).
    pub targeted: bool,
}

impl ResponseDirectives {
    /// From the first of `targets` that is present and valid, else from Cache-Control.
    pub fn of(headers: &HeaderMap, targets: &[HeaderName]) -> Self {
        let targeted = targets.iter().find_map(|target| crate::fields::targeted::directives(headers, target));
        targeted.unwrap_or_else(|| {
            let mut found = Self::default();
            all_members(headers, &CACHE_CONTROL).for_each(|member| found.add(directive(member)));
            if has_hidden_members(headers) {
                // must-understand allows what no-store forbids.
                (found.no_store, found.must_understand) = (true, false);
            }
            found
        })
    }

    /// Whether a shared cache must not serve this reply stale; s-maxage implies that (5.2.2.10).
    pub fn forbids_stale(&self) -> bool {
        self.no_cache || self.must_revalidate || self.proxy_revalidate || self.s_maxage.is_some()
    }

    fn add(&mut self, Directive { name, argument, malformed }: Directive<'_>) {
        let seconds = argument.filter(|_| !malformed).and_then(delta_seconds);
        let listed = argument.is_some_and(|fields| !malformed && field_names(fields).is_some());
        match () {
            () if name.eq_ignore_ascii_case(b"no-store") => self.no_store = true,
            () if name.eq_ignore_ascii_case(b"no-cache") && listed => self.no_cache_fields = true,
            () if name.eq_ignore_ascii_case(b"no-cache") => self.no_cache = true,
            () if name.eq_ignore_ascii_case(b"private") && listed => self.private_fields = true,
            () if name.eq_ignore_ascii_case(b"private") => self.private = true,
            () if name.eq_ignore_ascii_case(b"public") => self.public = true,
            () if name.eq_ignore_ascii_case(b"must-revalidate") => self.must_revalidate = true,
            () if name.eq_ignore_ascii_case(b"proxy-revalidate") => self.proxy_revalidate = true,
            () if name.eq_ignore_ascii_case(b"must-understand") => self.must_understand = true,
            () if name.eq_ignore_ascii_case(b"immutable") => self.immutable = true,
            () if name.eq_ignore_ascii_case(b"max-age") => lifetime(&mut self.max_age, seconds),
            () if name.eq_ignore_ascii_case(b"s-maxage") => lifetime(&mut self.s_maxage, seconds),
            () if name.eq_ignore_ascii_case(b"stale-while-revalidate") => {
                lifetime(&mut self.stale_while_revalidate, seconds);
            }
            () if name.eq_ignore_ascii_case(b"stale-if-error") => lifetime(&mut self.stale_if_error, seconds),
            () => {}
        }
    }
}

/// Whether an unclosed quote takes members of Cache-Control into it.
fn has_hidden_members(headers: &HeaderMap) -> bool {
    headers.get_all(CACHE_CONTROL).iter().any(|line| lists::has_open_quote(line.as_bytes()))
}

/// Lifetimes that differ count as 0 (RFC 9111 section 4.2.1 allows the first, or treating the reply as stale).
fn lifetime(held: &mut Option<u32>, said: Option<u32>) {
    *held = Some(match (*held, said) {
        (None, Some(seconds)) => seconds,
        (Some(first), Some(second)) if first == second => first,
        _ => 0,
    });
}

/// The fields of `no-cache="a, b"` or `private=a`; `None` when there are none or one is invalid.
pub fn field_names(argument: &[u8]) -> Option<Vec<HeaderName>> {
    let named = lists::members(argument).map(|field| HeaderName::from_bytes(field).ok());
    named.collect::<Option<Vec<_>>>().filter(|fields| !fields.is_empty())
}

/// Fields that Cache-Control forbids to store, or to use without validation: those of every qualified `private` and `no-cache`.
pub fn withheld_fields(headers: &HeaderMap) -> Vec<HeaderName> {
    let qualified = all_members(headers, &CACHE_CONTROL).map(directive).filter(|directive| {
        directive.name.eq_ignore_ascii_case(b"private") || directive.name.eq_ignore_ascii_case(b"no-cache")
    });
    qualified.filter_map(|directive| field_names(directive.argument?)).flatten().collect()
}

/// The directives of a request's Cache-Control, or of its Pragma.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// Go to the origin (5.2.1.4); also for `Pragma: no-cache` without Cache-Control (5.4).
    pub no_cache: bool,
    /// Do not store the reply (5.2.1.5).
    pub no_store: bool,
    /// Answer from the store or with 504 (5.2.1.7).
    pub only_if_cached: bool,
    /// Greatest age in seconds (5.2.1.1). Invalid: 0. Of several: the least.
    pub max_age: Option<u32>,
    /// Greatest staleness in seconds (5.2.1.2), unlimited without an argument. Invalid: ignored. Of several: the least.
    pub max_stale: Option<u32>,
    /// Least remaining lifetime in seconds (5.2.1.3). Invalid: unlimited. Of several: the greatest.
    pub min_fresh: Option<u32>,
    /// Greatest staleness in seconds if the origin fails (RFC 5861 section 4). Invalid: ignored.
    pub stale_if_error: Option<u32>,
}

impl RequestDirectives {
    /// Of a request's fields.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut found = Self::default();
        if !headers.contains_key(CACHE_CONTROL) {
            let pragma = |line: &HeaderValue| {
                lists::members(line.as_bytes()).any(|member| member.eq_ignore_ascii_case(b"no-cache"))
            };
            found.no_cache = headers.get_all(PRAGMA).iter().any(pragma);
            return found;
        }
        all_members(headers, &CACHE_CONTROL).for_each(|member| found.add(directive(member)));
        if has_hidden_members(headers) {
            (found.no_store, found.no_cache) = (true, true);
        }
        found
    }

    fn add(&mut self, Directive { name, argument, malformed }: Directive<'_>) {
        let seconds = argument.filter(|_| !malformed).and_then(delta_seconds);
        let least = |held: Option<u32>, said: u32| Some(held.unwrap_or(u32::MAX).min(said));
        match () {
            () if name.eq_ignore_ascii_case(b"no-cache") => self.no_cache = true,
            () if name.eq_ignore_ascii_case(b"no-store") => self.no_store = true,
            () if name.eq_ignore_ascii_case(b"only-if-cached") => self.only_if_cached = true,
            () if name.eq_ignore_ascii_case(b"max-age") => {
                self.max_age = least(self.max_age, seconds.unwrap_or(0))
            }
            () if name.eq_ignore_ascii_case(b"max-stale") && argument.is_none() => {
                self.max_stale = least(self.max_stale, u32::MAX);
            }
            () if name.eq_ignore_ascii_case(b"max-stale") => {
                self.max_stale = seconds.map_or(self.max_stale, |seconds| least(self.max_stale, seconds));
            }
            () if name.eq_ignore_ascii_case(b"min-fresh") => {
                self.min_fresh = Some(self.min_fresh.unwrap_or(0).max(seconds.unwrap_or(DELTA_MAX)));
            }
            () if name.eq_ignore_ascii_case(b"stale-if-error") => self.stale_if_error = seconds,
            () => {}
        }
    }
}
