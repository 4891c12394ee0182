use super::*;
use crate::{
    Basic, BasicOp, DirectoryFacts, Facts, MountFacts, NamesMax, PlaceFacts, SpaceFacts, UseFacts, WakeUp,
};

/// A quick disk on a quiet machine of four CPUs, with which nothing is wrong.
fn healthy() -> Facts {
    let mut facts = Facts::default();
    facts.machine.environment.cpus = 4;
    facts.machine.environment.memory_bytes = 16 << 30;
    facts.machine.memory_bytes_allowed = Some(16 << 30);
    facts.machine.clock_read_ns = 25.0;
    facts.target.place = "/mnt/disk".to_owned();
    facts.target.path = Some("/mnt/disk".into());
    facts.target.mount = Some(mount("ext4", "rw,noatime"));
    facts.target.space = Some(SpaceFacts {
        bytes_total: 1 << 40,
        bytes_free: 1 << 39,
        bytes_available: 1 << 39,
        inodes_total: 1 << 20,
        inodes_available: 1 << 19,
    });
    facts.target.new_directories_are_indexed = Some(true);
    facts.target.directory = Some(directory("/mnt/disk", 20, 4096));
    facts.places = vec![place("ext4", 5.0), place("tmpfs", 2.0)];
    facts.machine_use = Some(UseFacts::default());
    facts.wake_up = Some(WakeUp { median_us: 9.0, p99_us: 30.0, count: 200 });
    facts
}

fn mount(kind: &str, options: &str) -> MountFacts {
    MountFacts {
        point: "/mnt/disk".into(),
        source: "/dev/sdb1".to_owned(),
        kind: kind.to_owned(),
        options: options.split(',').map(str::to_owned).collect(),
    }
}

fn directory(path: &str, names: u64, own_bytes: u64) -> DirectoryFacts {
    DirectoryFacts {
        path: path.into(),
        own_bytes,
        block_bytes: 4096,
        names,
        is_counted: true,
        negative_lookup_us: Some(5.0),
        ..DirectoryFacts::default()
    }
}

fn place(kind: &str, us: f64) -> PlaceFacts {
    let basic = |op| Basic { op, median_us: us, worst_us: us, per_sec: 1e6 / us, operations: 100 };
    PlaceFacts {
        kind: kind.to_owned(),
        basics: BasicOp::ALL.into_iter().map(basic).collect(),
        ..PlaceFacts::default()
    }
}

fn set_us(facts: &mut Facts, op: BasicOp, us: f64) {
    facts.places[0].basics.iter_mut().filter(|basic| basic.op == op).for_each(|basic| basic.median_us = us);
}

/// The codes, the heaviest first.
fn codes(facts: &Facts) -> Vec<FindingCode> {
    findings(facts).into_iter().map(|finding| finding.code).collect()
}

fn changed(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = healthy();
    change(&mut facts);
    facts
}

#[test]
fn a_quick_disk_on_a_quiet_machine_has_no_finding() {
    assert_eq!(codes(&healthy()), []);
    assert_eq!(codes(&Facts::default()), []);
}

#[test]
fn two_milliseconds_for_each_operation_on_names_come_first_also_through_a_program() {
    let facts = changed(|facts| {
        facts.target.mount = Some(mount("fuse.slow", "rw,nosuid"));
        facts.places[0] = place("fuse.slow", 2_100.0);
    });
    assert_eq!(codes(&facts), [FindingCode::SlowMetadata, FindingCode::Fuse]);
    let text = &findings(&facts)[0].text;
    assert!(text.contains("2.10 ms") && text.contains("in memory 2.00 µs"), "{text}");
}

#[test]
fn a_machine_on_which_memory_is_as_slow_has_no_slow_storage() {
    let facts = changed(|facts| facts.places = vec![place("ext4", 900.0), place("tmpfs", 400.0)]);
    assert_eq!(codes(&facts), []);
}

#[test]
fn a_full_file_system_comes_before_all_else_and_reserved_blocks_count_as_gone() {
    let full = |facts: &mut Facts| {
        facts.target.mount = Some(mount("tmpfs", "rw"));
        facts.target.space = Some(SpaceFacts {
            bytes_total: 1000,
            bytes_free: 50,
            bytes_available: 5,
            ..SpaceFacts::default()
        });
    };
    assert_eq!(codes(&changed(full)), [FindingCode::BytesNearlyGone, FindingCode::Volatile]);
    let inodes = changed(|facts| facts.target.space.as_mut().unwrap().inodes_available = 10_000);
    assert_eq!(codes(&inodes), [FindingCode::InodesNearlyGone]);
    assert!(
        findings(&inodes)[0].text.contains("99.0% are in use, 10,000 are left"),
        "{:?}",
        findings(&inodes)
    );
    let image = changed(|facts| {
        full(facts);
        facts.target.mount = Some(mount("squashfs", "ro"));
    });
    assert_eq!(codes(&image), [FindingCode::ReadOnly], "an image is full by nature");
}

