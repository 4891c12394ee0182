//! Finds what a browser fetches at once for an HTML page: images, scripts and style sheets.
//!
//! ```text
//! <base href> ─> the base of relative references
//! <img src, srcset> (not loading=lazy), <script src>, <input type=image src>, <video poster>, <body background>,
//! <link href, imagesrcset> with rel = stylesheet (not alternate), icon, preload, modulepreload
//! srcset: the candidate for 1x; among those with a width the narrowest that fills a usual window
//! ```
//!
//! Always holds: each URI is returned once, and no more than the limit. Other schemes are left out, and other hosts unless they are
//! allowed. Comments and the text of scripts are ignored.
//! Not here: `<source>` and `sizes`, whose result the proxy cannot know; frames, which are pages; what style sheets and scripts
//! request.
//! Source: the HTML standard, its tokenizer by html5gum, "Parsing a srcset attribute" and "Selecting an image source".

use std::collections::HashSet;
use std::io::Read as _;

use flate2::read::MultiGzDecoder;
use html5gum::{DefaultEmitter, HtmlString, StartTag, Token, Tokenizer};
use http::Uri;
use http_cache_rules::key::{self, CacheKey};

use crate::config::PrefetchHosts;

/// Most bytes to decompress of a page; the rest is not scanned.
const PLAIN_BYTES_MAX: u64 = 4 << 20;
/// Width in pixels to choose among candidates with widths.
const WIDTH: f64 = 1280.0;

/// Decompresses a page with `Content-Encoding: gzip`, as far as it is readable.
pub fn inflated(page: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    // The part before an error is as good as a page that broke off.
    let _ = MultiGzDecoder::new(page).take(PLAIN_BYTES_MAX).read_to_end(&mut plain);
    plain
}

/// The URIs that a page embeds, in the page's order.
pub fn embedded(html: &[u8], page: &Uri, hosts: PrefetchHosts, most: usize) -> Vec<Uri> {
    let mut emitter = DefaultEmitter::default();
    // Otherwise the text of scripts would count.
    emitter.naively_switch_states(true);
    let mut base = page.clone();
    let mut based = false;
    let mut known: HashSet<CacheKey> = CacheKey::of(page).into_iter().collect();
    let mut found = Vec::new();
    for token in Tokenizer::new_with_emitter(html, emitter) {
        let Ok(Token::StartTag(tag)) = token else { continue };
        if found.len() >= most {
            break;
        }
        if tag.name.as_slice() == b"base" {
            if let Some(uri) = attribute(&tag, b"href").and_then(|href| absolute(&base, href))
                && !based
            {
                (base, based) = (uri, true);
            }
            continue;
        }
        let Some(uri) = reference(&tag).and_then(|reference| absolute(&base, reference)) else { continue };
        let own_host = uri.authority().map(|host| host.as_str().to_ascii_lowercase())
            == page.authority().map(|host| host.as_str().to_ascii_lowercase());
        if uri.scheme() != page.scheme() || hosts == PrefetchHosts::Own && !own_host {
            continue;
        }
        if CacheKey::of(&uri).is_ok_and(|key| known.insert(key)) {
            found.push(uri);
        }
    }
    found
}

fn attribute<'a>(tag: &'a StartTag<()>, name: &[u8]) -> Option<&'a [u8]> {
    tag.attributes.get(&HtmlString(name.to_vec())).map(|value| value.value.as_slice().trim_ascii())
}

fn reference(tag: &StartTag<()>) -> Option<&[u8]> {
    let says =
        |name: &[u8], word: &[u8]| attribute(tag, name).is_some_and(|value| value.eq_ignore_ascii_case(word));
    let name: &[u8] = match tag.name.as_slice() {
        b"img" if !says(b"loading", b"lazy") => return either(tag, b"srcset", b"src"),
        b"script" => b"src",
        b"input" if says(b"type", b"image") => b"src",
        b"video" => b"poster",
        b"body" => b"background",
        b"link" => {
            let rel = attribute(tag, b"rel")?.to_ascii_lowercase();
            let has = |word: &[u8]| rel.split(u8::is_ascii_whitespace).any(|one| one == word);
            let wanted = has(b"stylesheet") && !has(b"alternate")
                || has(b"icon")
                || has(b"preload")
                || has(b"modulepreload");
            wanted.then_some(())?;
            return either(tag, b"imagesrcset", b"href");
        }
        _ => return None,
    };
    attribute(tag, name).filter(|reference| !reference.is_empty())
}

