//! What a mount does about the time that wake-ups take: by what requests come, which policy its readers have, and whether CPUs stay awake.
//!
//! CPUs stay awake by default for root, in a virtual machine, where wake-ups are slow. Where they are slow and CPUs may sleep, the
//! reader follows its caller; elsewhere readers park (`results/2026-11-27-readers`). Requests come by io_uring only by name: a reader
//! that follows is faster (`results/2026-11-27-mounts`). Options by name come first.
//!
//! One wake-up says little where the kernel polls before it halts: between 9 and 30 us on one machine, and now and then twelve in
//! a row were quick. So what the kernel says of its idle CPUs counts too.

use std::fmt;
use std::fs::OpenOptions;
use std::time::Duration;

use fuse::Transport;

use super::readers::ReaderPolicy;
use super::{awake, wake_up};
use crate::mount::options::StackOptions;

/// A wake-up on a CPU that is awake takes 2 to 10 us, one on a CPU that halts in a virtual machine 15 and more.
const SLOW: Duration = Duration::from_micros(12);
/// The same where idle CPUs are known to halt: a quick one was met while the CPU still polled.
const SLOW_HALTING: Duration = Duration::from_micros(5);
/// How the kernel lets CPUs idle: the name of a driver, or `none`.
const IDLE_DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";

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
    /// Wake-ups count as slow.
    pub slow: bool,
    /// Options by name left nothing to choose.
    pub by_name: bool,
}

/// What the choice depends on.
#[derive(Clone, Copy, Debug)]
struct Host {
    wake_up: Option<Duration>,
    /// The process is root's, and may hold the device that keeps CPUs awake.
    privileged: bool,
    virtual_machine: bool,
    /// A driver puts idle CPUs into states that take long to leave.
    halts: bool,
}

impl Host {
    fn is_slow(&self) -> bool {
        let slow = if self.halts { SLOW_HALTING } else { SLOW };
        self.wake_up.map_or(self.halts, |cost| cost >= slow)
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
            halts: std::fs::read_to_string(IDLE_DRIVER).is_ok_and(|driver| is_idle_driver(&driver)),
        };
        Self::chosen(options.transport, options.readers, options.awake, host)
    }

    fn chosen(
        transport: Option<Transport>,
        readers: Option<ReaderPolicy>,
        awake: Option<bool>,
        host: Host,
    ) -> Self {
        let slow = host.is_slow();
        let by_name = awake.is_some() && readers.is_some();
        // A ring wakes no other CPU, so that none has to stay awake for it.
        let by_ring = transport == Some(Transport::Ring);
        let awake = awake.unwrap_or(slow && host.privileged && host.virtual_machine && !by_ring);
        let fits = if slow && !awake { ReaderPolicy::Follow } else { ReaderPolicy::Park };
        Self {
            transport: transport.unwrap_or(Transport::Device),
            readers: readers.unwrap_or(fits),
            awake,
            wake_up: host.wake_up,
            slow,
            by_name,
        }
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
            None if self.slow => f.write_str("idle CPUs halt")?,
            None => f.write_str("what a wake-up takes is unknown")?,
            Some(cost) => {
                let verdict = if self.slow { "slow" } else { "quick" };
                write!(f, "a wake-up takes {} us ({verdict})", cost.as_micros())?;
            }
        }
        Ok(())
    }
}

/// What the kernel calls the way in which CPUs idle, `none` where it leaves that to the hypervisor.
fn is_idle_driver(name: &str) -> bool {
    !matches!(name.trim(), "" | "none")
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
        Host { wake_up, privileged: true, virtual_machine: true, halts: false }
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
    fn where_idle_cpus_halt_only_a_very_quick_wake_up_is_believed() {
        let halting = |wake_up_us| Host { halts: true, ..host(wake_up_us) };
        assert_eq!(chosen(halting(9)), (ReaderPolicy::Park, true));
        assert_eq!(chosen(host(9)), (ReaderPolicy::Park, false));
        assert_eq!(chosen(halting(4)), (ReaderPolicy::Park, false));
        let unknown = Host { wake_up: None, ..halting(9) };
        assert_eq!(chosen(unknown), (ReaderPolicy::Park, true));
        let refused = Waiting::chosen(None, None, Some(false), unknown);
        assert_eq!(refused.to_string(), "by /dev/fuse, the reader follows its caller: idle CPUs halt");
        assert!(["haltpoll\n", "intel_idle"].iter().all(|name| is_idle_driver(name)));
        assert!(!["none\n", ""].iter().any(|name| is_idle_driver(name)));
    }

    #[test]
    fn requests_come_by_a_ring_only_by_name() {
        for awake in [None, Some(true), Some(false)] {
            assert_eq!(Waiting::chosen(None, None, awake, host(40)).transport, Transport::Device);
        }
        let ring = Waiting::chosen(Some(Transport::Ring), None, Some(false), host(40)).to_string();
        assert_eq!(ring, "by io_uring, readers on each CPU: a wake-up takes 40 us (slow)");
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
