//! A table with the headings of its groups.

use measure::view::{Row, Table};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct TableView {
    about: String,
    of: &'static str,
    /// The upper row of headings.
    heads: Vec<Head>,
    /// The lower row, below the groups; empty without any.
    below: Vec<&'static str>,
    /// Each column by itself, for a page so narrow that a row is a list.
    names: Vec<String>,
    rows: Vec<RowView>,
    key: String,
}

#[derive(Debug, PartialEq, Serialize)]
struct Head {
    title: &'static str,
    /// Columns of a group; 0 for a column that is alone.
    columns: usize,
}

#[derive(Debug, Serialize)]
struct RowView {
    name: String,
    cells: Vec<String>,
    published: bool,
}

impl TableView {
    pub fn of(table: Table) -> Self {
        let mut heads: Vec<Head> = Vec::new();
        let mut open = None;
        for column in &table.columns {
            match column.group {
                Some(group) if open == Some(group) => {
                    if let Some(head) = heads.last_mut() {
                        head.columns += 1;
                    }
                }
                Some(group) => heads.push(Head { title: group, columns: 1 }),
                None => heads.push(Head { title: column.title, columns: 0 }),
            }
            open = column.group;
        }
        let grouped = table.columns.iter().filter(|column| column.group.is_some());
        let row = |row: Row| RowView {
            name: row.name,
            cells: row.cells.into_iter().map(|cell| cell.unwrap_or_else(|| "–".to_owned())).collect(),
            published: row.published,
        };
        let name = |column: &measure::view::Column| match column.group {
            Some(group) => format!("{group}: {}", column.title),
            None => column.title.to_owned(),
        };
        Self {
            names: table.columns.iter().map(name).collect(),
            heads,
            below: grouped.map(|column| column.title).collect(),
            rows: table.rows.into_iter().map(row).collect(),
            about: table.about,
            of: table.of,
            key: table.key,
        }
    }
}

#[cfg(test)]
mod tests {
    use measure::view::Column;

    use super::*;

    #[test]
    fn columns_of_one_group_that_follow_each_other_share_a_heading() {
        let column = |group, title| Column { group, title };
        let columns = vec![
            column(None, "rate"),
            column(Some("hit"), "achieved"),
            column(Some("hit"), "offered"),
            column(None, "errors"),
            column(Some("time"), "mean"),
        ];
        let view = TableView::of(Table { columns, ..Table::default() });
        let heads: Vec<(&str, usize)> = view.heads.iter().map(|head| (head.title, head.columns)).collect();
        assert_eq!(heads, [("rate", 0), ("hit", 2), ("errors", 0), ("time", 1)]);
        assert_eq!(view.below, ["achieved", "offered", "mean"]);
        assert_eq!(view.names, ["rate", "hit: achieved", "hit: offered", "errors", "time: mean"]);
    }
}
