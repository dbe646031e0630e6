//! A gateway inside an application, which packs and unpacks messages of its own too.
//!
//! ```text
//! cargo run --release -p madgate-gateway --example embedded_gateway
//! ```
//!
//! Two networks that do not reach each other: `field` (TCP) with a sensor, `desk` (shared
//! memory) with an archive. The node `hut` is on both. The sensor sends its readings to the
//! archive and never sees where the networks end; `hut` forwards them, and answers
//! questions by itself meanwhile.

mod common;

use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use madgate_gateway::Gateway;
use madgate_vchannel::ReceiveMode::{Cheaper, Express};
use madgate_vchannel::{Cluster, Session};

const READINGS: u32 = 2000;
const READING_BYTES: usize = 100_000;
const WITHIN: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let text = format!(
        r#"
        [session]
        name = "embedded"
        key_file = "session.key"

        [[network]]
        name = "field"
        protocol = "tcp"

        [[network]]
        name = "desk"
        protocol = "shm"
        directory = "desk"

        [[node]]
        name = "sensor"
        addresses = {{ field = "{}" }}

        [[node]]
        name = "hut"
        gateway = true
        addresses = {{ field = "{}", desk = "hut" }}

        [[node]]
        name = "archive"
        addresses = {{ desk = "archive" }}

        [[channel]]
        name = "readings"
        networks = ["field", "desk"]

        [[channel]]
        name = "questions"
        networks = ["field", "desk"]
        "#,
        common::free_address()?,
        common::free_address()?,
    );
    let (_folder, cluster) = common::make_cluster(&text)?;

    let gateway = Gateway::start(Arc::clone(&cluster), "hut")?;
    let [for_sensor, for_archive] = [&cluster, &cluster].map(Arc::clone);
    let sensor = thread::spawn(move || sense(for_sensor).expect("the sensor sends"));
    let archive = thread::spawn(move || keep(for_archive).expect("the archive keeps"));
    answer(&gateway)?;
    sensor.join().map_err(|_| "the sensor panicked")?;
    archive.join().map_err(|_| "the archive panicked")?;

    let report = gateway.drain(WITHIN);
    let counters = gateway.counters();
    println!(
        "hut: forwarded {} MB in {} frames, of which {} were copied; {report:?}",
        counters.bytes / 1_000_000,
        counters.frames,
        counters.copies,
    );
    Ok(())
}

/// What the node of the gateway does besides: each of the others asks it one question.
fn answer(gateway: &Gateway) -> Result<(), Box<dyn Error>> {
    let questions = gateway.session().channel("questions")?;
    for _ in 0..2 {
        let mut unpacking = questions.begin_unpacking()?;
        let asker = unpacking.source();
        while let Some((length, receive)) = unpacking.next_block()? {
            let question = unpacking.unpack_owned(usize::try_from(length)?, receive)?;
            let name = gateway.cluster().node_name(asker);
            println!("{name} asks hut: {}", String::from_utf8_lossy(&question));
        }
        unpacking.end_unpacking()?;
        let mut packing = questions.begin_packing(asker)?;
        packing.pack_safer(b"yes", Express)?;
        packing.end_packing_delivered()?;
    }
    Ok(())
}

fn sense(cluster: Arc<Cluster>) -> Result<(), Box<dyn Error>> {
    let session = Session::open(cluster, "sensor")?;
    ask(&session, "is it cold up there?")?;
    let readings = session.channel("readings")?;
    let archive = session
        .cluster()
        .node("archive")
        .ok_or("there is no archive")?;
    for number in 0..READINGS {
        // Given away: nothing is copied, and the next can be made while this one travels.
        let reading = Bytes::from(vec![number.to_le_bytes()[0]; READING_BYTES]);
        let mut packing = readings.begin_packing(archive)?;
        packing.pack_safer(&number.to_le_bytes(), Express)?;
        packing.pack_owned(reading, Cheaper)?;
        packing.end_packing()?;
    }
    session.close(WITHIN)?;
    Ok(())
}

fn keep(cluster: Arc<Cluster>) -> Result<(), Box<dyn Error>> {
    let session = Session::open(cluster, "archive")?;
    ask(&session, "does anything come?")?;
    let readings = session.channel("readings")?;
    let mut reading = vec![0; READING_BYTES];
    for expected in 0..READINGS {
        let mut number = [0; 4];
        let mut unpacking = readings.begin_unpacking()?;
        unpacking.unpack_express(&mut number)?;
        unpacking.unpack_cheaper(&mut reading)?;
        unpacking.end_unpacking()?;
        assert_eq!(u32::from_le_bytes(number), expected, "they arrive in order");
        assert!(reading.iter().all(|byte| *byte == number[0]));
    }
    println!("archive: {READINGS} readings, in order");
    session.close(WITHIN)?;
    Ok(())
}

fn ask(session: &Session, question: &str) -> Result<(), Box<dyn Error>> {
    let questions = session.channel("questions")?;
    let hut = session.cluster().node("hut").ok_or("there is no hut")?;
    let mut packing = questions.begin_packing(hut)?;
    packing.pack_safer(question.as_bytes(), Express)?;
    packing.end_packing()?;
    let mut unpacking = questions.begin_unpacking_from(hut)?;
    let answer = unpacking.unpack_owned(3, Express)?;
    unpacking.end_unpacking()?;
    println!("hut says: {}", String::from_utf8_lossy(&answer));
    Ok(())
}
