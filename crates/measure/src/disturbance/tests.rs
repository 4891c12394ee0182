use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// One second of one thread on two CPUs.
fn second(waited: f64, ours: f64, others: f64) -> MachineUse {
    MachineUse {
        wall: SECOND,
        threads_time: SECOND,
        waited: SECOND.mul_f64(waited),
        ours: SECOND.mul_f64(ours),
        others: SECOND.mul_f64(others),
        busy: SECOND.mul_f64(ours + others),
        named: vec![("sh".to_owned(), 4, SECOND.mul_f64(others))],
        ..MachineUse::default()
    }
}

fn finding(machine: &MachineUse) -> Option<String> {
    let mut verdict = Verdict::valid();
    machine.judge(&mut verdict);
    assert_eq!(verdict.valid, !verdict.has(MACHINE_DISTURBED));
    (!verdict.valid).then(|| verdict.to_string())
}

#[test]
fn busy_loops_beside_a_thread_that_computes_are_named_with_what_they_used() {
    let text = finding(&second(0.66, 0.33, 1.66)).unwrap();
    for part in ["waited 55% of their time", "used 166% of one CPU", "sh x4 166%"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn clients_of_one_run_that_wait_for_each_other_are_no_disturbance() {
    // Eight clients on two CPUs, and a daemon that uses a hundredth of one.
    let eight = MachineUse { threads_time: 8 * SECOND, ..second(6.0, 1.98, 0.02) };
    assert_eq!(finding(&eight), None);
    let beside_loops = MachineUse { threads_time: 8 * SECOND, ..second(6.6, 1.33, 0.66) };
    assert!(finding(&beside_loops).is_some(), "{beside_loops:?}");
}

#[test]
fn work_on_cpus_that_nobody_here_waits_for_is_no_disturbance() {
    assert_eq!(finding(&second(0.001, 0.9, 1.0)), None);
}

/// A thread that sleeps between requests wakes late on some machines, with all CPUs idle.
#[test]
fn slow_wake_ups_beside_a_daemon_are_no_disturbance() {
    assert_eq!(finding(&second(0.2, 0.02, 0.03)), None);
}

#[test]
fn one_stolen_tick_beside_a_thread_that_no_tick_saw_is_no_disturbance() {
    let tick = Duration::from_millis(10);
    let aliased = MachineUse { stolen: tick, busy: tick, ours: 2 * SECOND, ..second(0.0, 0.0, 0.0) };
    assert!((aliased.stolen_share() - 0.01 / 2.01).abs() < 1e-9, "{}", aliased.stolen_share());
    assert_eq!(finding(&aliased), None);
}

/// 500 requests a second on a quiet machine, as its kernel counted them: each woke a virtual CPU.
#[test]
fn wake_ups_that_are_counted_as_stolen_are_no_disturbance_and_more_is() {
    let tick = Duration::from_millis(10);
    let of_wake_ups = MachineUse { wall: 3 * SECOND / 2, stolen: 4 * tick, ..second(0.01, 0.15, 0.0) };
    assert!(of_wake_ups.stolen_share() > 0.2, "{}", of_wake_ups.stolen_share());
    assert_eq!(finding(&of_wake_ups), None);
    let beside_other_machines = MachineUse { stolen: 12 * tick, ..of_wake_ups };
    assert!(finding(&beside_other_machines).unwrap().contains("hypervisor gave"));
}

#[test]
fn stolen_and_throttled_time_disturb_whatever_other_processes_do() {
    let stolen = MachineUse { stolen: SECOND / 5, ..second(0.0, 0.8, 0.0) };
    assert!(finding(&stolen).unwrap().contains("hypervisor gave 20%"));
    let throttled = MachineUse { throttled: SECOND / 2, ..second(0.0, 0.5, 0.0) };
    assert!(finding(&throttled).unwrap().contains("quota stopped this process 50%"));
}

#[test]
fn of_a_time_too_short_for_the_kernel_s_clock_nothing_is_said() {
    let short = MachineUse { wall: Duration::from_millis(50), ..second(0.9, 0.1, 1.9) };
    assert_eq!(finding(&short), None);
}

#[test]
fn a_disturbed_stretch_of_a_long_run_is_named_though_the_rest_was_quiet() {
    let mut log = MachineLog::default();
    (1..=30).for_each(|pass| log.push(&format!("unbatch {pass}"), second(0.0, 0.9, 0.01)));
    let mut quiet = Verdict::valid();
    log.judge(&mut quiet);
    assert!(quiet.valid, "{quiet}");
    log.push("expire 7", second(0.5, 0.5, 1.5));
    let mut verdict = Verdict::valid();
    log.judge(&mut verdict);
    assert!(verdict.to_string().contains("disturbed in expire 7"), "{verdict}");
    let of_ranks = {
        let mut whole = MachineLog::default();
        whole.merge(log.clone());
        whole.merge(log.clone());
        whole
    };
    assert_eq!(of_ranks.metrics(), log.metrics(), "shares of two ranks that saw the same");
    assert!(MachineLog::default().metrics().is_empty());
}

#[test]
fn the_sum_of_all_cpus_is_read_without_idle_time() {
    let stat = "cpu  100 20 30 4000 50 6 7 80 9 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
    let counts = CpuCounts::of_stat(stat).unwrap();
    assert_eq!((counts.tasks, counts.busy, counts.stolen), (of_ticks(150), of_ticks(163), of_ticks(80)));
    assert_eq!(CpuCounts::of_stat("intr 1"), None);
}

/// Busy loops on the CPU of the thread that measures. Whether the kernel lets it wait is the kernel's to say: what is
/// asserted is that the finding follows the readings.
#[test]
fn busy_loops_on_the_cpu_of_a_measuring_thread_are_seen() {
    let cpu = rustix::thread::sched_getcpu();
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(cpu);
    // In a thread of its own: other tests are not to be pinned.
    let used = std::thread::spawn(move || {
        rustix::thread::sched_setaffinity(None, &cpus).unwrap();
        // They inherit the CPU, and are no children of this process, as the shell that started them has ended.
        let started = std::process::Command::new("sh")
            .args([
                "-c",
                "for n in 1 2; do timeout 5 sh -c 'while :; do :; done' >/dev/null 2>&1 & echo $!; done",
            ])
            .output()
            .unwrap();
        let loops: Vec<i32> =
            String::from_utf8(started.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect();
        let meter = MachineMeter::start(MeterScope::of_threads(1));
        let (begun, mut sum) = (Instant::now(), 0_u64);
        while begun.elapsed() < Duration::from_millis(500) {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        let used = meter.stop();
        for id in loops {
            let id = rustix::process::Pid::from_raw(id).unwrap();
            // One that has ended already is what is wanted.
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        used
    })
    .join()
    .unwrap();
    assert!(used.wall >= Duration::from_millis(500) && used.threads_time == used.wall);
    assert!(used.ours > Duration::ZERO && used.waited > Duration::ZERO, "{used:?}");
    let is_over = used.lost_to_others() > LOST_TO_OTHERS_MAX;
    assert_eq!(
        used.disturbance().is_some_and(|text| text.contains("for CPUs that other processes had")),
        is_over,
        "{used:?}"
    );
}
