//! `crumb manage --online` and `unmanage --online` as they are typed, and kill -9 of the mount's program meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use testkit::need;

use crate::binary::{Bench, assert_fits, is_one_error};

/// Whether nothing can be mounted here; the test is then listed as skipped.
fn cannot_mount() -> bool {
    !need::fuse()
}

/// A tree with a group, and a place to show it; unmounted at the end whatever happens.
struct Place(Bench);

impl Place {
    fn with(articles: u64) -> Self {
        let bench = Bench::in_memory();
        fs::create_dir_all(bench.path("spool/control/345")).unwrap();
        fs::create_dir(bench.path("at")).unwrap();
        for number in 0..articles {
            fs::write(bench.path("spool/control").join((100_000 + number).to_string()), number.to_string())
                .unwrap();
        }
        Self(bench)
    }

    fn mount(&self) {
        self.0.fine(&["mount", "spool", "at", "--daemon", "--no-store", "--pid-file", "pid"]);
    }

    fn daemon(&self) -> Pid {
        Pid::from_raw(self.0.read("pid").trim().parse().unwrap()).unwrap()
    }

    fn start(&self, args: &[&str]) -> Child {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("crumb"));
        command.args(args).current_dir(self.0.directory()).env("CRUMB_STORE", self.0.path("runs.db"));
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = stackfs::mounts::unmount(&self.0.path("at"), true);
    }
}

/// Waits for something to be so while the child runs; false when the child ended before.
fn until(child: &mut Child, so: impl Fn() -> bool) -> bool {
    while !so() {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

#[test]
fn a_group_is_converted_while_it_is_mounted_by_its_path_there() {
    if cannot_mount() {
        return;
    }
    let place = Place::with(300);
    let bench = &place.0;
    let outside = bench.fails(1, &["manage", "--online", "spool/control"]);
    assert!(outside.contains("is in no `crumb mount`") && is_one_error(&outside), "{outside}");
    place.mount();
    let done = bench.fine(&["manage", "--online", "at/control"]);
    assert_fits(&done);
    assert!(done.contains("managed in layout 345: 301 entries moved"), "{done}");
    assert!(bench.path("spool/control/000/100005").is_file());
    assert_eq!(bench.read("at/control/100005"), "5");
    assert!(bench.fine(&["manage", "--online", "at/control"]).contains("managed in layout 345 already"));
    let other = bench.fails(1, &["manage", "--online", "--layout", "456", "at/control"]);
    assert!(other.contains("crumb unmanage") && is_one_error(&other), "{other}");
    assert!(bench.fails(1, &["manage", "at/control"]).contains("crumb unmount"), "offline it is refused");
    assert!(
        bench.fails(1, &["unmanage", "spool/control"]).contains("crumb unmount"),
        "offline it is refused"
    );
    let planned = bench.fine(&["unmanage", "--online", "--dry-run", "at/control"]);
    let planned = planned.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        planned.contains("managed in layout 345 with") && planned.ends_with("would be flat"),
        "{planned}"
    );
    let other = bench.fails(1, &["manage", "--online", "--dry-run", "--layout", "456", "at/control"]);
    assert!(other.contains("crumb unmanage") && is_one_error(&other), "{other}");
    let done = bench.fine(&["unmanage", "--online", "at/control"]);
    assert!(done.contains("flat: 301 entries moved"), "{done}");
    assert!(bench.path("spool/control/100005").is_file());
    // Symptom: --dry-run was refused with --online, and nothing else could say what it would do.
    let planned = bench.fine(&["manage", "--online", "--dry-run", "at/control"]);
    assert!(planned.contains("flat with 301 entries; would be managed in layout 345"), "{planned}");
    assert!(bench.path("spool/control/100005").is_file(), "it was only asked");
    // The program that serves the mount chooses the layout as a conversion offline does.
    fs::create_dir(bench.path("at/mail")).unwrap();
    bench.write("at/mail/1.host", "");
    let chosen = "managed in layout hash:2 (its names are not numbers)";
    let planned = bench.fine(&["manage", "--online", "--dry-run", "at/mail"]);
    let planned = planned.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(planned.contains(&format!("1 entry; would be {chosen}, in about 1 subdirectory")), "{planned}");
    let said = bench.crumb(&["manage", "--online", "at/mail"]);
    assert!(said.out.contains(&format!("{chosen}: 1 entry moved, 1")), "{}", said.out);
    assert!(said.err.contains("`crumb unmanage --online at/mail` reverts"), "{}", said.err);
    let flat = ["manage", "--online", "--dry-run", "--layout", "flat", "at/control"];
    assert!(bench.fails(2, &flat).contains("unmanage"));
    let outside = bench.fails(1, &["unmanage", "--online", "--dry-run", "spool/control"]);
    assert!(outside.contains("is in no `crumb mount`"), "{outside}");
    assert!(bench.fails(2, &["manage", "--online", "--layout", "flat", "at/control"]).contains("unmanage"));
    symlink("control", bench.path("spool/link")).unwrap();
    assert!(bench.fails(1, &["manage", "--online", "at/link"]).contains("symbolic link"));
    let missing = bench.fails(1, &["manage", "--online", "at/none"]);
    assert!(missing.contains("No such file") && missing.contains("by its path in the mount"), "{missing}");
    assert!(is_one_error(&missing), "{missing}");
    // One that is refused does not keep the next from its turn; names of any sort pass.
    let odd = bench.path("spool/odd name: 50%");
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join("7"), "").unwrap();
    bench.fails(1, &["manage", "--online", "at/none", "at/odd name: 50%"]);
    assert!(odd.join("000/7").is_file());
    bench.fine(&["unmount", "at"]);
    bench.fine(&["check", "spool"]);
}

