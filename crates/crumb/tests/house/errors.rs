//! An error prints its own layer alone: its source prints the next one. Then a chain that is printed has each cause once.

use std::fs;

use super::{project_files, root};

#[test]
fn no_error_prints_its_source() {
    let mut errors = 0;
    let mut wrong = Vec::new();
    for path in project_files() {
        let below = path.strip_prefix(root()).expect("below the root");
        if below.extension().is_none_or(|extension| extension != "rs") || below.ends_with("house/errors.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for error in errors_of(&text) {
            errors += 1;
            let printed = error.sources.iter().filter(|source| error.prints(source));
            wrong.extend(printed.map(|source| {
                format!("{}: {}: its message prints {source}, its source", below.display(), error.name)
            }));
        }
    }
    assert!(errors > 200, "only {errors} errors were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A variant or struct with the message that `thiserror` makes its `Display` of.
#[derive(Debug)]
struct ErrorText {
    name: String,
    /// The format string, as it is written.
    format: String,
    /// What follows the format string, split at its commas.
    arguments: Vec<String>,
    /// Fields that are the error's source: a name, or a number.
    sources: Vec<String>,
}

impl ErrorText {
    /// As a place in the format string, or as an argument of its own. A function of it may say something else, such as a hint.
    fn prints(&self, source: &str) -> bool {
        let by_place =
            [format!("{{{source}}}"), format!("{{{source}:")].iter().any(|place| self.format.contains(place));
        let is_it = |argument: &String| {
            argument.rsplit(['=', ' ']).next().unwrap_or_default().trim_start_matches('.') == source
        };
        by_place || self.arguments.iter().any(is_it)
    }
}

fn errors_of(text: &str) -> Vec<ErrorText> {
    const OPENING: &str = "#[error(";
    // Comments hold brackets and quotes of their own.
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let found = code.match_indices(OPENING).filter_map(|(at, _)| {
        let inside = &code[at + OPENING.len()..];
        let end = closing(inside)?;
        let mut parts = split_at_commas(&inside[..end]).into_iter();
        let format = parts.next().filter(|format| format.starts_with('"'))?;
        let mut item = inside[end..].trim_start_matches([')', ']']).trim_start();
        for word in ["pub ", "struct ", "enum "] {
            item = item.strip_prefix(word).unwrap_or(item);
        }
        let name_end = item.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(item.len());
        let (name, fields) = item.split_at(name_end);
        let fields = fields.trim_start();
        let sources = match fields.chars().next() {
            Some('(' | '{') => {
                closing(&fields[1..]).map(|end| sources_among(&fields[1..=end])).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        Some(ErrorText { name: name.to_owned(), format, arguments: parts.collect(), sources })
    });
    found.collect()
}

fn sources_among(fields: &str) -> Vec<String> {
    let fields = split_at_commas(fields);
    let sources = fields.iter().enumerate().filter_map(|(number, field)| {
        let is_marked = field.contains("#[from]") || field.contains("#[source]");
        let bare = field.rsplit(']').next().unwrap_or(field).trim().trim_start_matches("pub ");
        let name = match bare.split_once(": ") {
            Some((name, _)) => name.to_owned(),
            None => number.to_string(),
        };
        (is_marked || name == "source").then_some(name)
    });
    sources.collect()
}

/// Where the bracket closes that was opened before this text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    for (at, c) in outside_of_strings(text) {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

fn split_at_commas(text: &str) -> Vec<String> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, c) in outside_of_strings(text) {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[from..at].trim().to_owned());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[from..].trim().to_owned());
    parts.retain(|part| !part.is_empty());
    parts
}

fn outside_of_strings(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let (mut is_in_string, mut is_escaped) = (false, false);
    text.char_indices().filter(move |(_, c)| {
        let was_in_string = is_in_string;
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_in_string => is_escaped = true,
            '"' => is_in_string = !is_in_string,
            _ => {}
        }
        !was_in_string && *c != '"'
    })
}

#[test]
fn a_source_is_found_in_the_message_by_name_by_number_and_as_an_argument() {
    let text = r#"
        #[error("{}: {}, {kind}", .path.display(), .source)]
        A { path: PathBuf, kind: HashMap<u8, u8>, source: io::Error },
        #[error("no: {0}")]
        B(#[from] serde_json::Error),
        #[error("{} ({hint})", hint = advice(source))]
        C { source: io::Error },
        #[error("{why:?}")]
        D { #[source] why: io::Error },
        #[error(transparent)]
        E(#[from] io::Error),
        #[error("{0} {source_name}")]
        pub struct F(u8, #[source] io::Error);
    "#;
    let errors = errors_of(text);
    let printing = errors.iter().filter(|error| error.sources.iter().any(|source| error.prints(source)));
    assert_eq!(printing.map(|error| error.name.as_str()).collect::<Vec<_>>(), ["A", "B", "D"]);
    assert_eq!(errors.iter().map(|error| error.sources.len()).sum::<usize>(), 5, "{errors:?}");
}
