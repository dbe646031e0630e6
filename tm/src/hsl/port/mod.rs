//! A port: two processes that send each other messages over PUT, as MPI-MPC did.
//!
//! ```text
//!   sender                                   receiver
//!   send(short) ── SHORT, with the data ───> control slot ──> next_arrived
//!
//!   send(large) ── REQ ────────────────────> posted? its segments
//!               <─ RSP, a list of segments ─ else a buffer of the port's own
//!               ══ puts, piece by piece ═══> straight into it
//!               ── DATA ───────────────────> next_arrived
//! ```
//!
//! A message is a list of [`Block`]s. Up to the threshold it travels in a control slot, with a
//! copy at each end; above it, straight from the sender's blocks into the receiver's. When
//! nothing is posted, the receiver answers with a buffer of its own, so that the sender need not
//! wait (report 004, section II.2.3); it has a fixed number of these.
//!
//! Credit for control slots rides on whatever goes to the other side, and goes by itself, as
//! CRDT, when half of the slots are free and nothing goes there.
//!
//! - **Set up**: [`PortStart::new`] on both ends of a connected socket (over libfabric,
//!   [`FabricPortStart::new`](super::fabric::FabricPortStart::new)), then
//!   [`advance`](PortStart::advance).
//! - **Send**: [`send_short`](Port::send_short), [`send`](Port::send).
//! - **Receive**: [`post`](Port::post).
//! - **Go on**: [`progress`](Port::progress), then [`next_arrived`](Port::next_arrived) and
//!   [`next_sent`](Port::next_sent); or, for messages that are copied anyway,
//!   [`receive_short`](Port::receive_short).
//! - **Sleep**: [`arm`](Port::arm), [`descriptor`](Port::descriptor),
//!   [`acknowledge`](Port::acknowledge).
//!
//! Messages arrive when they are whole: a short one may pass a large one.

mod arena;
mod block;
mod device;
#[cfg(not(loom))]
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzzing;
mod incoming;
mod layout;
mod matching;
mod outgoing;
mod staging;
mod start;
#[cfg(test)]
#[cfg(not(loom))]
pub(super) mod tests;
mod untaken;

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

pub use arena::{Arena, ArenaBuffer};
pub use block::Block;
pub use device::{Link, PortDevice};
pub use start::{HostLink, PortStart};
pub use untaken::{Untaken, Why};

pub(in crate::hsl) use layout::Geometry;

use super::grants::Grants;
use super::host::{HostDevice, Mode};
use super::message::{Kind, identifier, kind_of};
use super::put::{
    Address, Descriptor, Device, MessageId, NodeNumber, Notify, Put, PutError, Reaching, Received,
    Receiving, Sending, Sent,
};
use super::registration::RegistrationLimits;
use crate::copying::Stores;
use crate::hsl::violation;
use crate::lane::{LaneError, ReceivedSlot};
use crate::local::arrivals::Claimed;
use crate::local::memory::{Mapping, SharedBytes};
use crate::poller::Interest;
use incoming::{Incoming, Segment};
use outgoing::{Outgoing, Part, Unsent, Way};
use staging::Staging;

/// A caller that only looks still learns of the peer's death: after so many times in a row that
/// nothing had come, a port looks at its socket. That is a system call, and so it is rare.
const LOOKS_BETWEEN_CHECKS: u32 = 1 << 17;

/// Messages that are copied, one right after the other, before a port sees to everything else: to
/// requests that can be answered, and credit.
const COPIES_BETWEEN_SETTLING: u32 = 8;
/// Entries of the list that one call takes in, at most.
const ENTRIES_PER_CALL: u32 = 256;