#[test]
fn ctrl_c_stops_it_half_way_and_a_client_that_is_killed_leaves_it_to_go_on() {
    if cannot_mount() {
        return;
    }
    let place = Place::with(20_000);
    let bench = &place.0;
    place.mount();
    let staging = bench.path("spool/control/.crumb-converting-345");
    for verb in ["manage", "unmanage"] {
        let mut child = place.start(&["--quiet", verb, "--online", "at/control"]);
        assert!(until(&mut child, || staging.exists()), "{verb} ended before it began");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{told}");
        assert!(told.contains(&format!("`crumb {verb} --online at/control` continues from there")), "{told}");
        assert!(staging.exists(), "{verb}: half way");
        assert_eq!(fs::read_dir(bench.path("at/control")).unwrap().count(), 20_001, "all of it shows");
        let mut child = place.start(&["--quiet", verb, "--online", "at/control"]);
        // Whether it has begun again or not, it is carried through.
        std::thread::park_timeout(Duration::from_millis(50));
        child.kill().unwrap();
        child.wait().unwrap();
        let done = bench.fine(&[verb, "--online", "at/control"]);
        assert!(done.contains(if verb == "manage" { "managed in layout 345" } else { "flat" }), "{done}");
        assert!(!staging.exists());
    }
    bench.fine(&["unmount", "at"]);
    bench.fine(&["check", "spool"]);
}

/// Operations that were answered, and what must be there since.
#[derive(Default)]
struct Acknowledged {
    there: BTreeMap<String, String>,
    gone: Vec<String>,
}

/// Creates, renames and removes files of its own through the mount until that does not answer any more.
fn work(at: &Path, worker: u64, next: &AtomicU64, acknowledged: &Mutex<Acknowledged>, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let name = if number.is_multiple_of(5) {
            format!("w{worker}-{number}")
        } else {
            format!("{worker}{number:06}")
        };
        let content = format!("of worker {worker}, number {number}");
        if fs::write(at.join(&name), &content).is_err() {
            return;
        }
        let (to, last) = (format!("moved-{name}"), number % 4);
        if last == 1 {
            if fs::rename(at.join(&name), at.join(&to)).is_err() {
                // One of the two; nobody was told.
                return;
            }
            let mut acknowledged = acknowledged.lock().unwrap();
            acknowledged.there.insert(to, content);
            acknowledged.gone.push(name);
            continue;
        }
        if last == 2 {
            if fs::remove_file(at.join(&name)).is_err() {
                return;
            }
            acknowledged.lock().unwrap().gone.push(name);
            continue;
        }
        acknowledged.lock().unwrap().there.insert(name, content);
    }
}

