//! The directory server with programs of others: nfs-ls, nfs-cp and nfs-cat of libnfs.

use std::net::SocketAddr;
use std::process::Command;

use files::DirectoryOptions;
use nfs::server::{Server, ServerOptions, serve_dir};

fn tools_installed() -> bool {
    testkit::need::program("nfs-ls", "libnfs-utils").is_some()
}

fn serve(path: &std::path::Path, read_only: bool) -> Server {
    let options = DirectoryOptions { read_only, ..DirectoryOptions::default() };
    serve_dir(path, ServerOptions::default(), options).unwrap()
}

/// For a file right below the root write `//file`: libnfs mounts what stands before the last slash, and an
/// empty path is none.
fn url(addr: SocketAddr, path: &str) -> String {
    let port = addr.port();
    format!("nfs://127.0.0.1{path}?version=3&nfsport={port}&mountport={port}")
}

/// Standard output of a tool, or what it complained about.
fn run(tool: &str, arguments: &[&str]) -> Result<Vec<u8>, String> {
    let output = Command::new(tool).args(arguments).output().unwrap();
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }
}

#[test]
fn the_tools_list_copy_in_and_read_back() {
    if !tools_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let export = folder.path().join("export");
    std::fs::create_dir_all(export.join("sub/inner")).unwrap();
    std::fs::write(export.join("sub/hello"), "hello from the export\n").unwrap();
    let server = serve(&export, false);

    let listing = String::from_utf8(run("nfs-ls", &[&url(server.addr(), "/")]).unwrap()).unwrap();
    assert!(listing.contains(" sub\n"), "{listing}");
    let listing = String::from_utf8(run("nfs-ls", &[&url(server.addr(), "/sub")]).unwrap()).unwrap();
    assert!(listing.contains(" hello\n") && listing.contains(" inner\n"), "{listing}");

    assert_eq!(run("nfs-cat", &[&url(server.addr(), "/sub/hello")]).unwrap(), b"hello from the export\n");

    let bytes: Vec<u8> = (0..3_000_000_u32).map(|number| (number.wrapping_mul(number) >> 7) as u8).collect();
    let source = folder.path().join("source");
    std::fs::write(&source, &bytes).unwrap();
    run("nfs-cp", &[source.to_str().unwrap(), &url(server.addr(), "/sub/copy")]).unwrap();
    assert!(std::fs::read(export.join("sub/copy")).unwrap() == bytes, "the copy differs");
    assert!(run("nfs-cat", &[&url(server.addr(), "/sub/copy")]).unwrap() == bytes, "reading it back differs");
    assert!(server.counters().calls > 20);
}

#[test]
fn a_thousand_names_are_listed_once_each() {
    if !tools_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for number in 0..1000 {
        std::fs::write(folder.path().join(format!("a-rather-long-name-of-file-{number:04}")), "").unwrap();
    }
    let server = serve(folder.path(), false);
    let listing = String::from_utf8(run("nfs-ls", &[&url(server.addr(), "/")]).unwrap()).unwrap();
    for number in 0..1000 {
        let name = format!("a-rather-long-name-of-file-{number:04}\n");
        assert_eq!(listing.matches(&name).count(), 1, "{name}");
    }
}

#[test]
fn the_tools_cannot_leave_the_export_nor_write_to_a_read_only_one() {
    if !tools_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let export = folder.path().join("export");
    std::fs::create_dir(&export).unwrap();
    std::fs::write(folder.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink(folder.path(), export.join("out")).unwrap();
    std::os::unix::fs::symlink("../secret", export.join("out2")).unwrap();
    let server = serve(&export, true);
    for path in ["//../secret", "/out/secret", "//out2", "/out/../../secret"] {
        let got = run("nfs-cat", &[&url(server.addr(), path)]);
        assert!(got.as_ref().is_ok_and(Vec::is_empty) || got.is_err(), "{path}: {got:?}");
    }
    // The same way leads to what is inside.
    assert!(run("nfs-ls", &[&url(server.addr(), "/")]).is_ok());
    let secret = folder.path().join("secret");
    let got = run("nfs-cp", &[secret.to_str().unwrap(), &url(server.addr(), "//new")]);
    let complaint = got.expect_err("copied into a read-only export");
    assert!(complaint.contains("ROFS"), "{complaint}");
    assert!(!export.join("new").exists());
}

#[test]
fn several_tools_at_once_get_their_own_bytes() {
    if !tools_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for number in 0..6_u8 {
        std::fs::write(folder.path().join(format!("f{number}")), vec![number; 500_000]).unwrap();
    }
    let server = serve(folder.path(), false);
    let addr = server.addr();
    std::thread::scope(|scope| {
        for number in 0..6_u8 {
            scope.spawn(move || {
                let got = run("nfs-cat", &[&url(addr, &format!("//f{number}"))]).unwrap();
                assert!(got == vec![number; 500_000], "client {number} got other bytes");
            });
        }
    });
    assert!(server.counters().connections_accepted >= 6);
}
