//! `crumb unmanage`: managed directories made flat again.

use std::path::PathBuf;

use clap::Args;
use stackfs::convert::Goal;

use crate::context::Context;
use crate::exit::ExitStatus;
use crate::verbs::manage::convert_all;

/// Make managed directories plain ones again, with all entries directly in them.
///
/// Offline: not while the tree is mounted. Every entry is moved by one rename, with its inode; nothing is copied.
/// Killed at any moment, the same command finishes, and `crumb manage` goes back. On file systems with linear
/// directories (ext2, ext4 made with -O ^dir_index) this takes as long as filling such a directory does.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct UnmanageArgs {
    /// Directories of the lower tree
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,

    /// Say what would be done, and whether it would be refused; change nothing
    #[arg(long)]
    dry_run: bool,
}

const EXAMPLES: &str = "\
Examples:
  crumb unmanage /news/control/cancel
  Back to another layout:
    crumb unmanage /news/control/cancel && crumb manage --layout 456 /news/control/cancel
  Give up a conversion that cannot go on, such as for want of room:
    crumb unmanage /news/control/cancel

Ctrl-C ends it soon; the same command continues from there.
Exit status: 0 fine, 1 refused or failed, 2 wrong usage, 130 interrupted.";

/// Runs the verb.
pub fn run(args: &UnmanageArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    convert_all(&args.directories, Goal::Flat, args.dry_run, context)
}
