//! Mailboxes: letters behind lines `From `.
//!
//! ```text
//! From someone Tue Apr  6 12:00:00 1993      at the start, or after an empty line and with a date
//! header, empty line, body                   `>From ` becomes `From `, `>>From ` becomes `>From `, and so on
//!                                            the last empty line belongs to the form, not to the letter
//! ```
//!
//! Programs that quoted nothing left lines `From ` in texts: only one with a date begins a letter. In a mailbox whose
//! first such line has no date, as archives of newsgroups have them (`From -9160487326083158434`), one with as many
//! words as the first.

use std::io::{self, BufRead, BufReader, Read};

/// What comes out.
pub(super) enum Letter<'a> {
    /// A letter without its `From ` line.
    Whole(&'a [u8]),
    /// One beyond the bound, of which this much was kept.
    TooLarge {
        /// Where it begins.
        offset_bytes: u64,
        /// Its first bytes.
        kept: &'a [u8],
    },
}

/// Letters one at a time, in bounded memory.
pub(super) struct MboxReader<R> {
    input: BufReader<R>,
    letter: Vec<u8>,
    line: Vec<u8>,
    bytes_max: usize,
    offset_bytes: u64,
    /// The `From ` line at hand begins the next letter.
    begun: bool,
    /// What the mailbox's first `From ` line is like; none before it.
    form: Option<FromLine>,
}

/// How a mailbox writes its `From ` lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FromLine {
    Dated,
    /// Without a date, of this many words.
    Undated(usize),
}

impl FromLine {
    /// RFC 4155 has asctime's date at the end; zones and other orders were seen.
    fn of(line: &[u8]) -> Self {
        let words = || line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let any = |of: fn(&[u8]) -> bool| words().skip(1).any(of);
        let of_three = |word: &[u8], known: &str| {
            let word = word.strip_suffix(b",").unwrap_or(word);
            word.len() == 3 && known.as_bytes().chunks(3).any(|name| name.eq_ignore_ascii_case(word))
        };
        let is_dated = words().skip(1).any(|word| of_three(word, "MonTueWedThuFriSatSun"))
            && words().skip(1).any(|word| of_three(word, "JanFebMarAprMayJunJulAugSepOctNovDec"))
            && any(|word| word.len() == 4 && word.iter().all(u8::is_ascii_digit))
            && any(|word| {
                word.contains(&b':') && word.iter().all(|byte| byte.is_ascii_digit() || *byte == b':')
            });
        if is_dated { Self::Dated } else { Self::Undated(words().count()) }
    }
}

impl<R: Read> MboxReader<R> {
    pub(super) fn new(input: R, bytes_max: usize) -> Self {
        let input = BufReader::with_capacity(256 << 10, input);
        Self { input, letter: vec![], line: vec![], bytes_max, offset_bytes: 0, begun: false, form: None }
    }

    pub(super) fn next_letter(&mut self) -> io::Result<Option<Letter<'_>>> {
        self.letter.clear();
        let mut starts = self.offset_bytes;
        let (mut too_large, mut any) = (false, self.begun);
        // Before the first line stands what is as good as an empty one.
        let (mut line_starts, mut after_empty) = (true, !self.begun);
        self.begun = false;
        loop {
            self.line.clear();
            let read =
                self.input.by_ref().take(self.bytes_max as u64 + 2).read_until(b'\n', &mut self.line)?;
            if read == 0 {
                break;
            }
            let is_from = line_starts && after_empty && self.line.starts_with(b"From ") && {
                let form = FromLine::of(&self.line);
                *self.form.get_or_insert(form) == form || form == FromLine::Dated
            };
            self.offset_bytes += read as u64;
            if is_from && any {
                self.begun = true;
                break;
            }
            if is_from {
                (any, starts) = (true, self.offset_bytes);
                after_empty = false;
                line_starts = self.line.ends_with(b"\n");
                continue;
            }
            any = true;
            let quotes = self.line.iter().take_while(|byte| **byte == b'>').count();
            let quoted = line_starts && quotes > 0 && self.line[quotes..].starts_with(b"From ");
            let line = &self.line[usize::from(quoted)..];
            if self.letter.len() + line.len() > self.bytes_max {
                too_large = true;
            } else if !too_large {
                self.letter.extend_from_slice(line);
            }
            after_empty = line_starts && matches!(&self.line[..], b"\n" | b"\r\n");
            line_starts = self.line.ends_with(b"\n");
        }
        if !any {
            return Ok(None);
        }
        if too_large {
            return Ok(Some(Letter::TooLarge { offset_bytes: starts, kept: &self.letter }));
        }
        // The empty line before the next `From `, unless it is the one that ends the header.
        let form = if self.letter.ends_with(b"\r\n\r\n") { 2 } else { 1 };
        let end = self.letter.len() - form.min(self.letter.len());
        let has_form_line = after_empty && contains_empty_line(&self.letter[..end]);
        let end = if has_form_line { end } else { self.letter.len() };
        Ok(Some(Letter::Whole(&self.letter[..end])))
    }
}