/// Every file below by its name: its content, and how often it is there.
fn files_below(path: &Path, found: &mut BTreeMap<String, (String, u32)>) {
    for entry in fs::read_dir(path).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            files_below(&entry.path(), found);
        } else if name != ".times" {
            let content = fs::read_to_string(entry.path()).unwrap();
            found.entry(name).or_insert((content, 0)).1 += 1;
        }
    }
}

fn hold(bench: &Bench, acknowledged: &Acknowledged, when: &str) {
    let mut found = BTreeMap::new();
    files_below(&bench.path("spool/control"), &mut found);
    for (name, content) in &acknowledged.there {
        assert_eq!(found.get(name), Some(&(content.clone(), 1)), "{when}: {name} is lost or there twice");
    }
    let back: Vec<&String> = acknowledged.gone.iter().filter(|name| found.contains_key(*name)).collect();
    assert!(back.is_empty(), "{when}: {back:?} had been removed");
    assert!(found.values().all(|(_, times)| *times == 1), "{when}: a name is there twice");
}

const KILLS: u64 = 30;

#[test]
fn killed_by_sigkill_thirty_times_while_it_converts_every_file_that_was_acknowledged_is_there() {
    if cannot_mount() {
        return;
    }
    let place = Place::with(3000);
    let bench = &place.0;
    let staging = bench.path("spool/control/.crumb-converting-345");
    let (next, acknowledged) = (AtomicU64::new(0), Mutex::new(Acknowledged::default()));
    for number in 0..3000u64 {
        let name = (100_000 + number).to_string();
        acknowledged.lock().unwrap().there.insert(name, number.to_string());
    }
    let (mut kills, mut half_way, mut tries) = (0, 0, 0u64);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut is_managed = false;
    while kills < KILLS {
        tries += 1;
        assert!(tries < 10 * KILLS, "{kills} kills");
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        place.mount();
        let verb = if is_managed { "unmanage" } else { "manage" };
        let over = AtomicBool::new(false);
        let killed = std::thread::scope(|scope| {
            for worker in 0..2 {
                let (at, next, acknowledged, over) = (bench.path("at/control"), &next, &acknowledged, &over);
                scope.spawn(move || work(&at, worker, next, acknowledged, over));
            }
            let mut child = place.start(&["--quiet", verb, "--online", "at/control"]);
            let begun = until(&mut child, || staging.exists());
            let moment = Instant::now() + Duration::from_micros((random >> 20) % 60_000);
            until(&mut child, || Instant::now() >= moment);
            kill_process(place.daemon(), Signal::KILL).unwrap();
            over.store(true, Ordering::Relaxed);
            child.wait().unwrap();
            begun
        });
        kills += u64::from(killed);
        let acknowledged = acknowledged.lock().unwrap();
        hold(bench, &acknowledged, "killed");
        if !staging.exists() {
            is_managed =
                fs::metadata(bench.path("spool/control")).unwrap().permissions().mode() & 0o4000 != 0;
            continue;
        }
        half_way += 1;
        is_managed = finished(&place, random, verb);
        assert!(!staging.exists(), "kill {kills}");
        hold(bench, &acknowledged, "finished");
        bench.fine(&["check", "spool"]);
    }
    assert!(half_way > KILLS / 3, "only {half_way} of {kills} kills came in the middle");
}

