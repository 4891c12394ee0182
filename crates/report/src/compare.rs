//! Comparing: which of several sides is faster, by how much, and how sure that is.
//!
//! ```text
//! Side A (baseline): runs ─┐            ┌ Figure: medians, ratio B/A with interval, verdict   headline first
//! Side B:            runs ─┼─ compare ──┤ Figure ...
//! Side C:            runs ─┘            └ Caution: what speaks against believing it
//! ```
//!
//! Always holds: a sample is one run; the headline figures are judged by a 95% interval, all others together
//! by intervals that are right at once in 95% of cases (Bonferroni), since many figures looked at once
//! raise false alarms; a difference is "shown" only when the interval leaves out 1; open-loop load points are compared
//! at the same offered rate and with open-loop ones alone.
//! Not here: who the sides are (see `sides`), the intervals themselves (see `measure::statistics`), tables.

mod cautions;
mod figures;

use measure::statistics::{self, SAMPLES_ENOUGH, SAMPLES_MIN};
use measure::{BenchmarkRegistry, Better, RunRecord};
use serde::Serialize;

use crate::figures::{figure_text, grouped};
use crate::{ReportError, Result};

/// Runs of one of the things compared.
#[derive(Clone, Debug)]
pub struct Side {
    /// `A` for the baseline, `B`, and so on.
    pub name: String,
    /// What it is, for people.
    pub label: String,
    /// Its runs, in the order measured.
    pub runs: Vec<RunRecord>,
}

/// What came of comparing.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Name of the benchmark.
    pub benchmark: String,
    /// Confidence of every interval of a headline figure, and of all others together.
    pub confidence: f64,
    /// Number of ratios, other than those of headline figures, that share that confidence.
    pub corrected_for: usize,
    /// The baseline first.
    pub sides: Vec<SideView>,
    /// Headline figures first, then metrics, phases, load points and curves.
    pub figures: Vec<Figure>,
    /// What the reader must know before believing it.
    pub cautions: Vec<Caution>,
    /// Names of all settings that differ and were not to, `seed` among them; the cautions say how.
    pub settings_differ: Vec<String>,
}

/// A side, without its records.
#[derive(Clone, Debug, Serialize)]
pub struct SideView {
    /// `A`, `B`, ...
    pub name: String,
    /// What it is, for people.
    pub label: String,
    /// Target of its first run.
    pub target: String,
    /// Names of its runs.
    pub runs: Vec<String>,
    /// How many of them are INVALID.
    pub invalid: usize,
}

/// One figure on all sides.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Where it was found.
    pub kind: FigureKind,
    /// Its name with its unit: a metric's own, or such as `phase build: items_per_sec`.
    pub name: String,
    /// Its name in words.
    pub title: String,
    /// Its unit, as a declared metric has it.
    #[serde(skip)]
    pub unit: String,
    /// What is better.
    pub better: Better,
    /// True when it is judged by itself on some side.
    pub headline: bool,
    /// By side: the values of the runs that have it.
    pub sides: Vec<Samples>,
    /// Every side but the first against the first.
    pub against: Vec<Against>,
}

/// Where a figure was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// In `metrics`.
    Metric,
    /// In a phase.
    Phase,
    /// At an open-loop load point.
    LoadPoint,
    /// A curve: the geometric mean over all its points that every run has.
    Curve,
}

/// One side's values of a figure.
#[derive(Clone, Debug, Serialize)]
pub struct Samples {
    /// One a run.
    pub values: Vec<f64>,
    /// Their median; none without values.
    pub median: Option<f64>,
}

/// One side against the first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Against {
    /// Index of the side.
    pub side: usize,
    /// True when the figure answers for this side, and is judged by itself.
    pub headline: bool,
    /// Median of the side over the median of the baseline; none where there is none.
    pub ratio: Option<f64>,
    /// Lower end of the interval by which it was judged.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Confidence of this one interval: above 0.95 where several share 0.95.
    pub confidence: f64,
    /// What is shown.
    pub verdict: Verdict,
}

