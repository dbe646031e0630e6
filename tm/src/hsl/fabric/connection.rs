//! One half of a lane as a card has it: an endpoint, what is to be posted there and what has come
//! of it, and the memory of the other side that may be written.
//!
//! ```text
//!   add: check ─> outbox ─> posted: data, then the entry of the other side's list, which tells
//!                                   of itself (immediate data)
//!   drive: outbox, completions ─┬─> sent
//!                               └─> arrived: identifiers; the entries are in this side's list
//! ```
//!
//! A provider that keeps writes in order is given the entry right behind its data. Where it does
//! not, an entry waits until everything before it has been delivered.
//!
//! A list is read on as the host card's is: its reader puts how far it has come into the writer's
//! memory, without telling.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::abi::{self, CqEntry};
use super::attendant::{self, Care, End};
use super::control::{Control, Half};
use super::endpoint::{Endpoint, Posted, Target};
use super::error::FabricError;
use super::queue::BATCH;
use super::region::Region;
use crate::hsl::counters::Tally;
use crate::hsl::host::{ListPlace, range_within};
use crate::hsl::put::{
    CARRIED_MOST, Descriptor, ENTRY_WORDS, Entry, NodeNumber, PutError, Received, Sent,
};
use crate::local::memory::{OwnWords, PeerWords};
use crate::local::ring::entry_at;
use crate::local::sync::{OwnWord, Word, Words};

/// Operations that wait to be posted at most.
const OUTBOX_MOST: usize = 1 << 15;
/// Entries whose end has been asked for and not been taken in, at most.
const SENT_MOST: usize = 1024;
/// A half that ends waits so long at most until the other side has what was sent.
const LINGER_MOST: Duration = Duration::from_secs(10);
/// The attendant goes on for so many looks for who does not need it.
const VAIN_LOOKS_MOST: u32 = 16;
/// Bytes of an entry.
const LINE_BYTES: usize = ENTRY_WORDS * 8;
/// Bytes of the word that says how far a list has been read.
const HEAD_BYTES: usize = 8;

/// Of the memory that is sent from: bytes that `operations` take for their entries.
pub(super) fn lines_bytes(operations: usize) -> usize {
    operations * LINE_BYTES
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

/// What a connection is made of.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) numbers: [NodeNumber; 2],
    pub(super) endpoint: Endpoint,
    /// Operations that it was opened for.
    pub(super) operations: usize,
    /// Bytes of what is sent from that are for data; the entries of operations lie behind.
    pub(super) data_bytes: usize,
    /// Bytes of the largest put.
    pub(super) largest: u32,
    pub(super) peer: PeerMemory,
    /// This side's memory, which the other side writes,
    pub(super) own: Arc<Region>,
    /// and its list in there.
    pub(super) own_list: ListPlace,
    pub(super) control: Arc<Control>,
    pub(super) half: Half,
}

#[derive(Debug)]
pub(super) struct Connection {
    endpoint: Endpoint,
    node: NodeNumber,
    peer_node: NodeNumber,
    peer: PeerMemory,
    data_bytes: usize,
    lines: OwnWords,
    /// Where the other side tells how far its list has been read.
    head: PeerWords,
    /// Where the other side wants to be told how far this side has read its list.
    tell_at: u64,
    /// Where the other side's writes go: registered until the endpoint is closed.
    _own: Arc<Region>,
    /// Notifications that can be unread here.
    unread_most: usize,
    /// Whether an entry may be posted right behind its data.
    is_ordered: bool,
    inject_bytes: usize,
    control: Arc<Control>,
    half: Half,
    /// What a sleeper waits for: whatever this is made of.
    sleep: OwnedFd,
    state: Mutex<State>,
    pub(super) tally: Arc<Tally>,
    /// Once it is about to end. Goes last, when the endpoint is closed.
    end: OnceLock<End>,
}

