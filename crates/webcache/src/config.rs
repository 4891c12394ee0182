//! The operator's configuration: one TOML file, checked as a whole before anything starts.
//!
//! ```text
//! defaults <─ user's file <─ flags ─> sections: types, ranges ─> checked: Config, with nothing left to check
//! ```
//!
//! Always holds: `sections` alone declares keys with unit, default and range. An unknown key is an error that names it. All errors are
//! reported together.
//! Not here: opening the store (`crumb`), sockets.

mod checked;
mod destinations;
mod key;
mod lists;
mod network;
mod problem;
mod renamed;
mod sections;
mod upstream;
mod words;

pub use checked::Config;
pub use destinations::{DeniedBy, Destinations};
pub use network::Network;
pub use problem::{ConfigError, Problem};
pub use sections::{
    Access, Admin, Cache, Collapse, Forward, Icp, Limits, Log, Parents, Prefetch, Proxy, Reverse,
    Upstream as UpstreamLimits,
};
pub use upstream::{IdleMax, Parent, Sibling, Site, Upstream};
pub use words::{Admission, Choice, ForwardedFor, Internal, LogFormat, PrefetchHosts};

use std::sync::LazyLock;

use sections::SECTIONS;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

/// A file with all keys, their defaults and their descriptions.
pub fn default_toml() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| written(|_, key| key.default.to_owned()));
    &TEXT
}

/// The file with these values.
fn written(value: impl Fn(&str, &key::Key) -> String) -> String {
    let mut text = String::new();
    let mut line = |words: &[&str]| {
        words.iter().for_each(|word| text.push_str(word));
        text.push('\n');
    };
    for section in SECTIONS {
        section.above.iter().for_each(|above| line(&[above]));
        line(&["[", section.name, "]"]);
        for key in section.keys {
            key.text.iter().for_each(|comment| line(&["#", comment]));
            line(&[key.name, " = ", &value(section.name, key)]);
        }
        section.below.iter().for_each(|below| line(&[below]));
    }
    text
}

/// Reads a user's file over the defaults, and `flags` over both.
///
/// # Errors
/// With everything that is wrong.
pub fn read(user: &str, flags: Table) -> Result<Config, ConfigError> {
    let mut whole: Table = default_toml().parse().expect("the default configuration is TOML");
    let mut user: Table = user.parse().map_err(|error: toml::de::Error| match too_large(user) {
        problems if problems.is_empty() => ConfigError::of(error.to_string()),
        problems => ConfigError { problems },
    })?;
    let mut problems = Vec::new();
    renamed::modernize(&mut user, &mut problems);
    merge(&mut whole, user, "", &mut problems);
    merge(&mut whole, flags, "", &mut problems);
    if !problems.is_empty() {
        return Err(ConfigError { problems });
    }
    checked::check(whole)
}

/// The numbers that are beyond what TOML has: the parser does not name their keys.
fn too_large(text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Ok(whole) = DeTable::parse(text) {
        let tables = whole.get_ref().iter();
        tables.for_each(|(key, value)| add_too_large(key.get_ref(), value.get_ref(), &mut problems));
    }
    problems
}

fn add_too_large(name: &str, value: &DeValue<'_>, problems: &mut Vec<Problem>) {
    match value {
        DeValue::Integer(number) if i64::from_str_radix(number.as_str(), number.radix()).is_err() => {
            let what = format!("is {number}, and should be from {} to {}", i64::MIN, i64::MAX);
            problems.push(Problem { key: name.to_owned(), what });
        }
        DeValue::Array(values) => {
            values.iter().for_each(|value| add_too_large(name, value.get_ref(), problems));
        }
        DeValue::Table(table) => {
            for (key, value) in table {
                add_too_large(&format!("{name}.{}", key.get_ref()), value.get_ref(), problems);
            }
        }
        _ => {}
    }
}

/// Merges `over` into `base`. Keys that `base` lacks are problems, except for the arrays of tables.
fn merge(base: &mut Table, over: Table, place: &str, problems: &mut Vec<Problem>) {
    for (key, value) in over {
        let name = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
        match (base.get_mut(&key), value) {
            (Some(Value::Table(base)), Value::Table(over)) => merge(base, over, &name, problems),
            (Some(old), value) if old.same_type(&value) => *old = value,
            (Some(old), value) => {
                let (is, should) = (value.type_str(), old.type_str());
                problems
                    .push(Problem { key: name, what: format!("is of type {is}, and should be {should}") });
            }
            (None, value @ Value::Array(_)) if place.is_empty() && lists::NAMES.contains(&key.as_str()) => {
                base.insert(key, value);
            }
            (None, _) => problems.push(Problem {
                key: name,
                what: "is not a known key; `crumb proxy --print-config` lists all keys".to_owned(),
            }),
        }
    }
}

/// The current configuration as a file with every key and its description.
pub fn print(config: &Config) -> String {
    let mut text = written(|section, key| {
        let value = config.table.get(section).and_then(|section| section.get(key.name));
        value.map_or_else(|| key.default.to_owned(), ToString::to_string)
    });
    for list in lists::NAMES {
        let Some(Value::Array(tables)) = config.table.get(list) else { continue };
        for table in tables {
            text.push_str(&format!("\n[[{list}]]\n{}", toml::to_string(table).unwrap_or_default()));
        }
    }
    text
}

#[cfg(test)]
mod tests;
