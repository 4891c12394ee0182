//! What the operator took out by prefix or tag: stored replies that are older than the ban do not count.
//!
//! Always holds: a ban is one comparison for each hit, and a look at the list only for replies older than the newest ban;
//! bans outlive the process (file `bans`, a line each: seconds, kind, text); of more than 1,000 the oldest are forgotten,
//! together with everything that is older than they are.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{PoisonError, RwLock};

use http::HeaderMap;

use crate::rules::WallSeconds;

const BANS_MAX: usize = 1000;

/// What is banned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Banned {
    /// Keys that begin so.
    Prefix(String),
    /// Replies with this word in Cache-Tag or Surrogate-Key.
    Tag(String),
}

/// All bans.
pub struct Bans {
    file: Option<PathBuf>,
    newest: AtomicI64,
    list: RwLock<Vec<(WallSeconds, Banned)>>,
}

impl Bans {
    /// Those of an earlier run.
    pub fn read(file: Option<PathBuf>) -> Self {
        let text = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        let line = |line: &str| {
            let (at, rest) = line.split_once(' ')?;
            let banned = match rest.split_once(' ')? {
                ("prefix", text) => Banned::Prefix(text.to_owned()),
                ("tag", text) => Banned::Tag(text.to_owned()),
                _ => return None,
            };
            Some((WallSeconds(at.parse().ok()?), banned))
        };
        let list: Vec<_> = text.lines().filter_map(line).collect();
        let newest = list.iter().map(|(at, _)| at.0).max().unwrap_or(i64::MIN);
        Self { file, newest: AtomicI64::new(newest), list: RwLock::new(list) }
    }

    /// Bans what was stored until now.
    ///
    /// # Errors
    /// When the file cannot be written; the ban then holds until the process ends.
    pub fn add(&self, banned: Banned, now: WallSeconds) -> std::io::Result<()> {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        list.retain(|(_, there)| *there != banned);
        if list.len() >= BANS_MAX {
            // What it covered must stay covered: the next oldest becomes a ban of everything.
            list.remove(0);
            list[0].1 = Banned::Prefix(String::new());
        }
        list.push((now, banned));
        self.newest.fetch_max(now.0, Ordering::Release);
        let Some(file) = &self.file else { return Ok(()) };
        let new = file.with_extension("new");
        let mut out = std::fs::File::create(&new)?;
        for (at, banned) in list.iter() {
            let (kind, text) = match banned {
                Banned::Prefix(text) => ("prefix", text),
                Banned::Tag(text) => ("tag", text),
            };
            writeln!(out, "{} {kind} {}", at.0, text.replace(['\r', '\n'], ""))?;
        }
        out.sync_all()?;
        std::fs::rename(&new, file)
    }

    /// Whether a stored reply is banned. `fields` is asked for only when a tag decides.
    pub fn covers(&self, key: &str, stored_at: WallSeconds, fields: impl Fn() -> Option<HeaderMap>) -> bool {
        if stored_at.0 > self.newest.load(Ordering::Acquire) {
            return false;
        }
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let mut tags = None;
        list.iter().filter(|(at, _)| stored_at <= *at).any(|(_, banned)| match banned {
            Banned::Prefix(prefix) => key.starts_with(prefix),
            Banned::Tag(tag) => tags.get_or_insert_with(|| tags_of(fields())).iter().any(|held| held == tag),
        })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.list.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}

fn tags_of(fields: Option<HeaderMap>) -> Vec<String> {
    let fields = fields.unwrap_or_default();
    let lines = ["cache-tag", "surrogate-key"].into_iter().flat_map(|name| fields.get_all(name));
    let words = lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split([',', ' ', '\t']));
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn tagged() -> Option<HeaderMap> {
        let mut fields = HeaderMap::new();
        fields.insert("cache-tag", HeaderValue::from_static("red, green"));
        Some(fields)
    }

    #[test]
    fn a_ban_covers_what_was_stored_before_it_and_nothing_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("bans");
        let bans = Bans::read(Some(file.clone()));
        bans.add(Banned::Prefix("http://a/x".to_owned()), WallSeconds(100)).expect("written");
        bans.add(Banned::Tag("green".to_owned()), WallSeconds(200)).expect("written");
        for bans in [bans, Bans::read(Some(file))] {
            assert!(bans.covers("http://a/xy", WallSeconds(100), || None));
            assert!(!bans.covers("http://a/xy", WallSeconds(101), || None));
            assert!(!bans.covers("http://a/y", WallSeconds(50), || None));
            assert!(bans.covers("http://b/", WallSeconds(150), tagged));
            assert!(!bans.covers("http://b/", WallSeconds(201), tagged));
        }
    }

    #[test]
    fn a_ban_that_is_forgotten_goes_on_to_cover_what_it_covered() {
        let bans = Bans::read(None);
        for number in 0..BANS_MAX as i64 + 5 {
            bans.add(Banned::Prefix(format!("http://{number}/")), WallSeconds(number)).expect("no file");
        }
        assert_eq!(bans.count(), BANS_MAX);
        assert!(bans.covers("http://0/", WallSeconds(0), || None));
        assert!(!bans.covers("http://0/", WallSeconds(900), || None));
    }
}
