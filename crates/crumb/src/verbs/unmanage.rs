//! `crumb unmanage`: managed directories made flat again.

use std::path::PathBuf;

use clap::Args;
use stackfs::convert::Goal;

use crate::context::Context;
use crate::exit::ExitStatus;
use crate::verbs::manage::{How, convert_all};

/// Move the entries of managed directories back into one directory.
///
/// Works while the tree is not mounted, or with --online while it is, and in use. Each entry is moved by one rename and keeps its inode; nothing is copied.
/// After a kill the same command continues, and `crumb manage` reverts. On file systems with linear
/// directories (ext2, ext4 made with -O ^dir_index) this takes as long as filling such a directory.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct UnmanageArgs {
    /// Directories of the lower tree; with --online, of a mount
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,

    /// Convert while programs use it: DIR is a path in a mount, and the program that serves the mount converts it
    #[arg(long, conflicts_with = "dry_run")]
    online: bool,

    /// Print what would be done, or why it would be refused; change nothing
    #[arg(long)]
    dry_run: bool,
}

const EXAMPLES: &str = "\
Examples:
  crumb unmanage /news/control/cancel
  Change to another layout:
    crumb unmanage /news/control/cancel && crumb manage --layout 456 /news/control/cancel
  While it is mounted and in use:
    crumb unmanage --online /mnt/news/control/cancel
  Revert a conversion that cannot continue, for example because the disk is full:
    crumb unmanage /news/control/cancel

Ctrl-C ends it soon; the same command continues from there.
With --online too: until then programs see the whole directory, but the next mount
shows it only when it is finished. If this program is killed, the conversion continues.
Exit codes: 0 fine, 1 refused or failed, 2 wrong usage, 130 interrupted.";

/// Runs the verb.
pub fn run(args: &UnmanageArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let how = if args.dry_run { How::Planned } else { How::online(args.online) };
    convert_all(&args.directories, Goal::Flat, how, context)
}
