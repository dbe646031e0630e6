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
//! Whoever has something to do drives: the owner of the card or of the list, or, while neither
//! calls, the attendant.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::attendant::{Attendant, Care, End};
use super::control::{Control, Half};
use super::error::FabricError;
use super::outbox::{From, Outbox, Path};
use super::posting::{BATCH, Completion, Posted, Posting};
use super::registrar::Lent;
use crate::hsl::counters::Tally;
use crate::hsl::host::ListPlace;
use crate::hsl::put::{Descriptor, Offered, PutError, Sent};
use crate::local::memory::Mapping;

/// A half that ends waits so long at most until the other side has what was sent.
const LINGER_MOST: Duration = Duration::from_secs(10);
/// The attendant goes on for so many looks for who does not need it.
const VAIN_LOOKS_MOST: u32 = 16;

/// What a connection is made of.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) endpoint: Box<dyn Posting>,
    pub(super) path: Path,
    /// This side's memory, which the other side writes,
    pub(super) own: Arc<Mapping>,
    /// and its list in there.
    pub(super) own_list: ListPlace,
    pub(super) control: Arc<Control>,
    pub(super) half: Half,
    /// Who goes on while nobody calls.
    pub(super) attendant: Arc<Attendant>,
}

#[derive(Debug)]
pub(super) struct Connection {
    endpoint: Box<dyn Posting>,
    /// Notifications that can be unread here.
    unread_most: usize,
    control: Arc<Control>,
    half: Half,
    largest: u32,
    /// What a sleeper waits for: whatever this is made of.
    sleep: OwnedFd,
    state: Mutex<State>,
    attendant: Arc<Attendant>,
    pub(super) tally: Arc<Tally>,
    /// Once it is about to end. Goes last, when the endpoint is closed.
    end: OnceLock<End>,
}

#[derive(Debug)]
struct State {
    outbox: Outbox,
    /// Memory that the other side may write until the endpoint is closed. At most what was posted
    /// when the connection ended.
    kept: Vec<Lent>,
    /// Identifiers of notifications, as they came.
    arrived: VecDeque<u32>,
    /// How many have come.
    received: u64,
    /// Receives that the provider did not take: they are posted when it does.
    unposted: Vec<usize>,
    failed: Option<PutError>,
    /// Its owner sleeps.
    is_armed: bool,
    /// The attendant looks after it.
    is_attended: bool,
    /// For how many looks in a row that was in vain.
    vain_looks: u32,
    ending: Option<Ending>,
    /// Whether the other side knows that nothing more is sent.
    has_said_end: bool,
}

/// A half that is about to end.
#[derive(Debug, Clone, Copy)]
struct Ending {
    since: Instant,
    /// Whether the other side has been told: nothing more is posted or taken in.
    is_told: bool,
}

impl Connection {
    pub(super) fn new(parts: Parts) -> Result<Arc<Self>, FabricError> {
        let Parts {
            endpoint,
            path,
            own,
            own_list,
            control,
            half,
            attendant,
        } = parts;
        let facts = endpoint.facts();
        if facts.largest_bytes < path.largest as usize {
            return Err(FabricError::TooSmall {
                provider: facts.provider.clone(),
                most: facts.largest_bytes,
                wanted: path.largest,
            });
        }
        let sleep = sleep_on(&*endpoint, &control, half).map_err(|error| FabricError::Call {
            call: "epoll_ctl",
            provider: facts.provider.clone(),
            what: error.to_string(),
        })?;
        Ok(Arc::new(Self {
            unread_most: own_list.entries,
            control,
            half,
            largest: path.largest,
            sleep,
            state: Mutex::new(State {
                outbox: Outbox::new(path, &*endpoint, &own, own_list),
                kept: Vec::new(),
                arrived: VecDeque::new(),
                received: 0,
                unposted: endpoint.unposted_receives().collect(),
                failed: None,
                is_armed: false,
                is_attended: false,
                vain_looks: 0,
                ending: None,
                has_said_end: false,
            }),
            endpoint,
            attendant,
            tally: Tally::new(),
            end: OnceLock::new(),
        }))
    }

    pub(super) fn control(&self) -> &Control {
        &self.control
    }

    /// Bytes of the largest put.
    pub(super) fn largest(&self) -> u32 {
        self.largest
    }

    pub(super) fn half(&self) -> Half {
        self.half
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.sleep.as_fd()
    }

    /// Checks an entry and lets the card do it.
    pub(super) fn add(
        self: &Arc<Self>,
        descriptor: &Descriptor,
        from: From<'_>,
    ) -> Result<(), PutError> {
        let mut state = self.state();
        if let Some(failed) = state.failed {
            return Err(failed);
        }
        if !state.outbox.has_room(descriptor.notify)? {
            return Err(PutError::Full);
        }
        let pushed = state.outbox.push(descriptor, from);
        pushed.inspect_err(|_| self.tally.refused.add(1))?;
        self.tally.puts.add(1);
        self.tally.put_bytes.add(descriptor.length.into());
        self.tally
            .notifications
            .add(descriptor.notify.received.into());
        if matches!(from, From::Registered) {
            self.tally.registered_bytes.add(descriptor.length.into());
        }
        self.post_all(&mut state);
        self.entrust(&mut state);
        Ok(())
    }

    /// Tells the other side how far this side's list has been read.
    pub(super) fn tell_read(self: &Arc<Self>, read: u64) {
        let mut state = self.state();
        state.outbox.tell_read(read);
        self.post_all(&mut state);
        self.entrust(&mut state);
    }

