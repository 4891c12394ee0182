//! Every measured request by itself: kept in memory while a load point is measured, written to a file after it.
//!
//! ```text
//! point,operation,due_ns,latency_ns,outcome
//! 1,read,20000,181302,ok                       20 us after the interval began it was due, and answered 181 us later
//! ```
//!
//! A line for each request that was due within the interval and came to an end, in the order of these ends. What succeeded
//! is what the histograms of the record are made of, to the nanosecond. What was never answered has no line.
//!
//! Always holds: nothing is written, and no memory that was foreseen is taken, while load is offered; a load point stands
//! in the file whole or not at all, and once. One that is measured again comes behind the others.
//! Not here: which requests count (see `metronome`).

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write as _};
use std::mem;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use files::{OpKind, Outcome};

use super::tally::problem_name;
use crate::error::FstressError;

const HEADER: &str = "point,operation,due_ns,latency_ns,outcome\n";
/// Samples that memory is taken for at a time: 1.5 MB, so that one more costs a measured interval some microseconds.
const CHUNK: usize = 1 << 16;
const CHUNKS_MAX: usize = 640;
/// Samples of one rank and load point: a gigabyte of memory, and about as much again for each load point in the file.
const SAMPLES_MAX: u64 = (CHUNK * CHUNKS_MAX) as u64;
const WRITE_BYTES: usize = 1 << 20;
const OK: &str = "ok";

#[derive(Clone, Copy)]
struct Sample {
    due_ns: u64,
    latency_ns: u64,
    kind: OpKind,
    /// By its place in `outcomes`.
    outcome: u8,
}

/// The requests of one load point, in memory.
pub(crate) struct Samples {
    full: Vec<Vec<Sample>>,
    current: Vec<Sample>,
    spare: Vec<Vec<Sample>>,
    left_out: u64,
    outcomes: Vec<Cow<'static, str>>,
}

impl Samples {
    fn new() -> Self {
        Self {
            full: Vec::new(),
            current: Vec::with_capacity(CHUNK),
            spare: Vec::new(),
            left_out: 0,
            outcomes: vec![Cow::Borrowed(OK)],
        }
    }

    /// Keeps how a request ended that was due so long after the interval began.
    #[inline]
    pub fn push(&mut self, kind: OpKind, due: Duration, latency: Duration, outcome: &Outcome<'_>) {
        if self.current.len() == CHUNK && !self.turn() {
            self.left_out += 1;
            return;
        }
        let outcome = problem_name(outcome).map_or(0, |name| self.number_of(name));
        let (due_ns, latency_ns) = (due.as_nanos() as u64, latency.as_nanos() as u64);
        self.current.push(Sample { due_ns, latency_ns, kind, outcome });
    }

