//! Steps: what is done, to which names, and what came of it as text that is equal on both sides.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};

/// A path by its parts' places in the pools.
#[derive(Clone, Copy, Debug)]
pub struct At {
    top: u8,
    name: u8,
    /// 0 for none: a name within the directory of that name.
    below: u8,
}

#[derive(Clone, Debug)]
pub enum Step {
    Create(At, bool),
    Write(At, u16),
    Append(At),
    Read(At),
    Truncate(At, u16),
    Unlink(At),
    Mkdir(At),
    Rmdir(At),
    RemoveTop(u8),
    Rename(At, At, u8),
    Link(At, At),
    Symlink(At, At),
    Fifo(At),
    Chmod(At, u16),
    Stat(At),
    List(At),
    ListTop(u8),
    Xattr(At),
    /// Opened, removed, and read after.
    ReadRemoved(At),
}

const NAMES: [&str; 16] = [
    "1",
    "12",
    "123",
    "1234",
    "21234",
    "31234",
    "944",
    "2600",
    "a",
    "aaa",
    "000",
    "345",
    "034",
    ".x",
    "12a",
    "99999999999",
];

pub struct Dice(pub u64);

impl Dice {
    /// SplitMix64.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn at(&mut self) -> At {
        let below = if self.below(4) == 0 { 1 + self.below(NAMES.len() as u64) } else { 0 };
        At { top: self.below(4) as u8, name: self.below(NAMES.len() as u64) as u8, below: below as u8 }
    }

    pub fn step(&mut self) -> Step {
        let (one, two) = (self.at(), self.at());
        match self.below(40) {
            0..=5 => Step::Create(one, self.below(2) == 0),
            6..=8 => Step::Write(one, self.below(9000) as u16),
            9 => Step::Append(one),
            10..=11 => Step::Read(one),
            12 => Step::Truncate(one, self.below(9000) as u16),
            13..=16 => Step::Unlink(one),
            17..=19 => Step::Mkdir(one),
            20..=21 => Step::Rmdir(one),
            22 => Step::RemoveTop(self.below(4) as u8),
            23..=28 => Step::Rename(one, two, [0, 0, 0, 1, 2][self.below(5) as usize]),
            29..=30 => Step::Link(one, two),
            31 => Step::Symlink(one, two),
            32 => Step::Fifo(one),
            33 => Step::Chmod(one, (self.below(0o2000) & 0o1777) as u16),
            34..=35 => Step::Stat(one),
            36 => Step::List(one),
            37 => Step::ListTop(self.below(4) as u8),
            38 => Step::Xattr(one),
            _ => Step::ReadRemoved(one),
        }
    }
}

/// The directories and names that a sequence of steps works on, below a root of its own.
pub struct Ground {
    tops: [&'static str; 4],
    /// Of a directory that others use as well, the last of `tops`: names in it are this one's alone.
    shared: Option<u64>,
}

/// Names by number in the shared directory: ten neighbours share a hidden directory, whatever thread owns them.
const SHARED_FIRST: u64 = 41_230;

impl Ground {
    pub fn alone() -> Self {
        Self { tops: ["m1", "m2", "m3", "p"], shared: None }
    }

    /// The one of several that share a directory beside their roots.
    pub fn sharing(number: u64) -> Self {
        assert!(number < 10, "a digit says whose a name is");
        Self { tops: ["m1", "m2", "p", "../shared"], shared: Some(number) }
    }

    /// Makes the directories; those of `m` are managed on the lower side of a mount.
    pub fn lay(&self, root: &Path, lower: bool) {
        for top in self.tops.map(|top| root.join(top)) {
            fs::create_dir_all(&top).expect("a directory");
            if lower && !top.ends_with("p") {
                fs::set_permissions(top, fs::Permissions::from_mode(0o4755)).expect("the bit");
            }
        }
    }

    fn path(&self, root: &Path, at: At) -> PathBuf {
        let top = root.join(self.tops[at.top as usize]);
        let path = match self.shared.filter(|_| at.top == 3) {
            Some(number) if at.name < 12 => {
                top.join((SHARED_FIRST + 10 * u64::from(at.name) + number).to_string())
            }
            Some(number) => top.join(format!("{}.{number}", NAMES[at.name as usize])),
            None => top.join(NAMES[at.name as usize]),
        };
        if at.below == 0 { path } else { path.join(NAMES[at.below as usize - 1]) }
    }

