//! Driving the links: one thread at a time receives for everybody.
//!
//! A thread that waits inside the API becomes the driver if nobody is, so that no wake-up
//! lies between the wire and the caller; the progress thread drives while nobody waits
//! ([`background`](super::background)). Who sleeps when, and who wakes them, is said in
//! [`wait`](super::wait).

mod pace;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use crossbeam_channel::Receiver;
use madgate_gtm::Time;
use madgate_tm::{AdaptiveSpin, Crowd, LaneClass, LaneError, Poller, Ready};

use super::Inner;
use super::followed::{Followed, Watched};
use super::goal::Goal;
use super::input::{BATCH_BYTES, Input, InputError};
use super::links::LinkOutput;
use crate::conductor::LinkEvent;

/// Times that what a link still holds is read at most, when its peer has left.
const LAST_READS: usize = 64;

/// What belongs to whoever drives.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(super) poller: Poller,
    pub(super) inputs: Vec<Option<Input>>,
    events: Receiver<LinkEvent>,
    /// Inputs that lend slots: looking at them costs no system call.
    pub(super) static_inputs: Vec<usize>,
    /// The first of them that the next pass looks at: behind that which reached the last goal.
    first_static: usize,
    ready: Vec<Ready>,
    scratch: BytesMut,
    passes: u32,
    /// Whether the last pass looked at all descriptors.
    has_looked: bool,
    /// The time, as of the last look at all descriptors.
    now: Time,
    /// Whether the thread that drives is a caller, who waits for something.
    is_caller: bool,
    /// Whether it is unpacking a block, which payloads may go straight to.
    pub(super) serves_block: bool,
    /// The lane of small frames that brought something last.
    pub(super) small: Followed,
    /// The bulk lane of which payloads went straight to their blocks last.
    pub(super) bulk: Followed,
    /// That lane, while the rest of such a payload is on its way.
    pub(super) straight: Option<usize>,
    /// Whether that lane had to wait in the last pass for small frames to be looked at.
    has_put_off_bulk: bool,
    /// The bulk lane of which more than the next bytes is waited for at once.
    gathering: Option<usize>,
    /// Whether there may be something to do besides receiving.
    pub(super) has_chores: bool,
    /// Whether bulk lanes had to wait in the last pass for small frames to be looked at.
    has_put_off: bool,
    /// Memory for the links that are to be waited for.
    blocked: Vec<u32>,
    /// Lanes that are being waited for: link, and whether it is the bulk lane.
    pub(super) writable: Vec<(u32, LaneClass)>,
    /// Links of which nobody would learn that something arrives: they are to be closed.
    pub(super) deaf: Vec<(u32, InputError)>,
    /// Who else wants the processor of those that drive.
    pub(super) crowd: Crowd,
    /// For how long it is worth to look before sleeping.
    pub(super) spin: AdaptiveSpin,
}

/// How long a pass may wait for something to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Look and go on.
    None,
    /// Sleep until something happens, this long at most.
    Sleep(Option<Duration>),
}

impl Driver {
    /// One that looks for `spin` at most before it sleeps.
    pub(crate) fn new(poller: Poller, events: Receiver<LinkEvent>, spin: Duration) -> Self {
        Self {
            poller,
            inputs: Vec::new(),
            events,
            static_inputs: Vec::new(),
            first_static: 0,
            ready: Vec::new(),
            scratch: BytesMut::with_capacity(BATCH_BYTES),
            passes: 0,
            has_looked: false,
            now: Time(0),
            is_caller: false,
            serves_block: false,
            small: Followed::default(),
            bulk: Followed::default(),
            straight: None,
            has_put_off_bulk: false,
            gathering: None,
            has_chores: true,
            has_put_off: false,
            blocked: Vec::new(),
            writable: Vec::new(),
            deaf: Vec::new(),
            crowd: Crowd::default(),
            spin: AdaptiveSpin::new(spin),
        }
    }

    /// The block that payloads go straight to is complete or given up.
    pub(crate) fn abandon_straight(&mut self) {
        self.serves_block = false;
        self.inputs
            .iter_mut()
            .flatten()
            .for_each(Input::abandon_straight);
    }

