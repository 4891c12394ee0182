//! Which flags go with a sensitivity figure, and the files that it is written to.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use measure::RunRecord;
use report::sensitivity::Sensitivity;
use serde_json::json;

use super::super::FstressArgs;
use super::figure;
use super::plan::Plan;
use crate::context::Context;
use crate::exit::BadUsage;
use crate::output::{can_be_written, is_same_place, note, refuse_store, write_to};

impl FstressArgs {
    /// Files that results go to, by flag.
    pub(super) fn files(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let files = [
            ("--json", &self.output.json),
            ("--report", &self.output.report),
            ("--csv", &self.csv),
            ("--svg", &self.svg),
        ];
        files.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?)))
    }

    /// Finds out, before anything is measured, whether what comes of it can be written.
    pub(super) fn check_files(&self, context: &Context) -> anyhow::Result<()> {
        self.output.check(context)?;
        let files: Vec<_> = self.files().collect();
        for (at, (flag, path)) in files.iter().enumerate() {
            for (other, place) in &files[..at] {
                if path == place || is_same_place(path, place) {
                    let wrong = anyhow!("{other} and {flag} both name {}; name two files", path.display());
                    return Err(wrong.context(BadUsage));
                }
            }
        }
        for path in [&self.csv, &self.svg].into_iter().flatten().filter(|path| *path != Path::new("-")) {
            refuse_store(context, path)?;
            can_be_written(path)?;
        }
        Ok(())
    }

    pub(super) fn write(
        &self,
        plan: &Plan,
        figure: &Sensitivity,
        records: &[&RunRecord],
        context: &Context,
    ) -> anyhow::Result<()> {
        if let Some(path) = &self.csv {
            write_to(path, &figure::csv(figure, plan))?;
        }
        if let Some(path) = &self.svg {
            write_to(path, &report::svg::sensitivity(figure)?)?;
        }
        if let Some(path) = &self.output.json {
            let all = json!({ "command": context.command, "sensitivity": figure, "records": records });
            write_to(path, &format!("{all:#}\n"))?;
        }
        if let Some(path) = &self.output.report {
            write_to(path, &figure.render()?)?;
            note(context, &format!("Page: {}", path.display()));
        }
        Ok(())
    }

    /// What a figure has no use for.
    pub(super) fn check_alone(&self, ranks: u32) -> anyhow::Result<()> {
        if ranks > 1 {
            bail!("--vary measures from one generator; run it without MPI");
        }
        let series = &self.series;
        if !series.vs.is_empty() || series.repeat.is_some() || series.until_ci.is_some() {
            bail!("--vary measures each point once on one target; leave --repeat, --vs and --until-ci out");
        }
        if self.find_max.is_some() {
            bail!("--vary measures at one fixed rate; leave --find-max out and give --rate N");
        }
        if self.keep.is_some() || self.reuse.is_some() {
            bail!("--vary makes a new file set for each point; leave --keep and --reuse out");
        }
        Ok(())
    }
}
