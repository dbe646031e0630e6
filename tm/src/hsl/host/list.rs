//! The half of the card that receives: a list in this side's memory, which the other side's card
//! writes.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::{ListPlace, Mode, range_within};
use crate::hsl::counters::Tally;
use crate::hsl::put::{ENTRY_WORDS, Entry, NodeNumber, PutError, Received, Receiving};
use crate::local::armed::ArmedFlag;
use crate::local::bell::Bell;
use crate::local::memory::{Mapping, OwnWords, PeerWords, SharedBytes};
use crate::local::ring::RingReader;
use crate::local::sync::{OwnWord, Words};
use crate::poller::Interest;

/// A list of received messages.
#[derive(Debug)]
pub struct HostList {
    peer: NodeNumber,
    mode: Mode,
    list: RingReader<PeerWords, ENTRY_WORDS>,
    /// Registered memory, where data goes that entries carry,
    memory: SharedBytes,
    /// and where in that memory it is.
    registered: Range<u64>,
    /// Entries that were read.
    read: u64,
    /// The word that tells the other side.
    head: OwnWords,
    /// After so many more it is told.
    told_each: u64,
    armed: ArmedFlag<OwnWords>,
    bell: Arc<Bell>,
    tally: Arc<Tally>,
}

impl HostList {
    /// The list at `place` of `own`, which `peer` writes, and which is registered from
    /// `registered_at` on.
    pub(crate) fn new(
        own: &Arc<Mapping>,
        registered_at: usize,
        place: ListPlace,
        peer: NodeNumber,
        mode: Mode,
        bell: Arc<Bell>,
    ) -> Self {
        Self {
            peer,
            mode,
            list: RingReader::new(own.peer_words(place.at, place.entries * ENTRY_WORDS)),
            memory: SharedBytes::new(Arc::clone(own)),
            registered: registered_at as u64..own.len() as u64,
            read: 0,
            head: own.words(place.head_at, 1),
            told_each: (place.entries as u64 / 2).max(1),
            armed: ArmedFlag::new(own.words(place.armed_at, 1)),
            bell,
            tally: Tally::new(),
        }
    }
}

impl Receiving for HostList {
    fn next_received(&mut self) -> Result<Option<Received>, PutError> {
        let Some(words) = self.list.next() else {
            return Ok(None);
        };
        self.read = self.read.wrapping_add(1);
        if self.read.is_multiple_of(self.told_each) {
            // SYNC POINT C: pairs with the acquire fence in `HostCard::has_room`; the entries
            // before it are read no more.
            self.head.words()[0].store_release(self.read);
        }
        let Entry { received, carried } = Entry::from_words(words).map_err(PutError::Peer)?;
        if received.source != self.peer {
            return Err(PutError::Peer(
                "an entry from a node that cannot have written it",
            ));
        }
        if let Some((address, bytes)) = carried
            && received.length > 0
        {
            // The other card has left the last step to this one.
            let at = range_within(address, received.length, &self.registered);
            let at = at.ok_or(PutError::Peer(
                "an entry with data for memory that is not registered",
            ))?;
            self.memory.write(at, &bytes[..received.length as usize]);
        }
        Ok(Some(received))
    }

    fn has_next(&mut self) -> bool {
        self.list.has_next()
    }

    fn may_have_next(&self) -> bool {
        self.list.has_next()
    }

    fn arm(&mut self) -> bool {
        if self.mode == Mode::Polling {
            return false;
        }
        self.armed.arm();
        if self.has_next() {
            self.armed.disarm();
            return false;
        }
        true
    }

    fn disarm(&mut self) {
        self.armed.disarm();
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.bell.as_fd(), Interest::Readable)
    }

    fn acknowledge(&mut self) -> bool {
        self.tally.interrupts.add(1);
        self.bell.silence()
    }

    fn is_peer_there(&mut self) -> bool {
        self.bell.silence()
    }

    fn close(&mut self) {
        self.bell.close();
    }
}
