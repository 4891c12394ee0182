//! The page of `crumb doctor`, for people and for programs.

use anyhow::Context as _;
use doctor::{BasicOp, DirectoryFacts, Facts, Finding, ProgramOutlook, Step};
use measure::numbers::{bytes_text, count_text, figure_text, rate_text};

use crate::layout::{counted, grid, named, shortened, wrapped};
use crate::output::harmless;

/// Findings of less weight are worth knowing when figures are compared; nothing is wrong.
const WRONG_FROM: u32 = 40;
/// Findings of less weight are worth a line.
const FULL_TEXT_FROM: u32 = 30;

/// Which caches answer on this machine.
const CACHES: &str = "stat and read, cached: the kernel's caches answer. lookup of no file: another name each time. read, dropped: \
                      after its pages were dropped; caches of device, host or server may answer";

/// Facts and what follows from them.
pub struct Page {
    /// What was read and measured.
    pub facts: Facts,
    /// The heaviest first.
    pub findings: Vec<Finding>,
    /// How kinds of programs fare.
    pub programs: Vec<ProgramOutlook>,
    /// What to type.
    pub next: Vec<Step>,
}

impl Page {
    /// For programs.
    ///
    /// # Errors
    /// Never, in practice: all of it is plain values.
    pub fn json(&self) -> anyhow::Result<serde_json::Value> {
        let Self { facts, findings, programs, next } = self;
        let facts = serde_json::to_value(facts).context("cannot write the facts as JSON")?;
        Ok(serde_json::json!({
            "target": self.facts.target.place, "findings": findings, "programs": programs, "next": next, "facts": facts,
        }))
    }

