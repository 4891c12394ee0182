//! Drops the kernel's caches before a phase, and proves by some names of what the phase is about to use that they are gone.
//!
//! Always holds: a drop counts as proven only when the proof could have failed and did not; a run with others says so.
//! Not here: how it is proven (`measure::KernelCaches`); caches of a server or a device, which nothing here can empty.

use std::path::{Path, PathBuf};

use measure::{CacheControl as _, CacheState, Forget, KernelCaches};

use super::clock;
use crate::NetnewsError;
use crate::spool::groups::GroupId;
use crate::spool::history::line::HistoryLine;
use crate::spool::history::{TEXT_FILE, text};
use crate::spool::results::part::{CacheDrops, LocalFinding, Part};
use crate::spool::unbatch::Spool;
use crate::spool::unbatch::storing::put_path;
use crate::spool::whole::path_of;

/// Names that the proof looks at in each place.
const PROBES: usize = 32;

/// What came of it so far.
#[derive(Debug, Default)]
pub(crate) struct ColdLog {
    drops: CacheDrops,
    /// Why not, the first time.
    unknown: Option<String>,
    /// Pages were dropped and nobody could see it.
    names_alone: Option<String>,
    always_warm: Option<String>,
}

impl ColdLog {
    /// Drops the caches; the proof looks at articles that arrived in passes that `wanted` names.
    pub(crate) fn chill(&mut self, spool: &Spool, wanted: impl Fn(u32) -> bool) -> Result<(), NetnewsError> {
        // Pages of history and the batch file are on perhaps another file system: only clean ones are dropped.
        spool.make_durable()?;
        let mut by_place: Vec<Vec<(GroupId, u64)>> = vec![Vec::new(); spool.places.roots().len()];
        let mut seen = 0_usize;
        text::scan::<NetnewsError>(&*spool.lib, Path::new(TEXT_FILE), |_, line| {
            let Some(line) = HistoryLine::parse(line).filter(|line| wanted(clock::pass_of(line.arrived)))
            else {
                return Ok(());
            };
            for (group, number) in line.files() {
                let Some(id) = spool.groups.find(group) else { continue };
                let names = &mut by_place[usize::from(spool.groups.get(id).place.0)];
                seen += 1;
                // A ring: later names replace earlier ones.
                if names.len() < 4 * PROBES {
                    names.push((id, number));
                } else {
                    names[seen % (4 * PROBES)] = (id, number);
                }
            }
            Ok(())
        })?;
        for (root, names) in spool.places.roots().iter().zip(&by_place) {
            let mut path = Vec::new();
            let mut there: Vec<PathBuf> = Vec::new();
            for &(id, number) in names {
                put_path(&mut path, spool.groups.get(id), number);
                // Cancelled since, perhaps.
                if there.len() < PROBES && root.stat(path_of(&path)).is_ok() {
                    there.push(path_of(&path).to_owned());
                }
            }
            if there.is_empty() {
                continue;
            }
            self.drops.dropped += 1;
            let state = match root.local_root().map(KernelCaches::open) {
                Some(Ok(mut caches)) => caches.chill(Forget::All, &there),
                Some(Err(error)) => CacheState::Unknown { why: error.to_string() },
                None => CacheState::Unknown {
                    why: format!("{}: caches of a server are out of reach", root.place()),
                },
            };
            match state {
                CacheState::Cold => self.drops.proven += 1,
                CacheState::NamesCold { why } => {
                    self.drops.proven += 1;
                    self.names_alone = Some(why);
                }
                CacheState::AlwaysWarm { why } => self.always_warm = Some(why),
                CacheState::Unknown { why } => {
                    self.unknown.get_or_insert(why);
                }
            }
        }
        Ok(())
    }

    /// Says what the caches were.
    pub(crate) fn judge(&self, part: &mut Part) {
        part.cache_drops = self.drops;
        let CacheDrops { dropped, proven } = self.drops;
        if let Some(why) = &self.always_warm {
            let text = format!("measured warm though cold was asked for: {why}");
            part.local.push(LocalFinding::new("cache-always-warm", text));
        } else if let Some(why) = &self.unknown {
            let text = format!("cache state unknown at {} of {dropped} drops: {why}", dropped - proven);
            part.local.push(LocalFinding::new("cache-state-unknown", text));
        }
        if let Some(why) = &self.names_alone {
            let text = format!("pages were dropped too, but only names are proven cold: {why}");
            part.local.push(LocalFinding::new("cold-pages-unproven", text));
        }
    }
}
