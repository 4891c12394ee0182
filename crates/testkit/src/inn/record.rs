//! What a stopped `innd` left: its log by reasons, its history, its spool.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Counts of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InnRecord {
    /// `+` lines of the log: articles accepted.
    pub accepted: u64,
    /// Their ids, in order.
    pub accepted_ids: Vec<String>,
    /// `j` lines: articles accepted and filed in `junk`.
    pub junked: u64,
    /// `c` lines: articles cancelled or superseded by one that was accepted.
    pub cancelled: u64,
    /// `-` lines by code and reason, what is quoted or in brackets left out.
    pub refused: BTreeMap<String, u64>,
    /// The ids of refused articles, with the reason.
    pub refused_ids: Vec<(String, String)>,
    /// Lines of history that name an article in the spool. One that was cancelled keeps its line.
    pub history_articles: u64,
    /// Lines of history without one: ids that are refused when they come.
    pub history_remembered: u64,
    /// Files in the spool, each name of a cross-post counted.
    pub names: u64,
    /// Files in the spool, a cross-post counted once.
    pub articles: u64,
}

impl InnRecord {
    pub(super) fn read(root: &Path) -> Result<Self, String> {
        let mut record = Self::default();
        // The log was moved aside when it was flushed; what came after is in the new one.
        for log in ["log/news.old", "log/news"] {
            match fs::read(root.join(log)) {
                Ok(text) => String::from_utf8_lossy(&text).lines().for_each(|line| record.count(line)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(format!("{log}: {error}")),
            }
        }
        let history = fs::read(root.join("db/history")).map_err(|error| format!("db/history: {error}"))?;
        for line in history.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let has_token = line.split(|byte| *byte == b'\t').nth(2).is_some_and(|token| !token.is_empty());
            *(if has_token { &mut record.history_articles } else { &mut record.history_remembered }) += 1;
        }
        let mut inodes = std::collections::HashSet::new();
        let mut todo = vec![root.join("spool/articles")];
        let failure = |error: std::io::Error| format!("INN's spool: {error}");
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).map_err(failure)? {
                let entry = entry.map_err(failure)?;
                if entry.file_type().map_err(failure)?.is_dir() {
                    todo.push(entry.path());
                    continue;
                }
                record.names += 1;
                inodes.insert(std::os::unix::fs::DirEntryExt::ino(&entry));
            }
        }
        record.articles = inodes.len() as u64;
        Ok(record)
    }

    /// `Nov 22 02:40:43.075 + localhost <id> 192`
    fn count(&mut self, line: &str) {
        let mut fields = line.split_whitespace().skip(3);
        let (what, id) = (fields.next(), fields.nth(1).unwrap_or_default());
        match what {
            Some("+") => {
                self.accepted += 1;
                self.accepted_ids.push(id.to_owned());
            }
            Some("j") => self.junked += 1,
            Some("c") => self.cancelled += 1,
            Some("-") => {
                let reason = reason_of(&fields.collect::<Vec<_>>().join(" "));
                *self.refused.entry(reason.clone()).or_default() += 1;
                self.refused_ids.push((id.to_owned(), reason));
            }
            _ => {}
        }
    }
}

/// `437 Unwanted newsgroup "a.b"` -> `437 Unwanted newsgroup`.
fn reason_of(text: &str) -> String {
    let end = text.find(['"', '[', '(', '\'', '<']).unwrap_or(text.len());
    text[..end].trim_end_matches([' ', ':', '-']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_log_are_counted_by_what_they_say() {
        let mut record = InnRecord::default();
        for line in [
            "Nov 22 02:40:43.075 + localhost <0@h.example> 192",
            "Nov 22 02:42:00.154 - localhost <0.68@dra.example> 437 Unwanted newsgroup \"rec.britrel\"",
            "Nov  2 02:42:00.155 - localhost <1.83@soukl.example> 437 Unwanted newsgroup \"alt.laem\"",
            "Nov 22 02:42:00.155 c localhost <3@h.example> Cancelling <2@h.example>",
        ] {
            record.count(line);
        }
        assert_eq!((record.accepted, record.cancelled), (1, 1));
        assert_eq!(record.accepted_ids, ["<0@h.example>"]);
        assert_eq!(record.refused, BTreeMap::from([("437 Unwanted newsgroup".to_owned(), 2)]));
        assert_eq!(record.refused_ids[1].0, "<1.83@soukl.example>");
    }
}
