//! The stored form of a histogram, checked before it is believed: it may come from any file.
//!
//! ```text
//! base64( cookie 0x1c849314 u32 | length u32 | zlib( plain ) )
//! plain = cookie 0x1c849313 u32 | payload length u32 | offset u32 | digits u32 | low u64 | high u64 | ratio f64 | payload
//! payload = zig-zag LEB128 numbers (9 bytes at most): a count for the next bucket, or minus the buckets to skip
//! ```
//!
//! All numbers are big-endian. HdrHistogram's own reader trusts lengths and counts, so nothing reaches it unchecked.
//!
//! Always holds: a [`StoredHistogram`] can be made [`whole`](StoredHistogram::whole), has the bounds of
//! [`LatencyHistogram`](super::LatencyHistogram) and takes no more memory than its text.
//! Source: HdrHistogram, encoding V2 (`V2_ENCODING_COOKIE_BASE` of the Java library).

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

use super::{HIGHEST_NS, HistogramError, LOWEST_NS, SIGNIFICANT_DIGITS, empty};

/// A histogram as it is stored: deflated, checked, and of our bounds.
#[derive(Clone, Debug)]
pub(super) struct StoredHistogram {
    deflated: Box<[u8]>,
    samples: u64,
}

const COMPRESSED_COOKIE: u32 = 0x1c84_9314;
const PLAIN_COOKIE: u32 = 0x1c84_9313;
const HEADER_BYTES: usize = 40;
/// The longest number of a payload.
const NUMBER_BYTES_MAX: usize = 9;
/// More samples than any run takes (104 days of one each nanosecond); a thousand such histograms still add up in 64 bits.
const SAMPLES_MAX: u64 = 1 << 53;

impl StoredHistogram {
    /// The stored form of `counts`.
    pub(super) fn of(counts: &Histogram<u64>) -> Self {
        let mut deflated = Vec::new();
        V2DeflateSerializer::new()
            .serialize(counts, &mut deflated)
            .expect("writing a histogram to memory cannot fail");
        Self { deflated: deflated.into(), samples: counts.len() }
    }

    /// Reads and checks what [`Self::text`] or another HdrHistogram library wrote.
    pub(super) fn parse(text: &str) -> Result<Self, HistogramError> {
        let bytes = BASE64.decode(text).map_err(HistogramError::Base64)?;
        let plain = inflated(&bytes)?;
        let header = Header::of(&plain)?;
        let samples = samples_of(&plain[HEADER_BYTES..], header.counts()?)?;
        let stored = Self { deflated: bytes.into(), samples };
        if header.is_ours() {
            return Ok(stored);
        }
        // Written by another library the bounds may differ: bring the samples into ours.
        let mut counts = empty();
        for bucket in histogram_of(&plain)?.iter_recorded() {
            counts.saturating_record_n(bucket.value_iterated_to(), bucket.count_at_value());
        }
        Ok(Self::of(&counts))
    }

    /// Samples in it.
    pub(super) fn samples(&self) -> u64 {
        self.samples
    }

    /// The text that [`Self::parse`] reads.
    pub(super) fn text(&self) -> String {
        BASE64.encode(&self.deflated)
    }

    /// All its buckets.
    pub(super) fn whole(&self) -> Histogram<u64> {
        let plain = inflated(&self.deflated).expect("it was inflated when it was checked");
        histogram_of(&plain).expect("it was checked when it was read")
    }
}

