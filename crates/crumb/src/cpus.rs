//! Lists of CPUs, such as `2` or `0-3,6`, and keeping this process on them.

use std::str::FromStr;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// CPUs by their numbers, sorted and without repetition; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(Vec<usize>);

impl CpuList {
    /// Keeps the calling thread on these CPUs, and all threads that it will start.
    ///
    /// # Errors
    /// In words, when this process may not run on one of them.
    pub fn pin(&self) -> anyhow::Result<()> {
        let allowed = sched_getaffinity(None)?;
        let mut wanted = CpuSet::new();
        for &cpu in &self.0 {
            if !allowed.is_set(cpu) {
                let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
                anyhow::bail!(
                    "--pin {self}: this process may not run on CPU {cpu}, only on {}",
                    CpuList(usable)
                );
            }
            wanted.set(cpu);
        }
        Ok(sched_setaffinity(None, &wanted)?)
    }
}

impl FromStr for CpuList {
    type Err = measure::ValueError;

    fn from_str(text: &str) -> Result<Self, measure::ValueError> {
        let wrong = || format!("`{text}` is no list of CPUs; write numbers and ranges, such as 2 or 0-3,6");
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| {
                text.parse::<usize>().ok().filter(|&cpu| cpu < CpuSet::MAX_CPU).ok_or_else(wrong)
            };
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong().into());
            }
            cpus.extend(first..=last);
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(Self(cpus))
    }
}

impl std::fmt::Display for CpuList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ranges = self.0.chunk_by(|a, b| a + 1 == *b).map(|range| match range {
            [one] => one.to_string(),
            range => format!("{}-{}", range[0], range[range.len() - 1]),
        });
        f.write_str(&ranges.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_written_shortest() {
        for (typed, shortest) in [("2", "2"), ("0-3,6", "0-3,6"), ("6,1,0,1", "0-1,6"), ("3-3", "3")] {
            assert_eq!(typed.parse::<CpuList>().unwrap().to_string(), shortest);
        }
        for wrong in ["", "x", "3-1", "1,", "-1", "99999999", "0-99999999"] {
            assert!(wrong.parse::<CpuList>().unwrap_err().to_string().contains("such as"), "{wrong}");
        }
    }

    #[test]
    fn a_pinned_thread_stays_where_it_was_put_and_elsewhere_is_refused() {
        let allowed = sched_getaffinity(None).unwrap();
        let mine = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
        std::thread::spawn(move || {
            CpuList(vec![mine]).pin().unwrap();
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
            let error = CpuList(vec![CpuSet::MAX_CPU - 1]).pin().unwrap_err().to_string();
            assert!(error.contains(&format!("only on {mine}")), "{error}");
        })
        .join()
        .unwrap();
    }
}
