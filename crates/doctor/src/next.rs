//! The command to type next, with the target filled in, by the heaviest finding.

use files::LAYOUT_FILES_MIN;
use serde::Serialize;

use crate::{Facts, Finding, FindingCode};

/// A command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// To be pasted into a shell.
    pub command: String,
    /// What it answers.
    pub answers: &'static str,
}

/// Verbs that this build of the program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offers {
    /// `crumb mount`, `manage`, `advise`.
    pub mount: bool,
    /// `crumb pack`.
    pub pack: bool,
}

/// One or two commands, the first of which is the one.
pub fn next_steps(facts: &Facts, findings: &[Finding], offers: Offers) -> Vec<Step> {
    use FindingCode as Code;
    let target = shell_word(&facts.target.place);
    let is_local = facts.target.path.is_some();
    let measured = || {
        step(
            format!("crumb run fstress {target} --workload web-server --quick"),
            "its latency at up to 4,000 requests/s",
        )
    };
    let beside = || match facts.places.iter().skip(1).find(|place| place.kind != "tmpfs") {
        Some(place) => step(
            format!("crumb run postmark {target} --vs {} --sync close --quick", shell_word(&place.path)),
            "how much slower it is than there, with intervals",
        ),
        None => {
            step(format!("crumb run postmark {target} --sync close --quick"), "what small durable files cost")
        }
    };
    let left_over = || step(format!("crumb clean {target} --dry-run"), "whether killed runs left files here");
    // Findings that follow from what this page did say nothing of what to do next.
    let first = findings.first().filter(|finding| finding.weight >= 40).map(|finding| finding.code);
    match first {
        Some(Code::InodesNearlyGone) if is_local => {
            let mut steps = vec![
                step(format!("du --inodes -xd2 {target} | sort -n | tail"), "where the inodes are"),
                left_over(),
            ];
            if offers.pack {
                steps.push(step(
                    "crumb pack create --help".to_owned(),
                    "how to keep small files in few large ones",
                ));
            }
            steps
        }
        Some(Code::BytesNearlyGone) if is_local => {
            vec![step(format!("du -xd2 {target} | sort -n | tail"), "where the bytes are"), left_over()]
        }
        Some(Code::BytesNearlyGone | Code::InodesNearlyGone) => vec![left_over()],
        Some(Code::ReadOnly | Code::Unwritable) => {
            vec![step("crumb doctor /tmp".to_owned(), "what this machine does where you may write")]
        }
        Some(Code::Volatile) => {
            let disk = facts.places.iter().skip(1).find(|place| place.kind != "tmpfs");
            let disk = disk.map_or("/var/tmp", |place| &place.path);
            vec![step(format!("crumb doctor {}", shell_word(disk)), "the same for storage that lasts")]
        }
        Some(Code::DirectoryNearlyFull) if offers.mount => {
            vec![step(format!("crumb advise --predict {target}"), "from which day on it takes no more names")]
        }
        Some(Code::LinearDirectories | Code::LargeDirectory)
            if is_local && offers.mount && is_weighed(facts) =>
        {
            of_large_directories(facts, &target)
        }
        Some(Code::LinearDirectories | Code::LargeDirectory) => {
            vec![step(format!("crumb run dirscale {target} --quick"), "from which size subdirectories pay")]
        }
        Some(
            Code::CpuQuota | Code::SlowMetadata | Code::SlowFsync | Code::SynchronousMount | Code::NoBarriers,
        ) => {
            vec![beside()]
        }
        _ if is_local || facts.target.unwritable.is_none() => vec![measured()],
        _ => vec![left_over()],
    }
}

/// Whether `crumb advise` weighs a directory of this size.
fn is_weighed(facts: &Facts) -> bool {
    facts.largest().is_some_and(|largest| largest.names >= LAYOUT_FILES_MIN)
}

/// What large directories would gain, and the remedy.
fn of_large_directories(facts: &Facts, target: &str) -> Vec<Step> {
    let mut steps =
        vec![step(format!("crumb advise {target} --quick"), "what each large directory would gain in a day")];
    if let Some(largest) = facts.largest() {
        let path = shell_word(&largest.path.display().to_string());
        steps.push(step(
            format!("crumb manage {path}"),
            "the remedy for the largest, only if advise shows a gain",
        ));
    }
    steps
}

