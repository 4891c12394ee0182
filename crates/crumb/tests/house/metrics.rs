//! The metric reference of the guide is what the benchmarks declare: name, unit, meaning, and what is better.
//!
//! `UPDATE_GOLDENS=1 cargo test -p crumb --test house reference` rewrites it.

use std::fmt::Write as _;
use std::fs;

use crumb::declarations;
use measure::Better;

use super::root;

const PAGE: &str = "docs/guide/metrics.md";
const BEGIN: &str = "<!-- generated from the declarations: begin -->\n";
const END: &str = "<!-- generated from the declarations: end -->\n";

#[test]
fn the_metric_reference_is_what_the_benchmarks_declare() {
    let path = root().join(PAGE);
    let page = fs::read_to_string(&path).expect("the page of metrics");
    let (before, rest) = page.split_once(BEGIN).expect("where the reference begins");
    let (there, after) = rest.split_once(END).expect("where the reference ends");
    let wanted = reference();
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        fs::write(&path, [before, BEGIN, &wanted, END, after].concat()).expect("a page that can be written");
    } else {
        assert!(
            there == wanted,
            "{PAGE} differs from the declarations: UPDATE_GOLDENS=1 writes it\n{wanted}"
        );
    }
    assert!(wanted.matches("| `").count() > 80, "few metrics are declared:\n{wanted}");
}

fn reference() -> String {
    let mut text = String::new();
    for benchmark in declarations::NAMES {
        write!(text, "\n### {benchmark}\n\n| name | unit | meaning | better |\n|---|---|---|---|\n")
            .expect("a string takes it");
        for metric in declarations::of(benchmark) {
            let better = match metric.better {
                Better::Higher => "higher",
                Better::Lower => "lower",
                Better::Unknown => "",
            };
            let headline = if metric.headline { " (headline)" } else { "" };
            let (name, unit, title) = (metric.name, metric.unit, metric.title);
            writeln!(text, "| `{name}` | {unit} | {title}{headline} | {better} |")
                .expect("a string takes it");
        }
    }
    text.push('\n');
    text
}
