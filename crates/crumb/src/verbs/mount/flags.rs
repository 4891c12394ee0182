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
  In the background, ready when the command returns; nothing else changes the tree:
    crumb mount /news/spool /news/spool --daemon --exclusive --pid-file /run/spool.pid
  From /etc/fstab (with /sbin/mount.fuse.crumb a link to crumb):
    /news/spool  /news/spool  fuse.crumb  defaults,exclusive  0 0
  Which operations arrive, and how long do they take?
    crumb mount --stats /news/spool
    crumb mount --stats /news/spool --prometheus

`crumb advise` reports which directories to spread, `crumb manage` spreads them, `crumb unmount` ends the mount.

Options after -o: layout=L, exclusive, ro, allow_other, owner_only, default_permissions, nonempty,
entry_timeout=SECONDS, attr_timeout=SECONDS, negative_timeout=SECONDS, nowatch, transport=T, awake, noawake,
no-open, nopassthrough, noacl, noxattr, threads=N, directories=N, dev, suid, noexec, noatime, sync. Options for
mount(8) alone are ignored.
-o remount changes ro, rw, dev, suid, noexec, noatime and sync of an existing mount; options that are not
named keep their values, all others are refused."
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
    /// enable_uring on) or `auto`, the one that measured faster: /dev/fuse
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
