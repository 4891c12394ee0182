//! A request as it goes over the wire.
//!
//! ```text
//! GET [http://AUTHORITY]PATH[/-/TAIL] HTTP/1.1
//! Host: AUTHORITY
//! X-Crumb-Request: NUMBER
//! [no-cache of a reload, or the date of a conditional request]
//! [Connection: close]
//! ```

use std::fmt::Write as _;

use super::client::Flight;
use crate::plan::Class;
use crate::run::Route;
use crate::wire::REQUEST_FIELD;
use crate::wire::http_date;

/// Where requests are written, one after the other.
pub(super) struct RequestText {
    text: String,
    path: String,
}

impl RequestText {
    pub fn new() -> Self {
        Self { text: String::with_capacity(4096), path: String::with_capacity(4096) }
    }

    /// Writes one that is due at `due_unix_s`; `tail` is the rest of its URL, `last` that its connection carries no more.
    pub fn write(
        &mut self,
        flight: &Flight,
        route: &Route,
        tail: &str,
        due_unix_s: f64,
        last: bool,
    ) -> &[u8] {
        let Self { text, path } = self;
        let planned = &flight.planned;
        text.clear();
        path.clear();
        planned.object.write_path(path);
        text.push_str("GET ");
        text.push_str(&route.prefix());
        text.push_str(path);
        if !tail.is_empty() {
            text.push_str("/-/");
            text.push_str(tail);
        }
        text.push_str(" HTTP/1.1\r\nHost: ");
        text.push_str(&route.authority);
        // Writing to a String cannot fail.
        let _ = write!(text, "\r\n{REQUEST_FIELD}: {:x}\r\n", flight.request);
        match planned.class {
            Class::Plain => {}
            Class::Reload => text.push_str("Cache-Control: no-cache\r\nPragma: no-cache\r\n"),
            class @ (Class::ImsChanged | Class::ImsUnchanged) => {
                let modified = planned.object.modified_s(planned.object.version_at(due_unix_s));
                let since = if class == Class::ImsChanged { modified.saturating_sub(1) } else { modified };
                let _ = write!(text, "If-Modified-Since: {}\r\n", http_date::written(since));
            }
        }
        text.push_str(if last { "Connection: close\r\n\r\n" } else { "\r\n" });
        text.as_bytes()
    }
}
