//! Targeted cache control: CDN-Cache-Control and similar structured fields (RFC 9213, RFC 8941).
//!
//! Always holds: a field that is empty or invalid is ignored (RFC 9213 section 2.1), and so is one with a known directive whose
//! value has the wrong type.
//! Not here: which field is meant for this cache (`Policy::targets`); the grammar, which is `sfv`'s.

use http::{HeaderMap, HeaderName};
use sfv::visitor::{
    DictionaryVisitor, EntryVisitor, Ignored, InnerListVisitor, ItemVisitor, ParameterVisitor,
};
use sfv::{BareItemFromInput, KeyRef, Parser, Version};

use super::cache_control::ResponseDirectives;
use super::lists::DELTA_MAX;

/// The directives of one targeted field; `None` when it is ignored.
pub fn directives(headers: &HeaderMap, target: &HeaderName) -> Option<ResponseDirectives> {
    let mut lines = headers.get_all(target).iter();
    // Lines are joined before parsing (RFC 8941 section 4.2); one line, the usual case, is parsed in place.
    let first = lines.next()?.as_bytes();
    let mut joined = Vec::new();
    for line in lines {
        if joined.is_empty() {
            joined.extend_from_slice(first);
        }
        joined.extend_from_slice(b",");
        joined.extend_from_slice(line.as_bytes());
    }
    let field = if joined.is_empty() { first } else { &joined };
    let reader = Reader { found: ResponseDirectives { targeted: true, ..Default::default() }, members: 0 };
    // RFC 9213 is built on RFC 8941, which has neither dates nor display strings.
    let parser = Parser::new(field).with_version(Version::Rfc8941);
    parser.parse_dictionary_with_visitor(reader).ok().flatten()
}

/// A known directive has a value of the wrong type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a targeted directive has a value of the wrong type")]
struct WrongType;

/// Collects the directives of a dictionary. Among members with the same name the last one applies (RFC 8941 section 3.2).
struct Reader {
    found: ResponseDirectives,
    members: usize,
}

impl<'de> DictionaryVisitor<'de> for Reader {
    /// `None` for an empty field.
    type Out = Option<ResponseDirectives>;
    type Error = WrongType;

    fn entry(&mut self, key: &'de KeyRef) -> Result<impl EntryVisitor<'de>, WrongType> {
        self.members += 1;
        Ok(Directive { found: &mut self.found, name: key.as_str() })
    }

    fn finish(self) -> Result<Self::Out, WrongType> {
        Ok((self.members > 0).then_some(self.found))
    }
}

/// One member.
struct Directive<'a, 'de> {
    found: &'a mut ResponseDirectives,
    name: &'de str,
}

impl<'de> EntryVisitor<'de> for Directive<'_, 'de> {
    type Error = WrongType;

    fn item(self) -> Result<impl ItemVisitor<'de>, WrongType> {
        Ok(self)
    }

    fn inner_list(self) -> Result<impl InnerListVisitor<'de>, WrongType> {
        note(self.found, self.name, Value::Other)?;
        Ok(Ignored)
    }
}

impl<'de> ItemVisitor<'de> for Directive<'_, 'de> {
    type Out = ();
    type Error = WrongType;

    fn bare_item(
        self,
        item: BareItemFromInput<'de>,
    ) -> Result<impl ParameterVisitor<'de, Out = ()>, WrongType> {
        let value = match item {
            BareItemFromInput::Boolean(flag) => Value::Boolean(flag),
            BareItemFromInput::Integer(seconds) => Value::Integer(seconds.into()),
            _ => Value::Other,
        };
        note(self.found, self.name, value)?;
        // Parameters are ignored, but must be well formed.
        Ok(Ignored)
    }
}

/// As much of a value as the directives need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Boolean(bool),
    Integer(i64),
    Other,
}

fn note(found: &mut ResponseDirectives, name: &str, value: Value) -> Result<(), WrongType> {
    let flag = || match value {
        Value::Boolean(flag) => Ok(flag),
        _ => Err(WrongType),
    };
    let seconds = || match value {
        Value::Integer(seconds) => u32::try_from(seconds.min(i64::from(DELTA_MAX))).map_err(|_| WrongType),
        _ => Err(WrongType),
    };
    match name {
        "no-store" => found.no_store = flag()?,
        // With a list of fields these count as without one, which is the cautious reading.
        "no-cache" => found.no_cache = flag().unwrap_or(true),
        "private" => found.private = flag().unwrap_or(true),
        "public" => found.public = flag()?,
        "must-revalidate" => found.must_revalidate = flag()?,
        "proxy-revalidate" => found.proxy_revalidate = flag()?,
        "must-understand" => found.must_understand = flag()?,
        "immutable" => found.immutable = flag()?,
        "max-age" => found.max_age = Some(seconds()?),
        "s-maxage" => found.s_maxage = Some(seconds()?),
        "stale-while-revalidate" => found.stale_while_revalidate = Some(seconds()?),
        "stale-if-error" => found.stale_if_error = Some(seconds()?),
        _ => {}
    }
    Ok(())
}
