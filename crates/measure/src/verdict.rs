//! Whether a number may be trusted, and if not, why not.

use serde::{Deserialize, Serialize};

/// Judgement on a load point or on a whole run. Valid until a reason is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// False when at least one reason makes the numbers untrustworthy.
    pub valid: bool,
    /// Why not, and what the reader should know besides.
    pub reasons: Vec<Reason>,
}

/// One finding about a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// Stable short name, such as `generator-late`, for programs.
    pub code: String,
    /// One sentence with the number, for people.
    pub text: String,
    /// True when this makes the run INVALID; false for a remark.
    pub fatal: bool,
}

impl Verdict {
    /// Nothing against it yet.
    pub fn valid() -> Self {
        Self { valid: true, reasons: Vec::new() }
    }

    /// Adds a finding that makes the numbers untrustworthy.
    pub fn invalidate(&mut self, code: &str, text: impl Into<String>) {
        self.valid = false;
        self.reasons.push(Reason { code: code.to_owned(), text: text.into(), fatal: true });
    }

    /// Adds a finding that the reader should know and that does not spoil the numbers.
    pub fn remark(&mut self, code: &str, text: impl Into<String>) {
        self.reasons.push(Reason { code: code.to_owned(), text: text.into(), fatal: false });
    }

    /// True when a finding of this code stands.
    pub fn has(&self, code: &str) -> bool {
        self.reasons.iter().any(|reason| reason.code == code)
    }
}

impl Default for Verdict {
    fn default() -> Self {
        Self::valid()
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.valid {
            return f.write_str("VALID");
        }
        f.write_str("INVALID because ")?;
        let fatal: Vec<&str> = self.reasons.iter().filter(|r| r.fatal).map(|r| r.text.as_str()).collect();
        f.write_str(&fatal.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remark_leaves_the_verdict_valid_and_a_fatal_reason_does_not() {
        let mut verdict = Verdict::valid();
        verdict.remark("small-file-set", "the file set fits in memory");
        assert!(verdict.valid);
        verdict.invalidate("rate-off", "sent 3% less than offered");
        assert_eq!(verdict.to_string(), "INVALID because sent 3% less than offered");
        assert!(verdict.has("small-file-set") && !verdict.has("mix-off"));
    }
}
