//! The half of a lane that sends: lends slots, and puts those that are committed, small ones into a
//! control slot and large ones into a buffer that the other side has offered; or lends such buffers
//! themselves, and tells of those that are committed.

use std::os::fd::BorrowedFd;

use super::slot_source::SlotSource;
use crate::hsl::grants::Grants;
use crate::hsl::layout::Geometry;
use crate::hsl::message::{Kind, identifier, kind_of, parts_before};
use crate::hsl::put::{
    Address, Descriptor, Device, NodeNumber, Notify, PutError, Received, Receiving, Sending,
};
use crate::hsl::{failure, violation};
use crate::lane::{LaneError, LaneSender, LentSlot, Piece, Shape};
use crate::local::LOOKS_BETWEEN_CHECKS;
use crate::local::loans::Row;
use crate::poller::Interest;

#[derive(Debug)]
pub(crate) struct HslSender<D: Device> {
    slots: SlotSource,
    card: D::Sending,
    list: D::Receiving,
    peer: NodeNumber,
    control: Grants,
    /// Where control slots,
    control_row: Row,
    /// and where buffers lie at the other side.
    buffer_row: Row,
    /// Calls that found nothing since the peer was last known to be there.
    looks: u32,
    closed: bool,
}

impl<D: Device> HslSender<D> {
    /// Sends what is lent, to who has `geometry`; slots of this side's are what `card` sends from.
    pub(crate) fn new(
        slots: SlotSource,
        geometry: Geometry,
        card: D::Sending,
        list: D::Receiving,
        peer: NodeNumber,
    ) -> Self {
        Self {
            slots,
            card,
            list,
            peer,
            control: Grants::new(geometry.slots()),
            control_row: geometry.control_row(),
            buffer_row: geometry.buffer_row(),
            looks: 0,
            closed: false,
        }
    }

    /// Whether a slot can be lent that can be sent whatever is put in it.
    fn can_lend(&self) -> bool {
        self.slots.is_any(self.control.len())
    }

    /// Whether none of the slots is known to be free that are used as a rule, or none can be lent: then it is
    /// time to [take in](Self::take_in) what the other side says.
    fn is_short_of_slots(&self) -> bool {
        self.slots.loans().is_short() || !self.can_lend()
    }

    /// Takes in what the other side has answered, and slots that are free again: those that
    /// were lent and dropped, and those that the card has sent.
    fn take_in(&mut self) -> Result<(), LaneError> {
        loop {
            match self.list.next_received() {
                Ok(None) => break,
                Ok(Some(received)) => self.handle(&received)?,
                Err(error) => return Err(self.failed(error)),
            }
        }
        while let Some(sent) = self.card.next_sent() {
            let slots = self.slots.loans_mut();
            if let Some(slot) = slots.row().slot_of(sent.local.0) {
                slots.take_back(slot);
            }
        }
        self.slots.loans_mut().collect_unused();
        Ok(())
    }

    fn handle(&mut self, received: &Received) -> Result<(), LaneError> {
        let [control, offered] = received.words;
        // Each answer uses some of what can be freed, so a peer cannot answer without end.
        let granted = match kind_of(received.message) {
            Some((Kind::Credit, _)) if control == 0 => Err("that frees nothing"),
            Some((Kind::Response, _))
                if control == 0 && (offered == 0 || !self.slots.has_buffers()) =>
            {
                Err("that frees nothing")
            }
            Some((Kind::Response, group)) => {
                let offered = self.slots.grant(group, offered);
                offered.and_then(|()| self.control.grant(group, control))
            }
            Some((Kind::Credit, group)) => self.control.grant(group, control),
            _ => Err("that is no answer"),
        };
        granted.map_err(|what| {
            let Received { message, words, .. } = received;
            self.violated(format!("it answers {message:?} with {words:x?}: {what}"))
        })
    }

    fn violated(&mut self, what: String) -> LaneError {
        self.closed = true;
        violation(what)
    }

    fn failed(&mut self, error: PutError) -> LaneError {
        self.closed = true;
        failure(error)
    }

