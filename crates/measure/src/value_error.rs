//! The error for a value, of a flag or in a file, that is not allowed.

/// Says what is wrong with the value and which ones are allowed. The caller names the flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(String);

impl From<String> for ValueError {
    /// From a message that names what was expected.
    fn from(message: String) -> Self {
        Self(message)
    }
}

impl From<&str> for ValueError {
    fn from(message: &str) -> Self {
        Self(message.to_owned())
    }
}
