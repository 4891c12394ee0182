use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// A directory below a new one, which the caller keeps.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    let inner = outer.path().join("crumb");
    (outer, inner)
}

#[test]
fn a_mark_reaches_each_run_of_the_user_with_its_own_time_and_none_that_has_ended() {
    let (_outer, directory) = folder();
    let nowhere = directory.with_file_name("nowhere");
    let first = MarkListener::start(&directory, "run-a", || 4.25).unwrap();
    let second = MarkListener::start(&directory, "run-b", || 9.0).unwrap();
    let both = mark_all(&[nowhere, directory.clone()], " server stopped ").unwrap();
    let set = |run: &str, at_s| Marked { run: run.to_owned(), answer: MarkAnswer::Set(at_s) };
    assert_eq!(both, [set("run-a", 4.25), set("run-b", 9.0)]);
    assert_eq!(first.marks(), [Annotation { at_s: 4.25, text: "server stopped".to_owned() }]);
    drop(first);
    assert_eq!(mark_all(std::slice::from_ref(&directory), "later").unwrap(), [set("run-b", 9.0)]);
    assert_eq!(second.marks().len(), 2);
    drop(second);
    assert!(mark_all(std::slice::from_ref(&directory), "too late").unwrap().is_empty());
    assert!(!directory.exists(), "sockets go with their runs, and the directory with the last one");
}

#[test]
fn the_socket_of_a_killed_run_is_removed_by_the_next_mark_and_by_the_next_run() {
    let (_outer, directory) = folder();
    own_directory(&directory).unwrap();
    let left = directory.join("killed.sock");
    let leave = || drop(UnixListener::bind(&left).unwrap());
    leave();
    assert!(
        left.exists()
            && mark_all(std::slice::from_ref(&directory), "x").unwrap().is_empty()
            && !left.exists()
    );
    leave();
    let _next = MarkListener::start(&directory, "next", || 0.0).unwrap();
    assert!(!left.exists());
}

#[test]
fn a_directory_that_others_can_enter_or_that_is_a_link_is_refused_by_both_ends() {
    let (outer, directory) = folder();
    own_directory(&directory).unwrap();
    let link = outer.path().join("link");
    std::os::unix::fs::symlink(&directory, &link).unwrap();
    let text = |error: MarkError| error.to_string();
    assert!(text(mark_all(std::slice::from_ref(&link), "x").unwrap_err()).contains("no directory"));
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(text(mark_all(std::slice::from_ref(&directory), "x").unwrap_err()).contains("chmod 700"));
    assert!(text(MarkListener::start(&directory, "run", || 0.0).unwrap_err()).contains("chmod 700"));
}

#[test]
fn a_text_is_short_and_has_nothing_that_a_terminal_obeys() {
    assert_eq!(checked_text("  cache flushed \n").unwrap(), "cache flushed");
    assert!(matches!(checked_text(" "), Err(MarkError::Empty)));
    assert!(matches!(checked_text(&"x".repeat(201)), Err(MarkError::Long { bytes: 201 })));
    for wrong in ["a\x1b[2Jb", "a\u{202e}b", "a\nb"] {
        assert!(matches!(checked_text(wrong), Err(MarkError::Control { .. })), "{wrong:?}");
    }
    let (_outer, directory) = folder();
    let listener = MarkListener::start(&directory, "run", || 1.0).unwrap();
    let says = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(directory.join("run.sock")).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer
    };
    assert!(says(b"a\x1b[2Jb\n").contains("control character"));
    assert!(says(b"\xff\n").contains("not UTF-8"));
    assert!(says(&[b'x'; 300]).contains("at most 200"));
    assert!(listener.marks().is_empty());
    assert_eq!(says(b"fine\n"), "ok 1.000\n");
}

#[test]
fn a_run_has_a_thousand_marks_at_most() {
    let marks = Mutex::new(vec![Annotation { at_s: 0.0, text: String::new() }; MARKS_MAX]);
    let (mut client, run) = UnixStream::pair().unwrap();
    client.write_all(b"one more\n").unwrap();
    take(&run, 1.0, &marks).unwrap();
    drop(run);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "no it has 1000 marks, and that is the most\n");
    assert_eq!(marks.lock().unwrap().len(), MARKS_MAX);
}