/// The plain form, header and payload. No longer than its header allows.
fn inflated(bytes: &[u8]) -> Result<Vec<u8>, HistogramError> {
    let cookie = bytes.first_chunk().copied().map(u32::from_be_bytes);
    let mut reader: Box<dyn std::io::Read + '_> = match cookie {
        Some(COMPRESSED_COOKIE) if bytes.len() >= 8 => Box::new(ZlibDecoder::new(&bytes[8..])),
        Some(PLAIN_COOKIE) => Box::new(bytes),
        _ => return Err(format_error("it does not begin as one")),
    };
    let mut plain = vec![0; HEADER_BYTES];
    reader.read_exact(&mut plain).map_err(|_| format_error("it ends within its header"))?;
    let header = Header::of(&plain)?;
    if header.payload_bytes > header.counts()?.saturating_mul(NUMBER_BYTES_MAX) {
        return Err(format_error("its payload is longer than its bounds allow"));
    }
    reader
        .take(header.payload_bytes as u64)
        .read_to_end(&mut plain)
        .map_err(|error| format_error(&format!("it cannot be decompressed: {error}")))?;
    if plain.len() - HEADER_BYTES < header.payload_bytes {
        return Err(format_error("it ends within its payload"));
    }
    Ok(plain)
}

/// Reads what was checked.
fn histogram_of(plain: &[u8]) -> Result<Histogram<u64>, HistogramError> {
    let mut rest = plain;
    Deserializer::new().deserialize(&mut rest).map_err(|error| format_error(&format!("{error:?}")))
}

struct Header {
    payload_bytes: usize,
    digits: u32,
    low: u64,
    high: u64,
}

