//! One bar or one range a row, on a common axis.

use measure::view::{Bar, Bars, Range, Ranges};
use serde::Serialize;

use super::{Tick, believed, ticks};
use crate::axis::Axis;
use crate::figures::grouped;

#[derive(Debug, Serialize)]
pub(crate) struct BarsView {
    title: &'static str,
    read: &'static str,
    axis: &'static str,
    rows: Vec<BarView>,
    ticks: Vec<Tick>,
}

#[derive(Debug, Serialize)]
struct BarView {
    name: String,
    /// Percent of the axis, as all places here.
    at: f64,
    text: String,
    published: Option<f64>,
    tip: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct RangesView {
    title: &'static str,
    read: &'static str,
    rows: Vec<RangeView>,
    ticks: Vec<Tick>,
}

#[derive(Debug, Serialize)]
struct RangeView {
    name: String,
    p50: f64,
    p99: f64,
    max: f64,
    text: String,
    tip: String,
}

impl BarsView {
    /// None when no row can be believed.
    pub fn of(view: &Bars) -> Option<Self> {
        let rows = || view.rows.iter().filter(|row| believed(row.value));
        let highest = rows().map(|row| row.value.max(row.published.unwrap_or(0.0))).fold(0.0, f64::max);
        let axis = match view.unit {
            "%" => Axis::fixed(100.0, &[0.0, 25.0, 50.0, 75.0, 100.0]),
            _ => Axis::linear(1.04 * highest, 5),
        };
        let bar = |row: &Bar| BarView {
            name: row.name.clone(),
            at: axis.place(row.value),
            text: row.text.clone(),
            published: row.published.filter(|value| believed(*value)).map(|value| axis.place(value)),
            tip: tip(&row.name, &row.facts),
        };
        let rows: Vec<BarView> = rows().map(bar).collect();
        (!rows.is_empty()).then(|| Self {
            title: view.title,
            read: view.read,
            axis: view.axis,
            rows,
            ticks: ticks(&axis, crate::svg::plain),
        })
    }
}

impl RangesView {
    /// None when no row can be believed.
    pub fn of(view: &Ranges) -> Option<Self> {
        let rows = || view.rows.iter().filter(|row| believed(row.p50_us) && believed(row.p99_us));
        let max = |row: &Range| row.max_us.filter(|us| believed(*us)).unwrap_or(row.p99_us);
        let positive = || rows().flat_map(|row| [row.p50_us, max(row)]).filter(|us| *us > 0.0);
        let axis = Axis::log(positive().fold(f64::INFINITY, f64::min), positive().fold(0.0, f64::max));
        let axis = axis.decades();
        let range = |row: &Range| RangeView {
            name: row.name.clone(),
            p50: axis.place(row.p50_us),
            p99: axis.place(row.p99_us),
            max: axis.place(max(row)),
            text: row.text.clone(),
            tip: tip(&row.name, &row.facts),
        };
        let rows: Vec<RangeView> = rows().map(range).collect();
        (!rows.is_empty()).then(|| Self {
            title: view.title,
            read: view.read,
            rows,
            ticks: ticks(&axis, us_text),
        })
    }
}

/// As the page's script takes it apart.
fn tip(name: &str, facts: &[(&'static str, String)]) -> String {
    let mut text = name.replace('|', " ");
    for (what, value) in facts {
        text.push_str(&format!("|{what}|{}", value.replace('|', " ")));
    }
    text
}

fn us_text(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{} s", grouped(us / 1e6, 0)),
        us if us >= 1e3 => format!("{} ms", grouped(us / 1e3, 0)),
        us if us >= 1.0 => format!("{} µs", grouped(us, 0)),
        us => format!("{us} µs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(p50_us: f64, p99_us: f64, max_us: Option<f64>) -> Range {
        Range { name: "x".to_owned(), p50_us, p99_us, max_us, text: String::new(), facts: vec![] }
    }

    #[test]
    fn a_range_lies_in_order_on_its_axis_and_nonsense_is_left_out() {
        let rows = vec![
            range(3.0, 30.0, Some(3000.0)),
            range(5.0, 50.0, Some(1e300)),
            range(f64::NAN, 30.0, None),
            range(3.0, -1.0, None),
        ];
        let view = RangesView::of(&Ranges { title: "", read: "", rows }).unwrap();
        assert_eq!(view.rows.len(), 2);
        let RangeView { p50, p99, max, .. } = view.rows[0];
        assert!(0.0 < p50 && p50 < p99 && p99 < max && max < 100.0, "{p50} {p99} {max}");
        assert_eq!(view.rows[1].p99, view.rows[1].max, "a slowest that cannot be is not drawn");
    }

    #[test]
    fn bars_of_shares_lie_on_an_axis_to_a_hundred_and_others_on_one_to_the_longest() {
        let bar = |value| Bar {
            name: "a|b".to_owned(),
            value,
            text: String::new(),
            published: Some(40.0),
            facts: vec![("count", "7".to_owned())],
        };
        let bars = |unit, rows| Bars { title: "", read: "", axis: "", unit, rows };
        let view = BarsView::of(&bars("%", vec![bar(20.0), bar(f64::INFINITY)])).unwrap();
        assert_eq!((view.rows.len(), view.rows[0].at, view.rows[0].published), (1, 20.0, Some(40.0)));
        assert_eq!(view.rows[0].tip, "a b|count|7");
        let view = BarsView::of(&bars("/s", vec![bar(20.0)])).unwrap();
        assert!(view.rows[0].at > 40.0 && view.rows[0].published.unwrap() > 90.0);
        assert!(BarsView::of(&bars("/s", vec![])).is_none());
    }
}
