//! Article i, from the seed and i alone.

use std::io::Write as _;
use std::ops::Range;

use jiff::Timestamp;

use super::arrivals::Arrivals;
use super::draw::{Draw, Purpose};
use super::model;
use super::names::{Groups, Names};
use super::text::Pool;

/// Writes articles in any order.
pub(super) struct Author {
    seed: u64,
    names: Names,
    arrivals: Arrivals,
    text: Pool,
    binary: Pool,
    /// Sums of [`model::GROUP_COUNTS`].
    group_counts: Vec<u32>,
}

/// What article i is, besides an article.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Plain,
    /// An earlier one that comes again by another way.
    Duplicate(u64),
    Cancel(u64),
    Supersedes(u64),
}

impl Author {
    pub(super) fn new(seed: u64, groups: u32, articles: u64) -> Self {
        let names = Names::new(seed, groups);
        let sums = model::GROUP_COUNTS.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        Self {
            seed,
            arrivals: Arrivals::new(seed, articles),
            text: Pool::text(seed, &names),
            binary: Pool::binary(seed),
            group_counts: sums.collect(),
            names,
        }
    }

    pub(super) fn groups(&self) -> &Groups {
        &self.names.groups
    }

    /// Writes article `number` into `out`; where its message id is.
    pub(super) fn write(&self, number: u64, out: &mut Vec<u8>) -> Range<usize> {
        out.clear();
        let role = self.role(number);
        let content = if let Role::Duplicate(original) = role { original } else { number };
        let mut draw = Draw::new(self.seed, Purpose::Article, content);
        let is_binary = draw.chance(model::BINARY_SHARE);
        let bytes = match role {
            // A line of its poster's; as large as its header.
            Role::Cancel(_) => 0,
            _ if is_binary => binary_bytes(&mut draw),
            _ => model::size_quantile(draw.unit()) as usize,
        };
        let home = self.names.home(&mut draw);
        let (given, family) = (self.names.word(&mut draw), self.names.word(&mut draw));
        self.path(number, home, given, out);
        put(out, format_args!("From: {given}@{home} ({} {})\n", Capital(given), Capital(family)));
        let groups_from = out.len();
        self.newsgroups(content, is_binary, role, out);
        let groups = groups_from + b"Newsgroups: ".len()..out.len() - 1;
        let answer = draw.chance(model::REFERENCES) && matches!(role, Role::Plain | Role::Duplicate(_));
        match role {
            Role::Cancel(target) => {
                out.extend_from_slice(b"Subject: cmsg cancel ");
                self.id(target, out);
                out.extend_from_slice(b"\nControl: cancel ");
                self.id(target, out);
            }
            _ => {
                out.extend_from_slice(if answer { b"Subject: Re:" } else { b"Subject:" });
                let until = out.len() + 18 + draw.below(22) as usize;
                while out.len() < until {
                    out.push(b' ');
                    out.extend_from_slice(self.names.word(&mut draw).as_bytes());
                }
            }
        }
        out.extend_from_slice(b"\nMessage-ID: ");
        let id_from = out.len();
        self.id(content, out);
        let id = id_from..out.len();
        let (median, sigma) = model::UNDER_WAY;
        let under_way = (median * (sigma * draw.normal()).exp()).min(30.0 * 86_400.0);
        out.extend_from_slice(b"\nDate: ");
        put_date(out, self.arrivals.unix_time(content) - under_way as i64);
        out.push(b'\n');
        if let Role::Supersedes(target) = role {
            out.extend_from_slice(b"Supersedes: ");
            self.id(target, out);
            out.push(b'\n');
        }
        self.further_fields(&mut draw, content, bytes, answer, (given, home), groups, out);
        // `Lines:` comes before what it counts, so the body is written behind a gap of its longest number.
        let lines_at = out.len();
        out.extend_from_slice(b"Lines: 0000000\n\n");
        let body_bytes = match role {
            Role::Cancel(_) => 0,
            _ => bytes.saturating_sub(out.len()),
        };
        let body_at = out.len();
        let mut lines = if is_binary && body_bytes > 400 {
            let begin = b"begin 644 part.dat\n";
            out.extend_from_slice(begin);
            1 + self.binary.write(&mut draw, body_bytes - begin.len(), out)
        } else {
            self.text.write(&mut draw, body_bytes, out)
        };
        if body_bytes == 0 {
            put(out, format_args!("{}\n", self.names.word(&mut draw)));
            lines = 1;
        }
        let field = format!("Lines: {lines}\n\n");
        // The head moves up to the body: it is the shorter one.
        let gap = body_at - lines_at - field.len();
        out[lines_at..body_at - gap].copy_from_slice(field.as_bytes());
        out.copy_within(body_at.., body_at - gap);
        out.truncate(out.len() - gap);
        id
    }

