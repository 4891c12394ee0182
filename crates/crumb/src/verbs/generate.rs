//! `crumb generate`: man pages and shell completions, made from the declarations of the verbs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::context::Context;
use crate::exit::ExitStatus;
use crate::output::print;

/// Write man pages and shell completions below a directory
///
/// The files have the places that man, bash, zsh and fish search below /usr/share, /usr/local/share and
/// ~/.local/share. Existing ones are replaced.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  For yourself; zsh needs ~/.local/share/zsh/site-functions in its fpath:
    crumb generate ~/.local/share
  For all users (as root):
    crumb generate /usr/local/share
    man crumb-run-fstress")]
pub struct GenerateArgs {
    /// Directory to write below; created if missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Where each shell looks for completions below a data directory.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/crumb"),
    (Shell::Fish, "fish/vendor_completions.d/crumb.fish"),
    (Shell::Zsh, "zsh/site-functions/_crumb"),
];

/// Runs the verb for the program that `program` declares.
pub fn run(args: &GenerateArgs, mut program: Command, context: &Context) -> anyhow::Result<ExitStatus> {
    let pages = args.directory.join("man/man1");
    make_directory(&pages)?;
    clap_mangen::generate_to(program.clone(), &pages)
        .with_context(|| format!("{}: cannot write the man pages", pages.display()))?;
    for (shell, place) in COMPLETIONS {
        let path = args.directory.join(place);
        make_directory(path.parent().expect("a file is in a directory"))?;
        let cannot = || format!("{}: cannot write the completions", path.display());
        let mut file = File::create(&path).with_context(cannot)?;
        clap_complete::generate(shell, &mut program, "crumb", &mut file);
    }
    if !context.quiet {
        print(&format!("wrote man pages and completions below {}\n", args.directory.display()))?;
    }
    Ok(ExitStatus::Fine)
}

fn make_directory(path: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(path).with_context(|| format!("{}: cannot make this directory", path.display()))
}
