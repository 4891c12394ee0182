//! Entry points for the fuzz targets (`fuzz/`), and for the test that runs them on mutated seeds (`tests`): everything that reads
//! bytes from peers, from the disk or from the operator.
//!
//! ```text
//! connection   requests as a client sends them: request guard, an independent parser, hyper      all three must agree
//! exchange     fields of a request and its reply: every rule                          written, read, written again
//! url          targets, references, prefixes: keys                                    a key is its own key
//! datagram     ICP      stored   heads, facts, bans      page   HTML      config   TOML
//! ```
//!
//! Always holds: none of these panics, uses memory beyond a small multiple of its input, or fails to end, whatever the bytes are. A
//! broken belief is an `assert!` that says which.

mod connection;
mod exchange;
mod stored;
#[cfg(test)]
mod tests;
mod url;

pub use connection::connection;
pub use exchange::exchange;
pub use stored::stored;
pub use url::url;

use std::collections::HashSet;

use http::Uri;
use http_cache_rules::key::CacheKey;
use toml::Table;

use crate::config::{self, PrefetchHosts};
use crate::icp::{self, Message};
use crate::server::prefetch::page;

/// A datagram of ICP. Returns whether it is one.
pub fn datagram(bytes: &[u8]) -> bool {
    match icp::read(bytes) {
        Err(_) => false,
        Ok(Message::Query { number, url }) => {
            let answer =
                icp::reply(icp::Answer::Hit, number, url).expect("the URL of a query fits into an answer");
            assert!(answer.len() < bytes.len(), "an answer multiplies bytes");
            assert!(matches!(icp::read(&answer), Ok(Message::Reply { number: same, url: again, .. })
                if same == number && again == url));
            if let Ok(text) = std::str::from_utf8(url) {
                let again = icp::query(number, text).expect("what was a query can be asked");
                assert_eq!(icp::read(&again), Ok(Message::Query { number, url }));
                assert_eq!(again.len(), bytes.len());
            }
            true
        }
        Ok(Message::Reply { answer, number, url }) => {
            let again = icp::reply(answer, number, url).expect("what was an answer can be said");
            assert_eq!(icp::read(&again), Ok(Message::Reply { answer, number, url }));
            assert_eq!(again.len(), bytes.len());
            true
        }
    }
}

/// A page of HTML, plain or compressed. Returns how much of what it embeds would be fetched.
pub fn embedded(page: &[u8]) -> usize {
    looked_through(page) + looked_through(&page::inflated(page))
}

fn looked_through(html: &[u8]) -> usize {
    let page: Uri = "http://a.example/dir/page?x".parse().expect("a URI");
    let most = 1 + html.len() % 40;
    for hosts in [PrefetchHosts::All, PrefetchHosts::Own] {
        let found = page::embedded(html, &page, hosts, most);
        assert!(found.len() <= most, "more than were asked for");
        let keys: HashSet<_> =
            found.iter().map(|uri| CacheKey::of(uri).expect("it can be asked for")).collect();
        assert_eq!(keys.len(), found.len(), "one is there twice");
        assert!(!keys.contains(&CacheKey::of(&page).expect("a key")), "the page itself");
        for uri in &found {
            assert_eq!(uri.scheme_str(), Some("http"), "{uri}");
            let own = uri.authority().is_some_and(|host| host.as_str().eq_ignore_ascii_case("a.example"));
            assert!(own || hosts == PrefetchHosts::All, "{uri}");
        }
        if hosts == PrefetchHosts::Own {
            return found.len();
        }
    }
    unreachable!("the last one returns")
}

/// A configuration. Returns whether it can be used.
pub fn configuration(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    match config::read(text, Table::new()) {
        Err(error) => {
            assert!(!error.problems.is_empty(), "refused without a reason");
            assert!(error.problems.iter().all(|problem| !problem.what.is_empty()));
            false
        }
        Ok(config) => {
            let printed = config::print(&config);
            let again = config::read(&printed, Table::new());
            let again =
                again.unwrap_or_else(|error| panic!("what is printed is refused: {error}\n{printed}"));
            assert_eq!(config::print(&again), printed, "printed again it is another");
            let behind = config.writers_behind_bytes().checked_add(config.store_behind_bytes());
            assert_eq!(behind, Some(config.cache.behind_bytes_max));
            true
        }
    }
}
