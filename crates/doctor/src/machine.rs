//! What the kernel says of the machine to every user: processor, idle states, clock, control groups.

use std::fs;
use std::path::Path;
use std::time::Instant;

use measure::Environment;
use measure::proc::ControlGroups;

use crate::{IdleState, MachineFacts};

/// Reads of the clock that are timed together.
const CLOCK_READS: u32 = 10_000;

/// Reads this machine. `version` is the program's.
pub fn machine(version: &str) -> MachineFacts {
    let quotas = ControlGroups::of_this_process().cpu_quotas();
    MachineFacts {
        environment: Environment::capture(version, None),
        is_virtual: fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| has_hypervisor(&text)),
        is_root: rustix::process::geteuid().is_root(),
        frequency_driver: line_of(Path::new("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver")),
        idle_states: idle_states(Path::new("/sys/devices/system/cpu/cpu0/cpuidle")),
        cpu_quota: quotas.iter().map(|quota| quota.cpus).min_by(f64::total_cmp),
        memory_bytes_allowed: measure::memory_bytes(),
        clock_read_ns: clock_read_ns(),
    }
}

/// x86: a flag of the processor that only a hypervisor sets.
fn has_hypervisor(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

/// `state0`, `state1`, … below `directory`, in this order.
fn idle_states(directory: &Path) -> Vec<IdleState> {
    let of_state = |number: usize| {
        let state = directory.join(format!("state{number}"));
        Some(IdleState {
            name: line_of(&state.join("name"))?,
            exit_us: line_of(&state.join("latency"))?.parse().ok()?,
            is_disabled: line_of(&state.join("disable")).is_some_and(|text| text != "0"),
        })
    };
    (0..).map_while(of_state).collect()
}

fn clock_read_ns() -> f64 {
    let begun = Instant::now();
    let mut last = begun;
    for _ in 0..CLOCK_READS {
        last = std::hint::black_box(Instant::now());
    }
    (last - begun).as_secs_f64() * 1e9 / f64::from(CLOCK_READS)
}

fn line_of(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_states_are_read_in_order_and_a_machine_without_any_has_none() {
        let folder = tempfile::tempdir().unwrap();
        for (number, name, latency, disable) in
            [(0, "POLL", "0", "0"), (1, "C1", "2", "0"), (2, "C6", "133", "1")]
        {
            let state = folder.path().join(format!("state{number}"));
            fs::create_dir(&state).unwrap();
            for (file, text) in [("name", name), ("latency", latency), ("disable", disable)] {
                fs::write(state.join(file), format!("{text}\n")).unwrap();
            }
        }
        let states = idle_states(folder.path());
        let names: Vec<&str> = states.iter().map(|state| state.name.as_str()).collect();
        assert_eq!(names, ["POLL", "C1", "C6"]);
        assert_eq!((states[2].exit_us, states[2].is_disabled), (133, true));
        assert_eq!(idle_states(&folder.path().join("none")), []);
    }

    #[test]
    fn a_hypervisor_is_a_flag_of_its_own() {
        assert!(has_hypervisor("model name\t: x\nflags\t\t: fpu hypervisor lahf\n"));
        assert!(!has_hypervisor("model name\t: hypervisor\nflags\t\t: fpu no_hypervisor_x\n"));
        assert!(!has_hypervisor(""));
    }

    #[test]
    fn this_machine_has_a_clock_and_memory() {
        let here = machine("1");
        assert!(here.clock_read_ns > 0.0 && here.memory_bytes_allowed.is_some_and(|bytes| bytes > 1 << 20));
    }
}
