//! CRC-32C, and that of two stretches of bytes from theirs.
//!
//! A checksum is a polynomial over two elements, modulo P. What a stretch adds to what is behind it is a product: the checksum of `A B` is
//! that of `A` times x^(8·|B|), plus that of `B`. That takes one product for each bit of |B|
//! that is set, well below a microsecond; by matrices, as a library for all checksums does it, some 10 us.
//!
//! Source: RFC 3720, appendix B.4 (the polynomial).

/// P without its highest term. The highest bit is the term of degree 0.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// The polynomial 1.
const ONE: u32 = 1 << 31;
/// x^8, x^16, x^32, ...: each the square of the one before; for lengths of up to 2^48 - 1 bytes.
const POWERS: [u32; 48] = {
    let mut powers = [ONE >> 8; 48];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = product(powers[at - 1], powers[at - 1]);
        at += 1;
    }
    powers
};

pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The checksum of two stretches of bytes, one behind the other, from theirs.
pub(crate) fn crc_of_both(first: u32, second: u32, second_bytes: u64) -> u32 {
    debug_assert!(second_bytes >> POWERS.len() == 0);
    let mut shifted = first;
    let mut left = second_bytes;
    while left != 0 {
        if let Some(power) = POWERS.get(left.trailing_zeros() as usize) {
            shifted = product(*power, shifted);
        }
        left &= left - 1;
    }
    // Both begin with all ones and end with all bits turned over: that cancels out.
    shifted ^ second
}

/// The product of two polynomials modulo P.
const fn product(left: u32, mut right: u32) -> u32 {
    let mut sum = 0;
    let mut term = 0;
    while term < u32::BITS {
        if left & (ONE >> term) != 0 {
            sum ^= right;
        }
        // Times x.
        right = (right >> 1) ^ (if right & 1 == 0 { 0 } else { POLYNOMIAL });
        term += 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_two_stretches_is_that_of_both_together() {
        let bytes: Vec<u8> = (0..70_000_u32).map(|byte| (byte * 7 + byte / 251) as u8).collect();
        for middle in [0, 1, 2, 63, 64, 65, 999, 4096, 8192, 65_536, 69_999, 70_000] {
            let (first, second) = bytes.split_at(middle);
            assert_eq!(crc_of_both(crc(first), crc(second), second.len() as u64), crc(&bytes), "{middle}");
        }
    }

    #[test]
    fn it_is_what_a_library_of_all_checksums_computes_for_long_stretches_too() {
        let library = |first: u32, second: u32, bytes| {
            let algorithm = crc_fast::CrcAlgorithm::Crc32Iscsi;
            crc_fast::checksum_combine(algorithm, u64::from(first), u64::from(second), bytes) as u32
        };
        for shift in 0..48 {
            for bytes in [1_u64 << shift, (1 << shift) | 0x5a5a, (1 << shift) - 1] {
                let (first, second) = (0xdead_beef ^ shift, 0x1234_5678);
                assert_eq!(crc_of_both(first, second, bytes), library(first, second, bytes), "{bytes}");
            }
        }
    }
}
