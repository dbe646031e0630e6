//! A gateway's receivers leave the processor to those that run while much comes, unless
//! `sched_batch` says otherwise, and no longer than that.

use std::fs::{self, File};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Missing, have};
use crate::world::{Process, World};

/// What the test gives up after: never the measure of anything.
const LONG: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(1);

/// The policy `SCHED_BATCH`, as the kernel writes it.
const BATCH: &str = "3";

/// The policy of a thread, of what the kernel says of it.
fn policy(stat: &str) -> &str {
    // The name, which may hold anything, ends with the last parenthesis; the state behind it is field 3.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').nth(41 - 3).unwrap()
}

/// What starts with another policy than the usual one keeps it.
fn usual_policy() -> Result<(), Missing> {
    match policy(&fs::read_to_string("/proc/thread-self/stat").unwrap()) {
        "0" => Ok(()),
        _ => Err(Missing("the usual scheduling policy".to_owned())),
    }
}

/// How many of a gateway's receivers are scheduled in batches.
fn in_batches(gateway: &Process) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", gateway.id())).unwrap();
    // A thread may end meanwhile.
    let stats = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("stat")).ok());
    let is_batch = |stat: &String| stat.contains("(madgate-rx") && policy(stat) == BATCH;
    stats.filter(is_batch).count()
}

/// A file goes through the gateway again and again until a receiver is scheduled in batches, or so many
/// times. Whether one was.
fn forward(world: &World, gateway: &Process, times: usize) -> bool {
    let file = world.file("file", 32 << 20);
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..times {
                world.cp(&[&file], "file").succeeded();
                if has_ended.load(Ordering::Relaxed) {
                    break;
                }
            }
            has_ended.store(true, Ordering::Relaxed);
        });
        let mut was_seen = false;
        while !was_seen && !has_ended.load(Ordering::Relaxed) {
            was_seen = in_batches(gateway) > 0;
            thread::sleep(LOOK);
        }
        has_ended.store(true, Ordering::Relaxed);
        was_seen
    })
}

#[test]
fn a_receiver_to_which_much_comes_takes_the_processor_from_nobody() {
    if !have(usual_policy()) {
        return;
    }
    let world = World::new("10s");
    let gateway = world.gateway();
    let _service = world.serve();
    assert_eq!(in_batches(&gateway), 0);
    assert!(forward(&world, &gateway, 100));
    // A lone message is not to wait.
    let deadline = Instant::now() + LONG;
    while in_batches(&gateway) > 0 {
        assert!(Instant::now() < deadline, "still in batches");
        thread::sleep(LOOK);
    }
}

#[test]
fn it_takes_the_processor_where_the_file_says_so() {
    let world = World::new("10s");
    let mut file = File::options().append(true).open(world.cluster()).unwrap();
    write!(file, "[gateway]\nsched_batch = false\n").unwrap();
    let gateway = world.gateway();
    let _service = world.serve();
    assert!(!forward(&world, &gateway, 3));
}
