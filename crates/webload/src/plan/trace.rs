//! Recorded requests: logs of web servers and proxies, and sequences of object ids.
//!
//! | format | a line | times |
//! |---|---|---|
//! | `tsv` | named columns, as of the NASA logs: `host logname time method url response bytes …` | seconds |
//! | `common` | Common Log Format: `host - - [day/Mon/year:h:m:s zone] "GET url HTTP/1.0" 200 1713` | seconds |
//! | `squid` | Squid's native: `time elapsed client code/status bytes method url …` | milliseconds |
//! | `ids` | 4 bytes, an id, big-endian; no line ends | none |
//!
//! Files may be packed with gzip (by its first bytes) or zstd (`zstd` is called).
//!
//! Always holds: an object has the largest size that the trace shows for its URL, so that the origin can
//! make it from the URL alone; only successful GETs are replayed; a line that is not a request is reported by its number.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use xxhash_rust::xxh3::xxh3_64;

use super::object::Object;
use super::{Class, Planned, Share};
use crate::error::WebloadError;

/// How a trace is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// Tab-separated with a line of names.
    Tsv,
    /// Common Log Format, or combined.
    Common,
    /// Squid's native access log.
    Squid,
    /// Big-endian 32-bit ids.
    Ids,
}

impl FromStr for TraceFormat {
    type Err = measure::ValueError;

    fn from_str(text: &str) -> Result<Self, measure::ValueError> {
        match text {
            "tsv" => Ok(Self::Tsv),
            "common" => Ok(Self::Common),
            "squid" => Ok(Self::Squid),
            "ids" => Ok(Self::Ids),
            _ => Err(format!("`{text}`: expected tsv, common, squid or ids").into()),
        }
    }
}

/// A trace in memory.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Ends of URLs, one after the other.
    text: String,
    objects: Vec<(Object, (u32, u32))>,
    /// Since the first one, and which object.
    requests: Vec<(Duration, u32)>,
    /// Lines that were no request to replay: other methods, errors.
    skipped: u64,
    has_times: bool,
}

/// Lines and ids beyond this are not read: they would not fit in memory beside anything else.
const REQUESTS_MAX: usize = 200_000_000;
/// A URL's end beyond this is cut off; the object stays the URL's own.
const TAIL_BYTES_MAX: usize = 1024;
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

impl Trace {
    /// Reads a file. If the format is not given, its name and first line decide. Objects of a trace without
    /// sizes have `mean_bytes` on average.
    ///
    /// # Errors
    /// When it cannot be read, a line is no request, or none can be replayed.
    pub fn read(path: &Path, format: Option<TraceFormat>, mean_bytes: u64) -> Result<Self, WebloadError> {
        let broken = |source| WebloadError::Trace { path: path.to_owned(), source };
        let mut input = BufReader::with_capacity(1 << 20, unpacked(path).map_err(broken)?);
        let begin = input.fill_buf().map_err(broken)?;
        let format = format.unwrap_or_else(|| guessed(path, begin));
        let mut reader = Reader { trace: Self::default(), known: HashMap::new(), mean_bytes, last: None };
        match format {
            TraceFormat::Ids => {
                let mut id = [0; 4];
                while reader.trace.requests.len() < REQUESTS_MAX {
                    match input.read_exact(&mut id) {
                        Ok(()) => reader.id(u32::from_be_bytes(id)),
                        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
                        Err(error) => return Err(broken(error)),
                    }
                }
            }
            _ => reader.lines(input, format, path)?,
        }
        let mut trace = reader.trace;
        trace.has_times = format != TraceFormat::Ids;
        if trace.requests.is_empty() {
            let expected = "expected lines of a web log with GET and status 200 or 304, or ids of 4 bytes";
            return Err(WebloadError::EmptyTrace { path: path.to_owned(), expected });
        }
        trace.spread_within_seconds();
        Ok(trace)
    }

    /// Requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there is none; never true of a trace that was read.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Different objects.
    pub fn objects(&self) -> usize {
        self.objects.len()
    }

    /// Sum of the objects' sizes.
    pub fn object_bytes(&self) -> u64 {
        self.objects.iter().map(|(object, _)| object.size_bytes).sum()
    }

    /// Lines left out.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Whether it says when.
    pub fn has_times(&self) -> bool {
        self.has_times
    }

    /// From the first request to the last.
    pub fn span(&self) -> Duration {
        self.requests.last().map_or(Duration::ZERO, |(at, _)| *at)
    }

    /// Divides all times by `times`.
    pub fn faster(mut self, times: f64) -> Self {
        self.requests.iter_mut().for_each(|(at, _)| *at = at.div_f64(times));
        self
    }

