//! Whether the memory that a configuration may come to need is there (see `measure::memory_bytes`).

use report::{bytes_text, count_text};

/// What a request that waits for an origin takes (`requests_that_wait_for_an_origin_take_few_bytes_each`).
const WAITING_BYTES: u64 = 40_000;

/// A warning for the user if this many connections and the cache's own `cache_bytes` may need more than is allowed.
pub fn shortage(connections: u64, cache_bytes: u64, allowed_bytes: u64) -> Option<String> {
    let waiting_bytes = connections.saturating_mul(WAITING_BYTES);
    let bytes = cache_bytes.saturating_add(waiting_bytes);
    if bytes <= allowed_bytes {
        return None;
    }
    let mut text = format!(
        "{} of memory are allowed, and {} may be needed: {} by the cache, {} when each of limits.connections = {} waits \
         for an origin; allow more (MemoryMax=)",
        bytes_text(allowed_bytes),
        bytes_text(bytes),
        bytes_text(cache_bytes),
        bytes_text(waiting_bytes),
        connections
    );
    match allowed_bytes.saturating_sub(cache_bytes) / WAITING_BYTES {
        0 => text.push_str(" or make the cache smaller"),
        fits => text.push_str(&format!(" or fewer connections, at most {}", count_text(fits))),
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_is_told_with_what_fits() {
        assert_eq!(shortage(10_000, 100_000_000, 500_000_000), None);
        let text = shortage(10_001, 100_000_000, 500_000_000).unwrap();
        assert!(
            text.starts_with("500 MB of memory are allowed, and 500 MB may be needed: 100 MB by the cache"),
            "{text}"
        );
        assert!(text.ends_with("limits.connections = 10001 waits for an origin; allow more (MemoryMax=) or fewer connections, at most 10,000"), "{text}");
        let text = shortage(1, 600_000_000, 500_000_000).unwrap();
        assert!(text.ends_with("or make the cache smaller"), "{text}");
    }
}
