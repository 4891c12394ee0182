//! What makes two runs different things: the label, the target, and the configuration as a record of any version has it.

use std::collections::BTreeMap;

use measure::RunRecord;
use measure::numbers::count_text;
use serde::Deserialize;
use serde_json::Value;

use super::configurations::{Trait, Weight};

/// A record's configuration. What a record of an earlier version lacks was as the defaults say.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Configured {
    feed: Option<String>,
    feed_articles: Option<u64>,
    passes: Option<u32>,
    retention_passes: Option<u32>,
    batch_every_passes: Option<u32>,
    batches_per_pass: Option<u32>,
    rm: Option<String>,
    link: Option<String>,
    readers: u32,
    sync: Option<String>,
    cold: bool,
    history: Option<String>,
    history_index: Option<String>,
    places: Vec<String>,
    storage: Option<BTreeMap<String, Value>>,
    /// What other versions have, and what says nothing of its own.
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// Fields that differ between any two runs, or follow from the feed and the passes.
const SAYS_NOTHING: [&str; 3] = ["spool", "feed_bytes", "feed_batches"];

impl Configured {
    /// Of a shape that is not known everything differs by its own name.
    fn of(run: &RunRecord) -> Self {
        Self::deserialize(&run.config).unwrap_or_else(|_| Self {
            rest: BTreeMap::deserialize(&run.config).unwrap_or_default(),
            ..Self::default()
        })
    }
}

/// The traits of a run, in the order in which a name says them.
pub(super) fn of(run: &RunRecord) -> Vec<Trait> {
    use Weight::{Last, Own, Plain, Usual};
    let mut traits = Vec::new();
    let mut put = |key: &str, text: String, weight: Weight| {
        traits.push(Trait { key: key.to_owned(), text, weight });
    };
    // The label that a run gets when the user gives none says the target again.
    let own = if run.label.contains(&run.target) { Last } else { Own };
    put("label", run.label.clone(), own);
    put("target", run.target.clone(), Plain);
    let mut here = run.environment.mount.clone().unwrap_or_default();
    put("file system", std::mem::take(&mut here.fs_type), Plain);
    for (key, text, usual) in Configured::of(run).texts() {
        put(&key, text, if usual { Usual } else { Plain });
    }
    put("host", run.environment.host.clone(), Last);
    put("kernel", run.environment.kernel.clone(), Last);
    put("mount options", here.options, Last);
    put("version", format!("Crumb {}", run.environment.version()), Last);
    traits
}

impl Configured {
    /// Each field's name, what is said of it, and whether it is what nobody asked for.
    fn texts(self) -> Vec<(String, String, bool)> {
        let either = |given: Option<String>, text: &dyn Fn(String) -> String, usual: &str| match given {
            Some(value) => (text(value), false),
            None => (usual.to_owned(), true),
        };
        let number = |given: Option<u32>, text: &dyn Fn(u32) -> String, usual: &str| {
            given.filter(|number| *number > 0).map_or((usual.to_owned(), true), |n| (text(n), false))
        };
        let link = match self.link.as_deref() {
            None | Some("hard") => ("hard links".to_owned(), true),
            Some("symlink") => ("symbolic links".to_owned(), false),
            Some(other) => (format!("link {other}"), false),
        };
        let sync = match self.sync.as_deref() {
            None | Some("none") => ("no sync".to_owned(), true),
            Some(when) => (format!("sync {when}"), false),
        };
        // Records from before there was a choice have it in memory.
        let index = match self.history_index.as_deref() {
            None | Some("memory") => ("history’s index in memory".to_owned(), true),
            Some(kept) => (format!("history’s index in a {kept}"), false),
        };
        let places = match self.places.is_empty() {
            true => ("one place".to_owned(), true),
            false => (self.places.join(","), false),
        };
        let articles = self.feed_articles.map(|articles| format!("{} articles", count_text(articles)));
        let cold = if self.cold { ("cold caches", false) } else { ("caches as they are", true) };
        let known = [
            (
                "batch_every_passes",
                number(self.batch_every_passes, &|n| format!("batches every {n} passes"), "no batching"),
            ),
            (
                "batches_per_pass",
                number(self.batches_per_pass, &|n| format!("{n} batches a pass"), "batches by the feed"),
            ),
            ("cold", (cold.0.to_owned(), cold.1)),
            ("feed", either(self.feed, &|path| format!("feed {path}"), "made-up feed")),
            ("feed_articles", either(articles, &|text| text, "")),
            ("history", either(self.history, &|on| format!("history on {on}"), "history with the articles")),
            ("history_index", index),
            ("link", link),
            ("passes", number(self.passes, &|n| format!("{n} passes"), "")),
            ("places", places),
            (
                "readers",
                number((self.readers > 0).then_some(self.readers), &|n| format!("{n} readers"), "no readers"),
            ),
            (
                "retention_passes",
                number(self.retention_passes, &|n| format!("kept for {n} passes"), "nothing expires"),
            ),
            ("rm", either(self.rm, &|way| way, "")),
            ("sync", sync),
        ];
        let mut texts: Vec<(String, String, bool)> =
            known.into_iter().map(|(key, (text, usual))| (key.to_owned(), text, usual)).collect();
        for (key, value) in self.storage.into_iter().flatten() {
            texts.push((format!("storage.{key}"), format!("storage {key} {}", plain(&value)), false));
        }
        for (key, value) in self.rest.into_iter().filter(|(key, _)| !SAYS_NOTHING.contains(&key.as_str())) {
            let words = key.replace('_', " ");
            let none = value.is_null() || value == 0 || value.as_array().is_some_and(Vec::is_empty);
            let text = if none { format!("no {words}") } else { format!("{words} {}", plain(&value)) };
            texts.push((key, text, none));
        }
        texts
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
