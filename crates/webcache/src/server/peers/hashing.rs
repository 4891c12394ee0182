//! Assigns each URL to one of several caches by rendezvous hashing: the cache with the highest hash of URL and cache together.
//! Adding or removing a cache moves only its own share.
//!
//! Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM ToN 1998.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::config::Upstream;

/// Sorts the caches, best first.
pub fn order(caches: &mut [Upstream], url: &str) {
    caches.sort_by_cached_key(|cache| {
        let seed = xxh3_64_with_seed(cache.authority().as_bytes(), 0);
        std::cmp::Reverse(xxh3_64_with_seed(url.as_bytes(), seed))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_goes_moves_its_own_share_and_no_other() {
        let cache = |number: u16| Upstream { host: "cache".to_owned(), port: number, tls: false };
        let first = |caches: &[Upstream], url: &str| {
            let mut caches = caches.to_vec();
            order(&mut caches, url);
            caches[0].port
        };
        let all: Vec<Upstream> = (1..=4).map(cache).collect();
        let without_4 = &all[..3];
        let mut shares = [0; 5];
        for number in 0..4000 {
            let url = format!("http://a/{number}");
            let chosen = first(&all, &url);
            shares[chosen as usize] += 1;
            if chosen != 4 {
                assert_eq!(first(without_4, &url), chosen, "{url}");
            }
        }
        assert!(shares[1..].iter().all(|share| (850..1150).contains(share)), "{shares:?}");
    }
}
