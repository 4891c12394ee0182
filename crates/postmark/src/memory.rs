//! Memory for what settings ask for, refused before a slip of the finger takes the machine's last page.

use crate::PostmarkError;

/// Room for `count` of `T`, and nothing in it yet. Refused when the machine has not as much in all: the system itself
/// often promises more than it has, and ends the process that takes it at its word.
pub(crate) fn reserved<T>(count: u64, what: &'static str) -> Result<Vec<T>, PostmarkError> {
    let needed_bytes = count.saturating_mul(size_of::<T>() as u64);
    let info = rustix::system::sysinfo();
    // Of the kernel's types these are wider or narrower by platform.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    let there_bytes = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    let mut room = Vec::new();
    match usize::try_from(count) {
        Ok(count) if needed_bytes <= there_bytes && room.try_reserve_exact(count).is_ok() => Ok(room),
        _ => Err(PostmarkError::Memory { what, needed_bytes }),
    }
}
