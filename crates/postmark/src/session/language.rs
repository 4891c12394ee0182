//! The command language: which command a line is, and what `set` does.
//!
//! A line is the first command of the table that it begins with; one character further, whatever that is, begins
//! its parameter. So `quitnow` quits, `set number-3` sets 3, and `sho` is nothing: all as in the original. Numbers
//! are read as C's atoi reads them. A line is bytes: file names need not be text.

use std::ffi::OsStr;
use std::num::NonZeroU32;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use super::report::SizeText;
use crate::{Bias, ReportForm, Settings, SizeRange};

/// What a line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Set(Setting),
    Run,
    Load,
    Show,
    Help,
    Quit,
}

/// What `set` changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Size,
    Number,
    Seed,
    Transactions,
    Location,
    Subdirectories,
    Read,
    Write,
    Buffering,
    BiasRead,
    BiasCreate,
    Report,
}

/// In the order in which lines are compared and `help` lists.
const COMMANDS: [(&str, Command, &str); 17] = [
    ("set size", Command::Set(Setting::Size), "Sets low and high bounds of files"),
    ("set number", Command::Set(Setting::Number), "Sets number of simultaneous files"),
    ("set seed", Command::Set(Setting::Seed), "Sets seed for random number generator"),
    ("set transactions", Command::Set(Setting::Transactions), "Sets number of transactions"),
    ("set location", Command::Set(Setting::Location), "Sets location of working files"),
    ("set subdirectories", Command::Set(Setting::Subdirectories), "Sets number of subdirectories"),
    ("set read", Command::Set(Setting::Read), "Sets read block size"),
    ("set write", Command::Set(Setting::Write), "Sets write block size"),
    ("set buffering", Command::Set(Setting::Buffering), "Sets usage of buffered I/O"),
    ("set bias read", Command::Set(Setting::BiasRead), "Sets the chance of choosing read over append"),
    ("set bias create", Command::Set(Setting::BiasCreate), "Sets the chance of choosing create over delete"),
    ("set report", Command::Set(Setting::Report), "Choose verbose or terse report format"),
    ("run", Command::Run, "Runs one iteration of benchmark"),
    ("load", Command::Load, "Read configuration file"),
    ("show", Command::Show, "Displays current configuration"),
    ("help", Command::Help, "Prints out available commands"),
    ("quit", Command::Quit, "Exit program"),
];

/// The command and its parameter, if there is any; nothing for a line that is none.
pub(crate) fn command(line: &[u8]) -> Option<(Command, Option<&[u8]>)> {
    match line {
        b"?" => return Some((Command::Help, None)),
        b"exit" => return Some((Command::Quit, None)),
        _ => {}
    }
    let (name, command, _) = COMMANDS.iter().find(|(name, ..)| line.starts_with(name.as_bytes()))?;
    Some((*command, line.get(name.len() + 1..)))
}

/// The commands whose names begin with `wanted`, or all when there are none.
pub(crate) fn help(wanted: Option<&[u8]>) -> String {
    let asked = |name: &str| wanted.is_none_or(|wanted| name.as_bytes().starts_with(wanted));
    let some = COMMANDS.iter().any(|(name, ..)| asked(name));
    let listed = COMMANDS.iter().filter(|(name, ..)| asked(name) || !some);
    listed.map(|(name, _, does)| format!("{name} - {does}\n")).collect()
}