fn step(command: String, answers: &'static str) -> Step {
    Step { command, answers }
}

/// `text` as one word of a shell.
pub fn shell_word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:=@%,".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) && !text.starts_with('-') {
        return text.to_owned();
    }
    // A path that begins with a hyphen would be a flag.
    let text = if text.starts_with('-') { format!("./{text}") } else { text.to_owned() };
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DirectoryFacts, MountFacts, PlaceFacts, SpaceFacts};

    const ALL: Offers = Offers { mount: true, pack: true };

    fn facts() -> Facts {
        let mut facts = Facts::default();
        facts.target.place = "/mnt/my disk".to_owned();
        facts.target.path = Some("/mnt/my disk".into());
        facts
    }

    fn first(facts: &Facts, offers: Offers) -> String {
        next_steps(facts, &crate::findings(facts), offers).remove(0).command
    }

    #[test]
    fn a_word_for_a_shell_is_quoted_when_it_must_be() {
        assert_eq!(shell_word("/mnt/disk-1_a.b"), "/mnt/disk-1_a.b");
        assert_eq!(shell_word("/mnt/my disk"), "'/mnt/my disk'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word("-rf"), "'./-rf'");
        assert_eq!(shell_word(""), "''");
        assert_eq!(shell_word("$(x)"), "'$(x)'");
    }

    #[test]
    fn the_next_command_follows_from_the_first_finding_and_holds_the_target() {
        let fine = facts();
        assert_eq!(first(&fine, ALL), "crumb run fstress '/mnt/my disk' --workload web-server --quick");
        let mut full = facts();
        full.target.space = Some(SpaceFacts { inodes_total: 10, ..SpaceFacts::default() });
        assert_eq!(first(&full, ALL), "du --inodes -xd2 '/mnt/my disk' | sort -n | tail");
        let mut quota = facts();
        quota.machine.cpu_quota = Some(0.5);
        quota.machine.environment.cpus = 4;
        let place = |kind: &str, path: &str| PlaceFacts {
            kind: kind.to_owned(),
            path: path.to_owned(),
            ..PlaceFacts::default()
        };
        quota.places = vec![place("ext4", "/mnt/my disk"), place("tmpfs", "/dev/shm"), place("ext4", "/tmp")];
        assert_eq!(first(&quota, ALL), "crumb run postmark '/mnt/my disk' --vs /tmp --sync close --quick");
    }

    #[test]
    fn a_build_without_mounts_offers_a_measurement_for_large_directories() {
        let mut linear = facts();
        let directory = DirectoryFacts {
            path: "/mnt/my disk/spool".into(),
            names: 100_000,
            own_bytes: 3 << 20,
            block_bytes: 4096,
            is_indexed: Some(false),
            ..DirectoryFacts::default()
        };
        linear.target.largest = Some(directory);
        linear.target.mount = Some(MountFacts { kind: "ext4".to_owned(), ..MountFacts::default() });
        let steps = next_steps(&linear, &crate::findings(&linear), ALL);
        let commands: Vec<&str> = steps.iter().map(|step| step.command.as_str()).collect();
        assert_eq!(commands, ["crumb advise '/mnt/my disk' --quick", "crumb manage '/mnt/my disk/spool'"]);
        // Symptom: it was advised to spread a directory of which crumb advise says that there is nothing to gain.
        let mut small = linear.clone();
        small.target.largest.as_mut().unwrap().names = LAYOUT_FILES_MIN - 1;
        assert_eq!(first(&small, ALL), "crumb run dirscale '/mnt/my disk' --quick");
        let text = |facts: &Facts| crate::findings(facts)[0].advice.to_string();
        assert!(text(&linear).contains("if crumb advise shows a gain"), "{}", text(&linear));
        assert!(!text(&small).contains("crumb advise"), "{}", text(&small));
        let bare = Offers { mount: false, pack: false };
        assert_eq!(first(&linear, bare), "crumb run dirscale '/mnt/my disk' --quick");
    }
}
