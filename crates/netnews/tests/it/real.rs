//! Real articles, for tests that `make test-real` runs. They are not in the repository: they carry people's names.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The 10,000 articles of 1993 unpacked into `into`, one file each.
pub fn usenet_1993(into: &Path) -> PathBuf {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/usenet-1993.tar.zst");
    assert!(archive.exists(), "{} is not there; `make test` needs no real articles", archive.display());
    let unpacked = into.join("usenet-1993");
    std::fs::create_dir(&unpacked).expect("a new directory");
    let script = r#"zstd -dc --long=27 "$0" | tar -x -C "$1""#;
    let status = Command::new("sh").arg("-c").arg(script).arg(&archive).arg(&unpacked).status();
    assert!(status.is_ok_and(|status| status.success()), "zstd and tar cannot unpack {}", archive.display());
    unpacked
}