    /// Logs with whole seconds would come in bursts.
    fn spread_within_seconds(&mut self) {
        if self.requests.iter().any(|(at, _)| at.subsec_nanos() != 0) {
            return;
        }
        for second in self.requests.chunk_by_mut(|a, b| a.0 == b.0) {
            let count = second.len() as u32;
            for (number, (at, _)) in second.iter_mut().enumerate() {
                *at += Duration::from_secs(1) * number as u32 / count;
            }
        }
    }
}

/// What a line says.
struct Line<'a> {
    time_s: f64,
    method: &'a str,
    url: &'a str,
    status: &'a str,
    bytes: &'a str,
}

struct Reader {
    trace: Trace,
    /// Objects by the hash of their URL.
    known: HashMap<u64, u32>,
    mean_bytes: u64,
    /// The first time, and the last offset.
    last: Option<(f64, Duration)>,
}

impl Reader {
    fn id(&mut self, id: u32) {
        let object = Object::of_mean(u64::from(id), self.mean_bytes);
        let number = *self.known.entry(u64::from(id)).or_insert_with(|| {
            self.trace.objects.push((object, (0, 0)));
            self.trace.objects.len() as u32 - 1
        });
        self.trace.requests.push((Duration::ZERO, number));
    }

    fn lines(
        &mut self,
        mut input: impl std::io::BufRead,
        format: TraceFormat,
        path: &Path,
    ) -> Result<(), WebloadError> {
        let mut columns = None;
        let (mut raw, mut number) = (Vec::new(), 0);
        loop {
            raw.clear();
            // A line without an end does not take all memory.
            let read = input.by_ref().take(1 << 20).read_until(b'\n', &mut raw);
            if read.map_err(|source| WebloadError::Trace { path: path.to_owned(), source })? == 0
                || self.trace.requests.len() >= REQUESTS_MAX
            {
                return Ok(());
            }
            number += 1;
            let text = String::from_utf8_lossy(&raw);
            let text = text.trim_end_matches(['\r', '\n']);
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let line = match (format, &columns) {
                (TraceFormat::Tsv, None) => {
                    columns =
                        Some(Columns::of(text).map_err(|problem| wrong(path, number, problem.to_string()))?);
                    continue;
                }
                (TraceFormat::Tsv, Some(columns)) => columns.line(text),
                (TraceFormat::Squid, _) => squid(text),
                _ => common(text),
            };
            let line = line.ok_or_else(|| wrong(path, number, expected(format).to_owned()))?;
            self.request(&line);
        }
    }

    fn request(&mut self, line: &Line<'_>) {
        let status: u16 = line.status.parse().unwrap_or(0);
        if line.method != "GET" || !matches!(status, 200 | 304) {
            self.trace.skipped += 1;
            return;
        }
        let bytes: u64 = line.bytes.parse().unwrap_or(0);
        let hash = xxh3_64(line.url.as_bytes());
        let number = *self.known.entry(hash).or_insert_with(|| {
            let from = self.trace.text.len();
            let tail = tail_of(line.url);
            if from + tail.len() <= u32::MAX as usize {
                self.trace.text.push_str(&tail);
            }
            let len = self.trace.text.len() - from;
            self.trace.objects.push((Object::fixed(hash, bytes.max(1)), (from as u32, len as u32)));
            self.trace.objects.len() as u32 - 1
        });
        let (object, _) = &mut self.trace.objects[number as usize];
        if status == 200 && bytes > object.size_bytes {
            *object = Object::fixed(hash, bytes);
        }
        let (first_s, last) = *self.last.get_or_insert((line.time_s, Duration::ZERO));
        // Logs are written when a request ends, so lines may be a little out of order.
        let at = Duration::try_from_secs_f64(line.time_s - first_s).unwrap_or_default().max(last);
        self.last = Some((first_s, at));
        self.trace.requests.push((at, number));
    }
}

fn wrong(path: &Path, line: u64, problem: String) -> WebloadError {
    WebloadError::TraceLine { path: path.to_owned(), line, problem }
}

fn expected(format: TraceFormat) -> &'static str {
    match format {
        TraceFormat::Tsv => "expected as many tab-separated fields as the first line names",
        TraceFormat::Squid => {
            "expected Squid's native log: time elapsed client code/status bytes method url …"
        }
        _ => {
            "expected Common Log Format: host - - [10/Oct/2000:13:55:36 -0700] \"GET /url HTTP/1.0\" 200 1713"
        }
    }
}

