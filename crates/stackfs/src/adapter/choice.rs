//! What a mount does about the time that wake-ups take: by what requests come, which policy its readers have, and whether CPUs stay awake.
//!
//! CPUs stay awake by default for root, in a virtual machine, where a wake-up was measured to be slow. Where wake-ups are slow and
//! CPUs may sleep, requests come by io_uring if the kernel offers it, as the kernel then queues them on the CPU of their caller; otherwise
//! the reader follows its caller. Elsewhere requests come by `/dev/fuse` and readers park (`results/2026-11-27-readers`,
//! `results/2026-11-27-transports`). Options by name come first.

use std::fmt;
use std::fs::OpenOptions;
use std::time::Duration;

use fuse::Transport;

use super::readers::ReaderPolicy;
use super::{awake, wake_up};
use crate::mount::options::StackOptions;

/// A wake-up on a CPU that is awake takes 2 to 10 us, one on a CPU that halts in a virtual machine 15 and more.
const SLOW: Duration = Duration::from_micros(12);
/// Each CPU that a machine may ever have takes two threads and their buffers, 160 KiB, of each mount.
const CPUS_MAX: usize = 64;

/// What a mount does about the time that wake-ups take, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// By what requests come.
    pub transport: Transport,
    /// How its threads wait for requests that come by `/dev/fuse`.
    pub readers: ReaderPolicy,
    /// CPUs stay out of idle states while requests arrive.
    pub awake: bool,
    /// How long waking a thread took; `None` when it was not measured, or the CPUs were busy.
    pub wake_up: Option<Duration>,
    /// Options by name left nothing to choose.
    pub by_name: bool,
    /// A ring would be faster, and root has not switched it on.
    pub ring_is_off: bool,
}

/// What the choice depends on.
#[derive(Clone, Copy, Debug)]
struct Host {
    wake_up: Option<Duration>,
    /// The process is root's, and may hold the device that keeps CPUs awake.
    privileged: bool,
    virtual_machine: bool,
    ring: Ring,
}

/// FUSE over io_uring, for this mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ring {
    /// The kernel does not have it, or the mount is better off without: data of files would go through rings.
    Unfit,
    /// It is switched off.
    Off,
    On,
}

impl Ring {
    fn of(options: &StackOptions) -> Self {
        let passes_through = options.passthrough && rustix::process::geteuid().is_root();
        let few = fuse::possible_cpus().is_ok_and(|cpus| cpus <= CPUS_MAX);
        match passes_through && few && fuse::ring_is_known() {
            false => Self::Unfit,
            true if fuse::ring_is_enabled() => Self::On,
            true => Self::Off,
        }
    }
}

impl Waiting {
    /// Measures what the options leave open, and chooses.
    pub(super) fn choose(options: &StackOptions) -> Self {
        let open = options.awake.is_none() || options.readers.is_none();
        let host = Host {
            wake_up: open.then(wake_up::measure).flatten(),
            privileged: OpenOptions::new().write(true).open(awake::DEVICE).is_ok(),
            virtual_machine: is_virtual_machine(),
            ring: Ring::of(options),
        };
        Self::chosen(options.transport, options.readers, options.awake, host)
    }

    fn chosen(
        transport: Option<Transport>,
        readers: Option<ReaderPolicy>,
        awake: Option<bool>,
        host: Host,
    ) -> Self {
        let slow = host.wake_up.is_some_and(|cost| cost >= SLOW);
        let by_name = awake.is_some() && readers.is_some();
        // A ring wakes no other CPU, so that none has to stay awake for it.
        let by_ring = transport == Some(Transport::Ring);
        let awake = awake.unwrap_or(slow && host.privileged && host.virtual_machine && !by_ring);
        let fits = if slow && !awake { ReaderPolicy::Follow } else { ReaderPolicy::Park };
        let faster = transport.is_none() && readers.is_none() && fits == ReaderPolicy::Follow;
        let fitting = if faster && host.ring == Ring::On { Transport::Ring } else { Transport::Device };
        Self {
            transport: transport.unwrap_or(fitting),
            readers: readers.unwrap_or(fits),
            awake,
            wake_up: host.wake_up,
            by_name,
            ring_is_off: faster && host.ring == Ring::Off,
        }
    }
}

impl Waiting {
    /// What root could do for a faster mount, in one line.
    pub fn hint(&self) -> Option<String> {
        self.ring_is_off.then(|| {
            format!("io_uring would be faster here: echo 1 > {}, then mount again", fuse::RING_PARAMETER)
        })
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let readers = match (self.transport, self.readers) {
            (Transport::Ring, _) => "by io_uring, readers on each CPU",
            (Transport::Device, ReaderPolicy::Park) => "by /dev/fuse, one reader waits",
            (Transport::Device, ReaderPolicy::Free) => "by /dev/fuse, all readers wait",
            (Transport::Device, ReaderPolicy::Follow) => "by /dev/fuse, the reader follows its caller",
        };
        let awake = if self.awake { ", CPUs stay awake" } else { "" };
        write!(f, "{readers}{awake}: ")?;
        match self.wake_up {
            _ if self.by_name => f.write_str("by option")?,
            None => f.write_str("what a wake-up takes is unknown")?,
            Some(cost) => {
                let verdict = if cost >= SLOW { "slow" } else { "quick" };
                write!(f, "a wake-up takes {} us ({verdict})", cost.as_micros())?;
            }
        }
        Ok(())
    }
}

