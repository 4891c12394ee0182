//! From a [`Workload`] back to a file a person can read and edit.

use std::fmt::Write as _;

use super::Workload;
use super::distribution::{Dimension, quantity_text};

pub(super) fn toml(workload: &Workload) -> String {
    let Workload { name, about, tree, popularity, sizes, access, mix, chains, scale } = workload;
    let mut rows = String::new();
    for (op, written) in mix.as_written() {
        let used = format!("{:.2}", mix.share(*op) * 100.0);
        let row = format!("{} = {written}", op.name());
        // Writing to a String cannot fail.
        let _ = writeln!(rows, "{row:<24}# {used:>6}% of what is sent");
    }
    let chains = if chains.is_empty() {
        String::new()
    } else {
        let rows: String =
            chains.iter().map(|chain| format!("{} = {}\n", chain.name(), chain.weight())).collect();
        format!(
            "# Requests on one file, each sent when the one before was answered; how often, in the unit of the mix.\n\
             [chains]\n{rows}\n"
        )
    };
    let append_max = match access.append_bytes_max {
        Some(bytes) => format!("append_max = {}", quoted(&quantity_text(bytes as f64, Dimension::Bytes))),
        None => "# append_max = \"1GiB\"".to_owned(),
    };
    format!(
        r#"name = {name}
about = {about}

# Shape of the tree; each distribution is drawn once for every new directory.
[tree]
files_per_directory = {files_per_directory}
directories_per_directory = {directories_per_directory}
symlinks_per_directory = {symlinks_per_directory}
# Steps from the root down to the deepest directory.
depth_max = {depth_max}

# Weight of each new object; operations choose their targets by weight.
[popularity]
file = {file_popularity}
directory = {directory_popularity}
symlink = {symlink_popularity}

# Bytes of new files, and of single read and write requests.
[sizes]
file = {file_size}
read = {read_size}
write = {write_size}

[access]
# sequential (whole files, request by request) or random
read = {read}
# sequential, random or append
write = {write}
# unstable (a commit makes it safe), data-sync or file-sync
write_stability = {write_stability}
# attributes, or truncate (cut the file to nothing)
setattr = {setattr}
# Size at which an appended file starts again from its begin; without it files grow without end.
{append_max}

# Percent of the requests, normalised: they sum to {total}.
[mix]
{rows}
{chains}# Files for each request a second that is offered, and how many there are at least.
[scale]
files_per_op = {files_per_op}
files_min = {files_min}
"#,
        name = quoted(name),
        about = quoted(about),
        files_per_directory = quoted(&tree.files_per_directory.to_string()),
        directories_per_directory = quoted(&tree.directories_per_directory.to_string()),
        symlinks_per_directory = quoted(&tree.symlinks_per_directory.to_string()),
        depth_max = tree.depth_max,
        file_popularity = quoted(&popularity.file.to_string()),
        directory_popularity = quoted(&popularity.directory.to_string()),
        symlink_popularity = quoted(&popularity.symlink.to_string()),
        file_size = quoted(&sizes.file.to_string()),
        read_size = quoted(&sizes.read.to_string()),
        write_size = quoted(&sizes.write.to_string()),
        read = quoted(&access.read.to_string()),
        write = quoted(&access.write.to_string()),
        write_stability = quoted(&access.write_stability.to_string()),
        setattr = quoted(&access.setattr.to_string()),
        total = (mix.total_as_written() * 1e6).round() / 1e6,
        files_per_op = scale.files_per_op.files(),
        files_min = scale.files_min,
    )
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