    #[cold]
    fn turn(&mut self) -> bool {
        if self.full.len() + 1 == CHUNKS_MAX {
            return false;
        }
        let next = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(CHUNK));
        self.full.push(mem::replace(&mut self.current, next));
        true
    }

    #[cold]
    fn number_of(&mut self, name: Cow<'static, str>) -> u8 {
        let known = self.outcomes.iter().position(|known| *known == name);
        let number = known.unwrap_or_else(|| {
            // Protocols have some dozens of names for what goes wrong. A server that makes up more gets the last of these.
            if self.outcomes.len() <= usize::from(u8::MAX) {
                self.outcomes.push(name);
            }
            self.outcomes.len() - 1
        });
        number as u8
    }

    /// Drops all samples and reserves memory for `expected`; the kernel provides it at the first write.
    fn begin(&mut self, expected: u64) {
        self.left_out = 0;
        self.current.clear();
        let used = self.full.drain(..).map(|mut chunk| {
            chunk.clear();
            chunk
        });
        self.spare.extend(used);
        let chunks = usize::try_from(expected).unwrap_or(usize::MAX).div_ceil(CHUNK).min(CHUNKS_MAX);
        while self.spare.len() + 1 < chunks {
            let touched = Sample { due_ns: u64::MAX, latency_ns: 0, kind: OpKind::Null, outcome: 0 };
            let mut chunk = vec![touched; CHUNK];
            chunk.clear();
            self.spare.push(chunk);
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Sample> {
        self.full.iter().flatten().chain(&self.current)
    }
}

/// The file of one rank.
pub(crate) struct RawFile {
    path: PathBuf,
    file: File,
    /// Load points in the order of the file: number, and where it begins.
    sections: Vec<(u32, u64)>,
    /// Of the load point under way.
    pub samples: Samples,
}

impl RawFile {
    /// Begins `PREFIX-rank-N.csv`, and the folder that it is to lie in, but none above that. `rates` are this rank's load points, where they are
    /// known, each `measured` for so long.
    pub fn create(prefix: &Path, rank: u32, rates: &[f64], measured: Duration) -> Result<Self, FstressError> {
        for &rate in rates {
            fits(rate, measured)?;
        }
        let mut path = prefix.as_os_str().to_owned();
        path.push(format!("-rank-{rank}.csv"));
        let path = PathBuf::from(path);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let make = |folder: &Path| match std::fs::create_dir(folder) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let above = folder.parent().unwrap_or(folder).display();
                Err(std::io::Error::new(
                    std::io::ErrorKind::NotFound,
                    format!("there is no directory {above}; make it (mkdir -p {above})"),
                ))
            }
            made => made,
        };
        let made = folder.map_or(Ok(()), make).and_then(|()| File::create_new(&path));
        let begun = made.and_then(|mut file| file.write_all(HEADER.as_bytes()).map(|()| file));
        match begun {
            Ok(file) => Ok(Self { path, file, sections: Vec::new(), samples: Samples::new() }),
            Err(source) => Err(FstressError::Raw { path, source }),
        }
    }

    /// Prepares for a load point of `rate` requests per second, if that is known.
    pub fn begin(&mut self, rate: Option<f64>, measured: Duration) -> Result<(), FstressError> {
        let expected = rate.map_or(Ok(0), |rate| fits(rate, measured))?;
        self.samples.begin(expected);
        Ok(())
    }

    /// Writes load point `number` at the end of the file, and takes out what it had of that number.
    pub fn write(&mut self, number: u32) -> Result<(), FstressError> {
        if self.samples.left_out > 0 {
            return Err(too_many(SAMPLES_MAX + self.samples.left_out));
        }
        let written = self.take_out(number).and_then(|()| {
            let begin = self.file.stream_position()?;
            self.sections.push((number, begin));
            self.write_lines(number).inspect_err(|_| {
                // The disk may be full, which hinders nobody from giving some of it back.
                let _ = self.cut_at(begin);
            })
        });
        written.map_err(|source| FstressError::Raw { path: self.path.clone(), source })
    }

    /// Takes out a load point, if the file has it: what is behind it moves up.
    fn take_out(&mut self, number: u32) -> io::Result<()> {
        let Some(place) = self.sections.iter().position(|section| section.0 == number) else { return Ok(()) };
        let (_, begin) = self.sections.remove(place);
        let end = self.file.stream_position()?;
        let behind = self.sections.get(place).map_or(end, |section| section.1);
        let (mut from, mut to) = (behind, begin);
        let mut block = vec![0; WRITE_BYTES];
        while from < end {
            let bytes = block.len().min(usize::try_from(end - from).unwrap_or(usize::MAX));
            self.file.read_exact_at(&mut block[..bytes], from)?;
            self.file.write_all_at(&block[..bytes], to)?;
            (from, to) = (from + bytes as u64, to + bytes as u64);
        }
        self.sections[place..].iter_mut().for_each(|section| section.1 -= behind - begin);
        self.cut_at(to).map(drop)
    }

    fn cut_at(&mut self, begin: u64) -> io::Result<u64> {
        self.file.set_len(begin)?;
        self.file.seek(SeekFrom::Start(begin))
    }

    fn write_lines(&mut self, number: u32) -> io::Result<()> {
        let mut to = BufWriter::with_capacity(WRITE_BYTES, &self.file);
        for Sample { due_ns, latency_ns, kind, outcome } in self.samples.iter() {
            let outcome = &self.samples.outcomes[usize::from(*outcome)];
            writeln!(to, "{number},{},{due_ns},{latency_ns},{outcome}", kind.name())?;
        }
        to.flush()
    }
}

