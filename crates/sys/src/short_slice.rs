//! A short time slice for a thread: sched_setattr(2), which rustix does not have.
//!
//! A thread that asks for a short slice is run sooner after it woke, and preempted sooner (EEVDF, Linux 6.12). It gets no
//! more CPU time than before, so an ordinary user may ask for it. Older kernels accept the request and ignore it.
//!
//! Not here: real-time scheduling, which can lock up a machine.

#![expect(unsafe_code, reason = "libc has no wrapper for sched_setattr and sched_getattr")]

use std::io;
use std::marker::PhantomData;

/// The shortest slice that the kernel grants.
const SLICE_NS: u64 = 100_000;

/// `struct sched_attr` of sched_setattr(2), in its second version.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
    util_min: u32,
    util_max: u32,
}

const SIZE: u32 = size_of::<SchedAttr>() as u32;

/// While it lives, the thread that made it has a short slice. The thread must keep it.
#[derive(Debug)]
pub struct ShortSlice {
    before_ns: u64,
    // The slice belongs to a thread: another one could not put it back.
    _of_this_thread: PhantomData<*const ()>,
}

impl ShortSlice {
    /// Asks for a short slice; `None` where the kernel has none, or where the thread has another policy than the usual one.
    pub fn begin() -> Option<Self> {
        let before = of_this_thread().ok()?;
        if before.policy != libc::SCHED_OTHER as u32 || before.runtime_ns == 0 {
            return None;
        }
        set(SchedAttr { runtime_ns: SLICE_NS, ..before }).ok()?;
        let slice = Self { before_ns: before.runtime_ns, _of_this_thread: PhantomData };
        let is_granted = of_this_thread().is_ok_and(|now| now.runtime_ns == SLICE_NS);
        is_granted.then_some(slice)
    }
}

impl Drop for ShortSlice {
    fn drop(&mut self) {
        if let Ok(now) = of_this_thread() {
            // It was accepted in the other direction; a refusal leaves a thread that is run sooner.
            let _ = set(SchedAttr { runtime_ns: self.before_ns, ..now });
        }
    }
}

fn of_this_thread() -> io::Result<SchedAttr> {
    let mut attr = SchedAttr::default();
    // SAFETY: `attr` is a live `SchedAttr` and `SIZE` its size, so the kernel writes only inside it; any bytes are a value
    // of its fields. Process 0 is the calling thread.
    let failed = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, SIZE, 0) };
    if failed == 0 { Ok(attr) } else { Err(io::Error::last_os_error()) }
}

fn set(attr: SchedAttr) -> io::Result<()> {
    let attr = SchedAttr { size: SIZE, ..attr };
    // SAFETY: `attr` lives until the call returns, and the kernel reads the `SIZE` bytes that `attr.size` says.
    let failed = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_short_while_it_lives_and_as_before_afterwards() {
        let before = of_this_thread().unwrap().runtime_ns;
        match ShortSlice::begin() {
            Some(slice) => {
                assert_eq!(of_this_thread().unwrap().runtime_ns, SLICE_NS);
                drop(slice);
            }
            // This kernel has no slices, and nothing changed.
            None => assert!(before == 0 || of_this_thread().unwrap().runtime_ns == before),
        }
        assert_eq!(of_this_thread().unwrap().runtime_ns, before);
    }
}
