//! Request chains: requests on one file, each sent when the one before was answered.
//!
//! ```text
//! [chains]
//! lookup-read = 20            of what the schedule offers, in the same unit as [mix]
//! create-write-commit = 5
//! lookup-truncate-write = 2
//! ```
//!
//! A chain counts once in what is offered: the schedule sends its first request, and the later ones follow the replies. Each
//! request counts in the latencies. A request that fails ends its chain; what is not sent then is counted.
//!
//! Always holds: a chain has 2 to [`STEPS_MAX`] steps; a file is made by the first one or not at all.
//! Not here: which file a chain works on and which bytes it moves (`planner::chains`).
//! Source: Anderson, "Fstress", section 3.3 (request dependencies), which names lookup-truncate-write as what it lacks.

use files::OpKind;

use super::mix::Mix;
use crate::error::ValueProblem;

/// Most requests of a chain.
pub const STEPS_MAX: usize = 8;
/// Most chains of a workload.
pub const CHAINS_MAX: usize = 8;

/// One request of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Looks the file up by name; the handle of the reply is what the later steps use.
    Lookup,
    /// Makes a file, whose handle the later steps use.
    Create,
    /// Reads the attributes.
    Getattr,
    /// Changes times and mode.
    Setattr,
    /// Cuts the file to no bytes: a setattr of the size.
    Truncate,
    /// Checks rights.
    Access,
    /// Reads on from where the read before ended.
    Read,
    /// Writes on from where the write before ended.
    Write,
    /// Makes safe what was written.
    Commit,
}

const NAMES: [(&str, Step, OpKind); 9] = [
    ("lookup", Step::Lookup, OpKind::Lookup),
    ("create", Step::Create, OpKind::Create),
    ("getattr", Step::Getattr, OpKind::Getattr),
    ("setattr", Step::Setattr, OpKind::Setattr),
    ("truncate", Step::Truncate, OpKind::Setattr),
    ("access", Step::Access, OpKind::Access),
    ("read", Step::Read, OpKind::Read),
    ("write", Step::Write, OpKind::Write),
    ("commit", Step::Commit, OpKind::Commit),
];

impl Step {
    /// Name of a step in workload files.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, step, _)| *step == self).map_or("", |(name, ..)| name)
    }

    /// The operation that is sent.
    pub fn kind(self) -> OpKind {
        NAMES.iter().find(|(_, step, _)| *step == self).map_or(OpKind::Null, |(.., kind)| *kind)
    }
}

/// A chain and how often it is offered.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    steps: Vec<Step>,
    weight: f64,
}

impl Chain {
    /// Reads a name such as `lookup-truncate-write`; `weight` is in the unit of the mix.
    pub fn new(name: &str, weight: f64) -> Result<Self, ValueProblem> {
        let known = || NAMES.map(|(name, ..)| name).join(", ");
        let step = |word: &str| {
            let found = NAMES.iter().find(|(name, ..)| *name == word).map(|(_, step, _)| *step);
            found.ok_or_else(|| ValueProblem::new(word, format_args!("a request of a chain: {}", known())))
        };
        let steps = name.split('-').map(step).collect::<Result<Vec<_>, _>>()?;
        if !(2..=STEPS_MAX).contains(&steps.len()) {
            let expected =
                format_args!("2 to {STEPS_MAX} requests joined by hyphens, such as lookup-read").to_string();
            return Err(ValueProblem::new(name, expected));
        }
        if steps[1..].contains(&Step::Create) {
            return Err(ValueProblem::new(name, "create as the first request of a chain only"));
        }
        if !weight.is_finite() || weight < 0.0 {
            return Err(ValueProblem::new(weight, "a number of 0 or more"));
        }
        Ok(Self { steps, weight })
    }

    /// Its requests in their order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// How often it is offered, in the unit of the mix.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// As in workload files.
    pub fn name(&self) -> String {
        self.steps.iter().map(|step| step.name()).collect::<Vec<_>>().join("-")
    }
}

/// Whether any of `chains` has this operation.
pub(crate) fn have(chains: &[Chain], op: OpKind) -> bool {
    chains.iter().any(|chain| chain.weight > 0.0 && chain.steps.iter().any(|step| step.kind() == op))
}

/// The shares of all requests that are sent: those of the mix, and those of the chains, which send several for each time that
/// they are offered.
pub(crate) fn requests(mix: &Mix, chains: &[Chain]) -> Mix {
    if chains.is_empty() {
        return mix.clone();
    }
    let weight = |op: OpKind| {
        let of_chain =
            |chain: &Chain| chain.weight * chain.steps.iter().filter(|step| step.kind() == op).count() as f64;
        mix.total_as_written() * mix.share(op) + chains.iter().map(of_chain).sum::<f64>()
    };
    let rows = OpKind::ALL.into_iter().map(|op| (op, weight(op))).filter(|(_, weight)| *weight > 0.0);
    Mix::new(rows).unwrap_or_else(|_| mix.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_read_from_its_name_and_has_it_again() {
        let chain = Chain::new("lookup-truncate-write", 2.0).unwrap();
        assert_eq!(chain.steps(), [Step::Lookup, Step::Truncate, Step::Write]);
        assert_eq!(chain.name(), "lookup-truncate-write");
    }

    #[test]
    fn what_is_no_chain_is_refused_with_what_would_be_one() {
        let wrong = |name: &str| Chain::new(name, 1.0).unwrap_err().to_string();
        assert!(wrong("lookup-reed").contains("truncate"), "{}", wrong("lookup-reed"));
        assert!(wrong("lookup").contains("joined by hyphens"));
        assert!(wrong("lookup-create").contains("first request"));
        assert!(wrong(&["read"; 9].join("-")).contains("2 to 8"));
        assert!(Chain::new("lookup-read", -1.0).is_err());
    }

    #[test]
    fn requests_count_each_step_of_a_chain() {
        let mix = Mix::new([(OpKind::Getattr, 50.0)]).unwrap();
        let chains = [Chain::new("lookup-read-read", 50.0).unwrap()];
        let requests = requests(&mix, &chains);
        assert_eq!(requests.share(OpKind::Getattr), 0.25);
        assert_eq!(requests.share(OpKind::Lookup), 0.25);
        assert_eq!(requests.share(OpKind::Read), 0.5);
    }
}
