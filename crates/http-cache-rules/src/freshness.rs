//! How long a reply is fresh, and how old it is (RFC 9111 section 4.2).
//!
//! ```text
//! lifetime: targeted max-age │ s-maxage │ max-age │ Expires - Date │ 10% of Date - Last-Modified
//! age now:  max(stored - Date, Age + transit time) + time in the store
//! ```
//!
//! Always holds: an invalid lifetime is 0. Ages and lifetimes are at most 2^31 s. Setting the clock back makes no reply younger than it
//! was when it was stored.
//! Not here: serving stale replies (`reuse`).

use http::StatusCode;
use http::header::{AGE, DATE, EXPIRES, HeaderMap, HeaderName, LAST_MODIFIED};

use super::policy::{AgeErrors, Policy};
use crate::fields::cache_control::ResponseDirectives;
use crate::fields::date::{self, WallSeconds};
use crate::fields::lists::{self, DELTA_MAX, delta_seconds};

/// Where a lifetime comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifetimeSource {
    /// The origin sent it.
    Explicit,
    /// Derived from the last modification.
    Heuristic,
    /// The operator's lifetime for errors.
    Negative,
    /// No source.
    Unknown,
}

/// For how many seconds after it was made a reply is fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Seconds, at most `Policy::lifetime_max_s`.
    pub seconds: u32,
    /// Where it comes from.
    pub source: LifetimeSource,
}

/// The lifetime of a reply received at `answered_at` (RFC 9111 section 4.2.1).
pub fn lifetime(
    status: StatusCode,
    headers: &HeaderMap,
    directives: &ResponseDirectives,
    answered_at: WallSeconds,
    policy: &Policy,
) -> Lifetime {
    let made_at = made_at(headers, answered_at);
    let explicit = directives.s_maxage.or(directives.max_age);
    let explicit = explicit.or_else(|| {
        let counts = !directives.targeted && headers.contains_key(EXPIRES);
        counts.then(|| expires(headers, answered_at).map_or(0, |expires| expires.since(made_at)))
    });
    let (seconds, source) = match explicit {
        Some(seconds) => (seconds, LifetimeSource::Explicit),
        None => guess(status, headers, directives, made_at, policy),
    };
    Lifetime { seconds: seconds.min(policy.lifetime_max_s), source }
}

/// The time in Expires; `None` when it is invalid or several differ, which means expired (RFC 9111 section 5.3).
fn expires(headers: &HeaderMap, answered_at: WallSeconds) -> Option<WallSeconds> {
    single_date(headers, &EXPIRES, answered_at)
}

fn guess(
    status: StatusCode,
    headers: &HeaderMap,
    directives: &ResponseDirectives,
    made_at: WallSeconds,
    policy: &Policy,
) -> (u32, LifetimeSource) {
    if is_negative(status) && policy.negative_s > 0 {
        return (policy.negative_s, LifetimeSource::Negative);
    }
    let changed_at = single_date(headers, &LAST_MODIFIED, made_at);
    match changed_at {
        Some(changed_at) if directives.public || is_heuristically_cacheable(status) => {
            let unchanged_s = u64::from(made_at.since(changed_at));
            let part_s = (unchanged_s * u64::from(policy.heuristic_percent) / 100) as u32;
            (part_s.min(policy.heuristic_max_s), LifetimeSource::Heuristic)
        }
        _ => (0, LifetimeSource::Unknown),
    }
}

/// When the reply was made: its Date, or when it was received if that is invalid (RFC 9110 section 6.6.1).
pub fn made_at(headers: &HeaderMap, answered_at: WallSeconds) -> WallSeconds {
    single_date(headers, &DATE, answered_at).unwrap_or(answered_at)
}

/// The date in a field that occurs once, or several times with the same value.
pub fn single_date(headers: &HeaderMap, name: &HeaderName, now: WallSeconds) -> Option<WallSeconds> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next()?;
    lines.all(|line| line == first).then(|| date::parse(first.as_bytes(), now)).flatten()
}

/// The age on arrival: the greater of what Date and Age imply, transit time included (RFC 9111 section 4.2.3). `None` when Age is invalid
/// and `Policy::age_errors` treats that as stale.
pub fn initial_age_s(
    headers: &HeaderMap,
    requested_at: WallSeconds,
    answered_at: WallSeconds,
    policy: &Policy,
) -> Option<u32> {
    let apparent = answered_at.since(made_at(headers, answered_at));
    let on_the_way = answered_at.since(requested_at);
    let said = said_age_s(headers, policy.age_errors)?;
    Some(apparent.max(said.saturating_add(on_the_way)).min(DELTA_MAX))
}

fn said_age_s(headers: &HeaderMap, errors: AgeErrors) -> Option<u32> {
    let mut members = lists::all_members(headers, &AGE);
    let first = members.next();
    match errors {
        AgeErrors::Ignore => Some(first.and_then(delta_seconds).unwrap_or(0)),
        AgeErrors::Stale if first.is_none() => (!headers.contains_key(AGE)).then_some(0),
        AgeErrors::Stale => members.next().is_none().then(|| first.and_then(delta_seconds)).flatten(),
    }
}

/// Statuses that allow a heuristic lifetime (RFC 9110 section 15.1).
pub fn is_heuristically_cacheable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Errors to which `Policy::negative_s` applies.
pub fn is_negative(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 403 | 404 | 405 | 410 | 414 | 500..=504)
}
