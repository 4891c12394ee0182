//! The texts below the flags of each verb's help, laid out for a terminal of 80 columns: examples can be copied from it.
//!
//! In the sources these texts have lines as long as the sources' own. A command line that a terminal wraps is two commands for
//! the one who copies it, so a long one continues after a backslash. Prose is one line a paragraph, for clap to wrap.

use clap::Command;

/// Columns of a terminal that has not been made wider.
const COLUMNS: usize = 80;
/// Command lines begin so, or with `AT_THE_TOP` where no line says what they are for.
const COMMAND: &str = "    ";
const AT_THE_TOP: &str = "  crumb ";
/// What the next line of a command begins with, beyond the indentation of its first.
const DEEPER: &str = "  ";

/// The same command, with the texts of it and of all below it laid out.
pub fn for_terminals(command: Command) -> Command {
    let text = command.get_after_help().map(|text| laid_out(&text.to_string()));
    let command = match text {
        Some(text) => command.after_help(text),
        None => command,
    };
    command.mut_subcommands(for_terminals)
}

fn laid_out(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        match lines.last_mut() {
            Some(before) if is_command(before) && before.ends_with('\\') => {
                before.truncate(before.trim_end_matches('\\').trim_end().len());
                before.push(' ');
                before.push_str(line.trim_start());
            }
            Some(before) if goes_on(before, line) => {
                before.push(' ');
                before.push_str(line);
            }
            _ => lines.push(line.to_owned()),
        }
    }
    let lines: Vec<String> =
        lines.into_iter().map(|line| if is_command(&line) { continued(&line) } else { line }).collect();
    lines.join("\n")
}

fn is_command(line: &str) -> bool {
    line.starts_with(COMMAND) || line.starts_with(AT_THE_TOP)
}

/// Whether a line belongs to the paragraph before it.
fn goes_on(before: &str, line: &str) -> bool {
    let prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
    prose(before) && prose(line) && !before.ends_with(['.', ':'])
}

/// A command line with a backslash at the end of each line but the last, broken at spaces that are not within quotes.
fn continued(line: &str) -> String {
    let indent = &line[..line.len() - line.trim_start().len()];
    let (mut whole, mut current, mut is_first) = (String::new(), indent.to_owned(), true);
    for word in words(line.trim_start()) {
        let length = current.chars().count() + 1 + word.chars().count();
        if !is_first && length + " \\".len() > COLUMNS {
            whole.push_str(&current);
            whole.push_str(" \\\n");
            current = format!("{indent}{DEEPER}{word}");
            continue;
        }
        if !is_first {
            current.push(' ');
        }
        current.push_str(word);
        is_first = false;
    }
    whole + &current
}

/// What stays on one line: words, with what is quoted in one piece, and a flag with its value.
fn words(line: &str) -> Vec<&str> {
    let (mut words, mut begun, mut quote) = (Vec::new(), 0, None);
    for (at, letter) in line.char_indices() {
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), _) if letter == open => quote = None,
            // A second space in a row is a column of a table, such as a line of fstab.
            (None, ' ')
                if at > begun
                    && !line[at + 1..].starts_with(' ')
                    && !has_value(&line[begun..at], &line[at + 1..]) =>
            {
                words.push(&line[begun..at]);
                begun = at + 1;
            }
            _ => {}
        }
    }
    words.push(&line[begun..]);
    words
}

/// Whether what follows is the value of the flag in `word`.
fn has_value(word: &str, rest: &str) -> bool {
    word.starts_with("--") && !word.contains([' ', '=']) && !rest.starts_with(['-', '&', '|', '>'])
}

#[cfg(test)]
mod tests {
    use super::{continued, laid_out};

    #[test]
    fn a_long_command_continues_after_a_backslash_and_not_within_quotes() {
        let long = format!(
            "    crumb run {} --prepare 'sync; echo 3 > /proc/sys/vm/drop_caches' --quick",
            "x".repeat(50)
        );
        let text = continued(&long);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].ends_with(" \\") && lines[0].chars().count() <= 80, "{text}");
        assert!(lines[1].contains("'sync; echo 3 > /proc/sys/vm/drop_caches' --quick"), "{text}");
        assert_eq!(text.replace(" \\\n      ", " "), long);
    }

    #[test]
    fn a_flag_stays_with_its_value() {
        let long = format!("    crumb mount /{} /b --exclusive --pid-file /run/spool.pid", "x".repeat(40));
        assert!(
            continued(&long).ends_with(" --exclusive \\\n      --pid-file /run/spool.pid"),
            "{}",
            continued(&long)
        );
    }

    #[test]
    fn paragraphs_are_one_line_and_sentences_on_lines_of_their_own_stay_so() {
        let text = "Ctrl-C lets requests\nend and closes.\nExit codes: 0 fine.\n\n    /a  /b  fuse.crumb  0 0\n  Two columns\n";
        let wanted = "Ctrl-C lets requests end and closes.\nExit codes: 0 fine.\n\n    /a  /b  fuse.crumb  0 0\n  Two columns";
        assert_eq!(laid_out(text), wanted);
    }

    #[test]
    fn a_command_that_is_broken_in_the_source_is_broken_where_the_terminal_ends() {
        let text = "  What for:\n    crumb run fstress nfs://filer/vol \\\n        --rate 1000\n";
        assert_eq!(laid_out(text), "  What for:\n    crumb run fstress nfs://filer/vol --rate 1000");
    }
}
