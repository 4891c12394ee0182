//! The points of a sensitivity figure, checked before anything is measured, and what they take together.

use anyhow::bail;
use fstress::Load;
use fstress::knobs::{Knob, KnobRange, Setting};
use measure::numbers::round_rate_text;
use report::bytes_text;

use super::super::FstressArgs;
use crate::forecast::{Forecast, span};
use crate::layout::{counted, wrapped};
use crate::shootout::plan::shell_line;

/// All of it.
pub struct Plan {
    /// What is measured, in a few words.
    pub title: String,
    /// Requests a second.
    pub rate: f64,
    /// What varies.
    pub vary: KnobRange,
    /// What makes the lines, if anything.
    pub lines: Option<KnobRange>,
    /// Line by line, each by rising value of the knob.
    pub points: Vec<Planned>,
    /// The order in which they are measured.
    pub order: Vec<usize>,
}

/// One run.
pub struct Planned {
    /// Its settings in words.
    pub name: String,
    /// Value of the knob that varies.
    pub x: f64,
    /// The flags of the run.
    pub args: FstressArgs,
    /// What makes it by itself.
    pub command: Vec<String>,
    forecast: Forecast,
}

/// Points of a figure at most.
const POINTS_MAX: usize = 500;
/// Flags with a value that belong to the figure and not to a point.
const OF_FIGURE: [&str; 9] = ["vary", "lines", "csv", "svg", "json", "report", "label", "set", "rate"];

/// The points that `args` asks for.
///
/// # Errors
/// When flags do not go together, or a point cannot be run.
pub fn of(args: &FstressArgs, ranks: u32, command: &[String]) -> anyhow::Result<Plan> {
    args.check_alone(ranks)?;
    let Some(mut vary) = args.vary.clone() else { bail!("nothing varies") };
    vary.values.sort_by(f64::total_cmp);
    if vary.values.len() < 2 {
        bail!("--vary: {} has one value; give at least two, or use --set", vary.knob);
    }
    if args.lines.as_ref().is_some_and(|lines| lines.knob == vary.knob) {
        bail!("--vary and --lines both name {}; name two knobs", vary.knob);
    }
    let rate = match Load::parse(&args.rate) {
        Ok(Load::Sweep(rates)) if rates.len() == 1 => rates[0],
        _ => bail!("--vary measures at one fixed rate: give --rate one number, such as --rate 1000"),
    };
    let line_settings: Vec<Option<Setting>> = match &args.lines {
        None => vec![None],
        Some(KnobRange { knob, values }) => {
            values.iter().map(|value| Some(Setting { knob: *knob, value: *value })).collect()
        }
    };
    if line_settings.len() * vary.values.len() > POINTS_MAX {
        bail!("more than {POINTS_MAX} points; ask for fewer values");
    }
    let mut points = Vec::new();
    for line in &line_settings {
        for &x in &vary.values {
            let settings: Vec<Setting> =
                std::iter::once(Setting { knob: vary.knob, value: x }).chain(*line).collect();
            points.push(planned(args, x, &settings, rate, command)?);
        }
    }
    let title = format!("{} on {}", args.workload, args.target);
    let order = drawn_order(points.len(), args.seed);
    Ok(Plan { title, rate, vary, lines: args.lines.clone(), points, order })
}

fn planned(
    args: &FstressArgs,
    x: f64,
    settings: &[Setting],
    rate: f64,
    command: &[String],
) -> anyhow::Result<Planned> {
    let words = |setting: &Setting| format!("{} {}", setting.knob, setting.knob.value_text(setting.value));
    let name = settings.iter().map(words).collect::<Vec<_>>().join(", ");
    if let Some(twice) = settings.iter().find(|own| args.set.iter().any(|set| set.knob == own.knob)) {
        bail!("--set {} is also varied; leave one of the two out", twice.knob);
    }
    let set: Vec<Setting> = args.set.iter().chain(settings).copied().collect();
    let of_point = args.of_point(set);
    let forecast = of_point.foreseen(&args.target, 1).map_err(|wrong| wrong.context(name.clone()))?;
    let command = command_of(command, &args.workload, &of_point.set, rate);
    Ok(Planned { name, x, args: of_point, command, forecast })
}

