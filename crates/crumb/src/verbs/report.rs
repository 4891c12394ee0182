//! `crumb report`: runs as pictures, in one HTML file or as SVGs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use measure::{RECORDS_BYTES_MAX, RunRecord, read_text};
use report::html::{self, Options};
use report::{Reference, Store};

use crate::context::Context;
use crate::declarations;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::counted;
use crate::output::{Destination, is_same_place, note, print, refuse_store, results_directory, write_file};

/// Draw runs as one HTML file that works offline
///
/// Latency against offered load, achieved against offered rate, operations, cumulative distributions, a netnews run
/// pass by pass, environment and verdicts; several runs share the plots.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  The last run, as report.html here:
    crumb report
  Two filers in one plot:
    crumb report 3f9a 77c0 -o filers.html --title 'Old filer and new'
  Repeats and their comparison, named by the first run:
    crumb report 3f9a -o old-and-new.html
  From files, without any store:
    crumb report filer-a.json filer-b.json -o filers.html
  Plots for a paper:
    crumb report last --svg plots/
  A news server of today beside those of 1996:
    crumb report last --svg plots/ --reference on")]
pub struct ReportArgs {
    /// Run ids (or unique beginnings or ends), `last`, or JSON files of a RunRecord or a series (`run --json`). The first run of a
    /// series means the whole series, and so does `last` while the newest run is the last of a series; other runs are drawn alone
    #[arg(value_name = "RUN", default_value = "last")]
    runs: Vec<String>,
    /// HTML file to write, `-` for standard output [default: report.html, none when only --svg is given]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Directory to write each plot to as an SVG file; created if missing, but not its parents
    #[arg(long, value_name = "DIR", value_parser = results_directory)]
    svg: Option<PathBuf>,
    /// Heading of the page [default: the runs' labels]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Published values beside a netnews run's own: `auto` draws them where one linear axis holds both, `on` in all
    /// figures, `off` nowhere. On the page each figure's can be switched
    #[arg(long, value_enum, default_value_t = Published::Auto, value_name = "WHERE")]
    reference: Published,
}

/// Where published values are drawn.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Published {
    Auto,
    On,
    Off,
}

impl From<Published> for Reference {
    fn from(asked: Published) -> Self {
        match asked {
            Published::Auto => Self::Auto,
            Published::On => Self::On,
            Published::Off => Self::Off,
        }
    }
}

/// Runs the verb.
pub fn run(args: ReportArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let runs = find(&args.runs, context)?;
    let reference = Reference::from(args.reference);
    if let Some(directory) = &args.svg {
        let plots = report::svg::all(&runs, declarations::REGISTRY, reference)?;
        fs::create_dir_all(directory)
            .with_context(|| format!("{}: cannot make this directory", directory.display()))?;
        for (name, text) in &plots {
            let path = directory.join(name);
            write_file(&path, text).context("cannot write the plot")?;
        }
        if plots.is_empty() {
            note(
                context,
                "these runs have neither load points nor curves nor passes, so there is nothing to plot",
            );
        } else if !context.quiet && !matches!(&args.output, Some(path) if path == Path::new("-")) {
            print(&format!("wrote {} to {}\n", counted(plots.len(), "plot", "plots"), directory.display()))?;
        }
    }
    let page_wanted = args.output.is_some() || args.svg.is_none();
    if page_wanted {
        let output = args.output.unwrap_or_else(|| PathBuf::from("report.html"));
        let is_run = |name: &String| is_run_file(name) && is_same_place(Path::new(name), &output);
        if let Some(name) = args.runs.iter().find(|name| is_run(name)) {
            let wrong = anyhow!("{name}: the report would be written over the run that it is made from");
            return Err(wrong.context(BadUsage));
        }
        let options = Options { title: args.title, reference, ..Options::default() };
        page(&runs, &options, Destination::new(Some(output)), context)?;
    }
    Ok(ExitStatus::Fine)
}

fn page(runs: &[RunRecord], options: &Options, output: Destination, context: &Context) -> anyhow::Result<()> {
    let page = html::render(runs, declarations::REGISTRY, options)?;
    match output {
        Destination::Stdout => print(&page)?,
        Destination::File(path) => {
            refuse_store(context, &path)?;
            write_file(&path, &page).context("cannot write the report")?;
            if !context.quiet {
                let points = match runs.iter().map(|run| run.points.len()).sum() {
                    0 => String::new(),
                    points => format!(" with {}", counted(points, "load point", "load points")),
                };
                print(&format!(
                    "wrote {} of {}{points}, {}; open it in a browser\n",
                    path.display(),
                    counted(runs.len(), "run", "runs"),
                    report::bytes_text(page.len() as u64),
                ))?;
            }
        }
    }
    Ok(())
}

/// Whether a run is named by its file and not by its place in the store.
fn is_run_file(name: &str) -> bool {
    name.contains('/') || name.ends_with(".json") || Path::new(name).is_file()
}

fn find(wanted: &[String], context: &Context) -> anyhow::Result<Vec<RunRecord>> {
    let mut store: Option<Store> = None;
    let mut runs = Vec::with_capacity(wanted.len());
    for name in wanted {
        let path = Path::new(name);
        if is_run_file(name) {
            let text = read_text(path, RECORDS_BYTES_MAX)
                .with_context(|| format!("{name}: cannot read this RunRecord"))?;
            let of_file = RunRecord::all_from_json(&text);
            let of_file = of_file.with_context(|| format!("{name}: cannot be reported on"))?;
            runs.extend(of_file.into_iter().map(|run| run.declared_by(declarations::REGISTRY)));
            continue;
        }
        if store.is_none() {
            store = Some(context.store_with_runs()?);
        }
        let Some(store) = &store else { continue };
        let run = store.find(name)?;
        // A series is named by its first run, and is what `last` means while its last run is the newest.
        match run.series.as_ref().filter(|place| name == "last" || place.of == run.id) {
            Some(place) if wanted.len() == 1 => runs.extend(store.series(&place.of.0)?),
            _ => runs.push(run),
        }
    }
    Ok(runs)
}
