//! `crumb pack stat`: what a store holds and takes, or what is known of objects.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use packfs::{FileMeta, shown};
use packstore::{Store, Usage, VolumeState};
use report::{bytes_text, count_text};
use serde_json::{Value, json};

use super::object::{add_exact_key, iso_text, object_json, time_text};
use super::place::Place;
use super::{all_is_there, close_after, write_json};
use crate::context::Context;
use crate::exit::ExitStatus;
use crate::layout::{counted, grid, named, shortened};
use crate::output::{Destination, destination, note, print};

/// Print statistics of a store, or of objects. Works while another process has the store open.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack stat /srv/objects
  crumb pack stat /srv/objects images/a/logo.png --json

Permissions are printed in octal, as stat(1) does, and times in UTC with the seconds since 1970 beside.
`requested` is at most a day older than the last request. For a deleted object, `deleted` is printed as long
as the store keeps its tombstone.
With --json, mode is a decimal number, and fields that end in _s are seconds since 1970 (expires_s 0: never).")]
pub struct StatArgs {
    /// Directory of the store
    #[arg(id = "place", value_name = "STORE")]
    store: PathBuf,

    /// Keys of objects
    #[arg(value_name = "KEY")]
    keys: Vec<OsString>,

    /// Print JSON; with --json=FILE write it to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", value_parser = destination)]
    json: Option<Destination>,
}

