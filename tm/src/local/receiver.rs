//! The half of a lane that receives slots, however the peer tells of them.

use std::fmt;
use std::os::fd::BorrowedFd;

use bytes::BytesMut;

use super::LOOKS_BETWEEN_CHECKS;
use super::untold::Untold;
use crate::lane::{LaneError, LaneReceiver, ReceivedSlot, Room, Shape};
use crate::poller::Interest;

/// Slots that the peer fills, and how it is told that they were read: what each protocol has of its
/// own.
pub(crate) trait FilledSlots: fmt::Debug + Send {
    /// A slot whose bytes were copied: what gives it back.
    type Read: fmt::Debug + Send;

    /// How many there are.
    fn count(&self) -> u32;

    /// Bytes that each holds at most.
    fn slot_bytes(&self) -> u32;

    /// The next one that is filled, which goes back when it is dropped.
    ///
    /// # Errors
    /// When the peer says what cannot be: nothing counts after that.
    fn receive(&mut self) -> Result<Option<ReceivedSlot>, LaneError>;

    /// Appends the bytes of the next one that is filled to `into`, and says how many they are. It
    /// goes to those that are `read`, to be [given back](Self::give_back).
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    fn copy(
        &mut self,
        into: &mut BytesMut,
        read: &mut Untold<Self::Read>,
    ) -> Result<Option<usize>, LaneError>;

    /// Gives back what was copied.
    fn give_back(&mut self, read: impl Iterator<Item = Self::Read>);

    /// Whether there may be a next one, at next to no cost; and fetches what is likely to be read
    /// then.
    fn may_have_next(&self) -> bool;

    /// Whether there is a next one.
    fn has_next(&mut self) -> bool;

    /// Asks the peer to wake who sleeps; whether it will, and there is a reason to sleep.
    fn arm(&mut self) -> bool;

    /// Nobody sleeps any more.
    fn disarm(&mut self);

    /// What a sleeper waits for.
    fn descriptor(&self) -> (BorrowedFd<'_>, Interest);

    /// Takes in what woke a sleeper; whether the peer is still there.
    fn acknowledge(&mut self) -> bool;

    /// Whether the peer is still there, or what it has sent is on its way.
    fn is_peer_there(&mut self) -> bool;

    /// Whether slots can no longer be given back.
    fn has_failed(&self) -> bool {
        false
    }

    /// Tells the peer that this is over.
    fn close(&mut self);
}

/// A lane's receiving half, over the slots of its protocol.
#[derive(Debug)]
pub(crate) struct SlotReceiver<S: FilledSlots> {
    slots: S,
    /// Slots that were read and that the peer has not been told of.
    untold: Untold<S::Read>,
    /// Calls that found nothing since the peer was last known to be there.
    looks: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The peer is there, as far as is known.
    Open,
    /// It is gone; what it sent before may still be there.
    Ended,
    /// It said something impossible; nothing after that counts.
    Violated,
}

impl<S: FilledSlots> SlotReceiver<S> {
    pub(crate) fn new(slots: S) -> Self {
        Self {
            untold: Untold::new(slots.count()),
            slots,
            looks: 0,
            state: State::Open,
        }
    }

    /// What `take` makes of the next slot.
    #[inline]
    fn take<R>(
        &mut self,
        take: impl FnOnce(&mut S, &mut Untold<S::Read>) -> Result<Option<R>, LaneError>,
    ) -> Result<Option<R>, LaneError> {
        if self.state == State::Violated {
            return Err(LaneError::Closed);
        }
        let taken = take(&mut self.slots, &mut self.untold);
        match &taken {
            Ok(None) => {}
            Ok(Some(_)) => self.looks = 0,
            Err(_) => self.state = State::Violated,
        }
        taken
    }

    /// Nothing has come now: what comes last, if the peer is gone.
    #[inline(never)]
    fn take_last<R>(
        &mut self,
        take: impl FnOnce(&mut S, &mut Untold<S::Read>) -> Result<Option<R>, LaneError>,
    ) -> Result<Option<R>, LaneError> {
        if self.is_peer_there() {
            return Ok(None);
        }
        // It may have sent something before it went, after the look before this.
        let last = self.take(take)?;
        last.map(Some).ok_or(LaneError::Closed)
    }

    /// Gives back the slots that were read.
    fn tell(&mut self) {
        if !self.untold.is_empty() {
            self.slots.give_back(self.untold.take());
        }
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

    fn check_peer(&mut self) {
        self.looks = 0;
        if self.state == State::Open && !self.slots.is_peer_there() {
            self.state = State::Ended;
        }
        if self.slots.has_failed() {
            self.state = State::Violated;
        }
    }
}

impl<S: FilledSlots> LaneReceiver for SlotReceiver<S> {
    fn shape(&self) -> Shape {
        Shape::Static {
            slot_bytes: self.slots.slot_bytes() as usize,
            slots: self.slots.count() as usize,
        }
    }

    fn try_receive(
        &mut self,
        _straight: Room<'_>,
        _batch: &mut BytesMut,
    ) -> Result<usize, LaneError> {
        Err(LaneError::WrongShape("a stream"))
    }

    fn try_receive_slot(&mut self) -> Result<Option<ReceivedSlot>, LaneError> {
        self.tell();
        match self.take(|slots, _| slots.receive())? {
            None => self.take_last(|slots, _| slots.receive()),
            slot => Ok(slot),
        }
    }

    fn try_receive_copy(&mut self, into: &mut BytesMut) -> Result<Option<usize>, LaneError> {
        let mut copied = self.take(|slots, read| slots.copy(into, read))?;
        if copied.is_none() {
            if self.looks > 0 {
                self.tell();
            }
            copied = self.take_last(|slots, read| slots.copy(into, read))?;
        }
        if self.untold.is_due() {
            self.tell();
        }
        Ok(copied)
    }

    fn may_have_arrived(&self) -> bool {
        self.slots.may_have_next()
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        // Before arming: a ring that this takes in belongs to an earlier arming, or its
        // cause is found by the look below.
        self.check_peer();
        self.tell();
        let sleeps = self.slots.arm();
        if self.slots.has_next() && self.state != State::Violated {
            self.slots.disarm();
            return Ok(false);
        }
        if self.state == State::Open {
            Ok(sleeps)
        } else {
            Err(LaneError::Closed)
        }
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        self.slots.descriptor()
    }

    fn acknowledge_wake(&mut self) {
        self.looks = 0;
        if !self.slots.acknowledge() && self.state == State::Open {
            self.state = State::Ended;
        }
        self.slots.disarm();
    }
}

impl<S: FilledSlots> Drop for SlotReceiver<S> {
    fn drop(&mut self) {
        self.slots.close();
    }
}
