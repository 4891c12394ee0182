//! Compares a run's record with a committed one, field by field, what the machine decides masked.
//!
//! ```text
//! record (JSON) -> mask: times, rates, host, ports -> compare with FOLDER/NAME.json, or write it (UPDATE_GOLDENS=1)
//! ```
//!
//! Kept: names of fields, metrics, counters, phases and curves; their types; the order of lists; settings; what the
//! seed decides (counts, shares, digests); verdict codes that do not hang on the machine.
//! Masked: numbers whose name ends in a unit of time or a rate, latencies but for their count, the environment,
//! hosts, ports and the run's name. Left out: what only some machines have (a device's counters, findings on
//! timing). The tables below are the only copy of these rules.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

/// Environment variable that has the golden files written instead of compared.
const UPDATE: &str = "UPDATE_GOLDENS";

/// Endings of names whose numbers the machine decides.
const ENDINGS: [&str; 6] = ["_us", "_s", "_ms", "_minutes", "_per_sec", "_us_per_article"];

/// Names without such an ending whose values the machine decides too.
const MASKED: [&str; 19] = [
    "sent_together_share",
    "transport_full_share",
    "id",
    "started",
    "ended",
    "host",
    "histogram",
    "generator_busy",
    "held",
    "time_share_percent",
    "all_worked_items",
    "cpu_percent",
    "unbatch_user_percent",
    "unbatch_sys_percent",
    "ageing_percent",
    "ageing_per_pass_percent",
    "ageing_per_pass_low_percent",
    "ageing_per_pass_high_percent",
    "read_gone",
];

/// A planned rate is a setting, though it is called like a measured one.
const KEPT: [&str; 1] = ["offered_per_sec"];

/// Begins of names that are there on some machines, or in some runs, only. The figures of an open loop come from levels at
/// which the machine was not late.
const COMES_AND_GOES: [&str; 11] = [
    "annotations",
    "cost_",
    "device_",
    "held_per_sec",
    "history_device_",
    "machine_",
    "overall_response_us",
    "pays_from_files_",
    "peak_per_sec",
    "saturation_per_sec",
    "time_series",
];

/// Codes of findings that hang on the machine, its load or the build.
const CODES: [&str; 22] = [
    "bound-unclear",
    "cache-bound",
    "cpu-bound",
    "debug-build",
    "device-bound",
    "figures-late",
    "sends-late",
    "generator-busy",
    "generator-late",
    "machine-disturbed",
    "measured-again",
    "offered-off",
    "other-levels",
    "pays-from",
    "rank-short",
    "rate-off",
    "server-bound",
    "short",
    "short-passes",
    "start-skew",
    "transport-full",
    "uneven-ranks",
];

/// Golden records in a folder.
pub struct Golden {
    folder: PathBuf,
    replaced: Vec<(String, &'static str)>,
    masked: &'static [&'static str],
    left_out: &'static [&'static str],
    counts_masked: bool,
}