#[test]
fn a_large_directory_without_an_index_is_linear_and_one_without_names_might_be() {
    let large = |is_indexed| DirectoryFacts {
        is_indexed,
        negative_lookup_us: Some(220.0),
        ..directory("/mnt/disk/spool", 100_000, 2_400_000)
    };
    let linear = changed(|facts| facts.target.largest = Some(large(Some(false))));
    assert_eq!(codes(&linear), [FindingCode::LinearDirectories]);
    let found = &findings(&linear)[0];
    assert!(found.weight >= 70 && found.text.contains("100,000 names"), "{found:?}");
    assert!(found.text.contains("costs 0.220 ms there, 5.00 µs"), "{found:?}");
    // Where no flag says it, the cost does.
    let unknown = changed(|facts| facts.target.largest = Some(large(None)));
    assert_eq!(codes(&unknown), [FindingCode::LargeDirectory]);
    let small = changed(|facts| facts.target.new_directories_are_indexed = Some(false));
    assert_eq!(codes(&small), [FindingCode::LinearDirectories]);
    assert!(findings(&small)[0].weight < 70);
    let indexed = changed(|facts| {
        facts.target.largest = Some(DirectoryFacts { negative_lookup_us: Some(9.0), ..large(Some(true)) });
    });
    assert_eq!(codes(&indexed), []);
    // Of a few blocks, made in advance.
    let empty = changed(|facts| {
        let made = directory("/mnt/disk/prepared", 0, 16_384);
        facts.target.largest = Some(DirectoryFacts { is_indexed: Some(false), is_counted: true, ..made });
    });
    assert_eq!(codes(&empty), []);
}

/// Symptom: a managed directory of one subdirectory was a linear directory with one name, to be managed.
#[test]
fn a_managed_directory_is_not_judged_by_its_subdirectories() {
    for own_bytes in [16_384, 4 << 20] {
        let managed = DirectoryFacts {
            is_indexed: Some(false),
            negative_lookup_us: Some(220.0),
            managed: Some("345".to_owned()),
            ..directory("/mnt/disk/spool", 1, own_bytes)
        };
        let facts = changed(|facts| facts.target.largest = Some(managed));
        assert_eq!(codes(&facts), []);
        assert_eq!(
            facts.largest().map(|largest| &*largest.path),
            facts.target.directory.as_ref().map(|d| &*d.path)
        );
    }
}

#[test]
fn a_directory_whose_blocks_outlived_its_names_is_named() {
    let facts = changed(|facts| facts.target.directory = Some(directory("/mnt/disk", 20, 4 << 20)));
    assert_eq!(codes(&facts), [FindingCode::ShrunkDirectory]);
}

#[test]
fn a_directory_near_the_end_of_its_index_comes_first_and_one_half_way_is_a_warning() {
    let names = |names| {
        changed(|facts| {
            let names_max = Some(NamesMax { low: 250_000, high: 280_000 });
            let largest = DirectoryFacts { names_max, ..directory("/mnt/disk/spool", names, 9 << 20) };
            facts.target.largest =
                Some(DirectoryFacts { is_indexed: Some(true), negative_lookup_us: Some(8.0), ..largest });
        })
    };
    let full = findings(&names(230_000));
    assert_eq!(full[0].code, FindingCode::DirectoryNearlyFull);
    assert!(full[0].weight >= 90 && full[0].text.contains("at 250,000 to 280,000"), "{:?}", full[0]);
    let half = findings(&names(130_000));
    assert_eq!((half[0].code, half[0].weight < 70), (FindingCode::DirectoryNearlyFull, true));
    assert_eq!(codes(&names(120_000)), []);
}

#[test]
fn half_a_cpu_comes_before_what_follows_from_it_and_a_wide_quota_is_a_note() {
    let half = changed(|facts| {
        facts.machine.cpu_quota = Some(0.5);
        facts.machine_use = Some(UseFacts { throttled: 0.48, lost_to_others: 0.2, ..UseFacts::default() });
        set_us(facts, BasicOp::Stat, 700.0);
    });
    assert_eq!(codes(&half)[0], FindingCode::CpuQuota);
    let text = &findings(&half)[0].text;
    assert!(text.contains("0.50 CPUs of 4") && text.contains("48% of the time"), "{text}");
    let wide = changed(|facts| facts.machine.cpu_quota = Some(3.0));
    assert!(findings(&wide)[0].weight < 40);
    assert_eq!(codes(&changed(|facts| facts.machine.cpu_quota = Some(4.0))), []);
}

