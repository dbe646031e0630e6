//! The two ends of a hand-over, as the threads of a pipeline have them, for the bench that times
//! it. What they do is the engine's own: its mailbox, its links and its batches. Left out are
//! the flow table, and the network.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use bytes::BytesMut;
use crossbeam_channel::Receiver;
use madgate_bmm::Buffer;
use madgate_gtm::{Budget, Transit};
use madgate_tm::{Interest, LaneError, LaneSender, LentSlot, Piece, Poller, Shape};
use madgate_vchannel::conductor::{LinkKind, LinkRequest};
use madgate_vchannel::{NetworkId, NodeId};

use crate::batch::Batches;
use crate::engine::Hub;
use crate::link::Link;

/// Bytes of a batch, as `batch` has it by default.
const BATCH_BYTES: usize = 1 << 20;

/// What a batch holds: that it is handed over, not that it is carried, is measured.
const FRAME: [u8; 64] = [0; 64];

/// Pieces that a lane takes in one call.
const GATHER_LIMIT: usize = 64;

/// A receiver's end: it hands over what it has read.
#[derive(Debug)]
pub struct Receiving {
    hub: Arc<Hub>,
    link: Arc<Link>,
    batches: Batches,
    /// What the sender's waker wakes.
    _poller: Poller,
}

/// A sender's end: it sends what was handed over.
#[derive(Debug)]
pub struct Sending {
    handovers: Receiver<Arc<Link>>,
}

/// Both ends of a pipeline with so many batches.
///
/// # Errors
/// When the system refuses what a thread waits with.
pub fn pipeline(depth: usize) -> io::Result<(Receiving, Sending)> {
    let poller = Poller::new()?;
    let network = NetworkId(0);
    let name = "bench".to_owned();
    let (hub, ends) = Hub::new(network, name, poller.waker(), poller.waker());
    let request = LinkRequest {
        kind: LinkKind::Deliver,
        network,
        peer: NodeId(0),
    };
    let transit = Transit::<()>::new(Budget::new(0)).add_link();
    let (urgent, bulk) = (Box::new(Sink::new()?), Box::new(Sink::new()?));
    let link = Link::new(transit, 0, request, 0, 0, true, true, urgent, bulk);
    let receiving = Receiving {
        hub: Arc::new(hub),
        link: Arc::new(link),
        batches: Batches::new(depth, BATCH_BYTES),
        _poller: poller,
    };
    let handovers = ends.handovers;
    Ok((receiving, Sending { handovers }))
}

impl Receiving {
    /// Hands a batch over, if one is free.
    pub fn try_hand_over(&mut self) -> bool {
        let Some(mut batch) = self.batches.take() else {
            return false;
        };
        batch.extend_from_slice(&FRAME);
        let whole = batch.split().freeze();
        self.batches.give_back(batch);
        let mut output = self.link.output();
        output.bulk.outbox.push(Buffer::shared(whole), None);
        drop(output);
        self.hub.hand_over(&self.link);
        true
    }

    /// Whether a batch is free; it stays so.
    pub fn has_batch(&mut self) -> bool {
        let batch: Option<BytesMut> = self.batches.take();
        batch.map(|batch| self.batches.give_back(batch)).is_some()
    }
}

impl Sending {
    /// Sends what was handed over, if there is anything, which frees its batch.
    pub fn try_send(&self) -> bool {
        let Ok(link) = self.handovers.try_recv() else {
            return false;
        };
        link.taken_over();
        let mut output = link.output();
        let lane = &mut output.bulk;
        if let Some(sender) = &mut lane.sender {
            // It takes all that there is.
            let _ = lane.outbox.flush(&mut **sender, |_, _| {});
        }
        true
    }
}

/// A lane that takes everything, and carries it nowhere.
#[derive(Debug)]
struct Sink(UnixStream);

impl Sink {
    fn new() -> io::Result<Self> {
        Ok(Self(UnixStream::pair()?.0))
    }
}

impl LaneSender for Sink {
    fn shape(&self) -> Shape {
        Shape::Dynamic {
            gather_limit: GATHER_LIMIT,
        }
    }

    fn try_send(&mut self, pieces: &[Piece<'_>]) -> Result<usize, LaneError> {
        Ok(pieces.iter().map(Piece::len).sum())
    }

    fn try_lend(&mut self) -> Result<Option<LentSlot>, LaneError> {
        Err(LaneError::WrongShape("lent slots"))
    }

    fn commit(&mut self, _: LentSlot, _: usize) -> Result<(), LaneError> {
        Err(LaneError::WrongShape("lent slots"))
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        Ok(true)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.0.as_fd(), Interest::Writable)
    }

    fn acknowledge_wake(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_free_again_when_it_was_sent() {
        let (mut receiving, sending) = pipeline(1).unwrap();
        assert!(!sending.try_send());
        for _ in 0..3 {
            assert!(receiving.has_batch());
            assert!(receiving.try_hand_over());
            assert!(!receiving.has_batch() && !receiving.try_hand_over());
            assert!(sending.try_send());
            assert!(!sending.try_send());
        }
    }
}
