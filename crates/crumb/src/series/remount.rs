//! Mounts the file system of a directory with other options for a while.
//!
//! ```text
//! rw,relatime --remount,noatime--> rw,noatime --the turn--> remount,atime,relatime --> rw,relatime
//! ```
//!
//! By mount(8), which knows the words of every file system. Remounting changes the file system for everyone who uses
//! it; what kernels and file systems leave at a default when it is not named has to be named to be put back, so that
//! putting back undoes the difference between the lists of options before and after, and then looks.
//!
//! Always holds: the options are put back when [`Remounted`] goes out of scope, however the run ends, but for a
//! process that is killed (a second Ctrl-C kills).

use std::path::Path;
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context as _, anyhow, bail};
use measure::MountPoint;

/// Options as after the `-o` of mount(8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions(String);

/// What would not be a measurement of the same file system any more, or could not be undone.
const REFUSED: [&str; 6] = ["remount", "bind", "rbind", "move", "ro", "loop"];

const COMMIT: &str = "commit";

impl FromStr for MountOptions {
    type Err = measure::ValueError;

    fn from_str(text: &str) -> Result<Self, measure::ValueError> {
        if text.is_empty() || text.split(',').any(str::is_empty) {
            return Err("expected mount options such as noatime or noatime,commit=30".into());
        }
        if text.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
            return Err("mount options have no blanks in them".into());
        }
        match text.split(',').find(|option| REFUSED.contains(option)) {
            Some(option) => Err(format!("{option} cannot be compared").into()),
            None => Ok(Self(text.to_owned())),
        }
    }
}

impl std::fmt::Display for MountOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A file system mounted with other options until this is dropped.
#[derive(Debug)]
pub struct Remounted {
    /// As it was found; none once it is put back.
    was: Option<MountPoint>,
}

impl MountOptions {
    /// Remounts the file system that holds `directory`.
    ///
    /// # Errors
    /// Without root's rights, when the options are refused, or change nothing.
    pub fn apply(&self, directory: &Path) -> anyhow::Result<Remounted> {
        if !rustix::process::geteuid().is_root() {
            bail!("mount={self} remounts {}, which only root may", directory.display());
        }
        let no_mount = || anyhow!("cannot see how {} is mounted", directory.display());
        let was = MountPoint::of(directory).ok_or_else(no_mount)?;
        if let Some(option) = self.0.split(',').find(|option| !can_be_undone(option, &was.options)) {
            bail!(
                "{option} could not be put back: {} is mounted with {}, without its default",
                was.path,
                was.options
            );
        }
        let remounted = Remounted { was: Some(was.clone()) };
        remount(&was.path, &self.0)?;
        let now = MountPoint::of(directory).ok_or_else(no_mount)?;
        if sorted(&now.options) == sorted(&was.options) {
            bail!(
                "mount={self} changes nothing: {} is mounted with {} before and after",
                was.path,
                was.options
            );
        }
        Ok(remounted)
    }
}

impl Remounted {
    /// Where, and how it was mounted.
    pub fn was(&self) -> &MountPoint {
        self.was.as_ref().expect("it is not put back yet")
    }

    /// Puts it back.
    ///
    /// # Errors
    /// When that fails: then the message says how it was mounted and how it is.
    pub fn put_back(mut self) -> anyhow::Result<()> {
        self.undo()
    }

    fn undo(&mut self) -> anyhow::Result<()> {
        let Some(was) = self.was.take() else { return Ok(()) };
        let now = || MountPoint::of(Path::new(&was.path)).map(|mount| mount.options).unwrap_or_default();
        let before = now();
        if sorted(&before) == sorted(&was.options) {
            return Ok(());
        }
        let undone = remount(&was.path, &undoing(&was.options, &before));
        let after = now();
        if sorted(&after) == sorted(&was.options) {
            return Ok(());
        }
        undone.and_then(|()| Err(anyhow!("it is mounted with {after}"))).with_context(|| {
            format!("{} is not mounted as it was found, with {}; remount it by hand", was.path, was.options)
        })
    }
}

impl Drop for Remounted {
    fn drop(&mut self) {
        if let Err(error) = self.undo() {
            eprintln!("crumb: {error:#}");
        }
    }
}

fn remount(path: &str, options: &str) -> anyhow::Result<()> {
    let output = Command::new("mount").arg("-o").arg(format!("remount,{options}")).arg(path).output();
    let output = output.context("cannot start mount(8)")?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    let why = why.lines().find(|line| !line.trim().is_empty()).unwrap_or("it does not say why").trim();
    Err(anyhow!("cannot remount {path} with {options}: {why}"))
}

/// A value can be restored where the kernel reports the previous one, or zero means the default (ext4, btrfs).
fn can_be_undone(option: &str, was: &str) -> bool {
    let Some((name, _)) = option.split_once('=') else { return true };
    name == COMMIT
        || was.split(',').any(|known| known.split_once('=').is_some_and(|(known, _)| known == name))
}

/// What must be asked for to come from `now` to `was`: the contrary of what is there too much, then what is missing.
fn undoing(was: &str, now: &str) -> String {
    let (was, now) = (sorted(was), sorted(now));
    let contrary = now.iter().filter(|option| !was.contains(option)).filter_map(|option| {
        match (option.split_once('='), option.strip_prefix("no")) {
            (Some((COMMIT, _)), _) => Some(format!("{COMMIT}=0")),
            // The value before, if there was one, is among the missing.
            (Some(_), _) => None,
            (None, Some(positive)) => Some(positive.to_owned()),
            (None, None) => Some(format!("no{option}")),
        }
    });
    let missing = was.iter().filter(|option| !now.contains(option)).map(|option| (*option).to_owned());
    contrary.chain(missing).collect::<Vec<_>>().join(",")
}

fn sorted(options: &str) -> Vec<&str> {
    let mut options: Vec<&str> = options.split(',').collect();
    options.sort_unstable();
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_back_is_the_difference_with_the_contrary_of_what_came() {
        assert_eq!(undoing("rw,relatime", "rw,noatime"), "atime,relatime");
        assert_eq!(undoing("rw,relatime", "rw,relatime,discard,commit=30"), "commit=0,nodiscard");
        assert_eq!(undoing("rw,data=ordered", "rw,data=writeback"), "data=ordered");
        assert!(can_be_undone("data=writeback", "rw,data=ordered") && !can_be_undone("stripe=8", "rw"));
    }
}
