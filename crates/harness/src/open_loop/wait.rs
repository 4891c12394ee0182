//! How a generator is to wait, and what it chose.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a generator waits for the next planned moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Spin where cores are free and no CPU quota forbids it, and sleep elsewhere. The default.
    #[default]
    Auto,
    /// Sleep until shortly before the moment, then spin.
    Sleep,
    /// Spin all the time, which takes a whole core.
    Spin,
}

/// A way to wait that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("`{0}`: expected auto, sleep or spin")]
pub struct NotAWait(String);

impl FromStr for Wait {
    type Err = NotAWait;

    fn from_str(text: &str) -> Result<Self, NotAWait> {
        match text {
            "auto" => Ok(Self::Auto),
            "sleep" => Ok(Self::Sleep),
            "spin" => Ok(Self::Spin),
            _ => Err(NotAWait(text.to_owned())),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Sleep => "sleep",
            Self::Spin => "spin",
        })
    }
}

/// How a generator does wait, once its first warm-up is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitChoice {
    /// It spins all the time.
    pub spins: bool,
    /// How long before a moment its sleep ends; zero when it spins anyway.
    pub window: Duration,
    /// The CPUs of this machine are kept awake meanwhile, which makes storage on this machine faster, too.
    pub cpus_awake: bool,
}

impl WaitChoice {
    /// The mode alone, `sleep` or `spin`: what must be the same on both sides of a comparison.
    pub fn mode(&self) -> &'static str {
        if self.spins { "spin" } else { "sleep" }
    }
}

/// What a record's configuration says of it: runs that waited differently are not alike.
pub fn chosen_waiting(waited: Option<WaitChoice>) -> Vec<(&'static str, Value)> {
    vec![
        ("wait", waited.map(|choice| choice.mode()).into()),
        ("cpus_awake", waited.map(|choice| choice.cpus_awake).into()),
    ]
}

impl fmt::Display for WaitChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.spins {
            f.write_str("the generator spins between requests")?;
        } else {
            let window_us = self.window.as_micros();
            write!(f, "the generator sleeps until {window_us} us before each request, then spins")?;
        }
        f.write_str(if self.cpus_awake { "; CPUs are kept awake" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_wait_is_read_as_it_is_written_and_others_are_refused() {
        for wait in [Wait::Auto, Wait::Sleep, Wait::Spin] {
            assert_eq!(wait.to_string().parse::<Wait>().unwrap(), wait);
        }
        assert_eq!("nap".parse::<Wait>().unwrap_err().to_string(), "`nap`: expected auto, sleep or spin");
    }
}
