//! What a run will do, how long it takes, and what a killed one would leave behind.

use files::Target;
use fstress::{FstressConfig, Keep, Load};

use super::FstressArgs;
use crate::forecast::{Forecast, Growing, Levels, Seconds};

impl FstressArgs {
    pub(super) fn forecast(&self, target: &Target, config: &FstressConfig) -> Forecast {
        let (least, most) = config.load.levels_expected();
        let is_null = matches!(target, Target::Null);
        // Nothing is stored there.
        let files = if is_null { Some(0) } else { config.files_max() };
        let raw = config.raw.as_ref().map(|raw| format!("; requests go to {}-rank-N.csv", raw.display()));
        Forecast {
            benchmark: "fstress",
            target: target.to_string(),
            what: format!(
                "{} on {target}, {}; seed {}{}",
                config.workload.name,
                config.load,
                config.seed,
                raw.unwrap_or_default()
            ),
            levels: Some(Levels { what: "load levels", least: least.into(), most: most.into() }),
            seconds: Some(Seconds {
                least: (config.warm + config.measure).as_secs_f64() * f64::from(least),
                // A level that is saturated is waited for.
                most: (config.warm + config.measure + config.drain).as_secs_f64() * f64::from(most),
            }),
            besides: besides(files, config),
            files,
            bytes: files.map(|files| config.workload.bytes_expected(files) as u64),
            growing: config.files_first().filter(|_| !is_null).map(|(rate, files)| Growing {
                rate,
                files,
                bytes: config.workload.bytes_expected(files) as u64,
            }),
            work_directory: (!is_null && config.workload.needs_files()).then(|| config.set_name.clone()),
            is_kept: config.keep != Keep::Remove,
            ..Forecast::default()
        }
    }
}

/// What takes time besides the schedule.
fn besides(files: Option<u64>, config: &FstressConfig) -> String {
    let files = match (files, config.keep) {
        (Some(0), _) => None,
        (_, Keep::Remove) => Some("make and remove the files"),
        (_, Keep::Keep | Keep::Reuse) => Some("make the files"),
    };
    let is_open = !matches!(config.load, Load::Max { .. });
    let late = is_open.then_some("measure a late level again");
    let works: Vec<&str> = files.into_iter().chain(late).collect();
    if works.is_empty() { String::new() } else { format!("the time to {}", works.join(", and to ")) }
}

pub(super) fn would_leave(config: &FstressConfig, target: &Target) -> String {
    let set = &config.set_name;
    if matches!(target, Target::Null) {
        return "nothing".to_owned();
    }
    match config.keep {
        Keep::Remove => format!("{set} in {target}; `crumb clean {target}` removes it"),
        Keep::Keep | Keep::Reuse => format!("{set} in {target}, which is kept; --reuse takes it up again"),
    }
}
