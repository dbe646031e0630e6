//! A message whose first block says what the others are.
//!
//! ```text
//! cargo run --release -p madgate-gateway --example express_header
//! ```
//!
//! The header is packed *express*: it is there as soon as `unpack_express` returns, so that
//! the receiver can make room for the rest. The rest is *cheaper*: it is there when the
//! message ends, and goes straight into that room when it is large.

mod common;

use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use madgate_vchannel::ReceiveMode::{Cheaper, Express};
use madgate_vchannel::{Channel, Cluster, NodeId, Session};

/// What the header announces, in 12 bytes: a kind, and two sizes.
#[derive(Debug, Clone, Copy)]
enum Announced {
    Note { letters: u32 },
    Matrix { rows: u32, columns: u32 },
    Nothing,
}

const HEADER_BYTES: usize = 12;

impl Announced {
    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let (kind, first, second) = match self {
            Self::Note { letters } => (1_u32, letters, 0),
            Self::Matrix { rows, columns } => (2, rows, columns),
            Self::Nothing => (0, 0, 0),
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..].copy_from_slice(&second.to_le_bytes());
        bytes
    }

    fn parse(bytes: [u8; HEADER_BYTES]) -> Option<Self> {
        let [kind, first, second] = [0, 4, 8]
            .map(|at| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
        match (kind, first, second) {
            (1, letters, 0) => Some(Self::Note { letters }),
            (2, rows, columns) => Some(Self::Matrix { rows, columns }),
            (0, 0, 0) => Some(Self::Nothing),
            _ => None,
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // Two processes of one host would meet in shared memory in just this way.
    let text = r#"
        [session]
        name = "express-header"
        key_file = "session.key"

        [[network]]
        name = "host"
        protocol = "shm"
        directory = "meeting-place"

        [[node]]
        name = "author"
        addresses = { host = "author" }

        [[node]]
        name = "reader"
        addresses = { host = "reader" }

        [[channel]]
        name = "post"
        networks = ["host"]
    "#;
    let (_folder, cluster) = common::make_cluster(text)?;
    let for_reader = Arc::clone(&cluster);
    let reader = thread::spawn(move || read(for_reader).expect("the reader reads"));
    write(cluster)?;
    reader.join().map_err(|_| "the reader panicked")?;
    Ok(())
}

fn write(cluster: Arc<Cluster>) -> Result<(), Box<dyn Error>> {
    let session = Session::open(cluster, "author")?;
    let post = session.channel("post")?;
    let reader = session
        .cluster()
        .node("reader")
        .ok_or("there is no reader")?;

    let note = "Madeleines are small, and sent in boxes.";
    let letters = u32::try_from(note.len())?;
    send(
        &post,
        reader,
        Announced::Note { letters },
        &[note.as_bytes()],
    )?;

    // A matrix goes row by row, from where it is: nothing is copied on the way to the lane.
    let (rows, columns) = (500, 100_000);
    let matrix: Vec<Vec<u8>> = (0..=u8::MAX)
        .cycle()
        .take(500)
        .map(|row| vec![row; 100_000])
        .collect();
    let blocks: Vec<&[u8]> = matrix.iter().map(Vec::as_slice).collect();
    send(&post, reader, Announced::Matrix { rows, columns }, &blocks)?;

    send(&post, reader, Announced::Nothing, &[])?;
    session.close(Duration::from_secs(10))?;
    Ok(())
}

fn send(
    post: &Channel,
    to: NodeId,
    header: Announced,
    blocks: &[&[u8]],
) -> Result<(), Box<dyn Error>> {
    let mut packing = post.begin_packing(to)?;
    packing.pack_safer(&header.to_bytes(), Express)?;
    for block in blocks {
        packing.pack_cheaper(block, Cheaper)?;
    }
    packing.end_packing()?;
    Ok(())
}

fn read(cluster: Arc<Cluster>) -> Result<(), Box<dyn Error>> {
    let session = Session::open(cluster, "reader")?;
    let post = session.channel("post")?;
    loop {
        let mut header = [0; HEADER_BYTES];
        // Declared before the message: what is unpacked *cheaper* is lent until its end.
        let mut rest: Vec<Vec<u8>>;
        let mut unpacking = post.begin_unpacking()?;
        unpacking.unpack_express(&mut header)?;
        let announced = Announced::parse(header).ok_or("a header that means nothing")?;
        rest = match announced {
            Announced::Note { letters } => vec![vec![0; letters as usize]],
            Announced::Matrix { rows, columns } => {
                vec![vec![0; columns as usize]; rows as usize]
            }
            Announced::Nothing => Vec::new(),
        };
        for block in &mut rest {
            unpacking.unpack_cheaper(block)?;
        }
        unpacking.end_unpacking()?;

        match announced {
            Announced::Note { .. } => {
                println!("a note: {}", String::from_utf8_lossy(&rest[0]));
            }
            Announced::Matrix { rows, columns } => {
                let sum: u64 = rest.iter().flatten().map(|&cell| u64::from(cell)).sum();
                println!("a matrix of {rows} × {columns}; its cells add up to {sum}");
            }
            Announced::Nothing => {
                println!("nothing more");
                session.close(Duration::from_secs(10))?;
                return Ok(());
            }
        }
    }
}
