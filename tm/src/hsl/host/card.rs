//! The half of the card that sends. Unsafe island: it stores in the other side's memory what an
//! entry names, after checking that all of it is registered.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::credit::ListRoom;
use super::{FOREIGN, ForeignProcess, ListPlace, Mode, range_within};
use crate::copying::{Stores, UnitWriter};
use crate::hsl::counters::Tally;
use crate::hsl::lent_out::LentOut;
use crate::hsl::put::{
    Address, CARRIED_MOST, Descriptor, ENTRY_WORDS, Entry, NodeNumber, Notify, Offered, PutError,
    Reaching, Received, Refused, Sending, Sent,
};
use crate::local::armed::ArmedWatch;
use crate::local::bell::Bell;
use crate::local::memory::{Mapping, OwnWords, PeerWords};
use crate::local::ring::RingWriter;
use crate::piece::Piece;

/// Entries whose end has been asked for and not been taken in, at most.
const SENT_MOST: usize = 1024;

/// Ranges of unregistered memory that are offered at once, at most: more than the segments of an
/// answer.
const OFFERED_MOST: usize = 64;

/// The sending half of an emulated card, connected to one other node.
#[derive(Debug)]
pub struct HostCard {
    node: NodeNumber,
    peer: NodeNumber,
    mode: Mode,
    /// Memory of this side: its addresses are offsets.
    local: Arc<Mapping>,
    /// Which part of it is registered.
    local_registered: Range<u64>,
    /// The other side's memory.
    window: Arc<Mapping>,
    /// Which part of it is registered; the rest are its lists.
    registered: Range<u64>,
    list: RingWriter<OwnWords, ENTRY_WORDS>,
    /// Where data may go that travels in its entries.
    carries: Range<u64>,
    /// Room in the other side's list.
    room: ListRoom<PeerWords>,
    armed: ArmedWatch<PeerWords>,
    bell: Arc<Bell>,
    /// Messages that have been sent, of which nobody has asked yet.
    sent: VecDeque<Sent>,
    /// The other process, where its unregistered memory may be written,
    foreign: Option<ForeignProcess>,
    /// and which of it has been offered.
    offered: Vec<Range<u64>>,
    writer: UnitWriter,
    tally: Arc<Tally>,
}

/// Where an entry's data comes from and goes.
#[derive(Debug)]
enum Way {
    /// There is none.
    Nothing,
    /// From here to registered memory there.
    Registered(NonNull<[u8]>, NonNull<[u8]>),
    /// From here into the notification.
    Carried(NonNull<[u8]>),
    /// From here to an address of the other process.
    Foreign(NonNull<[u8]>, u64),
}

/// What a card is connected to.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Which part of this side's memory is registered.
    pub(crate) local_registered: Range<usize>,
    /// This node.
    pub(crate) node: NodeNumber,
    /// The other one.
    pub(crate) peer: NodeNumber,
    /// The other side's memory, mapped for writing.
    pub(crate) window: Arc<Mapping>,
    /// Which part of it is registered.
    pub(crate) registered: Range<usize>,
    /// Which list of it this card writes.
    pub(crate) list: ListPlace,
    /// How its reader is woken.
    pub(crate) bell: Arc<Bell>,
}

impl HostCard {
    /// A card that sends from `local`, where an entry may name only what nobody writes
    /// meanwhile. Who writes the window by other means, or sends from it, adds no entry that names
    /// what is being written or read.
    pub(crate) fn new(local: Arc<Mapping>, mode: Mode, to: Connection) -> Self {
        let Connection {
            local_registered,
            node,
            peer,
            window,
            registered,
            list,
            bell,
        } = to;
        assert!(registered.end <= window.len() && local_registered.end <= local.len());
        Self {
            node,
            peer,
            mode,
            local,
            local_registered: local_registered.start as u64..local_registered.end as u64,
            registered: registered.start as u64..registered.end as u64,
            list: RingWriter::new(window.words(list.at, list.entries * ENTRY_WORDS)),
            room: ListRoom::new(window.peer_words(list.head_at, 1), list.entries),
            armed: ArmedWatch::new(window.peer_words(list.armed_at, 1)),
            carries: list.carries,
            window,
            bell,
            sent: VecDeque::with_capacity(SENT_MOST),
            foreign: None,
            offered: Vec::with_capacity(OFFERED_MOST),
            writer: UnitWriter::new(Stores::Cached),
            tally: Tally::new(),
        }
    }

