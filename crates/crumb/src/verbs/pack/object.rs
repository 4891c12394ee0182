//! What is known of an object, in words that all verbs share.

use jiff::Timestamp;
use packfs::{FileMeta, FileType};
use packstore::Stat;
use serde_json::{Value, json};

/// Adds what a key that is not UTF-8 really is, since JSON has only text.
pub fn add_exact_key(object: &mut Value, key: &[u8]) {
    if str::from_utf8(key).is_err() {
        object["key_hex"] = key.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
    }
}

/// A time in seconds since 1970, UTC.
pub fn time_text(seconds: i64) -> String {
    let time = Timestamp::from_second(seconds).map(|time| time.strftime("%Y-%m-%d %H:%M:%S").to_string());
    time.unwrap_or_else(|_| "-".to_owned())
}

/// The same as ISO 8601 writes it.
pub fn iso_text(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| "-".to_owned(), |time| time.to_string())
}

/// When an object expires, UTC.
pub fn expires_text(stat: &Stat) -> String {
    match stat.expires_s {
        0 => "never".to_owned(),
        seconds => time_text(seconds.into()),
    }
}

/// An object with its attributes; those of a file where it is one.
pub fn object_json(key: &[u8], stat: &Stat, meta: Option<&FileMeta>) -> Value {
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