/// What a comparison shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Better than the baseline.
    Faster,
    /// Worse than the baseline.
    Slower,
    /// Different, and nobody knows what is better.
    Differs,
    /// The interval holds 1.
    NoDifferenceShown,
    /// Fewer than [`SAMPLES_MIN`] runs on a side.
    TooFewRepeats,
    /// Some value is not above zero, so that there is no ratio.
    NoRatio,
}

/// Something that speaks against believing a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Caution {
    /// Stable short name; of what the runs themselves remark, the remark's own.
    pub code: String,
    /// One sentence, for people.
    pub text: String,
}

/// What a gate such as `--fail-if-slower 5%` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// No headline figure is shown to be slower by more than the limit; with remarks where the interval reaches
    /// beyond it.
    Passed(Vec<String>),
    /// It cannot tell, and why.
    CannotTell(Vec<String>),
    /// These are slower by more than the limit.
    Slower(Vec<String>),
}

/// Confidence of the whole.
const CONFIDENCE: f64 = 0.95;

/// Compares `sides`, the first being the baseline. `chosen` names the metrics to be judged as headline figures; when
/// it is empty, those that a side's own records name are, else the first that they declare as a headline. What a field of the
/// configuration is to a comparison `registry` says.
///
/// # Errors
/// When there are fewer than two sides, a side without runs, a run on two sides, a chosen metric that nobody has,
/// or when the runs are not of one benchmark and kind of loop, or differ in a field by which it says what was done.
pub fn compare(sides: &[Side], chosen: &[String], registry: BenchmarkRegistry) -> Result<Comparison> {
    cautions::comparable(sides, registry)?;
    let chosen: &[String] = &chosen.iter().map(|name| name_today(name)).collect::<Vec<_>>();
    let mut found = figures::of(sides);
    let headlines: Vec<Headlines> =
        (1..sides.len()).map(|side| headlines_of(&found, sides, side, chosen)).collect::<Result<_>>()?;
    let is_compared = registry.of(&sides[0].runs[0].benchmark).is_compared;
    found.retain(|figure| {
        is_compared(&figure.name) || headlines.iter().any(|of| of.names.contains(&figure.name))
    });
    let answers = |figure: &Figure, side: usize| headlines[side - 1].names.contains(&figure.name);
    // Headline figures in the order in which they answer, the others as found.
    let in_order: Vec<&String> = headlines.iter().flat_map(|of| &of.names).collect();
    let rank =
        |figure: &Figure| in_order.iter().position(|name| **name == figure.name).unwrap_or(in_order.len());
    found.sort_by_key(rank);
    for figure in &mut found {
        figure.headline = rank(figure) < in_order.len();
    }
    let mut corrected_for = 0;
    for figure in &found {
        for side in (1..sides.len()).filter(|side| !answers(figure, *side)) {
            corrected_for += usize::from(is_a_test(&figure.sides[0], &figure.sides[side]));
        }
    }
    for figure in &mut found {
        let of_side = |side: usize| {
            let headline = answers(figure, side);
            // Several headlines of a side are only there when they were named: they share the confidence as well.
            let sharing = if headline { headlines[side - 1].names.len() } else { corrected_for.max(1) };
            let confidence = 1.0 - (1.0 - CONFIDENCE) / sharing as f64;
            against(figure, side, headline, confidence)
        };
        figure.against = (1..sides.len()).map(of_side).collect();
    }
    let view = |side: &Side| SideView {
        name: side.name.clone(),
        label: side.label.clone(),
        target: side.runs[0].target.clone(),
        runs: side.runs.iter().map(|run| run.id.0.clone()).collect(),
        invalid: side.runs.iter().filter(|run| !run.verdict.valid).count(),
    };
    Ok(Comparison {
        benchmark: sides[0].runs[0].benchmark.clone(),
        confidence: CONFIDENCE,
        corrected_for,
        sides: sides.iter().map(view).collect(),
        figures: found,
        cautions: headlines
            .into_iter()
            .filter_map(|of| of.caution)
            .chain(cautions::of(sides, registry))
            .collect(),
        settings_differ: cautions::settings_that_differ(sides, registry),
    })
}

