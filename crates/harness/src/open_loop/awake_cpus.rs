//! Keeps CPUs out of idle states: a wake-up from one costs tens of microseconds, in a virtual machine a hundred or two.
//!
//! The kernel does so while a program holds `/dev/cpu_dma_latency` open at 0 (Linux, PM quality of service). It is the
//! whole machine that stays awake, and only root may ask for it.

use std::fs::{File, OpenOptions};
use std::io::Write as _;

const DEVICE: &str = "/dev/cpu_dma_latency";
/// Microseconds that a CPU may take to wake up.
const AT_ONCE: i32 = 0;

/// While it lives, CPUs do not go to sleep.
#[derive(Debug)]
pub(super) struct AwakeCpus {
    // Closing it lets them sleep again.
    _device: File,
}

impl AwakeCpus {
    /// Holds the device; `None` where that is not allowed.
    pub fn hold() -> Option<Self> {
        let mut device = OpenOptions::new().write(true).open(DEVICE).ok()?;
        device.write_all(&AT_ONCE.to_ne_bytes()).ok()?;
        Some(Self { _device: device })
    }
}
