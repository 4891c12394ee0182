//! Conversions by the program that shows the directory, while other programs use it.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use measure::proc::MountInfo;
use stackfs::convert::{ConvertError, Converted, Goal, Plan, Progress};

use crate::exit::BadUsage;
use crate::verbs::mount::{convert_through, planned_through};

/// Converts a directory by its path in a mount.
pub(super) fn convert(
    directory: &Path,
    goal: Goal,
    show: &mut dyn FnMut(Progress),
    stop: &AtomicBool,
) -> anyhow::Result<Converted> {
    refuse_flat(directory, goal)?;
    let (mountpoint, place) = shown(directory)?;
    convert_through(&mountpoint, &place, goal, show, stop)
}

/// Asks what would be done with a directory by its path in a mount.
pub(super) fn planned(directory: &Path, goal: Goal) -> anyhow::Result<Plan> {
    refuse_flat(directory, goal)?;
    let (mountpoint, place) = shown(directory)?;
    planned_through(&mountpoint, &place, goal)
}

fn refuse_flat(directory: &Path, goal: Goal) -> anyhow::Result<()> {
    if goal == Goal::Managed(Some(files::Layout::Flat)) {
        let wrong = ConvertError::FlatLayout { path: directory.to_owned() };
        return Err(anyhow::Error::new(wrong).context(BadUsage));
    }
    Ok(())
}

/// The mount that shows a directory, and the directory's path in it.
fn shown(directory: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let bare: PathBuf = directory.components().collect();
    let cannot_open = |source| ConvertError::Open { path: directory.to_owned(), source };
    let real = match directory.canonicalize() {
        Err(missing)
            if missing.kind() == std::io::ErrorKind::NotFound && bare.symlink_metadata().is_err() =>
        {
            anyhow::bail!(
                "{}: cannot open the directory: {missing}; with --online, name an existing one by its path in the mount",
                directory.display()
            );
        }
        real => real.map_err(cannot_open)?,
    };
    if std::fs::symlink_metadata(&bare).is_ok_and(|of| of.is_symlink()) {
        return Err(ConvertError::Link { path: directory.to_owned(), leads_to: real }.into());
    }
    let mounts = MountInfo::all().map_err(cannot_open)?;
    let shown =
        MountInfo::governing(&real, &mounts).filter(|mount| mount.kind == stackfs::mounts::MOUNT_TYPE);
    let Some(mount) = shown else {
        anyhow::bail!(
            "{0}: is in no `crumb mount`, so no program can convert it online; name it by its path in the mount, or run \
             this without --online while it is not mounted",
            directory.display()
        );
    };
    let place = real.strip_prefix(&mount.point)?.to_owned();
    Ok((mount.point.clone(), place))
}
