//! What the texts of benchmarks advise, for a reader who typed a shootout: a flag of another verb is named with the place where it can
//! be given.

use clap::{Args as _, Command};

use super::matrix;
use crate::verbs::run::shootout::ShootoutArgs;

/// `text`, and behind it where to give a flag that it names and a shootout lacks.
pub fn fitted(text: &str) -> String {
    let own = ShootoutArgs::augment_args(Command::new("shootout"));
    let is_own = |flag: &str| own.get_arguments().any(|arg| arg.get_long() == Some(flag));
    let Some(flag) = flags_in(text).find(|flag| !is_own(flag)) else { return text.to_owned() };
    let place = if matrix::takes(flag) {
        format!(
            "here --{flag} goes into a --matrix file, or measure this workload by the command of its cell (--dry-run prints it)"
        )
    } else {
        format!("--{flag} is a flag of the single run: --dry-run prints the command of each cell")
    };
    format!("{text} ({place})")
}

/// Flags that a text names, without their dashes.
fn flags_in(text: &str) -> impl Iterator<Item = &str> {
    text.split("--").skip(1).filter_map(|rest| {
        let end =
            rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-').unwrap_or(rest.len());
        let flag = rest[..end].trim_end_matches('-');
        flag.starts_with(|letter: char| letter.is_ascii_lowercase()).then_some(flag)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: a shootout advised `--file-size`, which it refuses.
    #[test]
    fn advice_that_a_shootout_cannot_follow_says_where_it_can_be_followed() {
        let fitted_text = fitted("use smaller files (--file-size)");
        assert!(fitted_text.contains("here --file-size goes into a --matrix file"), "{fitted_text}");
        assert!(fitted("give it more --threads").contains("--threads goes into"));
        assert!(fitted("--reuse finds it").contains("--reuse is a flag of the single run"));
        for own in ["--cell-limit gives it longer", "ask for fewer --rounds", "no flag -- at all", "a -b --"]
        {
            assert_eq!(fitted(own), own);
        }
    }
}
