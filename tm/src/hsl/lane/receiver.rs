//! The half of a lane that receives: finds in its list what the other side has put into its
//! memory, and hands it out where it is.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::BytesMut;

use super::answers::{Answers, BufferBack, ControlBack};
use crate::hsl::layout::Geometry;
use crate::hsl::message::{Kind, kind_of, length_with_parts};
use crate::hsl::pending::Place;
use crate::hsl::put::{Device, NodeNumber, PutError, Received, Receiving};
use crate::hsl::{failure, violation};
use crate::lane::{LaneError, LaneReceiver, ReceivedSlot, Shape};
use crate::local::LOOKS_BETWEEN_CHECKS;
use crate::local::arrivals::Arrivals;
use crate::local::memory::Mapping;
use crate::local::untold::Untold;
use crate::poller::Interest;

#[derive(Debug)]
pub(crate) struct HslReceiver<D: Device> {
    geometry: Geometry,
    list: D::Receiving,
    control: Arc<Arrivals<ControlBack<D::Sending>>>,
    buffers: Arc<Arrivals<BufferBack<D::Sending>>>,
    answers: Arc<Answers<D::Sending>>,
    /// Slots that were read and that the other side has not been told of.
    untold: Untold<(Place, u32)>,
    /// The control slot that is likely to be written next, if it is worth fetching.
    likely: Option<u32>,
    /// Calls that found nothing since the peer was last known to be there.
    looks: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The peer is there, as far as is known.
    Open,
    /// It is gone; what it put before may still be there.
    Ended,
    /// It put something impossible; nothing after that counts.
    Violated,
}

impl<D> HslReceiver<D>
where
    D: Device,
    D::Sending: 'static,
{
    /// Receives into `own`, of this geometry, and answers through `card`.
    pub(crate) fn new(
        own: &Arc<Mapping>,
        geometry: Geometry,
        mut list: D::Receiving,
        card: D::Sending,
        peer: NodeNumber,
    ) -> Self {
        let answers = Arc::new(Answers::new(geometry, card, peer));
        let (control, buffers) = (
            ControlBack(Arc::clone(&answers)),
            BufferBack(Arc::clone(&answers)),
        );
        let control = Arc::new(Arrivals::new(own.clone(), geometry.control_row(), control));
        let buffers = Arc::new(Arrivals::new(own.clone(), geometry.buffer_row(), buffers));
        list.keep_out_of(control.clone());
        list.keep_out_of(buffers.clone());
        Self {
            geometry,
            list,
            control,
            buffers,
            answers,
            // An answer is an entry in the other side's list, and has room for a whole group.
            untold: Untold::new(geometry.slots()),
            likely: None,
            looks: 0,
            state: State::Open,
        }
    }

    /// The next message, as `take` has it: in which kind of slot, which of them, and how many
    /// bytes; or says is wrong with it.
    fn take<R>(
        &mut self,
        take: impl FnOnce(&Self, Place, u32, u32) -> Result<R, &'static str>,
    ) -> Result<Option<R>, LaneError> {
        if self.state == State::Violated {
            return Err(LaneError::Closed);
        }
        let received = match self.list.next_received() {
            Ok(Some(received)) => received,
            Ok(None) => return Ok(None),
            Err(error) => return Err(self.failed(error)),
        };
        self.looks = 0;
        self.list.disarm();
        let Received { message, .. } = received;
        let length = length_with_parts(&received);
        let taken = match kind_of(message) {
            Some((Kind::Short, slot)) => {
                self.likely = self.control.likely_after(slot, length);
                take(self, Place::Control, slot, length)
            }
            Some((Kind::Data, slot)) => take(self, Place::Buffer, slot, length),
            _ => Err("that is no message of a lane"),
        };
        taken.map(Some).map_err(|what| {
            self.state = State::Violated;
            violation(format!("it puts {length} bytes as {message:?}: {what}"))
        })
    }

    /// Hands a slot out.
    fn receive(&self, place: Place, slot: u32, length: u32) -> Result<ReceivedSlot, &'static str> {
        match place {
            Place::Control => self.control.receive(slot, length),
            Place::Buffer => self.buffers.receive(slot, length),
        }
    }

    /// Tells the other side which slots were read.
    fn tell(&mut self) {
        if self.untold.is_empty() {
            return;
        }
        for (place, slot) in self.untold.take() {
            self.answers.lay_down(place, slot);
        }
        self.answers.tell();
    }

    /// Nothing has come now. Returns whether the peer is there, as far as is known: it is looked
    /// for now and then.
    fn is_peer_there(&mut self) -> bool {
        self.looks += 1;
        if self.looks >= LOOKS_BETWEEN_CHECKS {
            self.check_peer();
        }
        self.state == State::Open
    }

    fn failed(&mut self, error: PutError) -> LaneError {
        self.state = State::Violated;
        failure(error)
    }

    fn check_peer(&mut self) {
        self.looks = 0;
        if self.state == State::Open && !self.list.is_peer_there() {
            self.state = State::Ended;
        }
        if self.answers.has_failed() {
            self.state = State::Violated;
        }
    }
}

