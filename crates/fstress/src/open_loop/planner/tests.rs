use files::PlausibleReply;
use quanta::Clock;

use super::*;

/// A small set of files under a workload that creates, writes, commits, looks up, renames and removes.
fn planner(files: u64, mix: &[(OpKind, f64)]) -> Planner {
    let mut workload = Workload::builtin("p2p").unwrap();
    workload.mix = Mix::new(mix.iter().copied()).unwrap();
    let mut set = ObjectSets::new("test", crate::WEIGHT_ONE);
    for number in 0..files {
        let file = set.insert_file(DirectoryId::ROOT, 300_000, crate::WEIGHT_ONE);
        assert!(set.set_file_handle(file, &number.to_be_bytes()));
    }
    let (clock, mock) = Clock::mock();
    mock.increment(Duration::from_secs(1000));
    Planner::new(workload, set, 1 << 20, 7, clock.now())
}

fn begun(planner: &mut Planner, closed: bool) -> Instant {
    let begin = planner.now_planned;
    planner.begin_point(begin, closed);
    begin
}

fn answer(planner: &mut Planner, planned: &Planned) {
    let zeros = vec![0; 1 << 20];
    let mut names = NameBuffers::default();
    let reply = PlausibleReply::to(&planner.request(planned, &mut names));
    planner.settle(planned, &Outcome::Ok(reply.reply(&zeros)));
}

const BUSY_MIX: [(OpKind, f64); 6] = [
    (OpKind::Lookup, 20.0),
    (OpKind::Read, 30.0),
    (OpKind::Write, 30.0),
    (OpKind::Commit, 10.0),
    (OpKind::Create, 5.0),
    (OpKind::Remove, 5.0),
];

/// Symptom: on a slow file system the peer-to-peer workload was INVALID by NFS3ERR_STALE and NFS3ERR_NOENT of COMMIT and READ.
/// Cause: a closed loop removed any file, also one that its own requests were under way on. Fix: such a file waits.
#[test]
fn no_file_is_removed_while_a_request_of_ours_on_it_is_unanswered() {
    for closed in [true, false] {
        let mut planner = planner(12, &BUSY_MIX);
        let begin = begun(&mut planner, closed);
        let mut in_flight: VecDeque<Planned> = VecDeque::new();
        let (mut removed, mut count) = (0, 0);
        for turn in 0..20_000u32 {
            // Each is answered after 64 others; at 500 a second that is an eighth of a second.
            let planned = planner.plan(begin + Duration::from_millis(2) * turn);
            if let (OpKind::Remove, Target::File(file)) = (planned.kind, planned.target) {
                let on_it =
                    in_flight.iter().filter(|other| matches!(other.target, Target::File(of) if of == file));
                assert_eq!(on_it.count(), 0, "closed: {closed}, turn {turn}");
                removed += 1;
            }
            if let (false, Target::File(file)) = (planned.kind == OpKind::Remove, planned.target) {
                assert!(!planner.is_going(file), "a request to a file that is on its way out");
            }
            in_flight.push_back(planned);
            if in_flight.len() > 64 {
                let first = in_flight.pop_front().unwrap();
                answer(&mut planner, &first);
            }
            count = turn + 1;
        }
        let share = f64::from(removed) / f64::from(count);
        assert!((0.045..=0.055).contains(&share), "closed: {closed}: {removed} of {count} removed a file");
    }
}

/// Its turn may not come before the level ends: then the file is there, and must be a file of the set.
#[test]
fn a_file_that_waits_for_its_removal_is_one_of_the_set_again_when_the_level_ends() {
    let mut planner = planner(1, &[(OpKind::Getattr, 100.0)]);
    let begin = begun(&mut planner, true);
    let asked = planner.plan(begin);
    let mut removal = Planned { kind: OpKind::Remove, target: Target::None, ..asked };
    planner.plan_remove(&mut removal, begin);
    assert_eq!(removal.kind, OpKind::Fsstat, "the only file is asked for");
    assert_eq!(planner.set.select_file(&mut planner.targets), None, "it is chosen no more");
    answer(&mut planner, &asked);
    planner.settle_all();
    assert_eq!(planner.set.file_count(), 1);
    assert!(planner.set.select_file(&mut planner.targets).is_some());
}

#[test]
fn a_file_whose_rename_is_unanswered_is_neither_looked_up_nor_removed() {
    let mix =
        [(OpKind::Lookup, 60.0), (OpKind::Rename, 20.0), (OpKind::Create, 10.0), (OpKind::Remove, 10.0)];
    let mut planner = planner(20, &mix);
    let begin = begun(&mut planner, true);
    let mut in_flight: VecDeque<Planned> = VecDeque::new();
    let mut renamed = 0;
    for turn in 0..5000u32 {
        let planned = planner.plan(begin + Duration::from_millis(1) * turn);
        let renames = |other: &&Planned| other.kind == OpKind::Rename;
        let of = |planned: &Planned| match planned.target {
            Target::File(file) => Some(file),
            _ => None,
        };
        let renaming: Vec<_> = in_flight.iter().filter(renames).filter_map(of).collect();
        if [OpKind::Lookup, OpKind::Remove, OpKind::Rename].contains(&planned.kind) {
            assert!(of(&planned).is_none_or(|file| !renaming.contains(&file)), "turn {turn}: {planned:?}");
        }
        renamed += u32::from(planned.kind == OpKind::Rename);
        in_flight.push_back(planned);
        if in_flight.len() > 16 {
            let first = in_flight.pop_front().unwrap();
            answer(&mut planner, &first);
        }
    }
    assert!(renamed > 500, "{renamed}");
}
