//! From text to a checked [`Workload`].
//!
//! Both forms, TOML and a directory, are first brought to one: values by their keys, each with its place, and
//! the rows of the mix. What follows, down to every message, is then the same for both.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use files::OpKind;
use measure::{SETTINGS_BYTES_MAX, read_text};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::chains::{CHAINS_MAX, Chain};
use super::distribution::{Dimension, Distribution, meaningful_lines, parse_number, parse_quantity};
use super::mix::Mix;
use super::{Access, FilesPerOp, Popularity, Scale, Sizes, Tree, Workload};
use crate::error::{FstressError, Place, ValueProblem, nearest};

/// Key in TOML and the name of the file in a directory, for every parameter but the mix.
const PARAMETERS: [(&str, &str); 21] = [
    ("name", "name"),
    ("about", "about"),
    ("tree.files_per_directory", "files_per_directory"),
    ("tree.directories_per_directory", "directories_per_directory"),
    ("tree.symlinks_per_directory", "symlinks_per_directory"),
    ("tree.depth_max", "depth_max"),
    ("popularity.file", "file_popularity"),
    ("popularity.directory", "directory_popularity"),
    ("popularity.symlink", "symlink_popularity"),
    ("sizes.file", "file_size"),
    ("sizes.read", "read_size"),
    ("sizes.write", "write_size"),
    ("access.read", "read_access"),
    ("access.write", "write_access"),
    ("access.write_stability", "write_stability"),
    ("access.setattr", "setattr"),
    ("access.append_max", "append_max"),
    ("scale.files_per_op", "files_per_op"),
    ("scale.files_min", "files_min"),
    ("mix", "mix"),
    ("chains", "chains"),
];

const SECTIONS: [&str; 7] = ["tree", "popularity", "sizes", "access", "mix", "chains", "scale"];

/// A value as it was written, and where.
struct Written {
    place: Place,
    value: Value,
}

enum Value {
    Text(String),
    // From a file of `value:weight` lines, which is checked as it is read, with its own lines.
    Histogram(Distribution),
}

struct Raw {
    whole: Place,
    values: BTreeMap<&'static str, Written>,
    mix_place: Option<Place>,
    mix: Vec<(Place, String, String)>,
    chains: Vec<(Place, String, String)>,
}

impl Raw {
    fn of(whole: Place) -> Self {
        Self { whole, values: BTreeMap::new(), mix_place: None, mix: Vec::new(), chains: Vec::new() }
    }
}

pub(super) fn toml(text: &str, file: &str, folder: Option<&Path>) -> Result<Workload, FstressError> {
    let line_of = |span: Range<usize>| text[..span.start.min(text.len())].matches('\n').count() + 1;
    let place = |span: Range<usize>| Place::line(file, line_of(span));
    let document = DeTable::parse(text).map_err(|error| FstressError::Syntax {
        place: error.span().map_or_else(|| Place::whole(file), place),
        problem: error.message().to_owned(),
    })?;
    let mut raw = Raw::of(Place::whole(file));
    for (key, value) in document.get_ref() {
        let name: &str = key.get_ref();
        match value.get_ref() {
            DeValue::Table(rows) if name == "mix" => {
                raw.mix_place = Some(place(key.span()));
                for (op, share) in in_text_order(rows) {
                    let at = place(op.span());
                    let share = scalar(&at, op.get_ref(), share.get_ref())?;
                    raw.mix.push((at, op.get_ref().to_string(), share));
                }
            }
            DeValue::Table(rows) if name == "chains" => {
                for (chain, share) in in_text_order(rows) {
                    let at = place(chain.span());
                    let share = scalar(&at, chain.get_ref(), share.get_ref())?;
                    raw.chains.push((at, chain.get_ref().to_string(), share));
                }
            }
            DeValue::Table(entries) if SECTIONS.contains(&name) => {
                for (key, value) in in_text_order(entries) {
                    let at = place(key.span());
                    let parameter = section_key(name, key.get_ref(), &at)?;
                    let value = scalar(&at, key.get_ref(), value.get_ref())?;
                    raw.values.insert(parameter, written(at, parameter, value, folder)?);
                }
            }
            value => {
                let at = place(key.span());
                let known = ["name", "about"].into_iter().find(|known| *known == name);
                let Some(known) = known.filter(|_| !matches!(value, DeValue::Table(_))) else {
                    let known: Vec<_> = ["name", "about"].into_iter().chain(SECTIONS).collect();
                    if known.contains(&name) {
                        let problem = ValueProblem::new(value.type_str(), "a section of keys and values");
                        return Err(FstressError::BadValue { place: at, key: name.to_owned(), problem });
                    }
                    return Err(unknown(at, "key or section", name, known));
                };
                let value = scalar(&at, name, value)?;
                raw.values.insert(known, Written { place: at, value: Value::Text(value) });
            }
        }
    }
    checked(raw, file_stem(file))
}

