//! INN's own programs as outside witnesses: they take our deletion lists, our batches and our spool.
//!
//! Needs INN 2.7.1, installed or unpacked by `scripts/test-packages.sh`.

mod batches;
mod deletion;
mod server;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use netnews::feed::synthesize::{SynthesisConfig, synthesize};
use netnews::feed::{Feed, Watch};

use crate::spool_scene::Scene;

/// A folder that INN's programs can pass when they have become the user news.
fn open_scene() -> Scene {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    std::fs::set_permissions(scene.path(""), std::fs::Permissions::from_mode(0o755)).expect("our own folder");
    scene
}

/// Articles made up after the model: cross-posts, cancels, supersedes and duplicates among them.
fn synthetic(articles: u64, seed: u64, path: &Path) -> Feed {
    let articles = std::num::NonZeroU64::new(articles).expect("not 0");
    let stop = AtomicBool::new(false);
    let mut watch = Watch { progress: &mut |_| {}, stop: &stop };
    synthesize(&SynthesisConfig::new(articles, seed), path, &mut watch).expect("a feed").feed
}

/// The groups of an `active`.
fn groups_of(active: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(active).expect("active");
    text.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect()
}
