//! An error with its causes as one line, for places that have room for a text alone: a log line, a record's note, a
//! message to another rank.
//!
//! An error prints its own layer and leaves the layer below to its `source()`. So each cause is printed once, here by
//! [`error_chain`] and at the end of the program by the binary.

use std::error::Error;
use std::fmt::Write as _;

/// The error and each of its causes, separated by `": "`.
///
/// ```
/// let cause = std::io::Error::other("the disk is full");
/// assert_eq!(measure::error_chain(&cause), "the disk is full");
/// ```
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Writing to a String cannot fail.
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Layer {
        #[error("cannot start the run")]
        Start(#[source] Box<Layer>),
        #[error("cannot open {file}")]
        Open { file: &'static str, source: io::Error },
        #[error(transparent)]
        Through(#[from] io::Error),
    }

    #[test]
    fn every_layer_is_printed_once_from_the_outermost_in() {
        let open = Layer::Open { file: "x", source: io::Error::other("no such file") };
        assert_eq!(
            error_chain(&Layer::Start(Box::new(open))),
            "cannot start the run: cannot open x: no such file"
        );
    }

    #[test]
    fn a_transparent_layer_adds_nothing() {
        assert_eq!(error_chain(&Layer::from(io::Error::other("no such file"))), "no such file");
    }
}