impl Drop for RawFile {
    fn drop(&mut self) {
        // Nothing was measured.
        if self.sections.is_empty() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// How many requests there will be, when they can be kept.
fn fits(rate: f64, measured: Duration) -> Result<u64, FstressError> {
    let expected = (rate * measured.as_secs_f64()).ceil() as u64;
    if expected > SAMPLES_MAX { Err(too_many(expected)) } else { Ok(expected) }
}

fn too_many(samples: u64) -> FstressError {
    FstressError::TooManySamples { samples, samples_max: SAMPLES_MAX }
}

#[cfg(test)]
mod tests {
    use files::{Reply, Status};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn lines(raw: &RawFile) -> Vec<String> {
        std::fs::read_to_string(&raw.path).unwrap().lines().skip(1).map(str::to_owned).collect()
    }

    #[test]
    fn a_load_point_measured_anew_stands_in_the_file_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut raw = RawFile::create(&folder.path().join("new/run"), 2, &[], MS).unwrap();
        assert!(raw.path.ends_with("new/run-rank-2.csv"));
        let measure = |raw: &mut RawFile, number: u32, kind, latencies: &[u64]| {
            raw.begin(None, MS).unwrap();
            for &ns in latencies {
                raw.samples.push(kind, MS, Duration::from_nanos(ns), &Outcome::Ok(Reply::Null));
            }
            raw.write(number).unwrap();
        };
        measure(&mut raw, 1, OpKind::Read, &[5, 6]);
        measure(&mut raw, 2, OpKind::Write, &[700_000; 1000]);
        measure(&mut raw, 2, OpKind::Null, &[8]);
        measure(&mut raw, 3, OpKind::Null, &[9]);
        let of_kind = |kind: OpKind, ns, number| format!("{number},{},1000000,{ns},ok", kind.name());
        let told = [(OpKind::Read, 5, 1), (OpKind::Read, 6, 1), (OpKind::Null, 8, 2), (OpKind::Null, 9, 3)];
        assert_eq!(lines(&raw), told.map(|(kind, ns, number)| of_kind(kind, ns, number)));
        measure(&mut raw, 1, OpKind::Write, &[7; 3]);
        measure(&mut raw, 2, OpKind::Read, &[10]);
        let mut expected = vec![of_kind(OpKind::Null, 9, 3)];
        expected.extend([7; 3].map(|ns| of_kind(OpKind::Write, ns, 1)));
        expected.push(of_kind(OpKind::Read, 10, 2));
        assert_eq!(lines(&raw), expected, "those measured again after a later one are at the end");
        // Nobody's samples are written over.
        assert!(RawFile::create(&folder.path().join("new/run"), 2, &[], MS).is_err());
        // A mistyped path makes no tree of directories.
        let refused = RawFile::create(&folder.path().join("no/such/run"), 2, &[], MS).err().unwrap();
        let why = std::error::Error::source(&refused).unwrap().to_string();
        assert!(why.contains("mkdir -p") && !folder.path().join("no").exists(), "{why}");
    }

    #[test]
    fn what_goes_wrong_is_told_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut raw = RawFile::create(&folder.path().join("run"), 0, &[], MS).unwrap();
        let outcomes = [
            Outcome::Cancelled,
            Outcome::Failed(Status::STALE),
            Outcome::Lost,
            Outcome::Failed(Status::STALE),
        ];
        outcomes.iter().for_each(|outcome| raw.samples.push(OpKind::Read, MS, MS, outcome));
        raw.write(1).unwrap();
        let ends: Vec<String> =
            lines(&raw).iter().map(|line| line.rsplit(',').next().unwrap().to_owned()).collect();
        assert_eq!(ends, ["CANCELLED", "NFS3ERR_STALE", "CONNECTION_LOST", "NFS3ERR_STALE"]);
        (20_000..21_000)
            .for_each(|status| raw.samples.push(OpKind::Read, MS, MS, &Outcome::Failed(Status(status))));
        assert_eq!(raw.samples.outcomes.len(), 256, "a server may make up what it likes");
    }

    #[test]
    fn more_samples_than_memory_is_meant_for_are_refused_and_never_written_in_part() {
        let folder = tempfile::tempdir().unwrap();
        let (prefix, second) = (folder.path().join("run"), Duration::from_secs(1));
        let most = SAMPLES_MAX as f64;
        let refused = RawFile::create(&prefix, 0, &[1.0, most + 1.0], second).err().unwrap().to_string();
        assert!(refused.contains("41943041 requests"), "{refused}");
        assert!(!prefix.with_file_name("run-rank-0.csv").exists(), "nothing was begun");

        let mut raw = RawFile::create(&prefix, 0, &[most], second).unwrap();
        raw.samples.push(OpKind::Read, MS, MS, &Outcome::Ok(Reply::Null));
        // As after as many as there may be.
        raw.samples.left_out = 3;
        let refused = raw.write(1).unwrap_err().to_string();
        assert!(refused.contains("41943043 requests"), "{refused}");
        assert!(lines(&raw).is_empty());
        assert!(raw.begin(Some(most * 2.0), second).is_err());
        let path = raw.path.clone();
        drop(raw);
        assert!(!path.exists(), "nothing was measured, and nothing is left");
    }

    #[test]
    fn memory_is_taken_before_the_load_point_and_no_more_than_there_may_be() {
        let mut samples = Samples::new();
        samples.begin(3 * CHUNK as u64);
        assert_eq!(samples.spare.len(), 2);
        for n in 0..4 * CHUNK as u64 {
            samples.push(OpKind::Null, MS, Duration::from_nanos(n), &Outcome::Ok(Reply::Null));
        }
        let rising = samples.iter().map(|sample| sample.latency_ns).eq(0..4 * CHUNK as u64);
        assert!(rising && samples.left_out == 0);
        samples.begin(0);
        assert_eq!((samples.iter().count(), samples.spare.len()), (0, 3));
        samples.full = (1..CHUNKS_MAX).map(|_| Vec::new()).collect();
        for _ in 0..CHUNK + 2 {
            samples.push(OpKind::Null, MS, MS, &Outcome::Ok(Reply::Null));
        }
        assert_eq!((samples.iter().count(), samples.left_out), (CHUNK, 2));
    }
}
