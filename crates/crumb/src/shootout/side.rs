//! The targets of a shootout, each with a short name: `ssd=/mnt/ssd`, or a target alone, which gets a name of its own.

use std::str::FromStr;

use anyhow::anyhow;
use files::Target;

use crate::exit::BadUsage;

/// A target and what to call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// Short, and no other side has it.
    pub name: String,
    /// As given.
    pub target: Target,
}

/// A side as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    name: Option<String>,
    target: Target,
}

/// Longest name: three columns of it fit a terminal.
const NAME_LETTERS_MAX: usize = 16;

impl FromStr for Named {
    type Err = measure::ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // What begins as a path or URL does has no name, whatever stands behind.
        let named =
            text.split_once('=').filter(|(name, _)| !name.contains(['/', ':']) && !name.starts_with('.'));
        let (name, target) = named.map_or((None, text), |(name, target)| (Some(name), target));
        let target = Target::from_str(target).map_err(|wrong| wrong.to_string())?;
        if target == Target::Null {
            return Err("null: has no files to work on; name directories, nfs:// or pack: targets".into());
        }
        match name {
            Some("") => Err("expected a name in front of the =, such as ssd=/mnt/ssd".into()),
            Some(name) if name.chars().count() > NAME_LETTERS_MAX => {
                Err(format!("the name {name} has more than {NAME_LETTERS_MAX} letters").into())
            }
            name => Ok(Self { name: name.map(str::to_owned), target }),
        }
    }
}

/// The sides, each with a name.
///
/// # Errors
/// When two have one name, or are one target.
pub fn sides(typed: &[Named]) -> anyhow::Result<Vec<Side>> {
    let mut sides: Vec<Side> = Vec::with_capacity(typed.len());
    for (at, one) in typed.iter().enumerate() {
        let own = one.name.clone().unwrap_or_else(|| short_name(&one.target));
        let is_taken = |name: &str| sides.iter().any(|side| side.name == name);
        let name = match (&one.name, is_taken(&own)) {
            (_, false) => own,
            (Some(name), true) => {
                let wrong =
                    anyhow!("two targets are called {name}; give each a name of its own: NAME=TARGET");
                return Err(wrong.context(BadUsage));
            }
            (None, true) => format!("{own}-{}", at + 1),
        };
        if let Some(same) = sides.iter().find(|side| side.target == one.target) {
            let wrong = anyhow!(
                "{} is named twice, as {} and as {name}; name each target once",
                one.target,
                same.name
            );
            return Err(wrong.context(BadUsage));
        }
        sides.push(Side { name, target: one.target.clone() });
    }
    Ok(sides)
}

/// The end of a path, or the host.
fn short_name(target: &Target) -> String {
    let name = match target {
        Target::Directory(path) | Target::Pack(path) => {
            path.file_name().map(|name| name.to_string_lossy().into_owned())
        }
        Target::Nfs(nfs) => Some(nfs.host.clone()),
        Target::Null => None,
    };
    name.unwrap_or_else(|| target.to_string()).chars().take(NAME_LETTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(typed: &[&str]) -> anyhow::Result<Vec<String>> {
        let typed: Vec<Named> = typed.iter().map(|text| text.parse().unwrap()).collect();
        Ok(sides(&typed)?.into_iter().map(|side| side.name).collect())
    }

    #[test]
    fn a_target_without_a_name_is_called_by_its_path_or_host_and_no_two_alike() {
        let typed = ["/mnt/ssd", "fast=/mnt/b", "nfs://filer:2049/vol", "pack:/srv/ssd", "./a=b"];
        assert_eq!(names(&typed).unwrap(), ["ssd", "fast", "filer", "ssd-4", "a=b"]);
    }

    #[test]
    fn names_and_targets_that_come_twice_are_refused_with_what_to_do() {
        let wrong = names(&["a=/x", "a=/y"]).unwrap_err();
        assert!(format!("{wrong:#}").contains("NAME=TARGET"), "{wrong:#}");
        assert!(format!("{:#}", names(&["/x", "b=/x"]).unwrap_err()).contains("twice"));
        assert!("=/x".parse::<Named>().is_err() && "null:".parse::<Named>().is_err());
        assert!(format!("{}=/x", "n".repeat(17)).parse::<Named>().is_err());
    }
}