/// The path of a URL, with no letter that a request line cannot hold.
fn tail_of(url: &str) -> String {
    let path =
        url.split_once("://").map_or(url, |(_, rest)| rest.split_once('/').map_or("", |(_, path)| path));
    let mut tail: String = path
        .trim_start_matches('/')
        .chars()
        .map(|letter| if letter.is_ascii_graphic() && letter != '#' { letter } else { '_' })
        .collect();
    tail.truncate(TAIL_BYTES_MAX);
    tail
}

/// Where the fields of a table are.
struct Columns {
    time: usize,
    method: usize,
    url: usize,
    status: usize,
    bytes: usize,
}

impl Columns {
    fn of(names: &str) -> Result<Self, measure::ValueError> {
        let names: Vec<&str> = names.split('\t').collect();
        let of = |known: &[&str]| {
            names
                .iter()
                .position(|name| known.contains(name))
                .ok_or_else(|| format!("no column `{}`: the first line must name the columns", known[0]))
        };
        Ok(Self {
            time: of(&["time"])?,
            method: of(&["method"])?,
            url: of(&["url"])?,
            status: of(&["response", "status"])?,
            bytes: of(&["bytes", "size"])?,
        })
    }

    fn line<'a>(&self, text: &'a str) -> Option<Line<'a>> {
        let fields: Vec<&str> = text.split('\t').collect();
        let of = |at: usize| fields.get(at).copied();
        Some(Line {
            time_s: of(self.time)?.parse().ok()?,
            method: of(self.method)?,
            url: of(self.url)?,
            status: of(self.status)?,
            bytes: of(self.bytes)?,
        })
    }
}

fn squid(text: &str) -> Option<Line<'_>> {
    let mut fields = text.split_ascii_whitespace();
    let time_s = fields.next()?.parse().ok()?;
    let (_, status) = fields.nth(2)?.split_once('/')?;
    let bytes = fields.next()?;
    Some(Line { time_s, status, bytes, method: fields.next()?, url: fields.next()? })
}

fn common(text: &str) -> Option<Line<'_>> {
    let (_, rest) = text.split_once('[')?;
    let (date, rest) = rest.split_once(']')?;
    let (_, rest) = rest.split_once('"')?;
    // A URL may hold quotes; the status follows the last one that a number follows.
    let (request, rest) = rest.split_once("\" ")?;
    let mut words = request.split(' ');
    let (method, url) = (words.next()?, words.next().unwrap_or("/"));
    let mut fields = rest.split_ascii_whitespace();
    Some(Line { time_s: common_time_s(date)?, method, url, status: fields.next()?, bytes: fields.next()? })
}

/// `10/Oct/2000:13:55:36 -0700`
fn common_time_s(date: &str) -> Option<f64> {
    let text = if date.contains(' ') { date } else { &format!("{date} +0000") };
    Some(jiff::Timestamp::strptime("%d/%b/%Y:%H:%M:%S %z", text).ok()?.as_second() as f64)
}

fn guessed(path: &Path, begin: &[u8]) -> TraceFormat {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let line = begin.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let first = String::from_utf8_lossy(line);
    if name.contains(".bin") || line.contains(&0) {
        TraceFormat::Ids
    } else if Columns::of(first.trim_end()).is_ok() {
        TraceFormat::Tsv
    } else if squid(&first).is_some() {
        TraceFormat::Squid
    } else {
        TraceFormat::Common
    }
}

/// The file's bytes, whatever they are packed with.
fn unpacked(path: &Path) -> std::io::Result<Box<dyn Read>> {
    let mut begin = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut begin)?;
    if begin.starts_with(&GZIP) {
        return Ok(Box::new(MultiGzDecoder::new(BufReader::new(File::open(path)?))));
    }
    if begin != ZSTD {
        return Ok(Box::new(File::open(path)?));
    }
    let unpack =
        Command::new("zstd").args(["-dcq", "--long=27", "--"]).arg(path).stdout(Stdio::piped()).spawn();
    let mut unpack = unpack.map_err(|error| {
        std::io::Error::new(
            error.kind(),
            format!("it is packed with zstd, and `zstd` cannot be run: {error}"),
        )
    })?;
    let output = unpack.stdout.take().expect("its standard output is a pipe");
    Ok(Box::new(Unpacking { output, unpack }))
}

/// The output of a program that is waited for at its end.
struct Unpacking {
    output: std::process::ChildStdout,
    unpack: std::process::Child,
}

impl Read for Unpacking {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.output.read(buffer)?;
        if read == 0 && !buffer.is_empty() && !self.unpack.wait()?.success() {
            return Err(std::io::Error::other("zstd could not unpack it"));
        }
        Ok(read)
    }
}