/// How a port is tuned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortTuning {
    /// Control slots that the other side may fill before this one has read any: 2 to 64.
    /// Default: 32.
    pub slots: usize,
    /// Bytes of the largest control message, not 0. Default: 16 KiB, as in paper 000.
    pub threshold_bytes: usize,
    /// Buffers for messages that nothing has been posted for: up to 64. Default: 4.
    pub buffers: usize,
    /// Bytes of each; not 0 where there are any. Default: 1 MiB.
    pub buffer_bytes: usize,
    /// Bytes of the arena, of which whole multiples of 128 are used. Default: 16 MiB.
    pub arena_bytes: usize,
    /// How this side learns that something has come. Default: adaptive.
    pub mode: Mode,
    /// How the emulated card stores what it puts in registered memory. Default: adaptive.
    pub stores: Stores,
    /// Whether memory outside of the arena may be posted, which the other side then writes: with
    /// the emulated card through the kernel, over libfabric by a registration, which is kept
    /// beyond the message where registrations are. It is trusted to write none of it later than it
    /// says. Over libfabric memory that is sent from is registered in the same way then. Default:
    /// no.
    pub foreign: bool,
    /// How many registrations of memory outside of the arena are kept, where cards have to be told
    /// of it (those of libfabric's); `None` makes one for each message. All ports of a process over
    /// one network that agree on `foreign` have them in common: the limits of the first one count. Default: those of
    /// [`RegistrationLimits`].
    pub registrations: Option<RegistrationLimits>,
}

impl Default for PortTuning {
    fn default() -> Self {
        Self {
            slots: 32,
            threshold_bytes: 16 << 10,
            buffers: 4,
            buffer_bytes: 1 << 20,
            arena_bytes: 16 << 20,
            mode: Mode::default(),
            stores: Stores::default(),
            foreign: false,
            registrations: Some(RegistrationLimits::default()),
        }
    }
}

/// A message that is here.
#[derive(Debug)]
#[non_exhaustive]
pub enum Arrived {
    /// In a control slot.
    Short(ReceivedSlot),
    /// In what was posted for it: so many bytes.
    Posted(Vec<Block>, u64),
    /// In a buffer of the port's own, as nothing had been posted.
    Unposted(ReceivedSlot),
}

/// A message that is here, and that nobody has taken.
#[derive(Debug)]
enum Here {
    /// In a control slot, to be handed out or copied.
    Short(Claimed),
    Other(Arrived),
}

/// What a port has done; the counters only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PortCounters {
    /// Messages that went as SHORT.
    pub shorts: u64,
    /// Messages that went by rendezvous.
    pub rendezvous: u64,
    /// Messages of which this side makes a copy: into staging when they are sent, and out of the
    /// slot or the buffer that they are handed out in, by who reads them there; that somebody reads
    /// what is handed out, and once, is taken for granted.
    pub copies: u64,
    /// CRDTs that were sent, because there was nothing for credit to ride on.
    pub credits: u64,
}

type CardOf<D> = <D as Device>::Sending;
type SourceOf<D> = <CardOf<D> as Reaching>::Source;
type TargetOf<D> = <CardOf<D> as Reaching>::Target;

/// One end.
#[derive(Debug)]
pub struct Port<D: PortDevice = HostDevice> {
    put: Put<D>,
    peer: NodeNumber,
    own_geometry: Geometry,
    peer_geometry: Geometry,
    bytes: SharedBytes,
    arena: Arena,
    /// Control slots of the other side that may be filled.
    control: Grants,
    outgoing: Outgoing<SourceOf<D>>,
    incoming: Incoming<TargetOf<D>>,
    staging: Staging,
    arrived: VecDeque<Here>,
    link: D::Link,
    /// The answer that is being sent.
    segments: Vec<u8>,
    counters: PortCounters,
    /// Times that nothing had come since the peer was last known to be there.
    looks: u32,
    /// Messages that were copied since everything else was last seen to.
    copied: u32,
    has_failed: bool,
}

/// What a port is made of.
#[derive(Debug)]
pub(super) struct Parts<D: PortDevice> {
    pub(super) put: Put<D>,
    pub(super) peer: NodeNumber,
    /// This side's memory, which the other side writes.
    pub(super) own: Arc<Mapping>,
    /// What this side receives with, and the other one.
    pub(super) geometries: [Geometry; 2],
    pub(super) link: D::Link,
}

