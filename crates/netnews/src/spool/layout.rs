//! Where the parts of a spool lie on the storage that a run was given.
//!
//! ```text
//! TARGET/crumb-netnews-NAME/articles/rec/sport/hockey/117      what no place rule names
//! TARGET/crumb-netnews-NAME/where                              where the rest is, for `crumb feed verify`
//! TARGET/crumb-netnews-NAME/lock                               held by the process that works on it (see `lock`)
//! PLACE/crumb-netnews-NAME/articles/alt/…                      what a rule names
//! HISTORY/crumb-netnews-NAME/lib/                              active history history.pag outgoing.PASS state …
//!                                                              HISTORY is TARGET unless another one is named
//! ```
//!
//! Always holds: nothing outside of `crumb-netnews-NAME` is written or removed. The path of a target may lead over links,
//! as the user named it; `crumb-netnews-NAME` itself, `articles` and `lib` are opened by their own names and never through
//! a link, and a run works only in a `crumb-netnews-NAME` that is its user's alone. So a stranger who can write in the
//! target cannot lead the run elsewhere.

pub(super) mod lock;
pub(super) mod places;
pub(super) mod sweep;
pub(super) mod walk;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use files::{FileSystem, FsError, Status, write_run_mark};

use self::lock::{LOCK_FILE, SpoolLock};
use self::places::{Hierarchy, Places};
use super::whole::{mkdir_if_missing, place_of, read_whole, replace};
use crate::NetnewsError;

const PREFIX: &str = "crumb-netnews-";
const ARTICLES: &str = "articles";
const LIB: &str = "lib";
const WHERE: &str = "where";
const WHERE_BYTES_MAX: usize = 1 << 20;

/// The storage that a spool is spread over, as the user named it.
#[derive(Clone)]
pub struct Storage {
    /// The target: articles that no rule puts elsewhere.
    pub spool: Arc<dyn FileSystem>,
    /// History, active and the outgoing batch file; none: the target too.
    pub history: Option<Arc<dyn FileSystem>>,
    /// Hierarchies that lie elsewhere.
    pub places: Vec<(Hierarchy, Arc<dyn FileSystem>)>,
}

/// A directory, held.
type Opened = Result<Arc<dyn FileSystem>, FsError>;

/// The spool's own directories on it.
pub(crate) struct Homes {
    pub(crate) places: Places,
    pub(crate) lib: Arc<dyn FileSystem>,
}

/// Where the parts of a spool are, as its `where` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whereabouts {
    /// The target with its history, when that is elsewhere.
    pub history: Option<String>,
    /// Hierarchies and targets.
    pub places: Vec<(Hierarchy, String)>,
}

/// The directory of a spool in each target.
pub fn directory_of(name: &str) -> PathBuf {
    PathBuf::from(format!("{PREFIX}{name}"))
}

/// A spool as a user names it: by its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolPath {
    /// What holds the directory, as a run names it.
    pub target: String,
    /// Its name.
    pub name: String,
}

impl FromStr for SpoolPath {
    type Err = NetnewsError;

    /// From a path or an URL, such as `nfs://host/export/crumb-netnews-NAME?proto=udp`.
    fn from_str(spool: &str) -> Result<Self, NetnewsError> {
        let (url, options) = match spool.split_once('?') {
            Some((url, options)) if spool.contains("://") => (url, format!("?{options}")),
            _ => (spool, String::new()),
        };
        let url = url.trim_end_matches('/');
        let (parent, directory) = url.rsplit_once('/').unwrap_or((".", url));
        let name = directory.strip_prefix(PREFIX);
        let name = name.ok_or_else(|| NetnewsError::NotASpool { path: spool.to_owned() })?.to_owned();
        let parent = if parent.is_empty() { "/" } else { parent };
        // An export that is the server's root is written with its slash.
        let bare_host = parent.strip_prefix("nfs://").is_some_and(|rest| !rest.contains('/'));
        let slash = if bare_host { "/" } else { "" };
        Ok(Self { target: format!("{parent}{slash}{options}"), name })
    }
}