/// What `show` prints: what goes into its file, the locations, which go to standard output whatever the file, and
/// the rest of what goes into its file.
pub(crate) fn shown(settings: &Settings, working_directory: &OsStr) -> [Vec<u8>; 3] {
    let mut before = format!(
        "Current configuration is:\nThe base number of files is {}\nTransactions: {}\n",
        settings.number, settings.transactions
    );
    let (low, high) = (settings.size.low(), settings.size.high());
    before.push_str(&if low == high {
        format!("Files are {} in size\n", SizeText(low))
    } else {
        format!("Files range between {} and {} in size\n", SizeText(low), SizeText(high))
    });
    let plural = if settings.locations.len() > 1 { "ies" } else { "y" };
    before.push_str(&format!("Working director{plural}: "));
    let mut before = before.into_bytes();
    if settings.locations.is_empty() {
        before.extend_from_slice(working_directory.as_bytes());
    }
    before.push(b'\n');

    let mut locations = Vec::new();
    for (location, weight) in &settings.locations {
        locations.push(b'\t');
        locations.extend_from_slice(location.as_os_str().as_bytes());
        locations.extend_from_slice(format!(" (weight={weight})\n").as_bytes());
    }

    let mut after = match settings.subdirectories {
        0 => String::new(),
        1 => "1 subdirectory will be used\n".to_owned(),
        many => format!("{many} subdirectories will be used\n"),
    };
    after.push_str(&format!(
        "Block sizes are: read={}, write={}\nBiases are: read/append={}, create/delete={}\n\
         {} Unix buffered file I/O\nRandom number generator seed is {}\nReport format is {}.\n",
        SizeText(settings.read_block.get()),
        SizeText(settings.write_block.get()),
        settings.read_bias.value(),
        settings.create_bias.value(),
        if settings.buffered { "Using" } else { "Not using" },
        settings.seed,
        match settings.report {
            ReportForm::Verbose => "verbose",
            ReportForm::Terse => "terse",
        },
    ));
    [before, locations, after.into_bytes()]
}

impl Setting {
    /// Changes the settings. What cannot be understood is complained of, in the original's words, and the value
    /// that was there stays.
    pub(crate) fn set(self, settings: &mut Settings, parameter: Option<&[u8]>) -> Result<(), Vec<u8>> {
        let parameter = parameter.unwrap_or_default();
        let positive = || u32::try_from(atoi(parameter)).ok().and_then(NonZeroU32::new);
        match self {
            Self::Size => {
                let bound = |text| NonZeroU32::new(atoi(text).max(0) as u32);
                // Behind the first blank, be it the very first character: ` 3 4` is 3 and 3.
                let blank = parameter.iter().position(|byte| *byte == b' ');
                let high = blank.and_then(|blank| bound(&parameter[blank + 1..]));
                match bound(parameter) {
                    Some(low) => {
                        settings.size = SizeRange::new(low, high.unwrap_or(low));
                        Ok(())
                    }
                    None => Err("no file size low or high bounds specified"),
                }
            }
            Self::Number => positive().map(|v| settings.number = v).ok_or("invalid number of files"),
            Self::Seed => {
                positive().map(|v| settings.seed = v.get()).ok_or("invalid seed for random numbers")
            }
            Self::Transactions => {
                positive().map(|v| settings.transactions = v).ok_or("no transactions specified")
            }
            Self::Location => return set_location(settings, parameter),
            Self::Subdirectories => positive()
                .map(|v| settings.subdirectories = v.get())
                .ok_or("invalid number of subdirectories"),
            Self::Read => positive().map(|v| settings.read_block = v).ok_or("invalid read block size"),
            Self::Write => positive().map(|v| settings.write_block = v).ok_or("invalid write block size"),
            Self::Buffering => {
                let buffered = match parameter {
                    b"true" => Some(true),
                    b"false" => Some(false),
                    _ => None,
                };
                buffered.map(|v| settings.buffered = v).ok_or("no buffering mode (true/false) specified")
            }
            Self::BiasRead | Self::BiasCreate => {
                let bias = Some(parameter)
                    .filter(|given| !given.is_empty())
                    .and_then(|given| Bias::new(atoi(given)));
                let of =
                    if self == Self::BiasRead { &mut settings.read_bias } else { &mut settings.create_bias };
                bias.map(|bias| *of = bias).ok_or("no bias specified (0-10 for greater chance,-1 to disable)")
            }
            Self::Report => {
                let form = match parameter {
                    b"verbose" => Some(ReportForm::Verbose),
                    b"terse" => Some(ReportForm::Terse),
                    _ => None,
                };
                form.map(|v| settings.report = v).ok_or("either 'verbose' or 'terse' required")
            }
        }
        .map_err(|complaint| complaint.as_bytes().to_vec())
    }
}

