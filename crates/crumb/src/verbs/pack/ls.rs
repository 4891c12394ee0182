//! `crumb pack ls`: the objects of a store.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use packfs::{FileMeta, FileType, shown};
use packstore::{Stat, Store};
use report::count_text;

use super::object::{expires_text, object_json, time_text};
use super::place::Place;
use super::{all_is_there, close_after};
use crate::context::Context;
use crate::exit::ExitStatus;
use crate::layout::counted;
use crate::output::{Destination, destination, note};

/// Lines handed out at once.
const LINES_BYTES: usize = 64 << 10;

/// List objects in the order of their keys. Works while another process has the store open.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack ls /srv/objects
  crumb pack ls /srv/objects images/a/ -l")]
pub struct LsArgs {
    /// Directory of the store
    #[arg(id = "place", value_name = "STORE")]
    store: PathBuf,

    /// List only objects whose keys begin with this
    #[arg(value_name = "PREFIX", default_value = "")]
    prefix: OsString,

    /// Print permissions, size and time, too; in a store whose objects may expire also when they do (UTC)
    #[arg(short, long)]
    long: bool,

    /// Print JSON, one object per line; with --json=FILE write it to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", value_parser = destination)]
    json: Option<Destination>,
}

/// Lists.
pub fn list(args: &LsArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let store = Place::read(&args.store)?.open_to_read()?;
    let done = lines(&store, args, context).and_then(|failures| {
        all_is_there(&store, &args.store)?;
        Ok(failures)
    });
    match close_after(store, done)? {
        0 => Ok(ExitStatus::Fine),
        failures => Err(anyhow!(
            "{} not listed in full; run `crumb pack check` to see what is damaged",
            counted(failures, "object or segment was", "objects or segments were")
        )),
    }
}

/// Counts the objects and segments that could not be read, and prints each.
fn lines(store: &Store, args: &LsArgs, context: &Context) -> anyhow::Result<usize> {
    let mut text = String::new();
    let mut write = args.json.as_ref().unwrap_or(&Destination::Stdout).opened(context)?;
    let entries = store.iter_ordered(args.prefix.as_bytes())?;
    let mut failures = entries.failures().len();
    entries.failures().iter().for_each(|error| note(context, &format!("error: {error}")));
    for entry in entries {
        let key = &entry.key;
        if args.json.is_some() || args.long {
            let (stat, meta) = match store.attributes(key) {
                Ok(Some(attributes)) => attributes,
                Ok(None) => continue,
                Err(error) => {
                    note(context, &format!("error: {error}"));
                    failures += 1;
                    (entry.stat, Vec::new())
                }
            };
            let meta = FileMeta::decode(&meta);
            if args.json.is_some() {
                text.push_str(&format!("{}\n", object_json(key, &stat, meta.as_ref())));
            } else {
                text.push_str(&long_line(key, &stat, meta.as_ref(), store.expires()));
            }
        } else {
            text.push_str(&format!("{}\n", shown(key)));
        }
        if text.len() > LINES_BYTES {
            write(&text)?;
            text.clear();
        }
    }
    write(&text)?;
    Ok(failures)
}

fn long_line(key: &[u8], stat: &Stat, meta: Option<&FileMeta>, may_expire: bool) -> String {
    let (kind, target) = match meta.map(|meta| &meta.kind) {
        Some(FileType::Directory) => ('d', String::new()),
        Some(FileType::Symlink(target)) => ('l', format!(" -> {}", shown(target))),
        _ => ('-', String::new()),
    };
    let mode = meta.map_or(0o644, |meta| meta.mode);
    let mut letters: Vec<char> =
        (0..9).map(|at| if mode & (0o400 >> at) != 0 { ['r', 'w', 'x'][at % 3] } else { '-' }).collect();
    // As ls(1) shows set-user-ID, set-group-ID and the sticky bit.
    for (bit, at, letter) in [(0o4000, 2, 's'), (0o2000, 5, 's'), (0o1000, 8, 't')] {
        if mode & bit != 0 {
            letters[at] = if letters[at] == 'x' { letter } else { letter.to_ascii_uppercase() };
        }
    }
    let letters: String = letters.into_iter().collect();
    let seconds = meta.map_or(stat.created_s.into(), |meta| meta.mtime_s);
    let time = time_text(seconds);
    let expires = match may_expire {
        true => format!("{:<20}", expires_text(stat)),
        false => String::new(),
    };
    format!("{kind}{letters} {:>12} {time} {expires}{}{target}\n", count_text(stat.length), shown(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(mode: u16, kind: FileType) -> String {
        let stat =
            Stat { length: 10_240, meta_bytes: 0, created_s: 0, requested_s: 0, expires_s: 0, sequence: 1 };
        let meta = FileMeta { mtime_s: 1_000_000_000, ..FileMeta::new(kind, mode) };
        long_line(b"a/b", &stat, Some(&meta), false)
    }

    #[test]
    fn permissions_are_shown_as_ls_shows_them() {
        assert_eq!(line(0o644, FileType::Regular), "-rw-r--r--       10,240 2001-09-09 01:46:40 a/b\n");
        assert!(line(0o4755, FileType::Regular).starts_with("-rwsr-xr-x "));
        assert!(line(0o2640, FileType::Regular).starts_with("-rw-r-S--- "));
        assert!(line(0o1777, FileType::Directory).starts_with("drwxrwxrwt "));
        assert!(line(0o777, FileType::Symlink(b"c".to_vec())).ends_with("a/b -> c\n"));
    }

    #[test]
    fn a_store_whose_objects_may_expire_has_a_column_for_when_they_do() {
        let stat = |expires_s| Stat {
            length: 1,
            meta_bytes: 0,
            created_s: 1_000_000_000,
            requested_s: 0,
            expires_s,
            sequence: 1,
        };
        let line = |expires_s| long_line(b"key", &stat(expires_s), None, true);
        assert!(line(1_000_086_400).ends_with(" 2001-09-09 01:46:40 2001-09-10 01:46:40 key\n"));
        assert!(line(0).ends_with(" 2001-09-09 01:46:40 never               key\n"));
    }
}
