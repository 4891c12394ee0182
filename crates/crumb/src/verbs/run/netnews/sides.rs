//! What `--vs` may change of a netnews run: each key is the flag of that name, and takes what the flag takes.

use std::fmt::Display;
use std::str::FromStr;

use anyhow::anyhow;

use super::flags::{NetnewsArgs, READERS_MAX};
use crate::exit::BadUsage;
use crate::openers;
use crate::series::{Key, Setting};

/// For `history=` and `place=`: as without the flag.
const TARGET: &str = "target";

impl NetnewsArgs {
    /// The keys with what they are on this command line.
    pub(super) fn keys(&self) -> Vec<Key> {
        let key = |name, base: &dyn Display, metric| Key { name, base: base.to_string(), metric };
        let history = self.history.as_ref().map_or(TARGET.to_owned(), ToString::to_string);
        let place = match &self.place[..] {
            [] => TARGET.to_owned(),
            rules => {
                let rules = rules.iter().map(|rule| format!("{}={}", rule.hierarchy, rule.target));
                rules.collect::<Vec<_>>().join(",")
            }
        };
        let proto = self.storage.proto.unwrap_or_default();
        vec![
            key("rm", &self.rm.name(), Some("expire_files_per_sec")),
            key("link", &self.link.name(), None),
            key("history", &history, None),
            key("history-index", &self.history_index.name(), None),
            key("place", &place, None),
            key("readers", &self.readers, None),
            key("sync", &self.sync.name(), None),
            key("proto", &proto, None),
            key("nfs-cache", &self.storage.nfs_cache, None),
            key("nfs-writes", &self.storage.nfs_writes, None),
        ]
    }

    /// The same command line with other settings.
    ///
    /// # Errors
    /// On a value that the flag would not take.
    pub(super) fn varied(&self, settings: &[Setting]) -> anyhow::Result<Self> {
        let mut args = self.clone();
        for setting in settings {
            args.set(setting).map_err(|error| error.context(format!("--vs {setting}")).context(BadUsage))?;
        }
        Ok(args)
    }

    fn set(&mut self, setting: &Setting) -> anyhow::Result<()> {
        let value = setting.value.as_str();
        match setting.key {
            "rm" => self.rm = parsed(value)?,
            "link" => self.link = parsed(value)?,
            "history" => self.history = if value == TARGET { None } else { Some(parsed(value)?) },
            "history-index" => self.history_index = parsed(value)?,
            "place" if value == TARGET => self.place.clear(),
            "place" => self.place = value.split(',').map(parsed).collect::<Result<_, _>>()?,
            "sync" => self.sync = parsed(value)?,
            "readers" => {
                self.readers = parsed(value)?;
                if self.readers > READERS_MAX {
                    return Err(anyhow!("there are {} readers at most", READERS_MAX));
                }
            }
            "proto" => self.storage.proto = Some(openers::proto(value).map_err(|why| anyhow!(why))?),
            "nfs-cache" => self.storage.nfs_cache = parsed(value)?,
            "nfs-writes" => self.storage.nfs_writes = parsed(value)?,
            key => unreachable!("{key} is not among the keys"),
        }
        Ok(())
    }
}

fn parsed<T: FromStr<Err: Display>>(value: &str) -> anyhow::Result<T> {
    value.parse().map_err(|why: T::Err| anyhow!("{why}"))
}
