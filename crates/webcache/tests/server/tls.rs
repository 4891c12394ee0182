//! TLS on the listening side, with HTTP/2 and HTTP/1.1, as curl speaks them.

use std::process::Command;
use std::sync::Arc;

use packstore::{Mode, Store, StoreOptions, VolumeSpec};
use testkit::SimulatedDisk;
use webcache::config;
use webcache::server::{Server, Side};

use crate::harness::{Origin, reply};

#[test]
fn browsers_by_tls_are_served_by_http_2_and_http_1_from_one_store() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        return eprintln!("skipped: openssl makes no certificate here");
    }
    let origin = Origin::new(|_, _| reply("Cache-Control: max-age=60\r\n", vec![b'x'; 300_000]));
    let disk = Arc::new(SimulatedDisk::new("cache"));
    let options = StoreOptions { mode: Mode::Cache, ..StoreOptions::default() };
    let store = Store::create(vec![VolumeSpec { disk, size_bytes: 64 << 20 }], options).unwrap();
    let text = format!(
        "[reverse]\nlisten_tls = ['127.0.0.1:0']\ncertificate = '{}'\nkey = '{}'\n[[site]]\nhosts = ['localhost']\n\
         origins = ['http://{}']\n[cache]\ndirectories = ['unused']\n[proxy]\nloops = 2\n",
        certificate.display(),
        key.display(),
        origin.address
    );
    let server = Server::start(config::read(&text, toml::Table::new()).unwrap(), Arc::new(store)).unwrap();
    let (address, side) = server.addresses()[0];
    assert_eq!(side, Side::Reverse { tls: true });
    let url = format!("https://localhost:{}/", address.port());
    let mut seen = Vec::new();
    for version in ["--http2", "--http1.1", "--http2"] {
        let done = Command::new("curl")
            .args([
                "-s",
                "-S",
                "-o",
                "/dev/null",
                "-w",
                "%{http_version} %{http_code} %{size_download}",
                version,
            ])
            .args(["--noproxy", "*", "--resolve", &format!("localhost:{}:127.0.0.1", address.port())])
            .arg("--cacert")
            .arg(&certificate)
            .arg(&url)
            .output();
        let Ok(done) = done else { return eprintln!("skipped: curl is not installed") };
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        seen.push(String::from_utf8_lossy(&done.stdout).into_owned());
        while !server.shared().flights.is_empty() {
            std::thread::yield_now();
        }
    }
    assert_eq!(seen, ["2 200 300000", "1.1 200 300000", "2 200 300000"]);
    assert_eq!(origin.seen().len(), 1);
    assert_eq!(origin.seen()[0].field("x-forwarded-proto"), Some("https"));
    drop(server.stop());
}
