//! Derives an object from its URL alone: its size, whether it may be cached, and when it changes.
//!
//! ```text
//! /i/1f3a                           an image; all else follows from kind and number by PolyMix's laws
//! /f/2a/s10700                      anything of 10,700 bytes
//! /h/7/s8500/p3600/u                HTML that changes every hour and may not be cached (c: may be)
//! /f/9bd2/s1713/-/images/logo.gif   the part after /-/ matters only to readers and the proxy
//! ```
//!
//! Always holds: robots and origin compute the same object from the same path, on any machine, so the origin keeps no
//! state and every reply can be checked.
//! Not here: the bytes (see `body`), which objects are asked for (see `polymix`).
//! Source: Web Polygraph's PolyMix-3, content types.

use std::fmt::Write as _;

/// What a URL's first letter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `i`: mean 4.5 KB, 80% cacheable, changes about every 30 days.
    Image,
    /// `h`: mean 8.5 KB, 90% cacheable, changes about every 7 days.
    Html,
    /// `d`: mean 300 KB, 95% cacheable, changes about every half year.
    Download,
    /// `o`: mean 25 KB, 72% cacheable, changes within a day to a year.
    Other,
    /// `f`: cacheable, and it does not change within a run; 10.7 KB unless the URL says otherwise.
    Fixed,
}

/// One object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Object {
    /// Content type.
    pub kind: Kind,
    /// Which one of its kind.
    pub number: u64,
    /// Length of its body.
    pub size_bytes: u64,
    /// Whether a shared cache may keep it.
    pub cacheable: bool,
    /// Seconds between two changes.
    pub period_s: u64,
}

const SECONDS_A_DAY: f64 = 86_400.0;
/// Size of what has no law, bytes: the mean of the objects peers were measured with.
pub const FIXED_BYTES: u64 = 10_700;
/// No URL makes the origin send more, bytes.
pub const SIZE_BYTES_MAX: u64 = 1 << 40;
/// Changes no faster than HTTP's dates can tell.
const PERIOD_S_MIN: u64 = 4;

impl Kind {
    /// All, with their letters.
    pub const ALL: [Self; 5] = [Self::Image, Self::Html, Self::Download, Self::Other, Self::Fixed];

    fn letter(self) -> char {
        match self {
            Self::Image => 'i',
            Self::Html => 'h',
            Self::Download => 'd',
            Self::Other => 'o',
            Self::Fixed => 'f',
        }
    }

    /// Its media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Image => "image/gif",
            Self::Html => "text/html",
            Self::Download => "application/zip",
            Self::Other | Self::Fixed => "application/octet-stream",
        }
    }

    /// Mean size by the law, bytes.
    pub fn mean_bytes(self) -> f64 {
        match self {
            Self::Image => 4_500.0,
            Self::Html => 8_500.0,
            Self::Download => 300_000.0,
            Self::Other => 25_000.0,
            Self::Fixed => FIXED_BYTES as f64,
        }
    }

    /// Share that may be cached, 0 to 1.
    pub fn cacheable_share(self) -> f64 {
        match self {
            Self::Image => 0.80,
            Self::Html => 0.90,
            Self::Download => 0.95,
            Self::Other => 0.72,
            Self::Fixed => 1.0,
        }
    }

    fn size_bytes(self, dice: &mut Dice) -> u64 {
        let size = match self {
            Self::Image | Self::Html => -self.mean_bytes() * dice.unit().ln(),
            Self::Download => dice.lognormal(300_000.0, 300_000.0),
            Self::Other => dice.lognormal(25_000.0, 10_000.0),
            Self::Fixed => FIXED_BYTES as f64,
        };
        (size.round() as u64).clamp(1, SIZE_BYTES_MAX)
    }

    fn period_s(self, dice: &mut Dice) -> f64 {
        match self {
            Self::Image => dice.lognormal(30.0 * SECONDS_A_DAY, 7.0 * SECONDS_A_DAY),
            Self::Html => dice.lognormal(7.0 * SECONDS_A_DAY, SECONDS_A_DAY),
            Self::Download => dice.lognormal(182.5 * SECONDS_A_DAY, 30.0 * SECONDS_A_DAY),
            Self::Other => SECONDS_A_DAY * (1.0 + 364.0 * dice.unit()),
            Self::Fixed => 10.0 * 365.0 * SECONDS_A_DAY,
        }
    }
}

