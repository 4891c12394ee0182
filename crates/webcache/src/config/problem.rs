//! What is wrong with a configuration, collected so that everything is reported at once.

use std::fmt;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key with its section; empty for the file itself.
    pub key: String,
    /// What is wrong, and what would be right.
    pub what: String,
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// In the order of the file.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    pub(super) fn of(what: String) -> Self {
        Self { problems: vec![Problem { key: String::new(), what }] }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, Problem { key, what }) in self.problems.iter().enumerate() {
            let line_break = if place == 0 { "" } else { "\n" };
            let space = if key.is_empty() { "" } else { " " };
            write!(out, "{line_break}{key}{space}{}", what.trim_end())?;
        }
        Ok(())
    }
}

/// A value that is not valid: the value, and what is expected in its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidValue(pub(super) String);

/// Collects problems.
#[derive(Default)]
pub(super) struct Problems(pub(super) Vec<Problem>);

impl Problems {
    pub(super) fn add(&mut self, key: &str, what: impl Into<String>) {
        self.0.push(Problem { key: key.to_owned(), what: what.into() });
    }

    /// Reads each text of a list; those that are wrong become problems.
    pub(super) fn each<T>(
        &mut self,
        key: &str,
        texts: &[String],
        read: impl Fn(&str) -> Result<T, InvalidValue>,
    ) -> Vec<T> {
        let mut good = Vec::new();
        for text in texts {
            match read(text) {
                Ok(value) => good.push(value),
                Err(invalid) => self.add(key, format!("has {invalid}")),
            }
        }
        good
    }

    pub(super) fn at_most(&mut self, key: &str, given: u64, most: u64) {
        if given > most {
            self.add(key, format!("is {given}, and should be at most {most}"));
        }
    }
}
