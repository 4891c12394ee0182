//! The paper's clone tool: writes a feed and copies of it that a server accepts as other articles.
//!
//! ```text
//! Message-ID: <42@host.example>      Supersedes: <7@host.example>      Control: cancel <9@host.example>
//! Message-ID: <42@host.example=1>    Supersedes: <7@host.example=1>    Control: cancel <9@host.example=1>
//! ```
//!
//! Always holds: nothing else of an article changes; a cancel in the copy cancels the copy; cloning a cloned feed
//! continues with the next numbers, so that no new duplicate id appears.
//! Not here: `References:`, which no server follows and the paper leaves alone.
//! Source: Swartz, section "All the News That's Fit to Test": original, then the first clone, then the second.

use super::make::{FeedShape, FeedWriter};
use super::{Feed, FeedProgress, Origin, Watch};
use crate::NetnewsError;
use crate::article::{Fields, MESSAGE_ID_BYTES_MAX};

/// Between host and clone number. No host name has it, and every server takes it in a message id.
const DELIMITER: u8 = b'=';

/// What was made.
#[derive(Clone, Debug)]
pub struct Cloned {
    /// The new feed.
    pub feed: Feed,
    /// The numbers given, first and last.
    pub numbers: (u64, u64),
}

/// Writes `feed` and `clones` copies of it to the directory `out`, batch for batch.
///
/// # Errors
/// When a batch cannot be read or written, or the caller stops it; then nothing is left.
pub fn clone(
    feed: &Feed,
    clones: u64,
    out: &std::path::Path,
    packed: bool,
    watch: &mut Watch<'_>,
) -> Result<Cloned, NetnewsError> {
    let manifest = feed.manifest();
    let shape = FeedShape {
        batch_articles: manifest.batch_articles.try_into().unwrap_or(FeedShape::default().batch_articles),
        packed,
    };
    let mut writer = FeedWriter::create(out, shape)?;
    let base = manifest.clone_number_max;
    let articles_total = Some(feed.articles().saturating_mul(clones.saturating_add(1)));
    let mut copy = Vec::new();
    for number in 0..=clones {
        let mut before = None;
        for batch in feed.batches() {
            let mut reader = match before.take() {
                Some(reader) => batch.open_with(reader)?,
                None => batch.open()?,
            };
            while let Some(article) = reader.next().map_err(|source| batch.error(source))? {
                let id = clone_article(article, (number > 0).then_some(base + number), &mut copy);
                writer.write(id.map_or(&[][..], |at| &copy[at]), &copy)?;
                let (articles, bytes) = (writer.articles(), writer.bytes());
                watch.tick(FeedProgress { articles, bytes, articles_total, files_sorted: 0 })?;
            }
            // The copy is cut where the original is.
            writer.end_batch()?;
            before = Some(reader);
        }
    }
    let source = feed.path().display().to_string();
    let origin = Origin::Clone { source, clones, of: Box::new(manifest.origin.clone()) };
    Ok(Cloned { feed: writer.finish(origin, base + clones)?, numbers: (base + 1, base + clones) })
}

/// Writes the copy of an article with this clone number into `copy`, or for `None` the article itself. Returns the range
/// of its message id.
pub fn clone_article(
    article: &[u8],
    number: Option<u64>,
    copy: &mut Vec<u8>,
) -> Option<std::ops::Range<usize>> {
    copy.clear();
    let mut done = 0;
    let mut message_id = None;
    let mut fields = Fields::new(article);
    while let Ok(Some(field)) = fields.next_field() {
        let is_id = field.is("message-id");
        let is_cancel = || {
            field.is("control")
                && field.value.get(..6).is_some_and(|word| word.eq_ignore_ascii_case(b"cancel"))
        };
        if !(is_id || field.is("supersedes") || is_cancel()) {
            continue;
        }
        let mut at = field.value_at.start;
        while let Some(open) = article[at..field.value_at.end].iter().position(|byte| *byte == b'<') {
            let open = at + open;
            let Some(len) = article[open..field.value_at.end].iter().position(|byte| *byte == b'>') else {
                break;
            };
            let close = open + len;
            copy.extend_from_slice(&article[done..=open]);
            let starts = copy.len() - 1;
            let suffix =
                number.map(|number| format!("{}{number}", char::from(DELIMITER))).unwrap_or_default();
            // An id that would be too long loses its first letters: longer than this no server takes it.
            let excess = (len + 1 + suffix.len()).saturating_sub(MESSAGE_ID_BYTES_MAX);
            let excess = if suffix.is_empty() { 0 } else { excess.min(len - 1) };
            copy.extend_from_slice(&article[open + 1 + excess..close]);
            copy.extend_from_slice(suffix.as_bytes());
            copy.push(b'>');
            if is_id && message_id.is_none() {
                message_id = Some(starts..copy.len());
            }
            done = close + 1;
            at = done;
        }
    }
    copy.extend_from_slice(&article[done..]);
    message_id
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::article::Article;

    fn cloned(article: &str, number: u64) -> String {
        let mut copy = Vec::new();
        clone_article(article.as_bytes(), Some(number), &mut copy);
        String::from_utf8(copy).expect("text")
    }

    #[test]
    fn ids_change_in_three_fields_and_nowhere_else() {
        let article =
            "Message-ID: <1@h>\nSupersedes: <0@h>\nControl: cancel <9@h>\nReferences: <8@h>\n\n<1@h>\n";
        assert_eq!(
            cloned(article, 2),
            "Message-ID: <1@h=2>\nSupersedes: <0@h=2>\nControl: cancel <9@h=2>\nReferences: <8@h>\n\n<1@h>\n"
        );
        assert_eq!(cloned("Control: newgroup <9@h>\n\n", 1), "Control: newgroup <9@h>\n\n");
        let mut same = Vec::new();
        assert_eq!(clone_article(article.as_bytes(), None, &mut same), Some(12..17));
        assert_eq!(same, article.as_bytes());
    }

    #[test]
    fn an_id_as_long_as_allowed_is_still_allowed_as_a_clone() {
        let id = format!("<{}@h>", "x".repeat(MESSAGE_ID_BYTES_MAX - 4));
        let copy = cloned(&format!("Message-ID: {id}\nNewsgroups: a\n\n"), 17);
        let article = Article::parse(copy.as_bytes()).expect("an article");
        assert_eq!(article.message_id().len(), MESSAGE_ID_BYTES_MAX);
        assert!(article.message_id().ends_with(b"@h=17>"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in "(Message-ID|Control|Supersedes)?: ?(cancel)?[<>@a\n ]{0,300}") {
            let mut copy = Vec::new();
            clone_article(bytes.as_bytes(), Some(u64::MAX), &mut copy);
            prop_assert!(copy.len() + 300 >= bytes.len());
        }
    }
}