/// The best candidate of `several`, or `single` when there is none for 1x.
fn either<'a>(tag: &'a StartTag<()>, several: &[u8], single: &[u8]) -> Option<&'a [u8]> {
    let single = attribute(tag, single).filter(|reference| !reference.is_empty());
    match attribute(tag, several).map(candidates) {
        Some(candidates) if !candidates.is_empty() => chosen(&candidates, single),
        _ => single,
    }
}

/// The size that a candidate states.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Size {
    /// Pixels to the point.
    Density(f64),
    /// Pixels across.
    Width(f64),
}

fn chosen<'a>(candidates: &[(&'a [u8], Size)], single: Option<&'a [u8]>) -> Option<&'a [u8]> {
    let widths = candidates.iter().filter_map(|(reference, size)| match size {
        Size::Width(width) => Some((*reference, *width)),
        Size::Density(_) => None,
    });
    let densities = candidates.iter().filter_map(|(reference, size)| match size {
        Size::Density(density) => Some((*reference, *density)),
        Size::Width(_) => None,
    });
    fn least(one: &(&[u8], f64), other: &(&[u8], f64)) -> std::cmp::Ordering {
        one.1.total_cmp(&other.1)
    }
    let found = match widths.clone().next() {
        Some(_) => widths.clone().filter(|(_, width)| *width >= WIDTH).min_by(least).or(widths.max_by(least)),
        // A candidate without a size is for 1x.
        None => {
            densities.clone().find(|(_, density)| *density == 1.0).or(single.map(|single| (single, 1.0))).or(
                densities
                    .clone()
                    .filter(|(_, density)| *density >= 1.0)
                    .min_by(least)
                    .or(densities.max_by(least)),
            )
        }
    };
    found.map(|(reference, _)| reference)
}

