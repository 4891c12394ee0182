//! Settings with a few possible words.

use http_cache_rules::policy::{AgeErrors, Foreign304, SetCookie};

use super::key::Word;

/// Format of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Squid's native format.
    Squid,
    /// NCSA common.
    Common,
    /// NCSA combined: common with Referer and User-Agent.
    Combined,
    /// One JSON object per line.
    Json,
}

/// Which storable replies are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// All of them.
    All,
    /// Those that were requested before.
    Second,
}

/// Which hosts' objects are prefetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefetchHosts {
    /// The page's own host.
    Own,
    /// Any that is served.
    All,
}

/// What to do with X-Forwarded-For in requests to an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedFor {
    /// Append the client's address.
    Append,
    /// Replace it by the client's address.
    Replace,
    /// Leave it as the client sent it.
    Keep,
    /// Remove it.
    Remove,
}

/// How a parent is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The first that answers.
    Failover,
    /// By a hash of the URL.
    Hash,
}

/// Whether clients of the forward side may connect to internal addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Internal {
    /// Denied if clients on other machines can reach a forward listener.
    Auto,
    /// Denied.
    Deny,
    /// Allowed.
    Allow,
}

macro_rules! words {
    ($($Type:ident: $($word:literal $Variant:ident),+;)*) => {$(
        impl Word for $Type {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, $Type::$Variant)),+];
        }
    )*};
}

words! {
    Admission: "all" All, "second" Second;
    AgeErrors: "ignore" Ignore, "stale" Stale;
    Choice: "failover" Failover, "hash" Hash;
    Foreign304: "fetch" FetchAgain, "keep" KeepStoredTag;
    ForwardedFor: "append" Append, "replace" Replace, "keep" Keep, "remove" Remove;
    Internal: "auto" Auto, "deny" Deny, "allow" Allow;
    LogFormat: "squid" Squid, "common" Common, "combined" Combined, "json" Json;
    PrefetchHosts: "own" Own, "all" All;
    SetCookie: "explicit" WhenExplicit, "refuse" Refuse, "store" Store;
}
