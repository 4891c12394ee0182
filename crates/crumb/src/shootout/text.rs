//! The table of a shootout for the terminal and as Markdown.

use report::compare::ratio_text;

use super::plan::shell_line;
use super::result::{Cell, State, Table, TableRow};
use crate::layout::{WIDTH, folded, grid, wrapped};
use crate::output::harmless;

/// Columns of a row's name.
const NAME_WIDTH: usize = 20;

impl Cell {
    /// The rate, or the word for what there is instead.
    pub fn first_words(&self) -> String {
        match self.state {
            State::Valid => self.rate_text.clone(),
            State::Invalid => "INVALID".to_owned(),
            State::Failed => "failed".to_owned(),
            State::NotPossible => "not possible".to_owned(),
            State::NotMeasured => "not measured".to_owned(),
        }
    }

    /// How many times as fast as the first target: `0.62 (0.58..0.66)`.
    pub fn ratio_words(&self) -> Option<String> {
        let ratio = self.ratio.as_ref()?;
        let interval = ratio
            .low
            .zip(ratio.high)
            .map_or_else(String::new, |(low, high)| format!(" ({}..{})", ratio_text(low), ratio_text(high)));
        Some(format!("×{}{interval}", ratio_text(ratio.ratio)))
    }

    /// Faster or slower, when it is shown.
    pub fn shown_words(&self) -> Option<&'static str> {
        self.ratio.as_ref().map(|ratio| ratio.word)
    }
}

/// For a terminal of 80 columns: targets beside each other where they fit, else below each other.
pub fn terminal(table: &Table) -> String {
    let mut text = wrapped("", &table.sentence);
    text.push('\n');
    let wide = wide(table);
    let fits = wide.lines().all(|line| line.chars().count() <= WIDTH);
    text.push_str(&if fits { wide } else { long(table) });
    text.push('\n');
    let first = &table.sides[0].name;
    let compared = match table.sides.len() {
        1 => String::new(),
        _ => format!(
            "×N: N times as fast as {first}, with the 95% interval. *: the fastest, shown against every other. "
        ),
    };
    text.push_str(&wrapped(
        "",
        &format!("Rates are medians of VALID runs. {compared}The last line of a cell: what held the run up."),
    ));
    for side in &table.sides {
        text.push_str(&wrapped(&format!("{}  ", side.name), &side.target));
    }
    table.notes.iter().for_each(|note| text.push_str(&wrapped("- ", note)));
    whys(table).iter().for_each(|(of, why)| text.push_str(&wrapped(&format!("  {of}: "), why)));
    text
}

/// What stands behind each cell that is not simply a rate.
fn whys(table: &Table) -> Vec<(String, String)> {
    let of_row = |row: &TableRow| -> Vec<(String, String)> {
        let cells = table.sides.iter().zip(&row.cells);
        let explained = cells.filter(|(_, cell)| cell.state != State::NotPossible);
        explained
            .filter_map(|(side, cell)| {
                Some((format!("{} on {}", row.workload, side.name), cell.why.clone()?))
            })
            .collect()
    };
    table.rows.iter().flat_map(of_row).collect()
}

fn wide(table: &Table) -> String {
    let heads: Vec<&str> =
        std::iter::once("workload").chain(table.sides.iter().map(|side| side.name.as_str())).collect();
    let mut rows = Vec::new();
    for row in &table.rows {
        let line = |of: &dyn Fn(usize, &Cell) -> String| -> Vec<String> {
            row.cells.iter().enumerate().map(|(side, cell)| of(side, cell)).collect()
        };
        let mut lines = vec![line(&|side, cell| marked(row, side, cell))];
        let more = [
            line(&|_, cell| cell.ratio_words().unwrap_or_default()),
            line(&|_, cell| cell.shown_words().unwrap_or_default().to_owned()),
            line(&|_, cell| limit_word(cell)),
        ];
        lines.extend(more.into_iter().filter(|line| line.iter().any(|cell| !cell.is_empty())));
        let mut names = folded(vec![vec![row.title()]], NAME_WIDTH).into_iter().flatten();
        for line in lines {
            rows.push(std::iter::once(names.next().unwrap_or_default()).chain(line).collect());
        }
        let empty = row.cells.len();
        rows.extend(
            names
                .map(|name| std::iter::once(name).chain(std::iter::repeat_n(String::new(), empty)).collect()),
        );
    }
    grid(&heads, 1, &rows)
}

