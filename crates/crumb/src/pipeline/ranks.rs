//! What the verbs do alike when they run as one of several ranks.
//!
//! ```text
//! rank 0    the series: next turn --+- measures -+- next turn --+- measures -+- none: tables, comparison
//! others                            '- measure  -'              '- measure  -'- end
//! ```
//!
//! Always holds: whether there is another turn, and of which side, is rank 0's word alone, as it may hang on its clock
//! (`--time-limit`) or on its figures (`--until-ci`).
//! Not here: how the ranks meet (`harness::ranks`), the series itself (`crate::series`).

use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use files::{LocalFs, Target};
use harness::ranks::RankGroup;
use measure::RunRecord;

use super::outcome::{OutputArgs, Run};
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::series::{Key, SeriesArgs, Sides, Turn};
use crate::terminal::layout::counted;
use crate::terminal::output::say;

const HOSTS_NAMED: usize = 4;

/// The sides of a comparison that several ranks can make.
///
/// # Errors
/// As [`Sides::parse`], and with several ranks when one is to be mounted otherwise: each rank of a host would do it, and
/// put it back while others still measure.
pub fn sides(
    group: &RankGroup,
    first: &Target,
    vs: &[String],
    keys: &[Key],
    seed: u64,
) -> anyhow::Result<Sides> {
    let sides = Sides::parse(first, vs, keys)?.in_order_of(seed);
    match sides.variants.iter().find_map(|variant| variant.mount.as_ref()) {
        Some(options) if group.is_joined() => {
            let wrong = anyhow::anyhow!(
                "--vs mount={options}: not with several ranks; mount it by hand, make a run for each way, and \
                 compare the runs with `crumb compare`"
            );
            Err(wrong.context(BadUsage))
        }
        _ => Ok(sides),
    }
}

/// One run, or a series of them.
pub struct Series<'a> {
    pub args: &'a SeriesArgs,
    pub sides: &'a Sides,
    pub output: &'a OutputArgs,
    pub context: &'a Context,
    pub stop: &'a AtomicBool,
}

impl Series<'_> {
    /// Does all of it. Rank 0 decides, shows and keeps; the others measure what it says.
    ///
    /// # Errors
    /// What `measure_one` fails with, and on rank 0 what keeps results from being written.
    pub fn run(
        self,
        group: &mut RankGroup,
        mut measure_one: impl FnMut(Turn<'_>, &mut RankGroup) -> anyhow::Result<Run>,
        tables: impl Fn(&RunRecord) -> String,
    ) -> anyhow::Result<ExitStatus> {
        let Self { args, sides, output, context, stop } = self;
        if !group.is_joined() {
            return args.run_sides(sides, output, context, stop, |turn| measure_one(turn, group), tables);
        }
        on_all(group, "reaching each side", can_be_reached(sides))?;
        if group.rank() != 0 {
            while let Some(side) = next_turn(group, None)? {
                let variant = sides.variants.get(side).context("rank 0 measures a side that is not here")?;
                let run =
                    measure_one(Turn { target: &variant.target, label: None, side, tables: None }, group)?;
                // Rank 0 has an error as well, and ends the series with it.
                run.error.map_or(Ok(()), Err)?;
            }
            return Ok(ExitStatus::Fine);
        }
        let mut all_end = false;
        let measured = |turn: Turn<'_>| {
            let run = next_turn(group, Some(turn.side)).and_then(|_| measure_one(turn, group));
            all_end = run.as_ref().map_or(true, |run| run.error.is_some());
            run
        };
        let done = args.run_sides(sides, output, context, stop, measured, tables);
        if all_end {
            return done;
        }
        let agreed = next_turn(group, None);
        let status = done?;
        agreed?;
        Ok(status)
    }
}

/// The side to be measured next, as rank 0 says; none after the last.
fn next_turn(group: &mut RankGroup, mine: Option<usize>) -> anyhow::Result<Option<usize>> {
    Ok(group.add_up("the next turn", mine, |mut all| all.swap_remove(0))?)
}

/// What only the first turn of a side would show otherwise.
fn can_be_reached(sides: &Sides) -> anyhow::Result<()> {
    for variant in &sides.variants {
        if let Target::Directory(path) = &variant.target {
            LocalFs::open(path.clone())
                .with_context(|| format!("cannot use directory {}", path.display()))?;
        }
    }
    Ok(())
}

/// Opens the storage of each side of a comparison and closes it again, so that one that cannot be reached is reported before
/// the first run, which may take hours.
///
/// # Errors
/// What `open` fails with, on whichever rank.
pub fn reach_each<S>(
    group: &mut RankGroup,
    sides: &Sides,
    open: impl Fn(&Target) -> anyhow::Result<S>,
) -> anyhow::Result<()> {
    let is_several = sides.variants.len() > 1;
    let mut targets = sides.variants.iter().map(|side| &side.target).filter(|_| is_several);
    let reached = targets.try_for_each(|target| open(target).map(drop));
    on_all(group, "reaching each side", reached)
}

/// What came of something that each rank does for itself, when it did so on all of them.
///
/// # Errors
/// What went wrong here, or else on another rank.
pub fn on_all<T>(group: &mut RankGroup, step: &str, done: anyhow::Result<T>) -> anyhow::Result<T> {
    let together = group.all_did(step, done.as_ref().err().map(|error| format!("{error:#}")));
    // The rank's own error says more than what the other ranks received of it.
    let done = done?;
    together?;
    Ok(done)
}

/// This rank's own name for what each rank has for itself.
pub fn own_name(group: &RankGroup, name: String) -> String {
    if group.is_joined() { format!("{name}-r{}", group.rank()) } else { name }
}

/// Who they are, for the user.
pub fn announce(group: &RankGroup) {
    if group.is_joined() {
        say(&format!("by {} ranks on {}; rank 0 shows its own part", group.ranks(), distinct(group.hosts())));
    }
}

/// A record's configuration with who they were.
pub fn with_hosts(mut json: serde_json::Value, hosts: &[String]) -> serde_json::Value {
    if !hosts.is_empty() {
        json["ranks"] = hosts.len().into();
        json["hosts"] = hosts.into();
    }
    json
}

/// `a, b and 3 more hosts`.
fn distinct(hosts: &[String]) -> String {
    let mut hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let named = hosts.len().min(HOSTS_NAMED);
    match hosts.len() - named {
        0 => hosts.join(", "),
        more => format!("{} and {}", hosts[..named].join(", "), counted(more, "more host", "more hosts")),
    }
}
