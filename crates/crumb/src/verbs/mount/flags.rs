//! Flags of `crumb mount`, and the options of a mount that they ask for.

use std::path::PathBuf;

use clap::Args;
use files::Layout;
use stackfs::StackOptions;

#[derive(Args)]
#[command(
    about = "Mount a directory tree with its huge directories spread over many small ones (FUSE)",
    after_help = "\
Examples:
  A spool over itself, for all users (as root), until Ctrl-C:
    crumb mount /news/spool /news/spool
  In the background, ready when the command returns:
    crumb mount /news/spool /news/spool --daemon --pid-file /run/spool.pid
  From /etc/fstab (with /sbin/mount.fuse.crumb a link to crumb):
    /news/spool  /news/spool  fuse.crumb  defaults  0 0
  Which operations arrive, and how long do they take?
    crumb mount --stats /news/spool
    crumb mount --stats /news/spool --prometheus

`crumb advise` reports which directories to spread, `crumb manage` spreads them, `crumb unmount` ends the mount.

Options after -o, separated by commas:
  layout=L             as --layout
  exclusive            as --exclusive
  transport=T          as --transport
  awake, noawake       keep CPUs out of idle states, or let them sleep
  ro                   as --read-only
  nonempty             as --nonempty
  allow_other          serve all users (default for root)
  owner_only           serve only the user who mounts
  default_permissions  have the kernel check permissions for every caller
  nowatch              do not watch the tree below for changes by others
  entry_timeout=S      let the kernel cache names for S seconds
                       (default 1, or 120 where the tree is watched)
  attr_timeout=S       let the kernel cache attributes for S seconds
                       (default 1, or 120 where the tree is watched)
  negative_timeout=S   let it cache that a name is missing for S seconds
                       (default 0, or 120 where the tree is watched)
  no-open              open files without a request to the daemon (root, or ro)
  nopassthrough        pass file data through the daemon
  noacl                ignore access control lists
  noxattr              neither extended attributes nor access control lists
  threads=N            worker threads (default: the CPUs, 2 to 8)
  directories=N        keep N directories open (default 1024)
  readers=R            how worker threads wait: park, free or follow
  dev, suid            device files and setuid programs work (default: they do not)
  noexec, noatime      as for any mount
  sync                 a write returns when its data is on the disk
  remount              change ro, dev, suid, noexec, noatime or sync of a mount

A time-out of your own turns watching off. `-o remount` leaves what is not named
as it is, and refuses the other options. Words that mean something to mount(8)
only, such as noauto, are ignored."
)]
pub struct MountArgs {
    /// Directory tree to mount
    #[arg(value_name = "LOWER", required_unless_present = "stats")]
    lower: Option<PathBuf>,

    /// Mount point; LOWER itself is allowed
    #[arg(value_name = "MOUNTPOINT", required_unless_present = "stats")]
    mountpoint: Option<PathBuf>,

    /// Layout for directories that are managed while empty: 345, 34/56, 56/34, 456 or hash:2 [default: 345]
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<Layout>,

    /// Mount options as for mount(8), listed below
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,

    /// Let the kernel cache names and attributes for a day; no other program may change the tree meanwhile
    #[arg(long)]
    exclusive: bool,

    /// Keep CPUs out of idle states while requests arrive (root): faster where waking them is slow, but uses more power.
    /// Default: on in virtual machines where a measurement finds it slow; -o noawake turns that off
    #[arg(long)]
    awake: bool,

    /// Transport of the kernel's requests: `device` (/dev/fuse), `ring` (FUSE over io_uring, Linux 6.14 and later with
    /// enable_uring on) or `auto`, which takes /dev/fuse: it measured faster
    #[arg(long, value_name = "TRANSPORT", value_parser = ["auto", "ring", "device"])]
    transport: Option<String>,

    /// Refuse every change
    #[arg(long)]
    read_only: bool,