impl Object {
    /// The object that the laws give for kind and number.
    pub fn by_law(kind: Kind, number: u64) -> Self {
        let mut dice = Dice(mix(number ^ (u64::from(u32::from(kind.letter())) << 56)));
        let cacheable = dice.unit() < kind.cacheable_share();
        let size_bytes = kind.size_bytes(&mut dice);
        let period_s = (kind.period_s(&mut dice) as u64).max(PERIOD_S_MIN);
        Self { kind, number, size_bytes, cacheable, period_s }
    }

    /// A cacheable object of a given size.
    pub fn fixed(number: u64, size_bytes: u64) -> Self {
        Self { size_bytes: size_bytes.clamp(1, SIZE_BYTES_MAX), ..Self::by_law(Kind::Fixed, number) }
    }

    /// A cacheable object of a set with this mean size: lognormal, with a deviation as large as the mean.
    pub fn of_mean(number: u64, mean_bytes: u64) -> Self {
        let mut dice = Dice(mix(number ^ 0x6d65_616e));
        Self::fixed(number, dice.lognormal(mean_bytes as f64, mean_bytes as f64).round() as u64)
    }

    /// The same, changing `times` as often.
    pub fn ageing_faster(self, times: f64) -> Self {
        let period_s = (self.period_s as f64 / times) as u64;
        Self { period_s: period_s.max(PERIOD_S_MIN), ..self }
    }

    /// Reads a path; none when it is no path of ours.
    pub fn of_path(path: &[u8]) -> Option<Self> {
        let mut segments = path.strip_prefix(b"/")?.split(|&byte| byte == b'/');
        let [letter] = segments.next()? else { return None };
        let kind = Kind::ALL.into_iter().find(|kind| kind.letter() == char::from(*letter))?;
        let mut object = Self::by_law(kind, number(segments.next()?, 16)?);
        for segment in segments {
            match segment {
                b"c" => object.cacheable = true,
                b"u" => object.cacheable = false,
                [b's', digits @ ..] => object.size_bytes = number(digits, 10)?.clamp(1, SIZE_BYTES_MAX),
                [b'p', digits @ ..] => object.period_s = number(digits, 10)?.max(PERIOD_S_MIN),
                b"-" => break,
                _ => return None,
            }
        }
        Some(object)
    }

    /// Writes the shortest path that is read back as this object.
    pub fn write_path(&self, path: &mut String) {
        let law = Self::by_law(self.kind, self.number);
        // Writing to a String cannot fail.
        let _ = write!(path, "/{}/{:x}", self.kind.letter(), self.number);
        if self.size_bytes != law.size_bytes {
            let _ = write!(path, "/s{}", self.size_bytes);
        }
        if self.period_s != law.period_s {
            let _ = write!(path, "/p{}", self.period_s);
        }
        if self.cacheable != law.cacheable {
            path.push_str(if self.cacheable { "/c" } else { "/u" });
        }
    }

    /// What its bytes are made from, besides the version.
    pub fn key(&self) -> u64 {
        let traits =
            self.size_bytes.rotate_left(24) ^ self.period_s.rotate_left(4) ^ u64::from(self.cacheable);
        mix(mix(self.number ^ (u64::from(u32::from(self.kind.letter())) << 56)) ^ traits)
    }

    /// How often it had changed at a time, seconds since 1970.
    pub fn version_at(&self, unix_s: f64) -> u64 {
        let since = unix_s - self.shift_s() as f64;
        if since <= 0.0 { 0 } else { (since / self.period_s as f64) as u64 + 1 }
    }

    /// When it became this version, whole seconds since 1970, as HTTP's dates are.
    pub fn modified_s(&self, version: u64) -> u64 {
        match version.checked_sub(1) {
            Some(changes) => self.shift_s().saturating_add(changes.saturating_mul(self.period_s)),
            None => 0,
        }
    }

