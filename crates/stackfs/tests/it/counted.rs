//! How many requests a program waits for at each operation, by the options of a mount. A request is two wake-ups, which is
//! most of what an operation costs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use crate::scene::{Scene, cannot_mount};
use stackfs::{Operation, StackOptions};

const COUNT: u64 = 20;

/// Requests that a program has waited for, by type.
fn waited_for(scene: &Scene) -> BTreeMap<&'static str, u64> {
    let census = scene.mount.as_ref().unwrap().census();
    let waited =
        |of: &Operation| !matches!(of, Operation::Forget | Operation::Release | Operation::Releasedir);
    let counted = census.operations.into_iter().filter(|(of, _)| waited(of));
    counted.map(|(of, counted)| (of.name(), counted.latency.count())).collect()
}

/// Requests of `work`, which does something `COUNT` times, for each time. Rounded: a listing or a directory may be asked for once.
fn each(scene: &Scene, work: impl FnOnce()) -> (u64, String) {
    let before = waited_for(scene);
    work();
    let mut new = waited_for(scene);
    for (name, count) in before {
        new.entry(name).and_modify(|all| *all -= count);
    }
    new.retain(|_, count| *count > 0);
    ((new.values().sum::<u64>() + COUNT / 2) / COUNT, format!("{new:?}"))
}

/// Requests for create + write + close, cold stat, warm stat, open + read + close the second time, and unlink.
fn requests(change: impl FnOnce(StackOptions) -> StackOptions) -> [(u64, String); 5] {
    let scene = Scene::with(change);
    fs::create_dir(scene.lower("dir")).unwrap();
    let (made, below) = (scene.at("dir"), scene.at("below"));
    fs::create_dir(scene.lower("below")).unwrap();
    (0..COUNT).for_each(|number| fs::write(scene.lower("below").join(number.to_string()), "text").unwrap());
    assert!(made.is_dir() && below.is_dir());
    let paths =
        |at: &std::path::Path| (0..COUNT).map(|number| at.join(number.to_string())).collect::<Vec<_>>();
    let (made, below) = (paths(&made), paths(&below));
    // The kernel asks once whether there are such things as FLUSH.
    fs::write(scene.at("first"), "text").unwrap();
    assert_eq!(fs::read_to_string(scene.at("first")).unwrap(), "text");
    let create = each(&scene, || {
        for path in &made {
            File::options().write(true).create_new(true).open(path).unwrap().write_all(b"text").unwrap();
        }
    });
    let stat = || below.iter().for_each(|path| assert_eq!(fs::metadata(path).unwrap().len(), 4));
    let (cold, warm) = (each(&scene, stat), each(&scene, stat));
    // Without the question for the size that fs::read begins with: reading has changed the time of access.
    let read = || {
        for path in &below {
            let mut text = [0; 8];
            assert_eq!(File::open(path).unwrap().read(&mut text).unwrap(), 4);
        }
    };
    read();
    let read = each(&scene, read);
    let unlink = each(&scene, || below.iter().for_each(|path| fs::remove_file(path).unwrap()));
    [create, cold, warm, read, unlink]
}

fn assert_requests(expected: [u64; 5], change: impl FnOnce(StackOptions) -> StackOptions) {
    let found = requests(change);
    let counts = found.each_ref().map(|(count, _)| *count);
    assert_eq!(counts, expected, "{found:#?}");
}

#[test]
fn an_operation_costs_as_many_requests_as_the_kernel_needs_and_options_save_some() {
    if cannot_mount() {
        return;
    }
    if !fs::exists("/sys/module/fuse").unwrap_or(false) || !rustix::process::geteuid().is_root() {
        return;
    }
    // Create: GETATTR of the directory, LOOKUP, CREATE, GETXATTR. Unlink: GETATTR, UNLINK.
    assert_requests([4, 1, 0, 1, 2], |options| options);
    let noxattr = |options: StackOptions| StackOptions { extended: false, access_lists: false, ..options };
    assert_requests([3, 1, 0, 1, 2], noxattr);
    // Only root may enter, and root may do everything.
    let alone = |options: StackOptions| StackOptions { allow_other: false, ..options };
    assert_requests([3, 1, 0, 1, 1], alone);
    assert_requests([2, 1, 0, 1, 1], |options| alone(noxattr(options)));
    let asked = |options: StackOptions| StackOptions { default_permissions: Some(true), ..alone(options) };
    assert_requests([4, 1, 0, 1, 2], asked);
    // Data passes through the daemon: WRITE.
    assert_requests([5, 1, 0, 0, 2], |options| StackOptions { no_open: true, ..options });
}

#[test]
fn the_lower_file_system_says_what_a_lone_user_may_do() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::with(|options| StackOptions { allow_other: false, ..options });
    let path = scene.at("program");
    fs::copy("/bin/true", &path).unwrap();
    let may = |wanted| rustix::fs::access(&path, wanted);
    use rustix::fs::Access;
    assert_eq!(may(Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK), Ok(()));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(may(Access::EXEC_OK), Err(rustix::io::Errno::ACCESS));
    assert!(std::process::Command::new(&path).status().is_err());
    if rustix::process::geteuid().is_root() {
        assert_eq!(may(Access::READ_OK | Access::WRITE_OK), Ok(()), "root may");
    }
    assert!(std::env::set_current_dir(scene.at("")).is_ok());
    std::env::set_current_dir("/").unwrap();
    // No other user comes in.
    use std::os::unix::process::CommandExt as _;
    fs::set_permissions(scene.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let script = format!("cat {}", path.display());
    let other = std::process::Command::new("/bin/sh").args(["-c", &script]).uid(12_345).gid(23_456).output();
    assert!(!other.unwrap().status.success());
}