    /// A thread begins to drive: a caller, who waits for something, or the progress thread.
    ///
    /// The time is taken anew, but for callers where all lanes are of shared memory: they come and
    /// go so fast that a look at the clock counts, and the time of the last look at descriptors
    /// will do. There is one every few dozen passes ([`pace`]), of which a wait takes one at least;
    /// and where no caller has come for a tick, the progress thread takes the wheel, and the time.
    pub(crate) fn begin_drive(&mut self, is_caller: bool, now: impl FnOnce() -> Time) {
        self.is_caller = is_caller;
        self.has_chores = true;
        if !is_caller || !self.has_only_slots() {
            self.now = now();
        }
    }

    /// Whether the last pass looked at all descriptors.
    pub(crate) const fn has_looked(&self) -> bool {
        self.has_looked
    }

    /// What has been waited for too long is not waited for any longer.
    fn end_gathering(&mut self) {
        let Some(index) = self.gathering else { return };
        let input = self.inputs[index].as_mut();
        let still = input.is_some_and(|input| {
            input.end_gathering(self.now);
            input.gathers_until().is_some()
        });
        if !still {
            self.gathering = None;
        }
    }

    /// For how long it still is.
    fn gathering_time(&self) -> Option<Duration> {
        let input = self.inputs[self.gathering?].as_ref()?;
        Some(input.gathers_until()?.since(self.now))
    }

    /// A lane of small frames has brought something, or failed.
    fn heat(&mut self, index: usize) {
        if self.inputs[index].is_some() {
            let followed = self.small.follow(index, &self.inputs, &self.poller);
            self.note_deaf(followed);
        }
    }

    /// The lane of small frames that is followed was looked at.
    fn note_small_look(&mut self, has_brought: bool) {
        let noted = self
            .small
            .note_look(has_brought, &self.inputs, &self.poller);
        self.note_deaf(noted);
    }

    /// A bulk lane was looked at, and a payload of which more is to come goes straight to its block,
    /// if `is_straight`.
    fn note_bulk_look(&mut self, index: usize, has_brought: bool, is_straight: bool) {
        if has_brought && is_straight {
            let followed = self.bulk.follow(index, &self.inputs, &self.poller);
            self.note_deaf(followed);
        }
        if self.bulk.lane() != Some(index) {
            return;
        }
        let (inputs, poller) = (&self.inputs, &self.poller);
        let noted = if !has_brought || is_straight {
            self.bulk.note_look(has_brought, inputs, poller)
        } else if self.straight != Some(index) {
            self.bulk.note_whole(inputs, poller)
        } else {
            // The last part of a payload.
            Ok(())
        };
        self.note_deaf(noted);
    }

    /// Whether the two lanes that are followed are of one link: then they are looked at in the
    /// right order, small frames first.
    fn follows_one_link(&self) -> bool {
        let link = |followed: &Followed| Some(self.inputs[followed.lane()?].as_ref()?.link);
        link(&self.small).is_some_and(|small| link(&self.bulk) == Some(small))
    }

    /// The lane of small frames is watched again.
    fn watch_small(&mut self) {
        let watched = self.small.watch(&self.inputs, &self.poller);
        self.note_deaf(watched);
    }

    /// The bulk lane is watched again.
    fn watch_bulk(&mut self) {
        let watched = self.bulk.watch(&self.inputs, &self.poller);
        self.note_deaf(watched);
    }

    /// All lanes are watched again.
    fn watch_all(&mut self) {
        self.watch_small();
        self.watch_bulk();
    }

    fn note_deaf(&mut self, watched: Watched) {
        if let Err(deaf) = watched {
            self.deaf.push(deaf);
            self.has_chores = true;
        }
    }

    /// Whether something may have arrived on a lane.
    fn may_have_arrived(&self, index: usize) -> bool {
        let input = self.inputs[index].as_ref();
        input.is_some_and(|input| input.receiver.may_have_arrived())
    }

    /// Whether all links are of shared memory, and none is waited for in another way.
    fn is_all_slots(&self) -> bool {
        let is_watched = self.small.unwatched().is_none() && self.bulk.unwatched().is_none();
        is_watched && self.has_only_slots()
    }

    /// Whether all links are of shared memory.
    fn has_only_slots(&self) -> bool {
        self.has_static_inputs() && self.static_inputs.len() == self.inputs.len()
    }

