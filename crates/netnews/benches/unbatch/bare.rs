//! The system calls that storing a feed cannot do without, and nothing else in the time measured.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use measure::CpuMeter;
use netnews::article::Article;
use netnews::feed::Feed;
use rustix::fs::{AtFlags, Mode, OFlags};

use super::Took;

/// One article: where to, and how many bytes.
struct Plan {
    names: Vec<String>,
    bytes: usize,
}

pub fn run(feed: &Feed, folder: &Path) -> Took {
    let (batches, directories) = plan(feed);
    for directory in &directories {
        std::fs::create_dir_all(folder.join(directory)).expect("a directory");
    }
    let root =
        rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("the folder");
    let mut history = std::fs::File::create(folder.join("history")).expect("a file");
    let longest = batches.iter().flatten().map(|plan| plan.bytes).max().unwrap_or(0);
    let content = vec![b'x'; longest];
    let lines = [b'h'; 90 * 1024];
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut articles = 0;
    let (cpu, begun) = (CpuMeter::start(), Instant::now());
    for batch in &batches {
        for plan in batch {
            let file =
                rustix::fs::openat(&root, &plan.names[0], flags, Mode::from_raw_mode(0o666)).expect("a file");
            rustix::io::write(&file, &content[..plan.bytes]).expect("written");
            drop(file);
            for name in &plan.names[1..] {
                rustix::fs::linkat(&root, &plan.names[0], &root, name, AtFlags::empty()).expect("a link");
            }
            articles += 1;
        }
        history.write_all(&lines[..(batch.len() * 90).min(lines.len())]).expect("history");
    }
    let (wall_s, cpu) = (begun.elapsed().as_secs_f64(), cpu.used());
    let (user_s, sys_s) = (cpu.user.as_secs_f64(), cpu.sys.as_secs_f64());
    Took { articles, refused: 0, wall_s, user_s, sys_s, outside_s: None }
}

fn plan(feed: &Feed) -> (Vec<Vec<Plan>>, BTreeSet<String>) {
    let (mut seen, mut numbers) = (HashSet::new(), HashMap::<String, u64>::new());
    let mut directories = BTreeSet::new();
    let batches = feed.batches().map(|batch| {
        let mut plans = Vec::new();
        let mut reader = batch.open().expect("a batch");
        while let Some(bytes) = reader.next().expect("an article") {
            let Ok(article) = Article::parse(bytes) else { continue };
            if !seen.insert(article.message_id().to_vec()) {
                continue;
            }
            let mut names = Vec::new();
            let mut xref = 0;
            for group in article.newsgroups() {
                let directory = group.replace('.', "/");
                let number = numbers.entry(group.to_owned()).or_default();
                *number += 1;
                names.push(format!("{directory}/{number}"));
                xref += group.len() + 8;
                directories.insert(directory);
            }
            // Our host in Path, and the Xref.
            plans.push(Plan { names, bytes: bytes.len() + 45 + xref });
        }
        plans
    });
    (batches.collect(), directories)
}