/// The parser sorts keys by name; messages and tables should keep the author's order.
fn in_text_order<'a, 'i>(
    table: &'a DeTable<'i>,
) -> Vec<(&'a Spanned<std::borrow::Cow<'i, str>>, &'a Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn section_key(section: &str, key: &str, place: &Place) -> Result<&'static str, FstressError> {
    let full = format!("{section}.{key}");
    let within =
        |(parameter, _): &(&'static str, &str)| parameter.split_once('.').filter(|(of, _)| *of == section);
    if let Some((parameter, _)) = PARAMETERS.iter().find(|(parameter, _)| *parameter == full) {
        return Ok(parameter);
    }
    let known = PARAMETERS.iter().filter_map(within).map(|(_, key)| key).collect();
    Err(unknown(place.clone(), "key", key, known))
}

fn unknown(place: Place, what: &'static str, found: &str, known: Vec<&'static str>) -> FstressError {
    FstressError::Unknown { place, what, found: found.to_owned(), near: nearest(found, &known), known }
}

fn scalar(place: &Place, key: &str, value: &DeValue<'_>) -> Result<String, FstressError> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        other => Err(FstressError::BadValue {
            place: place.clone(),
            key: key.to_owned(),
            problem: ValueProblem::new(other.type_str(), "a number or a text"),
        }),
    }
}

fn written(
    place: Place,
    parameter: &'static str,
    text: String,
    folder: Option<&Path>,
) -> Result<Written, FstressError> {
    let value = match (text.trim().strip_prefix("file "), dimension(parameter)) {
        (Some(name), Some(dimension)) => {
            let folder = folder.ok_or_else(|| FstressError::BadValue {
                place: place.clone(),
                key: parameter.to_owned(),
                problem: ValueProblem::new(
                    &text,
                    "no reference to a file, as this workload is not in a folder",
                ),
            })?;
            Value::Histogram(Distribution::load(&folder.join(name.trim()), dimension)?)
        }
        _ => Value::Text(text),
    };
    Ok(Written { place, value })
}

/// What the values of a parameter are, if it is a distribution.
fn dimension(parameter: &str) -> Option<Dimension> {
    match parameter {
        "tree.depth_max" => None,
        _ if parameter.starts_with("tree.") => Some(Dimension::Count),
        _ if parameter.starts_with("popularity.") => Some(Dimension::Weight),
        _ if parameter.starts_with("sizes.") => Some(Dimension::Bytes),
        _ => None,
    }
}

