//! Commands that the guide and the README show can be typed: each flag is in the help of the verb it is shown with.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::process::Command;

use super::{project_files, root};

#[test]
fn every_flag_that_the_guide_shows_is_in_the_help_of_its_verb() {
    let mut helps = Helps::default();
    let (mut checked, mut wrong) = (0, Vec::new());
    for file in project_files() {
        let below = file.strip_prefix(root()).expect("below the root");
        let is_guide = below.starts_with("docs/guide") && below.extension().is_some_and(|it| it == "md");
        if !is_guide && below.to_str() != Some("README.md") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", below.display()));
        for words in commands_of(&text) {
            let (verb, flags) = helps.parse(&words);
            for flag in flags {
                checked += 1;
                if !helps.any_has(&verb, words.iter().any(|word| word == "…"), &flag) {
                    wrong.push(format!("{}: `{}` has no {flag}", below.display(), verb.join(" ")));
                }
            }
        }
    }
    assert!(checked > 100, "only {checked} flags were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What the program says of its verbs, each asked once.
#[derive(Default)]
struct Helps(HashMap<Vec<String>, Help>);

#[derive(Clone, Default)]
struct Help {
    verbs: BTreeSet<String>,
    flags: BTreeSet<String>,
}

impl Helps {
    /// Splits what stands behind `crumb` into the verb and its flags.
    fn parse(&mut self, words: &[String]) -> (Vec<String>, Vec<String>) {
        let mut verb = Vec::new();
        let mut flags = Vec::new();
        let mut at_verb = true;
        for word in words {
            if word == "--" {
                break;
            }
            if word.starts_with("--") {
                flags.extend(flag_of(word));
            } else if at_verb {
                at_verb = self.of(&verb).verbs.contains(word);
                verb.extend(at_verb.then(|| word.clone()));
            }
        }
        (verb, flags)
    }

    /// Whether a verb has the flag, or any verb right below it where the text leaves that open: `crumb serve … --pin 0`.
    fn any_has(&mut self, verb: &[String], open: bool, flag: &str) -> bool {
        let below = if open { self.of(verb).verbs.clone() } else { BTreeSet::new() };
        let mut verbs = vec![verb.to_vec()];
        verbs.extend(below.into_iter().map(|name| [verb, &[name]].concat()));
        verbs.iter().any(|verb| self.of(verb).flags.contains(flag))
    }

    fn of(&mut self, verb: &[String]) -> &Help {
        self.0.entry(verb.to_vec()).or_insert_with(|| {
            let mut command = Command::new(assert_cmd::cargo::cargo_bin!("crumb"));
            let output = command.args(verb).arg("--help").output().expect("crumb runs");
            assert!(output.status.success(), "crumb {} --help fails", verb.join(" "));
            Help::of(&String::from_utf8_lossy(&output.stdout))
        })
    }
}

impl Help {
    fn of(text: &str) -> Self {
        let mut help = Self::default();
        let mut in_verbs = false;
        for line in text.lines() {
            if !line.starts_with(' ') {
                in_verbs = line.ends_with("ommands:");
            } else if in_verbs && line.starts_with("  ") && !line.starts_with("   ") {
                let verb = line.split_whitespace().next().filter(|verb| *verb != "help");
                help.verbs.extend(verb.map(str::to_owned));
            }
            // A line of the flags, not of an example.
            if line.trim_start().starts_with('-') {
                help.flags.extend(
                    line.split_whitespace().take_while(|word| word.starts_with('-')).filter_map(flag_of),
                );
            }
        }
        help
    }
}

/// The flag without value and punctuation.
fn flag_of(word: &str) -> Option<String> {
    let name = word.strip_prefix("--")?;
    let name: String = name.chars().take_while(|char| char.is_ascii_alphanumeric() || *char == '-').collect();
    (!name.is_empty()).then(|| format!("--{name}"))
}

/// What stands behind `crumb` in each command of the code in a text, in words.
fn commands_of(text: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    for line in code_of(text) {
        // An apostrophe or a quotation mark may hold anything; flags of ours do not stand in them.
        for part in line.split(['|', ';', '&', '(', ')']) {
            // Flags of cargo, which is told where the crate is: `--path crates/crumb`.
            if part.split_whitespace().any(|word| word == "cargo") {
                continue;
            }
            let mut words =
                part.split_whitespace().skip_while(|word| *word != "crumb" && !word.ends_with("/crumb"));
            if words.next().is_some() {
                commands.push(words.take_while(|word| !word.starts_with('#')).map(str::to_owned).collect());
            }
        }
    }
    commands
}

/// Lines of the blocks of code, those with a backslash at the end joined, and what is between backticks.
fn code_of(text: &str) -> Vec<String> {
    let (mut lines, mut prose) = (Vec::<String>::new(), String::new());
    let (mut in_code, mut joins) = (false, false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            (in_code, joins) = (!in_code, false);
        } else if in_code {
            let (bare, goes_on) = line.strip_suffix('\\').map_or((line, false), |bare| (bare, true));
            match lines.last_mut() {
                Some(last) if joins => last.push_str(bare),
                _ => lines.push(bare.to_owned()),
            }
            joins = goes_on;
        } else {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    // Code may be broken over two lines of a paragraph, but not over two paragraphs.
    let spans = prose.split("\n\n").flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    lines.extend(spans.map(|span| span.replace('\n', " ")));
    lines
}

#[test]
fn commands_are_found_in_blocks_and_between_backticks_and_other_programs_flags_are_not_ours() {
    let text = "`cargo install --path crates/crumb --features x` see `crumb advise\n--cold`, or --warm\n\n```sh\nrsync --all x | crumb pack put --key=a \\\n  --other # --no\n\
                sudo ./crumb mount a b -- --c\n```\n";
    let commands: Vec<String> = commands_of(text).iter().map(|words| words.join(" ")).collect();
    assert_eq!(commands, ["pack put --key=a --other", "mount a b -- --c", "advise --cold"]);
    let help = Help::of(
        "Usage: crumb\n\nCommands:\n  run   Measure\n        more\n\nOptions:\n  -v, --verbose <N>  as --long\n",
    );
    assert_eq!(help.verbs.into_iter().collect::<Vec<_>>(), ["run"]);
    assert_eq!(help.flags.into_iter().collect::<Vec<_>>(), ["--verbose"]);
}
