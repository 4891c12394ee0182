//! All flags of all verbs are held to one way of writing quantities.

use std::any::TypeId;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Arg, CommandFactory as _, FromArgMatches as _};

use super::*;
use crate::verbs::run::SEED_DEFAULT;
use crate::{Cli, Verb};

/// A flag or positional argument, and the words in front of its value.
struct Flag {
    words: Vec<String>,
    names: Vec<String>,
    arg: Arg,
}

impl Flag {
    fn all() -> Vec<Self> {
        let mut found = Vec::new();
        walk(&Cli::command(), &["crumb".to_owned()], &mut found);
        assert!(found.len() > 150, "only {} flags with a value were found", found.len());
        found
    }

    fn quantities() -> impl Iterator<Item = Self> {
        let is_quantity = |flag: &Self| flag.names.iter().any(|name| VALUE_NAMES.contains(&name.as_str()));
        Self::all().into_iter().filter(is_quantity)
    }

    fn is(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }

    /// Why the value is refused; none when it is taken, whatever else is missing.
    fn refusal(&self, value: &str) -> Option<String> {
        let words = self.words.iter().cloned().chain([value.to_owned()]);
        let error = with_negative_numbers(Cli::command()).try_get_matches_from(words).err()?;
        let is_of_value = matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue);
        assert_ne!(error.kind(), ErrorKind::UnknownArgument, "{} {value}: {error}", self.shown());
        is_of_value.then(|| error.to_string())
    }

    fn shown(&self) -> String {
        self.words.join(" ")
    }
}

fn walk(command: &clap::Command, path: &[String], found: &mut Vec<Flag>) {
    let mut before = 0;
    for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
        let names: Vec<String> =
            arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
        let mut words = path.to_vec();
        match (arg.get_long(), arg.get_short()) {
            (Some(long), _) => words.push(format!("--{long}")),
            (None, Some(short)) => words.push(format!("-{short}")),
            (None, None) => {
                words.extend((0..before).map(|_| "x".to_owned()));
                before += 1;
            }
        }
        found.push(Flag { words, names, arg: arg.clone() });
    }
    for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
        walk(verb, &[path, &[verb.get_name().to_owned()]].concat(), found);
    }
}

#[test]
fn every_flag_with_a_number_names_its_value_as_one() {
    let numbers = [
        TypeId::of::<u8>(),
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<i32>(),
        TypeId::of::<i64>(),
        TypeId::of::<f64>(),
        TypeId::of::<Duration>(),
        TypeId::of::<NonZeroU8>(),
        TypeId::of::<NonZeroU16>(),
        TypeId::of::<NonZeroU32>(),
        TypeId::of::<NonZeroU64>(),
        TypeId::of::<NonZeroUsize>(),
    ];
    for flag in Flag::all() {
        let is_number = numbers.iter().any(|number| flag.arg.get_value_parser().type_id() == *number);
        let is_named = flag.names.iter().any(|name| VALUE_NAMES.contains(&name.as_str()) || name == "PID");
        assert!(!is_number || is_named, "{}: {:?} is not among {VALUE_NAMES:?}", flag.shown(), flag.names);
    }
}

/// Symptom: `20,300` was two rates, no number, or an unexpected argument, by the flag. Cause: four parsers.
#[test]
fn every_quantity_refuses_a_comma_between_thousands_and_says_what_to_write() {
    let mut probed = 0;
    for flag in Flag::quantities().filter(|flag| !flag.is("BOUND") && !flag.is("MEAN,SD")) {
        let refusal = flag.refusal("20,300").unwrap_or_else(|| panic!("{} takes 20,300", flag.shown()));
        assert!(refusal.contains("20300"), "{}: {refusal}", flag.shown());
        probed += 1;
    }
    assert!(probed > 60, "only {probed} flags were probed");
}

