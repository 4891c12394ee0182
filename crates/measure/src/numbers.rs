//! How numbers are written for people: as many digits as can be trusted, and always a unit.

use crate::Metric;

/// A rate or other size around which a tenth matters: `3,999.2`, `41,210`.
pub fn rate_text(per_sec: f64) -> String {
    if per_sec.abs() < 9_999.95 { grouped(per_sec, 1) } else { grouped(per_sec, 0) }
}

/// A rate for a name, without a tenth that is zero: `4,000`, `62.5`.
pub fn round_rate_text(per_sec: f64) -> String {
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

/// The unit in which seconds up to `highest_s` are read most easily, and what they are divided by.
pub fn seconds_unit(highest_s: f64) -> (&'static str, f64) {
    match highest_s {
        s if s >= 120.0 => ("min", 60.0),
        s if s >= 0.5 => ("s", 1.0),
        _ => ("ms", 1e-3),
    }
}

/// Seconds in such a unit, three digits that count: `100 min`, `3.20 s`, `90.0 ms`.
pub fn seconds_text(seconds: f64) -> String {
    let (unit, divisor) = seconds_unit(seconds);
    format!("{} {unit}", ms_text(1e3 * seconds / divisor))
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

/// A metric for people: its title, its value, and the value's unit.
pub fn metric_text(metric: &Metric, value: f64) -> (String, String, String) {
    let (number, unit) = number_text(&metric.unit, value);
    (metric.title.clone(), number, unit)
}

/// A value of this unit, as a [`Metric`] names it, and the unit for people: empty where the number has it already.
pub fn number_text(unit: &str, value: f64) -> (String, String) {
    let (number, unit) = match unit {
        "B/s" if value >= 0.0 => (format!("{}/s", bytes_text(value as u64)), ""),
        "B" if value >= 0.0 => (bytes_text(value as u64), ""),
        "/s" | "B/s" => (round_rate_text(value), "/s"),
        // A tenth of a millisecond in milliseconds would lose the digits that count.
        "us" => match value.abs() {
            us if us < 100.0 => (ms_text(value * 1e3), "µs"),
            us if us < 1e7 => (ms_text(value), "ms"),
            _ => (ms_text(value / 1e3), "s"),
        },
        "min" => match value.abs() {
            minutes if minutes < 2.0 => (ms_text(value * 60e3), "s"),
            _ => (ms_text(value * 1e3), "min"),
        },
        "s" => (grouped(value, 2), "s"),
        "%" => (grouped(value, 2), "%"),
        "" if value.fract() == 0.0 && (0.0..1e15).contains(&value) => (count_text(value as u64), ""),
        other => match other.strip_prefix("us/") {
            Some(thing) => return (ms_text(value * 1e3), format!("µs {} {thing}", article(thing))),
            None => (ms_text(value * 1e3), other),
        },
    };
    (number, unit.to_owned())
}

/// As [`number_text`], for a value that is read beside `others`: times have one unit, which suits the middle between the
/// shortest and the longest.
pub fn number_text_beside(unit: &str, others: &[f64], value: f64) -> (String, String) {
    let sizes = others.iter().map(|value| value.abs()).filter(|size| size.is_finite() && *size > 0.0);
    let (least, most) = sizes.fold((f64::INFINITY, 0.0f64), |(a, b), size| (size.min(a), size.max(b)));
    if unit != "us" || most == 0.0 {
        return number_text(unit, value);
    }
    let (name, divisor) = match (least * most).sqrt() {
        middle if middle < 100.0 => ("µs", 1.0),
        middle if middle < 1e7 => ("ms", 1e3),
        _ => ("s", 1e6),
    };
    (ms_text(1e3 * value / divisor), name.to_owned())
}

/// A value with its unit: `4,321/s`, `0.412 ms`.
pub fn figure_text(unit: &str, value: f64) -> String {
    let (number, unit) = number_text(unit, value);
    let gap = if unit.is_empty() || unit.starts_with('/') || unit.starts_with('%') { "" } else { " " };
    format!("{number}{gap}{unit}")
}

fn article(thing: &str) -> &'static str {
    if thing.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

/// `number` with `decimals` and commas between thousands.
pub fn grouped(number: f64, decimals: usize) -> String {
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
    fn seconds_are_told_in_minutes_only_where_they_are_many() {
        assert_eq!([6_000.0, 3.2, 0.09].map(seconds_text), ["100 min", "3.20 s", "90.0 ms"]);
    }

    #[test]
    fn a_number_that_is_not_finite_is_written_and_does_not_panic() {
        assert_eq!(rate_text(f64::NAN), "NaN");
        assert_eq!(ms_text(f64::INFINITY), "inf");
        assert_eq!(rate_text(-0.01), "0.0");
        assert_eq!(rate_text(-1234.5), "-1,234.5");
    }

    #[test]
    fn a_value_is_written_with_the_unit_that_suits_its_size() {
        let texts = [
            ("/s", 4_321.0),
            ("us", 41.2),
            ("us", 2_410.0),
            ("%", 61.5),
            ("B/s", 2e6),
            ("min", 0.05),
            ("min", 50.0),
            ("us/article", 58.1),
            ("us/request", 58.1),
            ("", 20_000.0),
            ("B", 1_500.0),
            ("s", 3.0),
            ("ms", 2.5),
        ];
        assert_eq!(
            texts.map(|(unit, value)| figure_text(unit, value)),
            [
                "4,321/s",
                "41.2 µs",
                "2.41 ms",
                "61.50%",
                "2.00 MB/s",
                "3.00 s",
                "50.0 min",
                "58.1 µs an article",
                "58.1 µs a request",
                "20,000",
                "1.50 kB",
                "3.00 s",
                "2.50 ms"
            ]
        );
    }

    #[test]
    fn times_side_by_side_have_one_unit() {
        let texts = |values: [f64; 2]| {
            values.map(|value| {
                let (number, unit) = number_text_beside("us", &values, value);
                format!("{number} {unit}")
            })
        };
        assert_eq!(texts([12.0, 1_400.0]), ["0.012 ms", "1.40 ms"]);
        assert_eq!(texts([12.0, 140.0]), ["12.0 µs", "140 µs"]);
        assert_eq!(texts([0.0, 0.0]), ["0.000 µs", "0.000 µs"]);
        assert_eq!(number_text_beside("/s", &[4e9], 4_321.0), ("4,321".to_owned(), "/s".to_owned()));
    }

    #[test]
    fn a_metric_is_called_as_it_is_declared_and_else_by_its_name() {
        let declared = crate::MetricDeclaration::rate("saturation_per_sec", "Saturation point");
        let metric = declared.metric("saturation_per_sec").unwrap();
        assert_eq!(metric_text(&metric, 4321.0), ("Saturation point".into(), "4,321".into(), "/s".into()));
        let undeclared = Metric::undeclared("files_created");
        assert_eq!(
            metric_text(&undeclared, 20_000.0),
            ("Files created".into(), "20,000".into(), String::new())
        );
    }
}
