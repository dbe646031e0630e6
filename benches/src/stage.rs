//! A stage that costs processor time on each side of a gateway: what a cipher would.
//!
//! ```text
//!  lane ══> receive, checksum ══> engine ══> checksum, send ══> lane
//! ```
//!
//! Each lane of the gateway is put into another one, which computes SHA-256 of all bytes that pass
//! it, several times over. Everything else is the gateway's own: its threads, its batches, and its
//! hand-over between them.

use std::hint::black_box;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use madgate_gateway::{Gateway, StartError};
use madgate_tm::{
    Interest, Lane, LaneError, LaneReceiver, LaneSender, LentSlot, Piece, ReceivedSlot, Room, Shape,
};
use madgate_vchannel::Cluster;
use madgate_vchannel::conductor::EstablishedLink;
use sha2::{Digest as _, Sha256};

/// Bytes that are looked at so many times before the next ones: they stay in the cache, as those
/// that a cipher works on.
const PORTION_BYTES: usize = 16 << 10;

/// How much has passed the stage of a gateway.
#[derive(Debug, Default)]
pub struct Passed {
    /// Bytes that have come.
    pub came: AtomicU64,
    /// Bytes that have left.
    pub left: AtomicU64,
}

/// Starts a gateway with a stage of so many passes on all of its lanes.
///
/// # Errors
///
/// As [`Gateway::start`].
pub fn start(
    cluster: Arc<Cluster>,
    node: &str,
    passes: u32,
    passed: &Arc<Passed>,
) -> Result<Gateway, StartError> {
    let passed = Arc::clone(passed);
    let around = move |lane: Lane| {
        let checksum = || Checksum {
            passes,
            passed: Arc::clone(&passed),
            portion: vec![0; PORTION_BYTES],
        };
        Lane {
            sender: Box::new(StagedSender {
                lane: lane.sender,
                checksum: checksum(),
            }),
            receiver: Box::new(StagedReceiver {
                lane: lane.receiver,
                checksum: checksum(),
            }),
        }
    };
    Gateway::start_fitted(cluster, node, move |link| EstablishedLink {
        urgent: around(link.urgent),
        bulk: around(link.bulk),
        ..link
    })
}

#[derive(Debug)]
struct Checksum {
    passes: u32,
    passed: Arc<Passed>,
    /// Of a piece, what is looked at.
    portion: Vec<u8>,
}

impl Checksum {
    /// Of what cannot be seen in place, a copy, as a cipher makes one.
    fn over_piece(&mut self, mut piece: Piece<'_>) {
        while !piece.is_empty() {
            let copied = piece.copy_to(&mut self.portion);
            self.over(&self.portion[..copied]);
            piece.advance(copied);
        }
    }

    fn over(&self, bytes: &[u8]) {
        for portion in bytes.chunks(PORTION_BYTES) {
            for _ in 0..self.passes {
                black_box(Sha256::digest(portion));
            }
        }
    }

