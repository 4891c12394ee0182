//! `crumb pack ls` and `crumb pack stat`: what a store holds, and what it takes for it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use jiff::Timestamp;
use packfs::{FileMeta, FileType, shown};
use packstore::{Stat, Store, Usage};
use report::{bytes_text, count_text};
use serde_json::{Value, json};

use super::place::Place;
use super::{all_is_there, close_after, print_json};
use crate::context::Context;
use crate::exit::ExitStatus;
use crate::layout::{counted, grid, named};
use crate::output::{note, print};

/// Lines handed out at once.
const LINES_BYTES: usize = 64 << 10;

/// List objects in the order of their keys. Goes beside a process that has the store open.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack ls /srv/objects
  crumb pack ls /srv/objects images/a/ -l")]
pub struct LsArgs {
    /// Directory of the store
    #[arg(value_name = "STORE")]
    store: PathBuf,

    /// Only objects whose keys begin so
    #[arg(value_name = "PREFIX", default_value = "")]
    prefix: OsString,

    /// Also permissions, size and time of each
    #[arg(short, long)]
    long: bool,

    /// As JSON, one object a line
    #[arg(long)]
    json: bool,
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
            "{} not listed in full; `crumb pack check` tells what is damaged",
            counted(failures, "object or segment was", "objects or segments were")
        )),
    }
}

/// How many objects and segments could not be read, which is told.
fn lines(store: &Store, args: &LsArgs, context: &Context) -> anyhow::Result<usize> {
    let mut text = String::new();
    let entries = store.iter_ordered(args.prefix.as_bytes())?;
    let mut failures = entries.failures().len();
    entries.failures().iter().for_each(|error| note(context, &format!("error: {error}")));
    for entry in entries {
        let key = &entry.key;
        if args.json || args.long {
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
            if args.json {
                text.push_str(&format!("{}\n", object_json(key, &stat, meta.as_ref())));
            } else {
                text.push_str(&long_line(key, &stat, meta.as_ref()));
            }
        } else {
            text.push_str(&format!("{}\n", shown(key)));
        }
        if text.len() > LINES_BYTES {
            print(&text)?;
            text.clear();
        }
    }
    print(&text)?;
    Ok(failures)
}

/// Adds what a key that is not UTF-8 really is, since JSON has only text.
pub(super) fn add_exact_key(object: &mut Value, key: &[u8]) {
    if str::from_utf8(key).is_err() {
        object["key_hex"] = key.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
    }
}

fn long_line(key: &[u8], stat: &Stat, meta: Option<&FileMeta>) -> String {
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
    format!("{kind}{letters} {:>12} {time} {}{target}\n", count_text(stat.length), shown(key))
}

fn time_text(seconds: i64) -> String {
    let time = Timestamp::from_second(seconds).map(|time| time.strftime("%Y-%m-%d %H:%M:%S").to_string());
    time.unwrap_or_else(|_| "-".to_owned())
}

fn object_json(key: &[u8], stat: &Stat, meta: Option<&FileMeta>) -> Value {
    let kind = match meta.map(|meta| &meta.kind) {
        None => "object",
        Some(FileType::Regular) => "file",
        Some(FileType::Directory) => "directory",
        Some(FileType::Symlink(_)) => "symlink",
    };
    let mut object = json!({
        "key": String::from_utf8_lossy(key), "kind": kind, "bytes": stat.length, "created_s": stat.created_s,
        "requested_s": stat.requested_s, "expires_s": stat.expires_s, "sequence": stat.sequence,
    });
    add_exact_key(&mut object, key);
    if let Some(meta) = meta {
        object["mode"] = meta.mode.into();
        object["mtime_s"] = meta.mtime_s.into();
        if let FileType::Symlink(target) = &meta.kind {
            object["target"] = String::from_utf8_lossy(target).into();
        }
    }
    object
}

/// Tell what a store holds and takes, or what is known of objects. Goes beside a process that has the store open.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack stat /srv/objects
  crumb pack stat /srv/objects images/a/logo.png --json

Times are seconds since 1970. requested_s is at most a day older than the last request. For a deleted
object, deleted_s is printed as long as the store keeps its tombstone.")]
pub struct StatArgs {
    /// Directory of the store
    #[arg(value_name = "STORE")]
    store: PathBuf,