impl Golden {
    /// Those in `folder`.
    pub fn records(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), replaced: Vec::new(), masked: &[], left_out: &[], counts_masked: false }
    }

    /// Replaces a text that differs from run to run, such as the path of a temporary directory.
    #[must_use]
    pub fn replacing(mut self, text: impl Into<String>, with: &'static str) -> Self {
        self.replaced.push((text.into(), with));
        self
    }

    /// Masks numbers whose names begin so, beside those of the rules.
    #[must_use]
    pub fn masking(mut self, begins: &'static [&'static str]) -> Self {
        self.masked = begins;
        self
    }

    /// Leaves out fields and findings whose names and codes begin so: on another machine they may not be there.
    #[must_use]
    pub fn leaving_out(mut self, begins: &'static [&'static str]) -> Self {
        self.left_out = begins;
        self
    }

    /// Masks all numbers and digests outside the settings: for runs whose amounts hang on the clock.
    #[must_use]
    pub fn counts_masked(mut self) -> Self {
        self.counts_masked = true;
        self
    }

    /// Holds that `record` is what the golden file `name` says.
    ///
    /// # Panics
    /// When it is not, with each difference by its path.
    pub fn holds(&self, name: &str, record: &str) {
        self.holds_one_of(name, 1, || record.to_owned());
    }

    /// Holds that one of up to `tries` records is what the golden file says: in an open loop the operations are those of
    /// the seed only where none was sent too late, and a busy machine spoils some runs.
    ///
    /// # Panics
    /// When none is, with each difference of the last one.
    pub fn holds_one_of(&self, name: &str, tries: u32, mut record: impl FnMut() -> String) {
        let mut found = || {
            let record: Value = serde_json::from_str(&record()).expect("a record is JSON");
            assert_declared(name, &record);
            (self.masked(&record), repeated_levels(&record))
        };
        let path = self.folder.join(format!("{name}.json"));
        if std::env::var_os(UPDATE).is_some() {
            let mut last = found().0;
            // Two in a row that are alike were not spoilt.
            for _ in 1..tries {
                let next = found().0;
                if last == next {
                    break;
                }
                last = next;
            }
            return write(&path, &last);
        }
        let golden = std::fs::read_to_string(&path)
            .unwrap_or_else(|why| panic!("{}: {why}; {UPDATE}=1 writes it", path.display()));
        let golden: Value = serde_json::from_str(&golden).expect("a golden record is JSON");
        let mut differences = Vec::new();
        for _ in 0..tries {
            differences.clear();
            let (found, repeated) = found();
            let counts_masked = |record: &Value| self.counts_masked_in(record, &repeated);
            compare("", &counts_masked(&golden), &counts_masked(&found), &mut differences);
            if differences.is_empty() {
                return;
            }
        }
        panic!(
            "{name}: the record differs from {} in {} places; where that is meant, run the test with {UPDATE}=1 and \
             read the diff:\n{}",
            path.display(),
            differences.len(),
            differences.join("\n")
        );
    }

    /// A masked record in which the counts of these levels are masked, too. With any of them, so are those of the last phase, and
    /// phases in between are left out: other operations leave another file set to remove, and a level that is measured again at the
    /// end may need its set shrunk.
    fn counts_masked_in(&self, record: &Value, levels: &[usize]) -> Value {
        let mask = Mask { text: vec![], masked: &[], left_out: &[], counts_masked: true };
        let mut record = record.clone();
        if let Some(phases) = record["phases"].as_array_mut()
            && !levels.is_empty()
            && let Some(last) = phases.pop()
        {
            phases.truncate(1);
            phases.push(mask.value("phases", &last, false));
        }
        for level in levels {
            if let Some(point) = record["points"].get_mut(*level) {
                *point = mask.value("points", point, false);
            }
        }
        record
    }

    fn masked(&self, record: &Value) -> Value {
        let mut text = self.replaced.clone();
        // Names of files made for the run end in the four digits of its own name.
        let id = record["id"].as_str().unwrap_or_default();
        if let Some(own) = id.splitn(3, '-').nth(2) {
            text.push((format!("crumb-{own}"), "crumb-<run>"));
        }
        let mask =
            Mask { text, masked: self.masked, left_out: self.left_out, counts_masked: self.counts_masked };
        let Value::Object(fields) = record else { panic!("a record is an object") };
        let field = |(name, value): (&String, &Value)| {
            let value = match name.as_str() {
                "environment" => names_only(value),
                "config" => mask.settings(value),
                "declarations" => lines(value, self.left_out),
                "seed" | "schema" => value.clone(),
                _ => mask.value(name, value, false),
            };
            (name.clone(), value)
        };
        Value::Object(fields.iter().map(field).collect())
    }
}

struct Mask {
    text: Vec<(String, &'static str)>,
    masked: &'static [&'static str],
    left_out: &'static [&'static str],
    counts_masked: bool,
}

