//! The two halves of a card of libfabric's, as PUT wants them.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::control::Half;
use crate::hsl::host::{ListPlace, Mode};
use crate::hsl::put::{
    CARRIED_MOST, Descriptor, Device, NodeNumber, PutError, Received, Receiving, Sending, Sent,
};
use crate::hsl::received::ReceivedList;
use crate::local::memory::Mapping;
use crate::poller::Interest;

/// What the other side has put before it ended is waited for so long at most.
const LAST_MOST: Duration = Duration::from_secs(10);

/// Bytes that an entry carries.
const CARRIED_BYTES: u32 = 32;
const _: () = assert!(CARRIED_BYTES as usize == CARRIED_MOST);

/// A card of libfabric's.
#[derive(Debug)]
pub(crate) struct FabricDevice;

impl Device for FabricDevice {
    type Sending = FabricCard;
    type Receiving = FabricList;

    const SENDS_AT_ONCE: bool = false;
}

/// The half that sends.
#[derive(Debug)]
pub(crate) struct FabricCard(Arc<Connection>);

impl FabricCard {
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        Self(connection)
    }
}

impl Sending for FabricCard {
    fn try_add(&mut self, descriptor: &Descriptor) -> Result<(), PutError> {
        self.0.add(descriptor, None)
    }

    fn anywhere_most(&self) -> u32 {
        CARRIED_BYTES
    }

    fn try_add_from(&mut self, bytes: &[u8], descriptor: &Descriptor) -> Result<(), PutError> {
        let length =
            u32::try_from(bytes.len()).map_err(|_| PutError::Local(descriptor.local, u32::MAX))?;
        let descriptor = Descriptor {
            length,
            ..*descriptor
        };
        self.0.add(&descriptor, Some(bytes))
    }

    fn next_sent(&mut self) -> Option<Sent> {
        self.0.next_sent()
    }
}

/// The half that receives.
#[derive(Debug)]
pub(crate) struct FabricList {
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
    /// The list at `place` of `own`, which is registered from `registered_at` on.
    pub(super) fn new(
        connection: Arc<Connection>,
        own: &Arc<Mapping>,
        registered_at: usize,
        place: ListPlace,
        peer: NodeNumber,
        mode: Mode,
    ) -> Self {
        Self {
            connection,
            list: ReceivedList::new(own, registered_at, place, peer),
            mode,
            taken: VecDeque::with_capacity(place.entries),
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
            (Half::Receiving, None) => !heard.is_over,
            (Half::Receiving, Some(notifications)) => self.connection.progress().0 < notifications,
        }
    }

    fn say_end(&mut self) {
        if !self.has_said_end {
            self.has_said_end = true;
            // The other side's endpoint may go when it hears of it.
            self.connection.stop();
            let control = self.connection.control();
            control.say_ended(Half::Receiving, 0);
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
            (Half::Receiving, None) => !heard.is_over,
            (Half::Receiving, Some(notifications)) => {
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
        if self.connection.half() == Half::Receiving {
            self.say_end();
        }
        self.connection.close();
    }
}
