//! One line of history: `<id>` TAB `ARRIVED~EXPIRES~POSTED` TAB `group/number group/number …`.

use super::super::decimal;

/// A line without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HistoryLine<'a> {
    pub(crate) id: &'a [u8],
    /// Unix time, seconds.
    pub(crate) arrived: u64,
    /// The second field as it stands.
    pub(crate) dates: &'a [u8],
    /// The third field; none when the article is gone.
    pub(crate) files: Option<&'a [u8]>,
}

impl<'a> HistoryLine<'a> {
    /// None when it is no line of history.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b'\t');
        let (id, dates, files) = (fields.next()?, fields.next()?, fields.next());
        if fields.next().is_some() || !id.starts_with(b"<") || !id.ends_with(b">") {
            return None;
        }
        let arrived = decimal::parse(dates.split(|byte| *byte == b'~').next()?)?;
        Some(Self { id, arrived, dates, files: files.filter(|files| !files.is_empty()) })
    }

    /// Group and number of each file, the article's own first; what cannot be read is left out.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&'a [u8], u64)> + use<'a> {
        let files = self.files.unwrap_or_default();
        files.split(|byte| *byte == b' ').filter_map(split_file)
    }
}

/// `group/number`.
pub(crate) fn split_file(file: &[u8]) -> Option<(&[u8], u64)> {
    let slash = file.iter().rposition(|byte| *byte == b'/')?;
    Some((&file[..slash], decimal::parse(&file[slash + 1..])?))
}

/// The id that a line begins with.
pub(crate) fn id_of(line: &[u8]) -> &[u8] {
    line.split(|byte| *byte == b'\t').next().unwrap_or(line)
}

/// Writes id and dates; files follow by [`push_file`]. EXPIRES is `-`: no article asks for a time of its own here.
pub(crate) fn push_head(out: &mut Vec<u8>, id: &[u8], arrived: u64, posted: u64) {
    out.extend_from_slice(id);
    out.push(b'\t');
    decimal::push(out, arrived);
    out.extend_from_slice(b"~-~");
    decimal::push(out, posted);
}

/// Writes one file with what separates it from what is before.
pub(crate) fn push_file(out: &mut Vec<u8>, first: bool, group: &[u8], number: u64) {
    out.push(if first { b'\t' } else { b' ' });
    out.extend_from_slice(group);
    out.push(b'/');
    decimal::push(out, number);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_inn_writes_it_and_one_without_files_is_of_an_article_that_is_gone() {
        let line = HistoryLine::parse(b"<a@b>\t807235200~-~807235100\tcomp.os/1 alt.2600/42").unwrap();
        let files: Vec<_> = line.files().collect();
        assert_eq!((line.id, line.arrived), (&b"<a@b>"[..], 807_235_200));
        assert_eq!(files, [(&b"comp.os"[..], 1), (&b"alt.2600"[..], 42)]);
        let gone = HistoryLine::parse(b"<a@b>\t807235200~-~807235100").unwrap();
        assert_eq!((gone.files, gone.files().count()), (None, 0));
        let mut text = Vec::new();
        push_head(&mut text, b"<a@b>", 807_235_200, 807_235_100);
        push_file(&mut text, true, b"comp.os", 1);
        push_file(&mut text, false, b"alt.2600", 42);
        assert_eq!(HistoryLine::parse(&text).unwrap(), line);
    }

    #[test]
    fn what_is_no_line_is_refused_and_what_is_no_file_left_out() {
        for line in [&b""[..], b"<a@b>", b"a@b\t1~-~1", b"<a@b>\tx~-~1", b"<a@b>\t1\ta/1\tb"] {
            assert_eq!(HistoryLine::parse(line), None, "{}", line.escape_ascii());
        }
        assert_eq!(HistoryLine::parse(b"<a@b>\t1\tx a/ /1 b/2x c/3").unwrap().files().count(), 2);
    }
}