#[test]
fn every_quantity_explains_what_is_negative_empty_or_no_number_and_names_the_flag() {
    for flag in Flag::quantities() {
        for value in ["-5", "", "NaN", "inf", "99999999999999999999999x"] {
            // Neither reading nor appending.
            if value == "-5" && flag.is("TENTHS") {
                continue;
            }
            let refusal = flag.refusal(value).unwrap_or_else(|| panic!("{} takes `{value}`", flag.shown()));
            let name = flag.arg.get_long().map_or_else(|| flag.names[0].clone(), |long| format!("--{long}"));
            assert!(refusal.contains(&name), "{} {value}: {refusal}", flag.shown());
        }
    }
}

#[test]
fn every_count_size_and_time_takes_the_same_spellings() {
    for flag in Flag::quantities() {
        let spellings: &[&str] = match () {
            () if flag.is("N") || flag.is("RATE") || flag.is("RATES") || flag.is("SIZES") => {
                &["20k", "20_000"]
            }
            () if flag.is("SIZE") || flag.is("LOW..HIGH") || flag.is("auto|SIZE") => {
                &["64KiB", "64k", "1.5M"]
            }
            () if flag.is("TIME") || flag.is("off|TIME") => &["1.5s", "200ms", "2m", "2min", "1h"],
            () if flag.is("PERCENT") => &["5%", "5"],
            () => &[],
        };
        for spelling in spellings {
            let refusal = flag.refusal(spelling).unwrap_or_default();
            let is_too_much = refusal.contains("from 1 to") || refusal.contains("out of range");
            let is_too_much = is_too_much || refusal.contains("or more");
            assert!(refusal.is_empty() || is_too_much, "{} {spelling}: {refusal}", flag.shown());
        }
    }
}

#[test]
fn every_default_of_a_quantity_is_in_its_help() {
    for flag in Flag::quantities() {
        let help = flag.arg.get_help().map(ToString::to_string).unwrap_or_default();
        let shown_by_clap =
            !flag.arg.get_default_values().is_empty() && !flag.arg.is_hide_default_value_set();
        let shown = help.contains("[default: ") || shown_by_clap || flag.arg.is_required_set();
        let name = flag.arg.get_long().unwrap_or_default();
        assert!(shown || OFF_UNLESS_GIVEN.contains(&name), "{}: no default in `{help}`", flag.shown());
    }
}

/// Without them something else decides, which their help says.
const OFF_UNLESS_GIVEN: [&str; 10] = [
    "size",
    "until-ci",
    "find-max",
    "feed-bytes",
    "fail-if-slower",
    "memory-hit",
    "disk-hit",
    "skew",
    "read-write",
    "size-scale",
];

/// What was parsed, as its type shows itself.
fn parsed(line: &str) -> String {
    let words = line.split_whitespace();
    let typed = with_negative_numbers(Cli::command()).try_get_matches_from(words);
    let typed = typed.unwrap_or_else(|error| panic!("{line}: {error}"));
    match Cli::from_arg_matches(&typed).unwrap_or_else(|error| panic!("{line}: {error}")).verb {
        Some(Verb::Run(args)) => format!("{args:?}"),
        Some(Verb::Pack(args)) => format!("{args:?}"),
        Some(Verb::Feed(args)) => format!("{args:?}"),
        Some(Verb::Advise(args)) => format!("{args:?}"),
        Some(Verb::Serve(args)) => format!("{args:?}"),
        Some(Verb::Runs(args)) => format!("{args:?}"),
        Some(Verb::Compare(args)) => format!("{args:?}"),
        _ => panic!("{line}: not one of the verbs with such flags"),
    }
}

