//! Keeps CPUs out of idle states while requests arrive.
//!
//! A request goes from the caller's processor to the daemon's and back, and each time one of them has just gone idle. It
//! then has to be woken: from a deep C-state that takes tens of microseconds, in a virtual machine, where the hypervisor
//! takes an idle processor away, a hundred or two: many times what the request itself takes. While somebody holds
//! `/dev/cpu_dma_latency` at 0, idle processors wait awake (Linux, power management quality of service, CPU latency).
//!
//! ```text
//! request -> recent; not held: held, watcher woken
//! watcher: each IDLE_FOR: no request since? -> not held, waits to be woken
//! ```
//!
//! This keeps the whole machine awake and costs power, so it is off by default (`-o awake`).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::tree::nodes::lock;

/// CPUs may sleep again this long after the last request.
const IDLE_FOR: Duration = Duration::from_millis(20);
pub(super) const DEVICE: &str = "/dev/cpu_dma_latency";
/// Microseconds a processor may take to wake up; `WHENEVER` is `PM_QOS_CPU_LATENCY_DEFAULT_VALUE`.
const AT_ONCE: i32 = 0;
const WHENEVER: i32 = 2_000_000_000;

pub(super) struct Awake {
    /// A request came since the watcher last looked.
    recent: AtomicBool,
    /// Whether the last value written to the device was 0; changed under the lock of `asked`.
    held: AtomicBool,
    asked: Mutex<Asked>,
    woken: Condvar,
}

struct Asked {
    device: File,
    over: bool,
}

impl Awake {
    /// Opens the device; the thread that is to run `watch` is the caller's to start.
    pub(super) fn open() -> io::Result<Arc<Self>> {
        let device = OpenOptions::new().write(true).open(DEVICE)?;
        let mut asked = Asked { device, over: false };
        // Opening it is a request already, of what was the default when the kernel was built.
        asked.tell(WHENEVER);
        Ok(Arc::new(Self {
            recent: AtomicBool::new(false),
            held: AtomicBool::new(false),
            asked: Mutex::new(asked),
            woken: Condvar::new(),
        }))
    }

    /// A request has come.
    pub(super) fn note(&self) {
        // Looked at before it is written: the threads would otherwise fight for the cache line.
        if !self.recent.load(Ordering::Relaxed) {
            self.recent.store(true, Ordering::Relaxed);
        }
        if !self.held.load(Ordering::Relaxed) {
            let mut asked = lock(&self.asked);
            if !self.held.swap(true, Ordering::Relaxed) {
                asked.tell(AT_ONCE);
                self.woken.notify_one();
            }
        }
    }

    /// Lets the processors sleep when no requests come, until `end`.
    pub(super) fn watch(&self) {
        let mut asked = lock(&self.asked);
        while !asked.over {
            let held = self.held.load(Ordering::Relaxed);
            if held && !self.recent.swap(false, Ordering::Relaxed) {
                asked.tell(WHENEVER);
                self.held.store(false, Ordering::Relaxed);
                continue;
            }
            asked = if held {
                self.woken.wait_timeout(asked, IDLE_FOR).unwrap_or_else(|poisoned| poisoned.into_inner()).0
            } else {
                self.woken.wait(asked).unwrap_or_else(|poisoned| poisoned.into_inner())
            };
        }
    }

    pub(super) fn end(&self) {
        lock(&self.asked).over = true;
        self.woken.notify_one();
    }
}

impl Asked {
    fn tell(&mut self, latency_us: i32) {
        if let Err(error) = self.device.write_all(&latency_us.to_ne_bytes()) {
            tracing::warn!("{DEVICE}: {error}; the processors sleep as they like");
        }
    }
}