#[derive(Debug)]
struct State {
    outbox: VecDeque<Operation>,
    /// Places that no operation has.
    free: Vec<usize>,
    /// What goes on, by its place.
    going_on: Box<[Option<Sent>]>,
    sent: VecDeque<Sent>,
    /// Identifiers of notifications, as they came.
    arrived: VecDeque<u32>,
    /// How many have come.
    received: u64,
    /// Entries that were written to the other side's list,
    written: u64,
    /// and read there, as far as is known.
    read: u64,
    /// How far this side's list has been read, until it is told.
    untold: Option<u64>,
    failed: Option<PutError>,
    /// Its owner sleeps.
    is_armed: bool,
    /// The attendant looks after it.
    is_attended: bool,
    /// For how many looks in a row that was in vain.
    vain_looks: u32,
    ending: Option<Ending>,
}

/// A half that is about to end.
#[derive(Debug, Clone, Copy)]
struct Ending {
    since: Instant,
    /// Whether the other side has been told: nothing more is posted or taken in.
    is_told: bool,
}

/// Where an entry's data is.
#[derive(Debug)]
enum Way {
    /// There is none.
    Nothing,
    /// There, in what is sent from.
    Registered(usize),
    /// It travels in the notification.
    Carried([u8; CARRIED_MOST]),
}

/// What is to be posted.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Data {
        from: usize,
        length: usize,
        to: u64,
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

impl Connection {
    pub(super) fn new(parts: Parts) -> Result<Arc<Self>, FabricError> {
        let Parts {
            numbers: [node, peer_node],
            endpoint,
            operations,
            data_bytes,
            largest,
            peer,
            own,
            own_list,
            control,
            half,
        } = parts;
        let domain = Arc::clone(endpoint.domain());
        let facts = &domain.facts;
        if facts.largest_bytes < largest as usize {
            return Err(FabricError::TooSmall {
                provider: facts.provider.clone(),
                most: facts.largest_bytes,
                wanted: largest,
            });
        }
        let sleep = sleep_on(&endpoint, &control, half).map_err(|error| FabricError::Call {
            call: "epoll_ctl",
            provider: facts.provider.clone(),
            what: error.to_string(),
        })?;
        let source = endpoint.source().memory();
        Ok(Arc::new(Self {
            lines: source.words(data_bytes, operations * ENTRY_WORDS),
            node,
            peer_node,
            data_bytes,
            // Each list's reader tells its writer at the same place of that side's memory.
            head: own.memory().peer_words(peer.list.head_at, 1),
            tell_at: own_list.head_at as u64,
            _own: own,
            peer,
            unread_most: own_list.entries,
            is_ordered: facts.ordered_bytes >= largest as usize,
            inject_bytes: facts.inject_bytes,
            endpoint,
            control,
            half,
            sleep,
            state: Mutex::new(State {
                outbox: VecDeque::new(),
                free: (0..operations).rev().collect(),
                going_on: vec![None; operations].into_boxed_slice(),
                sent: VecDeque::new(),
                arrived: VecDeque::new(),
                received: 0,
                written: 0,
                read: 0,
                untold: None,
                failed: None,
                is_armed: false,
                is_attended: false,
                vain_looks: 0,
                ending: None,
            }),
            tally: Tally::new(),
            end: OnceLock::new(),
        }))
    }

    pub(super) fn control(&self) -> &Control {
        &self.control
    }

    pub(super) fn half(&self) -> Half {
        self.half
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.sleep.as_fd()
    }

    /// Checks an entry and lets the card do it. With `bytes`, these are its data, which have to
    /// fit in an entry.
    pub(super) fn add(
        self: &Arc<Self>,
        descriptor: &Descriptor,
        bytes: Option<&[u8]>,
    ) -> Result<(), PutError> {
        let mut state = self.state();
        if let Some(failed) = state.failed {
            return Err(failed);
        }
        let notify = descriptor.notify;
        if (notify.received && !self.has_room(&mut state)?)
            || (notify.sent && state.sent.len() >= SENT_MOST)
            || state.outbox.len() + 2 > OUTBOX_MOST
        {
            return Err(PutError::Full);
        }
        let way = self.check(descriptor, bytes).inspect_err(|_| {
            self.tally.refused.add(1);
        })?;
        let mut sent = notify.sent.then_some(Sent {
            message: descriptor.message,
            local: descriptor.local,
        });
        let mut carried = None;
        match way {
            Way::Nothing => {}
            Way::Carried(bytes) => carried = Some((descriptor.remote, bytes)),
            Way::Registered(from) => state.outbox.push_back(Operation::Data {
                from,
                length: descriptor.length as usize,
                to: descriptor.remote.0,
                sent: sent.take(),
            }),
        }
        if notify.received {
            let received = Received {
                source: self.node,
                message: descriptor.message,
                length: descriptor.length,
                words: descriptor.words,
            };
            let entry = Entry { received, carried };
            let operation = self.entry(&mut state, entry, sent.take());
            state.outbox.push_back(operation);
            self.tally.notifications.add(1);
        }
        // Nothing was to be written.
        state.sent.extend(sent);
        self.tally.puts.add(1);
        self.tally.put_bytes.add(descriptor.length.into());
        self.post_all(&mut state);
        self.entrust(&mut state);
        Ok(())
    }

