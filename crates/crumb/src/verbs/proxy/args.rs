//! What the command line says of a proxy, as its configuration file would: flags, keys by `--set`, and the file itself.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use toml::{Table, Value};
use webcache::config::{self, Config};

use crate::exit::BadUsage;
use crate::quantities::count;

/// Run the caching web proxy on a packed store.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  A proxy for this machine:
    crumb proxy --cache /var/cache/crumb --listen 127.0.0.1:3128
    curl -x 127.0.0.1:3128 http://example.org/
  In front of a site:
    crumb proxy --cache /var/cache/crumb --listen 127.0.0.1:8080 --origin http://127.0.0.1:80
  Every setting with its value, in a file to change:
    crumb proxy --cache /var/cache/crumb --listen 127.0.0.1:3128 --print-config > crumb.toml
    crumb proxy --config crumb.toml

SIGHUP rereads the file and reopens the log; no connection is dropped. SIGTERM and Ctrl-C let
requests end (proxy.drain_s) and close the store.
Exit codes: 0 ended by SIGTERM or Ctrl-C, 1 failed, 2 wrong usage or a wrong key.")]
pub struct ProxyArgs {
    /// TOML file with the settings that differ from the defaults
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Cache directories, separated by commas, ideally one per disk; created if missing (key: cache.directories)
    #[arg(long, value_name = "DIR", value_delimiter = ',')]
    cache: Vec<String>,

    /// Address to listen on for clients; port 0 takes a free one (key: forward.listen, with --origin reverse.listen)
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,

    /// The one server that every request goes to (reverse proxy), such as http://127.0.0.1:80 (key: site)
    #[arg(long, value_name = "URL")]
    origin: Vec<String>,

    /// Space to use in each directory in MiB; used only when its store is created (key:
    /// cache.size_mib) [default: 1024]
    #[arg(long, value_name = "MIB", value_parser = count::<u32>)]
    size_mib: Option<u32>,

    /// Address to listen on for metrics and the status page (key: admin.listen) [default: none]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,

    /// Access log file, - for standard output (key: log.file) [default: none]
    #[arg(long, value_name = "FILE")]
    log: Option<String>,

    /// Set any other key, such as limits.idle_s=30; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Print every setting with its meaning and the value in force, and exit
    #[arg(long)]
    pub print_config: bool,
}

impl ProxyArgs {
    /// Whether it says nothing but what to print.
    pub fn is_empty(&self) -> bool {
        let lists = [&self.cache, &self.listen, &self.origin, &self.set];
        self.config.is_none()
            && lists.iter().all(|list| list.is_empty())
            && self.size_mib.is_none()
            && self.admin.is_none()
            && self.log.is_none()
    }

    /// The file and the flags over it, checked.
    ///
    /// # Errors
    /// When the file cannot be read, and with everything that is wrong in both.
    pub fn config(&self) -> anyhow::Result<Config> {
        let text = match &self.config {
            None => String::new(),
            Some(file) => measure::read_text(file, measure::SETTINGS_BYTES_MAX)
                .with_context(|| format!("{}: cannot be read", file.display()))
                .map_err(|error| error.context(BadUsage))?,
        };
        let flags = self.flags().map_err(|error| error.context(BadUsage))?;
        config::read(&text, flags).map_err(|error| {
            let place = self.config.as_deref().unwrap_or(Path::new("configuration"));
            anyhow!("{}: {error}", place.display()).context(BadUsage)
        })
    }

    /// What the flags say, as the file would.
    fn flags(&self) -> anyhow::Result<Table> {
        let mut flags = Table::new();
        let texts = |list: &[String]| Value::Array(list.iter().cloned().map(Value::String).collect());
        if !self.cache.is_empty() {
            set(&mut flags, "cache", "directories", texts(&self.cache));
        }
        if !self.listen.is_empty() {
            let section = if self.origin.is_empty() { "forward" } else { "reverse" };
            set(&mut flags, section, "listen", texts(&self.listen));
        }
        if !self.origin.is_empty() {
            let site =
                [("hosts".to_owned(), texts(&["*".to_owned()])), ("origins".to_owned(), texts(&self.origin))];
            flags.insert("site".to_owned(), Value::Array(vec![Value::Table(Table::from_iter(site))]));
        }
        if let Some(size_mib) = self.size_mib {
            set(&mut flags, "cache", "size_mib", Value::Integer(size_mib.into()));
        }
        if let Some(admin) = &self.admin {
            set(&mut flags, "admin", "listen", Value::String(admin.clone()));
        }
        if let Some(log) = &self.log {
            set(&mut flags, "log", "file", Value::String(log.clone()));
        }
        for text in &self.set {
            let wrong = || anyhow!("--set {text}: expected SECTION.KEY=VALUE, as limits.idle_s=30");
            let (name, value) = text.split_once('=').ok_or_else(wrong)?;
            let (section, key) = name.split_once('.').ok_or_else(wrong)?;
            // As TOML has it; a word without quotes is a text.
            let digits = value.strip_prefix(['-', '+']).unwrap_or(value);
            let value = match format!("value = {value}").parse::<Table>() {
                Ok(mut table) => table.remove("value").ok_or_else(wrong)?,
                Err(_) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                    return Err(anyhow!("--set {text}: a number is from {} to {}", i64::MIN, i64::MAX));
                }
                Err(_) => Value::String(value.to_owned()),
            };
            set(&mut flags, section, key, value);
        }
        Ok(flags)
    }
}

fn set(flags: &mut Table, section: &str, key: &str, value: Value) {
    let section = flags.entry(section).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(section) = section {
        section.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ProxyArgs,
    }

    fn flags(typed: &[&str]) -> anyhow::Result<Table> {
        Line::parse_from(std::iter::once("proxy").chain(typed.iter().copied())).args.flags()
    }

    fn table(text: &str) -> Table {
        text.parse().expect(text)
    }

    #[test]
    fn an_address_is_that_of_the_forward_side_and_with_an_origin_that_of_the_reverse_side() {
        let forward = flags(&["--listen", "127.0.0.1:1", "--cache", "/a,/b", "--size-mib", "7"]).unwrap();
        let wanted = "forward.listen = ['127.0.0.1:1']\ncache = { directories = ['/a', '/b'], size_mib = 7 }";
        assert_eq!(forward, table(wanted));
        let reverse = flags(&["--listen", "127.0.0.1:1", "--origin", "http://o"]).unwrap();
        let wanted = "reverse.listen = ['127.0.0.1:1']\n[[site]]\nhosts = ['*']\norigins = ['http://o']";
        assert_eq!(reverse, table(wanted));
    }

    #[test]
    fn a_key_that_is_set_is_a_number_where_it_can_be_and_a_text_otherwise() {
        let set = |text: &str| flags(&["--set", text]).map_err(|error| error.to_string());
        assert_eq!(set("limits.idle_s=30"), Ok(table("limits.idle_s = 30")));
        assert_eq!(set("proxy.name=cache one"), Ok(table("proxy.name = 'cache one'")));
        assert_eq!(set("access.purge=['10.0.0.0/8']"), Ok(table("access.purge = ['10.0.0.0/8']")));
        for wrong in ["limits.idle_s", "limits=30", "limits.idle_s=99999999999999999999"] {
            let error = set(wrong).expect_err(wrong);
            assert!(error.starts_with(&format!("--set {wrong}: ")), "{error}");
        }
    }
}
