//! A conversion that the program behind a mount carries out for another one, through the mount's socket.
//!
//! ```text
//! client: convert managed:345 2f6e657773        the goal; the path below the mount point in hexadecimal digits
//! server: working                                before the first move
//!         progress entries-in 6400 100000        five times a second
//!         done flat managed:345 100000 1001 names     or: failed why
//! client: stop                                   at any time: it ends soon, and reports how far it came
//!
//! client: plan managed:345 2f6e657773           changes nothing
//! server: planned flat managed:345 100000 1001 names  or: failed why
//! ```
//!
//! Who may ask is the credentials' affair that the kernel reports of the client. A client that goes away without a word leaves
//! the conversion to go on; one that asks for the same joins it.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use files::Layout;
use measure::error_chain;
use rustix::net::sockopt;
use stackfs::convert::{Converted, Goal, Plan, Progress, State, Work};
use stackfs::online::Online;

use super::control;

/// The first word of a request to convert.
const CONVERT: &str = "convert ";
/// The first word of a request that changes nothing.
const PLAN: &str = "plan ";
/// The last word about a flat directory most of whose names are not numbers.
const NOT_NUMBERS: &str = "not-numbers";
/// How often progress is reported.
const REPORT_EVERY: Duration = Duration::from_millis(200);
/// A server that is silent for so long is not waited for.
const SILENT_MAX: Duration = Duration::from_secs(30);
/// The longest line of an answer.
const LINE_BYTES_MAX: u64 = 64 << 10;

const WORKS: [(Work, &str); 4] = [
    (Work::EntriesIntoStaging, "entries-in"),
    (Work::LevelsOutOfStaging, "levels-out"),
    (Work::LevelsIntoStaging, "levels-in"),
    (Work::EntriesOutOfStaging, "entries-out"),
];

/// Whether a request is for [`serve`].
pub(super) fn is_request(request: &str) -> bool {
    [CONVERT, PLAN].iter().any(|verb| request.starts_with(verb))
}

