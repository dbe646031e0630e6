//! The two halves of a card of libfabric's, as PUT wants them.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::control::Half;
use super::outbox::From;
use super::registrar::{Lent, Registering};
use crate::hsl::host::{FOREIGN, ListPlace, Mode};
use crate::hsl::put::{
    CARRIED_MOST, Descriptor, Device, Lending, Name, NodeNumber, Offered, PutError, Reaching,
    Received, Receiving, Refused, Sending, Sent, Source, Target,
};
use crate::hsl::received::ReceivedList;
use crate::hsl::registration::RegistrationCounters;
use crate::local::memory::Mapping;
use crate::piece::Piece;
use crate::poller::Interest;

/// What the other side has put before it ended is waited for so long at most.
const LAST_MOST: Duration = Duration::from_secs(10);

/// Bytes that an entry carries.
const CARRIED_BYTES: u32 = 32;
const _: () = assert!(CARRIED_BYTES as usize == CARRIED_MOST);

/// A card of libfabric's.
#[derive(Debug)]
pub struct FabricDevice;

impl Device for FabricDevice {
    type Sending = FabricCard;
    type Receiving = FabricList;

    const SENDS_AT_ONCE: bool = false;
}

/// The half that sends.
#[derive(Debug)]
pub struct FabricCard {
    connection: Arc<Connection>,
    /// How memory is registered that was not when both sides met.
    registering: Option<Registering>,
}

impl FabricCard {
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        Self {
            connection,
            registering: None,
        }
    }

    /// Has the card told of memory so.
    pub(super) fn register(&mut self, registering: Registering) {
        self.registering = Some(registering);
    }

    /// What has become of registrations that are kept, and why none are, if that is so.
    pub(super) fn registrations(&self) -> Option<(RegistrationCounters, Option<&str>)> {
        self.registering.as_ref()?.counters()
    }

    fn registering(&self) -> io::Result<&Registering> {
        let missing = || io::Error::other("this card sends from registered memory alone");
        self.registering.as_ref().ok_or_else(missing)
    }
}

impl Sending for FabricCard {
    fn try_add(&mut self, descriptor: &Descriptor) -> Result<(), PutError> {
        self.connection.add(descriptor, From::Registered)
    }

    fn anywhere_most(&self) -> u32 {
        CARRIED_BYTES
    }

    fn try_add_from(&mut self, data: Piece<'_>, descriptor: &Descriptor) -> Result<(), PutError> {
        let length =
            u32::try_from(data.len()).map_err(|_| PutError::Local(descriptor.local, u32::MAX))?;
        let descriptor = Descriptor {
            length,
            ..*descriptor
        };
        let mut carried = [0; CARRIED_MOST];
        let bytes = carried.get_mut(..data.len());
        let bytes = bytes.ok_or(PutError::Local(descriptor.local, length))?;
        data.copy_to(bytes);
        self.connection.add(&descriptor, From::Anywhere(bytes))
    }

    fn next_sent(&mut self) -> Option<Sent> {
        self.connection.next_sent()
    }
}

impl Reaching for FabricCard {
    type Source = FabricSource;
    type Target = FabricTarget;

    fn largest(&self) -> u32 {
        self.connection.largest()
    }

    fn source(&mut self, bytes: Vec<u8>) -> Result<FabricSource, Refused> {
        let lent = match self.registering() {
            Ok(registering) => Lent::to_send(bytes, registering)?,
            Err(error) => return Err((bytes, error)),
        };
        Ok(FabricSource(Arc::new(lent)))
    }

    fn try_add_part(
        &mut self,
        source: &FabricSource,
        part: Range<usize>,
        descriptor: &Descriptor,
    ) -> Result<(), PutError> {
        let length = u32::try_from(part.len());
        let length = length.map_err(|_| PutError::Local(descriptor.local, u32::MAX))?;
        let descriptor = Descriptor {
            length,
            ..*descriptor
        };
        let from = From::Lent(&source.0, part.start);
        self.connection.add(&descriptor, from)
    }

    fn target(&mut self, bytes: Vec<u8>) -> Result<FabricTarget, Refused> {
        let lent = match self.registering() {
            Ok(registering) => Lent::registered(bytes, registering)?,
            Err(error) => return Err((bytes, error)),
        };
        Ok(FabricTarget {
            lent: Some(lent),
            is_told: false,
            connection: Arc::clone(&self.connection),
        })
    }

    fn offer(&mut self, offered: impl Iterator<Item = Offered>) -> Result<(), PutError> {
        self.connection.offer(offered)
    }
}

/// Memory of this process's that a card of libfabric's sends from.
#[derive(Debug)]
pub struct FabricSource(Arc<Lent>);

impl Source for FabricSource {
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn back(self) -> Vec<u8> {
        match Arc::try_unwrap(self.0) {
            Ok(lent) => lent.back(),
            // An entry that names it is not sent: it stays the card's.
            Err(_) => Vec::new(),
        }
    }
}

/// Memory of this process's that the other side writes.
#[derive(Debug)]
pub struct FabricTarget {
    /// `None` when it is back.
    lent: Option<Lent>,
    /// Whether the other side knows it.
    is_told: bool,
    connection: Arc<Connection>,
}