impl Mask {
    /// `in_group`: within a group of latencies, whose members all have its unit but for their count.
    fn value(&self, name: &str, value: &Value, in_group: bool) -> Value {
        let digest = self.counts_masked && name == "operations_digest";
        let masked = in_group && name != "count" || is_masked(name) || digest || begins(self.masked, name);
        match value {
            Value::Object(fields) if fields.contains_key("reasons") => self.verdict(fields),
            Value::Object(fields) if fields.contains_key("lines") => self.curve(fields),
            Value::Object(fields) => {
                let group = ENDINGS.iter().any(|unit| name.ends_with(unit));
                let stays = |name: &str| !begins(&COMES_AND_GOES, name) && !begins(self.left_out, name);
                let field = |(name, value): (&String, &Value)| (name.clone(), self.value(name, value, group));
                Value::Object(fields.iter().filter(|(name, _)| stays(name)).map(field).collect())
            }
            Value::Array(items) => items.iter().map(|item| self.value(name, item, in_group)).collect(),
            Value::Number(_) | Value::String(_) if masked => type_of(value),
            Value::Number(_) if self.counts_masked => type_of(value),
            Value::String(text) => self.text(text).into(),
            other => other.clone(),
        }
    }

    /// The checked configuration: its numbers are what was asked for.
    fn settings(&self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let field = |(name, value): (&String, &Value)| match name.as_str() {
                    "hosts" => (name.clone(), self.hosts(value)),
                    // Chosen by what the machine has free and allows.
                    "wait" | "cpus_awake" => (name.clone(), "<machine>".into()),
                    _ => (name.clone(), self.settings(value)),
                };
                Value::Object(fields.iter().map(field).collect())
            }
            Value::Array(items) => items.iter().map(|item| self.settings(item)).collect(),
            Value::String(text) => self.text(text).into(),
            other => other.clone(),
        }
    }

    fn hosts(&self, value: &Value) -> Value {
        value.as_array().into_iter().flatten().map(type_of).collect()
    }

    /// Without findings that hang on the machine, and as valid as what is left says.
    fn verdict(&self, fields: &Map<String, Value>) -> Value {
        let all = fields["reasons"].as_array().cloned().unwrap_or_default();
        let ours = |reason: &Value| {
            let code = reason["code"].as_str().unwrap_or_default();
            !CODES.contains(&code) && !begins(self.left_out, code)
        };
        let reasons: Vec<Value> = all
            .into_iter()
            .filter(ours)
            .map(|mut reason| {
                let text = reason["text"].as_str().unwrap_or_default();
                reason["text"] = without_numbers(&self.text(text)).into();
                reason
            })
            .collect();
        let valid = !reasons.iter().any(|reason| reason["fatal"] == true);
        serde_json::json!({ "valid": valid, "reasons": reasons })
    }

    fn curve(&self, fields: &Map<String, Value>) -> Value {
        let name = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or_default();
        let by_time = is_masked(&format!("_{}", name("over")));
        let masked = by_time || is_masked(name("name")) || self.counts_masked;
        let point = |point: &Value| {
            let mut point = point.clone();
            for (field, masked) in [("x", by_time), ("y", masked), ("low", masked), ("high", masked)] {
                if masked && (matches!(field, "x" | "y") || !point[field].is_null()) {
                    point[field] = type_of(&point[field]);
                }
            }
            point
        };
        let line = |line: &Value| {
            let mut line = line.clone();
            let points = line["points"].as_array().cloned().unwrap_or_default();
            // How many minutes a run lasts the machine decides.
            let points = points.iter().map(point).take(if by_time { 1 } else { usize::MAX });
            line["points"] = points.collect();
            line
        };
        let mut fields = fields.clone();
        let lines = fields["lines"].as_array().cloned().unwrap_or_default();
        fields.insert("lines".to_owned(), lines.iter().map(line).collect());
        Value::Object(fields)
    }

    fn text(&self, text: &str) -> String {
        let replaced =
            self.text.iter().fold(text.to_owned(), |text, (this, by)| text.replace(this.as_str(), by));
        without_port(&replaced)
    }
}

