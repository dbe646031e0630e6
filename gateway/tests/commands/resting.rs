//! Who has nothing to do sleeps.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::world::{Process, World};

/// How long wake-ups are counted.
const COUNTED: Duration = Duration::from_secs(1);

/// Times that all threads of a process may wake up meanwhile: each service looks five times a second
/// whether it is to end, and what comes with that are some wake-ups each time.
const WAKE_UPS: u64 = 130;

/// After so many counts they are no better.
const COUNTS: usize = 10;

/// How often the threads of a process went to sleep so far.
fn sleeps(process: &Process) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.id())).unwrap();
    // A thread may end meanwhile.
    let statuses =
        tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok());
    statuses
        .map(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            line.unwrap().trim().parse::<u64>().unwrap()
        })
        .sum()
}

#[test]
fn a_gateway_and_a_service_that_nobody_uses_rest() {
    let world = World::new("10s");
    let (gateway, service) = (world.gateway(), world.serve());
    // All that there will be is there: links, and threads that have been woken once.
    let file = world.file("file", 1 << 20);
    world.cp(&[&file], "file").succeeded();
    let mut counted = Vec::new();
    for process in [&gateway, &service] {
        // What has just been done is put away first.
        let rests = (0..COUNTS).any(|_| {
            let before = sleeps(process);
            thread::sleep(COUNTED);
            counted.push(sleeps(process) - before);
            counted.last().is_some_and(|count| *count <= WAKE_UPS)
        });
        assert!(rests, "wake-ups a second: {counted:?}");
    }
}
