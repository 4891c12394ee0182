//! What a run of overhead will do, and what a killed one would leave.

use std::path::PathBuf;

use overhead::{OverheadConfig, PREFIX, Work};

use super::OverheadArgs;
use crate::forecast::{Forecast, Levels};

impl OverheadArgs {
    pub(super) fn config(&self, own_part: &str) -> OverheadConfig {
        OverheadConfig {
            files: self.files,
            file_bytes: self.file_bytes,
            rounds: self.rounds,
            build: self.build.clone(),
            ..OverheadConfig::new(own_part)
        }
    }

    pub(super) fn forecast(&self, own_part: &str, [lower, mount]: &[PathBuf; 2]) -> Forecast {
        let config = self.config(own_part);
        let (lower, mount) = (lower.display(), mount.display());
        let sides = if self.no_floor { 2 } else { 3 };
        let files = sides * u64::from(self.files.get());
        Forecast {
            benchmark: "overhead",
            target: mount.to_string(),
            what: format!("{} kinds of operation in {lower} and through {mount}, in turns", Work::ALL.len()),
            levels: Some(Levels::exactly("rounds", config.rounds.get().into())),
            operations: Some(sides * u64::from(config.rounds.get()) * config.operations()),
            files: Some(files),
            bytes: Some(files * u64::from(self.file_bytes)),
            besides: match &config.build {
                Some(_) => format!("{} builds", 2 * config.rounds.get()),
                None => String::new(),
            },
            work_directory: Some(format!(
                "{}{lower}/{PREFIX}{own_part}-lower and {mount}/{PREFIX}{own_part}-mount",
                if self.no_floor { String::new() } else { format!("a floor mounted in {lower}, ") }
            )),
            ..Forecast::default()
        }
    }
}

pub(super) fn would_leave([lower, mount]: &[PathBuf; 2], config: &OverheadConfig) -> String {
    let (lower, mount) = (lower.display(), mount.display());
    format!(
        "{PREFIX}{name}-lower in {lower} and {PREFIX}{name}-mount in {mount}; `crumb clean {lower}` and `crumb clean {mount}` \
         remove them",
        name = config.name
    )
}
