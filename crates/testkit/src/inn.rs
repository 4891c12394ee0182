//! InterNetNews 2.7.1 as an outside witness: its tools, and its server on loopback.
//!
//! ```text
//! Tools::find ── fastrm, batcher, rnews, … by their own inn.conf, LD_LIBRARY_PATH set
//! Inn::start_in ── innd, traditional spool, no overview (start_with: CNFS or timecaf); Inn::stop ── InnRecord: log, history, spool counted
//! Wire ── articles as TAKETHIS commands made beforehand; Inn::take ── all of them at once, replies counted
//! ```
//!
//! The packages need not be installed, which would start a server and ask for a mail agent: `scripts/test-packages.sh`
//! unpacks them into `inn` in Cargo's target directory, where tests look, after an installation.
//!
//! Always holds: a server is stopped by its own process id when the value is dropped.
//! Source: inn.conf(5), innd(8), makedbz(8), storage.conf(5), newsfeeds(5).

mod record;
mod server;
mod wire;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

pub use record::InnRecord;
pub use server::{Inn, InnCpu};
pub use wire::{Taken, Wire};

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct InnTools {
    prefix: PathBuf,
}

/// How the server stores articles.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InnStorage {
    /// `tradspool`: a file for each article, a link for each further group.
    Traditional,
    /// `cnfs`: one cyclic buffer of this size, allocated before the start.
    Cnfs {
        /// Its size.
        bytes: u64,
    },
    /// `timecaf`: articles that arrive within about four minutes share a file.
    Timecaf,
}

/// What writes `inn.conf` and the files beside it.
struct Layout<'a> {
    tools: &'a InnTools,
    /// Everything lies in it.
    root: &'a Path,
    /// The articles, in it or elsewhere.
    articles: &'a Path,
    storage: InnStorage,
}

const VERSION: &str = "2.7.1";
/// CNFSPASIZ: innd ends without a word when the path of a cyclic buffer has as many bytes.
const CYCBUFF_PATH_MAX: usize = 64;
const PROGRAMS: &str = "usr/lib/news/bin";

impl InnTools {
    /// Finds an installed INN 2.7.1, else an unpacked one. An error text says how to get one.
    pub fn find() -> Result<Self, String> {
        let target_dirs = std::env::current_exe().ok();
        let target_dirs = target_dirs.iter().flat_map(|exe| exe.ancestors().skip(1).map(Path::to_owned));
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        let unpacked = target_dirs.chain([workspace]).map(|dir| dir.join("inn"));
        let found = std::iter::once(PathBuf::from("/")).chain(unpacked).find_map(|prefix| {
            let tools = Self { prefix: fs::canonicalize(prefix).ok()? };
            tools.is_right().then_some(tools)
        });
        found.ok_or_else(|| {
            format!("INN {VERSION} is neither installed nor unpacked (scripts/test-packages.sh unpacks it)")
        })
    }

    /// A program of INN's that reads this `inn.conf`.
    pub fn command(&self, program: &str, conf: &Path) -> Command {
        let mut command = Command::new(self.programs().join(program));
        let libraries: Vec<String> =
            ["usr/lib/news", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu"]
                .iter()
                .map(|dir| self.prefix.join(dir).display().to_string())
                .collect();
        command.env("INNCONF", conf).env("LD_LIBRARY_PATH", libraries.join(":"));
        command
    }

    /// Lets INN's own storage manager read a spool that others wrote: settings below `folder` with the articles at
    /// `articles`, and a map that gives each group of `groups` its place there as a number, from 1. Gives the
    /// `inn.conf`.
    pub fn settings_over(
        &self,
        folder: &Path,
        articles: &Path,
        groups: &[String],
    ) -> Result<PathBuf, String> {
        let layout = Layout { tools: self, root: folder, articles, storage: InnStorage::Traditional };
        let conf = layout.write(groups)?;
        let map: String = groups
            .iter()
            .enumerate()
            .map(|(at, group)| format!("{} {}\n", group.replace('.', "/"), at + 1))
            .collect();
        written(&folder.join("spool/tradspool.map"), &map)?;
        give_to_news(folder)?;
        Ok(conf)
    }

    fn programs(&self) -> PathBuf {
        self.prefix.join(PROGRAMS)
    }

    /// Whether it is there, and of the version that was looked at.
    fn is_right(&self) -> bool {
        if !self.programs().join("innd").exists() {
            return false;
        }
        let said = self.command("innconfval", Path::new("/dev/null")).arg("-v").output();
        said.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(VERSION))
    }
}

/// What the storage manager calls an article of a traditional spool of class 0.
pub fn trad_token(group_number: u32, article_number: u32) -> String {
    format!("@0500{group_number:08X}00000000{article_number:08X}00000000@")
}