/// Levels that a busy machine had measured again, by their place: the seed's operations of the first attempt are used up, so that
/// the second has those that follow.
fn repeated_levels(record: &Value) -> Vec<usize> {
    let is_repeated = |point: &Value| {
        let reasons = point["verdict"]["reasons"].as_array();
        reasons.into_iter().flatten().any(|reason| reason["code"] == "measured-again")
    };
    let points = record["points"].as_array().into_iter().flatten();
    points.enumerate().filter(|(_, point)| is_repeated(point)).map(|(place, _)| place).collect()
}

/// A metric that its benchmark does not declare has no title, and no order among the others.
fn assert_declared(name: &str, record: &Value) {
    let declared: Vec<&Value> =
        record["declarations"].as_array().into_iter().flatten().map(|one| &one["name"]).collect();
    let metrics = record["metrics"].as_object().into_iter().flatten().map(|(metric, _)| metric);
    let missing: Vec<&String> =
        metrics.filter(|metric| !declared.contains(&&Value::from(metric.as_str()))).collect();
    assert!(missing.is_empty(), "{name}: emitted and not declared: {missing:?}");
}

fn begins(these: &[&str], name: &str) -> bool {
    these.iter().any(|begin| name.starts_with(begin))
}

fn is_masked(name: &str) -> bool {
    let by_unit = ENDINGS.iter().any(|unit| name.ends_with(unit)) && !KEPT.contains(&name);
    by_unit || MASKED.contains(&name)
}

fn type_of(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => "<float>",
        Value::Number(_) => "<integer>",
        Value::String(_) => "<text>",
        Value::Bool(_) => "<bool>",
        Value::Null => "<null>",
        Value::Array(_) | Value::Object(_) => "<group>",
    }
    .into()
}

/// What the machine is: only which facts of it are there. Whether a build knows its commit is not the machine's.
fn names_only(value: &Value) -> Value {
    let fields = value.as_object().into_iter().flatten().filter(|(name, _)| *name != "crumb_commit");
    Value::Object(fields.map(|(name, _)| (name.clone(), "<machine>".into())).collect())
}

/// Each declaration in one line, so that the files stay short.
fn lines(declarations: &Value, left_out: &[&str]) -> Value {
    let line = |metric: &Value| {
        let text = |field: &str| metric[field].as_str().unwrap_or_default().to_owned();
        let headline = if metric["headline"] == true { ", headline" } else { "" };
        let (name, unit, title) = (text("name"), text("unit"), text("title"));
        Value::from(format!("{name} [{unit}] {title}: {}{headline}", text("better")))
    };
    let shown = |metric: &&Value| {
        let name = metric["name"].as_str().unwrap_or_default();
        !begins(&COMES_AND_GOES, name) && !begins(left_out, name)
    };
    declarations.as_array().into_iter().flatten().filter(shown).map(line).collect()
}

/// `127.0.0.1:` with a placeholder for the port.
fn without_port(text: &str) -> String {
    const HOST: &str = "127.0.0.1:";
    let mut pieces = text.split(HOST);
    let mut masked = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        masked += HOST;
        masked += "<port>";
        masked += piece.trim_start_matches(|sign: char| sign.is_ascii_digit());
    }
    masked
}

/// Each number in a sentence as one `#`.
fn without_numbers(text: &str) -> String {
    let mut masked = String::new();
    for sign in text.chars() {
        match sign {
            '0'..='9' if masked.ends_with('#') => {}
            '0'..='9' => masked.push('#'),
            other => masked.push(other),
        }
    }
    masked.replace("#.#", "#").replace("#,#", "#")
}

