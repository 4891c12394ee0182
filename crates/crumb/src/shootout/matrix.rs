//! A shootout of chosen parameters, from a TOML file: `--matrix FILE`.
//!
//! ```text
//! [[run]]                                one run, or with lists one for each combination
//! benchmark = "postmark"                 a verb of `crumb run`
//! name = "small files"                   optional; what differs within the list is added
//! number = [1000, 10000]                 any flag of that verb, without its dashes
//! size = ["1KiB", "16KiB"]
//! unbuffered = true                      a flag without a value
//! ```
//!
//! Always holds: each flag is checked by the benchmark's own verb; what would make several runs of one, or write files of its own,
//! is refused.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use toml::{Table, Value};

use super::row::Row;
use crate::exit::BadUsage;
use crate::verbs::run::cell::BENCHMARKS;

/// Flags of the benchmarks that are the shootout's own, or of one run alone.
const REFUSED: [&str; 15] = [
    "vs",
    "repeat",
    "until-ci",
    "time-limit",
    "label",
    "json",
    "report",
    "dry-run",
    "no-store",
    "keep",
    "reuse",
    "resume",
    "raw",
    "store",
    "history",
];
/// Whether a run of a matrix may have this flag.
pub fn takes(flag: &str) -> bool {
    !REFUSED.contains(&flag)
}

/// A mistyped list should not measure for a week.
const RUNS_MAX: usize = 200;

/// The workloads of `file`.
///
/// # Errors
/// When it cannot be read, or asks for what is not there.
pub fn read(file: &Path, seed: u32) -> anyhow::Result<Vec<Row>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    parse(&text, seed)
        .map_err(|wrong| wrong.context(BadUsage))
        .with_context(|| format!("--matrix {}", file.display()))
}

fn parse(text: &str, seed: u32) -> anyhow::Result<Vec<Row>> {
    let whole: Table =
        text.parse().map_err(|wrong: toml::de::Error| anyhow!("{}", wrong.to_string().trim_end()))?;
    if let Some(other) = whole.keys().find(|key| *key != "run") {
        bail!("{other}: expected nothing but [[run]] entries, each with a benchmark and its flags");
    }
    let Some(Value::Array(entries)) = whole.get("run") else {
        bail!("no [[run]] entry; each has a benchmark and its flags");
    };
    let mut rows: Vec<Row> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let of_entry = entry.as_table().context("a run is a table").and_then(|entry| rows_of(entry, seed));
        rows.extend(of_entry.with_context(|| format!("[[run]] number {}", at + 1))?);
        if rows.len() > RUNS_MAX {
            bail!("more than {RUNS_MAX} runs; ask for fewer combinations");
        }
    }
    for (at, row) in rows.iter().enumerate() {
        if rows[..at].iter().any(|before| before.name == row.name) {
            bail!("two runs are called {}; give each a name", row.name);
        }
    }
    Ok(rows)
}

/// All combinations of one entry.
fn rows_of(entry: &Table, seed: u32) -> anyhow::Result<Vec<Row>> {
    let text = |key: &str| {
        entry.get(key).map(|value| value.as_str().with_context(|| format!("{key}: expected a text")))
    };
    let benchmark = text("benchmark").context("no benchmark is named")??;
    if !BENCHMARKS.contains(&benchmark) {
        bail!("no benchmark of storage is called {benchmark}; there are {}", BENCHMARKS.join(", "));
    }
    let name = text("name").transpose()?;
    let settings: Vec<(&String, &Value)> =
        entry.iter().filter(|(key, _)| !["benchmark", "name"].contains(&key.as_str())).collect();
    // What differs, and the flags, of each combination so far.
    let mut combined = vec![(Vec::new(), Vec::new())];
    for (key, value) in settings {
        let key = key.replace('_', "-");
        if REFUSED.contains(&key.as_str()) {
            bail!("{key}: this flag is not for runs of a shootout; leave it out");
        }
        let values = match value {
            Value::Array(several) if several.is_empty() => bail!("{key}: an empty list"),
            Value::Array(several) => several.as_slice(),
            one => std::slice::from_ref(one),
        };
        // Before they are made: lists of lists soon do not fit in memory.
        if combined.len().saturating_mul(values.len()) > RUNS_MAX {
            bail!("more than {RUNS_MAX} runs; ask for fewer combinations");
        }
        let mut next = Vec::new();
        for (differs, flags) in &combined {
            for value in values {
                let (mut differs, mut flags): (Vec<String>, Vec<String>) =
                    (Vec::clone(differs), Vec::clone(flags));
                let given = flag(&key, value)?;
                if values.len() > 1 {
                    differs.push(format!("{key} {}", given.last().map_or("off", String::as_str)));
                }
                flags.extend(given);
                next.push((differs, flags));
            }
        }
        combined = next;
    }
    let row = |(differs, mut flags): (Vec<String>, Vec<String>)| {
        if !flags.iter().any(|flag| flag == "--seed") {
            flags.extend(["--seed".to_owned(), seed.to_string()]);
        }
        let first = name.unwrap_or(benchmark);
        let differs = differs.join(", ");
        let name = if differs.is_empty() { first.to_owned() } else { format!("{first}: {differs}") };
        Row { name, words: String::new(), about: String::new(), benchmark: benchmark.to_owned(), flags }
    };
    Ok(combined.into_iter().map(row).collect())
}

/// A setting as words of a command line.
fn flag(key: &str, value: &Value) -> anyhow::Result<Vec<String>> {
    let text = match value {
        Value::Boolean(true) => return Ok(vec![format!("--{key}")]),
        Value::Boolean(false) => return Ok(vec![]),
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        _ => bail!("{key}: expected a text, a number, true, false or a list of them"),
    };
    Ok(vec![format!("--{key}"), text])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_make_a_run_for_each_combination_named_by_what_differs() {
        let rows = parse(
            "[[run]]\nbenchmark = \"postmark\"\nname = \"mail\"\nnumber = [100, 200]\nsize = [\"1KiB\", \"2KiB\"]\nunbuffered = true\n",
            7,
        )
        .unwrap();
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "mail: number 100, size 1KiB",
                "mail: number 100, size 2KiB",
                "mail: number 200, size 1KiB",
                "mail: number 200, size 2KiB"
            ]
        );
        assert_eq!(rows[1].flags, ["--number", "100", "--size", "2KiB", "--unbuffered", "--seed", "7"]);
    }

    #[test]
    fn what_is_no_run_is_refused_with_its_place() {
        let wrong = |text: &str| format!("{:#}", parse(text, 1).unwrap_err());
        assert!(wrong("").contains("no [[run]] entry"));
        assert!(wrong("rounds = 3\n[[run]]\nbenchmark = \"postmark\"").contains("rounds"));
        assert!(wrong("[[run]]\nbenchmark = \"postmark\"\n[[run]]\nbenchmark = \"x\"").contains("number 2"));
        assert!(wrong("[[run]]\nbenchmark = \"postmark\"\nvs = \"/a\"").contains("leave it out"));
        assert!(
            wrong("[[run]]\nbenchmark = \"postmark\"\n[[run]]\nbenchmark = \"postmark\"")
                .contains("two runs")
        );
        assert!(wrong("[[run]\n").contains("run"));
        let many = format!("{:?}", (0..199).collect::<Vec<_>>());
        let product = ["number", "transactions", "seed", "read-size"].map(|key| format!("{key} = {many}\n"));
        assert!(
            wrong(&format!("[[run]]\nbenchmark = \"postmark\"\n{}", product.concat()))
                .contains("more than 200")
        );
    }
}
