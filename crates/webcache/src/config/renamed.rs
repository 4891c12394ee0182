//! Keys and words of earlier versions, which files may still use. No help text mentions them.

use toml::{Table, Value};

use super::problem::Problem;

/// Section, former key, key.
const KEYS: &[(&str, &str, &str)] = &[("cache", "clerks", "writers")];

/// Section, key, former word, word.
const WORDS: &[(&str, &str, &str, &str)] = &[("rules", "set_cookie", "told", "explicit")];

/// Replaces former keys and words by those of today.
pub(super) fn modernize(file: &mut Table, problems: &mut Vec<Problem>) {
    for (section, former, key) in KEYS {
        let Some(Value::Table(table)) = file.get_mut(*section) else { continue };
        let Some(value) = table.remove(*former) else { continue };
        if table.insert((*key).to_owned(), value).is_some() {
            let what = format!("is set twice: {section}.{former} is its former name");
            problems.push(Problem { key: format!("{section}.{key}"), what });
        }
    }
    for (section, key, former, word) in WORDS {
        let Some(Value::Table(table)) = file.get_mut(*section) else { continue };
        if let Some(value) = table.get_mut(*key).filter(|value| value.as_str() == Some(former)) {
            *value = Value::String((*word).to_owned());
        }
    }
}
