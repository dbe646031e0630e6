//! A receiver to which frames have come by a socket that leave by slots, for unit tests.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use bytes::BytesMut;
use crossbeam_channel::never;
use madgate_gtm::wire::{DESCRIPTOR_BYTES, HEADER_BYTES};
use madgate_gtm::{Header, Kind};
use madgate_tm::{
    Interest, LaneClass, LaneError, LaneReceiver, Piece, Poller, ReceivedSlot, Room, Shape,
};

use super::Receiver;
use crate::batch::Batches;
use crate::fixture::Fixture;

/// What the first call receives: no more than tells where a frame goes.
const FIRST_BYTES: usize = HEADER_BYTES + DESCRIPTOR_BYTES;

/// A socket from which comes what is there.
#[derive(Debug)]
struct Arrived {
    bytes: Vec<u8>,
    has_begun: bool,
    /// Readable all the time.
    descriptor: UnixStream,
    _far: UnixStream,
}

impl Arrived {
    fn new(bytes: Vec<u8>) -> Self {
        let (descriptor, mut far) = UnixStream::pair().unwrap();
        far.write_all(&[0]).unwrap();
        Self {
            bytes,
            has_begun: false,
            descriptor,
            _far: far,
        }
    }
}

impl LaneReceiver for Arrived {
    fn shape(&self) -> Shape {
        Shape::Dynamic { gather_limit: 1 }
    }

    fn try_receive(&mut self, mut room: Room<'_>, rest: &mut BytesMut) -> Result<usize, LaneError> {
        let mut most = room.len() + rest.capacity() - rest.len();
        if !self.has_begun {
            most = most.min(FIRST_BYTES);
        }
        self.has_begun = true;
        let come: Vec<_> = self.bytes.drain(..most.min(self.bytes.len())).collect();
        let (first, behind) = come.split_at(come.len().min(room.len()));
        room.put(Piece::new(first));
        rest.extend_from_slice(behind);
        Ok(come.len())
    }

    fn try_receive_slot(&mut self) -> Result<Option<ReceivedSlot>, LaneError> {
        Err(LaneError::WrongShape("slots"))
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        Ok(true)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.descriptor.as_fd(), Interest::Readable)
    }

    fn acknowledge_wake(&mut self) {}
}

/// The receiver of the first network. Frames of one flow with payloads of these lengths have come, and it knows
/// where the first of them goes.
pub(super) fn receiver_of(fixture: &Fixture, lengths: &[u32]) -> Receiver {
    let (from, link) = (fixture.link_on(), fixture.link());
    let flow = fixture.flow(&from, &link, 0, 64 << 20);
    // Behind the one that has opened it.
    let mut position = Fixture::opening(flow).end_position();
    let mut bytes = Vec::new();
    for &length in lengths {
        let header = Header {
            length,
            position,
            ..Header::new(Kind::Data, flow, 1)
        };
        position = header.end_position();
        bytes.extend_from_slice(&header.to_bytes());
        bytes.resize(bytes.len() + length as usize, 0);
    }
    let engine = Arc::clone(&fixture.engine);
    let (poller, batches) = (Poller::new().unwrap(), Batches::new(2, 1 << 20));
    let mut receiver = Receiver::new(engine, 0, poller, never(), batches);
    receiver.add(from, LaneClass::Bulk, Box::new(Arrived::new(bytes)));
    assert!(receiver.turn(0) && receiver.filled.frames == 0);
    receiver
}