    fn check_peer(&mut self) -> Result<(), LaneError> {
        self.looks = 0;
        self.closed |= !self.list.is_peer_there();
        if self.closed {
            Err(LaneError::Closed)
        } else {
            Ok(())
        }
    }

    /// The switch: whether the transmission module for short messages carries `length` bytes.
    fn is_short(&self, length: u32) -> bool {
        length <= self.control_row.slot_bytes || !self.slots.has_buffers()
    }

    /// Sends one unit, which is `pieces` one after the other, if the other side has room for it.
    #[inline(always)]
    fn send(&mut self, pieces: &[Piece<'_>]) -> Result<bool, LaneError> {
        if self.closed {
            return Err(LaneError::Closed);
        }
        let length = self.slots.row().length_of(pieces)?;
        if self.is_short_of_slots() {
            self.take_in()?;
            if !self.can_lend() {
                return self.note_none_free().map(|()| false);
            }
        }
        self.looks = 0;
        self.list.disarm();
        if let [piece] = pieces
            && length <= self.card.anywhere_most()
        {
            return self.put_piece(*piece, length).map(|()| true);
        }
        if self.gathers() {
            return self.put_pieces(pieces, length).map(|()| true);
        }
        let Some(slot) = self.slots.loans_mut().fill(pieces, length) else {
            return self.note_none_free().map(|()| false);
        };
        self.put_slot(slot, length).map(|()| true)
    }

    /// Puts the first `length` bytes of slot `slot` of this side's where the other side expects them.
    fn put_slot(&mut self, slot: u32, length: u32) -> Result<(), LaneError> {
        debug_assert!(matches!(self.slots, SlotSource::Here { .. }));
        let mut descriptor = self.address(length)?;
        descriptor.local = Address(self.slots.row().slot_at(slot) as u64);
        descriptor.notify.sent = !D::SENDS_AT_ONCE;
        let put = self.card.try_add(&descriptor);
        if D::SENDS_AT_ONCE || put.is_err() {
            self.slots.loans_mut().take_back(slot);
        }
        self.check_put(put)
    }

    /// Tells of `length` bytes that are in buffer `buffer` of the other side's already. What fits in a
    /// control slot goes there, as the other side expects it.
    fn put_there(&mut self, buffer: u32, length: u32) -> Result<(), LaneError> {
        if !self.is_short(length) {
            // As of a message whose parts have all been put.
            let mut entry = self.entry(Kind::Data, self.buffer_row, buffer, 0);
            entry.words = parts_before(length.into());
            let put = self.card.try_add(&entry);
            return self.check_put(put);
        }
        let entry = self.address(length);
        let put = entry.map(|entry| {
            let bytes = self.slots.loans().bytes_of(buffer, length);
            self.card.try_add_from(bytes, &entry)
        });
        self.slots.loans_mut().take_back_untold(buffer);
        self.check_put(put?)
    }

    /// Puts a message of `length` bytes from where its pieces are, of which the card is done with
    /// each when it has been added. Each is an entry, and the last one is told of: whatever keeps
    /// that from being added ends the lane, and nobody has seen those before it.
    fn put_pieces(&mut self, pieces: &[Piece<'_>], length: u32) -> Result<(), LaneError> {
        let mut entry = self.address(length)?;
        let (last, others) = pieces
            .split_last()
            .map_or((None, pieces), |(last, others)| (Some(*last), others));
        let start = entry.remote.0;
        entry.notify.received = false;
        for piece in others.iter().filter(|piece| !piece.is_empty()) {
            let put = self.card.try_add_from(*piece, &entry);
            self.check_put(put)?;
            entry.remote.0 += piece.len() as u64;
        }
        entry.notify.received = true;
        entry.words = parts_before(entry.remote.0 - start);
        let put = self.card.try_add_from(last.unwrap_or_default(), &entry);
        self.check_put(put)
    }

    /// As [`put_pieces`](Self::put_pieces), for a message in one piece: one entry.
    #[inline(always)]
    fn put_piece(&mut self, piece: Piece<'_>, length: u32) -> Result<(), LaneError> {
        let entry = self.address(length)?;
        let put = self.card.try_add_from(piece, &entry);
        self.check_put(put)
    }

    /// An entry for a message of `length` bytes, wherever they are.
    #[inline(always)]
    fn address(&mut self, length: u32) -> Result<Descriptor, LaneError> {
        let (kind, row, place) = if self.is_short(length) {
            (Kind::Short, self.control_row, self.control.take())
        } else {
            (Kind::Data, self.buffer_row, self.slots.take_buffer(length))
        };
        let place = place.ok_or(LaneError::Misuse("committed what was not lent"))?;
        Ok(self.entry(kind, row, place, length))
    }

    /// An entry for `length` bytes that go to `place` of `row`.
    #[inline(always)]
    fn entry(&self, kind: Kind, row: Row, place: u32, length: u32) -> Descriptor {
        Descriptor {
            destination: self.peer,
            local: Address(0),
            remote: Address(row.slot_at(place) as u64),
            length,
            message: identifier(kind, place),
            notify: Notify {
                sent: false,
                received: true,
            },
            words: [0; 2],
        }
    }

    #[inline(always)]
    fn check_put(&mut self, put: Result<(), PutError>) -> Result<(), LaneError> {
        put.map_err(|error| match error {
            PutError::Full => {
                self.violated("it says that it has not read what it has answered".to_owned())
            }
            error => self.failed(error),
        })
    }

    /// Nothing can be lent now: looks now and then whether the peer is there.
    fn note_none_free(&mut self) -> Result<(), LaneError> {
        self.looks += 1;
        if self.looks >= LOOKS_BETWEEN_CHECKS {
            self.check_peer()?;
        }
        Ok(())
    }
}

impl<D: Device> LaneSender for HslSender<D> {
    fn shape(&self) -> Shape {
        let row = self.slots.row();
        Shape::Static {
            slot_bytes: row.slot_bytes as usize,
            slots: row.slots as usize,
        }
    }

    fn only_stores(&self) -> bool {
        D::SENDS_AT_ONCE
    }

    fn try_send(&mut self, _pieces: &[Piece<'_>]) -> Result<usize, LaneError> {
        Err(LaneError::WrongShape("a stream"))
    }

    fn try_lend(&mut self) -> Result<Option<LentSlot>, LaneError> {
        if self.closed {
            return Err(LaneError::Closed);
        }
        if self.is_short_of_slots() {
            self.take_in()?;
        }
        if self.can_lend()
            && let Some(slot) = self.slots.loans_mut().lend()
        {
            self.looks = 0;
            self.list.disarm();
            return Ok(Some(slot));
        }
        self.note_none_free().map(|()| None)
    }

    fn commit(&mut self, slot: LentSlot, length: usize) -> Result<(), LaneError> {
        if self.closed {
            return Err(LaneError::Closed);
        }
        let (slot, length) = self.slots.loans_mut().commit(slot, length)?;
        match self.slots {
            SlotSource::Here { .. } => self.put_slot(slot, length),
            SlotSource::There(_) => self.put_there(slot, length),
        }
    }

    fn gathers(&self) -> bool {
        self.card.anywhere_most() >= self.slots.row().slot_bytes
    }

    fn try_send_copy(&mut self, unit: &[u8]) -> Result<bool, LaneError> {
        // With one piece nothing is left of what goes through them.
        self.send(&[Piece::new(unit)])
    }

    fn try_send_gathered(&mut self, pieces: &[Piece<'_>]) -> Result<bool, LaneError> {
        self.send(pieces)
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        // Before arming: a ring that this takes in belongs to an earlier arming, or its
        // cause is found by the look below.
        self.check_peer()?;
        let sleeps = self.list.arm();
        self.take_in()?;
        if self.can_lend() {
            self.list.disarm();
            return Ok(false);
        }
        Ok(sleeps)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        self.list.descriptor()
    }

    fn acknowledge_wake(&mut self) {
        // What it finds is told by the next call.
        self.closed |= !self.list.acknowledge();
        self.list.disarm();
    }
}

impl<D: Device> Drop for HslSender<D> {
    fn drop(&mut self) {
        self.list.close();
    }
}
