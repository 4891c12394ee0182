//! Whether a reply may be stored, and which facts are stored with it (RFC 9111 section 3).
//!
//! ```text
//! Exchange ─> judge ─> StoredFacts        ─> body arrives ─> body_ended ─> Whole │ Part │ Discard
//!                 └──> Refusal (reason, section)
//! ```
//!
//! Always holds: a reply is stored only if every rule allows it and it could be used: it is fresh, can be validated, or may be served
//! stale.
//! Not here: whether storing pays (admission), and the fields to store (`forwarding::storable_fields`).

use http::header::{CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE, HeaderMap, SET_COOKIE};
use http::{StatusCode, Uri};

use super::facts::{Extent, StoredFacts, VARIANT_BYTES_MAX, stored_tag};
use super::freshness::{self, LifetimeSource};
use super::key;
use super::policy::{Policy, SetCookie};
use super::request::{MethodKind, RequestFacts};
use crate::fields::cache_control::{ResponseDirectives, withheld_fields};
use crate::fields::date::WallSeconds;
use crate::fields::lists;
use crate::fields::vary::{Vary, write_variant};
use crate::messages::ranges;

/// A request that went to the origin, and the head of its reply as it came.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The target of the request, absolute.
    pub target: &'a Uri,
    /// What the rules know about the request, as the client sent it.
    pub request: &'a RequestFacts,
    /// The client's fields.
    pub request_headers: &'a HeaderMap,
    /// When the request was sent.
    pub requested_at: WallSeconds,
    /// When the head of the reply had arrived.
    pub answered_at: WallSeconds,
    /// The reply's status.
    pub status: StatusCode,
    /// The reply's fields before any was removed: `Connection: cache-control` must not hide a `private`.
    pub headers: &'a HeaderMap,
}

/// Why a reply is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// Replies to this method are not cached.
    Method,
    /// An interim reply, or one about the request rather than the resource (304, 407, 412, 416, 428, 429, 431, 511).
    Status,
    /// The request has no-store.
    RequestNoStore,
    /// The reply has no-store.
    NoStore,
    /// The reply is for one user.
    Private,
    /// The reply has must-understand, and its status is not known here.
    NotUnderstood,
    /// The request has Authorization, and the reply does not allow sharing.
    Authorized,
    /// The reply sets cookies.
    SetCookie,
    /// Vary names something that is not a request field.
    VariesOnAnything,
    /// Vary lists more than this cache stores.
    VariantTooLong,
    /// It has neither an explicit lifetime nor a status that allows a heuristic one.
    NoLifetime,
    /// A 206 whose Content-Range is missing, invalid or contradicted, or with several parts.
    PartUnreadable,
    /// It could never be used: stale on arrival, and without a validator.
    Useless,
}

impl Refusal {
    /// The section that says so.
    pub fn section(self) -> &'static str {
        match self {
            Refusal::Method => "RFC 9110 section 9.2.3",
            Refusal::Status => "RFC 9111 section 3",
            Refusal::RequestNoStore => "RFC 9111 section 5.2.1.5",
            Refusal::NoStore => "RFC 9111 section 5.2.2.5",
            Refusal::Private => "RFC 9111 section 5.2.2.7",
            Refusal::NotUnderstood => "RFC 9111 section 5.2.2.3",
            Refusal::Authorized => "RFC 9111 section 3.5",
            Refusal::SetCookie => "RFC 9111 section 7.3",
            Refusal::VariesOnAnything => "RFC 9111 section 4.1",
            Refusal::VariantTooLong => "this cache's limit",
            Refusal::NoLifetime => "RFC 9111 section 3",
            Refusal::PartUnreadable => "RFC 9110 section 15.3.7",
            Refusal::Useless => "RFC 9111 section 4",
        }
    }

    /// One word for logs and for the detail of Cache-Status.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Method => "method",
            Refusal::Status => "status",
            Refusal::RequestNoStore => "request-no-store",
            Refusal::NoStore => "no-store",
            Refusal::Private => "private",
            Refusal::NotUnderstood => "must-understand",
            Refusal::Authorized => "authorization",
            Refusal::SetCookie => "set-cookie",
            Refusal::VariesOnAnything => "vary-any",
            Refusal::VariantTooLong => "variant-too-long",
            Refusal::NoLifetime => "no-lifetime",
            Refusal::PartUnreadable => "part-unreadable",
            Refusal::Useless => "useless",
        }
    }
}

