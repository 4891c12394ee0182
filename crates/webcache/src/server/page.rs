//! What a page of HTML has a browser fetch at once: its images, scripts and style sheets.
//!
//! ```text
//! <base href> ─> where relative references count from
//! <img src> (not loading=lazy), <script src>, <input type=image src>, <video poster>, <body background>,
//! <link href> with rel = stylesheet (not alternate), icon, preload, modulepreload
//! ```
//!
//! Always holds: each URI once, none more than were asked for, none of another scheme, and of other hosts only where that is
//! allowed; nothing in a comment or in a script's text counts.
//! Not here: srcset, of which the proxy cannot know what the browser will choose; frames, which are pages; what style sheets
//! and scripts ask for.
//! Source: the HTML standard's tokenizer, by html5gum.

use std::collections::HashSet;

use html5gum::{DefaultEmitter, HtmlString, StartTag, Token, Tokenizer};
use http::Uri;

use crate::config::PrefetchHosts;
use crate::rules::key::{self, CacheKey};

/// The URIs that a page embeds, in the order of the page.
pub fn embedded(html: &[u8], page: &Uri, hosts: PrefetchHosts, most: usize) -> Vec<Uri> {
    let mut emitter = DefaultEmitter::default();
    // Else what is written in a script would count.
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
        b"img" if !says(b"loading", b"lazy") => b"src",
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
            wanted.then_some(b"href".as_slice())?
        }
        _ => return None,
    };
    attribute(tag, name).filter(|reference| !reference.is_empty())
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
    fn other_hosts_count_only_when_all_are_allowed_and_nothing_counts_beyond_the_most() {
        let html = "<img src=//b.example/x><img src=//A.example/y>";
        assert_eq!(found(html, PrefetchHosts::Own), "http://A.example/y");
        assert_eq!(found(html, PrefetchHosts::All), "http://b.example/x http://A.example/y");
        let many: String = (0..100).map(|number| format!("<img src={number}>")).collect();
        assert_eq!(found(&many, PrefetchHosts::Own).split(' ').count(), 9);
    }
}
