//! Choices between a few words.

use http_cache_rules::policy::{AgeErrors, Foreign304, SetCookie};

use super::key::Word;

/// How the access log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Squid's native format.
    Squid,
    /// NCSA common.
    Common,
    /// NCSA combined: with Referer and User-Agent.
    Combined,
    /// One JSON object a line.
    Json,
}

/// Which replies are stored of those that may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// All.
    All,
    /// Those asked for before.
    Second,
}

/// From where what a page embeds is fetched ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefetchHosts {
    /// The page's own host.
    Own,
    /// Any that is served.
    All,
}

/// What becomes of X-Forwarded-For on its way to an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedFor {
    /// The client's address is added.
    Append,
    /// The client's address stands alone.
    Replace,
    /// As the client sent it.
    Keep,
    /// Taken out.
    Remove,
}

/// How a parent is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The first that answers.
    Failover,
    /// By the URL.
    Hash,
}

/// Whether clients of the forward side reach internal addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Internal {
    /// Not when other machines' clients could come by a forward listener.
    Auto,
    /// No.
    Deny,
    /// Yes.
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
    SetCookie: "told" WhenToldByOrigin, "refuse" Refuse, "store" Store;
}
