//! What the scratch directories have shown so far: costs by size, flat and laid out.

use std::time::Duration;

use files::Layout;
use measure::{Curve, CurveLine};
use report::count_text;
use stackfs::advise::{Cost, CostCurve, MountCost};

/// What the scratch directories showed.
#[derive(Debug)]
pub struct Measured {
    /// The day's mean operation.
    pub day: Curve,
    /// Cost of making a file, by directory size. It predicts how long a larger directory takes to fill.
    pub add: Curve,
    /// What a mount adds, or why that is not known.
    pub mount: Result<MountCost, String>,
    /// From which size the layout pays in all.
    pub pays: Option<String>,
    pub remarks: Vec<String>,
    /// Something was left out for want of time.
    pub cut_short: bool,
    pub took: Duration,
}

impl Default for Measured {
    fn default() -> Self {
        let curve = |name: &str| Curve { name: name.to_owned(), over: "files".to_owned(), lines: Vec::new() };
        Self {
            day: curve("day_us"),
            add: curve("add_us"),
            mount: Err("there was no time for it".to_owned()),
            pays: None,
            remarks: Vec::new(),
            cut_short: false,
            took: Duration::ZERO,
        }
    }
}

impl Measured {
    /// The day's cost in directories of a layout; none when no size was measured.
    pub fn curve(&self, layout: Layout) -> Option<CostCurve> {
        let curve = CostCurve::new(points_of(&self.day, layout));
        (curve.sizes() > 0).then_some(curve)
    }

    /// The largest size measured in a layout; 0 before the first one.
    pub fn largest(&self, layout: Layout) -> u64 {
        points_of(&self.day, layout).last().map_or(0, |(files, _)| *files as u64)
    }

    /// Takes in what a run of dirscale measured.
    pub fn keep(&mut self, curves: &[Curve]) {
        for kept in [&mut self.day, &mut self.add] {
            let lines = curves.iter().filter(|curve| curve.name == kept.name).flat_map(|curve| &curve.lines);
            for CurveLine { label, points } in lines {
                match kept.lines.iter_mut().find(|line| line.label == *label) {
                    Some(line) => line.points.extend(points.iter().copied()),
                    None => kept.lines.push(CurveLine { label: label.clone(), points: points.clone() }),
                }
            }
            kept.lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
        }
    }

    /// From which of the sizes measured flat on the layout is cheaper beyond doubt.
    pub fn pays_among_sizes(&self, layout: Layout) -> Option<String> {
        let managed = self.curve(layout)?;
        let both = |files: &f64| *files <= managed.largest();
        let flat: Vec<_> =
            points_of(&self.day, Layout::Flat).into_iter().filter(|(files, _)| both(files)).collect();
        let largest = count_text(flat.last()?.0 as u64);
        let cheaper =
            |(files, flat): &&(f64, Cost)| managed.at(*files).is_some_and(|cost| cost.high < flat.low);
        Some(match flat.iter().rev().take_while(cheaper).last() {
            Some((files, _)) => {
                format!(
                    "from {} files on, of the sizes measured (up to {largest})",
                    count_text(*files as u64)
                )
            }
            None => format!("at none of the sizes measured (up to {largest}) for certain"),
        })
    }
}

/// A layout's points in a curve, with their intervals.
pub fn points_of(curve: &Curve, layout: Layout) -> Vec<(f64, Cost)> {
    let line = curve.lines.iter().find(|line| line.label == layout.name());
    let points = line.map_or(&[][..], |line| &line.points);
    points
        .iter()
        .map(|point| {
            let (low, high) = (point.low.unwrap_or(point.y), point.high.unwrap_or(point.y));
            (point.x, Cost { us: point.y, low, high })
        })
        .collect()
}
