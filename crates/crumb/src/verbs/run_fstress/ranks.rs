//! What the verbs do alike when they run as one of several ranks.

use fstress::ensemble::Ensemble;

use crate::exit::BadUsage;
use crate::layout::counted;
use crate::series::SeriesArgs;

const HOSTS_NAMED: usize = 4;

/// A run that has come to an end on one rank has done so on all; the number of rounds must not hang on a rank's clock.
///
/// # Errors
/// With `--until-ci` and several ranks.
pub(in crate::verbs) fn refuse_until_ci(ensemble: &Ensemble, series: &SeriesArgs) -> anyhow::Result<()> {
    if ensemble.is_joined() && series.until_ci.is_some() {
        let wrong =
            anyhow::anyhow!("--until-ci: not with several ranks; give the number of rounds with --repeat");
        return Err(wrong.context(BadUsage));
    }
    Ok(())
}

/// What came of something that each rank does for itself, when it did so on all of them.
///
/// # Errors
/// What went wrong here, or else on another rank.
pub(in crate::verbs) fn on_all<T>(
    ensemble: &mut Ensemble,
    step: &str,
    done: anyhow::Result<T>,
) -> anyhow::Result<T> {
    let together = ensemble.all_did(step, done.as_ref().err().map(|error| format!("{error:#}")));
    // Its own error says more than what the others are told of it.
    let done = done?;
    together?;
    Ok(done)
}

/// This rank's own name for what each rank has for itself.
pub(in crate::verbs) fn own_name(ensemble: &Ensemble, name: String) -> String {
    if ensemble.is_joined() { format!("{name}-r{}", ensemble.rank()) } else { name }
}

/// Who they are, for the user.
pub(in crate::verbs) fn announce(ensemble: &Ensemble) {
    if ensemble.is_joined() {
        eprintln!(
            "by {} ranks on {}; rank 0 shows its own part",
            ensemble.ranks(),
            distinct(ensemble.hosts())
        );
    }
}

/// A record's configuration with who they were.
pub(in crate::verbs) fn with_hosts(mut json: serde_json::Value, hosts: &[String]) -> serde_json::Value {
    if !hosts.is_empty() {
        json["ranks"] = hosts.len().into();
        json["hosts"] = hosts.into();
    }
    json
}

/// `a, b and 3 more hosts`.
fn distinct(hosts: &[String]) -> String {
    let mut hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let named = hosts.len().min(HOSTS_NAMED);
    match hosts.len() - named {
        0 => hosts.join(", "),
        more => format!("{} and {}", hosts[..named].join(", "), counted(more, "more host", "more hosts")),
    }
}