/// Judges whether the reply may be stored, and returns the facts for later hits.
pub fn judge(exchange: &Exchange<'_>, policy: &Policy) -> Result<StoredFacts, Refusal> {
    let Exchange { request, status, headers, .. } = *exchange;
    let directives = ResponseDirectives::of(headers, &policy.targets);
    if !is_about_the_resource(status) {
        return Err(Refusal::Status);
    }
    if request.directives.no_store {
        return Err(Refusal::RequestNoStore);
    }
    if directives.must_understand && !is_understood(status) {
        return Err(Refusal::NotUnderstood);
    }
    if directives.no_store && !directives.must_understand {
        return Err(Refusal::NoStore);
    }
    if directives.private {
        return Err(Refusal::Private);
    }
    let explicitly_shared = directives.public || directives.s_maxage.is_some();
    if request.authorized && !explicitly_shared && !directives.must_revalidate {
        return Err(Refusal::Authorized);
    }
    if sets_cookies(headers, &directives, policy.set_cookie) {
        return Err(Refusal::SetCookie);
    }
    check_variant(exchange)?;

    let lifetime = freshness::lifetime(status, headers, &directives, exchange.answered_at, policy);
    let explicit = lifetime.source == LifetimeSource::Explicit;
    match request.method {
        MethodKind::Get => {}
        MethodKind::Post if explicit && names_itself(exchange) && status.is_success() => {}
        _ => return Err(Refusal::Method),
    }
    let allowed = explicit
        || directives.public
        || freshness::is_heuristically_cacheable(status)
        || lifetime.source == LifetimeSource::Negative;
    if !allowed {
        return Err(Refusal::NoLifetime);
    }
    let extent = extent_of(status, headers)?;
    let initial_age = freshness::initial_age_s(headers, exchange.requested_at, exchange.answered_at, policy);
    let facts = StoredFacts {
        stored_at: exchange.answered_at,
        made_at: freshness::made_at(headers, exchange.answered_at),
        changed_at: freshness::single_date(headers, &http::header::LAST_MODIFIED, exchange.answered_at),
        // If the policy treats an invalid Age as stale, the age is the whole lifetime.
        initial_age_s: initial_age.unwrap_or(lifetime.seconds),
        lifetime_s: lifetime.seconds,
        stale_while_revalidate_s: directives
            .stale_while_revalidate
            .unwrap_or(policy.stale_while_revalidate_s),
        stale_if_error_s: directives.stale_if_error.unwrap_or(policy.stale_if_error_s),
        extent,
        status,
        no_cache: directives.no_cache,
        forbids_stale: directives.forbids_stale(),
        immutable: directives.immutable,
        heuristic: lifetime.source == LifetimeSource::Heuristic,
        tagged: stored_tag(headers).is_some(),
    };
    let stale_use =
        !facts.forbids_stale && (facts.stale_while_revalidate_s > 0 || facts.stale_if_error_s > 0);
    let fresh_use = !facts.no_cache && facts.is_fresh(exchange.answered_at);
    // A reply that is stale on arrival is worth storing only if it can be validated.
    if !facts.has_validator() && !fresh_use && !stale_use {
        return Err(Refusal::Useless);
    }
    Ok(facts)
}

/// What to do with the received bytes when a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// The body is complete: store it with this extent.
    Whole(Extent),
    /// The body broke off, but a strong validator identifies it, so that the rest can be fetched later (RFC 9111 section 3.3).
    Part(Extent),
    /// The body broke off and is of no use, or is longer than announced.
    Discard,
}

