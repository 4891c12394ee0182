//! One run as text.

use measure::{Environment, RunRecord};
use report::bytes_text;

use super::OpsOf;
use crate::layout::named;
use crate::tables;

/// The run as text for a terminal of 80 columns: points, operations, settings, environment, and the verdict last.
pub(super) fn run_text(record: &RunRecord, ops: OpsOf) -> String {
    let took = humantime::format_duration(std::time::Duration::from_secs(
        record.ended.duration_since(record.started).as_secs().max(0) as u64,
    ));
    let mut text = [
        named("Run", &record.id.0),
        named("Label", &record.label),
        named("Target", &record.target),
        named("Began", &format!("{}, took {took}", record.started.strftime("%Y-%m-%d %H:%M:%S UTC"))),
        named("Command", &command_line(&record.command)),
        named("Seed", &record.seed.to_string()),
        "\n".to_owned(),
        tables::load_points(record),
    ]
    .concat();
    match ops {
        OpsOf::All => record.points.iter().for_each(|point| text.push_str(&tables::operations(point))),
        OpsOf::Highest => text.extend(tables::telling_point(record).map(tables::operations)),
        OpsOf::None => {}
    }
    text.push_str(&tables::generator(record));
    text.extend(tables::telling_point(record).map(tables::ranks));
    text.push_str(&tables::curves(record));
    text.push_str(&tables::phases(&record.phases));
    text.push_str(&config(&record.config));
    text.push_str(&environment(&record.environment));
    text.push_str(&tables::summary(record));
    text
}

/// As a shell takes it.
fn command_line(words: &[String]) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "-_./:=,+%@".contains(letter);
    let quoted = words.iter().map(|word| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// What the benchmark was asked, but for what is empty or a text of its own (a workload file).
fn config(config: &serde_json::Value) -> String {
    let mut text = String::new();
    for (name, value) in config.as_object().into_iter().flatten() {
        let value = match value {
            serde_json::Value::Null => continue,
            serde_json::Value::String(words) if words.contains('\n') => continue,
            serde_json::Value::String(words) => words.clone(),
            other => other.to_string(),
        };
        text.push_str(&named(name, &value));
    }
    if text.is_empty() { text } else { format!("Asked\n{text}\n") }
}

fn environment(environment: &Environment) -> String {
    let known = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
    let mut text = [
        "Environment\n".to_owned(),
        named("Crumb", &format!("{}, {} build", environment.version(), known(&environment.build_profile))),
        named("Host", &format!("{}, {}", known(&environment.host), known(&environment.kernel))),
        named("CPU", &format!("{}, {} usable", known(&environment.cpu_model), environment.cpus)),
        named("Memory", &bytes_text(environment.memory_bytes)),
    ]
    .concat();
    let governor = environment.cpu_governor.as_deref().map(|governor| named("CPU governor", governor));
    let clock = environment.clock_source.as_deref().map(|clock| named("Clock source", clock));
    text.extend(governor.into_iter().chain(clock));
    text.push_str(&named("Load average", &format!("{} when the run began", environment.load_average)));
    if let Some(mount) = &environment.mount {
        let what = format!("{} ({}) on {}, {}", mount.device, mount.fs_type, mount.path, mount.options);
        text.push_str(&named("Mount", &what));
    }
    text.push('\n');
    text
}