    /// Whether some links are of shared memory, so that looking again is cheap.
    pub(crate) const fn has_static_inputs(&self) -> bool {
        !self.static_inputs.is_empty()
    }
}

impl Inner {
    /// One pass: sends what waits, receives what is there, does what is due. Returns
    /// whether anything came.
    #[inline]
    pub(crate) fn drive(
        &self,
        driver: &mut Driver,
        patience: Patience,
        goal: &mut Goal<'_, '_>,
    ) -> bool {
        driver.passes = driver.passes.wrapping_add(1);
        driver.has_looked = patience != Patience::None
            || driver
                .passes
                .is_multiple_of(driver.passes_per_look(goal.straight.is_some()));
        if driver.is_all_slots() && !driver.has_looked && !driver.has_chores {
            return self.poll_slots(driver, patience, goal);
        }
        self.drive_all(driver, patience, goal)
    }

    /// A pass over all that there may be.
    #[inline(never)]
    fn drive_all(&self, driver: &mut Driver, patience: Patience, goal: &mut Goal<'_, '_>) -> bool {
        let mut busy = driver.has_looked && self.handle_link_events(driver);
        if driver.has_looked || driver.has_chores {
            driver.has_chores = false;
            self.do_chores(driver);
        }
        if patience != Patience::None || driver.has_static_inputs() {
            driver.watch_all();
        }
        if driver.has_static_inputs() {
            busy |= self.poll_slots(driver, patience, goal);
        } else if patience == Patience::None {
            busy |= self.look_at_followed(driver, goal);
        }
        if !driver.has_looked {
            return busy;
        }
        self.watch_blocked(driver);
        driver.end_gathering();
        let timeout = match patience {
            Patience::None => Some(Duration::ZERO),
            // What cannot be waited for is closed in the next pass.
            Patience::Sleep(_) if busy || !driver.deaf.is_empty() => Some(Duration::ZERO),
            Patience::Sleep(_) if !Self::arm_slots(driver) => {
                // Some lanes never tell: they are looked at for ever.
                driver.crowd.yield_now();
                Some(Duration::ZERO)
            }
            Patience::Sleep(most) => {
                let most = driver.gathering_time().into_iter().chain(most).min();
                self.sleep_time(most, driver.is_caller)
            }
        };
        busy |= self.poll_descriptors(driver, timeout, goal);
        self.flush_dirty();
        if let Some(presses) = self.handle_due(driver.now) {
            // What does not press goes with what a caller sends next, who is about to leave: often the
            // answer, and a frame of its own would wake the next node before that. If it sends
            // nothing, it goes when the caller comes back, or the progress thread takes over.
            if presses || !driver.is_caller || !goal.is_over() {
                self.flush_dirty();
            }
        }
        busy
    }

    /// Reads the lanes that are followed.
    fn look_at_followed(&self, driver: &mut Driver, goal: &mut Goal<'_, '_>) -> bool {
        if let Some(straight) = driver.straight.filter(|_| goal.straight.is_some()) {
            driver.watch_small();
            return self.receive(driver, straight, goal);
        }
        // What another thread waits for may belong to a block that it unpacks; and what is small on
        // a link comes before what is large.
        if !driver.is_caller || !driver.follows_one_link() {
            driver.watch_bulk();
        }
        let bulk = driver.bulk.unwatched();
        let mut busy = false;
        if goal.straight.is_some() && bulk.is_none() {
            driver.watch_small();
        } else if let Some(small) = driver.small.lane() {
            busy = self.receive(driver, small, goal);
            driver.note_small_look(busy);
        }
        let Some(bulk) = bulk else { return busy };
        // After small frames a caller may know where the large ones belong: they wait, but only
        // for one pass.
        if (busy || goal.is_over()) && !driver.has_put_off_bulk {
            driver.has_put_off_bulk = true;
            return busy;
        }
        driver.has_put_off_bulk = false;
        busy | self.receive(driver, bulk, goal)
    }

