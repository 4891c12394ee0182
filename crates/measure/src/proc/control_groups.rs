//! The control groups around a process, versions 1 and 2.

use std::fs;
use std::path::{Path, PathBuf};

/// Groups that a process is in: one tree in version 2, one for each controller in version 1, both at once on some machines.
#[derive(Clone, Debug, Default)]
pub struct ControlGroups {
    root: PathBuf,
    /// Controllers, empty in version 2, and the path below the mounted tree.
    groups: Vec<(String, String)>,
}

impl ControlGroups {
    /// Those of this process.
    pub fn of_this_process() -> Self {
        Self::below(Path::new("/"))
    }

    /// The same by files under `root`, such as a test's.
    pub fn below(root: &Path) -> Self {
        let membership = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        // number:controllers:path
        let of_line = |line: &str| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            Some((controllers.to_owned(), path.to_owned()))
        };
        Self { root: root.to_owned(), groups: membership.lines().filter_map(of_line).collect() }
    }

    /// Directories of the group in version 2 and of those around it, innermost first. A limit is in force when any of them has it.
    /// In a container its own group is often the topmost that is seen.
    pub fn version_2(&self) -> Vec<PathBuf> {
        self.around("sys/fs/cgroup", str::is_empty)
    }

    /// The same in version 1, in the tree of a controller such as `memory` or `cpu`.
    pub fn version_1(&self, controller: &str) -> Vec<PathBuf> {
        let is_its = |controllers: &str| controllers.split(',').any(|name| name == controller);
        self.around(&format!("sys/fs/cgroup/{controller}"), is_its)
    }

    fn around(&self, tree: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let Some((_, path)) = self.groups.iter().find(|(controllers, _)| is_wanted(controllers)) else {
            return Vec::new();
        };
        let group = PathBuf::from(format!("{tree}{path}"));
        let around = group.ancestors().filter(|directory| directory.starts_with(tree));
        around.map(|directory| self.root.join(directory)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(membership: &str) -> ControlGroups {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(root.path().join("proc/self/cgroup"), membership).unwrap();
        ControlGroups { root: PathBuf::from("/r"), ..ControlGroups::below(root.path()) }
    }

    fn paths(paths: &[&str]) -> Vec<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn a_group_is_within_those_around_it_up_to_the_top_of_its_tree() {
        let v2 = groups("0::/system.slice/crumb.service\n");
        let expected = [
            "/r/sys/fs/cgroup/system.slice/crumb.service",
            "/r/sys/fs/cgroup/system.slice",
            "/r/sys/fs/cgroup",
        ];
        assert_eq!(v2.version_2(), paths(&expected));
        assert!(v2.version_1("memory").is_empty());
    }

    #[test]
    fn each_controller_of_version_1_has_a_tree_of_its_own() {
        let v1 = groups("5:memory:/a\n4:cpuacct,cpu:/docker/1f\n0::/\n");
        let expected =
            ["/r/sys/fs/cgroup/cpu/docker/1f", "/r/sys/fs/cgroup/cpu/docker", "/r/sys/fs/cgroup/cpu"];
        assert_eq!(v1.version_1("cpu"), paths(&expected));
        assert_eq!(v1.version_1("memory"), paths(&["/r/sys/fs/cgroup/memory/a", "/r/sys/fs/cgroup/memory"]));
        assert_eq!(v1.version_2(), paths(&["/r/sys/fs/cgroup"]));
    }

    #[test]
    fn a_machine_without_control_groups_has_none() {
        assert!(groups("").version_2().is_empty());
        assert!(groups("what is this\n").version_1("cpu").is_empty());
        ControlGroups::of_this_process();
    }
}
