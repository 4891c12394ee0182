//! What a mount is asked to be: checked once, from flags or from an `-o` list as in `/etc/fstab`.
//!
//! Not here: whether the places exist and may be used (`mount`).

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use files::Layout;
use fuse::Transport;

use crate::StackError;
use crate::adapter::ReaderPolicy;
use crate::managed::LAYOUT_UNMARKED;

/// How long the kernel may cache names and attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// That a name leads to an inode. Default 1 s, as in libfuse: what is changed in the lower tree by others shows
    /// within it.
    pub entry: Duration,
    /// An inode's attributes. Default 1 s.
    pub attributes: Duration,
    /// That a name is missing. Default 0: a file made below is seen at once.
    pub missing: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self { entry: second, attributes: second, missing: Duration::ZERO }
    }
}

impl Timeouts {
    /// For a lower tree that nothing else changes while it is mounted: a day.
    pub const EXCLUSIVE: Self = {
        let day = Duration::from_secs(86_400);
        Self { entry: day, attributes: day, missing: day }
    };
}

/// Everything about a mount.
#[derive(Clone, Debug)]
pub struct StackOptions {
    /// The tree below.
    pub lower: PathBuf,
    /// Where it is shown.
    pub mountpoint: PathBuf,
    /// Layout for directories that are managed, unmarked and empty (see `managed`). Default 345, the paper's.
    pub layout_new: Layout,
    /// How long the kernel may cache names and attributes.
    pub timeouts: Timeouts,
    /// Nothing else changes the lower tree: caches are kept over opens.
    pub exclusive: bool,
    /// Other users may use the mount. Default for root, who mounts for all.
    pub allow_other: bool,
    /// The kernel checks permissions for every caller, for which it asks for attributes again after each change of a directory.
    /// Default on, but where the daemon's user alone may use the mount and the lower file system checks instead.
    pub default_permissions: Option<bool>,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Changes that others make in the lower tree are watched, where root may, so that the kernel can cache names and
    /// attributes for minutes. Default on; it is off with `exclusive` and with time-outs of one's own.
    pub watch: bool,
    /// The kernel opens files by itself, without a request (`-o no-open`). Needs root, or `read_only`. Default off.
    pub no_open: bool,
    /// File data goes past the daemon (FUSE_PASSTHROUGH) where the kernel and the lower file system can. Default on.
    pub passthrough: bool,
    /// CPUs stay out of idle states while requests arrive (`/dev/cpu_dma_latency`; needs root). Default: by a measurement.
    pub awake: Option<bool>,
    /// How the worker threads wait for requests. Default: by a measurement.
    pub readers: Option<ReaderPolicy>,
    /// By what requests come. Default: by a measurement, and by what the kernel offers.
    pub transport: Option<Transport>,
    /// Access control lists count. Default on; needs root.
    pub access_lists: bool,
    /// Extended attributes can be read and set. Default on; off, the kernel asks once less for each file that is written.
    pub extended: bool,
    /// The mount point may have entries, which are hidden then. Over LOWER itself it may anyway.
    pub nonempty: bool,
    /// Worker threads. Default: the CPUs, at least 2 and at most 8.
    pub threads: usize,
    /// Directories of which a descriptor is kept. Default 1024.
    pub directories_max: usize,
    /// Nothing is mounted: the mount that is there gets this `read_only` and these `flags` (`-o remount`).
    pub remount: bool,
    /// Device files work (`-o dev`), set-user-id programs do (`-o suid`), programs do not (`-o noexec`), times of
    /// access do not (`-o noatime`).
    pub flags: KernelFlags,
    /// The options that were asked for by name, in order.
    pub named: Vec<String>,
}

/// Options that the kernel itself keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelFlags {
    /// Device files can be opened.
    pub dev: bool,
    /// Set-user-id bits count.
    pub suid: bool,
    /// Programs cannot be run.
    pub noexec: bool,
    /// Reading changes no time of access.
    pub noatime: bool,
    /// A write is on the disk when it returns.
    pub sync: bool,
}