impl Target for FabricTarget {
    fn bytes(&self) -> usize {
        self.lent.as_ref().map_or(0, Lent::bytes)
    }

    fn tell(&mut self) -> (u64, Name) {
        self.is_told = true;
        let Some(lent) = &self.lent else {
            return (FOREIGN, Name::default());
        };
        // Wherever a card begins to count, these are unlike all others.
        (FOREIGN | lent.start() as u64, lent.name())
    }

    fn back(mut self) -> Vec<u8> {
        self.lent.take().map_or_else(Vec::new, Lent::back)
    }
}

impl Drop for FabricTarget {
    fn drop(&mut self) {
        // A provider may go on with a write that has begun, whatever becomes of the registration.
        if let Some(lent) = self.lent.take_if(|_| self.is_told) {
            self.connection.keep(lent);
        }
    }
}

/// The half that receives.
#[derive(Debug)]
pub struct FabricList {
    connection: Arc<Connection>,
    list: ReceivedList,
    mode: Mode,
    /// Identifiers of notifications whose entries have not been read.
    taken: VecDeque<u32>,
    is_armed: bool,
    /// Since when the other side has ended, and not all has come.
    waits_since: Option<Instant>,
    has_said_end: bool,
}

impl FabricList {
    /// The list at `place` of `own`.
    pub(super) fn new(
        connection: Arc<Connection>,
        own: &Arc<Mapping>,
        place: ListPlace,
        peer: NodeNumber,
        mode: Mode,
    ) -> Self {
        Self {
            connection,
            taken: VecDeque::with_capacity(place.entries),
            list: ReceivedList::new(own, place, peer),
            mode,
            is_armed: false,
            waits_since: None,
            has_said_end: false,
        }
    }

    /// Whether a connection that failed did so before its end; the end breaks what is under way.
    fn is_cut_off(&self) -> bool {
        let heard = self.connection.control().listen();
        match (self.connection.half(), heard.sending_ended) {
            (Half::Sending, _) => heard.has_receiver(),
            (Half::Receiving | Half::Both, None) => !heard.is_over,
            (Half::Receiving | Half::Both, Some(notifications)) => {
                self.connection.progress().0 < notifications
            }
        }
    }

    fn say_end(&mut self) {
        if !self.has_said_end {
            self.has_said_end = true;
            // The other side's endpoint may go when it hears of it.
            self.connection.stop();
            let control = self.connection.control();
            control.say_receiving_ended();
        }
    }

    /// Whether what the other side has put before it ended is still to come.
    fn waits_for(&mut self, notifications: u64) -> bool {
        let (received, may_come) = self.connection.progress();
        let since = *self.waits_since.get_or_insert_with(Instant::now);
        received < notifications && may_come && since.elapsed() < LAST_MOST
    }
}

impl Receiving for FabricList {
    fn keep_out_of(&mut self, slots: Arc<dyn Lending>) {
        self.list.keep_out_of(slots);
    }

    fn next_received(&mut self) -> Result<Option<Received>, PutError> {
        let mut failed = None;
        if self.taken.is_empty() {
            failed = self.connection.take_arrived(&mut self.taken);
        }
        let Some(message) = self.taken.pop_front() else {
            return match failed {
                Some(error) if self.is_cut_off() => Err(error),
                _ => Ok(None),
            };
        };
        let connection = &self.connection;
        let received = self.list.next(|read| connection.tell_read(read))?;
        match received {
            Some(received) if received.message.0 == message => Ok(Some(received)),
            _ => Err(PutError::Peer("it tells of what is not in its list")),
        }
    }

    fn has_next(&mut self) -> bool {
        if self.taken.is_empty() {
            self.connection.take_arrived(&mut self.taken);
        }
        !self.taken.is_empty()
    }

    fn may_have_next(&self) -> bool {
        // Memory does not show it: with most providers, nothing comes unless they are asked.
        true
    }

    fn arm(&mut self) -> bool {
        if self.mode == Mode::Polling || !self.taken.is_empty() {
            return false;
        }
        self.is_armed = self.connection.arm();
        self.is_armed
    }

    fn disarm(&mut self) {
        if self.is_armed {
            self.is_armed = false;
            self.connection.disarm();
        }
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.connection.descriptor(), Interest::Readable)
    }

    fn acknowledge(&mut self) -> bool {
        self.connection.tally.interrupts.add(1);
        let half = self.connection.half();
        self.connection.control().bell(half).silence();
        self.is_peer_there()
    }

    fn is_peer_there(&mut self) -> bool {
        let heard = self.connection.control().listen();
        match (self.connection.half(), heard.sending_ended) {
            (Half::Sending, _) => heard.has_receiver(),
            (Half::Receiving | Half::Both, None) => !heard.is_over,
            (Half::Receiving | Half::Both, Some(notifications)) => {
                let is_there = self.waits_for(notifications);
                if !is_there {
                    // It need not linger.
                    self.say_end();
                }
                is_there
            }
        }
    }

    fn close(&mut self) {
        match self.connection.half() {
            Half::Sending => {}
            Half::Receiving => self.say_end(),
            // What was added is still sent; `say_end` would end that too.
            Half::Both if self.has_said_end => {}
            Half::Both => {
                self.has_said_end = true;
                self.connection.control().say_receiving_ended();
            }
        }
        self.connection.close();
    }
}
