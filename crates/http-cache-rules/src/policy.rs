//! The operator's choices where HTTP leaves room.
//!
//! Always holds: the defaults follow the RFCs and err on the side of asking the origin.
//! Not here: reading them from a file (the proxy's configuration does that).

use http::HeaderName;

/// The operator's choices, for a whole proxy or per site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Lifetime of a reply without an explicit one, in percent of its age since the last modification. Default 10 (RFC 9111 section
    /// 4.2.2).
    pub heuristic_percent: u8,
    /// Upper bound of that lifetime, in seconds. Default 86400, a day.
    pub heuristic_max_s: u32,
    /// Upper bound of every lifetime, in seconds. Default a year: older replies are not worth their space.
    pub lifetime_max_s: u32,
    /// Lifetime of storable error replies (4xx and 5xx) without one of their own, in seconds. Default 0: not stored.
    pub negative_s: u32,
    /// Whether to store replies that set cookies.
    pub set_cookie: SetCookie,
    /// Targeted fields that take precedence over Cache-Control, in this order (RFC 9213 section 2.2). Default none; a reverse proxy uses
    /// `CDN-Cache-Control`.
    pub targets: Vec<HeaderName>,
    /// Whether clients may bypass the cache (no-cache, max-age, min-fresh, Pragma). Default yes; a reverse proxy under attack says no.
    pub client_reload: bool,
    /// How long past its lifetime a reply may stand in for a failing origin, in seconds, if the origin sent no stale-if-error.
    /// Default 0.
    pub stale_if_error_s: u32,
    /// How long past its lifetime a reply is served while it is revalidated, in seconds, if the origin sent no
    /// stale-while-revalidate. Default 0.
    pub stale_while_revalidate_s: u32,
    /// What an unreadable Age means.
    pub age_errors: AgeErrors,
    /// What a 304 means that names another entity tag than the validated one.
    pub foreign_304: Foreign304,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            heuristic_percent: 10,
            heuristic_max_s: 86_400,
            lifetime_max_s: 31_536_000,
            negative_s: 0,
            set_cookie: SetCookie::WhenExplicit,
            targets: Vec::new(),
            client_reload: true,
            stale_if_error_s: 0,
            stale_while_revalidate_s: 0,
            age_errors: AgeErrors::Ignore,
            foreign_304: Foreign304::FetchAgain,
        }
    }
}

/// When a reply with Set-Cookie may be stored for others (RFC 9111 section 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetCookie {
    /// Never.
    Refuse,
    /// When the origin explicitly addresses shared caches (`public`, `s-maxage`, a targeted field), or withholds the field itself
    /// (`private="set-cookie"`, `no-cache="set-cookie"`).
    WhenExplicit,
    /// Like any other reply: RFC 9111 has no special rule for the field.
    Store,
}

/// What to do with an Age that is not a single number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgeErrors {
    /// Use the first member; if that is not a number, ignore the field (RFC 9111 section 5.1).
    Ignore,
    /// Treat the reply as stale, as RFC 7234 was often read; release 0.4.5 of the public suite expects it.
    Stale,
}

/// What to do with a 304 whose entity tag is not the validated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign304 {
    /// Update nothing, and request again without conditions (RFC 9111 section 4.3.4).
    FetchAgain,
    /// Treat the stored reply as validated and keep its tag: for origins that omit `-gzip` in a 304.
    KeepStoredTag,
}
