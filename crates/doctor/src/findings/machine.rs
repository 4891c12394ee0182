//! Findings on the machine.

use measure::numbers::bytes_text;

use super::{Finding, FindingCode, percent_text, us_text};
use crate::Facts;

/// Shares of time above which a machine counts as disturbed.
const STOLEN_MAX: f64 = 0.05;
const THROTTLED_MAX: f64 = 0.02;
const LOST_MAX: f64 = 0.05;
/// A CPU that is awake wakes a thread in a few microseconds.
const SLOW_WAKE_UP_US: f64 = 50.0;
const VERY_SLOW_WAKE_UP_US: f64 = 150.0;
/// A clock that is read in user mode takes 20 to 50.
const SLOW_CLOCK_NS: f64 = 300.0;
const SMALL_MEMORY_BYTES: u64 = 1 << 30;

pub fn add(facts: &Facts, found: &mut Vec<Finding>) {
    found.extend(cpu_quota(facts));
    found.extend(memory_limit(facts));
    found.extend(stolen(facts));
    found.extend(busy(facts));
    found.extend(wake_ups(facts));
    found.extend(clock(facts));
    found.extend(governor(facts));
}

fn cpu_quota(facts: &Facts) -> Option<Finding> {
    let quota = facts.machine.cpu_quota?;
    let throttled = facts.machine_use.as_ref().map_or(0.0, |machine| machine.throttled);
    let cpus = facts.machine.environment.cpus;
    if quota >= f64::from(cpus) && throttled < THROTTLED_MAX {
        return None;
    }
    let stopped = if throttled >= THROTTLED_MAX {
        format!("; it was stopped {} of the time while this page was measured", percent_text(throttled))
    } else {
        String::new()
    };
    let text = format!("a control group allows {quota:.2} CPUs of {cpus}{stopped}");
    let advice = "a program that used up its share stands still for the rest of each period (100 ms): its slowest requests \
                  wait that long; raise the quota (cpu.max, --cpus of a container) before latencies are measured";
    let is_tight = quota <= 1.0 || throttled >= 0.2;
    Some(Finding::new(FindingCode::CpuQuota, if is_tight { 84 } else { 34 }, text, advice))
}

fn memory_limit(facts: &Facts) -> Option<Finding> {
    let machine = &facts.machine;
    let allowed = machine.memory_bytes_allowed?;
    if allowed >= SMALL_MEMORY_BYTES || allowed >= machine.environment.memory_bytes {
        return None;
    }
    let text = format!(
        "a control group allows {} of memory, page cache included; the machine has {}",
        bytes_text(allowed),
        bytes_text(machine.environment.memory_bytes)
    );
    let advice =
        "what does not fit is read again from the disk; raise memory.max where files are read more than once";
    Some(Finding::new(FindingCode::MemoryLimit, 26, text, advice))
}

fn stolen(facts: &Facts) -> Option<Finding> {
    let stolen = facts.machine_use.as_ref()?.stolen;
    let text = format!("the hypervisor kept {} of the CPU time that was asked for", percent_text(stolen));
    let advice = "other machines on this host use it (steal): latencies here vary with their load";
    (stolen > STOLEN_MAX).then(|| Finding::new(FindingCode::StolenTime, 64, text, advice))
}

fn busy(facts: &Facts) -> Option<Finding> {
    let machine = facts.machine_use.as_ref()?;
    if machine.lost_to_others <= LOST_MAX {
        return None;
    }
    let programs = if machine.programs.is_empty() {
        String::new()
    } else {
        format!(": {}", machine.programs.join(", "))
    };
    let text = format!(
        "these measurements waited {} of their time for a CPU that other programs used{programs}",
        percent_text(machine.lost_to_others)
    );
    Some(Finding::new(
        FindingCode::BusyMachine,
        54,
        text,
        "rates on this page are too low; stop those programs and run it again",
    ))
}

fn wake_ups(facts: &Facts) -> Option<Finding> {
    let cost = facts.wake_up.filter(|cost| cost.median_us > SLOW_WAKE_UP_US)?;
    let why = if facts.machine.idle_states.is_empty() {
        "CPUs sleep, and the hypervisor wakes them"
    } else {
        "CPUs sleep deeply"
    };
    let text = format!("a wake-up costs {} (p99 {}): {why}", us_text(cost.median_us), us_text(cost.p99_us));
    let advice = "programs that wait for each other at every request pay it, FUSE file systems and proxies twice; crumb mount \
                  --awake and /dev/cpu_dma_latency keep CPUs awake";
    let weight = if cost.median_us > VERY_SLOW_WAKE_UP_US { 44 } else { 32 };
    Some(Finding::new(FindingCode::SlowWakeUps, weight, text, advice))
}

fn clock(facts: &Facts) -> Option<Finding> {
    let machine = &facts.machine;
    let source = machine.environment.clock_source.as_deref().unwrap_or("unknown");
    let text = format!("reading the clock takes {:.0} ns (clock source {source})", machine.clock_read_ns);
    let advice = "programs that take times, and all benchmarks, pay it at each request; tsc or a paravirtual clock is read \
                  without a system call";
    (machine.clock_read_ns > SLOW_CLOCK_NS).then(|| Finding::new(FindingCode::SlowClock, 40, text, advice))
}

/// With these drivers the processor chooses its frequency itself, and `powersave` is the normal governor.
const OWN_CHOICE: [&str; 3] = ["intel_pstate", "amd-pstate-epp", "amd_pstate_epp"];

fn governor(facts: &Facts) -> Option<Finding> {
    let machine = &facts.machine;
    let governor = machine.environment.cpu_governor.as_deref()?;
    let chooses = machine.frequency_driver.as_deref().is_some_and(|driver| OWN_CHOICE.contains(&driver));
    if !matches!(governor, "powersave" | "conservative" | "ondemand") || chooses {
        return None;
    }
    let text = format!("the frequency governor is `{governor}`: a CPU with little work runs slowly");
    let advice =
        "figures of light load are slower than of heavy load; use `performance` where they are compared";
    Some(Finding::new(FindingCode::SlowGovernor, 16, text, advice))
}
