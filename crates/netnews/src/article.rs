//! One article as bytes: its header read once, nothing copied, offsets kept so that it can be rewritten by slicing.
//!
//! ```text
//! Path: a!b!poster LF | Newsgroups: x.y,x.z LF | Message-ID: <i@h> LF | Xref: ... LF | LF | body
//! ^ path().lines                                                        ^ head_end    ^ body_start
//! ```
//!
//! Always holds: no input makes it panic; a group name it returns is safe as a directory path; a message id
//! it returns contains no blank and no tab, so it fits a line of history.
//! Not here: storing an article (see `spool`), line ends other than LF (see `feed::import`).
//! Source: RFC 1036, RFC 850; limits as INN has them.

mod date;

use std::fmt;
use std::ops::Range;

/// Longest message id, in bytes with its brackets, as NNTP allows it.
pub const MESSAGE_ID_BYTES_MAX: usize = 250;
/// Longest group name, in bytes.
pub const GROUP_BYTES_MAX: usize = 460;
/// Most groups an article may name.
pub const GROUPS_MAX: usize = 128;

/// Why something cannot be stored as an article.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Broken {
    /// No bytes at all, or only empty lines.
    Empty,
    /// Larger than the bound on articles.
    TooLarge,
    /// A header line that is neither a field nor the continuation of one.
    BadHeader,
    /// The header never ends: there is no empty line.
    NoBody,
    /// No `Message-ID:`.
    NoMessageId,
    /// A `Message-ID:` that is no `<...>` of up to 250 visible ASCII characters.
    BadMessageId,
    /// No `Newsgroups:`, or an empty one.
    NoNewsgroups,
    /// Not one well-formed name in `Newsgroups:`.
    BadNewsgroups,
    /// More than 128 groups.
    TooManyGroups,
    /// A batch's byte count does not lead to the next article.
    BadCount,
    /// The batch ended within it.
    Truncated,
}

impl Broken {
    /// Its name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::TooLarge => "too-large",
            Self::BadHeader => "bad-header",
            Self::NoBody => "no-body",
            Self::NoMessageId => "no-message-id",
            Self::BadMessageId => "bad-message-id",
            Self::NoNewsgroups => "no-newsgroups",
            Self::BadNewsgroups => "bad-newsgroups",
            Self::TooManyGroups => "too-many-groups",
            Self::BadCount => "bad-count",
            Self::Truncated => "truncated",
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "nothing in it",
            Self::TooLarge => "larger than the bound on articles",
            Self::BadHeader => "a header line that is no field",
            Self::NoBody => "no empty line after the header",
            Self::NoMessageId => "no Message-ID",
            Self::BadMessageId => "a Message-ID that is no <...> of visible characters",
            Self::NoNewsgroups => "no Newsgroups",
            Self::BadNewsgroups => "no well-formed name in Newsgroups",
            Self::TooManyGroups => "too many groups",
            Self::BadCount => "a batch's byte count that does not lead to the next article",
            Self::Truncated => "the batch ends within it",
        })
    }
}

/// One header field: its name, its value, and where its lines are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Without the colon.
    pub name: &'a [u8],
    /// From the first visible byte to the last, continuation lines as they stand.
    pub value: &'a [u8],
    /// Of all its lines with the last LF, as offsets into the article.
    pub lines: Range<usize>,
    /// Of the value, as offsets into the article.
    pub value_at: Range<usize>,
}

impl Field<'_> {
    /// Whether the field has this name, in whatever case.
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }
}

/// An article that can be stored.
#[derive(Clone, Debug)]
pub struct Article<'a> {
    bytes: &'a [u8],
    head_end: usize,
    body_start: usize,
    message_id: &'a [u8],
    newsgroups: &'a [u8],
    control: Option<&'a [u8]>,
    supersedes: Option<&'a [u8]>,
    date: Option<&'a [u8]>,
    path: Option<Field<'a>>,
    xref: Option<Field<'a>>,
}