    /// For people.
    pub fn text(&self) -> String {
        let sections = [
            self.first_lines(),
            self.machine(),
            self.target(),
            self.measured(),
            self.suffering(),
            self.last_lines(),
        ];
        sections
            .iter()
            .filter(|section| !section.is_empty())
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// The findings.
    fn first_lines(&self) -> String {
        let mut text = wrapped("", &format!("Findings for {}", self.facts.target.place));
        if self.findings.iter().all(|finding| finding.weight < WRONG_FROM) {
            let more = if self.findings.is_empty() { "" } else { " Worth knowing:" };
            text.push_str(&format!("  Nothing is wrong here.{more}\n"));
        }
        for (at, finding) in self.findings.iter().enumerate() {
            let number = format!("{:>3}. ", at + 1);
            if finding.weight >= FULL_TEXT_FROM {
                text.push_str(&wrapped(&number, &capitalized(&finding.text)));
                text.push_str(&wrapped("     ", &format!("-> {}", finding.advice)));
            } else {
                text.push_str(&wrapped(
                    &number,
                    &format!("{} ({})", capitalized(&finding.text), finding.advice),
                ));
            }
        }
        text
    }

    fn machine(&self) -> String {
        let machine = &self.facts.machine;
        let environment = &machine.environment;
        let kind = if machine.is_virtual { ", a virtual machine" } else { "" };
        let cpus = counted(environment.cpus as usize, "CPU", "CPUs");
        let processor =
            if environment.cpu_model.is_empty() { "processor unknown" } else { &environment.cpu_model };
        let mut text = named("Machine", &format!("{cpus} ({processor}), {}{kind}", environment.kernel));
        let quota = machine.cpu_quota.map_or("no CPU quota".to_owned(), |quota| format!("{quota:.2} CPUs"));
        let memory = machine
            .memory_bytes_allowed
            .map_or_else(String::new, |bytes| format!(", {} of memory", bytes_text(bytes)));
        text.push_str(&named("Control groups allow", &format!("{quota}{memory}")));
        let governor = environment.cpu_governor.as_deref().unwrap_or("none to be seen");
        let source = environment.clock_source.as_deref().unwrap_or("unknown");
        text.push_str(&named(
            "Governor, clock",
            &format!("{governor}; {source}, {:.0} ns a reading", machine.clock_read_ns),
        ));
        text.push_str(&named("Idle states", &self.idle_states()));
        if let Some(cost) = &self.facts.wake_up {
            let cost = format!("{} (p99 {}), of {}", us(cost.median_us), us(cost.p99_us), cost.count);
            text.push_str(&named("A wake-up costs", &cost));
        }
        if let Some(machine) = &self.facts.machine_use {
            let percent = |share: f64| format!("{:.1}%", 100.0 * share);
            let shares = format!(
                "steal {}, stopped by a quota {}, other programs on {:.1} CPUs",
                percent(machine.stolen),
                percent(machine.throttled),
                machine.others_cpus
            );
            text.push_str(&named("While measured", &shares));
        }
        text
    }

    fn idle_states(&self) -> String {
        let states = self.facts.machine.idle_states.iter().filter(|state| !state.is_disabled);
        let states: Vec<String> =
            states.map(|state| format!("{} {} µs", state.name, state.exit_us)).collect();
        match (states.is_empty(), self.facts.machine.is_virtual) {
            (false, _) => states.join(", "),
            (true, true) => "none to be seen: the hypervisor decides".to_owned(),
            (true, false) => "none to be seen".to_owned(),
        }
    }

    fn target(&self) -> String {
        let target = &self.facts.target;
        let mut text = match &target.mount {
            Some(mount) => {
                let place = format!("{} from {}, at {}", mount.kind, mount.source, mount.point.display());
                named("File system", &place) + &named("Mount options", &mount.options.join(", "))
            }
            None => named(
                "File system",
                "a server's, by NFSv3: its mount and directories cannot be seen from here",
            ),
        };
        if let Some(space) = target.space.filter(|space| space.bytes_total > 0) {
            let bytes = format!(
                "{} of {}{}",
                bytes_text(space.bytes_available),
                bytes_text(space.bytes_total),
                in_use(space.bytes_used_share())
            );
            let inodes = match space.inodes_used_share() {
                Some(share) => {
                    format!("; {} inodes{}", count_text(space.inodes_available), in_use(Some(share)))
                }
                None => "; inodes are made as needed".to_owned(),
            };
            text.push_str(&named("Free for this user", &format!("{bytes}{inodes}")));
        }
        if let Some(directory) = &target.directory {
            text.push_str(&named("This directory", &directory_text(directory)));
        }
        if let Some(largest) = &target.largest {
            let path = shortened(&largest.path.display().to_string(), 120);
            text.push_str(&named("Largest below", &format!("{path}: {}", directory_text(largest))));
        }
        text
    }

    fn measured(&self) -> String {
        let places = &self.facts.places;
        let Some(here) = places.first().filter(|here| !here.basics.is_empty()) else { return String::new() };
        let mut heads = vec!["one thread", "here /s", "one takes", "slowest batch"];
        let others: Vec<String> = places.iter().skip(1).map(|place| format!("{} /s", place.name)).collect();
        heads.extend(others.iter().map(String::as_str));
        let rate = |us: Option<f64>| us.map_or("-".to_owned(), |us| rate_text(1e6 / us.max(1e-3)));
        let ops = BasicOp::ALL.into_iter().filter(|op| here.us(*op).is_some());
        let row = |op: BasicOp| {
            let basic = here.basics.iter().find(|basic| basic.op == op)?;
            let mut row = vec![
                op.name().to_owned(),
                rate(Some(basic.median_us)),
                us(basic.median_us),
                us(basic.worst_us),
            ];
            row.extend(places.iter().skip(1).map(|place| rate(place.us(op))));
            Some(row)
        };
        let rows: Vec<Vec<String>> = ops.filter_map(row).collect();
        let caches = if self.facts.target.path.is_none() {
            "Nothing is cached on this machine, but the server answers stat, lookup and read from its own memory, as the files were just \
             made: these rows say how far the server is, and not how fast its disks are. fsync waits for what the server calls stable."
        } else {
            CACHES
        };
        grid(&heads, 1, &rows) + &wrapped("  ", caches) + &self.written()
    }

    /// Where the loops wrote, as this is not only the target.
    fn written(&self) -> String {
        let is_written = |at: usize| at > 0 || self.facts.target.unwritable.is_none();
        let places = self.facts.places.iter().enumerate().filter(|(at, _)| is_written(*at));
        let places: Vec<&str> = places.map(|(_, place)| place.path.as_str()).collect();
        let named = match places.split_last() {
            None => return String::new(),
            Some((only, [])) => (*only).to_owned(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
        };
        wrapped("  ", &format!("Test files were written in {named}, and removed"))
    }

    fn suffering(&self) -> String {
        let row = |found: &ProgramOutlook| {
            let cost = found.cost_us.map_or("-".to_owned(), |cost| format!("{} {}", us(cost), found.unit));
            vec![found.program.to_owned(), found.outlook.name().to_owned(), cost, found.because.clone()]
        };
        let rows: Vec<Vec<String>> = self.programs.iter().map(row).collect();
        grid(&["program", "outlook", "waits for storage", "because of"], 4, &rows)
    }

    fn last_lines(&self) -> String {
        let mut text = String::from("Next\n");
        for step in &self.next {
            // Not wrapped: it is to be pasted.
            text.push_str(&format!("  {}\n", harmless(&step.command)));
            text.push_str(&wrapped("      ", step.answers));
        }
        if !self.facts.assumed.is_empty() {
            text.push_str("\nAssumed\n");
            self.facts.assumed.iter().for_each(|sentence| text.push_str(&wrapped("  - ", sentence)));
        }
        text
    }
}

fn us(us: f64) -> String {
    figure_text("us", us)
}

fn in_use(share: Option<f64>) -> String {
    share.map(|share| format!(" ({:.0}% in use)", (100.0 * share).floor())).unwrap_or_default()
}

fn directory_text(directory: &DirectoryFacts) -> String {
    let names = counted(directory.names as usize, "name", "names");
    let at_least = if directory.is_counted { "" } else { "at least " };
    let index = match directory.is_indexed {
        Some(true) => ", with an index",
        Some(false) => ", WITHOUT an index",
        None => "",
    };
    let lookup = directory
        .negative_lookup_us
        .map(|cost| format!("; a missing name costs {}", us(cost)))
        .unwrap_or_default();
    let max = directory.names_max.map(|max| {
        format!(
            "; refuses a new name at {} to {} names like these",
            count_text(max.low),
            count_text(max.high)
        )
    });
    let max = max.unwrap_or_default();
    let managed =
        directory.managed.as_ref().map(|layout| format!("managed in layout {layout}, ")).unwrap_or_default();
    let own_size = bytes_text(directory.own_bytes);
    format!("{managed}{at_least}{names}, its own size {own_size}{index}{lookup}{max}")
}

fn capitalized(text: &str) -> String {
    // A path stays as it is.
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if first.is_ascii_lowercase() => {
            first.to_ascii_uppercase().to_string() + letters.as_str()
        }
        _ => text.to_owned(),
    }
}
