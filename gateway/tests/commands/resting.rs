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

/// Ticks of processor time that it may spend meanwhile: 5 % of one processor.
const TICKS: u64 = 5;

/// After so many counts they are no better.
const COUNTS: usize = 10;

/// Processor time that a process has spent so far, in ticks of 10 ms.
fn spent(process: &Process) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
    // Behind its name, which may hold anything.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let times = fields.split_whitespace().skip(11).take(2);
    times.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

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
            let before = (sleeps(process), spent(process));
            thread::sleep(COUNTED);
            let (woken, ticks) = (sleeps(process) - before.0, spent(process) - before.1);
            counted.push((woken, ticks));
            woken <= WAKE_UPS && ticks <= TICKS
        });
        println!("wake-ups and ticks of processor time in a second: {counted:?}");
        assert!(rests, "wake-ups and ticks a second: {counted:?}");
    }
}
