//! A gateway's threads keep to the processors that `pin` gives them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::world::{Process, World};

/// What the test gives up after: never the measure of anything.
const LONG: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// The threads that forward, in the order in which they are started, as the kernel cuts their names.
const FORWARDING: [&str; 5] = [
    "madgate-rx-left",
    "madgate-tx-left",
    "madgate-rx-righ",
    "madgate-tx-righ",
    "madgate-keeper",
];

/// The processors of each of them that runs.
fn pinned(gateway: &Process) -> BTreeMap<String, String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", gateway.id())).unwrap();
    // A thread may end meanwhile.
    let statuses =
        tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok());
    let named = statuses.map(|status| {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().to_owned()
        };
        (field("Name:"), field("Cpus_allowed_list:"))
    });
    named
        .filter(|(name, _)| FORWARDING.contains(&name.as_str()))
        .collect()
}

#[test]
fn each_thread_of_a_gateway_keeps_to_its_processor() {
    let allowed = sched_getaffinity(None).unwrap();
    let mut processors = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
    let first = processors.next().unwrap();
    let last = processors.next_back().unwrap_or(first);
    let world = World::new("10s");
    let mut file = File::options().append(true).open(world.cluster()).unwrap();
    write!(file, "[gateway]\npin = [{first}, {last}]\n").unwrap();
    let gateway = world.gateway();
    let in_turn = [first, last].into_iter().cycle();
    let wanted: BTreeMap<_, _> = FORWARDING
        .into_iter()
        .zip(in_turn)
        .map(|(name, processor)| (name.to_owned(), processor.to_string()))
        .collect();
    // A gateway that is ready has started all threads, each of which pins itself.
    let deadline = Instant::now() + LONG;
    loop {
        let pinned = pinned(&gateway);
        if pinned == wanted {
            break;
        }
        assert!(Instant::now() < deadline, "{pinned:?}, not {wanted:?}");
        thread::sleep(LOOK);
    }
    // It forwards as every other.
    let _service = world.serve();
    let file = world.file("file", 1 << 20);
    world.cp(&[&file], "file").succeeded();
    assert_eq!(pinned(&gateway), wanted);
}