/// By the processor's flag for it.
fn is_virtual_machine() -> bool {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(wake_up_us: u64) -> Host {
        let wake_up = Some(Duration::from_micros(wake_up_us));
        Host { wake_up, privileged: true, virtual_machine: true, ring: Ring::Unfit }
    }

    fn chosen(host: Host) -> (ReaderPolicy, bool) {
        let waiting = Waiting::chosen(None, None, None, host);
        (waiting.readers, waiting.awake)
    }

    #[test]
    fn where_wake_ups_are_slow_in_a_virtual_machine_cpus_stay_awake_for_root() {
        assert_eq!(chosen(host(40)), (ReaderPolicy::Park, true));
        assert_eq!(chosen(host(4)), (ReaderPolicy::Park, false));
        assert_eq!(chosen(Host { wake_up: None, ..host(4) }), (ReaderPolicy::Park, false));
    }

    #[test]
    fn where_wake_ups_are_slow_and_cpus_may_sleep_the_reader_follows_its_caller() {
        assert_eq!(chosen(Host { virtual_machine: false, ..host(40) }), (ReaderPolicy::Follow, false));
        assert_eq!(chosen(Host { privileged: false, ..host(40) }), (ReaderPolicy::Follow, false));
        let refused = Waiting::chosen(None, None, Some(false), host(40));
        assert_eq!((refused.readers, refused.awake), (ReaderPolicy::Follow, false));
        assert_eq!(
            refused.to_string(),
            "by /dev/fuse, the reader follows its caller: a wake-up takes 40 us (slow)"
        );
        let quick = Waiting::chosen(None, None, Some(false), host(4));
        assert_eq!((quick.readers, quick.awake), (ReaderPolicy::Park, false));
    }

    #[test]
    fn options_by_name_come_first() {
        let waiting = Waiting::chosen(None, Some(ReaderPolicy::Free), Some(false), host(40));
        assert_eq!((waiting.readers, waiting.awake), (ReaderPolicy::Free, false));
        assert!(waiting.to_string().ends_with("by option"), "{waiting}");
        let waiting = Waiting::chosen(None, None, Some(true), host(4));
        assert_eq!((waiting.readers, waiting.awake), (ReaderPolicy::Park, true));
    }

    #[test]
    fn requests_come_by_a_ring_where_the_reader_would_follow_its_caller() {
        let transport = |awake, host: Host| Waiting::chosen(None, None, awake, host).transport;
        let on = Host { ring: Ring::On, ..host(40) };
        assert_eq!(transport(Some(false), on), Transport::Ring);
        assert_eq!(transport(None, Host { virtual_machine: false, ..on }), Transport::Ring);
        assert_eq!(transport(None, on), Transport::Device, "CPUs stay awake, and the device is as fast");
        assert_eq!(transport(Some(false), Host { wake_up: on.wake_up, ..host(4) }), Transport::Device);
        assert_eq!(transport(Some(false), Host { ring: Ring::On, ..host(4) }), Transport::Device);
        assert_eq!(transport(Some(false), Host { wake_up: None, ..on }), Transport::Device);
        let named = Waiting::chosen(None, Some(ReaderPolicy::Follow), Some(false), on);
        assert_eq!(named.transport, Transport::Device, "a policy of the device's was named");
        let ring = Waiting::chosen(None, None, Some(false), on).to_string();
        assert_eq!(ring, "by io_uring, readers on each CPU: a wake-up takes 40 us (slow)");
    }

    #[test]
    fn a_ring_that_would_be_faster_and_is_off_is_named_once() {
        let off = Host { ring: Ring::Off, ..host(40) };
        let hinted = Waiting::chosen(None, None, Some(false), off);
        assert_eq!((hinted.transport, hinted.ring_is_off), (Transport::Device, true));
        let hint = hinted.hint().expect("a hint");
        assert!(hint.contains("echo 1 > /sys/module/fuse/parameters/enable_uring"), "{hint}");
        let unhinted = [
            Waiting::chosen(None, None, None, off),
            Waiting::chosen(Some(Transport::Device), None, Some(false), off),
            Waiting::chosen(None, None, Some(false), Host { ring: Ring::Off, ..host(4) }),
            Waiting::chosen(None, None, Some(false), Host { ring: Ring::On, ..off }),
        ];
        assert!(unhinted.iter().all(|waiting| waiting.hint().is_none()), "{unhinted:?}");
    }

    #[test]
    fn a_ring_by_name_lets_cpus_sleep_unless_that_is_named_too() {
        let ring = |awake| Waiting::chosen(Some(Transport::Ring), None, awake, host(40));
        assert_eq!((ring(None).transport, ring(None).awake), (Transport::Ring, false));
        assert!(ring(Some(true)).awake);
    }

    #[test]
    fn one_line_says_what_and_why() {
        let slow = Waiting::chosen(None, None, None, host(40)).to_string();
        assert_eq!(slow, "by /dev/fuse, one reader waits, CPUs stay awake: a wake-up takes 40 us (slow)");
        let quick = Waiting::chosen(None, None, None, host(4)).to_string();
        assert_eq!(quick, "by /dev/fuse, one reader waits: a wake-up takes 4 us (quick)");
    }
}