impl<D: PortDevice> Port<D> {
    /// Both sides are there.
    pub(super) fn new(parts: Parts<D>) -> Result<Self, LaneError> {
        let Parts {
            put,
            peer,
            own,
            geometries: [own_geometry, peer_geometry],
            link,
        } = parts;
        let bytes = SharedBytes::new(Arc::clone(&own));
        let (at, capacity) = own_geometry.arena();
        let mut port = Self {
            put,
            peer,
            arena: Arena::new(bytes.clone(), at, capacity),
            staging: Staging::new(bytes.clone(), own_geometry.staging_row()),
            bytes,
            control: Grants::new(peer_geometry.control_row().slots),
            outgoing: Outgoing::new(),
            incoming: Incoming::new(&own, own_geometry),
            arrived: VecDeque::new(),
            own_geometry,
            peer_geometry,
            link,
            segments: Vec::with_capacity(layout::SEGMENTS_MAX * layout::SEGMENT_BYTES),
            counters: PortCounters::default(),
            looks: 0,
            copied: 0,
            has_failed: false,
        };
        // A list that a handler reads carries nothing.
        if let Some(list) = port.put.receiving() {
            for slots in port.incoming.lending() {
                list.keep_out_of(slots);
            }
        }
        // All control slots are free, which nobody knows yet.
        port.progress()?;
        Ok(port)
    }

