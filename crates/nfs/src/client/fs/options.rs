//! How a mounted export behaves as a file system: what is remembered, and how durable a write is at once.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::client::ClientOptions;

/// How a mounted export behaves as a file system.
#[derive(Clone, Debug, Default)]
pub struct FsOptions {
    /// How it connects, waits and gives up. `reconnect_timeout` is also how long a server may be gone, or answer
    /// `JUKEBOX`, before a call fails. Once a call failed so, those that follow wait a second together and then fail at
    /// once, but for a try every 5 s, until the server answers again.
    pub client: ClientOptions,
    /// What is remembered between calls.
    pub cache: CacheMode,
    /// How durable a write is at once.
    pub writes: WriteMode,
}

/// Handles and attributes remembered between calls. Data is never kept beyond an open file's read-ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheMode {
    /// Nothing: every path is walked by LOOKUP on every call.
    Off,
    /// Handles of names, and attributes, for this long since the server last reported them. Own changes show at once;
    /// other clients' changes may stay unseen for as long. Default 3 s, `acregmin` of the Linux client.
    For(Duration),
}

/// How durable a WRITE is when it is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMode {
    /// Not at all until COMMIT, which sync and close send. The default, as in every kernel client.
    #[default]
    Unstable,
    /// Wholly (`FILE_SYNC`); no COMMIT.
    Stable,
}

impl Default for CacheMode {
    fn default() -> Self {
        Self::For(Duration::from_secs(3))
    }
}

/// A text that names no mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {what} mode; expected {expected}")]
pub struct ModeError {
    /// The text.
    text: String,
    /// `cache` or `write`.
    what: &'static str,
    /// What would do.
    expected: &'static str,
}

impl FromStr for CacheMode {
    type Err = ModeError;

    /// `off`, or a time such as `500ms` or `3s`.
    fn from_str(text: &str) -> Result<Self, ModeError> {
        let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse::<u32>().ok().map(u64::from),
            false => None,
        };
        let keep = match text.strip_suffix("ms") {
            _ if text == "off" => return Ok(Self::Off),
            Some(digits) => number(digits).map(Duration::from_millis),
            None => text.strip_suffix('s').and_then(number).map(Duration::from_secs),
        };
        match keep {
            Some(keep) if keep.is_zero() => Ok(Self::Off),
            Some(keep) => Ok(Self::For(keep)),
            None => Err(ModeError {
                text: text.to_owned(),
                what: "cache",
                expected: "off, or a time such as 500ms or 3s",
            }),
        }
    }
}

impl fmt::Display for CacheMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::For(keep) if keep.subsec_nanos() == 0 => write!(f, "{}s", keep.as_secs()),
            Self::For(keep) => write!(f, "{}ms", keep.as_millis()),
        }
    }
}

impl FromStr for WriteMode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        match text {
            "unstable" => Ok(Self::Unstable),
            "stable" => Ok(Self::Stable),
            _ => Err(ModeError { text: text.to_owned(), what: "write", expected: "unstable or stable" }),
        }
    }
}

impl fmt::Display for WriteMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unstable => "unstable",
            Self::Stable => "stable",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_reads_back_from_what_it_prints() {
        for text in ["off", "3s", "1500ms", "1ms"] {
            assert_eq!(text.parse::<CacheMode>().unwrap().to_string(), text);
        }
        assert_eq!("0s".parse(), Ok(CacheMode::Off));
        assert_eq!("3000ms".parse(), Ok(CacheMode::default()));
        for mode in [WriteMode::Unstable, WriteMode::Stable] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
    }

    #[test]
    fn what_is_no_mode_is_told_with_what_would_do() {
        for text in ["", "s", "ms", "3", "-1s", "+3s", "on", "3 s", "99999999999s", "3µs"] {
            let message = text.parse::<CacheMode>().expect_err(text).to_string();
            assert!(message.contains("500ms") && message.contains(text), "{message}");
        }
        assert!("Stable".parse::<WriteMode>().unwrap_err().to_string().contains("unstable or stable"));
    }
}