#[test]
fn memory_is_volatile_and_a_full_one_is_full_first() {
    let facts = changed(|facts| facts.target.mount = Some(mount("tmpfs", "rw,relatime")));
    assert_eq!(codes(&facts), [FindingCode::Volatile]);
}

#[test]
fn what_cannot_be_written_is_said_with_the_reason() {
    let facts = changed(|facts| facts.target.unwritable = Some("permission denied".to_owned()));
    assert_eq!(codes(&facts), [FindingCode::Unwritable]);
    assert!(findings(&facts)[0].text.contains("permission denied"));
}

/// Symptom: on a full disk the page advised to run it as a user who may write.
#[test]
fn the_advice_where_nothing_can_be_made_is_by_what_refused_it() {
    let advice = |status: &str| {
        let facts = changed(|facts| {
            facts.target.unwritable = Some("as the storage says".to_owned());
            facts.target.unwritable_status = Some(status.to_owned());
        });
        findings(&facts)[0].advice.clone()
    };
    assert!(advice("NFS3ERR_NOSPC").contains("free some bytes or inodes"));
    assert!(advice("NFS3ERR_DQUOT").contains("quota") && advice("NFS3ERR_ROFS").contains("read-only"));
    for (status, is_of_rights) in [("NFS3ERR_ACCES", true), ("NFS3ERR_NOSPC", false), ("NFS3ERR_IO", false)] {
        assert_eq!(advice(status).contains("as a user who may write"), is_of_rights, "{status}");
    }
}

#[test]
fn options_of_the_mount_are_named_by_what_they_do() {
    let of =
        |kind: &str, options: &str| codes(&changed(|facts| facts.target.mount = Some(mount(kind, options))));
    assert_eq!(of("ext4", "rw,noatime,sync"), [FindingCode::SynchronousMount]);
    assert_eq!(of("ext4", "rw,noatime,dirsync"), [FindingCode::SynchronousMount]);
    assert_eq!(of("ext4", "rw,noatime,nobarrier"), [FindingCode::NoBarriers]);
    assert_eq!(of("ext4", "rw,relatime"), [FindingCode::AccessTimes]);
    assert_eq!(of("ext4", "rw"), [FindingCode::StrictAccessTimes]);
    assert_eq!(
        of("ext4", "rw,noatime,discard,usrjquota=aquota.user"),
        [FindingCode::DiscardAtDelete, FindingCode::Quotas]
    );
    assert_eq!(of("ext4", "rw,noatime,noquota"), []);
    assert_eq!(of("nfs4", "rw,relatime,vers=4.2"), [FindingCode::NetworkFileSystem]);
    assert_eq!(of("overlay", "rw,noatime"), [FindingCode::Overlay]);
}

#[test]
fn sleepy_busy_and_stolen_machines_are_named() {
    let sleepy = changed(|facts| facts.wake_up = Some(WakeUp { median_us: 83.0, p99_us: 240.0, count: 200 }));
    assert_eq!(codes(&sleepy), [FindingCode::SlowWakeUps]);
    assert!(findings(&sleepy)[0].text.contains("83.0 µs"), "{:?}", findings(&sleepy));
    let shares = |stolen, lost_to_others| {
        let machine_use = UseFacts { stolen, lost_to_others, others_cpus: 1.5, ..UseFacts::default() };
        codes(&changed(|facts| facts.machine_use = Some(machine_use)))
    };
    assert_eq!(shares(0.12, 0.0), [FindingCode::StolenTime]);
    assert_eq!(shares(0.0, 0.3), [FindingCode::BusyMachine]);
    assert_eq!(shares(0.01, 0.01), []);
    let clock = changed(|facts| facts.machine.clock_read_ns = 900.0);
    assert_eq!(codes(&clock), [FindingCode::SlowClock]);
    let governed = |governor: &str, driver: &str| {
        codes(&changed(|facts| {
            facts.machine.environment.cpu_governor = Some(governor.to_owned());
            facts.machine.frequency_driver = Some(driver.to_owned());
        }))
    };
    assert_eq!(governed("ondemand", "acpi-cpufreq"), [FindingCode::SlowGovernor]);
    assert_eq!(governed("powersave", "intel_pstate"), []);
}

#[test]
fn a_disk_that_turns_for_each_fsync_is_named() {
    let facts = changed(|facts| set_us(facts, BasicOp::Fsync, 28_000.0));
    assert_eq!(codes(&facts), [FindingCode::SlowFsync]);
    assert!(findings(&facts)[0].text.contains("28.0 ms: 36 a second"), "{:?}", findings(&facts));
}

#[test]
fn a_share_is_never_all_or_nothing_by_rounding() {
    assert_eq!([0.9999, 1.0, 0.5, 0.001, 0.991].map(percent_text), ["99.9%", "100%", "50%", "0.1%", "99.1%"]);
}
