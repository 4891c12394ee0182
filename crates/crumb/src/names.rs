//! Names that a user gives to what stays in a target: file sets, directories, spools.

/// Longest name; with the prefix of its benchmark it stays far below what any file system allows.
const NAME_BYTES_MAX: usize = 64;

/// A name that is a plain file name everywhere, for `value_parser`.
pub fn kept_name(text: &str) -> Result<String, measure::ValueError> {
    let fits = !text.is_empty() && text.len() <= NAME_BYTES_MAX;
    if fits && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
        Ok(text.to_owned())
    } else {
        Err(format!("expected up to {NAME_BYTES_MAX} letters, digits, -, _ and .").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_lead_out_of_the_target() {
        assert_eq!(kept_name("spool-1_b.old"), Ok("spool-1_b.old".to_owned()));
        for wrong in ["", "a/b", "a b", "\u{e4}", &"x".repeat(65)] {
            assert!(kept_name(wrong).is_err(), "{wrong}");
        }
    }
}
