//! What the operator decides where HTTP leaves room.
//!
//! Always holds: the defaults keep to the RFCs and err on the side of asking the origin.
//! Not here: reading it from a file (the proxy's configuration does that).

use http::HeaderName;

/// The operator's choices. One for the whole proxy, or one a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Share of a reply's age since its last modification for which it is taken as fresh, in percent, when the origin
    /// gave no lifetime. Default 10 (RFC 9111 section 4.2.2).
    pub heuristic_percent: u8,
    /// The most that heuristic gives, in seconds. Default 86400, a day.
    pub heuristic_max_s: u32,
    /// Lifetimes above this are cut to it, in seconds. Default a year: what is older is not worth its space.
    pub lifetime_max_s: u32,
    /// Lifetime of error replies (4xx and 5xx that may be stored at all) that carry none of their own, in seconds.
    /// Default 0: not stored.
    pub negative_s: u32,
    /// What is done with replies that set cookies.
    pub set_cookie: SetCookie,
    /// Targeted fields looked at before Cache-Control, first come first used (RFC 9213 section 2.2). Default none;
    /// a reverse proxy takes `CDN-Cache-Control`.
    pub targets: Vec<HeaderName>,
    /// Whether clients may ask past the cache (no-cache, max-age, min-fresh, Pragma). Default yes; a reverse proxy
    /// under attack says no.
    pub client_reload: bool,
    /// For how long after its lifetime a reply may stand in for a failing origin, in seconds, when the origin gave
    /// no stale-if-error. Default 0.
    pub stale_if_error_s: u32,
    /// For how long after its lifetime a reply is served while it is revalidated, in seconds, when the origin gave
    /// no stale-while-revalidate. Default 0.
    pub stale_while_revalidate_s: u32,
    /// What an unreadable Age means.
    pub age_errors: AgeErrors,
    /// What a 304 means that names another entity tag than the one asked about.
    pub foreign_304: Foreign304,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            heuristic_percent: 10,
            heuristic_max_s: 86_400,
            lifetime_max_s: 31_536_000,
            negative_s: 0,
            set_cookie: SetCookie::WhenToldByOrigin,
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
    /// When the origin speaks to shared caches (`public`, `s-maxage`, a targeted field), or takes the field out
    /// itself (`private="set-cookie"`, `no-cache="set-cookie"`).
    WhenToldByOrigin,
    /// As any other reply: RFC 9111 has no rule of its own for the field.
    Store,
}

/// What is done with an Age that is no number, or more than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgeErrors {
    /// The first member counts; if that is no number, the field does not (RFC 9111 section 5.1).
    Ignore,
    /// The reply is taken as stale, as RFC 7234 was often read; release 0.4.5 of the public suite asks for it.
    Stale,
}

/// What is done with a 304 whose entity tag is not the one the request named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign304 {
    /// It updates nothing, and the request is sent again without conditions (RFC 9111 section 4.3.4).
    FetchAgain,
    /// It confirms the stored reply, which keeps its tag: for origins that forget a `-gzip` in their 304.
    KeepStoredTag,
}
