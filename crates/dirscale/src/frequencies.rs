//! How often a day asks for each operation: what the single costs are weighed by.
//!
//! Table 1 of the paper counts a day on a news spool. A lookup comes before every other operation on a path and
//! before each reading of a file; it counts here as half random and half sequential, as the paper draws both and
//! does not say which it weighs. The 1.38% of other operations are left out: nothing here measures them.

use std::fmt;
use std::str::FromStr;

use measure::quantity::number_in;

/// Operations a day; at least one of them above zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frequencies {
    /// Lookups of a name.
    pub lookup: f64,
    /// Files removed.
    pub unlink: f64,
    /// Files made.
    pub create: f64,
    /// Readings of a whole directory.
    pub readdir: f64,
}

/// More than any storage does in a day: a billion a second.
const A_DAY_MAX: f64 = 1e14;

/// A text that gives no frequencies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}`: {wrong}; give operations a day, such as lookup=7068838,unlink=432269,create=345647,readdir=38371"
)]
pub struct FrequenciesError {
    /// The text.
    pub text: String,
    /// What is wrong.
    pub wrong: &'static str,
}

/// Costs of one operation each, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Costs {
    pub lookup_random: f64,
    pub lookup_sequential: f64,
    pub add: f64,
    pub remove: f64,
    pub readdir: f64,
}

impl Frequencies {
    /// Operations a day, all kinds.
    pub fn per_day(&self) -> f64 {
        self.lookup + self.unlink + self.create + self.readdir
    }

    /// What an operation of the day costs on average, microseconds.
    pub(crate) fn mean_us(&self, costs: &Costs) -> f64 {
        let lookup = (costs.lookup_random + costs.lookup_sequential) / 2.0;
        let day = self.lookup * lookup
            + self.unlink * costs.remove
            + self.create * costs.add
            + self.readdir * costs.readdir;
        day / self.per_day()
    }
}

impl Default for Frequencies {
    /// Table 1 of the paper, less its 110,473 other operations.
    fn default() -> Self {
        Self { lookup: 7_068_838.0, unlink: 432_269.0, create: 345_647.0, readdir: 38_371.0 }
    }
}

impl FromStr for Frequencies {
    type Err = FrequenciesError;

    /// `lookup=N,unlink=N,create=N,readdir=N`; what is not named does not happen.
    fn from_str(text: &str) -> Result<Self, FrequenciesError> {
        let error = |wrong| FrequenciesError { text: text.to_owned(), wrong };
        let mut day = Self { lookup: 0.0, unlink: 0.0, create: 0.0, readdir: 0.0 };
        for part in text.split(',') {
            let is_group = part.len() == 3 && part.bytes().all(|byte| byte.is_ascii_digit());
            let no_count =
                if is_group { "a comma does not separate thousands" } else { "no `=` in a part of it" };
            let (name, count) = part.split_once('=').ok_or_else(|| error(no_count))?;
            let place = match name.trim() {
                "lookup" => &mut day.lookup,
                "unlink" => &mut day.unlink,
                "create" => &mut day.create,
                "readdir" => &mut day.readdir,
                _ => return Err(error("an operation other than lookup, unlink, create and readdir")),
            };
            *place = number_in(count, &(0.0..=A_DAY_MAX))
                .map_err(|_| error("a count that is no number from 0 to 1e14"))?;
        }
        if day.per_day() > 0.0 { Ok(day) } else { Err(error("a day without operations")) }
    }
}

impl fmt::Display for Frequencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lookup, unlink, create, readdir } = self;
        write!(f, "lookup={lookup},unlink={unlink},create={create},readdir={readdir}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_s_day_has_its_shares() {
        let day = Frequencies::default();
        let all = 7_995_598.0;
        let shares = [day.lookup, day.unlink, day.create, day.readdir].map(|n| (n / all * 1e4).round() / 1e2);
        assert_eq!(shares, [88.41, 5.41, 4.32, 0.48]);
        assert_eq!(all - day.per_day(), 110_473.0);
    }

    /// Symptom: a VALID run whose day cost nothing that can be shown. Cause: two counts of 1e308 have no sum.
    #[test]
    fn counts_that_no_day_has_are_refused() {
        for text in ["lookup=1e308,unlink=1e308", "lookup=inf", "lookup=nan", "lookup=-1", "lookup=1.1e14"] {
            let error = text.parse::<Frequencies>().unwrap_err();
            assert_eq!(error.wrong, "a count that is no number from 0 to 1e14", "{text}");
        }
        assert_eq!("lookup=7M".parse::<Frequencies>().unwrap().lookup, 7e6);
        let grouped = "lookup=7,068,838".parse::<Frequencies>().unwrap_err();
        assert_eq!(grouped.wrong, "a comma does not separate thousands");
        assert!("lookup=1e14,unlink=1e14".parse::<Frequencies>().unwrap().per_day().is_finite());
    }

    #[test]
    fn the_mean_weighs_each_cost_by_how_often_it_is_paid() {
        let day: Frequencies = "lookup=8,unlink=1,create=1,readdir=0".parse().unwrap();
        let costs =
            Costs { lookup_random: 3.0, lookup_sequential: 1.0, add: 10.0, remove: 20.0, readdir: 1e9 };
        assert_eq!(day.mean_us(&costs), (8.0 * 2.0 + 20.0 + 10.0) / 10.0);
    }

    #[test]
    fn frequencies_are_read_back_and_nonsense_is_told() {
        let day = Frequencies::default();
        assert_eq!(day.to_string().parse(), Ok(day));
        for text in ["", "lookup", "lookup=-1", "lookup=0", "rename=5", "lookup=x", "lookup=inf"] {
            let error = text.parse::<Frequencies>().unwrap_err();
            assert!(error.to_string().contains("operations a day, such as"), "{error}");
        }
    }
}