impl Layout<'_> {
    /// Makes the directories and files; the path of `inn.conf`.
    fn write(&self, groups: &[String]) -> Result<PathBuf, String> {
        for dir in ["etc", "db", "log", "run", "tmp", "filter"] {
            made(&self.root.join(dir))?;
        }
        for dir in ["articles", "incoming/tmp", "incoming/bad", "outgoing", "overview", "archive"] {
            made(&self.root.join("spool").join(dir))?;
        }
        let (root, articles) = (self.root.display(), self.articles.display());
        let programs = self.tools.programs();
        let programs = programs.display();
        let conf = self.root.join("etc/inn.conf");
        let settings = format!(
            "mta: \"/bin/true\"\nmailcmd: /bin/true\novmethod: tradindexed\nhismethod: hisv6\n\
             pathhost: inn.crumb.example\ndomain: crumb.example\nfromhost: crumb.example\nserver: 127.0.0.1\n\
             bindaddress: 127.0.0.1\nbindaddress6: none\n\
             artcutoff: 0\ndocancels: all\nenableoverview: false\nnoreader: true\nnnrpdcheckart: false\n\
             maxartsize: 0\nlogipaddr: false\nlogsitename: false\n\
             pathnews: {programs}/..\npathbin: {programs}\npathcontrol: {programs}/control\npathetc: {root}/etc\n\
             pathfilter: {root}/filter\npathdb: {root}/db\npathlog: {root}/log\npathspool: {root}/spool\n\
             patharticles: {articles}\npathincoming: {root}/spool/incoming\npathoutgoing: {root}/spool/outgoing\n\
             pathoverview: {root}/spool/overview\npatharchive: {root}/spool/archive\npathtmp: {root}/tmp\n\
             pathrun: {root}/run\npathhttp: {root}/log\n"
        );
        written(&conf, &settings)?;
        let etc = |name: &str, text: &str| written(&self.root.join("etc").join(name), text);
        let buffer = self.root.join("ring");
        let (method, more, buffers) = match self.storage {
            InnStorage::Traditional => ("tradspool", "", String::new()),
            InnStorage::Timecaf => ("timecaf", "", String::new()),
            InnStorage::Cnfs { bytes } => {
                if buffer.as_os_str().len() >= CYCBUFF_PATH_MAX {
                    return Err(format!("{}: too long a path for a cyclic buffer", buffer.display()));
                }
                allocated(&buffer, bytes)?;
                let (path, kilobytes) = (buffer.display(), bytes / 1024);
                let text = format!("cycbuff:ONE:{path}:{kilobytes}\nmetacycbuff:ALL:ONE\n");
                ("cnfs", "    options: ALL\n", text)
            }
        };
        etc("storage.conf", &format!("method {method} {{\n    newsgroups: *\n    class: 0\n{more}}}\n"))?;
        etc("cycbuff.conf", &buffers)?;
        // The same work as ours: a batch file for one peer, `f` feed.
        etc("newsfeeds", "ME:*::\ndownstream:*,!junk:Tf,Wn:\n")?;
        etc(
            "incoming.conf",
            "streaming: true\nmax-connections: 8\npeer ME {\n    hostname: \"localhost, 127.0.0.1\"\n}\n",
        )?;
        etc("expire.ctl", "/remember/:11\n*:A:1:10:never\n")?;
        for empty in ["control.ctl", "moderators", "distrib.pats", "readers.conf", "localgroups"] {
            etc(empty, "")?;
        }
        let mut active = String::new();
        for (group, flag) in [("control", 'n'), ("control.cancel", 'n'), ("junk", 'n')] {
            active.push_str(&format!("{group} 0000000000 0000000001 {flag}\n"));
        }
        for group in
            groups.iter().filter(|group| !matches!(group.as_str(), "control" | "control.cancel" | "junk"))
        {
            active.push_str(&format!("{group} 0000000000 0000000001 y\n"));
        }
        written(&self.root.join("db/active"), &active)?;
        for empty in ["active.times", "newsgroups", "history"] {
            written(&self.root.join("db").join(empty), "")?;
        }
        Ok(conf)
    }
}

/// Hands everything below `root` to the user that innd becomes, whichever user starts it.
fn give_to_news(root: &Path) -> Result<(), String> {
    let (user, group) = news_user()?;
    let failure = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    for above in root.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        if fs::metadata(above).map_err(|error| failure(above, error))?.permissions().mode() & 0o001 == 0 {
            return Err(format!("{}: the user news cannot pass it (chmod o+x)", above.display()));
        }
    }
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        chown(&path, Some(user), Some(group)).map_err(|error| failure(&path, error))?;
        if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir()) {
            // A temporary folder is its maker's alone, and a maker that is root must still get in.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
                .map_err(|error| failure(&path, error))?;
            for entry in fs::read_dir(&path).map_err(|error| failure(&path, error))? {
                todo.push(entry.map_err(|error| failure(&path, error))?.path());
            }
        }
    }
    Ok(())
}

/// User and group `news`.
fn news_user() -> Result<(u32, u32), String> {
    let users = fs::read_to_string("/etc/passwd").map_err(|error| format!("/etc/passwd: {error}"))?;
    let line = users.lines().find_map(|line| line.strip_prefix("news:"));
    let mut numbers =
        line.into_iter().flat_map(|line| line.split(':').skip(1).map_while(|field| field.parse().ok()));
    numbers.next().zip(numbers.next()).ok_or_else(|| "there is no user news, which innd runs as".to_owned())
}

/// A file of zeros with its blocks, as the manual has it made by dd.
fn allocated(path: &Path, bytes: u64) -> Result<(), String> {
    let made = fs::File::create(path).and_then(|file| {
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
        Ok(())
    });
    made.map_err(|error| format!("{}: {error}", path.display()))
}

fn made(dir: &Path) -> Result<(), String> {
    fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))
}

fn written(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_one_that_innd_gave_to_the_third_article_of_its_fourth_group() {
        assert_eq!(trad_token(4, 3), "@050000000004000000000000000300000000@");
    }
}
