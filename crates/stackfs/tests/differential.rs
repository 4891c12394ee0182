//! Random operations on managed directories through a mount and on plain ones beside: the same results, errors and
//! trees. A failing sequence is cut down to one that cannot be cut further, and printed with its seed.

mod scene;

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};
use scene::{Scene, cannot_mount};

const SEQUENCES: u64 = 30;
const OPERATIONS: usize = 500;

/// A path by its parts' places in the pools.
#[derive(Clone, Copy, Debug)]
struct At {
    top: u8,
    name: u8,
    /// 0 for none: a name within the directory of that name.
    below: u8,
}

#[derive(Clone, Debug)]
enum Step {
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

const TOPS: [&str; 4] = ["m1", "m2", "m3", "p"];
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

struct Dice(u64);

impl Dice {
    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn at(&mut self) -> At {
        let below = if self.below(4) == 0 { 1 + self.below(NAMES.len() as u64) } else { 0 };
        At { top: self.below(4) as u8, name: self.below(NAMES.len() as u64) as u8, below: below as u8 }
    }

    fn step(&mut self) -> Step {
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

fn path(root: &Path, at: At) -> PathBuf {
    let path = root.join(TOPS[at.top as usize]).join(NAMES[at.name as usize]);
    if at.below == 0 { path } else { path.join(NAMES[at.below as usize - 1]) }
}

/// What came of it, as text: equal on both sides.
fn apply(root: &Path, step: &Step) -> String {
    let told = |outcome: std::io::Result<String>| match outcome {
        Ok(text) => text,
        Err(error) => {
            format!("{:?}", rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
        }
    };
    let done = |outcome: std::io::Result<()>| told(outcome.map(|()| "done".to_owned()));
    let raw = |outcome: rustix::io::Result<()>| done(outcome.map_err(Into::into));
    // Never opens a FIFO for good, and follows no link out of the tree.
    let open = |at: At| {
        let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32;
        let mut options = fs::File::options();
        options.custom_flags(flags);
        (options, path(root, at))
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
            told(options.read(true).open(path).and_then(|mut file| {
                file.read_to_end(&mut text)?;
                Ok(format!("{} {}", text.len(), text.iter().map(|byte| u64::from(*byte)).sum::<u64>()))
            }))
        }
        Step::Truncate(at, len) => {
            let (mut options, path) = open(*at);
            done(options.write(true).open(path).and_then(|file| file.set_len((*len).into())))
        }
        Step::Unlink(at) => done(fs::remove_file(path(root, *at))),
        Step::Mkdir(at) => done(fs::create_dir(path(root, *at))),
        Step::Rmdir(at) => done(fs::remove_dir(path(root, *at))),
        Step::RemoveTop(top) => {
            // The full ones only: an empty one would be gone for good, and have to be managed again.
            let top = root.join(TOPS[*top as usize]);
            let full = fs::read_dir(&top).map(|mut entries| entries.next().is_some()).unwrap_or(false);
            if full { done(fs::remove_dir(top)) } else { "empty".into() }
        }
        Step::Rename(from, to, flags) => {
            let flags = RenameFlags::from_bits_retain((*flags).into());
            raw(rustix::fs::renameat_with(CWD, path(root, *from), CWD, path(root, *to), flags))
        }
        Step::Link(from, to) => done(fs::hard_link(path(root, *from), path(root, *to))),
        Step::Symlink(target, at) => done(symlink(NAMES[target.name as usize], path(root, *at))),
        Step::Fifo(at) => raw(rustix::fs::mknodat(
            CWD,
            path(root, *at),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )),
        Step::Chmod(at, mode) => {
            let path = path(root, *at);
            let link = fs::symlink_metadata(&path).is_ok_and(|of| of.is_symlink());
            if link {
                "link".into()
            } else {
                done(fs::set_permissions(path, fs::Permissions::from_mode((*mode).into())))
            }
        }
        Step::Stat(at) => told(fs::symlink_metadata(path(root, *at)).map(|of| shown(&of))),
        Step::List(at) => told(listed(&path(root, *at))),
        Step::ListTop(top) => told(listed(&root.join(TOPS[*top as usize]))),
        Step::Xattr(at) => {
            let path = path(root, *at);
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
            told(options.read(true).write(true).open(&path).and_then(|mut file| {
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

fn listed(directory: &Path) -> std::io::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        names.push(format!(
            "{}{}",
            entry.file_name().to_string_lossy(),
            if kind.is_dir() { "/" } else { "" }
        ));
    }
    names.sort();
    Ok(names.join(" "))
}

/// The whole tree as text.
fn tree(root: &Path) -> String {
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

/// Where the two sides differ first, if they do.
fn difference(scene: &Scene, attempt: &str, steps: &[Step]) -> Option<String> {
    let (lower, mounted) = (scene.lower(attempt), scene.at(attempt));
    let plain = scene.folder.path().join("plain").join(attempt);
    for side in [&lower, &plain] {
        fs::create_dir_all(side).expect("a side");
        for top in TOPS {
            fs::create_dir(side.join(top)).expect("a directory");
        }
    }
    for top in &TOPS[..3] {
        fs::set_permissions(lower.join(top), fs::Permissions::from_mode(0o4755)).expect("the bit");
    }
    let mut found = None;
    for (at, step) in steps.iter().enumerate() {
        let (through, beside) = (apply(&mounted, step), apply(&plain, step));
        if through != beside {
            found = Some(format!("step {at}, {step:?}:\n  mounted {through}\n  plain   {beside}"));
            break;
        }
    }
    if found.is_none() {
        let (through, beside) = (tree(&mounted), tree(&plain));
        if through != beside {
            found = Some(format!("final trees differ:\n-- mounted\n{through}\n-- plain\n{beside}"));
        }
    }
    fs::remove_dir_all(&plain).expect("removed");
    fs::remove_dir_all(&mounted).expect("removed through the mount, managed directories and all");
    found
}

fn shrunk(scene: &Scene, mut steps: Vec<Step>) -> (Vec<Step>, String) {
    let mut tries = 0;
    let mut differs = |steps: &[Step]| {
        tries += 1;
        difference(scene, &format!("shrink{tries}"), steps)
    };
    let mut told = differs(&steps).unwrap_or_else(|| "differed once and not again".to_owned());
    let mut chunk = steps.len() / 2;
    while chunk > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + chunk).min(steps.len()));
            match differs(&fewer) {
                Some(still) => (steps, told) = (fewer, still),
                None => at += chunk,
            }
        }
        chunk /= 2;
    }
    (steps, told)
}

fn compare(scene: &Scene, sequences: u64) {
    for seed in 0..sequences {
        let mut dice = Dice(seed);
        let steps: Vec<Step> = (0..OPERATIONS).map(|_| dice.step()).collect();
        if difference(scene, &format!("seed{seed}"), &steps).is_some() {
            let (steps, told) = shrunk(scene, steps);
            let steps: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
            panic!("seed {seed}: {told}\nin\n{}", steps.join("\n"));
        }
    }
}

#[test]
fn managed_directories_behave_as_plain_ones_whatever_is_done_to_them() {
    if cannot_mount() {
        return;
    }
    compare(&Scene::new(), SEQUENCES);
}

#[test]
fn they_do_so_with_long_time_outs_and_without_pass_through() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::with(|options| {
        let mut options = options.exclusive();
        options.passthrough = false;
        options
    });
    // The top directories are made below the mount before it first looks: names of their own, so no time-out lies.
    compare(&scene, SEQUENCES / 3);
}
