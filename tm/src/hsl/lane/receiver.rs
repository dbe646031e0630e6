//! Messages that the other side puts into this side's memory: found in the list, and handed out
//! where they are.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::BytesMut;

use super::answers::{Answers, BufferBack, ControlBack};
use crate::hsl::layout::Geometry;
use crate::hsl::message::{Kind, kind_of, length_with_parts};
use crate::hsl::pending::Place;
use crate::hsl::put::{Device, MessageId, NodeNumber, Receiving};
use crate::hsl::{failure, violation};
use crate::lane::{LaneError, ReceivedSlot};
use crate::local::arrivals::Arrivals;
use crate::local::memory::Mapping;
use crate::local::receiver::{FilledSlots, SlotReceiver};
use crate::local::untold::Untold;
use crate::poller::Interest;

/// The half of a lane that receives.
pub(crate) type HslReceiver<D> = SlotReceiver<PutSlots<D>>;

/// A half that receives into `own`, of this geometry, and answers through `card`.
pub(crate) fn receiver<D>(
    own: &Arc<Mapping>,
    geometry: Geometry,
    list: D::Receiving,
    card: D::Sending,
    peer: NodeNumber,
) -> HslReceiver<D>
where
    D: Device,
    D::Sending: 'static,
{
    SlotReceiver::new(PutSlots::new(own, geometry, list, card, peer))
}

#[derive(Debug)]
pub(crate) struct PutSlots<D: Device> {
    geometry: Geometry,
    list: D::Receiving,
    control: Arc<Arrivals<ControlBack<D::Sending>>>,
    buffers: Arc<Arrivals<BufferBack<D::Sending>>>,
    answers: Arc<Answers<D::Sending>>,
    /// The control slot that is likely to be written next, if it is worth fetching.
    likely: Option<u32>,
}

impl<D> PutSlots<D>
where
    D: Device,
    D::Sending: 'static,
{
    fn new(
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
            likely: None,
        }
    }

    /// The next message.
    #[inline(always)]
    fn next(&mut self) -> Result<Option<Message>, LaneError> {
        let Some(received) = self.list.next_received().map_err(failure)? else {
            return Ok(None);
        };
        self.list.disarm();
        let id = received.message;
        let length = length_with_parts(&received);
        let (place, slot) = match kind_of(id) {
            Some((Kind::Short, slot)) => {
                self.likely = self.control.likely_after(slot, length);
                (Place::Control, slot)
            }
            Some((Kind::Data, slot)) => (Place::Buffer, slot),
            _ => return Err(violates(id, length, "that is no message of a lane")),
        };
        Ok(Some(Message {
            id,
            place,
            slot,
            length,
        }))
    }
}

/// A message that has come.
struct Message {
    id: MessageId,
    /// In which kind of slot it is, which of them, and how many bytes.
    place: Place,
    slot: u32,
    length: u32,
}

impl Message {
    /// What is wrong with it.
    #[cold]
    fn violates(&self, what: &str) -> LaneError {
        violates(self.id, self.length, what)
    }
}

#[cold]
fn violates(id: MessageId, length: u32, what: &str) -> LaneError {
    violation(format!("it puts {length} bytes as {id:?}: {what}"))
}

impl<D> FilledSlots for PutSlots<D>
where
    D: Device,
    D::Sending: 'static,
{
    type Read = (Place, u32);

    fn count(&self) -> u32 {
        // An answer is an entry in the other side's list, and has room for a whole group.
        self.geometry.slots()
    }

    fn slot_bytes(&self) -> u32 {
        self.geometry.slot_bytes()
    }

    fn receive(&mut self) -> Result<Option<ReceivedSlot>, LaneError> {
        let Some(message) = self.next()? else {
            return Ok(None);
        };
        let (slot, length) = (message.slot, message.length);
        let received = match message.place {
            Place::Control => self.control.receive(slot, length),
            Place::Buffer => self.buffers.receive(slot, length),
        };
        received.map(Some).map_err(|what| message.violates(what))
    }

    // For every frame, from one place: a call and what it returns are a tenth of it.
    #[inline(always)]
    fn copy(
        &mut self,
        into: &mut BytesMut,
        read: &mut Untold<Self::Read>,
    ) -> Result<Option<usize>, LaneError> {
        let Some(message) = self.next()? else {
            return Ok(None);
        };
        let (slot, length) = (message.slot, message.length);
        let copied = match message.place {
            Place::Control => self.control.copy(slot, length, into),
            Place::Buffer => self.buffers.copy(slot, length, into),
        };
        let bytes = copied.map_err(|what| message.violates(what))?;
        read.add((message.place, slot));
        Ok(Some(bytes))
    }

    fn give_back(&mut self, read: impl Iterator<Item = Self::Read>) {
        for (place, slot) in read {
            self.answers.lay_down(place, slot);
        }
        self.answers.tell();
    }

    fn may_have_next(&self) -> bool {
        if let Some(slot) = self.likely {
            self.control.fetch(slot);
        }
        self.list.may_have_next()
    }

    fn has_next(&mut self) -> bool {
        self.list.has_next()
    }

    fn arm(&mut self) -> bool {
        self.list.arm()
    }

    fn disarm(&mut self) {
        self.list.disarm();
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        self.list.descriptor()
    }

    fn acknowledge(&mut self) -> bool {
        self.list.acknowledge()
    }

    fn is_peer_there(&mut self) -> bool {
        self.list.is_peer_there()
    }

    fn has_failed(&self) -> bool {
        self.answers.has_failed()
    }

    fn close(&mut self) {
        self.list.close();
    }
}