    fn path(&self, number: u64, home: &str, poster: &str, out: &mut Vec<u8>) {
        // By arrival, not by content: a duplicate comes by another way.
        let mut draw = Draw::new(self.seed, Purpose::Path, number);
        let hosts = model::quantile(model::PATH_HOSTS, draw.unit()).round().max(1.0) as usize;
        out.extend_from_slice(b"Path: ");
        out.extend_from_slice(self.names.feeder().as_bytes());
        out.push(b'!');
        for _ in 2..hosts {
            out.extend_from_slice(self.names.relay(&mut draw).as_bytes());
            out.push(b'!');
        }
        if hosts > 1 {
            out.extend_from_slice(home.as_bytes());
            out.push(b'!');
        }
        out.extend_from_slice(poster.as_bytes());
        out.push(b'\n');
    }

    fn newsgroups(&self, content: u64, is_binary: bool, role: Role, out: &mut Vec<u8>) {
        let groups = &self.names.groups;
        // What replaces or removes an article goes where that went.
        let (like, is_binary) = match role {
            Role::Cancel(target) | Role::Supersedes(target) => {
                (target, Draw::new(self.seed, Purpose::Article, target).chance(model::BINARY_SHARE))
            }
            Role::Plain | Role::Duplicate(_) => (content, is_binary),
        };
        // Groups have streams of their own, of which the first was for their names.
        let draw = &mut Draw::new(self.seed, Purpose::Groups, like + 1);
        let at = draw.below(u64::from(self.group_counts[self.group_counts.len() - 1])) as u32;
        let count = self.group_counts.partition_point(|sum| *sum <= at) + 1;
        let all = if is_binary { groups.binaries() } else { 0..groups.count() };
        let count = count.min(all.len());
        let first = groups.draw(draw, all.clone());
        let kin = if is_binary { all.clone() } else { groups.kin(first) };
        let mut chosen = [first; model::GROUP_COUNTS.len()];
        out.extend_from_slice(b"Newsgroups: ");
        out.extend_from_slice(groups.name(first).as_bytes());
        for at in 1..count {
            let range = if draw.chance(model::SAME_HIERARCHY) { kin.clone() } else { all.clone() };
            let mut next = groups.draw(draw, range.clone());
            let mut tries = 0;
            while chosen[..at].contains(&next) {
                tries += 1;
                // Of a small or lopsided hierarchy all the large ones may be named already.
                let wider = if tries < 4 { range.clone() } else { all.clone() };
                next = if tries < 32 {
                    groups.draw(draw, wider)
                } else {
                    all.start + (next + 1 - all.start) % all.len()
                };
            }
            chosen[at] = next;
            out.push(b',');
            out.extend_from_slice(groups.name(next).as_bytes());
        }
        out.push(b'\n');
    }

    /// Fields that not all have, as long as the size leaves room for them and a few lines.
    #[expect(clippy::too_many_arguments, reason = "one article's parts, used here alone")]
    fn further_fields(
        &self,
        draw: &mut Draw,
        content: u64,
        bytes: usize,
        answer: bool,
        (given, home): (&str, &str),
        groups: Range<usize>,
        out: &mut Vec<u8>,
    ) {
        let names = &self.names;
        let room = |out: &Vec<u8>, wanted: usize| out.len() + wanted + 60 <= bytes.max(500);
        if answer && room(out, 90) {
            out.extend_from_slice(b"References:");
            // N93: half of the answers have one reference or two, their mean is two.
            let count = 1 + draw.waiting(1.7) as u64;
            for back in 0..count.min(8) {
                out.push(b' ');
                self.id(content.saturating_sub(1 + back * 50 + draw.below(5_000)), out);
            }
            out.push(b'\n');
        }
        if draw.chance(model::ORGANIZATION) && room(out, 45) {
            out.extend_from_slice(b"Organization:");
            let until = out.len() + 12 + draw.below(36) as usize;
            while out.len() < until {
                out.push(b' ');
                put(out, format_args!("{}", Capital(names.word(draw))));
            }
            out.push(b'\n');
        }
        if draw.chance(model::SENDER) && room(out, 40) {
            put(out, format_args!("Sender: news@{home} ({} news)\n", Capital(names.word(draw))));
        }
        if draw.chance(model::POSTING_HOST) && room(out, 40) {
            put(out, format_args!("NNTP-Posting-Host: {home}\n"));
        }
        if draw.chance(model::DISTRIBUTION) && room(out, 20) {
            out.extend_from_slice(
                [&b"Distribution: world\n"[..], b"Distribution: na\n"][draw.below(2) as usize],
            );
        }
        if draw.chance(model::REPLY_TO) && room(out, 40) {
            put(out, format_args!("Reply-To: {given}@{home}\n"));
        }
        if draw.chance(model::KEYWORDS) && room(out, 40) {
            put(out, format_args!("Keywords: {}, {}\n", names.word(draw), names.word(draw)));
        }
        if draw.chance(model::FOLLOWUP_TO) && room(out, 40) {
            let first = out[groups.clone()].iter().position(|byte| *byte == b',').unwrap_or(groups.len());
            out.extend_from_slice(b"Followup-To: ");
            out.extend_from_within(groups.start..groups.start + first);
            out.push(b'\n');
        }
        if draw.chance(model::NEWSREADER) && room(out, 40) {
            put(out, format_args!("X-Newsreader: {} [version 1.{}]\n", names.word(draw), draw.below(10)));
        }
    }

