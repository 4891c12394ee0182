//! Numbers as decimal text without the formatting machinery, which costs more than finding a group does.

/// Digits of the greatest number.
const DIGITS_MAX: usize = 20;

/// Appends `number`.
pub(crate) fn push(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; DIGITS_MAX];
    let mut at = DIGITS_MAX;
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Overwrites `field` with `number`, zeros in front. What does not fit loses its first digits.
pub(crate) fn put_padded(field: &mut [u8], mut number: u64) {
    for digit in field.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Reads digits and nothing else; none when they are no number of 64 bits.
pub(crate) fn parse(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > DIGITS_MAX {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| match digit {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_number_of_64_bits_is_refused() {
        for text in ["", "-1", "+1", " 1", "1x", "18446744073709551616", "999999999999999999999"] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_number_is_written_as_the_standard_library_does_and_read_back(number: u64) {
            let mut text = Vec::new();
            push(&mut text, number);
            prop_assert_eq!(String::from_utf8(text.clone()).unwrap(), number.to_string());
            prop_assert_eq!(parse(&text), Some(number));
        }

        #[test]
        fn padding_keeps_ten_digits(number in 0..10_000_000_000u64) {
            let mut field = [b'x'; 10];
            put_padded(&mut field, number);
            prop_assert_eq!(String::from_utf8(field.to_vec()).unwrap(), format!("{number:010}"));
        }
    }
}