impl Storage {
    /// All in one target.
    pub fn of(spool: Arc<dyn FileSystem>) -> Self {
        Self { spool, history: None, places: Vec::new() }
    }

    /// Every target once.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Arc<dyn FileSystem>> {
        [&self.spool].into_iter().chain(&self.history).chain(self.places.iter().map(|(_, fs)| fs))
    }

    /// Whether the target has a directory for a spool of this name.
    ///
    /// # Errors
    /// When the storage fails.
    pub fn has(&self, name: &str) -> Result<bool, FsError> {
        match self.spool.stat(&directory_of(name)) {
            Ok(_) => Ok(true),
            Err(error) if error.status() == Some(Status::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes the directory of a new spool in the target and locks it.
    ///
    /// # Errors
    /// When any target has a spool of this name, or another process makes one.
    pub(crate) fn begin(&self, name: &str) -> Result<SpoolLock, NetnewsError> {
        let base = directory_of(name);
        let made = self.spool.make_own(&base).map(|_| true).or_else(|error| match error.status() {
            Some(Status::EXIST) => Ok(false),
            _ => Err(error),
        })?;
        // A directory that is no spool of ours gets no lock file either.
        let refuse_spools = || -> Result<(), NetnewsError> {
            for fs in self.targets() {
                let there = if_there(fs.own(&base))?;
                if !there.map_or(Ok(true), |base| is_empty_spool(&*base))? {
                    return Err(NetnewsError::SpoolExists { target: fs.place(), name: name.to_owned() });
                }
            }
            Ok(())
        };
        let lock = match SpoolLock::look(&self.spool, name)? {
            Some(lock) => refuse_spools().map(|()| lock),
            None => refuse_spools().and_then(|()| SpoolLock::take(&self.spool, name)),
        };
        if lock.is_err() && made {
            // Not there before, and nothing is in it unless another process has begun with it.
            let _ = self.spool.rmdir(&base);
        }
        lock
    }

    /// Makes the directories, or those that are missing.
    pub(crate) fn make(&self, name: &str) -> Result<Homes, NetnewsError> {
        let base = directory_of(name);
        for fs in self.targets() {
            match fs.make_own(&base) {
                Err(error) if error.status() == Some(Status::EXIST) => {}
                other => drop(other?),
            }
        }
        let of_user = |fs: &Arc<dyn FileSystem>, path: &Path| fs.own(path);
        let homes = self.homes_by(name, &of_user, &|base, part| {
            mkdir_if_missing(base, part.as_ref())?;
            base.below_itself(part.as_ref())
        })?;
        replace(&*self.spool.own(&base)?, WHERE, self.whereabouts().encode().as_bytes())?;
        Ok(homes)
    }

    /// Marks the spool's directories in all targets as this process's, to be removed by it.
    pub(crate) fn mark(&self, name: &str) -> Result<(), FsError> {
        for fs in self.targets() {
            match write_run_mark(&*fs.own(&directory_of(name))?) {
                // Two places may be one directory.
                Err(error) if error.status() == Some(Status::EXIST) => {}
                written => written?,
            }
        }
        Ok(())
    }

    /// Opens the directories of a spool, which may be another user's, to look at them.
    pub(crate) fn homes(&self, name: &str) -> Result<Homes, NetnewsError> {
        let of_anybody = |fs: &Arc<dyn FileSystem>, path: &Path| fs.below_itself(path);
        self.homes_by(name, &of_anybody, &|base, part| base.below_itself(part.as_ref()))
    }

    fn homes_by(
        &self,
        name: &str,
        base: &dyn Fn(&Arc<dyn FileSystem>, &Path) -> Opened,
        part: &dyn Fn(&dyn FileSystem, &str) -> Opened,
    ) -> Result<Homes, NetnewsError> {
        let directory = directory_of(name);
        let in_target = |fs: &Arc<dyn FileSystem>, of: &str| part(&*base(fs, &directory)?, of);
        let articles = in_target(&self.spool, ARTICLES)?;
        let mut others = Vec::new();
        for (hierarchy, fs) in &self.places {
            others.push((hierarchy.clone(), in_target(fs, ARTICLES)?));
        }
        let lib = in_target(self.history.as_ref().unwrap_or(&self.spool), LIB)?;
        Ok(Homes { places: Places::new(articles, others), lib })
    }

    /// The directory of history, active and state; none where a kill came before it.
    pub(crate) fn lib(&self, name: &str) -> Result<Option<Arc<dyn FileSystem>>, FsError> {
        let fs = self.history.as_ref().unwrap_or(&self.spool);
        let Some(base) = if_there(fs.below_itself(&directory_of(name)))? else { return Ok(None) };
        if_there(base.below_itself(LIB.as_ref()))
    }

    pub(crate) fn whereabouts(&self) -> Whereabouts {
        Whereabouts {
            history: self.history.as_ref().map(|fs| fs.place()),
            places: self.places.iter().map(|(hierarchy, fs)| (hierarchy.clone(), fs.place())).collect(),
        }
    }
}

/// What was opened, unless it is not there.
fn if_there<T>(opened: Result<T, FsError>) -> Result<Option<T>, FsError> {
    match opened {
        Err(error) if error.status() == Some(Status::NOENT) => Ok(None),
        other => other.map(Some),
    }
}

/// Whether this spool's directory is empty, or is what a run left that was killed while it made its directories: nothing
/// had been stored then.
fn is_empty_spool(base: &dyn FileSystem) -> Result<bool, FsError> {
    let names_in = |fs: &dyn FileSystem| {
        let mut names: Vec<Vec<u8>> = Vec::new();
        fs.readdir(Path::new(""), &mut |entry| names.push(entry.name.to_vec())).map(|()| names)
    };
    let where_new = format!("{WHERE}.new");
    for name in names_in(base)? {
        let empty = match std::str::from_utf8(&name) {
            Ok(LOCK_FILE) => true,
            Ok(new) if new == where_new => true,
            Ok(directory @ (ARTICLES | LIB)) => match base.below_itself(directory.as_ref()) {
                // A link or a file of this name is nothing that a run left.
                Err(error) if error.status() == Some(Status::NOTDIR) => false,
                below => names_in(&*below?)?.is_empty(),
            },
            _ => false,
        };
        if !empty {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Whereabouts {
    /// Reads the `where` of the spool `name` in a target.
    ///
    /// # Errors
    /// When there is no spool of that name, or its `where` is damaged.
    pub fn read(target: &dyn FileSystem, name: &str) -> Result<Self, NetnewsError> {
        let mut bytes = Vec::new();
        let path = directory_of(name).join(WHERE);
        let base = target.below_itself(&directory_of(name));
        match base.and_then(|base| read_whole(&*base, WHERE.as_ref(), &mut bytes, WHERE_BYTES_MAX)) {
            Err(error) if error.status() == Some(Status::NOENT) => {
                return Err(NetnewsError::NoSpool { target: target.place(), name: name.to_owned() });
            }
            other => other?,
        };
        let decoded = std::str::from_utf8(&bytes).ok().and_then(Self::decode);
        decoded.ok_or_else(|| NetnewsError::BadFile {
            path: place_of(target, &path),
            why: "it does not say where the parts of the spool are".to_owned(),
        })
    }

    fn encode(&self) -> String {
        let mut text = String::new();
        if let Some(history) = &self.history {
            text.push_str(&format!("history {history}\n"));
        }
        for (hierarchy, target) in &self.places {
            text.push_str(&format!("place {hierarchy} {target}\n"));
        }
        text
    }

    fn decode(text: &str) -> Option<Self> {
        let mut found = Self::default();
        for line in text.lines() {
            match line.split_once(' ')? {
                ("history", target) => found.history = Some(target.to_owned()),
                ("place", rest) => {
                    let (hierarchy, target) = rest.split_once(' ')?;
                    found.places.push((hierarchy.parse().ok()?, target.to_owned()));
                }
                _ => return None,
            }
        }
        Some(found)
    }
}

impl std::fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.history {
            Some(history) => write!(f, "history on {history}")?,
            None => f.write_str("history on the target")?,
        }
        self.places.iter().try_for_each(|(hierarchy, target)| write!(f, ", {hierarchy} on {target}"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::spool::scratch::folder;

    #[test]
    fn a_spool_is_named_by_its_directory_in_a_target() {
        let parsed = |spool: &str| spool.parse::<SpoolPath>().map(|parsed| (parsed.target, parsed.name)).ok();
        let is = |target: &str, name: &str| Some((target.to_owned(), name.to_owned()));
        assert_eq!(parsed("/mnt/crumb-netnews-a/"), is("/mnt", "a"));
        assert_eq!(parsed("crumb-netnews-a"), is(".", "a"));
        assert_eq!(parsed("/crumb-netnews-a"), is("/", "a"));
        assert_eq!(parsed("/why?/crumb-netnews-a"), is("/why?", "a"));
        assert_eq!(parsed("nfs://h:2049/x/crumb-netnews-a?proto=udp"), is("nfs://h:2049/x?proto=udp", "a"));
        assert_eq!(parsed("nfs://h/crumb-netnews-a"), is("nfs://h/", "a"));
        assert_eq!((parsed("/"), parsed("/mnt/other")), (None, None));
    }

    /// Symptom: root's run on a disk that others may write on stored its articles wherever a link led that had the name of
    /// the spool to come. Cause: `mkdir`'s EXIST was taken for a directory of our own, and paths were followed. Fix: the
    /// directory is opened by its own name, and is the user's alone.
    #[test]
    fn a_link_where_the_spool_or_a_part_of_it_belongs_leads_nowhere() {
        for part in ["", "articles", "lib"] {
            let ((target, fs), (victim, _)) = (folder(), folder());
            let storage = Storage::of(fs);
            let base = target.path().join(directory_of("t"));
            if part.is_empty() {
                symlink(victim.path(), &base).unwrap();
            } else {
                std::fs::create_dir(&base).unwrap();
                symlink(victim.path(), base.join(part)).unwrap();
            }
            assert!(storage.begin("t").is_err(), "{part:?}");
            assert!(storage.make("t").is_err(), "{part:?}");
            assert!(storage.homes("t").is_err(), "{part:?}");
            assert_eq!(std::fs::read_dir(victim.path()).unwrap().count(), 0, "{part:?}: something was made");
        }
    }

    #[test]
    fn a_directory_in_which_others_may_write_is_no_spool_and_the_targets_path_may_be_a_link() {
        use std::os::unix::fs::PermissionsExt as _;
        let (target, fs) = folder();
        let base = target.path().join(directory_of("t"));
        std::fs::create_dir(&base).unwrap();
        std::fs::set_permissions(&base, std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = Storage::of(fs).begin("t").err().expect("others may put a link in it");
        let error = measure::error_chain(&error);
        assert!(error.contains("chmod go-w"), "{error}");

        let (elsewhere, _) = folder();
        symlink(target.path(), elsewhere.path().join("link")).unwrap();
        let by_link = files::LocalFs::open(elsewhere.path().join("link")).unwrap();
        let storage = Storage::of(Arc::new(by_link));
        let _lock = storage.begin("u").unwrap();
        storage.make("u").unwrap();
        assert!(target.path().join("crumb-netnews-u/where").is_file());
    }

    #[test]
    fn whereabouts_are_read_back_and_a_line_of_another_kind_is_refused() {
        let whereabouts = Whereabouts {
            history: Some("nfs://filer/vol".to_owned()),
            places: vec![
                ("alt.*".parse().unwrap(), "/disk 2".to_owned()),
                ("*".parse().unwrap(), "/d".to_owned()),
            ],
        };
        assert_eq!(Whereabouts::decode(&whereabouts.encode()), Some(whereabouts));
        assert_eq!(Whereabouts::decode("history"), None);
        assert_eq!(Whereabouts::decode("elsewhere x\n"), None);
    }
}
