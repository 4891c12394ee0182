//! The answer in a sentence.

use stackfs::advise::{Advice, Total, Worth};

use crate::layout::counted;

/// The answer in a sentence.
pub fn verdict(worth: &[Worth], total: &Total) -> String {
    let of = |advice: Advice| worth.iter().filter(move |worth| worth.advice == advice);
    let (gaining, losing) = (of(Advice::Manage).count(), of(Advice::Unmanage).count());
    let net_s = total.gain_s - total.elsewhere_s;
    let unknown = of(Advice::NotShown).filter(|worth| worth.beyond_measured).count();
    let mut verdict = match gaining {
        0 if unknown > 0 => format!(
            "nothing is certain: {} larger than any size that could be measured in the time; give more by --time",
            counted(unknown, "directory is", "directories are"),
        ),
        0 => "nothing to gain by managing more on this file system, as far as can be shown".to_owned(),
        _ if net_s <= 0.0 => format!(
            "nothing to gain: the mount would cost {} a day in the rest of the tree, more than the {} that {} would \
             gain",
            seconds_text(total.elsewhere_s),
            seconds_text(total.gain_s),
            counted(gaining, "directory", "directories"),
        ),
        _ => {
            let gaining_here = of(Advice::Manage).chain(of(Advice::KeepManaged));
            // Of what lies beyond the sizes measured, what is certain.
            let unsure_s: f64 = gaining_here
                .filter(|worth| worth.beyond_measured)
                .map(|worth| worth.gain_s - worth.gain_s_range.0)
                .sum();
            let least = if unsure_s > 0.0 { "at least" } else { "about" };
            let elsewhere = if total.elsewhere_s > 0.0 {
                format!(
                    ", less {} that the mount costs in the rest of the tree",
                    seconds_text(total.elsewhere_s)
                )
            } else {
                String::new()
            };
            let kept = of(Advice::KeepManaged).count();
            let kept_text = if kept > 0 { format!(" ({kept} of them managed now)") } else { String::new() };
            format!(
                "managing {}{kept_text} would save {least} {} a day{elsewhere}",
                counted(gaining + kept, "directory", "directories"),
                seconds_text(total.gain_s - unsure_s)
            )
        }
    };
    if losing > 0 {
        verdict.push_str(&format!(
            "; {} managed now cost more than flat",
            counted(losing, "directory", "directories")
        ));
    }
    verdict
}

/// With a unit that leaves two or three digits.
pub fn seconds_text(seconds: f64) -> String {
    let (size, sign) = (seconds.abs(), if seconds < 0.0 { "-" } else { "" });
    match size {
        size if size >= 5400.0 => format!("{sign}{:.1} h", size / 3600.0),
        size if size >= 90.0 => format!("{sign}{:.1} min", size / 60.0),
        size if size >= 9.95 => format!("{sign}{size:.0} s"),
        size => format!("{sign}{size:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn worth(advice: Advice, gain_s: f64, beyond_measured: bool) -> Worth {
        Worth {
            path: PathBuf::from("d"),
            files: 1000,
            managed: matches!(advice, Advice::KeepManaged | Advice::Unmanage),
            operations_per_day: 1000.0,
            gain_s,
            gain_s_range: (gain_s / 2.0, gain_s * 2.0),
            mount_s: 0.0,
            beyond_measured,
            advice,
        }
    }

    fn verdict_of(worth: &[Worth], elsewhere_s: f64) -> String {
        let gaining =
            worth.iter().filter(|worth| matches!(worth.advice, Advice::Manage | Advice::KeepManaged));
        verdict(worth, &Total { gain_s: gaining.map(|worth| worth.gain_s).sum(), elsewhere_s })
    }

    #[test]
    fn a_gain_is_reported_with_the_cost_of_the_mount_elsewhere() {
        let two = [worth(Advice::Manage, 60.0, false), worth(Advice::KeepManaged, 40.0, false)];
        assert_eq!(
            verdict_of(&two, 5.0),
            "managing 2 directories (1 of them managed now) would save about 1.7 min a day, less 5.0 s that the mount \
             costs in the rest of the tree"
        );
    }

    #[test]
    fn of_a_directory_larger_than_any_measured_only_the_certain_part_counts() {
        let one = [worth(Advice::Manage, 60.0, true)];
        assert_eq!(verdict_of(&one, 0.0), "managing 1 directory would save at least 30 s a day");
    }

    #[test]
    fn a_gain_that_the_mount_eats_up_is_none() {
        let text = verdict_of(&[worth(Advice::Manage, 60.0, false)], 61.0);
        assert!(text.starts_with("nothing to gain: the mount would cost 61 s a day"), "{text}");
    }

    #[test]
    fn what_is_not_known_is_not_called_nothing() {
        let text = verdict_of(&[worth(Advice::NotShown, 1.0, true)], 0.0);
        assert!(text.starts_with("nothing is certain: 1 directory is larger"), "{text}");
        let known =
            verdict_of(&[worth(Advice::NotShown, 1.0, false), worth(Advice::Unmanage, -9.0, false)], 0.0);
        assert!(known.starts_with("nothing to gain by managing more"), "{known}");
        assert!(known.ends_with("; 1 directory managed now cost more than flat"), "{known}");
    }

    #[test]
    fn seconds_have_a_unit_that_leaves_few_digits() {
        let texts = [0.04, -3.21, 9.96, 89.0, 120.0, 5400.0].map(seconds_text);
        assert_eq!(texts, ["0.0 s", "-3.2 s", "10 s", "89 s", "2.0 min", "1.5 h"]);
    }
}
