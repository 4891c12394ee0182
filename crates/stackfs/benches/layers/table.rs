//! The table, 80 columns wide: rates of each layer, their ratio to the first, and ours against the best other.

use measure::statistics::{median, ratio_interval};

use crate::Layer;
use crate::rows::Row;

/// Layers of these names are ours.
const OURS: &str = "crumb";
const TITLE_COLUMNS: usize = 17;
const LAYER_COLUMNS: usize = 9;

/// Medians of `seconds[row][layer]`, one figure a round.
pub fn print(rows: &[Row], layers: &[Layer], seconds: &[Vec<Vec<f64>>], rounds: usize) {
    println!("\nmedians of {rounds} rounds; below each its rate as part of that of {}", layers[0].name);
    print!("{:TITLE_COLUMNS$}", "");
    for layer in layers {
        print!("{:>LAYER_COLUMNS$}", layer.name);
    }
    println!();
    for (row, figures) in rows.iter().zip(seconds) {
        let middles: Vec<Option<f64>> = figures.iter().map(|layer| median(layer)).collect();
        if middles.iter().all(Option::is_none) {
            continue;
        }
        let shown = middles.iter().map(|middle| middle.map(|seconds| row.figure(seconds)));
        print_line(&row.title, shown);
        let first = middles[0];
        let ratios = middles.iter().map(|middle| Some(format!("({:.2})", first? / (*middle)?)));
        print_line(row.unit, ratios);
    }
    print_against_peers(rows, layers, seconds);
}

fn print_line(title: &str, cells: impl Iterator<Item = Option<String>>) {
    let cells: String =
        cells.map(|cell| format!("{:>LAYER_COLUMNS$}", cell.unwrap_or_else(|| "-".to_owned()))).collect();
    println!("{title:TITLE_COLUMNS$}{cells}");
}

/// The first layer is the file system itself, no peer.
fn print_against_peers(rows: &[Row], layers: &[Layer], seconds: &[Vec<Vec<f64>>]) {
    let is_ours = |at: &usize| layers[*at].name.starts_with(OURS);
    for ours in (1..layers.len()).filter(is_ours) {
        println!(
            "\n{}, its rate as a multiple of the fastest other layer's (95% interval)",
            layers[ours].name
        );
        for (row, figures) in rows.iter().zip(seconds) {
            let peers = (1..layers.len()).filter(|at| !is_ours(at));
            let best = peers
                .filter_map(|at| Some((at, median(&figures[at])?)))
                .min_by(|(_, a), (_, b)| a.total_cmp(b));
            let (Some((best, theirs)), Some(mine)) = (best, median(&figures[ours])) else { continue };
            let interval = ratio_interval(&figures[ours], &figures[best])
                .map_or(String::new(), |found| format!("({:.2} to {:.2})", found.low, found.high));
            let (title, ratio, name) = (&row.title, theirs / mine, &layers[best].name);
            println!("{title:TITLE_COLUMNS$}{ratio:>LAYER_COLUMNS$.2}  {interval:<18}  {name}");
        }
    }
}
