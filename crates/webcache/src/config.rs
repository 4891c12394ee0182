//! What the operator decides, read from one TOML file and checked as a whole before anything starts.
//!
//! ```text
//! sections: defaults <─ the user's file <─ flags ─> sections: types, ranges ─> checked: Config, nothing left to check
//! ```
//!
//! Always holds: `sections` is the one place that tells a key, its unit, its default and its range; a key that is not there is
//! an error that names it; all errors are told at once.
//! Not here: opening the store (`crumb`), sockets.

mod checked;
mod destinations;
mod key;
mod lists;
mod network;
mod problem;
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
use toml::{Table, Value};

/// All keys with their defaults and what they mean, as a file.
pub fn default_toml() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| written(|_, key| key.default.to_owned()));
    &TEXT
}

/// The file, with these values.
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

/// Reads a user's file over the defaults; `flags` are laid over both.
///
/// # Errors
/// All that is wrong with it.
pub fn read(user: &str, flags: Table) -> Result<Config, ConfigError> {
    let mut whole: Table = default_toml().parse().expect("the default configuration is TOML");
    let user: Table = user.parse().map_err(|error: toml::de::Error| ConfigError::of(error.to_string()))?;
    let mut problems = Vec::new();
    merge(&mut whole, user, "", &mut problems);
    merge(&mut whole, flags, "", &mut problems);
    if !problems.is_empty() {
        return Err(ConfigError { problems });
    }
    checked::check(whole)
}

/// Lays `over` over `base`. Keys that are not in `base` are problems, but for the lists of tables.
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
                what: "is no key; `crumb proxy --print-config` shows all that are".to_owned(),
            }),
        }
    }
}

/// The configuration in force, as a file with every key and its meaning.
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