    /// The message id that article `content` has.
    fn id(&self, content: u64, out: &mut Vec<u8>) {
        let mut draw = Draw::new(self.seed, Purpose::Id, content);
        let tag = draw.below(1 << 24);
        let home = self.names.home(&mut draw);
        put(out, format_args!("<{content}.{tag:06x}@{home}>"));
    }

    fn role(&self, number: u64) -> Role {
        let (mut draw, role) = self.nominal_role(number);
        let lag = match role {
            Role::Plain => return role,
            Role::Duplicate(_) => model::DUPLICATE_LAG,
            Role::Cancel(_) => model::CANCEL_LAG,
            Role::Supersedes(_) => model::SUPERSEDES_LAG,
        };
        for _ in 0..16 {
            let Some(target) = number.checked_sub(1 + draw.waiting(lag) as u64) else { continue };
            // Only plain ones are repeated, removed or replaced, so that no chain has to be followed.
            if self.nominal_role(target).1 == Role::Plain {
                return match role {
                    Role::Duplicate(_) => Role::Duplicate(target),
                    Role::Cancel(_) => Role::Cancel(target),
                    Role::Supersedes(_) | Role::Plain => Role::Supersedes(target),
                };
            }
        }
        // Too early in the feed to have anything behind it.
        Role::Plain
    }

    /// The role drawn for it, without a target.
    fn nominal_role(&self, number: u64) -> (Draw, Role) {
        let mut draw = Draw::new(self.seed, Purpose::Role, number);
        let at = draw.unit();
        let duplicates = model::DUPLICATE_SHARE;
        let cancels = duplicates + model::CANCEL_SHARE;
        let role = match at {
            at if at < duplicates => Role::Duplicate(0),
            at if at < cancels => Role::Cancel(0),
            at if at < cancels + model::SUPERSEDES_SHARE => Role::Supersedes(0),
            _ => Role::Plain,
        };
        (draw, role)
    }
}

fn binary_bytes(draw: &mut Draw) -> usize {
    let bytes = model::BINARY_BYTES_MEDIAN * (model::BINARY_BYTES_SIGMA * draw.normal()).exp();
    bytes.clamp(1_000.0, model::BINARY_BYTES_MAX) as usize
}

/// A word with a capital letter.
struct Capital<'a>(&'a str);

impl std::fmt::Display for Capital<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut letters = self.0.chars();
        if let Some(first) = letters.next() {
            write!(f, "{}{}", first.to_ascii_uppercase(), letters.as_str())?;
        }
        Ok(())
    }
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("memory takes all");
}

/// RFC 1036: `14 Aug 1995 00:00:00 GMT`.
fn put_date(out: &mut Vec<u8>, unix: i64) {
    let at = Timestamp::from_second(unix).expect("a feed's days are within the calendar");
    put(out, format_args!("{}", at.strftime("%-d %b %Y %H:%M:%S GMT")));
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::article::Article;

    #[test]
    fn every_article_is_whole_and_what_it_tells_of_itself_is_true() {
        let author = Author::new(7, 500, 4_000);
        let mut ids = HashMap::new();
        let (mut duplicates, mut cancels) = (0, 0);
        let mut out = vec![];
        for number in 0..4_000 {
            let id = author.write(number, &mut out);
            let article =
                Article::parse(&out).unwrap_or_else(|why| panic!("{why}: {}", String::from_utf8_lossy(&out)));
            assert_eq!(article.message_id(), &out[id]);
            assert_eq!(article.newsgroups_malformed(), 0);
            let lines = article.fields().find(|field| field.is("lines")).expect("Lines").value.to_vec();
            let counted = article.body().iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(String::from_utf8_lossy(&lines), counted.to_string());
            let date = article.date().expect("a date");
            assert!(date <= author.arrivals.unix_time(number) && date > model::BEGINS_UNIX - 31 * 86_400);
            if let Some(target) = article.control_cancel().or(article.supersedes()) {
                cancels += 1;
                let groups: &String = &ids[target];
                assert_eq!(
                    *groups,
                    article.newsgroups().collect::<Vec<_>>().join(","),
                    "goes where its target went"
                );
            }
            let groups = article.newsgroups().collect::<Vec<_>>().join(",");
            if let Some(earlier) = ids.insert(article.message_id().to_vec(), groups) {
                duplicates += 1;
                assert_eq!(&earlier, &ids[article.message_id()]);
            }
        }
        assert!((50..160).contains(&duplicates), "{duplicates}");
        assert!((30..120).contains(&cancels), "{cancels}");
    }

    #[test]
    fn dates_written_are_the_dates_read() {
        for unix in [0, 951_782_400, 808_358_400, 825_552_000 - 1, 1_709_208_000, 4_102_444_799] {
            let mut head = b"Date: ".to_vec();
            put_date(&mut head, unix);
            head.extend_from_slice(b"\n\n");
            assert_eq!(crate::article::header_date(&head), Some(unix), "{}", String::from_utf8_lossy(&head));
        }
    }
}