/// Decides after `received` bytes. `cleanly`: the length was reached, or the last chunk or close came as the framing requires (RFC
/// 9112 section 8).
pub fn body_ended(
    facts: &StoredFacts,
    strong_validator: bool,
    announced: Option<u64>,
    received: u64,
    cleanly: bool,
) -> BodyEnd {
    let first = facts.extent.first;
    let complete = cleanly && announced.is_none_or(|announced| announced == received);
    if facts.status == StatusCode::PARTIAL_CONTENT {
        let extent = Extent { length: received, ..facts.extent };
        return match () {
            () if complete && received == facts.extent.length => BodyEnd::Whole(extent),
            () if received > 0 && received < facts.extent.length && strong_validator => BodyEnd::Part(extent),
            () => BodyEnd::Discard,
        };
    }
    match () {
        () if complete => BodyEnd::Whole(Extent::whole(received)),
        () if facts.status == StatusCode::OK
            && strong_validator
            && received > 0
            && announced.is_some_and(|announced| received < announced) =>
        {
            BodyEnd::Part(Extent { first, length: received, total: announced })
        }
        () => BodyEnd::Discard,
    }
}

/// Whether replies with this status describe the target rather than one request or connection. RFC 6585 forbids storing 428, 429,
/// 431 and 511; 412 and 416 answer a condition or range that is not in the key; 304 and 206 have rules of their own.
fn is_about_the_resource(status: StatusCode) -> bool {
    !status.is_informational() && !matches!(status.as_u16(), 304 | 407 | 412 | 416 | 428 | 429 | 431 | 511)
}

/// Statuses whose caching is implemented here: the registered ones (RFC 9111 section 5.2.2.3).
pub fn is_understood(status: StatusCode) -> bool {
    matches!(status.as_u16(),
        200..=208 | 226 | 300..=305 | 307 | 308 | 400..=417 | 421..=426 | 428 | 429 | 431 | 451 | 500..=508 | 511)
}

fn sets_cookies(headers: &HeaderMap, directives: &ResponseDirectives, policy: SetCookie) -> bool {
    if !headers.contains_key(SET_COOKIE) {
        return false;
    }
    let explicitly_shared = directives.public || directives.s_maxage.is_some() || directives.targeted;
    let taken_out = || {
        (directives.no_cache_fields || directives.private_fields)
            && withheld_fields(headers).contains(&SET_COOKIE)
    };
    match policy {
        SetCookie::Store => false,
        SetCookie::WhenExplicit => !explicitly_shared && !taken_out(),
        SetCookie::Refuse => !taken_out(),
    }
}

fn check_variant(exchange: &Exchange<'_>) -> Result<(), Refusal> {
    let vary = Vary::of(exchange.headers);
    match vary {
        Vary::Nothing => return Ok(()),
        Vary::Anything => return Err(Refusal::VariesOnAnything),
        Vary::Fields(_) => {}
    }
    let (names, mut variant) = (vary.names(), Vec::new());
    write_variant(&names, exchange.request_headers, &mut variant);
    let fits = names.len() <= VARIANT_BYTES_MAX && variant.len() <= VARIANT_BYTES_MAX;
    fits.then_some(()).ok_or(Refusal::VariantTooLong)
}

/// Whether Content-Location says that a GET of the target would return this reply (RFC 9110 section 9.3.3).
fn names_itself(exchange: &Exchange<'_>) -> bool {
    let mut lines = exchange.headers.get_all(CONTENT_LOCATION).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return false };
    let named = key::resolve(exchange.target, line.as_bytes());
    named.is_some() && named == key::CacheKey::of(exchange.target).ok()
}

/// The part of the content in the reply, according to its head.
fn extent_of(status: StatusCode, headers: &HeaderMap) -> Result<Extent, Refusal> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|line| lists::byte_count(line.as_bytes()));
    if status != StatusCode::PARTIAL_CONTENT {
        return Ok(Extent { first: 0, length: announced.unwrap_or(0), total: announced });
    }
    let mut lines = headers.get_all(CONTENT_RANGE).iter();
    let range = lines.next().and_then(|line| ranges::content_range(line.as_bytes()));
    let range = range.filter(|_| lines.next().is_none()).ok_or(Refusal::PartUnreadable)?;
    let agrees = announced.is_none_or(|announced| announced == range.length);
    agrees.then_some(range).ok_or(Refusal::PartUnreadable)
}
