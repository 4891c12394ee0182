//! Which hierarchy lies where: the map by hand that spreads a spool over several file systems (the paper's figure 1).
//!
//! ```text
//! alt.*        -> /disk2        the longest hierarchy that a group is in decides,
//! alt.binaries -> /disk3        whatever the order of the rules;
//! (no rule)    -> the target    what no rule names stays in the target
//! ```
//!
//! Rules that name the same directory, by whatever path, name one place: cross-posts within it are hard links.
//!
//! Always holds: place 0 is the target itself; no two places are the same directory; a group's place never changes while a spool lives.
//! Source: Swartz, "The Brave Little Toaster Meets Usenet", LISA X 1996, figure 1.

use std::os::unix::fs::MetadataExt as _;
use std::str::FromStr;
use std::sync::Arc;

use files::FileSystem;

use crate::NetnewsError;

/// Groups in or below a hierarchy. `alt.*` and `alt` both mean `alt` and all below; `*` means every group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy(String);

/// A hierarchy and the target that is to hold it, as in `alt.*=/disk2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceRule {
    /// What is put there.
    pub hierarchy: Hierarchy,
    /// The target as the user wrote it.
    pub target: String,
}

/// Number of a place: 0 is the target, others in the order in which rules name them first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlaceId(pub u16);

/// The places of a spool.
#[derive(Clone)]
pub(crate) struct Places {
    rules: Vec<(Hierarchy, PlaceId)>,
    /// Where articles lie, by place.
    roots: Vec<Arc<dyn FileSystem>>,
}

impl Hierarchy {
    /// Whether `group` is in it.
    pub(crate) fn holds(&self, group: &[u8]) -> bool {
        let name = self.0.as_bytes();
        name.is_empty()
            || group.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
    }

    /// Its name without the star; empty for every group.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl FromStr for Hierarchy {
    type Err = NetnewsError;

    fn from_str(text: &str) -> Result<Self, NetnewsError> {
        let name = if text == "*" { "" } else { text.strip_suffix(".*").unwrap_or(text) };
        if text != "*" && !crate::spool::groups::is_usable(name.as_bytes()) || name.contains('*') {
            return Err(NetnewsError::BadPlace {
                text: text.to_owned(),
                why: "a hierarchy is written as alt.* or alt.binaries.*",
            });
        }
        Ok(Self(name.to_owned()))
    }
}

impl FromStr for PlaceRule {
    type Err = NetnewsError;

    fn from_str(text: &str) -> Result<Self, NetnewsError> {
        let bad = |why| NetnewsError::BadPlace { text: text.to_owned(), why };
        let (hierarchy, target) = text.split_once('=').ok_or_else(|| bad("expected HIERARCHY=TARGET"))?;
        if target.is_empty() {
            return Err(bad("the target after = is missing"));
        }
        Ok(Self { hierarchy: hierarchy.parse()?, target: target.to_owned() })
    }
}

impl std::fmt::Display for Hierarchy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { f.write_str("*") } else { write!(f, "{}.*", self.0) }
    }
}

impl Places {
    /// The target's articles and those of the rules, in their order.
    pub(crate) fn new(target: Arc<dyn FileSystem>, others: Vec<(Hierarchy, Arc<dyn FileSystem>)>) -> Self {
        let mut places = Self { rules: Vec::with_capacity(others.len()), roots: vec![target] };
        for (hierarchy, root) in others {
            let known = places.roots.iter().position(|known| is_same(&**known, &*root));
            let at = known.unwrap_or(places.roots.len());
            places.rules.push((hierarchy, PlaceId(at as u16)));
            if known.is_none() {
                places.roots.push(root);
            }
        }
        places
    }

    /// Where a group belongs.
    pub(crate) fn of(&self, group: &[u8]) -> PlaceId {
        self.rules
            .iter()
            .filter(|(hierarchy, _)| hierarchy.holds(group))
            .max_by_key(|(hierarchy, _)| hierarchy.0.len())
            .map_or(PlaceId(0), |(_, place)| *place)
    }

    /// The storage of a place.
    pub(crate) fn root(&self, place: PlaceId) -> &dyn FileSystem {
        &*self.roots[usize::from(place.0)]
    }

    /// All of them, the target's first.
    pub(crate) fn roots(&self) -> &[Arc<dyn FileSystem>] {
        &self.roots
    }
}

/// Whether two roots are one directory, whatever they are called. Two places in it would each take the other's files for
/// strays, and link across by symbolic links.
fn is_same(one: &dyn FileSystem, other: &dyn FileSystem) -> bool {
    let directory = |fs: &dyn FileSystem| {
        let found = std::fs::metadata(fs.local_root()?).ok()?;
        Some((found.dev(), found.ino()))
    };
    match (directory(one), directory(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one.place() == other.place(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use files::LocalFs;

    #[test]
    fn the_longest_hierarchy_wins_and_a_longer_word_is_another_hierarchy() {
        let folder = tempfile::tempdir().unwrap();
        let directory = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            Arc::new(LocalFs::open(path).unwrap()) as Arc<dyn FileSystem>
        };
        let rules = ["alt.*", "alt.binaries", "comp.os.*"];
        let rules = rules.map(|text| (text.parse().unwrap(), directory(text))).to_vec();
        let places = Places::new(directory("target"), rules);
        let of = |group: &str| places.of(group.as_bytes()).0;
        assert_eq!([of("alt"), of("alt.fan"), of("alternative.x")], [1, 1, 0]);
        assert_eq!([of("alt.binaries"), of("alt.binaries.x"), of("comp.os.linux"), of("comp")], [2, 2, 3, 0]);
    }

    #[test]
    fn one_directory_is_one_place_by_whatever_path_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["target", "disk"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        std::os::unix::fs::symlink(path("disk"), path("link")).unwrap();
        let root = |name: &str| Arc::new(LocalFs::open(path(name)).unwrap()) as Arc<dyn FileSystem>;
        let rule = |hierarchy: &str, name: &str| (hierarchy.parse().unwrap(), root(name));
        let rules = vec![
            rule("alt.*", "disk"),
            rule("rec.*", "link"),
            rule("sci.*", "target"),
            rule("talk.*", "./disk/"),
        ];
        let places = Places::new(root("target"), rules);
        assert_eq!(
            ["alt.x", "rec.x", "sci.x", "talk.x", "comp.x"].map(|group| places.of(group.as_bytes()).0),
            [1, 1, 0, 1, 0]
        );
        assert_eq!(places.roots().len(), 2);
    }

    #[test]
    fn a_rule_without_hierarchy_or_target_is_refused_with_what_is_expected() {
        for text in ["alt.*", "alt.*=", "=x", "../x=/d", "a*b=/d"] {
            assert!(text.parse::<PlaceRule>().is_err(), "{text}");
        }
        let rule: PlaceRule = "alt.*=nfs://filer/vol?proto=udp".parse().unwrap();
        assert_eq!((rule.hierarchy.name(), rule.target.as_str()), ("alt", "nfs://filer/vol?proto=udp"));
    }
}
