//! `docs/record.md` against what is really written.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

/// Names that are fields of the schema: all but those a user, a peer or a benchmark made.
fn fields(value: &Value, made_up: bool, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if !made_up {
                    found.insert(name.clone());
                }
                if name != "config" {
                    fields(value, ["ops", "errors", "metrics", "counters"].contains(&name.as_str()), found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, made_up, found)),
        _ => {}
    }
}

#[test]
fn every_field_of_a_record_is_described_on_its_page() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/record.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut found = BTreeSet::new();
    let others = [crate::sample::dirscale_run("curves", true), crate::sample::postmark_series(1.0).remove(0)];
    for record in crate::sample::two_runs().into_iter().chain(others) {
        fields(&serde_json::from_str(&record.to_json()).unwrap(), false, &mut found);
    }
    let missing: Vec<_> = found.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/record.md does not describe {missing:?}");
    assert!(found.len() > 50, "only {} fields were looked at", found.len());
}
