//! Directories converted by the mount's own daemon while programs use them: no program gets another answer than from a
//! plain directory.

mod refused;
mod strangers;
mod working;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stackfs::convert::{ConvertError, Converted, Goal};
use stackfs::online::Online;

/// Converts as root or as the test's own user, and waits for the end.
pub fn convert(online: &Online, place: &str, goal: Goal) -> Result<Converted, Arc<ConvertError>> {
    let me = rustix::process::geteuid().as_raw();
    let run = online.begin(Path::new(place), goal, me).map_err(Arc::new)?;
    run.wait(Duration::from_secs(600)).expect("it ends")
}
