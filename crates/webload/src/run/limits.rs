//! What no run or origin can be asked for, found before anything is allocated or started.

use std::num::NonZeroUsize;

use measure::ProcessWatch;

use crate::plan::Plan;
use crate::plan::object::SIZE_BYTES_MAX;
use crate::plan::object_set::NUMBERS_MAX;
use crate::{ObjectSet, WebloadConfig, WebloadError};

/// Most generators of a run, or loops of an origin. More is more than machines have cores for, and each generator takes memory for
/// its histograms: 100,000 of them took 13 GB.
pub const THREADS_MAX: usize = 256;

impl WebloadConfig {
    /// Finds out whether the run can be what is asked for.
    ///
    /// # Errors
    /// [`WebloadError::Asked`] with the first setting that cannot be.
    pub fn check(&self) -> Result<(), WebloadError> {
        check_threads("threads", self.threads)?;
        match &self.plan {
            Plan::PolyMix(mix) if mix.working_set_bytes == Some(0) => {
                Err(asked("working set", "0 bytes hold no object; leave it out for the published share"))
            }
            Plan::Objects(set) => set.check(),
            _ => Ok(()),
        }?;
        match self.watch {
            Some(process) if !ProcessWatch::start(&[process]).is_there() => {
                Err(asked("watch", &format!("no process {process} on this machine")))
            }
            _ => Ok(()),
        }
    }
}

impl ObjectSet {
    fn check(&self) -> Result<(), WebloadError> {
        if self.count.get() > NUMBERS_MAX {
            return Err(asked(
                "objects",
                &format!("{} are more than the {NUMBERS_MAX} there can be", self.count),
            ));
        }
        if !(1..=SIZE_BYTES_MAX).contains(&self.mean_bytes) {
            let text = format!("a mean of {} bytes is not between 1 and {SIZE_BYTES_MAX}", self.mean_bytes);
            return Err(asked("object size", &text));
        }
        Ok(())
    }
}

/// Refuses what would end the machine before it measures anything.
pub(crate) fn check_threads(what: &'static str, threads: NonZeroUsize) -> Result<(), WebloadError> {
    if threads.get() > THREADS_MAX {
        return Err(asked(
            what,
            &format!("{threads} are more than {THREADS_MAX}: ask for one a core at most"),
        ));
    }
    Ok(())
}

fn asked(what: &'static str, why: &str) -> WebloadError {
    WebloadError::Asked { what, why: why.to_owned() }
}
