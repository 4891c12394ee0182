//! A run record for each layer, so that `crumb report` draws them and `crumb compare` holds them side by side.

use std::fs;
use std::path::Path;

use jiff::Timestamp;
use measure::{Environment, Phase, RECORD_SCHEMA, RunId, RunRecord, Verdict};

use crate::Layer;
use crate::rows::Row;

/// Writes `DIRECTORY/LAYER.json` for each layer; a row is a phase, a round a pass of it.
pub fn write(
    directory: &Path,
    started: Timestamp,
    rows: &[Row],
    layers: &[Layer],
    seconds: &[Vec<Vec<f64>>],
) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    for (at, layer) in layers.iter().enumerate() {
        let mut phases = Vec::new();
        for (row, figures) in rows.iter().zip(seconds) {
            for (pass, wall_s) in (1..).zip(&figures[at]) {
                phases.push(phase(row, pass, *wall_s));
            }
        }
        let record = RunRecord {
            schema: RECORD_SCHEMA,
            id: RunId::new("layers", started, at as u16),
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
            phases,
            curves: Vec::new(),
            series: None,
            metrics: Default::default(),
            verdict: Verdict::valid(),
        };
        fs::write(directory.join(format!("{}.json", layer.name)), record.to_json())?;
    }
    Ok(())
}

fn phase(row: &Row, pass: u32, wall_s: f64) -> Phase {
    let items = row.items();
    Phase {
        name: row.title.clone(),
        pass,
        wall_s,
        // The work is done by the kernel and a layer's daemon: this process's own time says nothing.
        user_s: 0.0,
        sys_s: 0.0,
        items,
        bytes: 0,
        items_per_sec: items as f64 / wall_s,
        counters: Default::default(),
    }
}
