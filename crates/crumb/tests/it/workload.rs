//! `crumb workload`: listed, shown, and turned into others.

use crate::binary::{Bench, assert_fits};

const NAMES: [&str; 8] = ["sfs97", "web-server", "web-proxy", "database", "p2p", "mail", "news", "null"];

#[test]
fn the_list_has_every_workload_with_its_main_operations() {
    let list = Bench::new().fine(&["workload", "list"]);
    assert_fits(&list);
    for name in NAMES {
        assert!(list.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}\n{list}");
    }
    assert!(list.contains("null 100%"), "{list}");
}

#[test]
fn a_built_in_file_is_shown_with_its_comments_and_is_a_workload_file() {
    let bench = Bench::new();
    for name in NAMES {
        let text = bench.fine(&["workload", "show", name]);
        assert!(text.contains("\n# "), "{name}");
        bench.write("own.toml", &text);
        let own = bench.fine(&["workload", "show", "own.toml", "--mix"]);
        assert_eq!(own, bench.fine(&["workload", "show", name, "--mix"]));
    }
}

#[test]
fn the_mix_is_normalised_and_sums_to_100() {
    let mix = Bench::new().fine(&["workload", "show", "web-proxy", "--mix"]);
    let shares =
        mix.lines().skip(2).map(|line| line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap());
    let shares: Vec<f64> = shares.collect();
    assert!((shares.iter().sum::<f64>() - 100.0).abs() < 0.05 && shares.is_sorted_by(|a, b| a >= b), "{mix}");
}

#[test]
fn a_derived_workload_is_written_and_read_back() {
    let bench = Bench::new();
    let knobs = ["workload", "derive", "web-proxy", "--memory-hit", "0.4", "--disk-hit", "0.5"];
    let text = bench.fine(&knobs);
    assert!(text.contains("name = \"web-proxy-m0.4-d0.5\""), "{text}");
    let said = bench.crumb(&[&knobs[..], &["--name", "ours", "-o", "ours.toml"]].concat());
    assert!(
        said.code == 0 && said.out.is_empty() && said.err.contains("ours.toml"),
        "{}{}",
        said.out,
        said.err
    );
    assert!(bench.read("ours.toml").contains("name = \"ours\""));
    bench.write("plain.toml", &text);
    let mix = |file| bench.fine(&["workload", "show", file, "--mix"]);
    assert_eq!(mix("ours.toml"), mix("plain.toml"));
    let knobs =
        ["workload", "derive", "ours.toml", "--skew", "0.6", "--read-write", "9:1", "--size-scale", "2"];
    let again = bench.fine(&knobs);
    assert!(
        again.contains("file = \"zipf 0.6\"") && again.contains("name = \"ours-rw9-alpha0.6-size2\""),
        "{again}"
    );
}

#[test]
fn an_unknown_name_is_bad_usage_and_the_one_meant_is_suggested() {
    let error = Bench::new().fails(2, &["workload", "show", "web-sever"]);
    assert!(error.contains("did you mean `web-server`?") && error.contains("p2p"), "{error}");
}

#[test]
fn a_mistake_in_a_file_is_told_with_its_line() {
    let bench = Bench::new();
    let text = bench.fine(&["workload", "show", "mail"]).replace("[sizes]", "[sizs]");
    let line = text.lines().position(|line| line == "[sizs]").unwrap() + 1;
    bench.write("bad.toml", &text);
    let error = bench.fails(1, &["workload", "show", "bad.toml"]);
    assert!(error.contains(&format!("bad.toml, line {line}")) && error.contains("sizes"), "{error}");
    assert!(bench.fails(1, &["workload", "show", "missing.toml"]).contains("missing.toml"));
}

#[test]
fn knobs_that_make_no_sense_are_bad_usage() {
    let bench = Bench::new();
    let derive = |flags: &[&str]| bench.fails(2, &[&["workload", "derive"], flags].concat());
    assert!(derive(&[]).contains("Usage: crumb workload derive"));
    assert!(derive(&["web-proxy"]).contains("--memory-hit"), "nothing to turn");
    assert!(derive(&["web-proxy", "--memory-hit", "0.4"]).contains("--disk-hit"));
    assert!(derive(&["web-proxy", "--memory-hit", "1.4", "--disk-hit", "0.5"]).contains("0 to 1"));
    assert!(derive(&["mail", "--skew", "7"]).contains('7'));
    assert!(derive(&["mail", "--size-scale", "0"]).contains("above 0"));
    for wrong in ["1:0", "x", "3:", "-1"] {
        assert!(derive(&["mail", &format!("--read-write={wrong}")]).contains("9:1"), "{wrong}");
    }
}