    /// Whether a name in a top directory is nobody else's.
    fn owns(&self, top: u8, name: &str) -> bool {
        self.shared.filter(|_| top == 3).is_none_or(|number| name.ends_with(&number.to_string()))
    }
}

/// What came of it, as text: equal on both sides.
pub fn apply(ground: &Ground, root: &Path, step: &Step) -> String {
    let path = |at: At| ground.path(root, at);
    let outcome_text = |outcome: std::io::Result<String>| match outcome {
        Ok(text) => text,
        Err(error) => {
            format!("{:?}", rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
        }
    };
    let done = |outcome: std::io::Result<()>| outcome_text(outcome.map(|()| "done".to_owned()));
    let raw = |outcome: rustix::io::Result<()>| done(outcome.map_err(Into::into));
    // Never opens a FIFO for good, and follows no link out of the tree.
    let open = |at: At| {
        let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32;
        let mut options = fs::File::options();
        options.custom_flags(flags);
        (options, path(at))
    };
    match step {
        Step::Create(at, exclusive) => {
            let (mut options, path) = open(*at);
            options.write(true).create(true).create_new(*exclusive).mode(0o640);
            done(options.open(path).map(drop))
        }
        Step::Write(at, len) => {
            let (mut options, path) = open(*at);
            let bytes = vec![*len as u8; *len as usize];
            done(options.write(true).open(path).and_then(|mut file| file.write_all(&bytes)))
        }
        Step::Append(at) => {
            let (mut options, path) = open(*at);
            done(options.append(true).open(path).and_then(|mut file| file.write_all(b"appended")))
        }
        Step::Read(at) => {
            let (mut options, path) = open(*at);
            let mut text = Vec::new();
            outcome_text(options.read(true).open(path).and_then(|mut file| {
                file.read_to_end(&mut text)?;
                Ok(format!("{} {}", text.len(), text.iter().map(|byte| u64::from(*byte)).sum::<u64>()))
            }))
        }
        Step::Truncate(at, len) => {
            let (mut options, path) = open(*at);
            done(options.write(true).open(path).and_then(|file| file.set_len((*len).into())))
        }
        Step::Unlink(at) => done(fs::remove_file(path(*at))),
        Step::Mkdir(at) => done(fs::create_dir(path(*at))),
        Step::Rmdir(at) => done(fs::remove_dir(path(*at))),
        Step::RemoveTop(top) => {
            // The full ones only: an empty one would be gone for good, and have to be managed again. And none that
            // others may just have emptied.
            if ground.shared.is_some() && *top == 3 {
                return "shared".into();
            }
            let top = root.join(ground.tops[*top as usize]);
            let full = fs::read_dir(&top).map(|mut entries| entries.next().is_some()).unwrap_or(false);
            if full { done(fs::remove_dir(top)) } else { "empty".into() }
        }
        Step::Rename(from, to, flags) => {
            let flags = RenameFlags::from_bits_retain((*flags).into());
            raw(rustix::fs::renameat_with(CWD, path(*from), CWD, path(*to), flags))
        }
        Step::Link(from, to) => done(fs::hard_link(path(*from), path(*to))),
        Step::Symlink(target, at) => done(symlink(NAMES[target.name as usize], path(*at))),
        Step::Fifo(at) => raw(rustix::fs::mknodat(
            CWD,
            path(*at),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )),
        Step::Chmod(at, mode) => {
            let path = path(*at);
            let link = fs::symlink_metadata(&path).is_ok_and(|of| of.is_symlink());
            if link {
                "link".into()
            } else {
                done(fs::set_permissions(path, fs::Permissions::from_mode((*mode).into())))
            }
        }
        Step::Stat(at) => outcome_text(fs::symlink_metadata(path(*at)).map(|of| shown(&of))),
        Step::List(at) => outcome_text(listed(&path(*at), |_| true)),
        Step::ListTop(top) => {
            outcome_text(listed(&root.join(ground.tops[*top as usize]), |name| ground.owns(*top, name)))
        }
        Step::Xattr(at) => {
            let path = path(*at);
            let regular = fs::symlink_metadata(&path).is_ok_and(|of| of.is_file() || of.is_dir());
            if !regular {
                return "none".into();
            }
            let set = rustix::fs::lsetxattr(&path, "user.test", b"value", rustix::fs::XattrFlags::empty());
            let mut value = [0u8; 16];
            format!("{set:?} {:?}", rustix::fs::lgetxattr(&path, "user.test", &mut value))
        }
        Step::ReadRemoved(at) => {
            let (mut options, path) = open(*at);
            outcome_text(options.read(true).write(true).open(&path).and_then(|mut file| {
                fs::remove_file(&path)?;
                file.write_all(b"after all")?;
                Ok(format!("{} {}", file.metadata()?.len(), file.metadata()?.nlink()))
            }))
        }
    }
}

fn shown(of: &fs::Metadata) -> String {
    let kind = of.file_type();
    let (size, links) = if kind.is_dir() { (0, 0) } else { (of.len(), of.nlink()) };
    format!("{:o} {size} {links} {}", of.mode(), kind.is_fifo())
}

fn listed(directory: &Path, wanted: impl Fn(&str) -> bool) -> std::io::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (kind, name) = (entry.file_type()?, entry.file_name());
        let name = name.to_string_lossy();
        if wanted(&name) {
            names.push(format!("{name}{}", if kind.is_dir() { "/" } else { "" }));
        }
    }
    names.sort();
    Ok(names.join(" "))
}

/// The whole tree as text.
pub fn tree(root: &Path) -> String {
    let mut lines = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).expect("readable") {
            let path = entry.expect("an entry").path();
            let of = fs::symlink_metadata(&path).expect("attributes of what was listed");
            let content = if of.is_file() {
                format!(
                    "{:?}",
                    fs::read(&path).expect("readable").iter().map(|byte| u64::from(*byte)).sum::<u64>()
                )
            } else if of.is_symlink() {
                fs::read_link(&path).expect("a target").display().to_string()
            } else {
                String::new()
            };
            lines.push(format!(
                "{} {} {content}",
                path.strip_prefix(root).expect("below").display(),
                shown(&of)
            ));
            if of.is_dir() {
                open.push(path);
            }
        }
    }
    lines.sort();
    lines.join("\n")
}
