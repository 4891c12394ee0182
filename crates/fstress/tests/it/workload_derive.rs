//! Workloads derived from others: the paper's proxy model, skew, reads against writes, file sizes.

use files::OpKind;
use fstress::Workload;
use fstress::derive::{self, Ratio};

fn ratio(share: f64) -> Ratio {
    Ratio::new(share).unwrap()
}

/// Memory hit ratio 0.56 and disk hit ratio 0.21 are what table 2 itself implies: 18 getattr to 14 lookup, and
/// 6 reads in files of two reads to 14 lookup.
#[test]
fn the_proxy_model_gives_the_papers_table_row_within_1_2_points() {
    let base = Workload::builtin("web-proxy").unwrap();
    let derived = derive::web_proxy(&base, ratio(0.56), ratio(0.21)).unwrap();
    for op in OpKind::ALL {
        let (model, paper) = (derived.mix.share(op) * 100.0, base.mix.share(op) * 100.0);
        assert!((model - paper).abs() < 1.2, "{}: model {model:.2}%, paper {paper:.2}%", op.name());
    }
}

#[test]
fn a_proxy_that_always_hits_in_memory_only_checks_attributes() {
    let base = Workload::builtin("web-proxy").unwrap();
    let all_hits = derive::web_proxy(&base, ratio(1.0), ratio(0.5)).unwrap().mix;
    assert!(!all_hits.has(OpKind::Lookup) && !all_hits.has(OpKind::Write), "{all_hits:?}");
    let no_disk_miss = derive::web_proxy(&base, ratio(0.4), ratio(1.0)).unwrap().mix;
    assert!(no_disk_miss.has(OpKind::Read) && !no_disk_miss.has(OpKind::Create), "{no_disk_miss:?}");
    let fsstat = all_hits.share(OpKind::Fsstat);
    assert!((fsstat - base.mix.share(OpKind::Fsstat)).abs() < 1e-4, "others keep their share: {fsstat}");
    assert!(Ratio::new(1.1).is_err() && Ratio::new(f64::NAN).is_err() && "x".parse::<Ratio>().is_err());
}

#[test]
fn reads_for_each_write_come_out_as_asked_and_commits_follow_the_writes() {
    let base = Workload::builtin("p2p").unwrap();
    let derived = derive::reads_per_write(&base, 4.0).unwrap().mix;
    let share = |op| derived.share(op);
    assert!((share(OpKind::Read) / share(OpKind::Write) - 4.0).abs() < 1e-3);
    let commits_per_write = base.mix.share(OpKind::Commit) / base.mix.share(OpKind::Write);
    assert!((share(OpKind::Commit) / share(OpKind::Write) - commits_per_write).abs() < 1e-3);
    assert!(!derive::reads_per_write(&base, 0.0).unwrap().mix.has(OpKind::Read));
    assert!(derive::reads_per_write(&base, -1.0).is_err());
    assert!(derive::reads_per_write(&Workload::builtin("null").unwrap(), 1.0).is_err());
}

#[test]
fn skew_and_file_sizes_change_nothing_else() {
    let base = Workload::builtin("web-server").unwrap();
    let skewed = derive::skew(&base, 0.9).unwrap();
    assert_eq!(skewed.popularity.file.zipf_alpha(), Some(0.9));
    assert_eq!((&skewed.mix, &skewed.sizes), (&base.mix, &base.sizes));
    assert!(derive::skew(&base, 7.0).is_err());
    let large = derive::file_size_scale(&base, 10.0).unwrap();
    assert!((large.sizes.file.mean() / base.sizes.file.mean() - 10.0).abs() < 1e-6);
    assert_eq!((&large.mix, &large.popularity), (&base.mix, &base.popularity));
    assert!(derive::file_size_scale(&base, 0.0).is_err());
}

#[test]
fn every_derived_workload_can_be_written_out_and_read_back() {
    for name in Workload::builtin_names() {
        let base = Workload::builtin(name).unwrap();
        let derived = [
            derive::web_proxy(&base, ratio(0.4), ratio(0.5)),
            derive::skew(&base, 1.05),
            derive::reads_per_write(&base, 2.5),
            derive::file_size_scale(&base, 0.37),
        ];
        for derived in derived.into_iter().flatten() {
            let text = derived.to_toml();
            let again =
                Workload::from_toml(&text, "w.toml", None).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(again, derived, "{text}");
        }
    }
}