fn limit_word(cell: &Cell) -> String {
    cell.limit.as_ref().map_or_else(String::new, |limit| limit.word.to_owned())
}

/// A cell's first words, with a star at the fastest of the row when that is shown.
fn marked(row: &TableRow, side: usize, cell: &Cell) -> String {
    let star = if row.is_shown && row.fastest == Some(side) { "* " } else { "" };
    format!("{star}{}", cell.first_words())
}

fn long(table: &Table) -> String {
    let mut rows = Vec::new();
    for row in &table.rows {
        for (at, (side, cell)) in table.sides.iter().zip(&row.cells).enumerate() {
            rows.push(vec![
                if at == 0 { row.title() } else { String::new() },
                side.name.clone(),
                marked(row, at, cell),
                cell.ratio_words().unwrap_or_default(),
                limit_word(cell),
            ]);
        }
    }
    grid(&["workload", "target", "rate", "× first", "limit"], 2, &folded(rows, NAME_WIDTH))
}

/// A table as GitHub and others draw it, and the commands.
pub fn markdown(table: &Table) -> String {
    let escaped = |text: &str| {
        let text = harmless(text).replace(['\n', '\r', '\t'], " ");
        text.replace('|', "\\|").replace('<', "&lt;").replace('`', "'")
    };
    let mut text = format!("**{}**\n\n", escaped(&table.sentence));
    let heads: Vec<String> = table
        .sides
        .iter()
        .map(|side| format!("{} (`{}`)", escaped(&side.name), escaped(&side.target)))
        .collect();
    text.push_str(&format!("| workload | {} |\n|---|{}\n", heads.join(" | "), "---:|".repeat(heads.len())));
    for row in &table.rows {
        let cell = |cell: &Cell| {
            let first = cell.first_words();
            let first = if cell.state == State::Valid { first } else { format!("**{first}**") };
            let parts = [
                Some(first),
                cell.ratio_words(),
                cell.shown_words().map(str::to_owned),
                cell.limit.as_ref().map(|limit| format!("limit: {}", limit.word)),
            ];
            parts.into_iter().flatten().collect::<Vec<_>>().join("<br>")
        };
        let cells: Vec<String> = row.cells.iter().map(cell).collect();
        let figure =
            if row.figure.is_empty() { String::new() } else { format!("<br>{}", escaped(&row.figure)) };
        text.push_str(&format!("| {}{figure} | {} |\n", escaped(&row.title()), cells.join(" | ")));
    }
    let first = escaped(&table.sides[0].name);
    let compared = match table.sides.len() {
        1 => String::new(),
        _ => format!(" ×N is N times as fast as {first}, with the 95% interval in brackets."),
    };
    text.push_str(&format!("\nRates are medians of VALID runs.{compared}\n"));
    table.notes.iter().for_each(|note| text.push_str(&format!("\n- {}", escaped(note))));
    whys(table).iter().for_each(|(of, why)| text.push_str(&format!("\n- {}: {}", escaped(of), escaped(why))));
    // Indented: no path ends such a block.
    text.push_str("\n\nThe commands:\n\n");
    for cell in table.rows.iter().flat_map(|row| &row.cells).filter(|cell| !cell.command.is_empty()) {
        text.push_str(&format!("    {}\n", harmless(&shell_line(&cell.command)).replace(['\n', '\t'], " ")));
    }
    text
}
