//! The eight workloads that come with Crumb: complete, as the paper has them, and of a bearable size.

use files::OpKind;
use fstress::{ReadAccess, SetattrUse, Workload, WriteAccess};

const NAMES: [&str; 8] = ["sfs97", "web-server", "web-proxy", "database", "p2p", "mail", "news", "null"];

#[test]
fn all_eight_parse_and_carry_their_own_name() {
    assert_eq!(Workload::builtin_names(), NAMES);
    for name in NAMES {
        let workload = Workload::builtin(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(workload.name, name);
        assert!(!workload.about.is_empty());
    }
}

#[test]
fn every_mix_is_the_papers_table_2_by_row_and_sum() {
    let rows: [(OpKind, [f64; 7]); 15] = [
        (OpKind::Lookup, [27., 14., 14., 0., 1., 27., 1.]),
        (OpKind::Read, [18., 28., 6., 61., 54., 14., 22.]),
        (OpKind::Write, [9., 0., 23., 31., 35., 24., 64.]),
        (OpKind::Getattr, [11., 55., 18., 3., 1., 3., 0.]),
        (OpKind::Readlink, [7., 0., 0., 0., 0., 0., 0.]),
        (OpKind::Readdir, [2., 1., 1., 0., 0., 0., 1.]),
        (OpKind::Create, [1., 0., 11., 0., 1., 0., 1.]),
        (OpKind::Remove, [1., 0., 11., 0., 1., 0., 1.]),
        (OpKind::Mkdir, [0.; 7]),
        (OpKind::Rmdir, [0.; 7]),
        (OpKind::Fsstat, [1., 1., 1., 0., 1., 1., 1.]),
        (OpKind::Setattr, [1., 0., 0., 0., 0., 4., 0.]),
        (OpKind::Readdirplus, [9., 0., 0., 0., 0., 0., 0.]),
        (OpKind::Access, [7., 1., 4., 1., 1., 3., 1.]),
        (OpKind::Commit, [5., 0., 12., 4., 5., 24., 8.]),
    ];
    for (column, name) in NAMES[..7].iter().enumerate() {
        let mix = Workload::builtin(name).unwrap().mix;
        assert_eq!(mix.as_written().len(), rows.len(), "{name}");
        for (op, shares) in &rows {
            let written = mix.as_written().iter().find(|(known, _)| known == op).unwrap().1;
            assert_eq!(written, shares[column], "{name}: {}", op.name());
        }
        let total: f64 = rows.iter().map(|(_, shares)| shares[column]).sum();
        assert_eq!(mix.total_as_written(), total, "{name}");
        let comment = format!("column sums to {total}");
        assert!(Workload::builtin_toml(name).unwrap().contains(&comment), "{name} should say: {comment}");
    }
}

#[test]
fn file_sizes_and_access_are_the_papers_table_1() {
    let mean = |name| Workload::builtin(name).unwrap().sizes.file.mean();
    for (name, bytes) in [
        ("web-server", 10_500.0),
        ("web-proxy", 10_500.0),
        ("p2p", 3.7e6),
        ("mail", 4_700.0),
        ("news", 25_000.0),
    ] {
        assert!((mean(name) / bytes - 1.0).abs() < 0.002, "{name}: {}", mean(name));
    }
    let mail = Workload::builtin("mail").unwrap();
    assert_eq!((mail.access.read, mail.access.write), (ReadAccess::Sequential, WriteAccess::Append));
    assert_eq!(mail.access.setattr, SetattrUse::Truncate);
    assert_eq!(mail.popularity.file.zipf_alpha(), Some(1.3));
    let database = Workload::builtin("database").unwrap();
    assert_eq!((database.access.read, database.access.write), (ReadAccess::Random, WriteAccess::Random));
}

#[test]
fn every_file_set_for_8000_requests_a_second_fits_in_1300_megabytes() {
    for name in NAMES {
        let workload = Workload::builtin(name).unwrap();
        let bytes = workload.bytes_expected(workload.scale.files_at(8000.0));
        assert!(bytes <= 1.3e9, "{name}: {bytes} bytes");
        let popular_enough = name == "null" || bytes >= 0.09e9;
        assert!(popular_enough, "{name}: {bytes} bytes is less than any cache");
    }
}

#[test]
fn no_news_group_draws_more_than_two_and_a_half_percent() {
    use rand::SeedableRng;
    let workload = Workload::builtin("news").unwrap();
    for seed in 0..50 {
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        let n = workload.scale.files_min;
        let weights: Vec<_> =
            (0..n).map(|_| u64::from(workload.popularity.file.sample_weight(n, &mut rng))).collect();
        let share = *weights.iter().max().unwrap() as f64 / weights.iter().sum::<u64>() as f64;
        assert!(share < 0.01, "seed {seed}: {share}");
    }
}

#[test]
fn what_is_written_out_reads_back_to_the_same_workload() {
    for name in NAMES {
        let workload = Workload::builtin(name).unwrap();
        let text = workload.to_toml();
        let again = Workload::from_toml(&text, "written.toml", None)
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(again, workload, "{text}");
    }
}
