//! `crumb unmount`: ends mounts made by `crumb mount`.

use std::path::PathBuf;

use clap::Args;
use stackfs::StackError;

use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::output::note;
use crate::verbs::mount;

#[derive(Args)]
#[command(
    about = "End a mount made by `crumb mount`",
    after_help = "\
Examples:
  crumb unmount /news/spool
  In use? Detach it now; it ends with its last user:
    crumb unmount /news/spool --lazy"
)]
pub struct UnmountArgs {
    /// Mount points
    #[arg(value_name = "MOUNTPOINT", required = true)]
    mountpoints: Vec<PathBuf>,

    /// Detach a mount that is in use; it ends with its last user
    #[arg(long)]
    lazy: bool,
}

/// Ends them in the order given.
///
/// # Errors
/// At the first that cannot be ended.
pub fn run(args: &UnmountArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    for mountpoint in &args.mountpoints {
        let owner = mount::owner_of(mountpoint);
        match stackfs::mounts::unmount(mountpoint, args.lazy) {
            Ok(()) => {
                if !args.lazy {
                    // Its directory is no mount any more, so it can be resolved.
                    let place = mountpoint.canonicalize().unwrap_or_else(|_| mountpoint.clone());
                    mount::wait_for_end(&place, owner);
                }
                note(context, &format!("{} is unmounted", mountpoint.display()));
            }
            Err(error @ StackError::NotMounted { .. }) => {
                return Err(anyhow::Error::from(error).context(BadUsage));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ExitStatus::Fine)
}
