//! Lines of the access log.
//!
//! Sources: Squid's native format ("LogFormat squid"), the NCSA common and combined formats.

use std::fmt::Write as _;
use std::time::UNIX_EPOCH;

use http_cache_rules::WallSeconds;
use http_cache_rules::date;

use super::Entry;

/// `1700000000.123     45 10.0.0.1 TCP_HIT/200 1234 GET http://a/b - HIER_NONE/- text/html`
pub(super) fn squid(entry: &Entry) -> String {
    let at = entry.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (origin, how) = match &entry.origin {
        Some((way, origin)) => (origin.as_str(), way.squid()),
        None => ("-", "HIER_NONE"),
    };
    let aborted = if entry.aborted { "_ABORTED" } else { "" };
    format!(
        "{}.{:03} {:>6} {} {}{aborted}/{:03} {} {} {} - {how}/{} {}\n",
        at.as_secs(),
        at.subsec_millis(),
        entry.took.as_millis(),
        entry.client.to_canonical(),
        entry.outcome.squid(),
        entry.status,
        entry.sent_bytes,
        bare(&entry.method),
        bare(&entry.url),
        bare(origin),
        bare(&entry.content_type),
    )
}

/// `10.0.0.1 - - [10/Oct/2000:13:55:36 +0000] "GET http://a/b HTTP/1.1" 200 2326 "referer" "agent"`
pub(super) fn common(entry: &Entry, combined: bool) -> String {
    let at = entry.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let date = date::format(WallSeconds(at as i64));
    let part = |range: std::ops::Range<usize>| std::str::from_utf8(&date[range]).unwrap_or("-");
    let mut line = format!(
        "{} - - [{}/{}/{}:{} +0000] \"{} {} {}\" {:03} {}",
        entry.client.to_canonical(),
        part(5..7),
        part(8..11),
        part(12..16),
        part(17..25),
        quoted(&entry.method),
        quoted(&entry.url),
        entry.version,
        entry.status,
        entry.sent_bytes,
    );
    if combined {
        let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { quoted(text) };
        let _ = write!(line, " \"{}\" \"{}\"", or_dash(&entry.referer), or_dash(&entry.agent));
    }
    line.push('\n');
    line
}

pub(super) fn json(entry: &Entry) -> String {
    let at = entry.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut line = serde_json::json!({
        "time_s": at.as_secs_f64(),
        "took_us": u64::try_from(entry.took.as_micros()).unwrap_or(u64::MAX),
        "client": entry.client.to_canonical().to_string(),
        "method": entry.method,
        "url": entry.url,
        "version": entry.version,
        "status": entry.status,
        "sent_bytes": entry.sent_bytes,
        "outcome": entry.outcome.name(),
        "aborted": entry.aborted,
        "origin": entry.origin.as_ref().map(|(_, origin)| origin),
        "hierarchy": entry.origin.as_ref().map_or("HIER_NONE", |(way, _)| way.squid()),
        "content_type": entry.content_type,
        "referer": entry.referer,
        "agent": entry.agent,
        "request_id": format!("{:016x}", entry.request_id),
    })
    .to_string();
    line.push('\n');
    line
}

/// An unquoted field: white space and control characters escaped; a dash if empty.
fn bare(text: &str) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    escaped(text, |letter| letter.is_ascii_whitespace())
}

fn quoted(text: &str) -> String {
    escaped(text, |letter| letter == '"' || letter == '\\')
}

fn escaped(text: &str, special: impl Fn(char) -> bool) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        if special(letter) || letter.is_control() {
            let mut bytes = [0; 4];
            letter.encode_utf8(&mut bytes).bytes().for_each(|byte| {
                let _ = write!(line, "%{byte:02X}");
            });
        } else {
            line.push(letter);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::LogFormat;
    use crate::log::Way;
    use crate::server::Outcome;

    fn entry() -> Entry {
        Entry {
            at: UNIX_EPOCH + Duration::from_millis(784_111_777_123),
            took: Duration::from_millis(45),
            client: "10.0.0.1".parse().expect("an address"),
            method: "GET".to_owned(),
            url: "http://a/b".to_owned(),
            version: "HTTP/1.1",
            status: 200,
            sent_bytes: 1234,
            outcome: Outcome::Hit,
            aborted: false,
            origin: None,
            content_type: "text/html; charset=utf-8".to_owned(),
            referer: String::new(),
            agent: "a \"b\"\nc".to_owned(),
            request_id: 7,
        }
    }

    #[test]
    fn lines_are_as_others_write_them() {
        assert_eq!(
            entry().line(LogFormat::Squid),
            "784111777.123     45 10.0.0.1 TCP_HIT/200 1234 GET http://a/b - HIER_NONE/- text/html;%20charset=utf-8\n"
        );
        let of_sibling = Entry { origin: Some((Way::SiblingHit, "10.0.0.8".to_owned())), ..entry() };
        assert!(of_sibling.line(LogFormat::Squid).contains(" - SIBLING_HIT/10.0.0.8 text/html"));
        assert!(of_sibling.line(LogFormat::Json).contains("\"hierarchy\":\"SIBLING_HIT\""));
        assert_eq!(
            entry().line(LogFormat::Common),
            "10.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"GET http://a/b HTTP/1.1\" 200 1234\n"
        );
        assert_eq!(
            entry().line(LogFormat::Combined),
            "10.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"GET http://a/b HTTP/1.1\" 200 1234 \"-\" \"a %22b%22%0Ac\"\n"
        );
    }

    #[test]
    fn a_failure_has_its_status_and_only_what_broke_off_is_aborted() {
        let failed = Entry { outcome: Outcome::Failed, status: 502, ..entry() };
        assert!(failed.line(LogFormat::Squid).contains(" TCP_MISS/502 "));
        let left = Entry { aborted: true, ..failed };
        assert!(left.line(LogFormat::Squid).contains(" TCP_MISS_ABORTED/502 "));
        let cut = Entry { aborted: true, ..entry() };
        assert!(cut.line(LogFormat::Squid).contains(" TCP_HIT_ABORTED/200 "));
    }

    #[test]
    fn whatever_a_client_sends_one_request_is_one_line() {
        let nasty = Entry { url: "http://a/\r\n1 x".to_owned(), agent: "\u{85}\n\"".to_owned(), ..entry() };
        for format in [LogFormat::Squid, LogFormat::Common, LogFormat::Combined, LogFormat::Json] {
            let line = nasty.line(format);
            assert_eq!(line.lines().count(), 1, "{line}");
        }
        let json: serde_json::Value = serde_json::from_str(&nasty.line(LogFormat::Json)).expect("JSON");
        assert_eq!(json["url"], "http://a/\r\n1 x");
    }
}