/// `DIR [WEIGHT]` replaces all locations, `+DIR [WEIGHT]` adds one, `-DIR` takes the first of that name away.
fn set_location(settings: &mut Settings, parameter: &[u8]) -> Result<(), Vec<u8>> {
    let added = match parameter {
        // In the original a trailing blank makes this the root directory.
        b"" => return Err(b"no directory name specified".to_vec()),
        b"+" | b"-" => return Ok(()),
        [b'-', name @ ..] => {
            let named = |(location, _): &(PathBuf, _)| location.as_os_str().as_bytes() == name;
            return match settings.locations.iter().position(named) {
                Some(index) => {
                    settings.locations.remove(index);
                    Ok(())
                }
                None => Err([b"cannot find location '", name, b"'"].concat()),
            };
        }
        [b'+', added @ ..] => added,
        all => all,
    };
    let mut complaint = Ok(());
    let (name, weight) = match added.iter().rposition(|byte| *byte == b' ') {
        None => (added, NonZeroU32::MIN),
        Some(blank) => {
            let (name, given) = (&added[..blank], &added[blank + 1..]);
            let weight = u32::try_from(atoi(given)).ok().and_then(NonZeroU32::new);
            if weight.is_none() {
                complaint = Err([b"ignoring invalid weight '", given, b"'"].concat());
            }
            (name, weight.unwrap_or(NonZeroU32::MIN))
        }
    };
    if name.is_empty() {
        return Err(b"no directory name specified".to_vec());
    }
    if parameter[0] != b'+' {
        settings.locations.clear();
    }
    settings.locations.push((PathBuf::from(std::ffi::OsString::from_vec(name.to_vec())), weight));
    complaint
}

/// As the C library's: blanks, a sign, digits, and whatever follows; too large for 64 bits is the largest, and the
/// lower 32 bits of that are the number.
fn atoi(text: &[u8]) -> i32 {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let number = digits.fold(0i64, |number, digit| {
        let digit = i64::from(digit - b'0');
        number.saturating_mul(10).saturating_add(if negative { -digit } else { digit })
    });
    number as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(lines: &[&str]) -> (Settings, Vec<String>) {
        let mut settings = Settings::default();
        let mut complaints = Vec::new();
        for line in lines {
            let Some((Command::Set(setting), parameter)) = command(line.as_bytes()) else {
                panic!("{line} sets nothing");
            };
            if let Err(complaint) = setting.set(&mut settings, parameter) {
                complaints.push(String::from_utf8(complaint).unwrap());
            }
        }
        (settings, complaints)
    }

    #[test]
    fn numbers_are_read_as_atoi_reads_them() {
        for (text, number) in [
            ("12abc", 12),
            (" +4", 4),
            ("0x10", 0),
            ("-3", -3),
            ("4294967295", -1),
            ("99999999999", 1_215_752_191),
            ("99999999999999999999", -1),
            ("", 0),
        ] {
            assert_eq!(atoi(text.as_bytes()), number, "{text}");
        }
    }

    #[test]
    fn a_command_is_what_a_line_begins_with() {
        assert_eq!(command(b"quitnow"), Some((Command::Quit, Some(&b"ow"[..]))));
        assert_eq!(command(b"showx"), Some((Command::Show, Some(&b""[..]))));
        for nothing in ["sho", " show", "SHOW", "set", "set bias", "set  size 5", "exit ", "?x", ""] {
            assert_eq!(command(nothing.as_bytes()), None, "{nothing}");
        }
        assert_eq!(set(&["set numberx 8"]).0.number.get(), 8);
        assert_eq!(set(&["set size1000 3000"]).1, ["no file size low or high bounds specified"]);
    }

    #[test]
    fn locations_are_replaced_added_and_taken_away_one_at_a_time() {
        let (settings, complaints) = set(&[
            "set location /gone 9",
            "set location /a b 4",
            "set location +c 2",
            "set location +c x",
            "set location -c",
            "set location -c 2",
            "set location +",
            "set location + ",
            "set location ",
        ]);
        let locations: Vec<_> =
            settings.locations.iter().map(|(name, weight)| (name.to_str().unwrap(), weight.get())).collect();
        assert_eq!(locations, [("/a b", 4), ("c", 1)]);
        assert_eq!(
            complaints,
            [
                "ignoring invalid weight 'x'",
                "cannot find location 'c 2'",
                "no directory name specified",
                "no directory name specified"
            ]
        );
    }
}