    /// Where an entry's data is, if all of it and of where it goes is registered.
    fn check(&self, descriptor: &Descriptor, bytes: Option<&[u8]>) -> Result<Way, PutError> {
        let Descriptor {
            destination,
            local,
            remote,
            length,
            notify,
            ..
        } = *descriptor;
        if destination != self.peer_node {
            return Err(PutError::Node(destination));
        }
        if length == 0 {
            return Ok(Way::Nothing);
        }
        let there = range_within(remote, length, &self.peer.registered);
        there.ok_or(PutError::Remote(remote, length))?;
        let mut carried = [0; CARRIED_MOST];
        if let Some(bytes) = bytes {
            // Only a notification carries data.
            let into = carried.get_mut(..bytes.len()).filter(|_| notify.received);
            let into = into.ok_or(PutError::Local(local, length))?;
            into.copy_from_slice(bytes);
            return Ok(Way::Carried(carried));
        }
        let here = range_within(local, length, &(0..self.data_bytes as u64));
        here.map(Way::Registered)
            .ok_or(PutError::Local(local, length))
    }

    fn entry(&self, state: &mut State, entry: Entry, sent: Option<Sent>) -> Operation {
        let list = self.peer.list;
        let (place, words) = entry_at(state.written, list.entries, entry.to_words());
        state.written = state.written.wrapping_add(1);
        Operation::Entry {
            words,
            to: (list.at + place * LINE_BYTES) as u64,
            message: entry.received.message.0,
            sent,
        }
    }

    /// Whether the other side's list has room for an entry.
    fn has_room(&self, state: &mut State) -> Result<bool, PutError> {
        let entries = self.peer.list.entries as u64;
        if state.written.wrapping_sub(state.read) < entries {
            return Ok(true);
        }
        let read = self.head.words()[0].load();
        if state.written.wrapping_sub(read) > entries {
            return Err(PutError::Peer("it has read what was not written"));
        }
        state.read = read;
        Ok(state.written.wrapping_sub(read) < entries)
    }

    /// Tells the other side how far this side's list has been read.
    pub(super) fn tell_read(self: &Arc<Self>, read: u64) {
        let mut state = self.state();
        state.untold = Some(read);
        self.post_all(&mut state);
        self.entrust(&mut state);
    }

    /// The next entry that has been sent.
    pub(super) fn next_sent(&self) -> Option<Sent> {
        self.state().sent.pop_front()
    }

    /// Moves the identifiers of all notifications that have come into `into`; why there are no
    /// more, where that is so.
    pub(super) fn take_arrived(self: &Arc<Self>, into: &mut VecDeque<u32>) -> Option<PutError> {
        let mut state = self.state();
        if state.arrived.is_empty() {
            self.drive(&mut state);
            self.entrust(&mut state);
        }
        into.append(&mut state.arrived);
        state.failed
    }

    /// How many notifications have come, and whether more may.
    pub(super) fn progress(&self) -> (u64, bool) {
        let state = self.state();
        (state.received, state.failed.is_none())
    }

    /// Prepares to sleep; `false` when there is something to look at.
    pub(super) fn arm(self: &Arc<Self>) -> bool {
        let mut state = self.state();
        state.is_armed = true;
        self.drive(&mut state);
        let queue = self.endpoint.queue();
        let sleeps = !state.has_news() && (queue.descriptor().is_none() || queue.may_wait());
        state.is_armed = sleeps;
        self.entrust(&mut state);
        sleeps
    }

    pub(super) fn disarm(&self) {
        self.state().is_armed = false;
    }

