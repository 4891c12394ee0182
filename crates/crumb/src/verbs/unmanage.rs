//! `crumb unmanage`: managed directories made flat again.

use std::path::PathBuf;

use clap::Args;
use stackfs::convert::Goal;

use crate::context::Context;
use crate::exit::ExitStatus;
use crate::verbs::manage::{How, convert_all};

/// Move the entries of managed directories back into one directory.
///
/// Works while the tree is not mounted, or with --online while it is mounted and in use. Each entry is moved by one rename and keeps
/// its inode; nothing is copied. After a kill the same command continues, and `crumb manage` reverts. Moving back is slower than
/// spreading, as all entries go into one large directory: where directories are linear (ext2, ext4 made with -O ^dir_index) it takes as
/// long as filling such a directory. A line shows the progress.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct UnmanageArgs {
    /// Directories of the lower tree; with --online, of a mount
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,

    /// Convert while programs use it: DIR is a path in a mount, and the program that serves the mount converts it
    #[arg(long)]
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
With --online as well. Until a conversion is finished, programs see the whole directory through the
running mount; a new mount shows it only after that. If this program is killed, the conversion
continues.
Exit codes: 0 fine, 1 refused or failed, 2 wrong usage, 130 interrupted.";

/// Runs the verb.
pub fn run(args: &UnmanageArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let how = How::asked(args.online, args.dry_run);
    convert_all(&args.directories, Goal::Flat, how, context)
}