    /// The same, of which data is stored like this in the other side's memory.
    pub(crate) fn stored(mut self, stores: Stores) -> Self {
        self.writer = UnitWriter::new(stores);
        self
    }

    /// As a card whose owner lies about where data may travel in entries: anywhere in registered
    /// memory.
    #[cfg(not(loom))]
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn carry_anywhere(&mut self) {
        self.carries = self.registered.clone();
    }

    /// Lets the card write unregistered memory of `process`, where it is offered.
    pub(crate) fn reach(&mut self, process: ForeignProcess) {
        self.foreign = Some(process);
    }

    /// Where an entry's data is and goes, if all of it is registered, or offered.
    #[inline(always)]
    fn check(&self, descriptor: &Descriptor, from: Option<NonNull<[u8]>>) -> Result<Way, PutError> {
        let Descriptor {
            destination,
            local,
            remote,
            length,
            ..
        } = *descriptor;
        if destination != self.peer {
            return Err(PutError::Node(destination));
        }
        if length == 0 {
            return Ok(Way::Nothing);
        }
        let from = match from {
            Some(from) => from,
            None => {
                let here = range_within(local, length, &self.local_registered)
                    .ok_or(PutError::Local(local, length))?;
                self.local.range(here, length as usize)
            }
        };
        let refused = PutError::Remote(remote, length);
        if remote.0 & FOREIGN != 0 {
            let is_offered = |range| range_within(remote, length, range).is_some();
            if self.foreign.is_none() || !self.offered.iter().any(is_offered) {
                return Err(refused);
            }
            return Ok(Way::Foreign(from, remote.0 & !FOREIGN));
        }
        let there = range_within(remote, length, &self.registered).ok_or(refused)?;
        let is_carried = descriptor.notify.received
            && Entry::can_carry(remote, from.len())
            && range_within(remote, length, &self.carries).is_some();
        if is_carried {
            return Ok(Way::Carried(from));
        }
        let there = self.window.range(there, length as usize);
        Ok(Way::Registered(from, there))
    }

    /// Does what an entry says, with data that is at `from` if not where it says. Inlined, as callers
    /// know most of what is asked here.
    #[inline(always)]
    fn send(
        &mut self,
        descriptor: &Descriptor,
        from: Option<NonNull<[u8]>>,
    ) -> Result<(), PutError> {
        let Notify { sent, received } = descriptor.notify;
        if (received && !self.room.is_any()?) || (sent && self.sent.len() == SENT_MOST) {
            return Err(PutError::Full);
        }
        let mut carried = None;
        match self.check(descriptor, from) {
            Ok(Way::Nothing) => {}
            Ok(Way::Registered(from, to)) => {
                // SAFETY: `to` is within the window, which is writable and which this card
                // keeps, and has as many bytes as `from` (`check`). No other thread of this process
                // writes there, and `from` is none of it: whoever else uses the window (`new`) adds
                // no entry that names what it has lent, or what the entry's data is read from. (A peer
                // that passes this side's own memory off as its own gets what it deserves: plain
                // bytes at other addresses.)
                unsafe { copy(&mut self.writer, from, to) };
            }
            Ok(Way::Carried(from)) => {
                let mut bytes = [0; CARRIED_MOST];
                let to = NonNull::from(&mut bytes[..from.len()]);
                // SAFETY: `to` is a local array, and has as many bytes as `from`.
                unsafe { copy(&mut self.writer, from, to) };
                carried = Some((descriptor.remote, bytes));
            }
            Ok(Way::Foreign(from, to)) => {
                let process = self.foreign.as_ref().ok_or(PutError::Unreachable(0))?;
                // SAFETY: `from` is what `check` found for this entry: registered memory of this side,
                // which this card keeps, or what the caller has lent for the call.
                let calls = unsafe { process.write(from, to) }?;
                self.tally.foreign_puts.add(1);
                self.tally.foreign_calls.add(calls);
            }
            Err(error) => {
                self.tally.refused.add(1);
                return Err(error);
            }
        }
        self.tally.puts.add(1);
        self.tally.put_bytes.add(descriptor.length.into());
        if from.is_none() {
            self.tally.registered_bytes.add(descriptor.length.into());
        }
        if received {
            self.notify(descriptor, carried);
        }
        if sent {
            self.sent.push_back(Sent {
                message: descriptor.message,
                local: descriptor.local,
            });
        }
        Ok(())
    }

