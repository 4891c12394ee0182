//! What `crumb manage` and `crumb unmanage` report of a directory: lines for standard output, notes for standard error.

use std::path::Path;
use std::time::Duration;

use stackfs::convert::{Converted, Goal, plan};

use super::texts::{blocks_kept, blocks_text, converted_text, plan_text, together_text};
use super::{online, with_usage_marked};
use crate::context::Context;
use crate::layout::wrapped;
use crate::output::{note, print};

/// Prints what was done with a directory.
pub(super) fn report(
    directory: &Path,
    goal: Goal,
    converted: &Converted,
    took: Duration,
    context: &Context,
) -> anyhow::Result<()> {
    print(&converted_text(directory, goal, converted, took))?;
    if let Some(warning) = together_text(converted.after, converted.are_not_numbers) {
        note(context, wrapped("  warning: ", &warning).trim_end());
    }
    if let Some(bytes) = blocks_kept(directory, converted) {
        note(context, wrapped("  note: ", &blocks_text(bytes)).trim_end());
    }
    Ok(())
}

/// Prints what would be done with a directory.
pub(super) fn planned(directory: &Path, goal: Goal, online: bool, context: &Context) -> anyhow::Result<()> {
    let plan = match online {
        true => online::planned(directory, goal)?,
        false => plan(directory, goal).map_err(with_usage_marked)?,
    };
    print(&plan_text(directory, goal, &plan))?;
    if let Some(warning) = together_text(plan.after, plan.are_not_numbers) {
        note(context, wrapped("  warning: ", &warning).trim_end());
    }
    Ok(())
}
