//! The same articles into INN's `innd`: traditional spool, no overview, by streaming over loopback.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use netnews::article::Article;
use netnews::feed::Feed;
use testkit::{Inn, Wire};

use super::Took;

/// A feed made ready to be sent.
pub struct Prepared {
    wire: Wire,
    groups: Vec<String>,
}

pub fn prepare(feed: &Feed) -> Prepared {
    let (mut wire, mut groups) = (Wire::default(), BTreeSet::new());
    for batch in feed.batches() {
        let mut reader = batch.open().expect("a batch");
        while let Some(bytes) = reader.next().expect("an article") {
            let Ok(article) = Article::parse(bytes) else { continue };
            wire.push(article.message_id(), bytes);
            groups.extend(article.newsgroups().map(str::to_owned));
        }
    }
    Prepared { wire, groups: groups.into_iter().collect() }
}

/// Starts a server in the folder, sends it everything, and says what it took: the server's CPU time, not the sender's.
pub fn run(prepared: &Prepared, folder: &Path) -> Result<Took, String> {
    // innd becomes the user news.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(|error| error.to_string())?;
    let inn = Inn::start_in(folder, &prepared.groups)?;
    let before = inn.cpu();
    let taken = inn.take(&prepared.wire).map_err(|error| error.to_string())?;
    let after = inn.cpu();
    Ok(Took {
        articles: taken.stored,
        refused: taken.refused,
        wall_s: taken.wall.as_secs_f64(),
        user_s: after.user_s - before.user_s,
        sys_s: after.sys_s - before.sys_s,
        outside_s: None,
    })
}