pub(super) fn directory(folder: &Path) -> Result<Workload, FstressError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| FstressError::ReadWorkload { path, source }
    };
    let whole = Place::whole(folder.display().to_string());
    let mut raw = Raw::of(whole);
    for entry in std::fs::read_dir(folder).map_err(failed(folder))? {
        let path = entry.map_err(failed(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // What editors and version control leave behind is none of ours.
        if name.starts_with('.') || name.ends_with('~') || name.to_ascii_lowercase().starts_with("readme") {
            continue;
        }
        let file = path.display().to_string();
        let Some((parameter, _)) = PARAMETERS.iter().find(|(_, known)| *known == name) else {
            let known = PARAMETERS.iter().map(|(_, known)| *known).collect();
            return Err(unknown(Place::whole(file), "parameter file", &name, known));
        };
        if let Some(dimension) = dimension(parameter) {
            let value = Value::Histogram(Distribution::load(&path, dimension)?);
            raw.values.insert(parameter, Written { place: Place::whole(file), value });
            continue;
        }
        let text = read_text(&path, SETTINGS_BYTES_MAX).map_err(failed(&path))?;
        if *parameter == "mix" {
            raw.mix_place = Some(Place::whole(&file));
            for (line, row) in meaningful_lines(&text) {
                let at = Place::line(&file, line);
                let Some((op, share)) = row.split_once(':') else {
                    let problem = ValueProblem::new(row, "operation:percent, such as `lookup:14`");
                    return Err(FstressError::BadValue { place: at, key: "mix".to_owned(), problem });
                };
                raw.mix.push((at, op.trim().to_owned(), share.trim().to_owned()));
            }
            continue;
        }
        if *parameter == "chains" {
            for (line, row) in meaningful_lines(&text) {
                let at = Place::line(&file, line);
                let Some((chain, share)) = row.split_once(':') else {
                    let problem = ValueProblem::new(row, "chain:percent, such as `lookup-read:20`");
                    return Err(FstressError::BadValue { place: at, key: "chains".to_owned(), problem });
                };
                raw.chains.push((at, chain.trim().to_owned(), share.trim().to_owned()));
            }
            continue;
        }
        let mut lines = meaningful_lines(&text);
        let (line, value) = lines.next().unwrap_or((1, ""));
        if let Some((line, extra)) = lines.next() {
            let problem = ValueProblem::new(extra, "one value and no more");
            return Err(FstressError::BadValue { place: Place::line(file, line), key: name, problem });
        }
        let written = Written { place: Place::line(file, line), value: Value::Text(value.to_owned()) };
        raw.values.insert(parameter, written);
    }
    let name = folder
        .canonicalize()
        .ok()
        .and_then(|path| path.file_name().map(|n| n.to_string_lossy().into_owned()));
    checked(raw, name.unwrap_or_else(|| folder.display().to_string()))
}

fn file_stem(file: &str) -> String {
    Path::new(file).file_stem().map_or_else(|| file.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

fn checked(mut raw: Raw, name: String) -> Result<Workload, FstressError> {
    let chains = chains(&raw)?;
    let mix = mix(&raw, &chains)?;
    let file_size_missing = !raw.values.contains_key("sizes.file");
    let places: BTreeMap<_, _> =
        raw.values.iter().map(|(key, written)| (*key, written.place.clone())).collect();
    let whole = raw.whole.clone();

    let counts = |raw: &mut Raw, key, default| distribution(raw, key, Dimension::Count, default);
    let tree = Tree {
        files_per_directory: counts(&mut raw, "tree.files_per_directory", 30.0)?,
        directories_per_directory: counts(&mut raw, "tree.directories_per_directory", 3.0)?,
        symlinks_per_directory: counts(&mut raw, "tree.symlinks_per_directory", 0.0)?,
        depth_max: value(&mut raw, "tree.depth_max", 4, |text| {
            text.parse().map_err(|_| ValueProblem::new(text, "a whole number from 0 to 65535"))
        })?,
    };
    let weights = |raw: &mut Raw, key| distribution(raw, key, Dimension::Weight, 1.0);
    let popularity = Popularity {
        file: weights(&mut raw, "popularity.file")?,
        directory: weights(&mut raw, "popularity.directory")?,
        symlink: weights(&mut raw, "popularity.symlink")?,
    };
    let bytes = |raw: &mut Raw, key| distribution(raw, key, Dimension::Bytes, 8192.0);
    let read_missing = !raw.values.contains_key("sizes.read");
    let write_missing = !raw.values.contains_key("sizes.write");
    let sizes = Sizes {
        file: bytes(&mut raw, "sizes.file")?,
        read: bytes(&mut raw, "sizes.read")?,
        write: bytes(&mut raw, "sizes.write")?,
    };
    let access = Access {
        read: value(&mut raw, "access.read", super::ReadAccess::Sequential, str::parse)?,
        write: value(&mut raw, "access.write", super::WriteAccess::Sequential, str::parse)?,
        write_stability: value(
            &mut raw,
            "access.write_stability",
            super::WriteStability::Unstable,
            str::parse,
        )?,
        setattr: value(&mut raw, "access.setattr", super::SetattrUse::Attributes, str::parse)?,
        append_bytes_max: value(&mut raw, "access.append_max", None, |text| {
            parse_quantity(text, Dimension::Bytes).map(|bytes| Some(bytes.round() as u64))
        })?,
    };
    let scale = Scale {
        files_per_op: value(&mut raw, "scale.files_per_op", FilesPerOp(10.0), |text| {
            parse_number(text).map(FilesPerOp).ok_or_else(|| ValueProblem::new(text, "a number of 0 or more"))
        })?,
        files_min: value(&mut raw, "scale.files_min", 100, |text| {
            text.parse().map_err(|_| ValueProblem::new(text, "a whole number of 0 or more"))
        })?,
    };
    let name = value(&mut raw, "name", name, |text| Ok(text.to_owned()))?;
    let about = value(&mut raw, "about", String::new(), |text| Ok(text.to_owned()))?;
    let workload = Workload { name, about, tree, popularity, sizes, access, mix, chains, scale };

    let missing = |key, why: &str| FstressError::Missing { place: whole.clone(), key, why: why.to_owned() };
    if workload.needs_files() && file_size_missing {
        return Err(missing("sizes.file", "the mix asks for files"));
    }
    if workload.has(OpKind::Read) && read_missing {
        return Err(missing("sizes.read", "the mix has reads"));
    }
    if workload.has(OpKind::Write) && write_missing {
        return Err(missing("sizes.write", "the mix has writes"));
    }
    check_together(&workload, |key, problem| {
        let place = places.get(key).cloned().unwrap_or_else(|| whole.clone());
        FstressError::BadValue { place, key: key.to_owned(), problem }
    })?;
    Ok(workload)
}

/// What no parameter can tell by itself: whether the mix can be served by the file set.
fn check_together(
    workload: &Workload,
    bad: impl Fn(&'static str, ValueProblem) -> FstressError,
) -> Result<(), FstressError> {
    let above_zero = |key, of: &Distribution, why: &str| {
        if of.mean() > 0.0 {
            Ok(())
        } else {
            Err(bad(key, ValueProblem::new(of, format_args!("something above 0, as {why}"))))
        }
    };
    let mix = &workload.mix;
    if mix.has(OpKind::Readlink) && !mix.has(OpKind::Symlink) {
        above_zero(
            "tree.symlinks_per_directory",
            &workload.tree.symlinks_per_directory,
            "the mix has readlink",
        )?;
    }
    if workload.has(OpKind::Read) {
        above_zero("sizes.read", &workload.sizes.read, "the mix has reads")?;
    }
    if workload.has(OpKind::Write) {
        above_zero("sizes.write", &workload.sizes.write, "the mix has writes")?;
    }
    if workload.needs_files() {
        above_zero("popularity.file", &workload.popularity.file, "no file could ever be chosen")?;
        above_zero(
            "popularity.directory",
            &workload.popularity.directory,
            "no directory could ever be chosen",
        )?;
        above_zero("tree.files_per_directory", &workload.tree.files_per_directory, "the mix asks for files")?;
        if workload.scale.files_min == 0 && workload.scale.files_per_op.0 == 0.0 {
            return Err(bad(
                "scale.files_min",
                ValueProblem::new(0, "at least 1, or files_per_op above 0, as the mix asks for files"),
            ));
        }
    }
    if workload.access.append_bytes_max == Some(0) {
        return Err(bad("access.append_max", ValueProblem::new(0, "a size above 0, or no such line")));
    }
    Ok(())
}

/// The chains as written.
fn chains(raw: &Raw) -> Result<Vec<Chain>, FstressError> {
    let mut chains: Vec<Chain> = Vec::new();
    for (place, name, share) in &raw.chains {
        let bad = |problem| FstressError::BadValue { place: place.clone(), key: name.clone(), problem };
        let share = parse_number(share.trim())
            .ok_or_else(|| bad(ValueProblem::new(share, "a percentage of 0 or more")))?;
        let chain = Chain::new(name, share).map_err(bad)?;
        if chains.iter().any(|known| known.steps() == chain.steps()) {
            return Err(bad(ValueProblem::new(name, "each chain once")));
        }
        if chains.len() == CHAINS_MAX {
            return Err(bad(ValueProblem::new(name, format_args!("{CHAINS_MAX} chains at most"))));
        }
        chains.push(chain);
    }
    Ok(chains)
}

fn mix(raw: &Raw, chains: &[Chain]) -> Result<Mix, FstressError> {
    // Chains can be all that is offered.
    if raw.mix.is_empty() && chains.iter().any(|chain| chain.weight() > 0.0) {
        return Ok(Mix::none());
    }
    let Some(mix_place) = &raw.mix_place else {
        let why = "it says which operations to send, such as `lookup` with 14 percent".to_owned();
        return Err(FstressError::Missing { place: raw.whole.clone(), key: "mix", why });
    };
    let mut rows = Vec::new();
    for (place, name, share) in &raw.mix {
        let Some(op) = OpKind::from_name(name) else {
            let known = OpKind::ALL.iter().map(|op| op.name()).collect();
            return Err(unknown(place.clone(), "operation", name, known));
        };
        let bad = |problem| FstressError::BadValue { place: place.clone(), key: name.clone(), problem };
        let share =
            parse_number(share).ok_or_else(|| bad(ValueProblem::new(share, "a percentage of 0 or more")))?;
        if rows.iter().any(|(known, _)| *known == op) {
            return Err(bad(ValueProblem::new(name, "each operation once")));
        }
        rows.push((op, share));
    }
    Mix::new(rows).map_err(|problem| FstressError::BadValue {
        place: mix_place.clone(),
        key: "mix".to_owned(),
        problem,
    })
}

fn distribution(
    raw: &mut Raw,
    key: &'static str,
    dimension: Dimension,
    default: f64,
) -> Result<Distribution, FstressError> {
    match raw.values.remove(key) {
        None => Ok(Distribution::constant(default, dimension)),
        Some(Written { value: Value::Histogram(distribution), .. }) => Ok(distribution),
        Some(Written { place, value: Value::Text(text) }) => Distribution::parse(&text, dimension)
            .map_err(|problem| FstressError::BadValue { place, key: key.to_owned(), problem }),
    }
}

fn value<T>(
    raw: &mut Raw,
    key: &'static str,
    default: T,
    parse: impl Fn(&str) -> Result<T, ValueProblem>,
) -> Result<T, FstressError> {
    match raw.values.remove(key) {
        Some(Written { place, value: Value::Text(text) }) => parse(text.trim())
            .map_err(|problem| FstressError::BadValue { place, key: key.to_owned(), problem }),
        _ => Ok(default),
    }
}