fn compare(path: &str, golden: &Value, found: &Value, differences: &mut Vec<String>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match (golden, found) {
        (Value::Object(golden), Value::Object(found)) => {
            for (name, value) in golden {
                match found.get(name) {
                    Some(of_run) => compare(&below(name), value, of_run, differences),
                    None => differences.push(format!("{}: golden {value}, the run has none", below(name))),
                }
            }
            for (name, value) in found.iter().filter(|(name, _)| !golden.contains_key(*name)) {
                differences.push(format!("{}: golden has none, the run {value}", below(name)));
            }
        }
        (Value::Array(golden), Value::Array(found)) => {
            if golden.len() != found.len() {
                differences.push(format!(
                    "{path}: golden has {} items, the run {}",
                    golden.len(),
                    found.len()
                ));
            }
            for (at, (value, of_run)) in golden.iter().zip(found).enumerate() {
                compare(&format!("{path}[{at}]"), value, of_run, differences);
            }
        }
        (golden, found) if golden != found => {
            differences.push(format!("{path}: golden {golden}, the run {found}"));
        }
        _ => {}
    }
}

fn write(path: &Path, record: &Value) {
    let text = serde_json::to_string_pretty(record).expect("a value is JSON") + "\n";
    std::fs::write(path, text).unwrap_or_else(|why| panic!("cannot write {}: {why}", path.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = r#"{"schema": 1, "id": "20261121-180000-fstress-3f9a", "config": {"files": 100, "warm_s": 0.5,
        "set": "crumb-fstress-3f9a", "at": "127.0.0.1:4711"}, "environment": {"host": "x"}, "seed": 7,
        "points": [{"offered_per_sec": 100.0, "sent_per_sec": 99.0, "latency_us": {"count": 50, "mean": 3.5}}],
        "curves": [{"name": "unbatch_per_sec", "over": "pass", "lines": [{"label": "a", "points": [{"x": 1.0, "y": 5.5}]}]}],
        "metrics": {"total_s": 1.5, "articles_stored": 12.0, "device_reads_per_sec": 3.0},
        "verdict": {"valid": false, "reasons": [
            {"code": "generator-late", "text": "late", "fatal": true},
            {"code": "few-samples", "text": "50 samples, 1.5% of 1,000", "fatal": false}]}}"#;

    fn differences(other: &str) -> Vec<String> {
        let golden = Golden::records("");
        let masked = |text: &str| golden.masked(&serde_json::from_str(text).unwrap());
        let mut found = Vec::new();
        compare("", &masked(RECORD), &masked(other), &mut found);
        found
    }

    #[test]
    fn what_the_machine_decides_makes_no_difference() {
        let other = RECORD
            .replace("3f9a", "0b1c")
            .replace("4711", "80")
            .replace("99.0", "98.0")
            .replace("3.5", "4.5")
            .replace("5.5", "6.5")
            .replace("\"total_s\": 1.5", "\"total_s\": 2.5")
            .replace(r#", "device_reads_per_sec": 3.0"#, "")
            .replace(r#"{"code": "generator-late", "text": "late", "fatal": true},"#, "")
            .replace("\"valid\": false", "\"valid\": true");
        assert!(RECORD != other);
        assert_eq!(differences(&other), Vec::<String>::new());
    }

    #[test]
    fn a_metric_gone_or_renamed_a_setting_and_a_count_make_one_each() {
        for (this, other, path) in [
            (r#""total_s": 1.5, "#, "", "metrics.total_s"),
            (r#""total_s""#, r#""whole_s""#, "metrics.whole_s"),
            (r#""total_s": 1.5"#, r#""total_s": 1"#, "metrics.total_s"),
            (r#""warm_s": 0.5"#, r#""warm_s": 0.25"#, "config.warm_s"),
            (r#""count": 50"#, r#""count": 51"#, "points[0].latency_us.count"),
            (r#""offered_per_sec": 100.0"#, r#""offered_per_sec": 101.0"#, "points[0].offered_per_sec"),
            ("12.0", "13.0", "metrics.articles_stored"),
            ("few-samples", "few", "verdict.reasons[0].code"),
            (r#""x": 1.0"#, r#""x": 2.0"#, "curves[0].lines[0].points[0].x"),
        ] {
            let found = differences(&RECORD.replace(this, other));
            assert!(found.iter().any(|line| line.starts_with(path)), "{this} as {other}: {found:?}");
        }
    }
}
