//! What the page does not read, as most users cannot, and how it takes it to be.

use crate::{Facts, shell_word};

/// Sentences, each with the way to know better where there is one.
pub fn assumed(facts: &Facts) -> Vec<String> {
    let target = &facts.target;
    let mut found = Vec::new();
    if let Some(mount) = target.mount.as_ref().filter(|_| target.is_ext()) {
        let who = if facts.machine.is_root { "read them" } else { "root can read them" };
        found.push(format!(
            "features in the superblock (large_dir, reserved blocks, size of the journal) are the defaults of mke2fs: {who} by \
             dumpe2fs -h {}",
            shell_word(&mount.source)
        ));
    }
    if target.path.is_some() && !target.is_volatile() {
        let who = if facts.machine.is_root { "" } else { ", run by root," };
        found.push(format!(
            "names and attributes come from the kernel's caches: crumb run dirscale{who} drops them and measures without"
        ));
    }
    if target.unwritable.is_some() {
        found.push("what creations, writes and fsync cost here is not known".to_owned());
    } else if !target.is_volatile() {
        found.push(
            "what fsync reported durable is durable: whether a cache of the disk or host survives power loss cannot be read"
                .to_owned(),
        );
    }
    if target.mount.as_ref().is_none_or(crate::MountFacts::is_network) {
        found.push(
            "the server's disks, caches and other clients are as they were in these seconds".to_owned(),
        );
    }
    if facts.machine.is_virtual {
        found.push("the host of this virtual machine gives what it gave in these seconds".to_owned());
    }
    if target.path.is_some() && !target.saw_all {
        found.push(format!(
            "no directory is larger than those seen: the time was enough for {} of them",
            measure::numbers::count_text(target.directories_seen)
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MountFacts;

    #[test]
    fn an_ext4_names_the_command_for_root_and_memory_assumes_little() {
        let mut facts = Facts::default();
        facts.target.path = Some("/mnt".into());
        facts.target.saw_all = true;
        let mount = |kind: &str| MountFacts {
            kind: kind.to_owned(),
            source: "/dev/my disk".to_owned(),
            ..MountFacts::default()
        };
        facts.target.mount = Some(mount("ext4"));
        assert!(assumed(&facts)[0].contains("dumpe2fs -h '/dev/my disk'"), "{:?}", assumed(&facts));
        let of_root = |facts: &Facts| assumed(facts).iter().any(|sentence| sentence.contains("root"));
        assert!(of_root(&facts));
        facts.machine.is_root = true;
        assert!(!of_root(&facts), "root needs no advice to be root: {:?}", assumed(&facts));
        facts.target.mount = Some(mount("tmpfs"));
        assert_eq!(assumed(&facts), Vec::<String>::new());
    }
}
