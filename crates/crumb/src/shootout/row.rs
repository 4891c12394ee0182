//! The workloads of a shootout: each a benchmark with flags, as its own verb takes them.
//!
//! Always holds: the same flags on every target; each flag is one that `crumb run BENCHMARK` has, so that the command of a cell can
//! be typed.

use anyhow::anyhow;
use fstress::Workload;

use crate::exit::BadUsage;

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Short, and no other row has it.
    pub name: String,
    /// Which programs work so, in a few words; nothing for a run of a matrix.
    pub words: String,
    /// What it is, in one line.
    pub about: String,
    /// The benchmark.
    pub benchmark: String,
    /// Its flags, without a target.
    pub flags: Vec<String>,
}

/// How much each run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A few seconds each.
    Quick,
    /// Up to some minutes each.
    Full,
}

/// Of fstress: it measures the generator, not storage.
const NO_STORAGE: &str = "null";

/// Every workload of storage.
///
/// # Errors
/// When a built-in workload cannot be read.
pub fn all(extent: Extent, seed: u32) -> anyhow::Result<Vec<Row>> {
    let row = |name: &str, words: &str, about: &str, quick: &str, full: &str| {
        let flags = if extent == Extent::Quick { quick } else { full };
        let mut flags: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
        flags.extend(["--seed".to_owned(), seed.to_string()]);
        let (name, words, about) = (name.to_owned(), words.to_owned(), about.to_owned());
        Row { benchmark: name.clone(), name, words, about, flags }
    };
    let mut rows = vec![
        row(
            "postmark",
            "mail server, one request after the other",
            "Transactions of a mail server: create, read, append to and delete small files, one after the other",
            "--quick",
            "--preset 2001",
        ),
        row(
            "netnews",
            "news server",
            "Articles stored by a news server, each a file with its links, while old ones are deleted",
            "--quick --articles 4000",
            "--articles 300000",
        ),
        row(
            "dirscale",
            "large directories",
            "Operations of a day on large directories: look up, create, remove, list; names in memory",
            "--quick --sizes 256,2048",
            "--warm --sizes 1024,16384 --layout flat",
        ),
    ];
    for name in Workload::builtin_names().into_iter().filter(|name| *name != NO_STORAGE) {
        let workload = Workload::builtin(name)?;
        let (quick, full) = (set_of(&workload, QUICK_BYTES_MAX), set_of(&workload, FULL_BYTES_MAX));
        let row = row(
            "fstress",
            &words_of(&workload.about),
            &workload.about,
            &format!("--workload {name} --quick --rate max {quick} --warm 500ms --measure 3s"),
            &format!("--workload {name} --rate max {full} --warm 5s --measure 30s"),
        );
        rows.push(Row { name: name.to_owned(), ..row });
    }
    Ok(rows)
}

/// The program that a workload of fstress is, as its description begins; it keeps many requests under way.
fn words_of(about: &str) -> String {
    let program = about.split(':').next().unwrap_or(about);
    let mut letters = program.chars();
    let first = letters.next().filter(|_| !program.starts_with("SPEC"));
    let program =
        first.map_or_else(|| program.to_owned(), |first| first.to_lowercase().chain(letters).collect());
    format!("{program}, many requests at once")
}

/// Bytes that the files of one run have at most, about, so that making them does not take longer than the run.
const QUICK_BYTES_MAX: f64 = 64e6;
const FULL_BYTES_MAX: f64 = 2e9;
const FILES_MAX: f64 = 20_000.0;

// As many as a closed loop keeps requests: with fewer, files that are being filled were most of the set, and each removal met a file in
// use.
const FILES_MIN: f64 = 64.0;

/// The flags of a set of at most these bytes, about: as many files as fit, and smaller ones where too few would.
fn set_of(workload: &Workload, bytes_max: f64) -> String {
    let each = workload.bytes_expected(10_000) / 10_000.0;
    let files = (bytes_max / each.max(1.0)).clamp(FILES_MIN, FILES_MAX.min(bytes_max / 32e3));
    let unit = 10_f64.powf((files.log10().floor() - 1.0).max(0.0));
    let files = (files / unit).floor() * unit;
    let size_max = bytes_max / FILES_MIN;
    let size = if each > size_max { format!(" --file-size {size_max:.0}") } else { String::new() };
    format!("--files {files:.0}{size}")
}

/// The rows that are named, in the order of `rows`; all without names.
///
/// # Errors
/// When no row has one of the names.
pub fn chosen(rows: Vec<Row>, names: &[String]) -> anyhow::Result<Vec<Row>> {
    if let Some(wrong) = names.iter().find(|name| rows.iter().all(|row| row.name != **name)) {
        let known: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let wrong = anyhow!("--only {wrong}: no workload is called so; there are {}", known.join(", "));
        return Err(wrong.context(BadUsage));
    }
    Ok(rows.into_iter().filter(|row| names.is_empty() || names.contains(&row.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_taken_by_its_verb_and_has_a_name_of_its_own() {
        for extent in [Extent::Quick, Extent::Full] {
            let rows = all(extent, 1).unwrap();
            assert_eq!(rows.len(), 3 + Workload::builtin_names().len() - 1);
            for (at, row) in rows.iter().enumerate() {
                assert!(rows[..at].iter().all(|before| before.name != row.name), "{}", row.name);
                let words: Vec<String> =
                    [vec![row.benchmark.clone(), "/mnt/a".to_owned()], row.flags.clone()].concat();
                let cell =
                    crate::verbs::run::cell::of(&words).unwrap_or_else(|wrong| panic!("{row:?}: {wrong:#}"));
                cell.foreseen().unwrap();
            }
        }
    }

    #[test]
    fn files_of_a_quick_run_are_few_where_they_are_large_and_small_where_they_would_be_too_few() {
        let of = |name: &str| set_of(&Workload::builtin(name).unwrap(), QUICK_BYTES_MAX);
        assert_eq!(of("p2p"), "--files 64 --file-size 1000000");
        assert_eq!(of("database"), "--files 64 --file-size 1000000");
        assert_eq!(of("mail"), "--files 2000");
    }

    #[test]
    fn a_name_that_is_none_is_refused_with_those_that_are() {
        let rows = all(Extent::Quick, 1).unwrap();
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let wrong = chosen(rows.clone(), &names(&["mial"])).unwrap_err();
        assert!(format!("{wrong:#}").contains("mail"), "{wrong:#}");
        assert_eq!(chosen(rows, &names(&["mail", "postmark"])).unwrap().len(), 2);
    }
}
