//! Numbers as people and our own tables write them: `20,300` is twenty thousand three hundred.

/// The number that `text` is when its commas part thousands, as in `20,300` or `1,250,000`; none when they cannot, so that
/// it is a list or no number at all. A list of numbers that looks so means one thing to its writer and another to a
/// program: say which are possible, and ask.
pub fn grouped_number(text: &str) -> Option<u64> {
    let (first, rest) = text.split_once(',')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let leads = (1..=3).contains(&first.len()) && digits(first) && !first.starts_with('0');
    if !leads || !rest.split(',').all(|group| group.len() == 3 && digits(group)) {
        return None;
    }
    text.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_our_tables_could_have_written_is_a_grouped_number() {
        assert_eq!(grouped_number("20,300"), Some(20_300));
        assert_eq!(grouped_number("1,250,000"), Some(1_250_000));
        for list in [
            "20300", "20, 300", "500,1000", "1000,200", "0,300", "20,30", "a,300", "20,300,", ",300",
            "20,3x0",
        ] {
            assert_eq!(grouped_number(list), None, "{list}");
        }
    }
}
