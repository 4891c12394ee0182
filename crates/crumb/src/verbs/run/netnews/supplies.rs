//! What a run of the news spool works on: the storage of its parts, with room for it, and the feed.

use std::path::PathBuf;
use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use files::Target;
use netnews::feed::synthesize::{SynthesisConfig, synthesize};
use netnews::feed::{Feed, FeedProgress, Watch};
use netnews::spool::Storage;

use super::flags::{ARTICLE_BYTES_MEAN, NetnewsArgs};
use super::made_up::MadeUp;
use crate::context::Context;
use crate::exit::BadUsage;
use crate::progress::Progress;
use crate::room::{self, Need};
use crate::series::Sides;

impl NetnewsArgs {
    /// The storage of all parts of the spool, opened.
    ///
    /// # Errors
    /// When a place is named twice, or cannot be reached.
    pub(super) fn storage(&self, target: &Target, stop: &Arc<AtomicBool>) -> anyhow::Result<Storage> {
        let mut places = Vec::new();
        for (at, rule) in self.place.iter().enumerate() {
            if let Some(before) = self.place[..at].iter().find(|before| before.hierarchy == rule.hierarchy) {
                let wrong = anyhow::anyhow!(
                    "--place names {} twice, for {} and for {}; a hierarchy is in one place",
                    rule.hierarchy,
                    before.target,
                    rule.target
                );
                return Err(wrong.context(BadUsage));
            }
            let target = Target::from_str(&rule.target)
                .map_err(|error| anyhow::Error::from(error).context(BadUsage))
                .with_context(|| format!("--place {}={}", rule.hierarchy, rule.target))?;
            places.push((rule.hierarchy.clone(), self.storage.open(&whole(&target), stop)?));
        }
        let history =
            self.history.as_ref().map(|target| self.storage.open(&whole(target), stop)).transpose()?;
        Ok(Storage { spool: self.storage.open(&whole(target), stop)?, history, places })
    }

    /// Refuses storage that has no room for the run.
    ///
    /// # Errors
    /// When it has not, or cannot say.
    pub(super) fn ensure_room(&self, storage: &Storage) -> anyhow::Result<()> {
        // Which hierarchies go elsewhere, and how much they have, shows only when they are stored.
        if self.resume.is_some() || !storage.places.is_empty() {
            return Ok(());
        }
        let bytes = self.config("").bytes_at_once(self.feed_bytes());
        // How large the articles of a feed are the feed alone knows.
        let files = if self.feed.is_some() { 0 } else { bytes / ARTICLE_BYTES_MEAN };
        let need = Need { bytes, files };
        room::ensure(&*storage.spool, need, "ask for fewer --articles or a shorter --retention")
    }

    /// Where a feed is made up for runs on these sides.
    pub(super) fn place_for_feed(&self, sides: &Sides) -> MadeUp {
        MadeUp::folder(&self.local_directories(sides), self.feed_bytes())
    }

    /// Directories of this machine that are written to or measured.
    fn local_directories(&self, sides: &Sides) -> Vec<PathBuf> {
        let places = self.place.iter().filter_map(|rule| Target::from_str(&rule.target).ok());
        let targets = sides.variants.iter().map(|variant| variant.target.clone()).chain(self.history.clone());
        let directory = |target| match target {
            Target::Directory(path) | Target::Pack(path) => Some(path),
            Target::Nfs(_) | Target::Null => None,
        };
        targets.chain(places).filter_map(directory).collect()
    }

    /// The feed that is named, or one made up in `made_up`; each rank makes up other articles.
    ///
    /// # Errors
    /// When it cannot be opened or made.
    pub(super) fn feed(
        &self,
        made_up: &MadeUp,
        rank: u32,
        context: &Context,
        stop: &AtomicBool,
    ) -> anyhow::Result<Feed> {
        if let Some(path) = &self.feed {
            return crate::verbs::feed::opened(path);
        }
        made_up.make(self.feed_bytes(), context)?;
        let articles = self.articles_to_make_up();
        let mut progress = Progress::new(context.quiet);
        let mut tell = |now: FeedProgress| {
            let of = now.articles_total.unwrap_or(0);
            let count = report::count_text;
            progress.step(
                now.articles,
                of,
                format!("making up articles: {} of {}", count(now.articles), count(of)),
            );
        };
        let config = SynthesisConfig::new(articles, self.seed.wrapping_add(rank.into()));
        let made = synthesize(&config, &made_up.path, &mut Watch { progress: &mut tell, stop });
        progress.finish();
        Ok(made.with_context(|| format!("cannot make up a feed in {}", made_up.path.display()))?.feed)
    }
}

/// A directory by its whole path: symbolic links between places hold it, and `crumb feed verify` looks there.
fn whole(target: &Target) -> Target {
    match target {
        Target::Directory(path) => {
            Target::Directory(std::path::absolute(path).unwrap_or_else(|_| path.clone()))
        }
        other => other.clone(),
    }
}
