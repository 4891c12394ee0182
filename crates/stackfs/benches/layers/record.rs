//! A run record for each layer and round, so that `crumb report` draws them and `crumb compare` holds them side by side.

use std::fs;
use std::path::Path;

use jiff::Timestamp;
use measure::{Environment, RECORD_SCHEMA, RunId, RunRecord, SeriesPlace, Verdict};

use crate::Layer;
use crate::rows::Row;

/// Writes `DIRECTORY/LAYER-ROUND.json` for each layer and round; a row is a metric.
pub fn write(
    directory: &Path,
    started: Timestamp,
    rows: &[Row],
    layers: &[Layer],
    seconds: &[Vec<Vec<f64>>],
) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    let id = |round: usize, layer: usize| RunId::new("layers", started, (round << 8 | layer) as u16);
    let rounds = seconds.iter().flatten().map(Vec::len).max().unwrap_or(0);
    for (round, (at, layer)) in
        (0..rounds).flat_map(|round| layers.iter().enumerate().map(move |layer| (round, layer)))
    {
        let metrics = rows.iter().zip(seconds).filter_map(|(row, figures)| {
            figures[at].get(round).map(|wall_s| (row.metric.to_owned(), row.value(*wall_s)))
        });
        let metrics = metrics.collect();
        // As `main` goes: a round begins one layer later than the round before.
        let place = (at + layers.len() - round % layers.len()) % layers.len();
        let turn = (round * layers.len() + place) as u32 + 1;
        let side = char::from(b'A' + at as u8).to_string();
        let record = RunRecord {
            schema: RECORD_SCHEMA,
            id: id(round, at),
            benchmark: "layers".to_owned(),
            label: layer.name.clone(),
            target: layer.directory.display().to_string(),
            started,
            ended: Timestamp::now(),
            command: std::env::args().collect(),
            config: serde_json::Value::Null,
            environment: Environment::capture(env!("CARGO_PKG_VERSION"), Some(&layer.directory)),
            seed: 0,
            complete: true,
            points: Vec::new(),
            phases: Vec::new(),
            curves: Vec::new(),
            series: Some(SeriesPlace { of: id(0, 0), side, turn }),
            metrics,
            annotations: Vec::new(),
            not_seen: Default::default(),
            headline: Vec::new(),
            declarations: Vec::new(),
            verdict: Verdict::valid(),
        };
        fs::write(directory.join(format!("{}-{}.json", layer.name, round + 1)), record.to_json())?;
    }
    Ok(())
}
