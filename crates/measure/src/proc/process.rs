//! What the kernel says of one process.

use std::fs;
use std::time::Duration;

use super::{number_after, of_ticks, read};

/// `/proc/PID/stat`: whose child a process is, and what it used. CPU times are exact to a clock tick, mostly 10 ms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Name of the program, at most 15 bytes.
    pub name: String,
    /// The process that started it.
    pub parent: u32,
    /// A thread of the kernel, and no program.
    pub is_kernel_thread: bool,
    /// CPU time in user mode, of all its threads.
    pub user: Duration,
    /// CPU time in the kernel, of all its threads.
    pub sys: Duration,
    /// CPU time of its children that have ended and were waited for, user mode and kernel.
    pub ended_children: Duration,
    /// When it began, in clock ticks since the machine started. With the process number it names a process: numbers come again.
    pub began_ticks: u64,
}

/// Flag of the kernel's threads (PF_KTHREAD).
const KERNEL_THREAD: u64 = 0x0020_0000;

impl ProcessStat {
    /// None when there is no such process.
    pub fn of(process: u32) -> Option<Self> {
        Self::parse(&read(&format!("/proc/{process}/stat"))?)
    }

    /// Of this process.
    pub fn own() -> Option<Self> {
        Self::parse(&read("/proc/self/stat")?)
    }

    /// Fields 4, 9, 14 to 17 and 22. They are counted from behind the last closing parenthesis, as the name may hold blanks and
    /// parentheses itself.
    fn parse(stat: &str) -> Option<Self> {
        let (before, after) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            name: before.split_once('(')?.1.to_owned(),
            parent: u32::try_from(number(4)?).ok()?,
            is_kernel_thread: number(9)? & KERNEL_THREAD != 0,
            user: of_ticks(number(14)?),
            sys: of_ticks(number(15)?),
            ended_children: of_ticks(number(16)? + number(17)?),
            began_ticks: number(22)?,
        })
    }
}

/// Numbers of all processes that can be seen.
pub fn process_ids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Bytes that a process caused to be written to disks. None when it is gone, or another user's.
pub fn written_bytes(process: u32) -> Option<u64> {
    number_after(&read(&format!("/proc/{process}/io"))?, "write_bytes:")
}

/// Bytes of main memory that a process has; shared pages count for each that shares them. None when it is gone.
pub fn resident_bytes(process: u32) -> Option<u64> {
    number_after(&read(&format!("/proc/{process}/status"))?, "VmRSS:").map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b) (c) S 4 7 7 0 -1 4194560 10 0 0 0 300 200 30 20 20 0 1 0 4711 8192 9";
        let expected = ProcessStat {
            name: "a) b) (c".to_owned(),
            parent: 4,
            is_kernel_thread: false,
            user: of_ticks(300),
            sys: of_ticks(200),
            ended_children: of_ticks(50),
            began_ticks: 4711,
        };
        assert_eq!(ProcessStat::parse(stat), Some(expected));
        let kernel = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 5 0 0 20 0 1 0 1 0";
        assert!(ProcessStat::parse(kernel).unwrap().is_kernel_thread);
        assert_eq!(ProcessStat::parse("7 (cut off) S 4"), None);
        assert_eq!(ProcessStat::parse(""), None);
    }

    #[test]
    fn this_process_is_there_and_has_memory() {
        let me = std::process::id();
        assert!(process_ids().contains(&me));
        assert_eq!(ProcessStat::of(me).unwrap().began_ticks, ProcessStat::own().unwrap().began_ticks);
        assert!(resident_bytes(me).unwrap() > 100_000);
        assert_eq!(ProcessStat::of(u32::MAX), None);
    }
}
