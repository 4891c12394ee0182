//! What a rank measured by itself, in a file beside those of the others.
//!
//! ```text
//! point,latency_ns_max,samples        one line for each bucket in use
//! ```
//!
//! Always holds: the buckets are those of the record, so that those of all ranks add up to it.

use std::fs::{File, create_dir_all};
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;
use measure::LatencyHistogram;

/// Begins `rank-N.csv`, and writes a load point to it with each call.
///
/// # Errors
/// When the file cannot be made.
pub fn written_to(
    folder: &Path,
    rank: u32,
) -> anyhow::Result<impl FnMut(&LatencyHistogram) -> io::Result<()> + Send + 'static> {
    let path = folder.join(format!("rank-{rank}.csv"));
    let begun = create_dir_all(folder).and_then(|()| File::create(&path)).and_then(|mut file| {
        writeln!(file, "point,latency_ns_max,samples")?;
        Ok(file)
    });
    let mut file = begun.with_context(|| format!("--histograms-to: cannot make {}", path.display()))?;
    let mut point = 0;
    Ok(move |own: &LatencyHistogram| {
        point += 1;
        let lines = own.buckets().into_iter().map(|(ns, samples)| format!("{point},{ns},{samples}\n"));
        file.write_all(lines.collect::<String>().as_bytes())
    })
}
