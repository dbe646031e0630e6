//! Several threads of one node pack to several nodes at once, and unpack what comes back.
//!
//! ```text
//! cargo run --release -p madgate-gateway --example threads
//! ```
//!
//! A farmer has numbers to be factored and three workers. A session and its channels can be
//! used from any thread: messages to different nodes are packed side by side, messages to
//! one node one after the other. No thread has to drive anything: whoever waits does.

mod common;

use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use madgate_vchannel::ReceiveMode::Express;
use madgate_vchannel::{Channel, Cluster, NodeId, Session};

const WORKERS: usize = 3;
/// Threads of the farmer that pack for each worker.
const PACKERS: u64 = 2;
const TASKS_PER_PACKER: u64 = 2000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut text = String::from(
        r#"
        [session]
        name = "farm"
        key_file = "session.key"

        [[network]]
        name = "lan"
        protocol = "tcp"

        [[channel]]
        name = "tasks"
        networks = ["lan"]

        [[channel]]
        name = "results"
        networks = ["lan"]
        "#,
    );
    for node in ["farmer", "w0", "w1", "w2"] {
        let address = common::free_address()?;
        write!(
            text,
            "[[node]]\nname = \"{node}\"\naddresses = {{ lan = \"{address}\" }}\n"
        )?;
    }
    let (_folder, cluster) = common::make_cluster(&text)?;
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let cluster = Arc::clone(&cluster);
            thread::spawn(move || work(cluster, &format!("w{number}")).expect("the worker works"))
        })
        .collect();
    farm(cluster)?;
    for worker in workers {
        worker.join().map_err(|_| "a worker panicked")?;
    }
    Ok(())
}

fn farm(cluster: Arc<Cluster>) -> Result<(), Box<dyn Error>> {
    let session = Session::open(cluster, "farmer")?;
    let (tasks, results) = (session.channel("tasks")?, session.channel("results")?);
    let begin = Instant::now();
    let mut packers = Vec::new();
    for worker in 0..WORKERS {
        let name = format!("w{worker}");
        let to = session.cluster().node(&name).ok_or("a worker is missing")?;
        for packer in 0..PACKERS {
            let tasks = tasks.clone();
            packers.push(thread::spawn(move || {
                for task in 0..TASKS_PER_PACKER {
                    let number = 1_000_000 + task * PACKERS + packer;
                    send_numbers(&tasks, to, &[number]).expect("the worker is there");
                }
            }));
        }
    }

    // Meanwhile results come, from anyone.
    let expected = WORKERS * usize::try_from(PACKERS * TASKS_PER_PACKER)?;
    let mut primes = 0;
    let mut by_worker = [0; WORKERS];
    for _ in 0..expected {
        let mut unpacking = results.begin_unpacking()?;
        let worker = session.cluster().node_name(unpacking.source()).to_owned();
        let mut block = [0; 16];
        unpacking.unpack_express(&mut block)?;
        unpacking.end_unpacking()?;
        let [number, factor] = [0, 8].map(|at| read_number(&block[at..]));
        primes += usize::from(number == factor);
        by_worker[worker[1..].parse::<usize>()?] += 1;
    }
    for packer in packers {
        packer.join().map_err(|_| "a packer panicked")?;
    }
    println!(
        "{expected} numbers factored in {:.1?}, {} of them prime; by worker: {by_worker:?}",
        begin.elapsed(),
        primes / WORKERS,
    );

    // A message without a block tells a worker to go home.
    for worker in 0..WORKERS {
        let name = format!("w{worker}");
        let to = session.cluster().node(&name).ok_or("a worker is missing")?;
        tasks.begin_packing(to)?.end_packing_delivered()?;
    }
    session.close(Duration::from_secs(10))?;
    Ok(())
}

fn work(cluster: Arc<Cluster>, name: &str) -> Result<(), Box<dyn Error>> {
    let session = Session::open(cluster, name)?;
    let (tasks, results) = (session.channel("tasks")?, session.channel("results")?);
    loop {
        let mut unpacking = tasks.begin_unpacking()?;
        let farmer = unpacking.source();
        // Messages describe themselves: an empty one has no next block.
        if unpacking.next_block()?.is_none() {
            unpacking.end_unpacking()?;
            break;
        }
        let mut block = [0; 8];
        unpacking.unpack_express(&mut block)?;
        unpacking.end_unpacking()?;
        let number = read_number(&block);
        send_numbers(&results, farmer, &[number, least_factor(number)])?;
    }
    session.close(Duration::from_secs(10))?;
    Ok(())
}

fn send_numbers(channel: &Channel, to: NodeId, numbers: &[u64]) -> Result<(), Box<dyn Error>> {
    let block: Vec<u8> = numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    let mut packing = channel.begin_packing(to)?;
    packing.pack_safer(&block, Express)?;
    packing.end_packing()?;
    Ok(())
}

/// The number that some bytes start with.
fn read_number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .take(8)
        .rev()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn least_factor(number: u64) -> u64 {
    (2..)
        .take_while(|factor| factor * factor <= number)
        .find(|factor| number.is_multiple_of(*factor))
        .unwrap_or(number)
}