/// A metric's name of today, when it is one of an earlier version.
fn name_today(name: &str) -> String {
    let renamed = measure::RENAMED_METRICS.iter().find(|(old, _)| *old == name);
    renamed.map_or(name, |(_, new)| new).to_owned()
}

/// What answers for one side.
struct Headlines {
    /// Names of figures; none when the side has no figure that says what is better.
    names: Vec<String>,
    /// That it is not what the side's runs name.
    caution: Option<Caution>,
}

fn headlines_of(found: &[Figure], sides: &[Side], side: usize, chosen: &[String]) -> Result<Headlines> {
    if let Some(wanted) = chosen.iter().find(|name| found.iter().all(|figure| figure.name != **name)) {
        let known = found.iter().map(|figure| figure.name.clone()).collect();
        return Err(ReportError::NoMetric { wanted: wanted.clone(), known });
    }
    if !chosen.is_empty() {
        return Ok(Headlines { names: chosen.to_vec(), caution: None });
    }
    let on_both = |figure: &&Figure| figure.sides[0].median.is_some() && figure.sides[side].median.is_some();
    let there = |name: &str| found.iter().filter(on_both).any(|figure| figure.name == name);
    let mut named: Vec<&String> = Vec::new();
    for name in
        [&sides[0], &sides[side]].into_iter().flat_map(|side| &side.runs).flat_map(|run| &run.headline)
    {
        if !named.contains(&name) {
            named.push(name);
        }
    }
    let usable: Vec<String> = named.iter().filter(|name| there(name)).map(|name| (*name).clone()).collect();
    if !usable.is_empty() {
        return Ok(Headlines { names: usable, caution: None });
    }
    let usual = sides[0].runs[0].declarations.iter().filter(|metric| metric.headline);
    let usual = usual.map(|metric| metric.name.clone()).find(|name| there(name));
    let any = || {
        let metrics = found.iter().filter(on_both).filter(|figure| figure.kind == FigureKind::Metric);
        metrics.into_iter().find(|figure| figure.better != Better::Unknown).map(|figure| figure.name.clone())
    };
    let names: Vec<String> = usual.or_else(any).into_iter().collect();
    let caution = named.first().map(|missing| Caution {
        code: "headline-missing".to_owned(),
        text: format!(
            "{} is to be judged by {missing}, which the runs lack: {} answers instead",
            sides[side].name,
            names.first().map_or("nothing", String::as_str)
        ),
    });
    Ok(Headlines { names, caution })
}

/// Whether comparing the two can go wrong: both have enough values, and not all the same one. A constant of the
/// configuration never raises a false alarm, so it takes no share of the confidence.
fn is_a_test(a: &Samples, b: &Samples) -> bool {
    let enough =
        |side: &Samples| side.values.len() >= SAMPLES_MIN && side.values.iter().all(|value| *value > 0.0);
    let constant = a.values.iter().chain(&b.values).all(|value| *value == a.values[0]);
    enough(a) && enough(b) && !constant
}

fn against(figure: &Figure, side: usize, headline: bool, confidence: f64) -> Against {
    let (a, b) = (&figure.sides[0], &figure.sides[side]);
    let estimate = statistics::ratio_interval_at(&a.values, &b.values, confidence);
    let plain = a.median.zip(b.median).filter(|(a, b)| *a > 0.0 && *b > 0.0).map(|(a, b)| b / a);
    let verdict = match estimate {
        None if a.values.len().min(b.values.len()) < SAMPLES_MIN => Verdict::TooFewRepeats,
        None => Verdict::NoRatio,
        Some(found) => match (figure.better, found.low > 1.0, found.high < 1.0) {
            (_, false, false) => Verdict::NoDifferenceShown,
            (Better::Unknown, ..) => Verdict::Differs,
            (Better::Higher, more, _) | (Better::Lower, _, more) if more => Verdict::Faster,
            _ => Verdict::Slower,
        },
    };
    Against {
        side,
        headline,
        ratio: estimate.map(|found| found.ratio).or(plain),
        low: estimate.map(|found| found.low),
        high: estimate.map(|found| found.high),
        confidence,
        verdict,
    }
}