    /// Objects of one period do not all change at once.
    fn shift_s(&self) -> u64 {
        mix(self.number ^ 0x5bd1_e995_7b93_c0f1) % self.period_s
    }
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u64::from_str_radix(text, radix).ok()
}

/// A bijection in which every bit of the result hangs on every bit of the input (the finaliser of SplitMix64).
#[inline]
pub(crate) fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Chance that is the same each time.
struct Dice(u64);

impl Dice {
    /// Above 0, at most 1.
    fn unit(&mut self) -> f64 {
        self.0 = mix(self.0);
        ((self.0 >> 11) as f64 + 1.0) / (1u64 << 53) as f64
    }

    /// By the mean and deviation of the values themselves, not of their logarithms.
    fn lognormal(&mut self, mean: f64, sd: f64) -> f64 {
        let variance = (1.0 + (sd / mean).powi(2)).ln();
        let normal = (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
        (mean.ln() - variance / 2.0 + variance.sqrt() * normal).exp()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path_of(object: &Object) -> String {
        let mut path = String::new();
        object.write_path(&mut path);
        path
    }

    #[test]
    fn the_laws_give_the_published_means_and_shares() {
        let count = 60_000u64;
        for kind in [Kind::Image, Kind::Html, Kind::Download, Kind::Other] {
            let all: Vec<Object> = (0..count).map(|number| Object::by_law(kind, number)).collect();
            let mean = all.iter().map(|object| object.size_bytes as f64).sum::<f64>() / count as f64;
            assert!((mean / kind.mean_bytes() - 1.0).abs() < 0.03, "{kind:?}: mean {mean}");
            let cacheable = all.iter().filter(|object| object.cacheable).count() as f64 / count as f64;
            assert!((cacheable - kind.cacheable_share()).abs() < 0.01, "{kind:?}: {cacheable}");
        }
        let days = |kind| {
            (0..count).map(|n| Object::by_law(kind, n).period_s as f64 / SECONDS_A_DAY).sum::<f64>()
                / count as f64
        };
        assert!((days(Kind::Image) - 30.0).abs() < 0.5 && (days(Kind::Html) - 7.0).abs() < 0.1);
    }

    #[test]
    fn a_version_lasts_from_its_date_to_the_next_ones() {
        for number in 0..200 {
            let object = Object::by_law(Kind::Html, number).ageing_faster(10_000.0);
            let now = 1_795_000_000.5 + number as f64;
            let version = object.version_at(now);
            let (from, to) = (object.modified_s(version) as f64, object.modified_s(version + 1) as f64);
            assert!(from <= now && now < to, "{from} {now} {to}");
            assert_eq!(object.version_at(from), version);
            assert_eq!(object.version_at(to), version + 1);
        }
    }

    #[test]
    fn what_is_no_path_of_ours_is_no_object() {
        for path in
            ["", "/", "i/1", "/i", "/i/", "/x/1", "/i/zz", "/i/1/q", "/i/1/s", "/i/1/sx", "/i/+1", "/ii/1"]
        {
            assert_eq!(Object::of_path(path.as_bytes()), None, "{path}");
        }
        assert_eq!(
            Object::of_path(b"/f/2a/s7/-/any/thing?x=1"),
            Some(Object { size_bytes: 7, ..Object::by_law(Kind::Fixed, 42) })
        );
    }

    proptest! {
        #[test]
        fn a_path_is_read_back_as_its_object(number: u64, kind in 0usize..5, size in 1u64..1 << 40, period in 4u64..1 << 40, which in 0u8..8) {
            let mut object = Object::by_law(Kind::ALL[kind], number);
            if which & 1 > 0 { object.size_bytes = size; }
            if which & 2 > 0 { object.period_s = period; }
            if which & 4 > 0 { object.cacheable = !object.cacheable; }
            prop_assert_eq!(Object::of_path(path_of(&object).as_bytes()), Some(object));
        }

        #[test]
        fn no_path_panics(path in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Object::of_path(&path);
        }
    }
}