/// Runs the verb.
pub fn stat(args: &StatArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let place = Place::read(&args.store)?;
    if place.is_in_use() {
        note(context, "another process has the store open: these are the figures of when this was read");
    }
    let store = place.open_to_read()?;
    let done = if args.keys.is_empty() {
        whole(&store, args, context).and_then(|status| all_is_there(&store, &args.store).map(|()| status))
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
    if let Some(json) = &args.json {
        write_json(json, context, &Value::Array(found))?;
    } else {
        for object in &found {
            let Value::Object(fields) = object else { continue };
            let lines: String = fields.iter().map(|(name, value)| field_text(name, value)).collect();
            print(&format!("{lines}\n"))?;
        }
    }
    match missing {
        0 => Ok(ExitStatus::Fine),
        _ => Err(anyhow!("{} not there", counted(missing, "object was", "objects were"))),
    }
}

/// A field of an object, for people: permissions in octal, times in UTC with the seconds beside.
fn field_text(name: &str, value: &Value) -> String {
    match (name, name.strip_suffix("_s"), value.as_i64()) {
        ("mode", _, Some(mode)) => named(name, &format!("{mode:04o}")),
        ("expires_s", Some(name), Some(0)) => named(name, "never"),
        ("requested_s", Some(name), Some(0)) => named(name, "not known"),
        (_, Some(name), Some(seconds)) => named(name, &format!("{} ({seconds})", iso_text(seconds))),
        _ => named(name, &value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
    }
}

fn whole(store: &Store, args: &StatArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let (usage, volumes) = (store.usage(), store.volumes());
    if let Some(json) = &args.json {
        write_json(json, context, &json_of(store, &usage, &volumes))?;
        return Ok(ExitStatus::Fine);
    }
    print(&format!("{}\n{}", text_of(store, &usage), volumes_text(&volumes)))?;
    for failed in volumes.iter().filter_map(|volume| volume.failed.as_ref()) {
        print(&format!("read-only: {failed}\n"))?;
    }
    Ok(ExitStatus::Fine)
}

fn json_of(store: &Store, usage: &Usage, volumes: &[VolumeState]) -> Value {
    let volume = |volume: &VolumeState| {
        json!({
            "place": volume.place, "size_bytes": volume.size_bytes, "live_bytes": volume.live_bytes,
            "packed_files": volume.packed_files, "failed": volume.failed,
        })
    };
    let (block_bytes, packed_blocks) = store.shape();
    json!({
        "objects": usage.objects, "size_bytes": usage.size_bytes, "live_bytes": usage.live_bytes,
        "packed_files": usage.packed_files, "body_bytes": usage.body_bytes, "index_bytes": usage.index_bytes,
        "free_in_packed_files": free_share(usage), "memory_bytes": usage.memory_bytes,
        "block_bytes": block_bytes, "packed_blocks": packed_blocks,
        "mode": mode_text(store), "expires": store.expires(), "cyclic": store.is_cyclic(), "damaged_controls": usage.damaged_controls,
        "damaged_files": usage.damaged_files, "torn_puts": usage.torn_puts,
        "volumes": volumes.iter().map(volume).collect::<Vec<_>>(),
    })
}

fn text_of(store: &Store, usage: &Usage) -> String {
    let (block_bytes, packed_blocks) = store.shape();
    let packed_bytes = u64::from(block_bytes) * u64::from(packed_blocks);
    let packed = format!(
        "{} of {}, in blocks of {}, {:.0}% of the blocks free",
        count_text(usage.packed_files),
        bytes_text(packed_bytes),
        bytes_text(block_bytes.into()),
        free_share(usage) * 100.0
    );
    let memory = match usage.objects {
        0 => bytes_text(usage.memory_bytes),
        objects => {
            let each = usage.memory_bytes as f64 / objects as f64;
            format!("{}, {each:.1} bytes an object", bytes_text(usage.memory_bytes))
        }
    };
    let used = format!("{} of {}", bytes_text(usage.live_bytes), bytes_text(usage.size_bytes));
    let expires = if store.expires() { ", objects may expire" } else { "" };
    let cyclic = if store.is_cyclic() { ", cyclic" } else { "" };
    let mut text = named("Mode", &format!("{}{cyclic}{expires}", mode_text(store)));
    text.push_str(&named("Objects", &count_text(usage.objects)));
    text.push_str(&named("Used", &used));
    text.push_str(&named("Segments", &packed));
    text.push_str(&named("Indexes", &bytes_text(usage.index_bytes)));
    text.push_str(&named("Memory", &memory));
    if usage.damaged_controls + usage.damaged_files + usage.torn_puts > 0 {
        let damage = format!(
            "{} index records and {} files damaged, {} puts torn by a power cut; see crumb pack check",
            count_text(usage.damaged_controls),
            count_text(usage.damaged_files),
            count_text(usage.torn_puts)
        );
        text.push_str(&named("Damage", &damage));
    }
    text
}

fn volumes_text(volumes: &[VolumeState]) -> String {
    let row = |volume: &VolumeState| {
        vec![
            shortened(&volume.place, 40),
            bytes_text(volume.live_bytes),
            bytes_text(volume.size_bytes),
            count_text(volume.packed_files),
        ]
    };
    grid(&["directory", "used", "of", "files"], 1, &volumes.iter().map(row).collect::<Vec<_>>())
}

fn mode_text(store: &Store) -> String {
    format!("{:?}", store.mode()).to_lowercase()
}

/// Of the segments that are there.
fn free_share(usage: &Usage) -> f64 {
    match usage.body_bytes {
        0 => 0.0,
        bytes => 1.0 - usage.live_bytes as f64 / bytes as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: `pack stat STORE KEY` printed the mode in decimal and times as bare seconds.
    #[test]
    fn an_object_is_shown_with_its_mode_in_octal_and_its_times_in_utc() {
        let line = |name: &str, value: Value| {
            field_text(name, &value).split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line("mode", json!(0o640)), "mode 0640");
        assert_eq!(line("mode", json!(0o4755)), "mode 4755");
        assert_eq!(line("mtime_s", json!(1_000_000_000)), "mtime 2001-09-09T01:46:40Z (1000000000)");
        assert_eq!(line("expires_s", json!(0)), "expires never");
        assert_eq!(line("bytes", json!(5)), "bytes 5");
        assert_eq!(line("kind", json!("file")), "kind file");
    }
}