impl<'a> Article<'a> {
    /// Reads the header. The first field of a name counts.
    ///
    /// # Errors
    /// The reason why it is not a valid article.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Broken> {
        if bytes.iter().all(|byte| matches!(byte, b'\n' | b'\r' | b' ' | b'\t')) {
            return Err(Broken::Empty);
        }
        let mut fields = Fields::new(bytes);
        let (mut message_id, mut newsgroups) = (None, None);
        let (mut control, mut supersedes, mut date) = (None, None, None);
        let (mut path, mut xref) = (None, None);
        while let Some(field) = fields.next_field()? {
            // The length rules out most fields before any letter is compared.
            match field.name.len() {
                4 if path.is_none() && field.is("path") => path = Some(field),
                4 if xref.is_none() && field.is("xref") => xref = Some(field),
                4 if date.is_none() && field.is("date") => date = Some(field.value),
                7 if control.is_none() && field.is("control") => control = Some(field.value),
                10 if message_id.is_none() && field.is("message-id") => message_id = Some(field.value),
                10 if newsgroups.is_none() && field.is("newsgroups") => newsgroups = Some(field.value),
                10 if supersedes.is_none() && field.is("supersedes") => supersedes = Some(field.value),
                _ => {}
            }
        }
        let message_id = message_id.filter(|id| !id.is_empty()).ok_or(Broken::NoMessageId)?;
        if !is_message_id(message_id) {
            return Err(Broken::BadMessageId);
        }
        let newsgroups = newsgroups.filter(|groups| !groups.is_empty()).ok_or(Broken::NoNewsgroups)?;
        match pieces(newsgroups).take(GROUPS_MAX + 1).count() {
            0 => return Err(Broken::NoNewsgroups),
            count if count > GROUPS_MAX => return Err(Broken::TooManyGroups),
            _ if Newsgroups::new(newsgroups).next().is_none() => return Err(Broken::BadNewsgroups),
            _ => {}
        }
        Ok(Self {
            bytes,
            head_end: fields.head_end,
            body_start: fields.body_start,
            message_id,
            newsgroups,
            control,
            supersedes,
            date,
            path,
            xref,
        })
    }

    /// All of it.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Offset after the last header line's LF, where a field can be added.
    pub fn head_end(&self) -> usize {
        self.head_end
    }

    /// Offset of the body's first byte, after the empty line.
    pub fn body_start(&self) -> usize {
        self.body_start
    }

    /// The bytes after the empty line.
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[self.body_start..]
    }

    /// All fields in order.
    pub fn fields(&self) -> impl Iterator<Item = Field<'a>> + use<'a> {
        let mut fields = Fields::new(self.bytes);
        std::iter::from_fn(move || fields.next_field().ok().flatten())
    }

    /// With its brackets.
    pub fn message_id(&self) -> &'a [u8] {
        self.message_id
    }

    /// The well-formed group names, each once, in order; at least one.
    pub fn newsgroups(&self) -> Newsgroups<'a> {
        Newsgroups::new(self.newsgroups)
    }

    /// Names that no group can have: not ASCII, empty parts, a slash.
    pub fn newsgroups_malformed(&self) -> usize {
        pieces(self.newsgroups).filter(|name| !is_group(name)).count()
    }

    /// What `Control: cancel <id>` wants removed, with its brackets; none when it names nothing readable.
    pub fn control_cancel(&self) -> Option<&'a [u8]> {
        let mut words = words(self.control?);
        (words.next()?.eq_ignore_ascii_case(b"cancel")).then_some(())?;
        words.next().filter(|id| is_message_id(id))
    }

    /// Whether there is a `Control:` field of any kind.
    pub fn is_control(&self) -> bool {
        self.control.is_some()
    }

    /// What this article replaces, with its brackets.
    pub fn supersedes(&self) -> Option<&'a [u8]> {
        words(self.supersedes?).next().filter(|id| is_message_id(id))
    }

    /// Hosts the article went through, by `!`, then the poster.
    pub fn path(&self) -> Option<&Field<'a>> {
        self.path.as_ref()
    }

    /// The `Xref:` of another server: where that one stored the article.
    pub fn xref(&self) -> Option<&Field<'a>> {
        self.xref.as_ref()
    }

    /// When it was posted, Unix time in seconds; none when unreadable.
    pub fn date(&self) -> Option<i64> {
        date::unix_time(self.date?)
    }
}