/// Whether a header's end is in there.
fn contains_empty_line(letter: &[u8]) -> bool {
    letter.windows(2).any(|two| two == b"\n\n") || letter.windows(4).any(|four| four == b"\r\n\r\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn letters(text: &str, bytes_max: usize) -> Vec<Result<String, u64>> {
        let mut reader = MboxReader::new(text.as_bytes(), bytes_max);
        let mut all = vec![];
        while let Some(letter) = reader.next_letter().expect("memory") {
            all.push(match letter {
                Letter::Whole(bytes) => Ok(String::from_utf8(bytes.to_vec()).expect("text")),
                Letter::TooLarge { offset_bytes, .. } => Err(offset_bytes),
            });
        }
        all
    }

    #[test]
    fn letters_are_unquoted_once_and_lose_the_line_of_the_form() {
        let text =
            "From a\nA: 1\n\nx\n>From y\n>>From z\nFrom within\n\nFrom b\nB: 2\n\n\nFrom c\nC: 3\n\nend";
        assert_eq!(
            letters(text, 1000),
            [
                Ok("A: 1\n\nx\nFrom y\n>From z\nFrom within\n".to_owned()),
                Ok("B: 2\n\n".to_owned()),
                Ok("C: 3\n\nend".to_owned()),
            ]
        );
    }

    /// Symptom: letters of archives that quote nothing were cut in two, and the rest was set aside.
    #[test]
    fn a_sentence_that_begins_with_from_begins_no_letter() {
        let text = "From a@b Tue Apr  6 12:00:00 1993\nA: 1\n\nx\n\nFrom here on it is\nthe same\n\nFrom c d  Mon, 3 Jan 2005 10:00:00\nB: 2\n\ny\n";
        let first = "A: 1\n\nx\n\nFrom here on it is\nthe same\n".to_owned();
        assert_eq!(letters(text, 1000), [Ok(first), Ok("B: 2\n\ny\n".to_owned())]);
        let undated = "From -916\nA: 1\n\nx\n\nFrom one to the other\n\nFrom -5\nB: 2\n\ny\n";
        let first = "A: 1\n\nx\n\nFrom one to the other\n".to_owned();
        assert_eq!(letters(undated, 1000), [Ok(first), Ok("B: 2\n\ny\n".to_owned())]);
    }

    #[test]
    fn a_letter_beyond_the_bound_is_told_and_the_next_one_comes() {
        let text = format!("From a\nA: 1\n\n{}\n\nFrom b\nB: 2\n\nx\n", "y".repeat(5000));
        assert_eq!(letters(&text, 100), [Err(7), Ok("B: 2\n\nx\n".to_owned())]);
    }

    proptest! {
        #[test]
        fn what_was_quoted_comes_back_as_it_was(
            bodies in proptest::collection::vec(
                proptest::collection::vec("(From |>From |>>From |From|>)?[a-z ]{0,6}", 0..6), 1..6),
        ) {
            let whole: Vec<String> = bodies
                .iter()
                .map(|lines| format!("A: 1\n\n{}", lines.iter().map(|line| format!("{line}\n")).collect::<String>()))
                .collect();
            let quoted = |letter: &String| -> String {
                letter
                    .lines()
                    .map(|line| if line.trim_start_matches('>').starts_with("From ") { format!(">{line}\n") } else { format!("{line}\n") })
                    .collect()
            };
            let text: String = whole.iter().map(|letter| format!("From x\n{}\n", quoted(letter))).collect();
            prop_assert_eq!(letters(&text, 1000), whole.into_iter().map(Ok).collect::<Vec<_>>());
        }
    }
}