    /// Keys of objects
    #[arg(value_name = "KEY")]
    keys: Vec<OsString>,

    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Tells.
pub fn stat(args: &StatArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let place = Place::read(&args.store)?;
    if place.is_in_use() {
        note(context, "another process has the store open: these are the figures of when this was read");
    }
    let store = place.open_to_read()?;
    let done = if args.keys.is_empty() {
        whole(&store, args).and_then(|status| all_is_there(&store, &args.store).map(|()| status))
    } else {
        objects(&store, args, context)
    };
    close_after(store, done)
}

fn objects(store: &Store, args: &StatArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let (mut found, mut missing) = (Vec::new(), 0);
    for key in args.keys.iter().map(|key| key.as_bytes()) {
        match store.attributes(key)? {
            Some((stat, meta)) => found.push(object_json(key, &stat, FileMeta::decode(&meta).as_ref())),
            None => {
                missing += 1;
                let deleted_s = store.deleted_s(key)?;
                let when =
                    deleted_s.map(|seconds| format!("; it was deleted at {}", time_text(seconds.into())));
                let when = when.unwrap_or_default();
                note(context, &format!("error: {}: no such object{when}", shown(key)));
                if let Some(seconds) = deleted_s {
                    let mut object = json!({
                        "key": String::from_utf8_lossy(key), "kind": "deleted", "deleted_s": seconds,
                    });
                    add_exact_key(&mut object, key);
                    found.push(object);
                }
            }
        }
    }
    if args.json {
        print_json(&Value::Array(found))?;
    } else {
        for object in &found {
            let Value::Object(fields) = object else { continue };
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let lines: String = fields.iter().map(|(name, value)| named(name, &text(value))).collect();
            print(&format!("{lines}\n"))?;
        }
    }
    match missing {
        0 => Ok(ExitStatus::Fine),
        _ => Err(anyhow!("{} not there", counted(missing, "object was", "objects were"))),
    }
}

fn whole(store: &Store, args: &StatArgs) -> anyhow::Result<ExitStatus> {
    let usage = store.usage();
    let (block_bytes, packed_blocks) = store.shape();
    let volumes = store.volumes();
    if args.json {
        let volumes: Vec<Value> = volumes
            .iter()
            .map(|volume| {
                json!({
                    "place": volume.place, "size_bytes": volume.size_bytes, "live_bytes": volume.live_bytes,
                    "packed_files": volume.packed_files, "failed": volume.failed,
                })
            })
            .collect();
        print_json(&json!({
            "objects": usage.objects, "size_bytes": usage.size_bytes, "live_bytes": usage.live_bytes,
            "packed_files": usage.packed_files, "body_bytes": usage.body_bytes, "index_bytes": usage.index_bytes,
            "free_in_packed_files": free_share(&usage), "memory_bytes": usage.memory_bytes,
            "block_bytes": block_bytes, "packed_blocks": packed_blocks,
            "mode": format!("{:?}", store.mode()).to_lowercase(), "damaged_controls": usage.damaged_controls,
            "damaged_files": usage.damaged_files, "torn_puts": usage.torn_puts, "volumes": volumes,
        }))?;
        return Ok(ExitStatus::Fine);
    }
    let mut text = String::new();
    text.push_str(&named("Mode", &format!("{:?}", store.mode()).to_lowercase()));
    text.push_str(&named("Objects", &count_text(usage.objects)));
    text.push_str(&named(
        "Room",
        &format!("{} of {}", bytes_text(usage.live_bytes), bytes_text(usage.size_bytes)),
    ));
    let packed_bytes = u64::from(block_bytes) * u64::from(packed_blocks);
    text.push_str(&named(
        "Segments",
        &format!(
            "{} of {} in blocks of {}, {:.0}% of them free",
            count_text(usage.packed_files),
            bytes_text(packed_bytes),
            bytes_text(block_bytes.into()),
            free_share(&usage) * 100.0
        ),
    ));
    text.push_str(&named("Indexes", &bytes_text(usage.index_bytes)));
    let memory = match usage.objects {
        0 => bytes_text(usage.memory_bytes),
        objects => {
            let each = usage.memory_bytes as f64 / objects as f64;
            format!("{}, {each:.1} bytes an object", bytes_text(usage.memory_bytes))
        }
    };
    text.push_str(&named("Memory", &memory));
    if usage.damaged_controls + usage.damaged_files + usage.torn_puts > 0 {
        let told = format!(
            "{} index records and {} files damaged, {} puts torn by a power cut; see crumb pack check",
            count_text(usage.damaged_controls),
            count_text(usage.damaged_files),
            count_text(usage.torn_puts)
        );
        text.push_str(&named("Damage", &told));
    }
    let rows: Vec<Vec<String>> = volumes
        .iter()
        .map(|volume| {
            vec![
                crate::layout::shortened(&volume.place, 40),
                bytes_text(volume.live_bytes),
                bytes_text(volume.size_bytes),
                count_text(volume.packed_files),
            ]
        })
        .collect();
    print(&format!("{text}\n{}", grid(&["directory", "used", "of", "files"], 1, &rows)))?;
    for failed in volumes.iter().filter_map(|volume| volume.failed.as_ref()) {
        print(&format!("read-only: {failed}\n"))?;
    }
    Ok(ExitStatus::Fine)
}

/// Of the segments that are there.
fn free_share(usage: &Usage) -> f64 {
    match usage.body_bytes {
        0 => 0.0,
        bytes => 1.0 - usage.live_bytes as f64 / bytes as f64,
    }
}
