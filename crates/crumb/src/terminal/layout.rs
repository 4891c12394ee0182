//! Plain text laid out for a terminal of 80 columns: grids of figures, wrapped sentences, named values.
//!
//! Always holds: what was named by users or peers cannot move the cursor, colour the screen or turn
//! text around: control and format characters are shown as `?`.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, TableComponent, presets};

use super::output::has_no_shape;

/// Columns of the terminal that everything is made for.
pub const WIDTH: usize = 80;
/// Columns that names take in [`named`].
const NAME_WIDTH: usize = 24;
/// The longest name for which [`named_list`] makes room.
const LONG_NAME: usize = 50;

/// A table with a line under its heads; the first `left` columns hold words, the others figures. Gaps are wide
/// where [`WIDTH`] allows it.
pub fn grid(heads: &[&str], left: usize, rows: &[Vec<String>]) -> String {
    let wide = grid_with_gap(heads, left, rows, 2);
    let width = wide.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    if width <= WIDTH { wide } else { grid_with_gap(heads, left, rows, 1) }
}

fn grid_with_gap(heads: &[&str], left: usize, rows: &[Vec<String>], gap: u16) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_style(TableComponent::HeaderLines, '─');
    table.set_header(heads.iter().map(|head| Cell::new(printable(head))));
    for row in rows {
        table.add_row(row.iter().map(|cell| Cell::new(printable(cell))));
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if at == 0 { 0 } else { gap }, 0));
        column.set_cell_alignment(if at < left { CellAlignment::Left } else { CellAlignment::Right });
    }
    format!("{}\n", table.trim_fmt())
}

