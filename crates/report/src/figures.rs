//! How numbers are written for people: as many digits as can be trusted, and always a unit.

/// A rate or other size around which a tenth matters: `3,999.2`, `41,210`.
pub fn rate_text(per_sec: f64) -> String {
    if per_sec.abs() < 9_999.95 { grouped(per_sec, 1) } else { grouped(per_sec, 0) }
}

/// A rate for a name, without a tenth that is zero: `4,000`, `62.5`.
pub(crate) fn round_rate_text(per_sec: f64) -> String {
    let text = rate_text(per_sec);
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

/// Milliseconds out of microseconds, three digits that count: `0.213`, `4.71`, `1,204`.
pub fn ms_text(us: f64) -> String {
    let ms = us / 1e3;
    let decimals = match ms.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        _ => 3,
    };
    grouped(ms, decimals)
}

/// A whole number: `1,204,331`.
pub fn count_text(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes, in powers of 1000: `312 B`, `1.25 GB`.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1e3;
    let mut unit = 0;
    while size >= 999.5 && unit + 1 < UNITS.len() {
        size /= 1e3;
        unit += 1;
    }
    let decimals = if size >= 99.5 { 0 } else { usize::from(size < 9.995) + 1 };
    format!("{} {}", grouped(size, decimals), UNITS[unit])
}

/// A metric of a RunRecord in words: its name, its value and the value's unit, the latter read off the
/// name's ending.
pub fn metric_text(name: &str, value: f64) -> (String, String, &'static str) {
    let (stem, number, unit) = if let Some(stem) = name.strip_suffix("_per_sec") {
        match stem.strip_suffix("_bytes").filter(|_| value >= 0.0) {
            Some(stem) => return (words(stem), format!("{}/s", bytes_text(value as u64)), ""),
            None => (stem, round_rate_text(value), "/s"),
        }
    } else if let Some(stem) = name.strip_suffix("_us") {
        (stem, ms_text(value), "ms")
    } else if let Some(stem) = name.strip_suffix("_ms") {
        (stem, ms_text(value * 1e3), "ms")
    } else if let Some(stem) = name.strip_suffix("_s") {
        (stem, grouped(value, 2), "s")
    } else if let Some(stem) = name.strip_suffix("_percent") {
        (stem, grouped(value, 2), "%")
    } else if let Some(stem) = name.strip_suffix("_bytes").filter(|_| value >= 0.0) {
        return (words(stem), bytes_text(value as u64), "");
    } else if value.fract() == 0.0 && (0.0..1e15).contains(&value) {
        (name, count_text(value as u64), "")
    } else {
        (name, ms_text(value * 1e3), "")
    };
    (words(stem), number, unit)
}

fn words(stem: &str) -> String {
    match stem {
        "saturation" => "Saturation point".to_owned(),
        "peak" => "Peak rate".to_owned(),
        "ort" | "overall_response" | "overall_response_time" => "Overall response time".to_owned(),
        _ => {
            let spaced = stem.replace('_', " ");
            let mut letters = spaced.chars();
            letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
        }
    }
}

/// `number` with `decimals` and commas between thousands.
pub(crate) fn grouped(number: f64, decimals: usize) -> String {
    if !number.is_finite() || number.abs() >= 1e15 {
        return format!("{number:e}");
    }
    let text = format!("{:.decimals$}", number.abs());
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let sign = if number < 0.0 && text.bytes().any(|b| (b'1'..=b'9').contains(&b)) { "-" } else { "" };
    format!("{sign}{}{rest}", count_text(whole.parse().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_the_digits_that_count_and_no_more() {
        assert_eq!([213.4, 4_712.0, 47_120.0, 1_204_331.0].map(ms_text), ["0.213", "4.71", "47.1", "1,204"]);
        assert_eq!([62.5, 3_999.24, 41_210.4].map(rate_text), ["62.5", "3,999.2", "41,210"]);
        assert_eq!(round_rate_text(4_000.0), "4,000");
        assert_eq!([0, 999, 1_234_567].map(count_text), ["0", "999", "1,234,567"]);
        assert_eq!(
            [12, 1_500, 999_600, 1_250_000_000].map(bytes_text),
            ["12 B", "1.50 kB", "1.00 MB", "1.25 GB"]
        );
    }

    #[test]
    fn a_number_that_is_not_finite_is_written_and_does_not_panic() {
        assert_eq!(rate_text(f64::NAN), "NaN");
        assert_eq!(ms_text(f64::INFINITY), "inf");
        assert_eq!(rate_text(-0.01), "0.0");
        assert_eq!(rate_text(-1234.5), "-1,234.5");
    }

    #[test]
    fn a_metric_is_read_off_its_name() {
        assert_eq!(
            metric_text("saturation_per_sec", 4321.0),
            ("Saturation point".into(), "4,321".into(), "/s")
        );
        assert_eq!(metric_text("ort_us", 2_410.0), ("Overall response time".into(), "2.41".into(), "ms"));
        assert_eq!(metric_text("read_bytes_per_sec", 2e6), ("Read".into(), "2.00 MB/s".into(), ""));
        assert_eq!(metric_text("files_created", 20_000.0), ("Files created".into(), "20,000".into(), ""));
    }
}
