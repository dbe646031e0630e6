//! What one half of a lane has its card do, until that is done: the papers' list of messages to
//! send.
//!
//! ```text
//!   push: check ─> waiting ─> post: a place, and goes on ─> complete: the place is free, and
//!                             └─ or injected ─────────────────────────> sent
//! ```
//!
//! A message is its data, and then an entry of the other side's list, which tells of itself
//! (immediate data). A provider that keeps writes in order is given the entry right behind its
//! data. Where it does not, an entry waits until everything before it has been delivered.
//!
//! A list is read on as the host card's is: its reader puts how far it has come into the writer's
//! memory, without telling.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::abi;
use super::posting::{Origin, Posted, Posting, Target};
use super::registrar::Lent;
use crate::hsl::host::{FOREIGN, ListPlace, range_within};
use crate::hsl::put::{
    Address, CARRIED_MOST, Descriptor, ENTRY_WORDS, Entry, NodeNumber, Notify, Offered, PutError,
    Received, Sent,
};
use crate::local::memory::{Mapping, OwnWords, PeerWords};
use crate::local::ring::entry_at;
use crate::local::sync::{OwnWord, Word, Words};

/// Operations that wait to be posted at most.
const WAITING_MOST: usize = 1 << 15;
/// Entries whose end has been asked for and not been taken in, at most.
const SENT_MOST: usize = 1024;
/// Ranges of memory that are offered at once, at most: more than the segments of an answer.
const OFFERED_MOST: usize = 64;
/// Bytes of an entry.
const LINE_BYTES: usize = ENTRY_WORDS * 8;
/// Bytes of the word that says how far a list has been read.
const HEAD_BYTES: usize = 8;

/// Of the memory that is sent from: bytes that `operations` take for their entries.
pub(super) fn lines_bytes(operations: usize) -> usize {
    operations * LINE_BYTES
}

/// From where to where a half writes.
#[derive(Debug, Clone)]
pub(super) struct Path {
    /// This node, and the other one.
    pub(super) numbers: [NodeNumber; 2],
    /// Operations that the endpoint was opened for.
    pub(super) operations: usize,
    /// Bytes of what is sent from that are for data; the entries of operations lie behind.
    pub(super) data_bytes: usize,
    /// Bytes of the largest put.
    pub(super) largest: u32,
    pub(super) peer: PeerMemory,
}

/// The memory of the other side.
#[derive(Debug, Clone)]
pub(super) struct PeerMemory {
    /// Its endpoint.
    pub(super) endpoint: abi::Address,
    /// What its memory is called there.
    pub(super) key: u64,
    pub(super) base: u64,
    /// Which part of it is for data.
    pub(super) registered: Range<u64>,
    /// The list that this side writes.
    pub(super) list: ListPlace,
}

#[derive(Debug)]
pub(super) struct Outbox {
    path: Path,
    lines: OwnWords,
    /// Where the other side tells how far its list has been read.
    head: PeerWords,
    /// Where the other side wants to be told how far this side has read its list.
    tell_at: u64,
    /// Whether an entry may be posted right behind its data.
    is_ordered: bool,
    inject_bytes: usize,
    waiting: VecDeque<Operation>,
    /// Places that no operation has.
    free: Vec<usize>,
    /// What goes on, by its place.
    going_on: Box<[Option<Sent>]>,
    sent: VecDeque<Sent>,
    /// Entries that were written to the other side's list,
    written: u64,
    /// and read there, as far as is known.
    read: u64,
    /// How far this side's list has been read, until the other side is told.
    untold: Option<u64>,
    /// Memory of the other side that it offers, beside what is registered.
    offered: Vec<Offered>,
}

