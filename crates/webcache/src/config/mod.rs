//! What the operator decides, read from one TOML file and checked as a whole before anything starts.
//!
//! ```text
//! default.toml <─ the user's file <─ flags ─> Raw (serde) ─> Config: nothing left to check
//! ```
//!
//! Always holds: `default.toml` is the one place that tells a key, its unit and its default; a key that is not there is
//! an error that names it; all errors are told at once.
//! Not here: opening the store (`crumb`), sockets.

mod bounds;
mod checked;
mod destinations;
mod network;
mod problem;
mod raw;
mod upstream;

pub use checked::{Admission, Choice, Config, ForwardedFor, LogFormat, PrefetchHosts};
pub use destinations::{DeniedBy, Destinations};
pub use network::Network;
pub use problem::{ConfigError, Problem};
pub use upstream::{IdleMax, Parent, Sibling, Site, Upstream};

use toml::{Table, Value};

/// All keys with their defaults and what they mean.
pub const DEFAULT_TOML: &str = include_str!("default.toml");

/// Reads a user's file over the defaults; `flags` are laid over both.
///
/// # Errors
/// All that is wrong with it.
pub fn read(user: &str, flags: Table) -> Result<Config, ConfigError> {
    let mut whole: Table = DEFAULT_TOML.parse().expect("the default configuration is TOML");
    let user: Table = user.parse().map_err(|error: toml::de::Error| ConfigError::of(error.to_string()))?;
    let mut problems = Vec::new();
    merge(&mut whole, user, "", &mut problems);
    merge(&mut whole, flags, "", &mut problems);
    if !problems.is_empty() {
        return Err(ConfigError { problems });
    }
    let raw: raw::Raw = Value::Table(whole.clone())
        .try_into()
        // Its second line tells the key.
        .map_err(|error: toml::de::Error| ConfigError::of(error.to_string().trim_end().replace('\n', " ")))?;
    checked::check(raw, whole)
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
            (None, value @ Value::Array(_))
                if place.is_empty() && ["site", "parent", "sibling"].contains(&key.as_str()) =>
            {
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
    let mut text = String::new();
    let mut section = String::new();
    for line in DEFAULT_TOML.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.to_owned();
        }
        let key = line.split_once(" = ").map(|(key, _)| key).filter(|key| !key.starts_with('#'));
        let value = key.and_then(|key| config.table.get(&section)?.get(key));
        match (key, value) {
            (Some(key), Some(value)) => text.push_str(&format!("{key} = {value}\n")),
            _ => text.push_str(&format!("{line}\n")),
        }
    }
    for list in ["site", "parent", "sibling"] {
        let Some(Value::Array(tables)) = config.table.get(list) else { continue };
        for table in tables {
            text.push_str(&format!("\n[[{list}]]\n{}", toml::to_string(table).unwrap_or_default()));
        }
    }
    text
}

#[cfg(test)]
mod tests;