    fn note_came(&self, bytes: usize) {
        self.passed.came.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn note_left(&self, bytes: usize) {
        self.passed.left.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// The sending half. Pipes do not pass it: their bytes cannot be seen.
#[derive(Debug)]
struct StagedSender {
    lane: Box<dyn LaneSender>,
    checksum: Checksum,
}

impl LaneSender for StagedSender {
    fn shape(&self) -> Shape {
        self.lane.shape()
    }

    fn try_send(&mut self, pieces: &[Piece<'_>]) -> Result<usize, LaneError> {
        let sent = self.lane.try_send(pieces)?;
        let mut left = sent;
        for piece in pieces {
            let part = piece.truncated(left);
            left -= part.len();
            self.checksum.over_piece(part);
        }
        self.checksum.note_left(sent);
        Ok(sent)
    }

    fn try_lend(&mut self) -> Result<Option<LentSlot>, LaneError> {
        self.lane.try_lend()
    }

    fn commit(&mut self, slot: LentSlot, length: usize) -> Result<(), LaneError> {
        self.checksum
            .over_piece(slot.piece(..length.min(slot.capacity())));
        self.checksum.note_left(length);
        self.lane.commit(slot, length)
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        self.lane.arm()
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        self.lane.descriptor()
    }

    fn acknowledge_wake(&mut self) {
        self.lane.acknowledge_wake();
    }
}

/// The receiving half.
#[derive(Debug)]
struct StagedReceiver {
    lane: Box<dyn LaneReceiver>,
    checksum: Checksum,
}

impl LaneReceiver for StagedReceiver {
    fn shape(&self) -> Shape {
        self.lane.shape()
    }

    fn try_receive(
        &mut self,
        mut straight: Room<'_>,
        batch: &mut BytesMut,
    ) -> Result<usize, LaneError> {
        let before = batch.len();
        let received = self.lane.try_receive(straight.reborrow(), batch)?;
        let direct = received - (batch.len() - before);
        self.checksum.over_piece(straight.first(direct));
        self.checksum.over(&batch[before..]);
        self.checksum.note_came(received);
        Ok(received)
    }

    fn try_receive_slot(&mut self) -> Result<Option<ReceivedSlot>, LaneError> {
        let slot = self.lane.try_receive_slot()?;
        if let Some(slot) = &slot {
            self.checksum.over_piece(slot.piece(..));
            self.checksum.note_came(slot.len());
        }
        Ok(slot)
    }

    fn may_have_arrived(&self) -> bool {
        self.lane.may_have_arrived()
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        self.lane.arm()
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        self.lane.descriptor()
    }

    fn acknowledge_wake(&mut self) {
        self.lane.acknowledge_wake();
    }

    fn set_low_water(&mut self, bytes: usize) -> Result<bool, LaneError> {
        self.lane.set_low_water(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use madgate_gateway::Counters;

    use super::*;
    use crate::cluster::{BenchNetwork, Setting, write_cluster};
    use crate::ends::{run_sink, run_source};
    use crate::gateway::GATEWAY;
    use crate::madgate::MadgateEnd;
    use crate::waiting::Wait;

    const MESSAGE_BYTES: usize = 300_000;

    /// What passes a gateway with a stage, in one process; the payload is checked by its sink.
    fn carry(protocols: [&str; 2], handover: &str) -> (u64, Passed, Counters) {
        let network = |name, protocol, nodes| BenchNetwork {
            name,
            protocol,
            keys: "",
            nodes,
        };
        let networks = [
            network("left", protocols[0], &["a0", GATEWAY]),
            network("right", protocols[1], &[GATEWAY, "b0"]),
        ];
        let settings = Setting::read_all(&[&format!("gateway.handover={handover}")]).unwrap();
        let (_files, path) = write_cluster(&networks, Wait::Sleep, &settings).unwrap();
        let cluster = Arc::new(Cluster::read(&path).unwrap());
        let passed = Arc::new(Passed::default());
        let gateway = start(Arc::clone(&cluster), GATEWAY, 1, &passed).unwrap();
        let open = |node, peer| MadgateEnd::open(&cluster, node, peer, MESSAGE_BYTES).unwrap();
        let ((_a, mut source), (_b, mut sink)) = (open("a0", "b0"), open("b0", "a0"));
        let report = thread::scope(|scope| {
            let time = Duration::from_millis(20);
            scope.spawn(move || run_source(&mut &mut source, MESSAGE_BYTES, time).unwrap());
            run_sink(&mut &mut sink, MESSAGE_BYTES, Duration::ZERO, true).unwrap()
        });
        let counters = gateway.counters();
        drop(gateway);
        let passed = Arc::into_inner(passed).expect("the gateway has ended");
        (report.total_bytes, passed, counters)
    }

    #[test]
    fn all_that_comes_and_leaves_passes_the_stage() {
        for protocols in [["tcp", "tcp"], ["tcp", "shm"], ["shm", "tcp"]] {
            let (payload, mut passed, counters) = carry(protocols, "inline");
            assert!(payload > 0);
            assert!(*passed.came.get_mut() > payload, "{protocols:?}");
            assert!(*passed.left.get_mut() > payload, "{protocols:?}");
            assert_eq!((counters.spliced_frames, counters.corrupt), (0, 0));
        }
    }

    #[test]
    fn two_threads_do_the_stages_where_the_senders_thread_sends() {
        let (_, _, counters) = carry(["tcp", "tcp"], "thread");
        for network in &counters.networks {
            assert_eq!(network.receiver.sending, Duration::ZERO, "{}", network.name);
        }
        let sent = |network: &madgate_gateway::NetworkCounters| network.sender.sending;
        assert!(counters.networks.iter().map(sent).sum::<Duration>() > Duration::ZERO);
    }
}