impl StackOptions {
    /// The defaults for a mount of `lower` at `mountpoint`.
    pub fn new(lower: impl Into<PathBuf>, mountpoint: impl Into<PathBuf>) -> Self {
        let cpus = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            lower: lower.into(),
            mountpoint: mountpoint.into(),
            layout_new: LAYOUT_UNMARKED,
            timeouts: Timeouts::default(),
            exclusive: false,
            allow_other: rustix::process::geteuid().is_root(),
            default_permissions: None,
            read_only: false,
            watch: true,
            no_open: false,
            passthrough: true,
            awake: None,
            readers: None,
            transport: None,
            access_lists: true,
            extended: true,
            nonempty: false,
            remount: false,
            threads: cpus.clamp(2, 8),
            directories_max: 1024,
            flags: KernelFlags::default(),
            named: Vec::new(),
        }
    }

    /// Nothing else changes the lower tree.
    pub fn exclusive(mut self) -> Self {
        self.exclusive = true;
        self.timeouts = Timeouts::EXCLUSIVE;
        self
    }

    /// Whether the kernel checks permissions. The lower file system can do it where every caller is the daemon's user, and is asked
    /// whenever something is opened, listed or looked up. What the kernel keeps for a day it is not asked about, which
    /// matters for an ordinary user alone: root may do it all.
    pub(crate) fn kernel_checks(&self) -> bool {
        let keeps_names = self.exclusive && !rustix::process::geteuid().is_root();
        self.default_permissions.unwrap_or(self.allow_other || self.no_open || keeps_names)
    }

    /// Whether changes below are to be watched.
    pub(crate) fn watches(&self) -> bool {
        let has_own_times = self.named.iter().any(|name| name.ends_with("_timeout"));
        self.watch && !self.exclusive && !has_own_times && self.timeouts == Timeouts::default()
    }

    /// Whether the kernel opens directories by itself and keeps what it read of them. Not without `no-open`: a directory that is
    /// converted while programs list it needs to know who does.
    pub(crate) fn lists_unopened(&self) -> bool {
        self.exclusive && self.no_open
    }

    /// Applies a list as `mount -o` takes it: `layout=56/34,ro,attr_timeout=5`. Options of mount(8) itself, such as
    /// `noauto`, `user` and `x-systemd.…`, are passed over.
    pub fn apply(&mut self, list: &str) -> Result<(), StackError> {
        for option in list.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            let (name, value) =
                option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
            self.apply_one(name, value).ok_or_else(|| wrong(option, name, value))?;
        }
        Ok(())
    }

    fn apply_one(&mut self, name: &str, value: Option<&str>) -> Option<()> {
        match (name, value) {
            ("layout", Some(text)) => {
                self.layout_new = Layout::from_str(text).ok().filter(|layout| *layout != Layout::Flat)?;
            }
            ("entry_timeout", Some(text)) => self.timeouts.entry = seconds(text)?,
            ("attr_timeout", Some(text)) => self.timeouts.attributes = seconds(text)?,
            ("negative_timeout", Some(text)) => self.timeouts.missing = seconds(text)?,
            ("threads", Some(text)) => self.threads = text.parse().ok().filter(|n| (1..=64).contains(n))?,
            ("directories", Some(text)) => {
                self.directories_max = text.parse().ok().filter(|n| (8..=1_000_000).contains(n))?;
            }
            ("exclusive", None) => *self = self.clone().exclusive(),
            ("allow_other", None) => self.allow_other = true,
            ("owner_only", None) => self.allow_other = false,
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("watch", None) => self.watch = true,
            ("nowatch", None) => self.watch = false,
            ("no-open" | "noopen", None) => self.no_open = true,
            ("nopassthrough", None) => self.passthrough = false,
            ("awake", None) => self.awake = Some(true),
            ("noawake", None) => self.awake = Some(false),
            ("readers", Some(text)) => self.readers = Some(text.parse().ok()?),
            ("transport", Some("auto")) => self.transport = None,
            ("transport", Some(text)) => self.transport = Some(text.parse().ok()?),
            ("noacl", None) => self.access_lists = false,
            ("noxattr", None) => (self.extended, self.access_lists) = (false, false),
            ("acl", None) => self.access_lists = true,
            ("nonempty", None) => self.nonempty = true,
            ("dev", None) => self.flags.dev = true,
            ("nodev", None) => self.flags.dev = false,
            ("suid", None) => self.flags.suid = true,
            ("nosuid", None) => self.flags.suid = false,
            ("exec", None) => self.flags.noexec = false,
            ("noexec", None) => self.flags.noexec = true,
            ("noatime", None) => self.flags.noatime = true,
            ("atime", None) => self.flags.noatime = false,
            ("sync", None) => self.flags.sync = true,
            ("async", None) => self.flags.sync = false,
            ("remount", None) => self.remount = true,
            ("default_permissions", None) => self.default_permissions = Some(true),
            ("defaults", None) => {}
            // What the lower file system does with its times, it does.
            (
                "relatime" | "norelatime" | "strictatime" | "nostrictatime" | "lazytime" | "nolazytime",
                None,
            ) => {}
            ("diratime" | "nodiratime" | "iversion" | "noiversion" | "silent" | "loud", None) => {}
            // For mount(8) alone.
            ("auto" | "noauto" | "user" | "users" | "nouser" | "nousers", None) => {}
            ("owner" | "noowner" | "group" | "nogroup" | "nofail" | "_netdev", None) => {}
            _ if name.starts_with("x-") || name.starts_with("comment") => {}
            _ => return None,
        }
        self.named.push(name.to_owned());
        Some(())
    }
}