/// The command of one point: that of the figure without what is the figure's, with all settings. Without `--vary` another workload
/// is the default, so it is named.
fn command_of(figure: &[String], workload: &str, settings: &[Setting], rate: f64) -> Vec<String> {
    let mut words = figure.iter();
    let mut command = Vec::new();
    while let Some(word) = words.next() {
        let flag = word.strip_prefix("--").unwrap_or(if word == "-r" { "rate" } else { "" });
        let (flag, has_value) = flag.split_once('=').map_or((flag, false), |(flag, _)| (flag, true));
        if flag == "dry-run" {
            continue;
        }
        if !OF_FIGURE.contains(&flag) {
            command.push(word.clone());
        } else if !has_value {
            words.next();
        }
    }
    let names = |word: &String| word.starts_with("--workload") || word.starts_with("-w");
    if !command.iter().any(names) {
        command.extend(["--workload".to_owned(), workload.to_owned()]);
    }
    command.extend(["--rate".to_owned(), rate.to_string()]);
    command.extend(settings.iter().flat_map(|setting| ["--set".to_owned(), setting.to_string()]));
    command
}

/// All places in an order that `seed` draws (Fisher and Yates).
fn drawn_order(points: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points).collect();
    let mut state = seed;
    for at in (1..points).rev() {
        // SplitMix64: an order needs no better one.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        order.swap(at, ((mixed ^ (mixed >> 31)) % (at as u64 + 1)) as usize);
    }
    order
}

impl Plan {
    /// The label of a line.
    pub fn line_label(&self, line: usize) -> String {
        match &self.lines {
            None => self.title.clone(),
            Some(KnobRange { knob, values }) => format!("{knob} {}", knob.value_text(values[line])),
        }
    }

    /// The knob that makes the lines.
    pub fn line_knob(&self) -> Option<Knob> {
        self.lines.as_ref().map(|lines| lines.knob)
    }

    /// Points of one line.
    pub fn line_points(&self) -> usize {
        self.vary.values.len()
    }

    /// How many points, how long, how many bytes: the line at the start.
    pub fn totals(&self) -> String {
        let seconds = |of: fn(&crate::forecast::Seconds) -> f64| -> f64 {
            self.points.iter().filter_map(|point| point.forecast.seconds.as_ref().map(of)).sum()
        };
        let (least, most) = (span(seconds(|one| one.least)), span(seconds(|one| one.most)));
        let time = if least == most { least } else { format!("{least} to {most}") };
        let bytes = self.points.iter().filter_map(|point| point.forecast.bytes).max().unwrap_or(0);
        let lines = self.lines.as_ref().map_or_else(String::new, |lines| {
            format!(" for each of {} of {}", counted(lines.values.len(), "value", "values"), lines.knob)
        });
        format!(
            "{} at {}/s: {}, {} of {}{lines}; {time} by the schedule, and the time to make and remove the files of each \
             point, about {} at once",
            self.title,
            round_rate_text(self.rate),
            counted(self.points.len(), "point", "points"),
            counted(self.line_points(), "value", "values"),
            self.vary.knob,
            bytes_text(bytes),
        )
    }

    /// What `--dry-run` prints: the commands of all points.
    pub fn text(&self) -> String {
        let mut text = wrapped("", &format!("Would measure {}.", self.totals()));
        for point in &self.points {
            text.push_str(&wrapped(&format!("  {}  ", point.name), &shell_line(&point.command)));
        }
        text
    }

    /// For programs, what `--dry-run` says.
    pub fn json(&self) -> serde_json::Value {
        let point = |point: &Planned| serde_json::json!({ "name": point.name, "command": point.command });
        serde_json::json!({
            "dry_run": true,
            "totals": self.totals(),
            "order": self.order,
            "points": self.points.iter().map(point).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_a_point_makes_that_point_alone() {
        let figure = "crumb run fstress /mnt/a --vary memory-hit=0,1 --lines=disk-hit=0,1 --quick -r 500 --report f.html --set skew=1";
        let words: Vec<String> = figure.split(' ').map(str::to_owned).collect();
        let settings = ["skew=1", "memory-hit=0", "disk-hit=1"].map(|text| text.parse().unwrap());
        assert_eq!(
            command_of(&words, "web-proxy", &settings, 500.0).join(" "),
            "crumb run fstress /mnt/a --quick --workload web-proxy --rate 500 --set skew=1 --set memory-hit=0 --set disk-hit=1"
        );
        for named in ["--workload mail", "--workload=mail", "-w mail", "-wmail"] {
            let words: Vec<String> =
                format!("crumb run fstress d {named}").split(' ').map(str::to_owned).collect();
            let wanted = format!("crumb run fstress d {named} --rate 1");
            assert_eq!(command_of(&words, "mail", &[], 1.0).join(" "), wanted);
        }
    }

    #[test]
    fn the_order_has_every_point_once_and_is_not_that_of_the_knob() {
        let mut order = drawn_order(33, 1);
        assert_eq!(order, drawn_order(33, 1));
        assert_ne!(order, drawn_order(33, 2));
        assert!(order.windows(2).any(|pair| pair[0] > pair[1]));
        order.sort_unstable();
        assert_eq!(order, (0..33).collect::<Vec<_>>());
    }
}