impl<D> LaneReceiver for HslReceiver<D>
where
    D: Device,
    D::Sending: 'static,
{
    fn shape(&self) -> Shape {
        Shape::Static {
            slot_bytes: self.geometry.slot_bytes() as usize,
            slots: self.geometry.slots() as usize,
        }
    }

    fn try_receive(
        &mut self,
        _straight: &mut [u8],
        _batch: &mut BytesMut,
    ) -> Result<usize, LaneError> {
        Err(LaneError::WrongShape("a stream"))
    }

    fn try_receive_slot(&mut self) -> Result<Option<ReceivedSlot>, LaneError> {
        self.tell();
        if let Some(slot) = self.take(Self::receive)? {
            return Ok(Some(slot));
        }
        if self.is_peer_there() {
            return Ok(None);
        }
        // It may have put something before it went, after the look above.
        let last = self.take(Self::receive)?;
        last.map(Some).ok_or(LaneError::Closed)
    }

    fn try_receive_copy(&mut self, into: &mut BytesMut) -> Result<Option<usize>, LaneError> {
        let mut copy = |this: &Self, place, slot, length| {
            let bytes = match place {
                Place::Control => this.control.copy(slot, length, into),
                Place::Buffer => this.buffers.copy(slot, length, into),
            };
            Ok((bytes?, (place, slot)))
        };
        let mut copied = self.take(&mut copy)?;
        if copied.is_none() {
            if self.looks > 0 {
                self.tell();
            }
            if self.is_peer_there() {
                return Ok(None);
            }
            copied = self.take(&mut copy)?;
        }
        let (bytes, read) = copied.ok_or(LaneError::Closed)?;
        if self.untold.add(read) {
            self.tell();
        }
        Ok(Some(bytes))
    }

    fn may_have_arrived(&self) -> bool {
        if let Some(slot) = self.likely {
            self.control.fetch(slot);
        }
        self.list.may_have_next()
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        // Before arming: a ring that this takes in belongs to an earlier arming, or its
        // cause is found by the look below.
        self.check_peer();
        self.tell();
        let sleeps = self.list.arm();
        if self.list.has_next() && self.state != State::Violated {
            return Ok(false);
        }
        if self.state == State::Open {
            Ok(sleeps)
        } else {
            Err(LaneError::Closed)
        }
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        self.list.descriptor()
    }

    fn acknowledge_wake(&mut self) {
        self.looks = 0;
        if !self.list.acknowledge() && self.state == State::Open {
            self.state = State::Ended;
        }
        self.list.disarm();
    }
}

impl<D: Device> Drop for HslReceiver<D> {
    fn drop(&mut self) {
        self.list.close();
    }
}