impl Header {
    fn of(plain: &[u8]) -> Result<Self, HistogramError> {
        let word = |at: usize| u32::from_be_bytes(plain[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_be_bytes(plain[at..at + 8].try_into().expect("eight bytes"));
        if word(0) != PLAIN_COOKIE {
            return Err(format_error("what it holds does not begin as one"));
        }
        if word(8) != 0 || f64::from_bits(long(32)) != 1.0 {
            return Err(format_error("it is shifted or scaled, which is not supported"));
        }
        Ok(Self { payload_bytes: word(4) as usize, digits: word(12), low: long(16), high: long(24) })
    }

    fn is_ours(&self) -> bool {
        (self.digits, self.low, self.high) == (u32::from(SIGNIFICANT_DIGITS), LOWEST_NS, HIGHEST_NS)
    }

    /// Buckets of a histogram with these bounds.
    fn counts(&self) -> Result<usize, HistogramError> {
        let digits = u8::try_from(self.digits).unwrap_or(u8::MAX);
        let of_bounds = Histogram::<u64>::new_with_bounds(self.low, self.high, digits);
        of_bounds.map(|made| made.distinct_values()).map_err(|error| format_error(&error.to_string()))
    }
}

/// Adds up the counts of a payload for `counts` buckets.
fn samples_of(payload: &[u8], counts: usize) -> Result<u64, HistogramError> {
    let (mut rest, mut bucket, mut samples) = (payload, 0usize, 0u64);
    while !rest.is_empty() {
        let number = zig_zag(&mut rest).ok_or_else(|| format_error("it ends within a number"))?;
        let buckets = match u64::try_from(number) {
            Ok(count) => {
                samples = samples
                    .checked_add(count)
                    .filter(|sum| *sum <= SAMPLES_MAX)
                    .ok_or(HistogramError::TooManySamples { max: SAMPLES_MAX })?;
                1
            }
            Err(_) => usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX),
        };
        bucket = bucket
            .checked_add(buckets)
            .filter(|end| *end <= counts)
            .ok_or_else(|| format_error("it has more buckets than its bounds allow"))?;
    }
    Ok(samples)
}

/// Takes one number off `bytes`; none when it is cut off. The ninth byte counts with all its bits.
fn zig_zag(bytes: &mut &[u8]) -> Option<i64> {
    let mut number = 0u64;
    for place in 0..NUMBER_BYTES_MAX {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if place == NUMBER_BYTES_MAX - 1 {
            number |= u64::from(byte) << 56;
            break;
        }
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some((number >> 1) as i64 ^ -((number & 1) as i64))
}

fn format_error(reason: &str) -> HistogramError {
    HistogramError::Format { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use proptest::prelude::*;

    use super::*;
    use crate::LatencyHistogram;

    /// The text of a histogram with these bounds, whatever its payload is.
    fn text(digits: u32, low: u64, high: u64, payload_bytes: u32, payload: &[u8]) -> String {
        let mut plain = PLAIN_COOKIE.to_be_bytes().to_vec();
        plain.extend(payload_bytes.to_be_bytes());
        plain.extend(0u32.to_be_bytes());
        plain.extend(digits.to_be_bytes());
        plain.extend(low.to_be_bytes());
        plain.extend(high.to_be_bytes());
        plain.extend(1f64.to_be_bytes());
        plain.extend(payload);
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(&plain).unwrap();
        let deflated = zlib.finish().unwrap();
        let mut bytes = COMPRESSED_COOKIE.to_be_bytes().to_vec();
        bytes.extend((deflated.len() as u32).to_be_bytes());
        bytes.extend(deflated);
        BASE64.encode(bytes)
    }

    fn of(payload: &[u8]) -> Result<LatencyHistogram, HistogramError> {
        LatencyHistogram::decode(&text(3, 1, 100_000_000_000, payload.len() as u32, payload))
    }

    fn reason(payload: &[u8]) -> String {
        of(payload).unwrap_err().to_string()
    }

    /// Symptom: a record from elsewhere ended the program. Cause: HdrHistogram's reader negates what it skips and adds up
    /// what it counts without a check. Fix: lengths, counts and their sum are checked first.
    #[test]
    fn a_payload_that_no_histogram_has_is_an_error_and_not_a_panic() {
        assert!(reason(&[0xff; 20]).contains("more buckets than its bounds allow"));
        // i64::MAX and a few less, three times.
        let huge = [[0xfe].as_slice(), &[0xff; 8]].concat().repeat(3);
        assert!(reason(&huge).contains("more samples than"));
        assert!(reason(&huge[..9]).contains("more samples than"), "once is too many as well");
        assert!(reason(&[0x80]).contains("ends within a number"));
        let behind = [[0xff; 3].as_slice(), &[0x7f, 2]].concat();
        assert!(reason(&behind).contains("more buckets"));
        assert_eq!(of(&[2, 3, 4]).unwrap().count(), 3, "a count of one, two buckets skipped, a count of two");
    }

    #[test]
    fn lengths_that_lie_are_refused_before_memory_is_taken_for_them() {
        let long = LatencyHistogram::decode(&text(3, 1, 100_000_000_000, u32::MAX, &[2]));
        assert!(long.unwrap_err().to_string().contains("longer than its bounds allow"));
        let short = LatencyHistogram::decode(&text(3, 1, 100_000_000_000, 90, &[2]));
        assert!(short.unwrap_err().to_string().contains("ends within its payload"));
        for (digits, low, high) in [(9, 1, 1000), (3, 0, 1000), (3, 1000, 1000), (u32::MAX, 1, 1000)] {
            assert!(
                LatencyHistogram::decode(&text(digits, low, high, 1, &[2])).is_err(),
                "{digits} {low} {high}"
            );
        }
    }

    #[test]
    fn a_histogram_that_was_read_takes_the_memory_of_its_text() {
        let mut live = LatencyHistogram::new();
        live.record(std::time::Duration::from_micros(7));
        let text = live.encode();
        let stored = StoredHistogram::parse(&text).unwrap();
        assert!(stored.deflated.len() < 100, "{} bytes", stored.deflated.len());
        assert_eq!((stored.samples(), stored.text()), (1, text));
    }

    proptest! {
        // The widest bounds take 50 MB.
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn whatever_the_bytes_are_reading_them_ends_in_a_histogram_or_an_error(
            digits in 0u32..7,
            low in prop_oneof![1u64..2000, any::<u64>()],
            high in prop_oneof![Just(HIGHEST_NS), any::<u64>()],
            payload in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xff), Just(2)], 0..60),
        ) {
            let text = text(digits, low, high, payload.len() as u32, &payload);
            if let Ok(read) = LatencyHistogram::decode(&text) {
                let again = LatencyHistogram::decode(&read.encode()).unwrap();
                prop_assert_eq!(again.count(), read.count());
                let summary = read.summary();
                prop_assert!(summary.p50 <= summary.max);
            }
        }
    }
}