/// Where an entry's data is.
#[derive(Debug, Clone, Copy)]
pub(super) enum From<'a> {
    /// Where it says, in what is sent from.
    Registered,
    /// Here; it has to fit in the entry.
    Anywhere(&'a [u8]),
    /// There, in memory that is lent for it.
    Lent(&'a Arc<Lent>, usize),
}

/// How an entry's data goes.
#[derive(Debug)]
enum Way {
    /// There is none.
    Nothing,
    /// From there to there.
    Written(Origin, Target),
    /// It travels in the notification.
    Carried([u8; CARRIED_MOST]),
}

/// What is to be posted.
#[derive(Debug, Clone)]
enum Operation {
    Data {
        from: Origin,
        length: usize,
        to: Target,
        sent: Option<Sent>,
    },
    /// An entry of the other side's list.
    Entry {
        words: [u64; ENTRY_WORDS],
        to: u64,
        message: u32,
        sent: Option<Sent>,
    },
}

impl Outbox {
    /// Nothing yet. `own` is what the other side writes, `own_list` this side's list in there.
    pub(super) fn new(
        path: Path,
        endpoint: &dyn Posting,
        own: &Arc<Mapping>,
        own_list: ListPlace,
    ) -> Self {
        let facts = endpoint.facts();
        Self {
            lines: endpoint
                .source()
                .words(path.data_bytes, path.operations * ENTRY_WORDS),
            // Each list's reader tells its writer at the same place of that side's memory.
            head: own.peer_words(path.peer.list.head_at, 1),
            tell_at: own_list.head_at as u64,
            is_ordered: facts.ordered_bytes >= path.largest as usize,
            inject_bytes: facts.inject_bytes,
            waiting: VecDeque::new(),
            free: (0..path.operations).rev().collect(),
            going_on: vec![None; path.operations].into_boxed_slice(),
            sent: VecDeque::new(),
            written: 0,
            read: 0,
            untold: None,
            offered: Vec::new(),
            path,
        }
    }

    // ---- what is to be sent ---------------------------------------------------------------

    /// Whether there is room for an entry with such notifications, here and in the other side's
    /// list.
    pub(super) fn has_room(&mut self, notify: Notify) -> Result<bool, PutError> {
        Ok((!notify.received || self.has_list_room()?)
            && (!notify.sent || self.sent.len() < SENT_MOST)
            && self.waiting.len() + 2 <= WAITING_MOST)
    }

    fn has_list_room(&mut self) -> Result<bool, PutError> {
        let entries = self.path.peer.list.entries as u64;
        if self.written.wrapping_sub(self.read) < entries {
            return Ok(true);
        }
        let read = self.head.words()[0].load();
        if self.written.wrapping_sub(read) > entries {
            return Err(PutError::Peer("it has read what was not written"));
        }
        self.read = read;
        Ok(self.written.wrapping_sub(read) < entries)
    }

    /// The other side offers this memory, and no other.
    pub(super) fn offer(&mut self, offered: impl Iterator<Item = Offered>) -> Result<(), PutError> {
        self.offered.clear();
        for offered in offered {
            if self.offered.len() == OFFERED_MOST {
                self.offered.clear();
                return Err(PutError::Peer("it offers more ranges of memory than 64"));
            }
            self.offered.push(offered);
        }
        Ok(())
    }

    /// Checks an entry, for which there is room, and lets it wait.
    pub(super) fn push(&mut self, descriptor: &Descriptor, from: From<'_>) -> Result<(), PutError> {
        let way = self.check(descriptor, from)?;
        let mut sent = descriptor.notify.sent.then_some(Sent {
            message: descriptor.message,
            local: descriptor.local,
        });
        let mut carried = None;
        match way {
            Way::Nothing => {}
            Way::Carried(bytes) => carried = Some((descriptor.remote, bytes)),
            Way::Written(from, to) => self.waiting.push_back(Operation::Data {
                from,
                length: descriptor.length as usize,
                to,
                sent: sent.take(),
            }),
        }
        if descriptor.notify.received {
            let received = Received {
                source: self.path.numbers[0],
                message: descriptor.message,
                length: descriptor.length,
                words: descriptor.words,
            };
            self.push_entry(Entry { received, carried }, sent.take());
        }
        // Nothing was to be written.
        self.sent.extend(sent);
        Ok(())
    }

    /// How an entry's data goes, if all of it and of where it goes is registered, or offered.
    fn check(&self, descriptor: &Descriptor, from: From<'_>) -> Result<Way, PutError> {
        let Descriptor {
            destination,
            local,
            remote,
            length,
            notify,
            ..
        } = *descriptor;
        if destination != self.path.numbers[1] {
            return Err(PutError::Node(destination));
        }
        if length == 0 {
            return Ok(Way::Nothing);
        }
        let there = self.there(remote, length);
        let there = there.ok_or(PutError::Remote(remote, length))?;
        let origin = match from {
            From::Registered => {
                let here = range_within(local, length, &(0..self.path.data_bytes as u64));
                here.map(Origin::Source)
            }
            From::Lent(lent, offset) => {
                let end = offset.checked_add(length as usize);
                let is_within = end.is_some_and(|end| end <= lent.bytes());
                is_within.then(|| Origin::Lent(Arc::clone(lent), offset))
            }
            From::Anywhere(bytes) => {
                let mut carried = [0; CARRIED_MOST];
                // Only a notification carries data, and only to some memory.
                let carries = &self.path.peer.list.carries;
                let can_carry = notify.received && range_within(remote, length, carries).is_some();
                let into = carried.get_mut(..bytes.len()).filter(|_| can_carry);
                let into = into.ok_or(PutError::Local(local, length))?;
                into.copy_from_slice(bytes);
                return Ok(Way::Carried(carried));
            }
        };
        let origin = origin.ok_or(PutError::Local(local, length))?;
        Ok(Way::Written(origin, there))
    }

    /// Where `length` bytes at `remote` are, if all of them may be written.
    fn there(&self, remote: Address, length: u32) -> Option<Target> {
        if remote.0 & FOREIGN == 0 {
            range_within(remote, length, &self.path.peer.registered)?;
            return Some(self.target(remote.0));
        }
        let is_in = |offered: &&Offered| range_within(remote, length, &offered.range).is_some();
        let offered = self.offered.iter().find(is_in)?;
        Some(Target {
            peer: self.path.peer.endpoint,
            address: offered
                .name
                .address
                .wrapping_add(remote.0 - offered.range.start),
            key: offered.name.key,
        })
    }

    fn push_entry(&mut self, entry: Entry, sent: Option<Sent>) {
        let list = &self.path.peer.list;
        let (place, words) = entry_at(self.written, list.entries, entry.to_words());
        self.written = self.written.wrapping_add(1);
        self.waiting.push_back(Operation::Entry {
            words,
            to: (list.at + place * LINE_BYTES) as u64,
            message: entry.received.message.0,
            sent,
        });
    }

    /// The other side is to be told how far this side's list has been read.
    pub(super) fn tell_read(&mut self, read: u64) {
        self.untold = Some(read);
    }

    /// What was not posted never will be.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.untold = None;
    }

    // ---- what has become of it ------------------------------------------------------------

    /// What was posted at `place` is complete; `false` when no operation has such a place.
    pub(super) fn complete(&mut self, place: usize) -> bool {
        let Some(going_on) = self.going_on.get_mut(place) else {
            return false;
        };
        self.sent.extend(going_on.take());
        self.free.push(place);
        true
    }

    /// The next entry that has been sent.
    pub(super) fn next_sent(&mut self) -> Option<Sent> {
        self.sent.pop_front()
    }

    pub(super) fn has_sent(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Entries that were written to the other side's list.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Whether there are operations that wait to be posted.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether there is anything to post.
    pub(super) fn has_unposted(&self) -> bool {
        self.has_waiting() || self.untold.is_some()
    }

    /// Whether operations are under way.
    pub(super) fn goes_on(&self) -> bool {
        self.free.len() < self.going_on.len()
    }

    // ---- post -----------------------------------------------------------------------------

    /// Posts what can be posted now.
    pub(super) fn post(&mut self, endpoint: &dyn Posting) -> Result<(), PutError> {
        if let Some(read) = self.untold {
            match self.line(endpoint, &[read], self.tell_at, None, None) {
                Posted::Yes => self.untold = None,
                Posted::NotNow => {}
                Posted::Failed(error) => return Err(PutError::Unreachable(-error)),
            }
        }
        while let Some(operation) = self.waiting.pop_front() {
            match self.post_one(endpoint, &operation) {
                Posted::Yes => {}
                Posted::NotNow => {
                    self.waiting.push_front(operation);
                    break;
                }
                Posted::Failed(error) => return Err(PutError::Unreachable(-error)),
            }
        }
        Ok(())
    }

    fn post_one(&mut self, endpoint: &dyn Posting, operation: &Operation) -> Posted {
        match operation {
            Operation::Data {
                from,
                length,
                to,
                sent,
            } => self.write(endpoint, (from, *length), *to, None, *sent),
            Operation::Entry {
                words,
                to,
                message,
                sent,
            } => {
                if !self.is_ordered && self.goes_on() {
                    return Posted::NotNow;
                }
                self.line(endpoint, words, *to, Some(*message), *sent)
            }
        }
    }

    /// Writes a few words.
    fn line(
        &mut self,
        endpoint: &dyn Posting,
        words: &[u64],
        to: u64,
        notice: Option<u32>,
        sent: Option<Sent>,
    ) -> Posted {
        const { assert!(HEAD_BYTES <= LINE_BYTES) };
        let length = words.len() * 8;
        if self.is_ordered && length <= self.inject_bytes {
            let mut bytes = [0; LINE_BYTES];
            for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
                *bytes = word.to_ne_bytes();
            }
            let posted = endpoint.inject(&bytes[..length], self.target(to), notice);
            if posted == Posted::Yes {
                self.sent.extend(sent);
            }
            return posted;
        }
        let Some(&place) = self.free.last() else {
            return Posted::NotNow;
        };
        let line = &self.lines.words()[place * ENTRY_WORDS..];
        for (to, word) in line.iter().zip(words) {
            OwnWord::store(to, *word);
        }
        let from = Origin::Source(self.path.data_bytes + place * LINE_BYTES);
        self.write(endpoint, (&from, length), self.target(to), notice, sent)
    }

    fn write(
        &mut self,
        endpoint: &dyn Posting,
        from: (&Origin, usize),
        to: Target,
        notice: Option<u32>,
        sent: Option<Sent>,
    ) -> Posted {
        let Some(&place) = self.free.last() else {
            return Posted::NotNow;
        };
        let posted = endpoint.write(place, from, to, notice, !self.is_ordered);
        if posted == Posted::Yes {
            self.free.pop();
            self.going_on[place] = sent;
        }
        posted
    }

    fn target(&self, to: u64) -> Target {
        let peer = &self.path.peer;
        Target {
            peer: peer.endpoint,
            address: peer.base.wrapping_add(to),
            key: peer.key,
        }
    }
}