/// Carries out what `request` asks for, and reports to the client until it is done.
pub(super) fn serve(mut stream: UnixStream, request: &str, online: &Online) -> std::io::Result<()> {
    const UNKNOWN: &str = "this version of crumb mount does not understand the request";
    let by = sockopt::socket_peercred(&stream)?.uid.as_raw();
    if let Some(request) = request.strip_prefix(PLAN) {
        let planned = match parsed(request) {
            Some((goal, place)) => online.plan(&place, goal, by).map_err(|error| error_chain(&error)),
            None => Err(UNKNOWN.to_owned()),
        };
        return match planned {
            Ok(plan) => writeln!(stream, "{}", plan_text(&plan)),
            Err(why) => writeln!(stream, "failed {}", in_one_line(&why)),
        };
    }
    let run = match request.strip_prefix(CONVERT).and_then(parsed) {
        Some((goal, place)) => online.begin(&place, goal, by).map_err(|error| error_chain(&error)),
        None => Err(UNKNOWN.to_owned()),
    };
    let run = match run {
        Ok(run) => run,
        Err(why) => return writeln!(stream, "failed {}", in_one_line(&why)),
    };
    tracing::info!("a conversion was asked for by user {by}: {}", request.trim());
    // What the client says is looked for between two reports.
    stream.set_read_timeout(Some(Duration::from_millis(1)))?;
    loop {
        if let Some(outcome) = run.wait(REPORT_EVERY) {
            return match outcome {
                Ok(done) => writeln!(stream, "{}", done_text(&done)),
                Err(error) => writeln!(stream, "failed {}", in_one_line(&error_chain(&*error))),
            };
        }
        writeln!(stream, "{}", run.progress().map_or("working".to_owned(), progress_text))?;
        let mut said = [0; 16];
        match (&stream).read(&mut said) {
            // It is gone; the conversion continues.
            Ok(0) => return Ok(()),
            Ok(_) => run.stop(),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Has the program behind the mount at `mountpoint` convert the directory at `place` below it, and follows it.
///
/// # Errors
/// When it cannot be asked, refuses, or fails.
pub fn convert(
    mountpoint: &Path,
    place: &Path,
    goal: Goal,
    show: &mut dyn FnMut(Progress),
    stop: &AtomicBool,
) -> anyhow::Result<Converted> {
    let until = Instant::now() + SILENT_MAX;
    let at = mountpoint.display();
    let lost = || {
        format!(
            "{at}: its program does not answer; was it killed? Nothing is lost: mount again, then run this again"
        )
    };
    let stream = control::connect(mountpoint, control::owner_of(mountpoint), until)?.with_context(lost)?;
    writeln!(&stream, "{CONVERT}{}", request_text(goal, place)).with_context(lost)?;
    stream.set_read_timeout(Some(REPORT_EVERY))?;
    let mut lines = BufReader::new(&stream);
    let (mut line, mut heard, mut told_to_stop) = (Vec::new(), Instant::now(), false);
    loop {
        if stop.load(Ordering::Relaxed) && !std::mem::replace(&mut told_to_stop, true) {
            writeln!(&stream, "stop").with_context(lost)?;
        }
        // What came of a line before a time-out stays.
        match (&mut lines).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => bail!(lost()),
            Ok(_) if line.ends_with(b"\n") => {}
            Ok(_) => continue,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if heard.elapsed() > SILENT_MAX {
                    bail!(lost());
                }
                continue;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(anyhow::Error::from(error).context(lost())),
        }
        heard = Instant::now();
        let text = String::from_utf8_lossy(&std::mem::take(&mut line)).trim().to_owned();
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        match word {
            "working" => {}
            "progress" => show(progress_of(rest).with_context(|| not_understood(mountpoint))?),
            "done" => return done_of(rest).with_context(|| not_understood(mountpoint)),
            "failed" => return Err(anyhow!(rest.to_owned())),
            _ => bail!(not_understood(mountpoint)),
        }
    }
}

/// Asks the program behind the mount at `mountpoint` what it would do with the directory at `place` below it.
///
/// # Errors
/// When it cannot be asked, or would refuse.
pub fn planned(mountpoint: &Path, place: &Path, goal: Goal) -> anyhow::Result<Plan> {
    let lost =
        || format!("{}: its program does not answer; was it killed? Mount again", mountpoint.display());
    let until = Instant::now() + SILENT_MAX;
    let stream = control::connect(mountpoint, control::owner_of(mountpoint), until)?.with_context(lost)?;
    writeln!(&stream, "{PLAN}{}", request_text(goal, place)).with_context(lost)?;
    stream.set_read_timeout(Some(SILENT_MAX))?;
    let mut line = String::new();
    BufReader::new((&stream).take(LINE_BYTES_MAX)).read_line(&mut line).with_context(lost)?;
    match line.trim().split_once(' ') {
        Some(("planned", rest)) => plan_of(rest).with_context(|| not_understood(mountpoint)),
        Some(("failed", why)) => Err(anyhow!(why.to_owned())),
        _ => Err(anyhow!(not_understood(mountpoint))),
    }
}

fn not_understood(mountpoint: &Path) -> String {
    format!(
        "{0}: its program is of another version, and cannot convert what it shows; `crumb unmount {0}`, mount again, then run \
         this again",
        mountpoint.display()
    )
}

fn in_one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

fn request_text(goal: Goal, place: &Path) -> String {
    let digits: String = place.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let goal = match goal {
        Goal::Flat => "flat".to_owned(),
        Goal::Managed(None) => "managed".to_owned(),
        Goal::Managed(Some(layout)) => format!("managed:{layout}"),
    };
    format!("{goal} {digits}")
}

fn parsed(request: &str) -> Option<(Goal, PathBuf)> {
    let (goal, digits) = request.trim_start().trim_end_matches('\n').split_once(' ')?;
    let goal = match goal.split_once(':') {
        None if goal == "flat" => Goal::Flat,
        None if goal == "managed" => Goal::Managed(None),
        Some(("managed", layout)) => Goal::Managed(Some(layout.parse().ok()?)),
        _ => return None,
    };
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let path: Vec<u8> = pairs.map(byte).collect::<Option<_>>()?;
    Some((goal, std::ffi::OsString::from_vec(path).into()))
}

fn progress_text(Progress { work, done, of }: Progress) -> String {
    let work = WORKS.iter().find(|(known, _)| *known == work).map_or("", |(_, name)| name);
    format!("progress {work} {done} {of}")
}

fn progress_of(text: &str) -> Option<Progress> {
    let mut words = text.split(' ');
    let name = words.next()?;
    let (work, _) = WORKS.into_iter().find(|(_, known)| *known == name)?;
    Some(Progress { work, done: words.next()?.parse().ok()?, of: words.next()?.parse().ok()? })
}

fn done_text(done: &Converted) -> String {
    let (before, after) = (state_text(done.before), state_text(done.after));
    let names = names_text(done.are_not_numbers);
    format!("done {before} {after} {} {} {names}", done.entries_moved, done.subdirectories_moved)
}

fn done_of(text: &str) -> Option<Converted> {
    let mut words = text.split(' ');
    Some(Converted {
        before: state_of(words.next()?)?,
        after: state_of(words.next()?)?,
        entries_moved: words.next()?.parse().ok()?,
        subdirectories_moved: words.next()?.parse().ok()?,
        are_not_numbers: are_not_numbers(words.next()),
    })
}

fn plan_text(plan: &Plan) -> String {
    let (before, after) = (state_text(plan.before), state_text(plan.after));
    let names = names_text(plan.are_not_numbers);
    format!("planned {before} {after} {} {} {names}", plan.entries, plan.subdirectories)
}

fn plan_of(text: &str) -> Option<Plan> {
    let mut words = text.split(' ');
    let (before, after) = (state_of(words.next()?)?, state_of(words.next()?)?);
    let entries = words.next()?.parse().ok()?;
    // The first version of the server ends its line here.
    let subdirectories = words.next().map_or(Some(0), |word| word.parse().ok())?;
    Some(Plan { before, after, entries, subdirectories, are_not_numbers: are_not_numbers(words.next()) })
}

fn names_text(are_not_numbers: bool) -> &'static str {
    if are_not_numbers { NOT_NUMBERS } else { "names" }
}

/// By the last word of a line, which the first version of the server does not send.
fn are_not_numbers(word: Option<&str>) -> bool {
    word == Some(NOT_NUMBERS)
}

fn state_text(state: State) -> String {
    match state {
        State::Flat => "flat".to_owned(),
        State::Managed(layout) => format!("managed:{layout}"),
        State::MovingEntries(layout) => format!("moving-entries:{layout}"),
        State::MovingLevels(layout) => format!("moving-levels:{layout}"),
    }
}

fn state_of(text: &str) -> Option<State> {
    let Some((name, layout)) = text.split_once(':') else {
        return (text == "flat").then_some(State::Flat);
    };
    let layout: Layout = layout.parse().ok()?;
    match name {
        "managed" => Some(State::Managed(layout)),
        "moving-entries" => Some(State::MovingEntries(layout)),
        "moving-levels" => Some(State::MovingLevels(layout)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_understood_whatever_the_path_is_made_of() {
        let odd = std::ffi::OsStr::from_bytes(b"a b\n/\xff\xfe:").to_owned();
        for place in [PathBuf::new(), "news/control".into(), odd.into()] {
            for goal in [Goal::Flat, Goal::Managed(None), Goal::Managed(Some(Layout::Hash2))] {
                let text = request_text(goal, &place);
                assert_eq!(parsed(&format!("{text}\n")), Some((goal, place.clone())), "{text}");
            }
        }
        for wrong in ["", "flat", "plain 2f", "managed:789 2f", "managed 2", "flat 2g", "managed: 2f"] {
            // One digit is a byte all the same; nothing else of these is understood.
            assert_eq!(parsed(wrong).is_some(), wrong == "managed 2", "{wrong}");
        }
    }

    #[test]
    fn progress_and_outcomes_come_back_as_they_went() {
        for (work, _) in WORKS {
            let progress = Progress { work, done: 64, of: 1000 };
            let text = progress_text(progress);
            assert_eq!(progress_of(text.strip_prefix("progress ").unwrap()), Some(progress));
        }
        for after in [State::Flat, State::MovingEntries(Layout::D34D56), State::MovingLevels(Layout::D345)] {
            let before = State::Managed(Layout::Hash2);
            for are_not_numbers in [false, true] {
                let done =
                    Converted { before, after, entries_moved: 7, subdirectories_moved: 9, are_not_numbers };
                assert_eq!(done_of(done_text(&done).strip_prefix("done ").unwrap()), Some(done));
                let plan = Plan { before, after, entries: 7, subdirectories: 3, are_not_numbers };
                assert_eq!(plan_of(plan_text(&plan).strip_prefix("planned ").unwrap()), Some(plan));
            }
        }
        let of_the_first_version = plan_of("flat managed:345 7").unwrap();
        assert_eq!((of_the_first_version.entries, of_the_first_version.are_not_numbers), (7, false));
        assert_eq!(done_of("flat managed:999 1 1"), None);
    }
}