#[test]
fn every_old_spelling_gives_the_value_that_it_gave() {
    for (verb, old, new) in [
        ("run fstress a", "--warm 2min", "--warm 120s"),
        ("run fstress a", "--measure 1h30m", "--measure 90m"),
        ("run fstress a", "--measure 1day", "--measure 24h"),
        ("run fstress a", "--files 20000", "--files 20k"),
        ("run fstress a", "--resume web", "--reuse web"),
        ("run dirscale a", "--resume spool", "--reuse spool"),
        ("run netnews a", "--reuse mine", "--resume mine"),
        ("pack stat s", "--json", "--json=-"),
        ("runs list", "--json", "--json=-"),
        ("runs show --json", "last", "last"),
        ("run postmark a", "--size 500..10000", "--size 500B..10kB"),
        ("run postmark a", "--size 10KiB..20KiB", "--size 10240..20480"),
        ("run postmark a", "--read-block 64k", "--read-block 64000"),
        ("run postmark a", "--until-ci 5", "--until-ci 5%"),
        ("run postmark a", "--read-bias -1", "--read-bias=-1"),
        ("run postmark a", "--nfs-cache 3s", "--nfs-cache 3000ms"),
        ("run dirscale a", "--file-bytes 2048", "--file-bytes 2KiB"),
        ("run dirscale a", "--sizes 1..4096", "--sizes 1,2,4,8,16,32,64,128,256,512,1024,2048,4096"),
        ("run netnews a", "--feed-bytes 4GiB", "--feed-bytes 4096MiB"),
        ("run webload --direct", "--cache-size 1GB", "--cache-size 1000000000"),
        ("run webload --direct", "--object-size 10.7kB", "--object-size 10700"),
        ("run webload --direct", "--fill-share 75", "--fill-share 75%"),
        ("run webload --direct", "--think 2.5s,1s", "--think 2500ms,1000ms"),
        ("serve origin", "--idle-timeout 15s", "--idle-timeout 0.25m"),
        ("pack create s", "--size 64MiB --block-size 64B", "--size 67108864 --block-size 64"),
        ("pack bench d", "--mean 10KB", "--mean 10k"),
        ("advise t", "--time 2min", "--time 2m"),
        ("feed import s -o f", "--article-max 16MiB", "--article-max 16777216"),
        ("compare a b", "--fail-if-slower 5", "--fail-if-slower 5%"),
    ] {
        assert_eq!(parsed(&format!("crumb {verb} {old}")), parsed(&format!("crumb {verb} {new}")), "{old}");
    }
}

/// Symptom that this keeps away: `crumb pack stat --json STORE KEY` would take the store for a file to write.
#[test]
fn json_alone_does_not_take_the_word_behind_it() {
    assert_eq!(parsed("crumb pack stat --json s key"), parsed("crumb pack stat s key --json"));
    assert_eq!(parsed("crumb runs show --json last"), parsed("crumb runs show last --json=-"));
    assert!(parsed("crumb pack stat s --json=stat.json").contains("stat.json"));
}

#[test]
fn every_verb_with_json_takes_it_as_a_file_with_an_equals_sign() {
    let with_json: Vec<Flag> =
        Flag::all().into_iter().filter(|flag| flag.arg.get_long() == Some("json")).collect();
    assert!(with_json.len() > 15, "only {} verbs have --json", with_json.len());
    for flag in with_json {
        assert!(flag.is("FILE"), "{}: {:?}", flag.shown(), flag.names);
        let joined = [&flag.words[..flag.words.len() - 1], &["--json=out.json".to_owned()]].concat();
        let typed = Cli::command().try_get_matches_from(joined);
        let is_fine = typed.err().is_none_or(|error| {
            matches!(
                error.kind(),
                ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            )
        });
        assert!(is_fine, "{}", flag.shown());
    }
}

#[test]
fn every_benchmark_begins_with_the_same_seed() {
    let mut seeds = 0;
    for flag in Flag::all().into_iter().filter(|flag| flag.arg.get_long() == Some("seed")) {
        let default: Vec<_> =
            flag.arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        assert_eq!(default, [SEED_DEFAULT.to_string()], "{}", flag.shown());
        seeds += 1;
    }
    assert!(seeds >= 6, "only {seeds} verbs have a seed");
}