    /// How long to sleep: until the next thing is due. From now on whoever has news for the
    /// driver wakes it.
    fn sleep_time(&self, most: Option<Duration>, is_caller: bool) -> Option<Duration> {
        self.driver_sleeps.store(true, Ordering::SeqCst);
        let core = self.lock();
        let has_changed = is_caller && self.has_changed.load(Ordering::Relaxed);
        if has_changed || core.has_chores() || !core.blocked.is_empty() {
            return Some(Duration::ZERO);
        }
        self.caller_sleeps.store(is_caller, Ordering::Relaxed);
        let due = core.next_deadline().map(|at| at.since(self.now()));
        match (due, most) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Does what is due, if anything is. Returns whether what is to be sent for it presses.
    fn handle_due(&self, now: Time) -> Option<bool> {
        let mut core = self.lock();
        if core.next_deadline().is_none_or(|at| now < at) {
            return None;
        }
        let presses = core.handle_timeout(now);
        self.wake_waiters(&core);
        Some(presses)
    }

    // ---- receiving ------------------------------------------------------------------------

    /// Looks at every lane of shared memory, again and again while the thread spins, until the goal
    /// is reached: lanes that come after that have their turn first the next time.
    #[inline(never)]
    fn poll_slots(&self, driver: &mut Driver, patience: Patience, goal: &mut Goal<'_, '_>) -> bool {
        // Only who receives learns of a peer that is gone.
        let mut receives = driver.has_looked;
        let looks = driver.slot_looks(patience);
        let first = std::mem::take(&mut driver.first_static);
        let mut at = if receives { 0 } else { first };
        for _ in 0..looks {
            let mut busy = false;
            while let Some(&index) = driver.static_inputs.get(at) {
                if receives || driver.may_have_arrived(index) {
                    busy |= self.receive(driver, index, goal);
                    if goal.is_over() {
                        driver.first_static = at + 1;
                        return true;
                    }
                }
                at += 1;
            }
            at = 0;
            if busy || self.has_changed.load(Ordering::Relaxed) {
                return busy;
            }
            receives = false;
        }
        false
    }

    /// Prepares to sleep on lanes of shared memory; `false` when something is there.
    fn arm_slots(driver: &mut Driver) -> bool {
        let inputs = &mut driver.inputs;
        driver.static_inputs.iter().all(|&index| {
            // A lane that has failed says so when it is received from.
            inputs[index]
                .as_mut()
                .is_none_or(|input| input.receiver.arm().unwrap_or(false))
        })
    }

    fn poll_descriptors(
        &self,
        driver: &mut Driver,
        timeout: Option<Duration>,
        goal: &mut Goal<'_, '_>,
    ) -> bool {
        driver.ready.clear();
        match driver.poller.wait(timeout) {
            Ok(ready) => driver.ready.extend_from_slice(ready),
            Err(error) => tracing::error!(%error, "waiting for the network failed"),
        }
        if self.driver_sleeps.load(Ordering::Relaxed) {
            self.driver_sleeps.store(false, Ordering::SeqCst);
            self.caller_sleeps.store(false, Ordering::Relaxed);
        }
        driver.now = self.now();
        let mut busy = false;
        let mut small_bytes = false;
        // Small frames first: after them a caller may know where the large ones belong.
        driver
            .ready
            .sort_unstable_by_key(|ready| ready.token & BULK_BIT);
        for at in 0..driver.ready.len() {
            let ready = driver.ready[at];
            busy = true;
            let may_say_where = small_bytes || goal.is_over();
            if ready.token & BULK_BIT != 0 && may_say_where && !driver.has_put_off {
                driver.has_put_off = true;
                return true;
            }
            match Token::parse(ready.token) {
                Token::Input(index, _) => {
                    if let Some(Some(input)) = driver.inputs.get_mut(index)
                        && input.is_static()
                    {
                        input.receiver.acknowledge_wake();
                    }
                    let received = self.receive(driver, index, goal);
                    if received && ready.token & BULK_BIT == 0 {
                        small_bytes = true;
                        driver.heat(index);
                    } else {
                        driver.small.end_streak();
                    }
                }
                Token::Output(link, class) => self.handle_writable(driver, link, class),
            }
        }
        driver.has_put_off = false;
        busy
    }

    /// Receives from one lane; closes its link when the lane fails.
    #[inline(always)]
    pub(super) fn receive(
        &self,
        driver: &mut Driver,
        index: usize,
        goal: &mut Goal<'_, '_>,
    ) -> bool {
        let Some(Some(input)) = driver.inputs.get_mut(index) else {
            return false;
        };
        // Whoever unpacks a block abandons it before somebody else drives.
        debug_assert!(!input.is_straight() || goal.straight.is_some());
        let link = input.link;
        let scratch = &mut driver.scratch;
        let received = input.receive(self, goal, scratch, driver.now);
        if !input.is_static() && input.class == LaneClass::Bulk {
            input.gather(goal.straight.as_deref(), driver.now);
            let gathers = input.gathers_until().is_some();
            driver.gathering = gathers.then_some(index).or(driver.gathering);
            let is_straight = input.is_straight();
            driver.note_bulk_look(index, matches!(received, Ok(1..)), is_straight);
            if is_straight {
                driver.straight = Some(index);
            } else if driver.straight == Some(index) {
                driver.straight = None;
                // A payload is complete, for which credit may be due; where that ends the block, its
                // thread comes by on its way out.
                driver.has_chores |= !goal.is_over();
            }
        }
        match received {
            Ok(bytes) => bytes > 0,
            Err(error) => {
                self.end_link(driver, link, index, &error, goal);
                true
            }
        }
    }

    /// A lane has failed: its link is closed.
    #[cold]
    fn end_link(
        &self,
        driver: &mut Driver,
        link: u32,
        index: usize,
        error: &InputError,
        goal: &mut Goal<'_, '_>,
    ) {
        if matches!(error, InputError::Lane(LaneError::Closed)) {
            self.read_to_the_end(driver, link, index, goal);
        }
        self.close_link(driver, link, error);
    }

    /// A peer has left in good order: what the link's other lane still holds is taken in, as it may
    /// tell what was delivered.
    fn read_to_the_end(
        &self,
        driver: &mut Driver,
        link: u32,
        ended: usize,
        goal: &mut Goal<'_, '_>,
    ) {
        for index in 0..driver.inputs.len() {
            let Some(input) = driver.inputs[index].as_mut() else {
                continue;
            };
            if index == ended || input.link != link {
                continue;
            }
            for _ in 0..LAST_READS {
                let received = |input: &mut Input, scratch, goal: &mut _| {
                    input.receive(self, goal, scratch, driver.now)
                };
                if !matches!(received(input, &mut driver.scratch, goal), Ok(1..)) {
                    break;
                }
            }
        }
    }

    // ---- sending that was blocked -----------------------------------------------------------

    /// Begins to wait for lanes that took less than they were offered.
    fn watch_blocked(&self, driver: &mut Driver) {
        let mut blocked = std::mem::take(&mut driver.blocked);
        {
            let mut core = self.lock();
            if core.blocked.is_empty() {
                driver.blocked = blocked;
                return;
            }
            std::mem::swap(&mut core.blocked, &mut blocked);
        }
        for link in blocked.drain(..) {
            let Some(output) = self.output(link) else {
                continue;
            };
            let mut waits = false;
            for class in [LaneClass::Urgent, LaneClass::Bulk] {
                waits |= self.watch(driver, link, &output, class);
            }
            if !waits {
                // Room came before anybody waited for it.
                self.handle_room(link);
            }
            // Somebody may have found the sending side taken meanwhile.
            self.flush_if_missed(link, &output);
        }
        driver.blocked = blocked;
    }

    /// Waits for a lane, if it is blocked. Returns whether it does, or the link is to be
    /// closed: in either case it has no room.
    fn watch(
        &self,
        driver: &mut Driver,
        link: u32,
        output: &Arc<LinkOutput>,
        class: LaneClass,
    ) -> bool {
        let mut lanes = output.lock();
        let lane = lanes.lane(class);
        if !lane.is_blocked {
            return false;
        }
        let place = driver.writable.iter().position(|it| *it == (link, class));
        // Armed anew each time: whoever found room in between has disarmed the lane.
        let waits = lane.sender.arm().unwrap_or(false);
        let (descriptor, interest) = lane.sender.descriptor();
        match (waits, place) {
            (true, Some(_)) => {}
            (true, None) => {
                let token = Token::Output(link, class).to_number();
                if let Err(error) = driver.poller.add(descriptor, token, interest) {
                    // Nobody would ever learn that it takes more.
                    drop(lanes);
                    self.lock()
                        .note_broken(link, output, InputError::Deaf(error));
                    return true;
                }
                driver.writable.push((link, class));
            }
            // Room that came since then: flush instead of waiting.
            (false, place) => {
                if let Some(place) = place {
                    driver.writable.swap_remove(place);
                    // It was added; what could go wrong went wrong then.
                    let _ = driver.poller.remove(descriptor);
                }
                lane.is_blocked = false;
            }
        }
        waits
    }

    fn handle_writable(&self, driver: &mut Driver, link: u32, class: LaneClass) {
        driver.writable.retain(|watched| *watched != (link, class));
        let Some(output) = self.output(link) else {
            return;
        };
        {
            let mut lanes = output.lock();
            let lane = lanes.lane(class);
            lane.sender.acknowledge_wake();
            lane.is_blocked = false;
            let (descriptor, _) = lane.sender.descriptor();
            // It was added by `watch`; what goes wrong here goes wrong for the lane too.
            let _ = driver.poller.remove(descriptor);
        }
        self.handle_room(link);
    }

    /// A lane of `index` takes more again.
    fn handle_room(&self, index: u32) {
        let mut core = self.lock();
        if let Some(link) = &mut core.links[index as usize] {
            link.is_stalled = false;
        }
        core.mark_dirty(index);
        self.wake_waiters(&core);
    }

    // ---- links ------------------------------------------------------------------------------

    /// Takes what the conductor has to say.
    fn handle_link_events(&self, driver: &mut Driver) -> bool {
        let mut busy = false;
        while let Ok(event) = driver.events.try_recv() {
            busy = true;
            match event {
                LinkEvent::Up(link) => self.install(driver, *link),
                LinkEvent::DialFailed { request, error, .. } => {
                    let mut core = self.lock();
                    let index = core.dialed.get(&request).copied();
                    if let Some(index) = index
                        && let Some(link) = &mut core.links[index as usize]
                    {
                        link.last_error = Some(error);
                        link.is_missed = true;
                        // It may have been asked for just when it was not needed any more.
                        link.is_dialing = !link.is_up();
                        core.stop_dialing_if_unused(index);
                    }
                }
                LinkEvent::Challenge { peer, incarnation } => self.challenge(peer, incarnation),
                LinkEvent::PeerReplaced { peer, incarnation } => {
                    for index in self.links_of(peer, incarnation) {
                        self.close_link(driver, index, &InputError::Lane(LaneError::Closed));
                    }
                }
            }
        }
        busy
    }

    /// Does what cannot be done where it was noticed: closes links that failed when
    /// something was sent, asks for links, sends what waits.
    pub(super) fn do_chores(&self, driver: &mut Driver) {
        let broken = {
            let mut core = self.lock();
            if !core.has_chores() && driver.deaf.is_empty() {
                return;
            }
            std::mem::take(&mut core.broken)
        };
        let deaf = std::mem::take(&mut driver.deaf);
        for (index, error) in broken.into_iter().chain(deaf) {
            self.close_link(driver, index, &error);
        }
        self.dial_wanted();
        self.flush_dirty();
    }
}

/// What a token of the poller stands for.
pub(super) enum Token {
    Input(usize, LaneClass),
    Output(u32, LaneClass),
}

const OUTPUT_BIT: u64 = 1 << 40;
const BULK_BIT: u64 = 1 << 41;

impl Token {
    pub(super) fn to_number(&self) -> u64 {
        match *self {
            Self::Input(index, LaneClass::Urgent) => index as u64,
            Self::Input(index, LaneClass::Bulk) => index as u64 | BULK_BIT,
            Self::Output(link, LaneClass::Urgent) => u64::from(link) | OUTPUT_BIT,
            Self::Output(link, LaneClass::Bulk) => u64::from(link) | OUTPUT_BIT | BULK_BIT,
        }
    }

    fn parse(number: u64) -> Self {
        let low = u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        let class = if number & BULK_BIT == 0 {
            LaneClass::Urgent
        } else {
            LaneClass::Bulk
        };
        if number & OUTPUT_BIT == 0 {
            return Self::Input(low as usize, class);
        }
        Self::Output(low, class)
    }
}
