//! A list of received messages: a ring in this side's memory, which the other side's card writes.

use std::ops::Range;
use std::sync::Arc;

use super::host::{ListPlace, range_within};
use super::put::{Address, ENTRY_WORDS, Entry, NodeNumber, PutError, Received};
use crate::local::arrivals::Lending;
use crate::local::memory::{Mapping, PeerWords, SharedBytes};
use crate::local::ring::RingReader;

#[derive(Debug)]
pub(super) struct ReceivedList {
    peer: NodeNumber,
    ring: RingReader<PeerWords, ENTRY_WORDS>,
    /// Memory, of which entries carry data
    memory: SharedBytes,
    /// for this part alone.
    carries: Range<u64>,
    /// Entries that were read,
    read: u64,
    /// and those of them that the other side has not been told of.
    untold: u64,
    /// How many those are at most.
    untold_most: u64,
    /// Slots of that memory, which are not written while they are lent.
    lending: Vec<Arc<dyn Lending>>,
}

impl ReceivedList {
    /// The list at `place` of `own`, which `peer` writes.
    pub(super) fn new(own: &Arc<Mapping>, place: ListPlace, peer: NodeNumber) -> Self {
        Self {
            peer,
            ring: RingReader::new(own.peer_words(place.at, place.entries * ENTRY_WORDS)),
            memory: SharedBytes::new(Arc::clone(own)),
            carries: place.carries,
            read: 0,
            untold: 0,
            untold_most: (place.entries as u64 / 2).max(1),
            lending: Vec::new(),
        }
    }

    /// Data that entries carry for what `slots` lends is a violation.
    pub(super) fn keep_out_of(&mut self, slots: Arc<dyn Lending>) {
        self.lending.push(slots);
    }

    /// Whether there is a next entry.
    pub(super) fn has_next(&self) -> bool {
        self.ring.has_next()
    }

    /// The next entry, whose data is where it belongs. When it is time to tell the other side
    /// how far the list has been read, `tell` is called with it: entries before that are read
    /// no more.
    #[inline(always)]
    pub(super) fn next(&mut self, tell: impl FnOnce(u64)) -> Result<Option<Received>, PutError> {
        let Some(words) = self.ring.next() else {
            return Ok(None);
        };
        self.read = self.read.wrapping_add(1);
        self.untold += 1;
        if self.untold == self.untold_most {
            self.untold = 0;
            tell(self.read);
        }
        let Entry { received, carried } = Entry::from_words(words).map_err(PutError::Peer)?;
        if received.source != self.peer {
            return Err(PutError::Peer(
                "an entry from a node that cannot have written it",
            ));
        }
        if let Some((address, bytes)) = carried {
            self.put_down(address, &bytes[..received.length as usize])?;
        }
        Ok(Some(received))
    }

    /// The other card has left the last step of an entry that carries data to this one.
    #[inline(never)]
    fn put_down(&self, address: Address, bytes: &[u8]) -> Result<(), PutError> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if length == 0 {
            return Ok(());
        }
        let at = range_within(address, length, &self.carries).ok_or(PutError::Peer(
            "an entry with data for memory that no entry may carry data for",
        ))?;
        let range = at..at + bytes.len();
        if self.lending.iter().any(|slots| slots.is_lent(&range)) {
            return Err(PutError::Peer(
                "an entry with data for a slot that has not been returned",
            ));
        }
        self.memory.write(at, bytes);
        Ok(())
    }
}
