//! What a run with `--quick` does not show: the remark `quick` in its record, its tables and its page.

use report::bytes_text;

/// Code of the remark, and the setting in the record.
pub const QUICK: &str = "quick";

/// Says what a quick run over `bytes` of files does not show; `more` names what else.
pub fn limits(bytes: u64, more: &str) -> String {
    let in_memory = measure::memory_bytes().is_none_or(|memory| bytes < memory);
    let disk = if in_memory {
        format!("{} of files fit in memory, so it says nothing about the disk; ", bytes_text(bytes))
    } else {
        String::new()
    };
    format!("a quick run: {disk}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_fits_in_memory_is_said_to_and_a_larger_one_is_not() {
        let small = limits(64_000_000, "short levels");
        assert!(small.contains("64.0 MB of files"), "{small}");
        assert!(small.contains("nothing about the disk") && small.ends_with("short levels"), "{small}");
        assert_eq!(limits(u64::MAX, "short levels"), "a quick run: short levels");
    }
}