/// Finishes what was left half way, by one of the ways there are; whether it is managed then.
fn finished(place: &Place, random: u64, verb: &str) -> bool {
    let bench = &place.0;
    match random >> 50 & 3 {
        0 => {
            // The mount whose program is dead is in nobody's way, but its table's line is.
            stackfs::mounts::unmount(&bench.path("at"), true).unwrap();
            bench.fine(&["manage", "spool/control"]);
            true
        }
        1 => {
            stackfs::mounts::unmount(&bench.path("at"), true).unwrap();
            bench.fine(&["check", "spool", "--repair"]);
            fs::metadata(bench.path("spool/control")).unwrap().permissions().mode() & 0o4000 != 0
        }
        2 => {
            place.mount();
            assert!(fs::read_dir(bench.path("at/control")).is_err(), "not shown before it is finished");
            bench.fine(&[verb, "--online", "at/control"]);
            bench.fine(&["unmount", "at"]);
            verb == "manage"
        }
        _ => {
            place.mount();
            bench.fine(&["unmanage", "--online", "at/control"]);
            bench.fine(&["unmount", "at"]);
            false
        }
    }
}

/// What puts a program into an ordinary user's place.
const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

#[test]
fn an_ordinary_user_cannot_have_roots_mount_convert_anything() {
    if cannot_mount() || need::program("setpriv", "util-linux").is_none() {
        return;
    }
    let place = Place::with(50);
    let bench = &place.0;
    fs::set_permissions(bench.directory(), fs::Permissions::from_mode(0o755)).unwrap();
    // His own directory, and somebody else's.
    fs::create_dir(bench.path("spool/his")).unwrap();
    std::os::unix::fs::chown(bench.path("spool/his"), Some(65534), Some(65534)).unwrap();
    place.mount();
    for path in ["at/control", "at/his"] {
        let mut command = Command::new(AS_NOBODY[0]);
        command.args(&AS_NOBODY[1..]).arg(env!("CARGO_BIN_EXE_crumb")).args(["manage", "--online", path]);
        let output = command.current_dir(bench.directory()).stdin(Stdio::null()).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        if told.contains("Permission denied (os error 13)") && output.status.code() != Some(1) {
            let _ = need::need::<()>(Err(format!("user nobody cannot run this program: {told}")));
            return;
        }
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("only root may") && is_one_error(&told), "{told}");
    }
    assert!(bench.path("spool/control/100005").is_file(), "nothing has moved");
}

/// Symptom: after `kill -9` of a mount's daemon, programs that used the mount waited for ever, and so did the daemon's end. Cause: the
/// daemon was sending the kernel a notice about a name, which waits for the lock of the directory, and that was held by a program that
/// waited for the daemon's answer. Fix: all names are dropped at once, which takes no lock. One kill in twelve hit it.
#[test]
fn killed_while_others_change_names_below_it_leaves_no_program_waiting() {
    if cannot_mount() {
        return;
    }
    let place = Place::with(10);
    let bench = &place.0;
    for kill in 0..20 {
        place.mount();
        let over = Arc::new(AtomicBool::new(false));
        let (ends, ended) = std::sync::mpsc::channel();
        // Not in a scope: those that wait for ever shall not keep the test from saying so.
        for worker in 0..3 {
            let (at, over, ends) = (bench.path("at/control"), Arc::clone(&over), ends.clone());
            std::thread::spawn(move || {
                let (made, renamed) =
                    (at.join(format!("made-{worker}")), at.join(format!("renamed-{worker}")));
                while !over.load(Ordering::Relaxed) {
                    let _ = fs::write(&made, "");
                    let _ = fs::rename(&made, &renamed);
                    let _ = fs::remove_file(&renamed);
                }
                let _ = ends.send(());
            });
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(250) {
            let below = bench.path("spool/control/below");
            fs::write(&below, "").unwrap();
            fs::remove_file(&below).unwrap();
        }
        kill_process(place.daemon(), Signal::KILL).unwrap();
        over.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            ended
                .recv_timeout(Duration::from_secs(30))
                .unwrap_or_else(|_| panic!("kill {kill}: a program waits"));
        }
    }
}
