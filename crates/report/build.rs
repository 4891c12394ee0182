//! Brings uPlot in from npm, by lockfile, into OUT_DIR; without npm or network the report draws SVG instead.
//!
//! Always holds: the source tree is only read; the build succeeds whatever npm does. `CRUMB_NO_NPM=1`
//! leaves npm out.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

const INLINED: [(&str, &str); 3] = [
    ("dist/uPlot.iife.min.js", "uplot.js"),
    ("dist/uPlot.min.css", "uplot.css"),
    // The licence asks that its text goes with every copy, and every report is one.
    ("LICENSE", "uplot-license.txt"),
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=web/package.json");
    println!("cargo:rerun-if-changed=web/package-lock.json");
    println!("cargo:rerun-if-env-changed=CRUMB_NO_NPM");
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let out = Path::new(&out);
    let fetched = if env::var_os("CRUMB_NO_NPM").is_some_and(|value| value == "1") {
        Err("CRUMB_NO_NPM=1".to_owned())
    } else {
        fetch(out)
    };
    let texts = fetched.unwrap_or_else(|reason| {
        println!("cargo:warning=reports will draw fixed SVG plots, as uPlot could not be had: {reason} (to try again: touch crates/report/build.rs)");
        Default::default()
    });
    for ((_, name), text) in INLINED.iter().zip(texts) {
        fs::write(out.join(name), text).expect("OUT_DIR can be written");
    }
}

fn fetch(out: &Path) -> Result<[String; INLINED.len()], String> {
    let npm = out.join("npm");
    fs::create_dir_all(&npm).map_err(|error| format!("{}: {error}", npm.display()))?;
    for name in ["package.json", "package-lock.json"] {
        fs::copy(Path::new("web").join(name), npm.join(name))
            .map_err(|error| format!("web/{name}: {error}"))?;
    }
    // One attempt and a short wait: a machine without network should not hold up its build for minutes.
    let run = Command::new("npm")
        .args(["ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])
        .args([
            "--prefer-offline",
            "--fetch-retries=1",
            "--fetch-retry-mintimeout=1000",
            "--fetch-timeout=20000",
        ])
        .current_dir(&npm)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("npm does not start: {error}"))?;
    if !run.status.success() {
        let said = String::from_utf8_lossy(&run.stderr);
        let line =
            said.lines().find(|line| line.contains("error") || line.contains("ERR")).unwrap_or("no message");
        return Err(format!("npm ci failed: {line}"));
    }
    let mut texts: [String; INLINED.len()] = Default::default();
    for ((from, _), text) in INLINED.iter().zip(&mut texts) {
        let path = npm.join("node_modules/uplot").join(from);
        *text = fs::read_to_string(&path).map_err(|error| format!("uplot/{from}: {error}"))?;
        // Inlined between tags, such a text would end them early.
        if text.contains("</script") || text.contains("</style") || text.contains("-->") {
            return Err(format!("uplot/{from} cannot be inlined into HTML"));
        }
    }
    Ok(texts)
}
