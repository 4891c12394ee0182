//! A file with our process id, gone when we are.

use std::path::Path;

use anyhow::Context as _;

/// A file with our process id, gone when we are.
pub struct PidFile<'a>(&'a Path);

impl<'a> PidFile<'a> {
    /// Writes it, in place of one that is there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(path: &'a Path) -> anyhow::Result<Self> {
        std::fs::write(path, format!("{}\n", std::process::id()))
            .with_context(|| format!("{}: cannot write the process id", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for PidFile<'_> {
    fn drop(&mut self) {
        // A daemon that was started meanwhile has written its own: that one stays.
        let ours = |text: String| text.trim() == std::process::id().to_string();
        if !std::fs::read_to_string(self.0).is_ok_and(ours) {
            return;
        }
        if let Err(error) = std::fs::remove_file(self.0) {
            tracing::warn!("{}: not removed: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_goes_with_its_process_and_that_of_another_stays() {
        let bench = tempfile::tempdir().unwrap();
        let path = bench.path().join("mount.pid");
        let ours = PidFile::write(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        drop(ours);
        assert!(!path.exists());
        let ours = PidFile::write(&path).unwrap();
        std::fs::write(&path, "1\n").unwrap();
        drop(ours);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n");
    }
}