    #[inline(always)]
    fn notify(&mut self, descriptor: &Descriptor, carried: Option<(Address, [u8; CARRIED_MOST])>) {
        let received = Received {
            source: self.node,
            message: descriptor.message,
            length: descriptor.length,
            words: descriptor.words,
        };
        let entry = Entry { received, carried };
        self.list.publish(entry.to_words());
        self.room.take();
        self.tally.notifications.add(1);
        let rings = match self.mode {
            Mode::Polling => false,
            Mode::Interrupt => true,
            Mode::Adaptive => self.armed.must_wake(),
        };
        if rings {
            self.tally.doorbells.add(1);
            self.bell.ring();
        }
    }
}

impl Sending for HostCard {
    fn try_add(&mut self, descriptor: &Descriptor) -> Result<(), PutError> {
        self.send(descriptor, None)
    }

    fn anywhere_most(&self) -> u32 {
        // Where data is does not matter to a card that is a thread of this process.
        u32::MAX
    }

    #[inline(always)]
    fn try_add_from(&mut self, data: Piece<'_>, descriptor: &Descriptor) -> Result<(), PutError> {
        let length =
            u32::try_from(data.len()).map_err(|_| PutError::Local(descriptor.local, u32::MAX))?;
        let descriptor = Descriptor {
            length,
            ..*descriptor
        };
        self.send(&descriptor, Some(data.memory()))
    }

    fn next_sent(&mut self) -> Option<Sent> {
        self.sent.pop_front()
    }
}

impl Reaching for HostCard {
    type Source = Vec<u8>;
    type Target = LentOut;

    fn largest(&self) -> u32 {
        u32::MAX
    }

    fn source(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>, Refused> {
        // This card reads whatever its thread can.
        Ok(bytes)
    }

    fn try_add_part(
        &mut self,
        source: &Vec<u8>,
        part: Range<usize>,
        descriptor: &Descriptor,
    ) -> Result<(), PutError> {
        self.try_add_from(Piece::new(&source[part]), descriptor)
    }

    fn target(&mut self, bytes: Vec<u8>) -> Result<LentOut, Refused> {
        Ok(LentOut::new(bytes))
    }

    fn offer(&mut self, offered: impl Iterator<Item = Offered>) -> Result<(), PutError> {
        self.offered.clear();
        for Offered { range, .. } in offered {
            if self.offered.len() == OFFERED_MOST {
                self.offered.clear();
                return Err(PutError::Peer("it offers more ranges of memory than 64"));
            }
            self.offered.push(range);
        }
        Ok(())
    }
}

/// Copies what an entry names.
///
/// # Safety
/// `from` is what [`HostCard::check`] found for an entry that is being sent, and `to` is writable,
/// as long, no part of it, and not accessed by another thread of this process.
unsafe fn copy(writer: &mut UnitWriter, from: NonNull<[u8]>, to: NonNull<[u8]>) {
    // SAFETY: `from` is within the local mapping, which is readable and which the card keeps, or
    // what a `Piece` refers to that the caller holds meanwhile, which is valid for reads (its
    // invariant); `to` is as the caller says. Bytes have no alignment and every value is valid. Nobody
    // in this process writes `from` meanwhile: registered memory is only reached through pointers, and a
    // slot is named by an entry only after its loan has ended (`Loans::commit`); a piece borrows its
    // memory as shared, and of cells only the thread writes that is here. Other *processes* may
    // access either meanwhile; they are outside of this program's memory model, and any mix of old
    // and new bytes is an acceptable outcome.
    unsafe { writer.copy(from, to) };
}