/// Group names of a `Newsgroups:` value.
#[derive(Clone, Debug)]
pub struct Newsgroups<'a> {
    list: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Newsgroups<'a> {
    fn new(list: &'a [u8]) -> Self {
        Self { list, rest: list }
    }
}

impl<'a> Iterator for Newsgroups<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            let start = self.rest.iter().position(|byte| !is_gap(*byte))?;
            let from = &self.rest[start..];
            let end = from.iter().position(|byte| is_gap(*byte)).unwrap_or(from.len());
            let name = &from[..end];
            let before = &self.list[..self.list.len() - from.len()];
            self.rest = &from[end..];
            // At most GROUPS_MAX names get here, so looking back stays cheap.
            if is_group(name) && !pieces(before).any(|earlier| earlier == name) {
                return std::str::from_utf8(name).ok();
            }
        }
    }
}

fn is_gap(byte: u8) -> bool {
    matches!(byte, b',' | b' ' | b'\t' | b'\n' | b'\r')
}

fn pieces(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| is_gap(*byte)).filter(|name| !name.is_empty())
}

fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// The `Date:` of a header that may be cut off or broken further on.
pub(crate) fn header_date(bytes: &[u8]) -> Option<i64> {
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next_field().ok()? {
        if field.is("date") {
            return date::unix_time(field.value);
        }
    }
    None
}

/// Whether the name can be a path of directories: parts of visible ASCII joined by single dots.
pub fn is_group(name: &[u8]) -> bool {
    let part = |part: &[u8]| {
        !part.is_empty()
            && part.len() <= 128
            && part.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'!' | b'\\'))
    };
    name.len() <= GROUP_BYTES_MAX && name.split(|byte| *byte == b'.').all(part)
}

/// Whether these bytes are `<...>` and fit a line of history.
pub fn is_message_id(id: &[u8]) -> bool {
    match id {
        [b'<', inner @ .., b'>'] => {
            !inner.is_empty()
                && id.len() <= MESSAGE_ID_BYTES_MAX
                && inner.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'<' | b'>'))
        }
        _ => false,
    }
}

/// The header of an article, field by field. Works on broken ones up to where they break.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
    head_end: usize,
    body_start: usize,
}

impl<'a> Fields<'a> {
    /// From the first line on.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, head_end: 0, body_start: 0 }
    }

    /// The next field, or none at the empty line.
    ///
    /// # Errors
    /// [`Broken::BadHeader`] and [`Broken::NoBody`].
    pub fn next_field(&mut self) -> Result<Option<Field<'a>>, Broken> {
        let (bytes, start) = (self.bytes, self.at);
        let first = line_end(bytes, start).ok_or(Broken::NoBody)?;
        if matches!(&bytes[start..first], b"\n" | b"\r\n") {
            (self.head_end, self.body_start) = (start, first);
            return Ok(None);
        }
        let name_len = bytes[start..first].iter().position(|byte| !is_name_byte(*byte)).unwrap_or(0);
        if name_len == 0 || bytes[start + name_len] != b':' {
            return Err(Broken::BadHeader);
        }
        let mut end = first;
        while matches!(bytes.get(end), Some(b' ' | b'\t')) {
            end = line_end(bytes, end).ok_or(Broken::NoBody)?;
        }
        self.at = end;
        let value_at = trimmed(bytes, start + name_len + 1..end);
        let name = &bytes[start..start + name_len];
        Ok(Some(Field { name, value: &bytes[value_at.clone()], lines: start..end, value_at }))
    }
}

/// RFC 822's field names, without the blank that it forbids too.
fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b':'
}

fn line_end(bytes: &[u8], start: usize) -> Option<usize> {
    bytes.get(start..)?.iter().position(|byte| *byte == b'\n').map(|at| start + at + 1)
}

fn trimmed(bytes: &[u8], range: Range<usize>) -> Range<usize> {
    let value = &bytes[range.clone()];
    let lead = value.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(value.len());
    let tail = value[lead..].iter().rev().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(0);
    range.start + lead..range.end - tail
}

#[cfg(test)]
mod tests;
