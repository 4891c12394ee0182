//! The model: figures of real news, each with its source. docs/design/netnews-feeds.md says how they were fitted.
//!
//! - N93: 10,000 articles of April and May 1993 with their headers (half of the public "20 Newsgroups" set).
//! - NOR: counts of two archives of `no.*`, 613,016 and 5,981,974 articles, 1994 to 2013.
//! - LISA: Swartz, LISA X 1996: half a week of August 1995, 300,150 articles in 911 MB.
//! - OURS: no source at hand gives it; chosen.

/// Its name in `feed.json`; another name whenever the same seed would give other bytes.
pub const MODEL_NAME: &str = "usenet-1995-1";

/// N93: share of articles that are smaller, and size in bytes with the header.
pub(super) const TEXT_BYTES: &[(f64, f64)] = &[
    (0.0, 345.0),
    (0.001, 430.0),
    (0.005, 501.0),
    (0.01, 563.0),
    (0.02, 618.0),
    (0.05, 726.0),
    (0.10, 857.0),
    (0.20, 1053.0),
    (0.30, 1218.0),
    (0.40, 1384.0),
    (0.50, 1578.0),
    (0.60, 1779.0),
    (0.70, 2055.0),
    (0.75, 2231.0),
    (0.80, 2461.0),
    (0.85, 2787.0),
    (0.90, 3361.0),
    (0.93, 3964.0),
    (0.95, 4719.0),
    (0.97, 6074.0),
    (0.98, 7672.0),
    (0.99, 12_509.0),
    (0.995, 24_852.0),
    (0.998, 59_276.0),
    (0.9995, 63_507.0),
    (1.0, 161_040.0),
];

/// LISA: mean size of an article of a whole feed, bytes. N93 has 2,219 and no binaries: see [`BINARY_SHARE`].
pub(super) const ARTICLE_BYTES_MEAN: f64 = 911e6 / 300_150.0;
/// OURS: encoded binaries, parts of about the 60 KB that transports took; lognormal, bytes.
pub(super) const BINARY_BYTES_MEDIAN: f64 = 30_000.0;
/// OURS: of the logarithm.
pub(super) const BINARY_BYTES_SIGMA: f64 = 0.8;
/// OURS: nothing is larger.
pub(super) const BINARY_BYTES_MAX: f64 = 262_144.0;
/// Fitted: as many binaries as bring the mean of N93's text to that of LISA's feed.
pub(super) const BINARY_SHARE: f64 = 0.0212;

/// N93: articles by number of groups named, 1 first.
pub(super) const GROUP_COUNTS: &[u32] =
    &[6869, 1131, 1279, 319, 153, 105, 51, 22, 19, 9, 30, 6, 2, 0, 1, 0, 0, 4];
/// OURS: further groups of a cross-post within the hierarchy of the first. N93: a quarter of cross-posts stay in one
/// hierarchy, half touch two.
pub(super) const SAME_HIERARCHY: f64 = 0.5;
/// NOR: sigma of the lognormal law of group sizes. Counts alone give 1.86 in both archives; their largest tenth of
/// the groups has 60 and 56% of the articles, as with 1.6.
pub(super) const GROUP_SIGMA: f64 = 1.6;

/// Hierarchies by share of the groups: OURS, of the names in LISA's figure 1, so that its map of places can be used.
pub(super) const HIERARCHIES: &[(&str, f64)] = &[
    ("alt", 0.28),
    ("alt.binaries", 0.03),
    ("bit", 0.04),
    ("comp", 0.19),
    ("de", 0.05),
    ("gnu", 0.01),
    ("misc", 0.03),
    ("news", 0.01),
    ("rec", 0.16),
    ("sci", 0.06),
    ("soc", 0.06),
    ("talk", 0.02),
    ("vmsnet", 0.01),
    ("zeta", 0.05),
];
/// Where binaries go, as an index of [`HIERARCHIES`].
pub(super) const BINARY_HIERARCHY: usize = 1;