impl Comparison {
    /// The first headline figure that answers for side number `side`.
    pub fn headline(&self, side: usize) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.against[side - 1].headline)
    }

    /// The one sentence that answers whether side number `side` is faster than the first.
    pub fn answer(&self, side: usize) -> String {
        let (a, b) = (&self.sides[0].name, &self.sides[side].name);
        let Some(figure) = self.headline(side) else {
            return self.invalid_alone(side).unwrap_or_else(|| {
                format!("{a} and {b} have no figure in common that says which is faster")
            });
        };
        let of = &figure.against[side - 1];
        if let (Verdict::TooFewRepeats, Some(why)) = (of.verdict, self.invalid_alone(side)) {
            return why;
        }
        match of.verdict {
            Verdict::Faster | Verdict::Slower | Verdict::Differs => {
                let word = match (of.verdict, of.ratio) {
                    (Verdict::Faster, _) => "is faster",
                    (Verdict::Slower, _) => "is slower",
                    (_, Some(ratio)) if ratio > 1.0 => "is higher",
                    _ => "is lower",
                };
                format!("{b} {word} {}", self.by(of))
            }
            Verdict::NoDifferenceShown => {
                let ends = of.low.zip(of.high);
                let [low, high] =
                    ends.map_or([String::new(), String::new()], |ends| [ends.0, ends.1].map(ratio_text));
                format!("no difference shown between {a} and {b} (ratio {low} to {high})")
            }
            Verdict::TooFewRepeats => format!(
                "too few repeats to tell {a} and {b} apart ({} of {a}, {} of {b}): at least {SAMPLES_MIN} of each, better {SAMPLES_ENOUGH} or more",
                figure.sides[0].values.len(),
                figure.sides[side].values.len()
            ),
            Verdict::NoRatio => {
                format!("{a} and {b} cannot be compared by figures that are not above zero")
            }
        }
    }

    /// That too few runs of one of the two sides are VALID to tell them apart; none where there are enough.
    fn invalid_alone(&self, side: usize) -> Option<String> {
        let both = [&self.sides[0], &self.sides[side]];
        let lacks = |side: &&&SideView| side.invalid > 0 && side.runs.len() - side.invalid < SAMPLES_MIN;
        let named: Vec<String> = both
            .iter()
            .filter(lacks)
            .map(|side| match (side.invalid, side.runs.len()) {
                (invalid, all) if invalid == all => format!("no run of {} is VALID", side.name),
                (invalid, all) => format!("{invalid} of {all} runs of {} are INVALID", side.name),
            })
            .collect();
        let [a, b] = both.map(|side| &side.name);
        (!named.is_empty()).then(|| {
            format!(
                "{a} and {b} cannot be compared: {}; at least {SAMPLES_MIN} VALID runs of each are needed",
                named.join(", ")
            )
        })
    }

    /// The medians behind the answer.
    pub fn behind(&self, side: usize) -> Option<String> {
        let figure = self.headline(side)?;
        let (a, b) = (&figure.sides[0], &figure.sides[side]);
        let runs = |samples: &Samples| match samples.values.len() {
            1 => "1 run".to_owned(),
            n => format!("{n} runs"),
        };
        Some(format!(
            "{}: median {} on {} ({}), {} on {} ({})",
            figure.title,
            figure_text(&figure.unit, a.median?),
            self.sides[0].name,
            runs(a),
            figure_text(&figure.unit, b.median?),
            self.sides[side].name,
            runs(b)
        ))
    }

    /// "by 12.3% (95% CI 10.1 to 14.6)": how far the figure itself lies from the baseline's.
    fn by(&self, of: &Against) -> String {
        let (Some(ratio), Some(low), Some(high)) = (of.ratio, of.low, of.high) else { return String::new() };
        let away = |ratio: f64| 100.0 * (ratio - 1.0).abs();
        let (near, far) = if ratio >= 1.0 { (away(low), away(high)) } else { (away(high), away(low)) };
        format!(
            "by {} ({}% CI {} to {})",
            percent_text(away(ratio)),
            grouped(100.0 * of.confidence, usize::from(of.confidence > 0.951)),
            bare_percent(near),
            bare_percent(far)
        )
    }

    /// Whether a headline figure of any side is shown to be slower than the baseline by more than
    /// `limit_percent` of the baseline's. Slower wins over not being able to tell. `may_differ` names settings that
    /// are meant to differ; any other that does leaves the gate unable to tell, as the sides did not do the same.
    pub fn gate(&self, limit_percent: f64, may_differ: &[String]) -> Gate {
        let (mut slower, mut unknown, mut remarks) = (vec![], vec![], vec![]);
        let limit = limit_percent / 100.0;
        let judged =
            self.figures.iter().map(|figure| (figure, figure.against.iter().filter(|of| of.headline)));
        for (figure, against) in judged {
            for of in against {
                let who = format!("{} on {}", figure.title, self.sides[of.side].name);
                let (Some(low), Some(high)) = (of.low, of.high) else {
                    unknown.push(match of.verdict {
                        Verdict::TooFewRepeats => match self.invalid_alone(of.side) {
                            Some(why) => why,
                            None => format!("{who}: too few repeats"),
                        },
                        _ => format!("{who}: some value is missing or not above zero"),
                    });
                    continue;
                };
                let (near, far) = match figure.better {
                    Better::Higher => (1.0 - high, 1.0 - low),
                    Better::Lower => (low - 1.0, high - 1.0),
                    Better::Unknown => {
                        unknown.push(format!(
                            "{who}: its name does not say whether more or less of it is slower"
                        ));
                        continue;
                    }
                };
                if near > limit {
                    slower.push(format!("{who} is slower {}", self.by(of)));
                } else if far > limit {
                    remarks.push(format!(
                        "{who}: the interval reaches to {} slower, so such a loss is not ruled out; more repeats would tell",
                        percent_text(100.0 * far)
                    ));
                }
            }
        }
        for side in (1..self.sides.len()).filter(|side| self.headline(*side).is_none()) {
            unknown.push(self.answer(side));
        }
        let differ: Vec<&str> = self
            .settings_differ
            .iter()
            .filter(|name| !may_differ.contains(name))
            .map(String::as_str)
            .collect();
        if !differ.is_empty() {
            unknown.push(format!(
                "the sides did not do the same, as these settings differ: {}; name those that may differ with --may-differ",
                differ.join(", ")
            ));
        }
        let distrusted = |code| self.cautions.iter().filter(move |caution| caution.code == code);
        unknown.extend(
            ["invalid-runs", "incomplete-runs"].into_iter().flat_map(distrusted).map(|c| c.text.clone()),
        );
        match (slower.is_empty(), unknown.is_empty()) {
            (false, _) => Gate::Slower(slower),
            (true, false) => Gate::CannotTell(unknown),
            (true, true) => Gate::Passed(remarks),
        }
    }
}

