//! Whole messages between two sessions on a network of remote write: packed from memory that is
//! given away, unpacked where they arrive, and counted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use madgate_benches::cluster::{BenchNetwork, write_cluster};
use madgate_benches::process::{PATIENCE, Process, die_with_parent};
use madgate_benches::waiting::Wait;
use madgate_tm::hsl::{Counters, counters};
use madgate_vchannel::{ArrivedBlock, Channel, Cluster, NodeId, ReceiveMode, Session};

use crate::end::Counted;
use crate::plan::{How, WARM_UP};

/// A block that is one fragment.
pub(crate) const PACKED_BYTES: usize = 128 << 10;
/// How long what was sent last may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// What is exchanged: so many messages there, and as many back.
#[derive(Debug, Clone, Args)]
pub(crate) struct Packed {
    /// How both ends learn of arrivals.
    #[arg(long)]
    how: How,
    /// Bytes of a message.
    #[arg(long)]
    bytes: usize,
    /// Round trips that count.
    #[arg(long)]
    rounds: usize,
}

/// The process that answers.
#[derive(Debug, Args)]
pub(crate) struct PackedPeer {
    /// The cluster file.
    #[arg(long)]
    cluster: PathBuf,
    #[command(flatten)]
    packed: Packed,
}

impl Packed {
    pub(crate) fn of(how: How, bytes: usize, rounds: usize) -> Self {
        Self { how, bytes, rounds }
    }

    fn arguments(&self) -> Vec<String> {
        vec![
            format!("--how={}", self.how.name()),
            format!("--bytes={}", self.bytes),
            format!("--rounds={}", self.rounds),
        ]
    }

    /// The program's arguments that carry it out by itself.
    pub(crate) fn command(&self) -> Vec<String> {
        [vec!["packed".to_owned()], self.arguments()].concat()
    }

    /// Starts the other end, exchanges messages with it, and says what both counted.
    pub(crate) fn both_ends(&self) -> io::Result<Counted> {
        let keys = format!("mode = \"{}\"\n", self.how.name());
        let network = BenchNetwork {
            name: "net",
            protocol: "hsl",
            keys: &keys,
            nodes: &["a0", "b0"],
        };
        let wait = match self.how {
            How::Polling => Wait::Spin,
            How::Adaptive => Wait::Adaptive,
            How::Interrupt => Wait::Sleep,
        };
        let (_files, cluster) = write_cluster(&[network], wait, &[])?;
        let at = format!("--cluster={}", cluster.display());
        let arguments = [vec!["packed-peer".to_owned(), at], self.arguments()].concat();
        let peer = Process::again("packed-peer", arguments)?;
        peer.word("at its place")?;
        let end = End::open(&cluster, "a0", "b0", self.bytes)?;
        let before = end.exchange(WARM_UP, true)?.0;
        let (after, copied) = end.exchange(self.rounds, true)?;
        let theirs: Counted = serde_json::from_str(&peer.line(PATIENCE)?)?;
        let counted = self.counted(before, after, copied).plus(theirs);
        end.close()?;
        Ok(counted)
    }

    /// What one end counted: a copy is as many bytes as a message has.
    fn counted(&self, before: Counters, after: Counters, copied_bytes: u64) -> Counted {
        let calls = |counters: Counters| counters.doorbells + counters.foreign_calls;
        let filled = after.registered_bytes - before.registered_bytes;
        Counted {
            calls: calls(after) - calls(before),
            interrupts: after.interrupts - before.interrupts,
            copies: (filled + copied_bytes) / self.bytes as u64,
            messages: self.rounds as u64,
        }
    }
}

impl PackedPeer {
    pub(crate) fn run(&self) -> io::Result<()> {
        die_with_parent()?;
        let Self { cluster, packed } = self;
        let end = End::open(cluster, "b0", "a0", packed.bytes)?;
        println!("at its place");
        let before = end.exchange(WARM_UP, false)?.0;
        let (after, copied) = end.exchange(packed.rounds, false)?;
        let counted = packed.counted(before, after, copied);
        println!("{}", serde_json::to_string(&counted)?);
        end.close()
    }
}

/// A session.
struct End {
    session: Session,
    channel: Channel,
    peer: NodeId,
    message: Bytes,
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

impl End {
    fn open(cluster: &Path, node: &str, peer: &str, bytes: usize) -> io::Result<Self> {
        let cluster = Arc::new(Cluster::read(cluster).map_err(failed)?);
        let peer = cluster.node(peer);
        let peer = peer.ok_or_else(|| io::Error::other("the other end is not in the file"))?;
        let session = Session::open(cluster, node).map_err(failed)?;
        Ok(Self {
            channel: session.channel("main").map_err(failed)?,
            session,
            peer,
            message: vec![1; bytes].into(),
        })
    }

    /// Messages to and fro; what the cards have counted until then, and how many bytes of what
    /// arrived were copied.
    fn exchange(&self, rounds: usize, asks: bool) -> io::Result<(Counters, u64)> {
        let mut copied = 0;
        for _ in 0..rounds {
            if asks {
                self.send()?;
            }
            copied += self.receive()?.copied_bytes() as u64;
            if !asks {
                self.send()?;
            }
        }
        Ok((counters(), copied))
    }

    fn send(&self) -> io::Result<()> {
        let mut packing = self.channel.begin_packing(self.peer).map_err(failed)?;
        let message = self.message.clone();
        packing
            .pack_owned(message, ReceiveMode::Cheaper)
            .map_err(failed)?;
        packing.end_packing().map_err(failed)
    }

    fn receive(&self) -> io::Result<ArrivedBlock> {
        let mut unpacking = self.channel.begin_unpacking().map_err(failed)?;
        let block = unpacking
            .unpack_arrived(self.message.len(), ReceiveMode::Cheaper)
            .map_err(failed)?;
        unpacking.end_unpacking().map_err(failed)?;
        let mut ends = [0; 2];
        block.read(0, &mut ends[..1]);
        block.read(block.len() - 1, &mut ends[1..]);
        if ends == [1; 2] {
            Ok(block)
        } else {
            Err(io::Error::other("what arrived is not what was sent"))
        }
    }

    fn close(self) -> io::Result<()> {
        drop(self.channel);
        self.session.close(CLOSE_WITHIN).map_err(failed)
    }
}