/// Options with a value, and what that may be.
const VALUED: [(&str, &str); 8] = [
    ("layout", "takes a layout, such as 345 or 56/34"),
    ("entry_timeout", "takes seconds, such as 1 or 0.5"),
    ("attr_timeout", "takes seconds, such as 1 or 0.5"),
    ("negative_timeout", "takes seconds, such as 1 or 0.5"),
    ("threads", "takes a number from 1 to 64"),
    ("directories", "takes a number from 8 to 1000000"),
    ("readers", "takes park, free or follow"),
    ("transport", "takes auto, ring or device"),
];

/// Why an option was not taken.
fn wrong(option: &str, name: &str, value: Option<&str>) -> StackError {
    let valued = VALUED.iter().find(|(valued, _)| *valued == name).map(|(_, takes)| *takes);
    let takes_none = value.is_some() && StackOptions::new("/", "/").apply_one(name, None).is_some();
    match valued.or(takes_none.then_some("takes no value")) {
        Some(takes) => StackError::OptionValue { option: option.to_owned(), name: name.to_owned(), takes },
        None => StackError::Option { option: option.to_owned() },
    }
}

/// Options that only a program that serves could change, and so none that is running.
const FIXED: [&str; 22] = [
    "layout",
    "entry_timeout",
    "attr_timeout",
    "negative_timeout",
    "threads",
    "directories",
    "exclusive",
    "allow_other",
    "owner_only",
    "default_permissions",
    "watch",
    "nowatch",
    "no-open",
    "noopen",
    "nopassthrough",
    "awake",
    "noawake",
    "readers",
    "transport",
    "noacl",
    "noxattr",
    "acl",
];

impl StackOptions {
    /// The first option asked for that no remount changes, and that the mount does not have by `is_so`.
    pub(crate) fn fixed(&self, is_so: impl Fn(&str) -> bool) -> Option<&str> {
        self.named.iter().map(String::as_str).find(|name| FIXED.contains(name) && !is_so(name))
    }

    /// Options that were not given by name keep the existing mount's setting, which `has` returns.
    pub(crate) fn over(mut self, has: impl Fn(&str) -> bool) -> Self {
        let named = std::mem::take(&mut self.named);
        let keep = |names: [&str; 2], asked: &mut bool, now: bool| {
            if !named.iter().any(|one| names.contains(&one.as_str())) {
                *asked = now;
            }
        };
        keep(["ro", "rw"], &mut self.read_only, has("ro"));
        keep(["dev", "nodev"], &mut self.flags.dev, !has("nodev"));
        keep(["suid", "nosuid"], &mut self.flags.suid, !has("nosuid"));
        keep(["exec", "noexec"], &mut self.flags.noexec, has("noexec"));
        keep(["atime", "noatime"], &mut self.flags.noatime, has("noatime"));
        keep(["sync", "async"], &mut self.flags.sync, has("sync"));
        self.named = named;
        self
    }
}

fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok().filter(|duration| duration.as_secs() <= 10 * 365 * 86_400)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(list: &str) -> Result<StackOptions, StackError> {
        let mut options = StackOptions::new("/lower", "/mnt");
        options.apply(list).map(|()| options)
    }

    #[test]
    fn an_fstab_list_is_understood_whole() {
        let options = applied("noauto,x-systemd.automount,layout=56/34,ro,attr_timeout=2.5,dev").unwrap();
        assert_eq!(options.layout_new, Layout::D56D34);
        assert_eq!(options.timeouts.attributes, Duration::from_millis(2500));
        assert!(options.read_only && options.flags.dev && !options.flags.suid);
        let options = applied("rw,sync,lazytime,strictatime,nodiratime,user,owner,nofail").unwrap();
        assert!(options.flags.sync && !options.remount);
        assert!(!applied("sync,async").unwrap().flags.sync);
        let options = applied("remount,ro,exclusive,noatime").unwrap();
        assert!(options.remount && options.read_only && options.flags.noatime);
    }

    #[test]
    fn remounted_what_is_not_named_stays_and_what_cannot_change_is_found() {
        let there = ["ro", "nosuid", "noexec", "sync", "noatime"];
        let over = |list: &str| applied(list).unwrap().over(|option| there.contains(&option));
        let kept = over("remount,atime");
        assert!(kept.read_only && kept.flags.dev && !kept.flags.suid && kept.flags.noexec);
        assert!(kept.flags.sync && !kept.flags.noatime);
        let changed = over("remount,rw,exec,async,nodev");
        assert!(!changed.read_only && !changed.flags.noexec && !changed.flags.sync && !changed.flags.dev);
        assert!(changed.flags.noatime);
        let fixed = |list: &str| applied(list).unwrap().fixed(|name| name == "exclusive").map(str::to_owned);
        assert_eq!(fixed("remount,exclusive,ro,nofail"), None);
        assert_eq!(fixed("remount,exclusive,threads=3").as_deref(), Some("threads"));
    }

    #[test]
    fn a_wrong_option_is_named() {
        for wrong in [
            "layuot=345",
            "layout=789",
            "layout=flat",
            "attr_timeout=-1",
            "threads=0",
            "ro=yes",
            "entry_timeout=1e300",
            "transport=rings",
            "transport",
        ] {
            let error = applied(&format!("rw,{wrong}")).unwrap_err().to_string();
            assert!(error.contains(&format!("`{wrong}`")), "{error}");
        }
        let said = |option| applied(option).unwrap_err().to_string();
        assert_eq!(
            said("transport=rings"),
            "`transport=rings`: the mount option transport takes auto, ring or device"
        );
        assert_eq!(said("ro=yes"), "`ro=yes`: the mount option ro takes no value");
        assert!(said("layuot").contains("is not a mount option"), "{}", said("layuot"));
        // Each that is listed with values is one, and takes no other.
        for (name, takes) in VALUED {
            assert!(said(name).ends_with(takes), "{}", said(name));
        }
    }

    #[test]
    fn a_transport_is_named_or_left_to_a_measurement() {
        assert_eq!(applied("ro").unwrap().transport, None);
        assert_eq!(applied("transport=ring").unwrap().transport, Some(Transport::Ring));
        assert_eq!(applied("transport=device").unwrap().transport, Some(Transport::Device));
        assert_eq!(applied("transport=ring,transport=auto").unwrap().transport, None);
    }

    #[test]
    fn exclusive_and_a_time_out_after_it_go_together() {
        let options = applied("exclusive,negative_timeout=0").unwrap();
        assert_eq!(options.timeouts.entry, Timeouts::EXCLUSIVE.entry);
        assert_eq!(options.timeouts.missing, Duration::ZERO);
    }
}
