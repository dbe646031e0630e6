//! The half of a lane that sends: lends slots of this side's memory, and puts those that are
//! committed, small ones into a control slot and large ones into a buffer that the other side
//! has offered.

use std::os::fd::BorrowedFd;

use crate::hsl::grants::Grants;
use crate::hsl::layout::Geometry;
use crate::hsl::message::{Kind, identifier, kind_of, parts_before};
use crate::hsl::put::{
    Address, Descriptor, Device, NodeNumber, Notify, PutError, Received, Receiving, Sending,
};
use crate::hsl::{failure, violation};
use crate::lane::{LaneError, LaneSender, LentSlot, Piece, Shape};
use crate::local::LOOKS_BETWEEN_CHECKS;
use crate::local::loans::{Loans, Row};
use crate::poller::Interest;

#[derive(Debug)]
pub(crate) struct HslSender<D: Device> {
    loans: Loans,
    card: D::Sending,
    list: D::Receiving,
    peer: NodeNumber,
    control: Target,
    buffers: Option<Target>,
    /// Calls that found nothing since the peer was last known to be there.
    looks: u32,
    closed: bool,
}

/// Where messages of one transmission module go.
#[derive(Debug)]
struct Target {
    kind: Kind,
    row: Row,
    grants: Grants,
}

impl Target {
    fn new(kind: Kind, row: Row) -> Self {
        Self {
            kind,
            row,
            grants: Grants::new(row.slots),
        }
    }
}

impl<D: Device> HslSender<D> {
    /// Sends what `loans` lends, which is what `card` sends from, to who has `geometry`.
    pub(crate) fn new(
        loans: Loans,
        geometry: Geometry,
        card: D::Sending,
        list: D::Receiving,
        peer: NodeNumber,
    ) -> Self {
        let buffers = geometry
            .has_rendezvous()
            .then(|| Target::new(Kind::Data, geometry.buffer_row()));
        Self {
            loans,
            card,
            list,
            peer,
            control: Target::new(Kind::Short, geometry.control_row()),
            buffers,
            looks: 0,
            closed: false,
        }
    }

    /// Whether a slot can be lent that can be sent whatever is put in it.
    fn can_lend(&self) -> bool {
        let lent = self.loans.lent();
        let buffers = self.buffers.as_ref();
        self.loans.has_free()
            && lent < self.control.grants.len()
            && buffers.is_none_or(|buffers| lent < buffers.grants.len())
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
            if let Some(slot) = self.loans.row().slot_of(sent.local.0) {
                self.loans.take_back(slot);
            }
        }
        self.loans.collect_unused();
        Ok(())
    }

    fn handle(&mut self, received: &Received) -> Result<(), LaneError> {
        let [control, offered] = received.words;
        // Each answer uses some of what can be freed, so a peer cannot answer without end.
        let granted = match kind_of(received.message) {
            Some((Kind::Credit, _)) if control == 0 => Err("that frees nothing"),
            Some((Kind::Response, _))
                if control == 0 && (offered == 0 || self.buffers.is_none()) =>
            {
                Err("that frees nothing")
            }
            Some((Kind::Response, group)) => {
                let offer = |buffers: &mut Target| buffers.grants.grant(group, offered);
                let offered = self.buffers.as_mut().map_or(Ok(()), offer);
                offered.and_then(|()| self.control.grants.grant(group, control))
            }
            Some((Kind::Credit, group)) => self.control.grants.grant(group, control),
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

    /// The switch: which of the two transmission modules carries `length` bytes.
    fn target(&mut self, length: u32) -> &mut Target {
        match &mut self.buffers {
            Some(buffers) if length > self.control.row.slot_bytes => buffers,
            _ => &mut self.control,
        }
    }

    /// Sends one unit, which is `pieces` one after the other, if the other side has room for it.
    #[inline(always)]
    fn send(&mut self, pieces: &[Piece<'_>]) -> Result<bool, LaneError> {
        if self.closed {
            return Err(LaneError::Closed);
        }
        let length = self.loans.row().length_of(pieces)?;
        if !self.can_lend() {
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
        let Some(slot) = self.loans.fill(pieces) else {
            return self.note_none_free().map(|()| false);
        };
        self.put_slot(slot, length).map(|()| true)
    }

    /// Puts the first `length` bytes of slot `slot` where the other side expects them.
    fn put_slot(&mut self, slot: u32, length: u32) -> Result<(), LaneError> {
        let mut descriptor = self.address(length)?;
        descriptor.local = Address(self.loans.row().slot_at(slot) as u64);
        descriptor.notify.sent = !D::SENDS_AT_ONCE;
        let put = self.card.try_add(&descriptor);
        if D::SENDS_AT_ONCE || put.is_err() {
            self.loans.take_back(slot);
        }
        self.check_put(put)
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
        let destination = self.peer;
        let target = self.target(length);
        let Some(place) = target.grants.take() else {
            return Err(LaneError::Misuse("committed what was not lent"));
        };
        Ok(Descriptor {
            destination,
            local: Address(0),
            remote: Address(target.row.slot_at(place) as u64),
            length,
            message: identifier(target.kind, place),
            notify: Notify {
                sent: false,
                received: true,
            },
            words: [0; 2],
        })
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
        let row = self.loans.row();
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
        if !self.can_lend() {
            self.take_in()?;
        }
        if self.can_lend()
            && let Some(slot) = self.loans.lend()
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
        let (slot, length) = self.loans.commit(slot, length)?;
        self.put_slot(slot, length)
    }

    fn gathers(&self) -> bool {
        self.card.anywhere_most() >= self.loans.row().slot_bytes
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