    /// Where memory comes from that needs no copies.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> PortCounters {
        self.counters
    }

    /// How often a handler thread was woken, where there is one.
    #[must_use]
    pub fn interrupts(&self) -> u64 {
        self.put.interrupts()
    }

    pub(super) fn card(&mut self) -> &mut CardOf<D> {
        self.put.sending()
    }

    /// Bytes of the largest message that goes as SHORT.
    #[must_use]
    pub fn threshold_bytes(&self) -> usize {
        // Each side has staging for its own.
        let [here, there] = [self.own_geometry, self.peer_geometry];
        here.control_bytes().min(there.control_bytes()) as usize
    }

    // ---- send ---------------------------------------------------------------------------

    /// Sends what fits in a control slot; `false` when none is free now.
    ///
    /// # Errors
    /// When it does not fit, or the peer is gone or misbehaves.
    pub fn send_short(&mut self, message: &[u8]) -> Result<bool, LaneError> {
        self.check_open()?;
        if message.len() > self.threshold_bytes() {
            return Err(LaneError::Misuse("too long for a control slot"));
        }
        if self.control.len() == 0 || !self.staging.has_free() {
            return Ok(false);
        }
        self.put_short(message.len(), |bytes, at| bytes.write(at, message))?;
        Ok(true)
    }

    /// Puts `length` bytes into a control slot of the other side, which `fill` copies to staging.
    fn put_short(
        &mut self,
        length: usize,
        fill: impl FnOnce(&SharedBytes, usize),
    ) -> Result<(), LaneError> {
        let Some(slot) = self.control.take() else {
            return Err(LaneError::Misuse("no control slot is free"));
        };
        self.counters.shorts += 1;
        self.counters.copies += 1;
        let remote = self.peer_geometry.control_row().slot_at(slot);
        let message = identifier(Kind::Short, slot);
        self.tell_with(message, (remote, length), fill, 0)
    }

    /// Sends a message. Its blocks come back from [`next_sent`](Self::next_sent), with the
    /// number that this returns.
    ///
    /// # Errors
    /// With the blocks: when too many are on their way, a block is another port's, the card
    /// cannot be told of memory, or the peer is gone or misbehaves.
    pub fn send(&mut self, blocks: Vec<Block>) -> Result<u64, Untaken> {
        if let Err(error) = self.check(&blocks) {
            return Err(Untaken::new(blocks, error));
        }
        let length = block::length(&blocks);
        if length > self.threshold_bytes() as u64 {
            let Some(number) = self.outgoing.free_number() else {
                return Err(Untaken::new(blocks, Why::Full));
            };
            let card = self.put.sending();
            let tell = |block| match block {
                Block::Arena(buffer) => Ok(Part::Arena(buffer)),
                Block::Other(bytes) => card.source(bytes).map(Part::Other),
            };
            let parts = untaken::told_of(blocks, tell, Part::back)?;
            let request = self.outgoing.begin(number, parts, length);
            self.counters.rendezvous += 1;
            self.tell(identifier(Kind::Request, request.number), length)?;
            return Ok(request.message);
        }
        let has_slots = self.control.len() > 0 && self.staging.has_free();
        if !has_slots || !self.outgoing.has_room() {
            return Err(Untaken::new(blocks, Why::Full));
        }
        // Less than the threshold.
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.put_short(length, |bytes, mut at| {
            for block in &blocks {
                block.copy_to(bytes, at);
                at += block.len();
            }
        })?;
        Ok(self.outgoing.sent_at_once(blocks))
    }

    /// Whether this port can do anything with `blocks`.
    fn check(&self, blocks: &[Block]) -> Result<(), LaneError> {
        self.check_open()?;
        if !blocks.iter().all(|block| block.is_of(&self.arena)) {
            return Err(LaneError::Misuse("a block of another port's arena"));
        }
        if blocks.iter().any(is_too_long) {
            return Err(TOO_LONG);
        }
        Ok(())
    }

    /// The next message that has been sent: its number, and its blocks.
    pub fn next_sent(&mut self) -> Option<(u64, Vec<Block>)> {
        self.outgoing.next_sent()
    }

    // ---- receive ------------------------------------------------------------------------

    /// Posts memory for a message that goes by rendezvous: the next one that fits in it, in the
    /// order of their requests.
    ///
    /// # Errors
    /// With the blocks: when too many messages' are posted, they have no bytes, a block is another port's, or memory
    /// outside of the arena and that is not switched on, at both ends; when the card cannot be
    /// told of it; or the peer is gone or misbehaves.
    pub fn post(&mut self, blocks: Vec<Block>) -> Result<(), Untaken> {
        if let Err(error) = self.check_posted(&blocks) {
            return Err(Untaken::new(blocks, error));
        }
        if !self.incoming.can_post() {
            return Err(Untaken::new(blocks, Why::Full));
        }
        let card = self.put.sending();
        let tell = |block| match block {
            Block::Arena(buffer) => Ok(Segment::Arena(buffer)),
            Block::Other(bytes) => card.target(bytes).map(Segment::Other),
        };
        let segments = untaken::told_of(blocks, tell, Segment::back)?;
        self.incoming.post(segments);
        Ok(self.answer()?)
    }

    /// Whether the other side can write `blocks`.
    fn check_posted(&self, blocks: &[Block]) -> Result<(), LaneError> {
        self.check(blocks)?;
        if blocks.iter().all(|block| block.is_empty()) {
            return Err(LaneError::Misuse("posted memory that has no bytes"));
        }
        let may_be_foreign =
            self.own_geometry.foreign.is_some() && self.peer_geometry.foreign.is_some();
        if !may_be_foreign && blocks.iter().any(Block::is_foreign) {
            return Err(LaneError::Misuse(
                "posted memory that is not of the arena, where only that can be written",
            ));
        }
        Ok(())
    }

    /// The next message that is here.
    pub fn next_arrived(&mut self) -> Option<Arrived> {
        Some(match self.arrived.pop_front()? {
            Here::Short(short) => Arrived::Short(self.incoming.hand_out(short)),
            Here::Other(arrived) => arrived,
        })
    }

    /// Takes in what comes next, if no message is here, and copies the next message to the beginning
    /// of `into`: how long it is. Its control slot is free again at once, which costs less than to
    /// hand it out and to have it back. Sees to everything that [`progress`](Self::progress) sees to,
    /// where there is no message, and between two of a few.
    ///
    /// `None` when there is none, or what came next was none (who sleeps is told by
    /// [`arm`](Self::arm) when there is more); or when it did not come as SHORT or is longer than
    /// `into`: [`next_arrived`](Self::next_arrived) has it then.
    ///
    /// # Errors
    /// When the peer misbehaves, or is gone and everything that it sent has been taken in.
    pub fn receive_short(&mut self, into: &mut [u8]) -> Result<Option<usize>, LaneError> {
        let mut has_come = !self.arrived.is_empty();
        if !has_come {
            self.check_open()?;
            if self.copied >= COPIES_BETWEEN_SETTLING {
                // Here, so that no message is lost when it fails.
                self.settle()?;
            }
            has_come = self.take_in_one(false)?;
        }
        if let Some(length) = self.copy_short(into) {
            self.copied += 1;
            return Ok(Some(length));
        }
        self.check_open()?;
        if !has_come {
            self.note_look()?;
        }
        self.settle()?;
        Ok(None)
    }

    /// Copies the next message that is here, if it is short, to `into`, if that is as long: how long
    /// it is.
    fn copy_short(&mut self, into: &mut [u8]) -> Option<usize> {
        let Some(Here::Short(short)) = self.arrived.front() else {
            return None;
        };
        let length = short.len();
        let into = into.get_mut(..length)?;
        if let Some(Here::Short(short)) = self.arrived.pop_front() {
            self.incoming.copy_out(short, into);
        }
        Some(length)
    }

    /// Whether something may have come, or a message is here: a look at the list and nothing else,
    /// to be repeated by who has its processor for itself, with [`progress`](Self::progress) or
    /// [`receive_short`](Self::receive_short) now and then, which see to everything else. Always
    /// `true` where a handler reads the list, and over libfabric, where no memory shows it.
    #[inline]
    #[must_use]
    pub fn may_have_arrived(&self) -> bool {
        !self.arrived.is_empty() || self.put.may_have_received()
    }

    // ---- go on --------------------------------------------------------------------------

    /// Takes in what has come, answers, and sends what was asked for: up to 256 entries of the list, so
    /// that a peer which writes one after the other does not keep the caller. What is left,
    /// [`arm`](Self::arm) tells of.
    ///
    /// # Errors
    /// When the peer misbehaves.
    pub fn progress(&mut self) -> Result<(), LaneError> {
        self.check_open()?;
        if !self.take_in()? {
            self.note_look()?;
        }
        self.settle()
    }

    /// Nothing has come.
    fn note_look(&mut self) -> Result<(), LaneError> {
        self.looks += 1;
        if self.looks >= LOOKS_BETWEEN_CHECKS {
            self.check_peer()?;
        }
        Ok(())
    }

    /// Goes on with what the card had no room for, answers, and tells what was given back since.
    fn settle(&mut self) -> Result<(), LaneError> {
        self.copied = 0;
        if !D::SENDS_AT_ONCE {
            self.take_sent()?;
        }
        self.answer()?;
        if self.incoming.owes_credit() {
            self.counters.credits += 1;
            self.tell(identifier(Kind::Credit, 0), 0)?;
        }
        Ok(())
    }

    /// Takes in what the card has sent, so that it can be given more.
    fn take_sent(&mut self) -> Result<(), LaneError> {
        while let Some(Sent { message, local }) = self.put.sending().next_sent() {
            match kind_of(message) {
                Some((Kind::Data, number)) => self.outgoing.piece_sent(number),
                _ => self.staging.take_back(local),
            }
        }
        let mut way = Way {
            destination: self.peer,
            sends_at_once: D::SENDS_AT_ONCE,
            card: self.put.sending(),
        };
        let credit = || self.incoming.take_credit();
        let gone_on = self.outgoing.go_on(&mut way, credit);
        gone_on.map_err(|unsent| self.unsent(unsent))
    }

    /// Takes in what has come, [so much](ENTRIES_PER_CALL) at most; whether anything has.
    fn take_in(&mut self) -> Result<bool, LaneError> {
        let mut any = false;
        for _ in 0..ENTRIES_PER_CALL {
            if !self.take_in_one(any)? {
                break;
            }
            any = true;
        }
        Ok(any)
    }

    /// Takes in what has come next; whether anything has. What came before the end is the caller's
    /// first: the end is told of when there was nothing.
    fn take_in_one(&mut self, any: bool) -> Result<bool, LaneError> {
        match self.put.received_notify() {
            Ok(None) => Ok(false),
            Ok(Some(received)) => {
                self.handle(&received)?;
                self.looks = 0;
                Ok(true)
            }
            Err(PutError::Closed) if any => Ok(false),
            Err(error) => Err(self.refused(error)),
        }
    }

    /// Looks whether the peer is gone, unless a handler does; what it sent before is taken in.
    fn check_peer(&mut self) -> Result<(), LaneError> {
        self.looks = 0;
        if self.put.receiving().is_none_or(Receiving::is_peer_there) {
            return Ok(());
        }
        if self.take_in()? {
            return Ok(());
        }
        self.has_failed = true;
        Err(LaneError::Closed)
    }

    fn handle(&mut self, received: &Received) -> Result<(), LaneError> {
        let Received {
            message,
            length,
            words: [word, credit],
            ..
        } = *received;
        let wrong = |what: &str| format!("{message:?} of {length} bytes with {word:#x}: {what}");
        if let Err(what) = self.control.grant(0, credit) {
            return Err(self.failed(wrong(what)));
        }
        let handled = match kind_of(message) {
            Some((Kind::Short, slot)) => self.incoming.short(slot, length).map(|short| {
                self.counters.copies += 1;
                self.arrived.push_back(Here::Short(short));
            }),
            Some((Kind::Request, number)) => self.incoming.request(number, word),
            Some((Kind::Response, number)) => return self.respond(number, word),
            Some((Kind::Data, number)) => self.incoming.data(number, word).map(|arrived| {
                if let Some(Arrived::Unposted(_)) = arrived {
                    self.counters.copies += 1;
                }
                self.arrived.extend(arrived.map(Here::Other));
            }),
            // A peer cannot go on without end that way.
            Some((Kind::Credit, _)) if credit == 0 => Err("that frees nothing"),
            Some((Kind::Credit, _)) => Ok(()),
            None => Err("that is no message"),
        };
        handled.map_err(|what| self.failed(wrong(what)))
    }

    /// Answers requests that there is memory for.
    fn answer(&mut self) -> Result<(), LaneError> {
        while self.staging.has_free()
            && let Some((number, spans)) = self.incoming.next_answer()
        {
            let count = spans.len();
            let mut segments = mem::take(&mut self.segments);
            segments.clear();
            for span in spans {
                segments.extend_from_slice(&span.encode());
            }
            let to = self.peer_geometry.answer_row().slot_at(number);
            let message = identifier(Kind::Response, number);
            let fill = |bytes: &SharedBytes, at| bytes.write(at, &segments);
            self.tell_with(message, (to, segments.len()), fill, count as u64)?;
            self.segments = segments;
        }
        Ok(())
    }

    /// The other side has answered: puts what it has room for where it says.
    fn respond(&mut self, number: u32, segments: u64) -> Result<(), LaneError> {
        let row = self.own_geometry.answer_row();
        let way = Way {
            destination: self.peer,
            sends_at_once: D::SENDS_AT_ONCE,
            card: self.put.sending(),
        };
        let put = self.outgoing.put(
            number,
            segments,
            |segment| {
                let mut bytes = [0; layout::SEGMENT_BYTES];
                // There are such a request and such a segment when this is called.
                let at = row.slot_at(number) + segment * layout::SEGMENT_BYTES;
                self.bytes.read(at, &mut bytes);
                bytes
            },
            way,
            || self.incoming.take_credit(),
        );
        put.map_err(|unsent| self.unsent(unsent))
    }

    fn unsent(&mut self, unsent: Unsent) -> LaneError {
        match unsent {
            Unsent::Answer(what) => self.failed(what),
            Unsent::Card(error) => self.refused(error),
        }
    }

    /// Puts a control message.
    fn tell(&mut self, message: MessageId, word: u64) -> Result<(), LaneError> {
        let descriptor = self.control_message(message, word);
        let put = self.put.add_entry(&descriptor);
        put.map_err(|error| self.refused(error))
    }

    /// Puts a control message with data, which `fill` copies to staging: where it goes, and how
    /// many bytes. There is a slot of staging.
    fn tell_with(
        &mut self,
        message: MessageId,
        (remote, length): (usize, usize),
        fill: impl FnOnce(&SharedBytes, usize),
        word: u64,
    ) -> Result<(), LaneError> {
        let Some((at, bytes)) = self.staging.next() else {
            return Err(LaneError::Misuse("no staging is free"));
        };
        fill(bytes, at);
        let mut descriptor = self.control_message(message, word);
        descriptor.local = Address(at as u64);
        descriptor.remote = Address(remote as u64);
        // Within a slot of staging.
        descriptor.length = u32::try_from(length).unwrap_or(u32::MAX);
        descriptor.notify.sent = !D::SENDS_AT_ONCE;
        let put = self.put.add_entry(&descriptor);
        put.map_err(|error| self.refused(error))?;
        if !D::SENDS_AT_ONCE {
            self.staging.pass();
        }
        Ok(())
    }

    /// A control message without data.
    fn control_message(&mut self, message: MessageId, word: u64) -> Descriptor {
        Descriptor {
            destination: self.peer,
            local: Address(0),
            remote: Address(0),
            length: 0,
            message,
            notify: Notify {
                sent: false,
                received: true,
            },
            words: [word, self.incoming.take_credit()],
        }
    }

    /// What a card's error means to a port, whose entries are right unless the other side lies.
    fn refused(&mut self, error: PutError) -> LaneError {
        match error {
            PutError::Full => self.failed("it does not read its list".to_owned()),
            PutError::Closed => {
                self.has_failed = true;
                LaneError::Closed
            }
            // Whoever breaks a network is not known; of one host's memory it is who has offered it.
            PutError::Unreachable(_) if D::SENDS_AT_ONCE => self.failed(error.to_string()),
            PutError::Unreachable(_) | PutError::Forbidden(_) => {
                self.has_failed = true;
                LaneError::Broken(io::Error::other(error))
            }
            error => self.failed(error.to_string()),
        }
    }

    fn check_open(&self) -> Result<(), LaneError> {
        if self.has_failed {
            return Err(LaneError::Closed);
        }
        Ok(())
    }

    fn failed(&mut self, what: String) -> LaneError {
        self.has_failed = true;
        violation(what)
    }

    // ---- sleep --------------------------------------------------------------------------

    /// Prepares to sleep until something comes; `false` when something is there, or this port is
    /// one that only looks: [`progress`](Self::progress) then. What was given back until now is
    /// told first. A message that another thread drops later wakes nobody: that thread has the
    /// port's owner go on.
    ///
    /// # Errors
    /// When the peer is gone and everything that it sent has been taken in.
    pub fn arm(&mut self) -> Result<bool, LaneError> {
        self.check_open()?;
        // Before arming: a ring that this takes in belongs to an earlier arming, or its cause
        // is found by the look below.
        self.check_peer()?;
        // The other side may sleep until it is told.
        self.settle()?;
        Ok(self.put.receiving().is_some_and(Receiving::arm))
    }

    /// What to wait for.
    #[must_use]
    pub fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        self.link.descriptor()
    }

    /// Takes in what woke a sleeper.
    pub fn acknowledge(&mut self) {
        if let Some(list) = self.put.receiving() {
            list.acknowledge();
            list.disarm();
        }
    }
}

impl<D: PortDevice> Drop for Port<D> {
    fn drop(&mut self) {
        // A handler does it for itself.
        if let Some(list) = self.put.receiving() {
            list.close();
        }
    }
}

/// One put, whose length has 32 bits, carries a block or less.
const TOO_LONG: LaneError = LaneError::Misuse("a block of 4 GiB or more; pass it in parts");

fn is_too_long(block: &Block) -> bool {
    u32::try_from(block.len()).is_err()
}