impl Figure {
    /// A verdict on this figure in a word: what is measured in bytes or CPU seconds is not "faster".
    pub fn word(&self, of: &Against) -> &'static str {
        let time = !self.name.contains("cpu") && self.unit != "B";
        match of.verdict {
            Verdict::Faster if time => "faster",
            Verdict::Slower if time => "slower",
            Verdict::Faster => "less",
            Verdict::Slower => "more",
            Verdict::Differs => "differs",
            Verdict::NoDifferenceShown => "none shown",
            Verdict::TooFewRepeats => "too few",
            Verdict::NoRatio => "no ratio",
        }
    }
}

/// A ratio with the digits that count: `0.982`, `1.12`, `46.3`, `1,204`.
pub fn ratio_text(ratio: f64) -> String {
    grouped(
        ratio,
        match ratio {
            ratio if ratio < 1.0995 => 3,
            ratio if ratio < 9.995 => 2,
            ratio if ratio < 99.95 => 1,
            _ => 0,
        },
    )
}

fn percent_text(percent: f64) -> String {
    format!("{}%", bare_percent(percent))
}

fn bare_percent(percent: f64) -> String {
    grouped(percent, if percent < 0.0995 { 2 } else { usize::from(percent < 99.95) })
}

#[cfg(test)]
mod tests;
