//! What a mount does about the time that wake-ups take: which policy its readers have, and whether CPUs stay awake.
//!
//! CPUs stay awake by default for root, in a virtual machine, where a wake-up was measured to be slow. Where wake-ups are slow and
//! CPUs may sleep, the reader follows its caller; elsewhere readers park (`results/2026-11-27-readers`). Options by name come first.

use std::fmt;
use std::fs::OpenOptions;
use std::time::Duration;

use super::readers::ReaderPolicy;
use super::{awake, wake_up};
use crate::mount::options::StackOptions;

/// A wake-up on a CPU that is awake takes 2 to 10 us, one on a CPU that halts in a virtual machine 15 and more.
const SLOW: Duration = Duration::from_micros(12);

/// What a mount does about the time that wake-ups take, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How its threads wait for requests.
    pub readers: ReaderPolicy,
    /// CPUs stay out of idle states while requests arrive.
    pub awake: bool,
    /// How long waking a thread took; `None` when it was not measured, or the CPUs were busy.
    pub wake_up: Option<Duration>,
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
}

impl Waiting {
    /// Measures what the options leave open, and chooses.
    pub(super) fn choose(options: &StackOptions) -> Self {
        let host = Host {
            wake_up: (options.awake.is_none() || options.readers.is_none()).then(wake_up::measure).flatten(),
            privileged: OpenOptions::new().write(true).open(awake::DEVICE).is_ok(),
            virtual_machine: is_virtual_machine(),
        };
        Self::chosen(options.readers, options.awake, host)
    }

    fn chosen(readers: Option<ReaderPolicy>, awake: Option<bool>, host: Host) -> Self {
        let slow = host.wake_up.is_some_and(|cost| cost >= SLOW);
        let by_name = awake.is_some() && readers.is_some();
        let awake = awake.unwrap_or(slow && host.privileged && host.virtual_machine);
        let fits = if slow && !awake { ReaderPolicy::Follow } else { ReaderPolicy::Park };
        Self { readers: readers.unwrap_or(fits), awake, wake_up: host.wake_up, by_name }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let readers = match self.readers {
            ReaderPolicy::Park => "one reader waits",
            ReaderPolicy::Free => "all readers wait",
            ReaderPolicy::Follow => "the reader follows its caller",
        };
        let awake = if self.awake { ", CPUs stay awake" } else { "" };
        write!(f, "{readers}{awake}: ")?;
        match self.wake_up {
            _ if self.by_name => f.write_str("by option"),
            None => f.write_str("what a wake-up takes is unknown"),
            Some(cost) => {
                let verdict = if cost >= SLOW { "slow" } else { "quick" };
                write!(f, "a wake-up takes {} us ({verdict})", cost.as_micros())
            }
        }
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
        Host { wake_up: Some(Duration::from_micros(wake_up_us)), privileged: true, virtual_machine: true }
    }

    fn chosen(host: Host) -> (ReaderPolicy, bool) {
        let waiting = Waiting::chosen(None, None, host);
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
        let refused = Waiting::chosen(None, Some(false), host(40));
        assert_eq!((refused.readers, refused.awake), (ReaderPolicy::Follow, false));
        assert_eq!(refused.to_string(), "the reader follows its caller: a wake-up takes 40 us (slow)");
        let quick = Waiting::chosen(None, Some(false), host(4));
        assert_eq!((quick.readers, quick.awake), (ReaderPolicy::Park, false));
    }

    #[test]
    fn options_by_name_come_first() {
        let waiting = Waiting::chosen(Some(ReaderPolicy::Free), Some(false), host(40));
        assert_eq!((waiting.readers, waiting.awake), (ReaderPolicy::Free, false));
        assert!(waiting.to_string().ends_with("by option"), "{waiting}");
        let waiting = Waiting::chosen(None, Some(true), host(4));
        assert_eq!((waiting.readers, waiting.awake), (ReaderPolicy::Park, true));
    }

    #[test]
    fn one_line_says_what_and_why() {
        let slow = Waiting::chosen(None, None, host(40)).to_string();
        assert_eq!(slow, "one reader waits, CPUs stay awake: a wake-up takes 40 us (slow)");
        let quick = Waiting::chosen(None, None, host(4)).to_string();
        assert_eq!(quick, "one reader waits: a wake-up takes 4 us (quick)");
    }
}
