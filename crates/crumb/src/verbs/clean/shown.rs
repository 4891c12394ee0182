//! The table of what was found and what became of it.

use report::{bytes_text, count_text};

use super::CleanArgs;
use super::found::{Found, State};
use crate::layout::{counted, grid, wrapped};

impl CleanArgs {
    pub(super) fn shown(&self, found: &[Found]) -> String {
        if found.is_empty() {
            return wrapped("", &format!("No directories of runs are in {}.", self.target));
        }
        let rows = found.iter().map(|found| {
            let size = match found.state {
                State::InUse | State::Refused => ["-".to_owned(), "-".to_owned()],
                _ => [count_text(found.files), bytes_text(found.bytes)],
            };
            let [files, bytes] = size;
            vec![found.name.clone(), self.fate(found).to_owned(), files, bytes]
        });
        let mut text = grid(&["directory", "", "files", "size"], 2, &rows.collect::<Vec<_>>());
        let gone: Vec<&Found> = found.iter().filter(|found| self.is_to_go(found)).collect();
        for found in found.iter().filter(|found| found.state == State::Refused || self.is_to_go(found)) {
            if let Some(note) = found
                .note
                .as_ref()
                .filter(|_| !found.removed && !self.dry_run || found.state == State::Refused)
            {
                text.push_str(&wrapped(&format!("{}: ", found.name), note));
            }
        }
        let done = if self.dry_run { "Would remove" } else { "Removed" };
        let counts = gone.iter().filter(|found| found.removed || self.dry_run);
        let (mut directories, mut files, mut bytes) = (0, 0, 0);
        for found in counts {
            directories += 1;
            files += found.files;
            bytes += found.bytes;
        }
        text.push_str(&format!(
            "\n{done} {} with {} of {}.\n",
            counted(directories, "directory", "directories"),
            counted(files as usize, "file", "files"),
            bytes_text(bytes)
        ));
        if found.iter().any(|found| found.state == State::OtherHost) && !self.other_hosts {
            let hint = "What runs of other machines left stays: --other-hosts removes it. See first that none is under way.";
            text.push_str(&wrapped("", hint));
        }
        text
    }

    fn fate(&self, found: &Found) -> &'static str {
        match (found.state, found.removed) {
            (_, true) => "removed",
            (State::LeftOver, _) if self.dry_run => "left over",
            (State::OtherHost, _) if self.dry_run || !self.other_hosts => "of another machine",
            (State::LeftOver | State::OtherHost, _) => "not removed",
            (State::InUse, _) => "in use by a run",
            (State::Kept, _) => "kept by name",
            (State::Refused, _) => "left alone",
        }
    }
}