/// N93: 2.6% of the files of the full set repeat a message id (0.6% within this half of it).
pub(super) const DUPLICATE_SHARE: f64 = 0.026;
/// OURS: no source at hand counts cancels.
pub(super) const CANCEL_SHARE: f64 = 0.015;
/// NOR: 0.31 and 0.23% of the articles have `Supersedes:`.
pub(super) const SUPERSEDES_SHARE: f64 = 0.0027;
/// OURS: articles between one and its duplicate, cancel or successor, means of an exponential law.
pub(super) const DUPLICATE_LAG: f64 = 5_000.0;
/// OURS.
pub(super) const CANCEL_LAG: f64 = 10_000.0;
/// OURS: FAQs come once in weeks; a shorter time lets a feed of a day have some.
pub(super) const SUPERSEDES_LAG: f64 = 60_000.0;

/// N93: hosts in `Path:`, share of articles with fewer; whole numbers of the source made a smooth law. Mean 9.6.
pub(super) const PATH_HOSTS: &[(f64, f64)] = &[
    (0.0, 0.6),
    (0.01, 3.8),
    (0.05, 5.7),
    (0.10, 6.7),
    (0.25, 7.8),
    (0.50, 9.4),
    (0.75, 11.1),
    (0.90, 12.9),
    (0.95, 14.1),
    (0.99, 16.3),
    (0.999, 21.2),
    (1.0, 28.0),
];
/// N93: 3,486 hosts in 10,000 paths, the r-th in a share of about 1/r.
pub(super) const HOSTS: usize = 3_500;

/// N93: mean size of a header without `Xref:`, which no feed carries, bytes.
pub(super) const HEAD_BYTES_MEAN: f64 = 562.0;

/// N93: fields that not all articles have, by share.
pub(super) const ORGANIZATION: f64 = 0.968;
/// N93, answers.
pub(super) const REFERENCES: f64 = 0.662;
/// N93.
pub(super) const SENDER: f64 = 0.508;
/// N93.
pub(super) const POSTING_HOST: f64 = 0.468;
/// N93.
pub(super) const DISTRIBUTION: f64 = 0.237;
/// N93.
pub(super) const REPLY_TO: f64 = 0.128;
/// N93.
pub(super) const KEYWORDS: f64 = 0.072;
/// N93.
pub(super) const FOLLOWUP_TO: f64 = 0.070;
/// N93.
pub(super) const NEWSREADER: f64 = 0.054;
/// N93: of lines of a body, empty; lines of text have 59 to 77 letters, mean 44 with the empty ones.
pub(super) const EMPTY_LINES: f64 = 0.168;

/// LISA: 300,150 articles in half a week.
pub(super) const ARTICLES_PER_DAY: f64 = 300_150.0 / 3.5;
/// NOR: Monday to Sunday against the mean, of both archives.
pub(super) const WEEKDAYS: [f64; 7] = [1.121, 1.159, 1.155, 1.120, 1.019, 0.677, 0.749];
/// NOR: sd of a day's logarithm around its week and weekday (0.12 and 0.16).
pub(super) const DAY_SIGMA: f64 = 0.14;
/// N93: by hour of the day, against the mean.
pub(super) const HOURS: [f64; 24] = [
    1.01, 0.81, 0.87, 0.76, 0.61, 0.47, 0.44, 0.40, 0.49, 0.47, 0.55, 0.55, 0.78, 1.20, 1.43, 1.62, 1.75,
    1.71, 1.53, 1.48, 1.44, 1.30, 1.18, 1.13,
];
/// LISA: August 1995; a Monday, 00:00 GMT.
pub(super) const BEGINS_UNIX: i64 = 808_358_400;
/// OURS: from posting to arrival, lognormal: median in seconds, sigma of the logarithm.
pub(super) const UNDER_WAY: (f64, f64) = (7_200.0, 1.2);

/// The value below which a share of `at` lies, straight between the points of a table.
pub(super) fn quantile(table: &[(f64, f64)], at: f64) -> f64 {
    let after = table.partition_point(|(share, _)| *share < at).clamp(1, table.len() - 1);
    let ((low, from), (high, to)) = (table[after - 1], table[after]);
    from + (to - from) * ((at - low) / (high - low)).clamp(0.0, 1.0)
}

/// The same between the logarithms, for sizes.
pub(super) fn size_quantile(at: f64) -> f64 {
    let after = TEXT_BYTES.partition_point(|(share, _)| *share < at).clamp(1, TEXT_BYTES.len() - 1);
    let ((low, from), (high, to)) = (TEXT_BYTES[after - 1], TEXT_BYTES[after]);
    from * (to / from).powf(((at - low) / (high - low)).clamp(0.0, 1.0))
}
