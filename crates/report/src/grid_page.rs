//! One HTML file of a table whose cells come from different benchmarks: things measured down, sides across.
//!
//! Always holds: as of every page here: it asks nothing of the network, and what a user named is text and never markup; no cell says by
//! its colour alone what it says.
//! Not here: what a cell says (the caller), the page of records (see `html`).

use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, context};
use serde::Serialize;

use crate::Result;

const TEMPLATE: &str = include_str!("../web/grid.html.j2");
const STYLE: &str = include_str!("../web/report.css");
const GRID_STYLE: &str = include_str!("../web/grid.css");

/// The page.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GridPage {
    /// Heading.
    pub title: String,
    /// What it says, in a sentence.
    pub sentence: String,
    /// What the reader must know besides.
    pub notes: Vec<String>,
    /// How to read a cell.
    pub legend: Vec<String>,
    /// The sides.
    pub heads: Vec<Head>,
    /// What was measured.
    pub rows: Vec<Row>,
    /// How it was measured, a sentence each.
    pub how: Vec<String>,
}

/// A side.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Head {
    /// Its short name.
    pub name: String,
    /// What it is.
    pub about: String,
}

/// A thing measured on every side.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// What it is.
    pub about: String,
    /// What its figure counts.
    pub figure: String,
    /// By side.
    pub cells: Vec<Cell>,
}

/// A thing measured on a side.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cell {
    /// How it is marked, besides by its words.
    pub tone: Tone,
    /// The figure, or the word for what there is instead.
    pub words: String,
    /// What is said beside it, such as `fastest`.
    pub mark: Option<String>,
    /// Against the first side.
    pub ratio: Option<String>,
    /// Whether that is shown.
    pub shown: Option<String>,
    /// What held it up, in a word.
    pub limit: Option<String>,
    /// Sentences behind the words.
    pub details: Vec<String>,
    /// What makes it by itself.
    pub command: Option<String>,
}

/// How a cell is marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tone {
    /// Like most.
    #[default]
    Plain,
    /// Better than the first side.
    Good,
    /// Worse than the first side.
    Warn,
    /// Not to be believed.
    Bad,
    /// Not there.
    Soft,
}

impl GridPage {
    /// Draws it.
    ///
    /// # Errors
    /// When the template cannot be rendered.
    pub fn render(&self) -> Result<String> {
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.add_template("grid.html", TEMPLATE)?;
        Ok(environment.get_template("grid.html")?.render(context! {
            page => self,
            version => env!("CARGO_PKG_VERSION"),
            style => Value::from_safe_string(format!("{STYLE}\n{GRID_STYLE}")),
        })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_says_in_words_what_its_colour_says_and_names_are_no_markup() {
        let invalid = Cell {
            tone: Tone::Bad,
            words: "INVALID".to_owned(),
            details: vec!["the generator was late".to_owned()],
            ..Cell::default()
        };
        let page = GridPage {
            title: "<script>alert(1)</script>".to_owned(),
            heads: vec![Head { name: "ssd".to_owned(), about: "/mnt/ssd".to_owned() }],
            rows: vec![Row { name: "mail".to_owned(), cells: vec![invalid], ..Row::default() }],
            ..GridPage::default()
        };
        let html = page.render().unwrap();
        assert!(html.contains("INVALID") && html.contains("the generator was late"), "{html}");
        assert!(!html.contains("<script") && html.contains("&lt;script&gt;"), "{html}");
        assert!(html.contains("Content-Security-Policy") && !html.contains("http://"), "{html}");
    }
}