    /// Nothing is posted any more.
    pub(super) fn stop(&self) {
        self.state().fail(PutError::Closed);
    }

    /// This half has ended. A sending one goes on until the other side has what was sent; of
    /// either, the endpoint stays until the other side is done with it: some providers do not
    /// bear that one goes which has something under way.
    pub(super) fn close(self: &Arc<Self>) {
        self.end.get_or_init(End::begin);
        let mut state = self.state();
        let is_told = self.half == Half::Receiving;
        if is_told {
            state.fail(PutError::Closed);
        } else {
            self.drive(&mut state);
        }
        state.ending = Some(Ending {
            since: Instant::now(),
            is_told,
        });
        self.end(&mut state);
        self.entrust(&mut state);
    }

    /// Does what is to be done while nobody else does.
    pub(super) fn attend(&self) -> Care {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Somebody does.
            Err(TryLockError::WouldBlock) => return Care::Waiting,
        };
        if !state.ending.is_some_and(|ending| ending.is_told) {
            self.drive(&mut state);
        }
        if state.is_armed && state.has_news() {
            state.is_armed = false;
            self.control.bell(self.half).ring();
        }
        self.end(&mut state);
        state.vain_looks = if self.needs_care(&state) {
            0
        } else {
            state.vain_looks + 1
        };
        // Whoever sends and is answered needs somebody again at once.
        let is_over = state.failed.is_some() && state.ending.is_none();
        state.is_attended = !is_over && state.vain_looks <= VAIN_LOOKS_MOST;
        if state.is_attended {
            Care::Waiting
        } else {
            Care::Done
        }
    }

    fn needs_care(&self, state: &State) -> bool {
        if state.ending.is_some() {
            return true;
        }
        let goes_on = state.free.len() < state.going_on.len();
        state.failed.is_none()
            && (!state.outbox.is_empty()
                || state.untold.is_some()
                || self.sleeps_deaf(state)
                || (goes_on && self.endpoint.domain().facts.needs_calls))
    }

    /// Whether its owner sleeps, and the provider would not wake it.
    fn sleeps_deaf(&self, state: &State) -> bool {
        state.is_armed && self.endpoint.queue().descriptor().is_none()
    }

    fn entrust(self: &Arc<Self>, state: &mut State) {
        if !state.is_attended && self.needs_care(state) {
            state.is_attended = true;
            state.vain_looks = 0;
            attendant::look_after(Arc::clone(self));
        } else if self.sleeps_deaf(state) {
            attendant::hurry();
        }
    }

    /// Goes on with an end.
    fn end(&self, state: &mut State) {
        let Some(ending) = &mut state.ending else {
            return;
        };
        let heard = self.control.listen();
        let is_over = heard.is_over
            || ending.since.elapsed() >= LINGER_MOST
            || match self.half {
                Half::Sending => state.failed.is_some() || heard.receiving_ended,
                Half::Receiving => heard.sending_ended.is_some(),
            };
        let is_sent = state.outbox.is_empty() && state.free.len() == state.going_on.len();
        if !ending.is_told && (is_sent || is_over) {
            ending.is_told = true;
            self.control.say_ended(Half::Sending, state.written);
        }
        if is_over {
            state.ending = None;
            state.fail(PutError::Closed);
        }
    }

    /// Posts what can be posted and takes in what is complete; whether there was anything.
    fn drive(&self, state: &mut State) -> bool {
        let mut has_news = false;
        while state.failed.is_none() {
            self.post_all(state);
            let mut completions = [CqEntry::default(); BATCH];
            let count = match self.endpoint.queue().read(&mut completions) {
                Ok(count) => count,
                Err(error) => {
                    state.fail(PutError::Unreachable(-error));
                    return true;
                }
            };
            for completion in &completions[..count] {
                self.take(state, completion);
            }
            has_news |= count > 0;
            if count == 0 || (count < BATCH && state.outbox.is_empty()) {
                break;
            }
        }
        has_news
    }

    fn take(&self, state: &mut State, completion: &CqEntry) {
        let place = self.endpoint.place_of(completion.op_context);
        // Some providers mark the ends of this side's own writes with FI_REMOTE_CQ_DATA too.
        if completion.flags & abi::FI_REMOTE_WRITE != 0 {
            match (state.arrived.len(), u32::try_from(completion.data)) {
                (unread, Ok(message)) if unread < self.unread_most => {
                    state.arrived.push_back(message);
                    state.received += 1;
                }
                _ => state.fail(PutError::Peer("it tells of what its list has no room for")),
            }
        }
        match place {
            Some(place) if place < state.going_on.len() => {
                state.free.push(place);
                let sent = state.going_on[place].take();
                state.sent.extend(sent);
            }
            // A receive that a notification has taken.
            Some(place) => {
                if let Posted::Failed(error) = self.endpoint.post_receive(place) {
                    state.fail(PutError::Unreachable(-error));
                }
            }
            None => {}
        }
    }

    fn post_all(&self, state: &mut State) {
        if let Some(read) = state.untold
            && state.failed.is_none()
        {
            match self.line(state, &[read], self.tell_at, None, None) {
                Posted::Yes => state.untold = None,
                Posted::NotNow => {}
                Posted::Failed(error) => state.fail(PutError::Unreachable(-error)),
            }
        }
        while state.failed.is_none()
            && let Some(&operation) = state.outbox.front()
        {
            match self.post(state, operation) {
                Posted::Yes => _ = state.outbox.pop_front(),
                Posted::NotNow => break,
                Posted::Failed(error) => state.fail(PutError::Unreachable(-error)),
            }
        }
    }

    fn post(&self, state: &mut State, operation: Operation) -> Posted {
        match operation {
            Operation::Data {
                from,
                length,
                to,
                sent,
            } => self.write(state, (from, length), to, None, sent),
            Operation::Entry {
                words,
                to,
                message,
                sent,
            } => {
                let goes_on = state.free.len() < state.going_on.len();
                if !self.is_ordered && goes_on {
                    return Posted::NotNow;
                }
                self.line(state, &words, to, Some(message), sent)
            }
        }
    }

    /// Writes a few words.
    fn line(
        &self,
        state: &mut State,
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
            let posted = self
                .endpoint
                .inject(&bytes[..length], self.target(to), notice);
            if posted == Posted::Yes {
                state.sent.extend(sent);
            }
            return posted;
        }
        let Some(&place) = state.free.last() else {
            return Posted::NotNow;
        };
        let line = &self.lines.words()[place * ENTRY_WORDS..];
        for (to, word) in line.iter().zip(words) {
            OwnWord::store(to, *word);
        }
        let from = self.data_bytes + place * LINE_BYTES;
        self.write(state, (from, length), to, notice, sent)
    }

    fn write(
        &self,
        state: &mut State,
        from: (usize, usize),
        to: u64,
        notice: Option<u32>,
        sent: Option<Sent>,
    ) -> Posted {
        let Some(&place) = state.free.last() else {
            return Posted::NotNow;
        };
        let target = self.target(to);
        let posted = self
            .endpoint
            .write(place, from, target, notice, !self.is_ordered);
        if posted == Posted::Yes {
            state.free.pop();
            state.going_on[place] = sent;
        }
        posted
    }

    fn target(&self, to: u64) -> Target {
        Target {
            peer: self.peer.endpoint,
            address: self.peer.base.wrapping_add(to),
            key: self.peer.key,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has_news(&self) -> bool {
        !self.arrived.is_empty() || !self.sent.is_empty() || self.failed.is_some()
    }

    /// The first failure is what counts. What was not posted never will be.
    fn fail(&mut self, error: PutError) {
        self.failed.get_or_insert(error);
        self.outbox.clear();
        self.untold = None;
    }
}

/// Something that is readable when there is anything to look at.
fn sleep_on(endpoint: &Endpoint, control: &Control, half: Half) -> rustix::io::Result<OwnedFd> {
    let sleep = epoll::create(CreateFlags::CLOEXEC)?;
    let flags = EventFlags::IN | EventFlags::RDHUP;
    epoll::add(&sleep, control, EventData::new_u64(0), flags)?;
    epoll::add(&sleep, control.bell(half), EventData::new_u64(1), flags)?;
    if let Some(queue) = endpoint.queue().descriptor() {
        epoll::add(&sleep, queue, EventData::new_u64(2), flags)?;
    }
    Ok(sleep)
}