    /// Allow a MOUNTPOINT that is not empty; the mount hides its contents
    #[arg(long)]
    nonempty: bool,

    /// Serve in the background; return when the mount is ready
    #[arg(long)]
    pub(super) daemon: bool,

    /// Write the serving process's id to this file, and remove it at the end
    #[arg(long, value_name = "FILE")]
    pub(super) pid_file: Option<PathBuf>,

    /// Append the daemon's notes to this file
    #[arg(long, value_name = "FILE", requires = "daemon")]
    pub(super) log: Option<PathBuf>,

    /// Do not save the operation statistics in the results store at the end
    #[arg(long)]
    pub(super) no_store: bool,

    /// Show a mount's operation statistics: every second on a terminal, otherwise once
    #[arg(long, value_name = "MOUNTPOINT", conflicts_with_all = ["lower", "mountpoint", "daemon"])]
    pub(super) stats: Option<PathBuf>,

    /// With --stats: print once, in the Prometheus text format
    #[arg(long, requires = "stats")]
    pub(super) prometheus: bool,

    /// The program that `--daemon` starts: says on standard output when it is ready
    #[arg(long, hide = true)]
    pub(super) serve_daemon: bool,

    /// What mount(8) passes to its helpers besides
    #[arg(short = 's', short_alias = 'n', hide = true)]
    _sloppy: bool,
    #[arg(short = 't', hide = true, value_name = "TYPE")]
    _kind: Option<String>,
}

impl MountArgs {
    /// The mount that is asked for.
    pub(super) fn options(&self) -> anyhow::Result<StackOptions> {
        let (Some(lower), Some(mountpoint)) = (&self.lower, &self.mountpoint) else {
            anyhow::bail!("LOWER and MOUNTPOINT are needed");
        };
        let mut options = StackOptions::new(lower, mountpoint);
        if self.exclusive {
            options.apply("exclusive")?;
        }
        for list in &self.options {
            options.apply(list)?;
        }
        if let Some(layout) = self.layout {
            anyhow::ensure!(layout != Layout::Flat, "--layout flat: a managed directory cannot be flat");
            options.apply(&format!("layout={layout}"))?;
        }
        if let Some(transport) = &self.transport {
            options.apply(&format!("transport={transport}"))?;
        }
        for (asked, name) in [(self.awake, "awake"), (self.read_only, "ro"), (self.nonempty, "nonempty")] {
            if asked {
                options.apply(name)?;
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Alone {
        #[command(flatten)]
        _args: MountArgs,
    }

    /// Names in the help's list of options, with a value where one is needed.
    fn listed() -> Vec<String> {
        let help = Alone::command().get_after_help().expect("examples").to_string();
        let (_, list) = help.split_once("separated by commas:\n").expect("the options");
        let (list, _) = list.split_once("\n\n").expect("what follows");
        let first_lines = list.lines().filter(|line| !line.starts_with("    "));
        let names = first_lines.map(|line| line.trim_start().split_once("  ").expect("a meaning").0);
        names.flat_map(|names| names.split(", ")).map(str::to_owned).collect()
    }

    #[test]
    fn each_option_that_the_help_explains_is_one_and_is_in_the_guide() {
        let guide = include_str!("../../../../../docs/guide/mount.md");
        let names = listed();
        assert!(names.len() >= 27, "{names:?}");
        for option in names {
            let name = option.split('=').next().unwrap();
            let example = match name {
                "layout" => "layout=345",
                "transport" => "transport=ring",
                "readers" => "readers=free",
                valued if option.contains('=') => &format!("{valued}=8"),
                plain => plain,
            };
            let applied = StackOptions::new("/lower", "/mnt").apply(example);
            assert!(applied.is_ok(), "{example}: {applied:?}");
            assert!(
                guide.contains(&format!("`{name}`")) || guide.contains(&format!("`{option}`")),
                "{option}"
            );
        }
    }
}