/// `text` in lines of at most [`WIDTH`], the first one begun by `first`, the others set in as far.
pub fn wrapped(first: &str, text: &str) -> String {
    let indent = first.chars().count();
    let mut out = printable(first);
    let mut column = indent;
    for word in printable(text).split_whitespace() {
        let width = word.chars().count();
        if column > indent && column + 1 + width > WIDTH {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    let end = out.trim_end().len();
    out.truncate(end);
    out.push('\n');
    out
}

/// A name and its value, values below each other; two blanks at least between them.
pub fn named(name: &str, value: &str) -> String {
    let width = NAME_WIDTH.max(name.chars().count() + 2);
    wrapped(&format!("{name:<width$}"), value)
}

/// The same of several, with all values in one column; a name longer than [`LONG_NAME`] does not move the others' values.
pub fn named_list(pairs: &[(String, String)]) -> String {
    let longest =
        pairs.iter().map(|(name, _)| name.chars().count()).filter(|length| *length <= LONG_NAME).max();
    let width = NAME_WIDTH.max(longest.unwrap_or(0) + 2);
    let line = |(name, value): &(String, String)| {
        let width = width.max(name.chars().count() + 2);
        wrapped(&format!("{name:<width$}"), value)
    };
    pairs.iter().map(line).collect()
}

/// `text`, if need be cut to `width` columns and an ellipsis put for the rest.
pub fn shortened(text: &str, width: usize) -> String {
    let text = printable(text);
    if text.chars().count() <= width {
        return text;
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// The same, with what is too long left out between the begin and the end: of labels the end often differs alone.
pub fn shortened_within(text: &str, width: usize) -> String {
    let text = printable(text);
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= width {
        return text;
    }
    let end = width.saturating_sub(1) * 2 / 3;
    let begin = width.saturating_sub(1) - end;
    letters[..begin].iter().chain(&['…']).chain(&letters[letters.len() - end..]).collect()
}

/// Rows whose first cell is wrapped to `width` columns, the rest of it in rows of its own below: two names that differ at
/// their ends only stay two names.
pub fn folded(rows: Vec<Vec<String>>, width: usize) -> Vec<Vec<String>> {
    let mut all = Vec::with_capacity(rows.len());
    for mut row in rows {
        let empty = row.len().saturating_sub(1);
        let mut lines =
            row.first().map_or_else(Vec::new, |name| lines_of(&printable(name), width)).into_iter();
        if let (Some(cell), Some(first)) = (row.first_mut(), lines.next()) {
            *cell = first;
        }
        all.push(row);
        all.extend(
            lines.map(|line| std::iter::once(line).chain((0..empty).map(|_| String::new())).collect()),
        );
    }
    all
}

/// `text` in lines of at most `width` columns, broken between words, and within one that is too long; from the second on
/// set in by two.
fn lines_of(text: &str, width: usize) -> Vec<String> {
    const INDENT: usize = 2;
    let width = width.max(INDENT + 1);
    let mut lines = vec![String::new()];
    let mut column = 0;
    for word in text.split_whitespace() {
        let mut rest: Vec<char> = word.chars().collect();
        let gap = usize::from(column > 0 && (lines.len() == 1 || column > INDENT));
        if column + gap + rest.len() <= width {
            let line = lines.last_mut().expect("there is a line");
            line.extend(std::iter::repeat_n(' ', gap).chain(rest.iter().copied()));
            column += gap + rest.len();
            continue;
        }
        while !rest.is_empty() {
            if column > 0 {
                lines.push(" ".repeat(INDENT));
                column = INDENT;
            }
            let piece: String = rest.drain(..rest.len().min(width - column)).collect();
            column += piece.chars().count();
            lines.last_mut().expect("there is a line").push_str(&piece);
        }
    }
    lines
}

/// `one` or `many` after their number.
pub fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{} {}", report::count_text(count as u64), if count == 1 { one } else { many })
}

fn printable(text: &str) -> String {
    text.chars().map(|letter| if has_no_shape(letter) { '?' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_of_a_long_text_is_between_its_begin_and_its_end() {
        assert_eq!(shortened_within("shootout: mail on ssd", 12), "shoo… on ssd");
        assert_eq!(shortened_within("mail on ssd", 11), "mail on ssd");
        assert_eq!(shortened_within("größer als das", 1), "…");
    }

    #[test]
    fn a_grid_that_would_be_too_wide_moves_closer_together() {
        let row = |cells: &[&str]| cells.iter().map(ToString::to_string).collect::<Vec<_>>();
        let narrow = grid(&["op", "n"], 1, &[row(&["read", "1"]), row(&["getattr", "12"])]);
        assert_eq!(narrow, "op        n\n───────────\nread      1\ngetattr  12\n");
        let cells = ["1234567890"; 7];
        let wide = grid(&cells, 1, &[row(&cells)]);
        assert_eq!(wide.lines().next().map(str::len), Some(76), "{wide}");
        assert_eq!(grid(&cells[..6], 1, &[row(&cells[..6])]).lines().next().map(str::len), Some(70));
    }

    #[test]
    fn sentences_wrap_between_words_and_a_word_too_long_stays_whole() {
        let text = wrapped("  - ", &"word ".repeat(40));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(
            text.starts_with("  - word") && text.lines().skip(1).all(|line| line.starts_with("    word"))
        );
        assert_eq!(wrapped("- ", &"x".repeat(100)), format!("- {}\n", "x".repeat(100)));
        assert_eq!(wrapped("name  ", ""), "name\n");
    }

    #[test]
    fn a_label_cannot_turn_its_row_around() {
        assert_eq!(shortened("a\u{202e}b\u{1b}[7m", 20), "a?b?[7m");
        assert!(!named("Label", "a\u{2066}b").contains('\u{2066}'));
    }

    #[test]
    fn a_long_name_is_still_apart_from_its_value() {
        assert_eq!(named("Verdict", "VALID"), format!("{:<24}VALID\n", "Verdict"));
        assert_eq!(named(&"n".repeat(30), "1"), format!("{}  1\n", "n".repeat(30)));
    }

    #[test]
    fn values_of_one_list_stand_in_one_column_but_those_of_very_long_names() {
        let pair = |name: &str| (name.to_owned(), "1".to_owned());
        let columns = |names: &[&str]| -> Vec<Option<usize>> {
            let pairs: Vec<_> = names.iter().map(|name| pair(name)).collect();
            named_list(&pairs).lines().map(|line| line.find('1')).collect()
        };
        assert_eq!(columns(&["Verdict", "Rate"]), [Some(24), Some(24)]);
        let (long, longer) = ("n".repeat(LONG_NAME), "n".repeat(LONG_NAME + 1));
        assert_eq!(columns(&["Rate", &long]), [Some(LONG_NAME + 2), Some(LONG_NAME + 2)]);
        assert_eq!(columns(&["Rate", &longer]), [Some(24), Some(LONG_NAME + 3)]);
    }

    #[test]
    fn names_that_differ_at_their_ends_stay_two_names() {
        let row = |name: &str| vec![name.to_owned(), "1".to_owned()];
        let rows = folded(vec![row("Files created, alone"), row("Files created, mixed"), row("short")], 14);
        let names: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(names, ["Files created,", "  alone", "Files created,", "  mixed", "short"]);
        assert!(rows.iter().all(|row| row.len() == 2) && rows[1][1].is_empty());
        let long = folded(vec![row("a abcdefghijkl b")], 6);
        let names: Vec<&str> = long.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(names, ["a", "  abcd", "  efgh", "  ijkl", "  b"]);
    }

    #[test]
    fn a_label_cannot_colour_the_terminal() {
        assert_eq!(shortened("a\u{1b}[31mb", 80), "a?[31mb");
        assert_eq!(shortened("abcdef", 4), "abc…");
        assert!(!wrapped("", "\u{1b}[2J").contains('\u{1b}'));
        assert!(!grid(&["h"], 1, &[vec!["\u{7}".to_owned()]]).contains('\u{7}'));
    }
}
