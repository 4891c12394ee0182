//! The sections that benchmarks bring: their views placed on axes, as text ready for the template.
//!
//! ```text
//! runs -> by benchmark -> registry: its views -> Section { View, View, ... } -> SectionView { Block { places in percent } }
//! ```
//!
//! Always holds: every number drawn is finite and in range, whatever an imported record says; which run a line is of counts
//! by the runs of the page.
//! Not here: what a benchmark shows (its own crate says), how it is laid out (the template).

mod bars;
pub(crate) mod over_time;
mod table;

use measure::view::{Place, Published, Section, Usual, View};
use measure::{BenchmarkRegistry, RunRecord};
use serde::Serialize;

use crate::Reference;
use crate::axis::Axis;
use crate::passes::PassFigure;
use bars::{BarsView, RangesView};
use over_time::OverTime;
use table::TableView;

/// The sections of a page.
#[derive(Debug, Default)]
pub(crate) struct Sections {
    all: Vec<SectionView>,
    /// Runs of the page, and what need not be shown of them.
    instead: Vec<(usize, Usual)>,
}

/// One section.
#[derive(Debug, Serialize)]
pub(crate) struct SectionView {
    id: String,
    title: String,
    read: String,
    /// Before all plots.
    first: bool,
    blocks: Vec<Block>,
    published: Option<Published>,
    /// Whether it has the switch of all published values: one section of a page does.
    switch: bool,
}

/// Figures side by side, or a table.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Block {
    Figures { figures: Vec<FigureView> },
    Table(TableView),
}

#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum FigureView {
    Bars(BarsView),
    Ranges(RangesView),
    Lines(OverTime),
    Passes(Box<PassFigure>),
}

/// A place on an axis, percent, and what stands there.
#[derive(Debug, Serialize)]
pub(crate) struct Tick {
    at: f64,
    text: String,
}

/// What is beyond is not believed: an imported record is wrong.
const LIMIT: f64 = 1e15;

fn believed(value: f64) -> bool {
    (0.0..LIMIT).contains(&value)
}

fn ticks(axis: &Axis, text: impl Fn(f64) -> String) -> Vec<Tick> {
    axis.ticks.iter().map(|value| Tick { at: axis.place(*value), text: text(*value) }).collect()
}

impl Sections {
    /// Of all runs, by benchmark in the order of their first runs.
    pub fn of(runs: &[RunRecord], registry: BenchmarkRegistry, reference: Reference) -> Self {
        let mut benchmarks: Vec<&str> = Vec::new();
        for run in runs {
            if !benchmarks.contains(&run.benchmark.as_str()) {
                benchmarks.push(&run.benchmark);
            }
        }
        let mut found = Self::default();
        for benchmark in benchmarks {
            let places: Vec<usize> = (0..runs.len()).filter(|at| runs[*at].benchmark == benchmark).collect();
            let mine: Vec<&RunRecord> = places.iter().map(|at| &runs[*at]).collect();
            for section in (registry.of(benchmark).views)(&mine) {
                found.add(section, &places, reference);
            }
        }
        if let Some(costs) = measure::cost_section(runs) {
            found.add(costs, &[], reference);
        }
        found
    }

    /// `places`: where on the page the runs are that the section counts from 0.
    fn add(&mut self, section: Section, places: &[usize], reference: Reference) {
        let shown = section.runs.iter().filter_map(|run| places.get(*run));
        self.instead.extend(shown.flat_map(|run| section.instead_of.iter().map(|usual| (*run, *usual))));
        let published = section.published.filter(|_| reference != Reference::Off);
        let figure = |view: View| match view {
            View::Bars(bars) => BarsView::of(&bars).map(FigureView::Bars),
            View::Ranges(ranges) => RangesView::of(&ranges).map(FigureView::Ranges),
            View::Lines(lines) => OverTime::of(&lines, places, &section.id).map(FigureView::Lines),
            View::ByPass(figure) => PassFigure::of(figure, &section.id, published.as_ref(), reference)
                .map(|figure| FigureView::Passes(Box::new(figure))),
            View::Table(_) => None,
        };
        let mut blocks: Vec<Block> = Vec::new();
        for view in section.items {
            match (view, blocks.last_mut()) {
                (View::Table(table), _) => blocks.push(Block::Table(TableView::of(table))),
                (view, Some(Block::Figures { figures })) => figures.extend(figure(view)),
                (view, _) => {
                    blocks.extend(figure(view).map(|figure| Block::Figures { figures: vec![figure] }))
                }
            }
        }
        if blocks.is_empty() {
            return;
        }
        let has_figures = blocks.iter().any(|block| match block {
            Block::Figures { figures } => {
                figures.iter().any(|figure| matches!(figure, FigureView::Passes(_)))
            }
            Block::Table(_) => false,
        });
        let switch =
            has_figures && published.is_some() && self.all.iter().all(|other| other.published.is_none());
        self.all.push(SectionView {
            id: section.id,
            title: section.title,
            read: section.read,
            first: section.place == Place::First,
            blocks,
            published,
            switch,
        });
    }

    pub fn all(&self) -> &[SectionView] {
        &self.all
    }

    /// Whether a section shows of this run what a page shows of every run.
    pub fn have(&self, run: usize, usual: Usual) -> bool {
        self.instead.contains(&(run, usual))
    }

    /// The figures by pass, in the order of the page.
    pub fn pass_figures(&self) -> impl Iterator<Item = &PassFigure> {
        let figures = self.all.iter().flat_map(|section| &section.blocks).flat_map(|block| match block {
            Block::Figures { figures } => figures.as_slice(),
            Block::Table(_) => &[],
        });
        figures.filter_map(|figure| match figure {
            FigureView::Passes(figure) => Some(&**figure),
            _ => None,
        })
    }
}

/// The runs of which a page shows curves itself.
pub(crate) fn with_own_curves<'r>(runs: &'r [RunRecord], sections: &Sections) -> Vec<&'r RunRecord> {
    let rest = runs.iter().enumerate().filter(|(at, _)| !sections.have(*at, Usual::Curves));
    rest.map(|(_, run)| run).collect()
}
