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
            Some(stem) => {
                return (
                    words(name, &format!("{stem}_bytes")),
                    format!("{}/s", bytes_text(value as u64)),
                    "",
                );
            }
            None => (stem, round_rate_text(value), "/s"),
        }
    } else if let Some(stem) = name.strip_suffix("_us") {
        // A tenth of a millisecond in milliseconds would lose the digits that count.
        match value.abs() {
            us if us < 100.0 => (stem, ms_text(value * 1e3), "µs"),
            us if us < 1e7 => (stem, ms_text(value), "ms"),
            _ => (stem, ms_text(value / 1e3), "s"),
        }
    } else if let Some(stem) = name.strip_suffix("_ms") {
        (stem, ms_text(value * 1e3), "ms")
    } else if let Some(stem) = name.strip_suffix("_minutes") {
        match value.abs() {
            minutes if minutes < 2.0 => (stem, ms_text(value * 60e3), "s"),
            _ => (stem, ms_text(value * 1e3), "min"),
        }
    } else if let Some(stem) = name.strip_suffix("_us_per_article") {
        (stem, ms_text(value * 1e3), "µs an article")
    } else if let Some(stem) = name.strip_suffix("_percent_per_pass") {
        (stem, grouped(value, 2), "% a pass")
    } else if let Some(stem) = name.strip_suffix("_s") {
        (stem, grouped(value, 2), "s")
    } else if let Some(stem) = name.strip_suffix("_percent") {
        (stem, grouped(value, 2), "%")
    } else if let Some(stem) = name.strip_suffix("_bytes").filter(|_| value >= 0.0) {
        return (words(name, stem), bytes_text(value as u64), "");
    } else if value.fract() == 0.0 && (0.0..1e15).contains(&value) {
        (name, count_text(value as u64), "")
    } else {
        (name, ms_text(value * 1e3), "")
    };
    (words(name, stem), number, unit)
}

/// A metric's name in words.
pub(crate) fn metric_title(name: &str) -> String {
    metric_text(name, 1.0).0
}

/// A metric's value with its unit: `4,321/s`, `0.412 ms`.
pub fn figure_text(name: &str, value: f64) -> String {
    let (_, number, unit) = metric_text(name, value);
    let gap = if unit.is_empty() || unit.starts_with('/') || unit.starts_with('%') { "" } else { " " };
    format!("{number}{gap}{unit}")
}

fn words(name: &str, stem: &str) -> String {
    // A metric about one variant has the variant's name at its end.
    let of_variant = [
        // As `_us` it is of one operation, as `_s` of the whole day.
        ("day_cost_", if name.ends_with("_us") { "Mean operation of a day" } else { "Cost of a day" }),
        ("pays_from_files_", "Pays from, files"),
    ];
    if let Some((variant, text)) =
        of_variant.iter().find_map(|(begin, text)| Some((stem.strip_prefix(begin)?, text)))
    {
        return format!("{text}, {}", variant.replace('_', "/"));
    }
    let known = match stem {
        "saturation" => "Saturation point",
        "held" => "Highest rate held",
        "peak" => "Peak rate",
        "ort" | "overall_response" | "overall_response_time" => "Overall response time",
        "total" => "Total time",
        "unbatch_articles" => "Storing articles",
        "unbatch_first_pass" => "Storing articles, first pass",
        "unbatch_last_pass" => "Storing articles, last pass",
        "unbatch_user" => "User time to store",
        "unbatch_sys" => "System time to store",
        "ageing" => "Last pass against the first",
        "ageing_trend" => "Ageing trend",
        "batch" => "Time to batch",
        "expire" => "Time to delete",
        "batch_articles" => "Articles batched",
        "expire_files" => "Expired files deleted",
        "created" => "Files created",
        "created_alone" => "Files created, alone",
        "created_mixed" => "Files created, with transactions",
        "read" => "Files read",
        "appended" => "Files appended to",
        "deleted" => "Files deleted",
        "deleted_alone" => "Files deleted, alone",
        "deleted_mixed" => "Files deleted, with transactions",
        "read_bytes" => "Read",
        "written_bytes" => "Written",
        "device_busy" => "Device busy",
        "cpu" => "CPU used",
        "readdir" => "Read the directory",
        "add" => "Add a file",
        "remove" => "Remove a file",
        "day" => "Mean operation of a day",
        "lookup_random" => "Lookup, random order",
        "lookup_sequential" => "Lookup, sequential order",
        _ => "",
    };
    if !known.is_empty() {
        return known.to_owned();
    }
    // `create_p99` is the 99th percentile of creating.
    let stem = match stem.rsplit_once('_') {
        Some((of, percentile))
            if percentile.len() > 1 && percentile.strip_prefix('p').is_some_and(digits) =>
        {
            format!("{of} latency {percentile}")
        }
        _ => stem.to_owned(),
    };
    let spaced = stem.replace('_', " ");
    let mut letters = spaced.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
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
    fn the_metrics_of_closed_loop_benchmarks_are_worded_for_people() {
        let title = |name| metric_text(name, 12.0).0;
        assert_eq!(title("transactions_per_sec"), "Transactions");
        assert_eq!(title("created_alone_per_sec"), "Files created, alone");
        assert_eq!(title("create_p99_us"), "Create latency p99");
        assert_eq!(title("day_cost_34_56_us"), "Mean operation of a day, 34/56");
        assert_eq!(title("day_cost_34_56_s"), "Cost of a day, 34/56");
        assert_eq!(title("day_us"), "Mean operation of a day");
        assert_eq!(title("pays_from_files_345"), "Pays from, files, 345");
        assert_eq!(title("lookup_random_us"), "Lookup, random order");
        let names =
            ["transactions_per_sec", "create_p50_us", "create_p99_us", "cpu_percent", "read_bytes_per_sec"];
        let texts = names
            .iter()
            .zip([1_120.0, 41.2, 2_410.0, 61.5, 2e6])
            .map(|(name, value)| figure_text(name, value));
        assert_eq!(texts.collect::<Vec<_>>(), ["1,120/s", "41.2 µs", "2.41 ms", "61.50%", "2.00 MB/s"]);
    }

    #[test]
    fn the_metrics_of_netnews_have_their_units() {
        let texts = [
            ("unbatch_articles_per_sec", 4_321.0),
            ("ageing_percent", 86.5),
            ("ageing_trend_percent_per_pass", -1.2),
            ("expire_minutes", 0.05),
            ("batch_minutes", 50.0),
            ("unbatch_sys_us_per_article", 58.1),
        ]
        .map(|(name, value)| format!("{}: {}", metric_title(name), figure_text(name, value)));
        assert_eq!(
            texts,
            [
                "Storing articles: 4,321/s",
                "Last pass against the first: 86.50%",
                "Ageing trend: -1.20% a pass",
                "Time to delete: 3.00 s",
                "Time to batch: 50.0 min",
                "System time to store: 58.1 µs an article"
            ]
        );
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