impl Drop for Unpacking {
    fn drop(&mut self) {
        // It may be done already, or be left in the middle.
        let _ = self.unpack.kill();
        let _ = self.unpack.wait();
    }
}

pub(crate) struct TracePlanner {
    trace: Arc<Trace>,
    share: Share,
    at: usize,
    seen: Vec<bool>,
}

impl TracePlanner {
    pub fn new(trace: Arc<Trace>, share: Share) -> Self {
        let seen = vec![false; trace.objects.len()];
        Self { trace, share, at: 0, seen }
    }

    /// The next request of this generator's; what the others ask for counts as seen when the trace has it earlier.
    pub fn next(&mut self) -> Option<Planned> {
        loop {
            let (due, number) = *self.trace.requests.get(self.at)?;
            let mine = self.at as u64 % self.share.of == self.share.number;
            self.at += 1;
            let is_known = std::mem::replace(&mut self.seen[number as usize], true);
            if mine {
                let (object, tail) = self.trace.objects[number as usize];
                let robot = (self.at % 4096) as u32;
                let class = Class::Plain;
                return Some(Planned {
                    object,
                    class,
                    robot,
                    could_hit: is_known,
                    is_new: !is_known,
                    tail,
                    due,
                });
            }
        }
    }

    pub fn tail(&self, (from, len): (u32, u32)) -> &str {
        &self.trace.text[from as usize..(from + len) as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn read(name: &str, bytes: &[u8]) -> Result<Trace, WebloadError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        Trace::read(&path, None, 1000)
    }

    #[test]
    fn three_logs_of_the_same_requests_are_the_same_trace() {
        let tsv = "host\tlogname\ttime\tmethod\turl\tresponse\tbytes\n\
                   a\t-\t784111777\tGET\t/x y.gif\t200\t1713\nb\t-\t784111779\tGET\t/x y.gif\t304\t0\n\
                   b\t-\t784111779\tPOST\t/p\t200\t9\n";
        let common = "a - - [06/Nov/1994:08:49:37 +0000] \"GET /x%y.gif HTTP/1.0\" 200 1713\n\
                      b - - [06/Nov/1994:03:49:39 -0500] \"GET /x%y.gif HTTP/1.0\" 304 -\n";
        let squid = "784111777.000 12 10.0.0.1 TCP_MISS/200 1713 GET http://a/x_y.gif - DIRECT/a image/gif\n\
                     784111779.000 1 10.0.0.1 TCP_HIT/304 240 GET http://a/x_y.gif - NONE/- -\n";
        for (name, text) in [("a.tsv", tsv), ("b.log", common), ("access.log", squid)] {
            let trace = read(name, text.as_bytes()).unwrap();
            assert_eq!((trace.len(), trace.objects(), trace.object_bytes()), (2, 1, 1713), "{name}");
            assert_eq!(trace.span(), Duration::from_secs(2), "{name}");
            let mut planner = TracePlanner::new(Arc::new(trace), Share { number: 0, of: 1, seed: 1 });
            let (first, second) = (planner.next().unwrap(), planner.next().unwrap());
            assert!(!first.could_hit && second.could_hit && first.object == second.object);
            assert!(planner.tail(first.tail).ends_with("y.gif"), "{name}");
            assert_eq!(planner.next(), None);
        }
    }

    #[test]
    fn ids_packed_with_gzip_are_read_as_they_are() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        [7u32, 9, 7].iter().for_each(|id| packed.write_all(&id.to_be_bytes()).unwrap());
        let trace = read("t.trc.bin.gz", &packed.finish().unwrap()).unwrap();
        assert_eq!((trace.len(), trace.objects(), trace.has_times()), (3, 2, false));
    }

    #[test]
    fn what_is_no_trace_says_in_which_line_and_what_was_expected() {
        let error =
            read("x.log", b"784111777.0 12 10.0.0.1 TCP_MISS/200 1 GET http://a/\nnonsense\n").unwrap_err();
        assert!(error.to_string().contains("x.log:2: expected Squid's native log"), "{error}");
        assert!(read("x.log", b"").unwrap_err().to_string().contains("no request"));
        let error = read("x.log", b"one line of prose\n").unwrap_err();
        assert!(error.to_string().contains("Common Log Format"), "{error}");
    }

    #[test]
    fn requests_of_one_second_are_spread_over_it() {
        let line = "784111777\tGET\t/a\t200\t9\n";
        let trace = read("a.tsv", format!("time\tmethod\turl\tstatus\tbytes\n{}", line.repeat(4)).as_bytes())
            .unwrap();
        assert_eq!(trace.requests[1].0, Duration::from_millis(250));
        assert_eq!(trace.faster(10.0).requests[1].0, Duration::from_millis(25));
    }
}
