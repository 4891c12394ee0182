//! The arrays of tables: sites, parents and siblings, as written and unchecked.

use serde::Deserialize;
use toml::{Table, Value};

use super::problem::ConfigError;

/// Their names.
pub(super) const NAMES: [&str; 3] = ["site", "parent", "sibling"];

#[derive(Deserialize)]
pub(super) struct Lists {
    #[serde(default)]
    pub site: Vec<Site>,
    #[serde(default)]
    pub parent: Vec<Parent>,
    #[serde(default)]
    pub sibling: Vec<Sibling>,
}

impl Lists {
    pub(super) fn read(table: &Table) -> Result<Self, ConfigError> {
        let lists = table.iter().filter(|(name, _)| NAMES.contains(&name.as_str()));
        let lists: Table = lists.map(|(name, value)| (name.clone(), value.clone())).collect();
        // The second line of the error names the key.
        let failure = |error: toml::de::Error| error.to_string().trim_end().replace('\n', " ");
        Value::Table(lists).try_into().map_err(|error| ConfigError::of(failure(error)))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Site {
    pub hosts: Vec<String>,
    #[serde(default)]
    pub path: String,
    pub origins: Vec<String>,
    #[serde(default)]
    pub host: String,
    #[serde(default)]
    pub health_path: String,
    #[serde(default)]
    pub health_s: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parent {
    pub address: String,
    #[serde(default)]
    pub icp_port: u16,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sibling {
    pub address: String,
    pub icp_port: u16,
}
