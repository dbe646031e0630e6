//! The smallest program there is: two nodes, one network, and a message that goes to and
//! fro.
//!
//! ```text
//! cargo run --release -p madgate-gateway --example ping_pong
//! ```
//!
//! Both nodes are threads of this process here; they would be the same on two hosts.

mod common;

use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use madgate_vchannel::ReceiveMode::Express;
use madgate_vchannel::{Cluster, Session};

const ROUNDS: usize = 1000;
const SIZES: [usize; 4] = [8, 1 << 10, 64 << 10, 1 << 20];

fn main() -> Result<(), Box<dyn Error>> {
    let text = format!(
        r#"
        [session]
        name = "ping-pong"
        key_file = "session.key"

        [[network]]
        name = "lan"
        protocol = "tcp"

        [[node]]
        name = "ping"
        addresses = {{ lan = "{}" }}

        [[node]]
        name = "pong"
        addresses = {{ lan = "{}" }}

        [[channel]]
        name = "main"
        networks = ["lan"]
        "#,
        common::free_address()?,
        common::free_address()?,
    );
    let (_folder, cluster) = common::make_cluster(&text)?;
    let for_pong = Arc::clone(&cluster);
    let pong = thread::spawn(move || pong(for_pong).expect("pong answers"));
    ping(cluster)?;
    pong.join().map_err(|_| "pong panicked")?;
    Ok(())
}

fn ping(cluster: Arc<Cluster>) -> Result<(), Box<dyn Error>> {
    let session = Session::open(cluster, "ping")?;
    let channel = session.channel("main")?;
    let pong = session.cluster().node("pong").ok_or("there is no pong")?;

    println!("one way, over TCP on this host:");
    for size in SIZES {
        let ball = vec![7; size];
        let mut back = vec![0; size];
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            let mut packing = channel.begin_packing(pong)?;
            packing.pack_cheaper(&ball, Express)?;
            packing.end_packing()?;

            let mut unpacking = channel.begin_unpacking()?;
            unpacking.unpack_express(&mut back)?;
            unpacking.end_unpacking()?;
            times.push(begin.elapsed() / 2);
        }
        assert_eq!(ball, back);
        times.sort_unstable();
        println!(
            "{size:>8} bytes {:>10.1?} (median of {ROUNDS})",
            times[ROUNDS / 2]
        );
    }
    session.close(Duration::from_secs(10))?;
    Ok(())
}

fn pong(cluster: Arc<Cluster>) -> Result<(), Box<dyn Error>> {
    let session = Session::open(cluster, "pong")?;
    let channel = session.channel("main")?;
    for size in SIZES {
        let mut ball = vec![0; size];
        for _ in 0..ROUNDS {
            let mut unpacking = channel.begin_unpacking()?;
            let from = unpacking.source();
            unpacking.unpack_express(&mut ball)?;
            unpacking.end_unpacking()?;

            let mut packing = channel.begin_packing(from)?;
            packing.pack_cheaper(&ball, Express)?;
            packing.end_packing()?;
        }
    }
    session.close(Duration::from_secs(10))?;
    Ok(())
}