/// The candidates of a srcset; those with an unknown size are left out.
fn candidates(srcset: &[u8]) -> Vec<(&[u8], Size)> {
    let (mut found, mut rest) = (Vec::new(), srcset);
    loop {
        let begin = rest.iter().position(|byte| !byte.is_ascii_whitespace() && *byte != b',');
        rest = &rest[begin.unwrap_or(rest.len())..];
        if rest.is_empty() {
            return found;
        }
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        let (mut reference, behind) = rest.split_at(end);
        let mut says: &[u8] = b"";
        rest = behind;
        if reference.ends_with(b",") {
            while let Some(shorter) = reference.strip_suffix(b",") {
                reference = shorter;
            }
        } else {
            let mut depth = 0_usize;
            let end = behind.iter().position(|byte| {
                match byte {
                    b'(' => depth += 1,
                    b')' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                *byte == b',' && depth == 0
            });
            (says, rest) = behind.split_at(end.unwrap_or(behind.len()));
        }
        found.extend(size(says.trim_ascii()).map(|size| (reference, size)));
    }
}

fn size(says: &[u8]) -> Option<Size> {
    let (last, number) = match says {
        [] => return Some(Size::Density(1.0)),
        // A height in addition to the width does not matter.
        says => says.split(u8::is_ascii_whitespace).find(|word| !word.ends_with(b"h"))?.split_last()?,
    };
    let number: f64 = std::str::from_utf8(number).ok()?.parse().ok().filter(|number: &f64| *number > 0.0)?;
    match last {
        b'x' => Some(Size::Density(number)),
        b'w' => Some(Size::Width(number)),
        _ => None,
    }
}

fn absolute(base: &Uri, reference: &[u8]) -> Option<Uri> {
    key::absolute(base, reference)?.parse().ok().filter(|uri: &Uri| CacheKey::of(uri).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(html: &str, hosts: PrefetchHosts) -> String {
        let page = "http://a.example/dir/page?x".parse().expect("a URI");
        let uris = embedded(html.as_bytes(), &page, hosts, 9);
        uris.iter().map(Uri::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_a_browser_fetches_at_once_is_found_and_nothing_else() {
        let rows = [
            ("<img src=x.png>", "http://a.example/dir/x.png"),
            ("<IMG SRC='/x.png' alt=x/>", "http://a.example/x.png"),
            ("<img loading=lazy src=x.png>", ""),
            ("<img src=' ../x.png?a=1&amp;b=2#c '>", "http://a.example/x.png?a=1&b=2"),
            ("<script src=a.js></script><script>'<img src=no.png>'</script>", "http://a.example/dir/a.js"),
            ("<!-- <img src=no.png> --><style><img src=no.png></style>", ""),
            ("<title><img src=no.png></title><textarea><img src=no.png></textarea>", ""),
            ("<link rel='icon stylesheet' href=s.css>", "http://a.example/dir/s.css"),
            ("<link rel=ICON href=/i><link rel=preload href=/p>", "http://a.example/i http://a.example/p"),
            ("<link rel='alternate stylesheet' href=/s><link rel=next href=/n><link href=/l>", ""),
            ("<input src=/no><input type=image src=/yes>", "http://a.example/yes"),
            ("<img srcset='a.png, b.png 2x' src=/no>", "http://a.example/dir/a.png"),
            ("<img srcset='/b 2x,/c 3x' src=/yes>", "http://a.example/yes"),
            ("<img srcset='/c 3x, /b 1.5x,'>", "http://a.example/b"),
            ("<img srcset=',,/a,b 1x,/c' src=/no>", "http://a.example/a,b"),
            ("<img sizes=50vw srcset='/s 320w, /m 1280w 720h, /l 2560w' src=/no>", "http://a.example/m"),
            ("<img srcset='/s 320w,/m 640w,' src=/no>", "http://a.example/m"),
            ("<img srcset='/s x, /t -1x, /u 1y' src=/yes>", "http://a.example/yes"),
            ("<img srcset='/s (1x, /t 2x), /u 1x'>", "http://a.example/u"),
            ("<img srcset='data:image/png;base64,xx 1x' src=/no>", ""),
            ("<img loading=lazy srcset=/no>", ""),
            ("<picture><source srcset=/no><img src=/yes></picture>", "http://a.example/yes"),
            ("<link rel=preload as=image imagesrcset='/e 1x, /no 2x' href=/no>", "http://a.example/e"),
            ("<video poster=/v src=/no><body background=/b>", "http://a.example/v http://a.example/b"),
            ("<a href=/no><iframe src=/no><form action=/no>", ""),
            ("<base href=/other/><base href=/no/><img src=x>", "http://a.example/other/x"),
            ("<img src=/x><img src=/%78><img src=/dir/page?x>", "http://a.example/x"),
            ("<img src=data:x><img src=javascript:x><img src=https://a.example/x><img src=''><img>", ""),
            ("<img src=//a.example:81/x><img src=//name@a.example/x><img src='/a b'>", ""),
            ("<img src=/unfinished", ""),
        ];
        for (html, wanted) in rows {
            assert_eq!(found(html, PrefetchHosts::Own), wanted, "{html}");
        }
    }

    #[test]
    fn a_compressed_page_is_read_up_to_where_it_can_be_and_no_further_than_its_bound() {
        let packed = |text: &[u8]| {
            let mut gzip = flate2::read::GzEncoder::new(text, flate2::Compression::fast());
            let mut bytes = Vec::new();
            gzip.read_to_end(&mut bytes).expect("in memory");
            bytes
        };
        let page = packed(b"<img src=x>");
        assert_eq!(inflated(&page), b"<img src=x>");
        assert_eq!(inflated(&page[..page.len() - 8]), b"<img src=x>", "without its checksum");
        assert_eq!(inflated(b"<img src=x>"), b"");
        assert_eq!(inflated(&packed(&vec![b' '; 20 << 20])).len() as u64, PLAIN_BYTES_MAX);
    }

    #[test]
    fn other_hosts_count_only_when_all_are_allowed_and_nothing_counts_beyond_the_most() {
        let html = "<img src=//b.example/x><img src=//A.example/y>";
        assert_eq!(found(html, PrefetchHosts::Own), "http://A.example/y");
        assert_eq!(found(html, PrefetchHosts::All), "http://b.example/x http://A.example/y");
        let many: String = (0..100).map(|number| format!("<img src={number}>")).collect();
        assert_eq!(found(&many, PrefetchHosts::Own).split(' ').count(), 9);
    }
}