    /// The next entry that has been sent.
    pub(super) fn next_sent(&self) -> Option<Sent> {
        self.state().outbox.next_sent()
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
        let endpoint = &self.endpoint;
        let sleeps = !state.has_news() && (endpoint.descriptor().is_none() || endpoint.may_wait());
        state.is_armed = sleeps;
        self.entrust(&mut state);
        sleeps
    }

    pub(super) fn disarm(&self) {
        self.state().is_armed = false;
    }

    /// Nothing is posted any more.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.fail(PutError::Closed);
        if self.half == Half::Both && !state.has_said_end {
            state.has_said_end = true;
            self.control.say_sending_ended(state.outbox.written());
        }
    }

    /// The other side offers this memory, and no other.
    pub(super) fn offer(&self, offered: impl Iterator<Item = Offered>) -> Result<(), PutError> {
        self.state().outbox.offer(offered)
    }

    /// Keeps memory until the endpoint is closed: the other side may be writing it.
    pub(super) fn keep(&self, lent: Lent) {
        self.state().kept.push(lent);
    }

    /// This half has ended. A sending one goes on until the other side has what was sent; of
    /// either, the endpoint stays until the other side is done with it: some providers do not
    /// bear that one goes which has something under way.
    pub(super) fn close(self: &Arc<Self>) {
        self.end.get_or_init(End::begin);
        let mut state = self.state();
        if state.ending.is_some() {
            return;
        }
        // A port may have said so when it found that the other side had ended.
        let is_told = self.half == Half::Receiving || state.has_said_end;
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
        state.failed.is_none()
            && (state.outbox.has_unposted()
                || !state.unposted.is_empty()
                || self.sleeps_deaf(state)
                || (state.outbox.goes_on() && self.endpoint.facts().needs_calls))
    }

    /// Whether its owner sleeps, and the provider would not wake it.
    fn sleeps_deaf(&self, state: &State) -> bool {
        state.is_armed && self.endpoint.descriptor().is_none()
    }

    fn entrust(self: &Arc<Self>, state: &mut State) {
        if !state.is_attended && self.needs_care(state) {
            state.is_attended = true;
            state.vain_looks = 0;
            self.attendant.look_after(Arc::clone(self));
        } else if self.sleeps_deaf(state) {
            self.attendant.hurry();
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
                Half::Both => heard.receiving_ended && heard.sending_ended.is_some(),
            };
        let is_sent = !state.outbox.has_waiting() && !state.outbox.goes_on();
        if !ending.is_told && (is_sent || is_over) {
            ending.is_told = true;
            state.has_said_end = true;
            self.control.say_sending_ended(state.outbox.written());
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
            let mut completions = [Completion::default(); BATCH];
            let count = match self.endpoint.read(&mut completions) {
                Ok(count) => count,
                Err(error) => {
                    state.fail(PutError::Unreachable(-error));
                    return true;
                }
            };
            for completion in &completions[..count] {
                self.take(state, *completion);
            }
            has_news |= count > 0;
            if count == 0 || (count < BATCH && !state.outbox.has_waiting()) {
                break;
            }
        }
        has_news
    }

    fn take(&self, state: &mut State, completion: Completion) {
        if let Some(notice) = completion.notice {
            match (state.arrived.len(), u32::try_from(notice)) {
                (unread, Ok(message)) if unread < self.unread_most => {
                    state.arrived.push_back(message);
                    state.received += 1;
                }
                _ => state.fail(PutError::Peer("it tells of what its list has no room for")),
            }
        }
        if let Some(place) = completion.place
            && !state.outbox.complete(place)
            && !state.unposted.contains(&place)
        {
            // A receive that a notification has taken.
            state.unposted.push(place);
            self.post_receives(state);
        }
    }

    fn post_all(&self, state: &mut State) {
        self.post_receives(state);
        if state.failed.is_none()
            && let Err(error) = state.outbox.post(&*self.endpoint)
        {
            state.fail(error);
        }
    }

    /// Posts receives, as far as the provider takes them.
    fn post_receives(&self, state: &mut State) {
        while state.failed.is_none()
            && let Some(&place) = state.unposted.last()
        {
            match self.endpoint.post_receive(place) {
                Posted::Yes => _ = state.unposted.pop(),
                Posted::NotNow => break,
                Posted::Failed(error) => state.fail(PutError::Unreachable(-error)),
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has_news(&self) -> bool {
        !self.arrived.is_empty() || self.outbox.has_sent() || self.failed.is_some()
    }

    /// The first failure is what counts.
    fn fail(&mut self, error: PutError) {
        self.failed.get_or_insert(error);
        self.outbox.clear();
    }
}

/// Something that is readable when there is anything to look at.
fn sleep_on(endpoint: &dyn Posting, control: &Control, half: Half) -> rustix::io::Result<OwnedFd> {
    let sleep = epoll::create(CreateFlags::CLOEXEC)?;
    let flags = EventFlags::IN | EventFlags::RDHUP;
    epoll::add(&sleep, control, EventData::new_u64(0), flags)?;
    epoll::add(&sleep, control.bell(half), EventData::new_u64(1), flags)?;
    if let Some(queue) = endpoint.descriptor() {
        epoll::add(&sleep, queue, EventData::new_u64(2), flags)?;
    }
    Ok(sleep)
}
