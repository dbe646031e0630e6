//! One link of the engine, as its threads share it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use madgate_bmm::{Buffer, Outbox, Policy};
use madgate_gtm::transit::{Departure, LinkId};
use madgate_gtm::wire::{HEADER_BYTES, first_frame_bytes};
use madgate_gtm::{Header, Kind, Time};
use madgate_tm::{LaneClass, LaneSender, Shape};
use madgate_vchannel::conductor::LinkRequest;

use crate::instruments::{Arrival, Stay};

/// Pings and pongs that wait for a link at most.
const ECHOES_MOST: usize = 16;

/// How long the frames of a link that kept a receiver's memory for too long are copied at
/// once: much longer than the receiver has waited, so that others wait little in all.
const SLOW_FOR: Duration = Duration::from_millis(10);

/// One link. Its receiving halves belong to the receiver of its network; the sending halves
/// to whoever has something to send and locks them.
#[derive(Debug)]
pub(crate) struct Link {
    /// Its number in the flow table.
    pub(crate) transit: LinkId,
    /// Its number at the conductor.
    pub(crate) id: u64,
    /// What it is for, and who is at the other end.
    pub(crate) request: LinkRequest,
    /// The place of its network among those of the engine.
    pub(crate) network: usize,
    pub(crate) peer_incarnation: u64,
    /// Whether this gateway dialled it, or accepted it. Data goes both ways in any case.
    pub(crate) is_dialed: bool,
    /// Slots of the bulk lane that frames are being received into.
    pub(crate) lent: Arc<AtomicUsize>,
    bulk_shape: Shape,
    /// Whether the bulk lane takes pipes.
    pub(crate) takes_pipes: bool,
    urgent_shape: Shape,
    output: Mutex<Output>,
    /// Somebody has found something to send and the output locked: its holder looks again.
    wanted: AtomicBool,
    /// Whether it waits in the mailbox of its network's sender.
    handed_over: AtomicBool,
    closed: AtomicBool,
    /// Until when its frames are copied at once, because it kept batches for too long.
    slow_until: AtomicU64,
    echoes: Mutex<Vec<u8>>,
    has_echoes: AtomicBool,
}

impl Link {
    #[allow(clippy::too_many_arguments, reason = "everything that a link is")]
    pub(crate) fn new(
        transit: LinkId,
        id: u64,
        request: LinkRequest,
        network: usize,
        peer_incarnation: u64,
        is_dialed: bool,
        gathers: bool,
        urgent: Box<dyn LaneSender>,
        bulk: Box<dyn LaneSender>,
    ) -> Self {
        Self {
            transit,
            id,
            request,
            network,
            peer_incarnation,
            is_dialed,
            lent: Arc::default(),
            bulk_shape: bulk.shape(),
            takes_pipes: bulk.takes_pipes(),
            urgent_shape: urgent.shape(),
            output: Mutex::new(Output {
                urgent: LaneOutput::new(urgent, LaneClass::Urgent, gathers),
                bulk: LaneOutput::new(bulk, LaneClass::Bulk, gathers),
                held_until: None,
                timed_for: None,
                departed: Vec::new(),
                departed_at: Time(0),
                is_over: false,
                control: Vec::new(),
            }),
            wanted: AtomicBool::new(false),
            handed_over: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            slow_until: AtomicU64::new(0),
            echoes: Mutex::default(),
            has_echoes: AtomicBool::new(false),
        }
    }

    /// What flows ask for that may leave by it.
    pub(crate) const fn serves(&self) -> LinkRequest {
        self.request.served_if(self.is_dialed)
    }

    /// The slots that the bulk lane lends, if it does.
    pub(crate) const fn bulk_slots(&self) -> Option<(usize, usize)> {
        match self.bulk_shape {
            Shape::Static { slot_bytes, slots } => Some((slot_bytes, slots)),
            Shape::Dynamic { .. } => None,
        }
    }

    /// The largest frame that a lane carries; `None` where any is.
    pub(crate) const fn largest_frame(&self, class: LaneClass) -> Option<usize> {
        let shape = match class {
            LaneClass::Urgent => self.urgent_shape,
            LaneClass::Bulk => self.bulk_shape,
        };
        match shape {
            Shape::Static { slot_bytes, .. } => Some(slot_bytes),
            Shape::Dynamic { .. } => None,
        }
    }

    /// Where and when frames came that have come on it now.
    pub(crate) const fn arrival(&self, at: Time) -> Arrival {
        Arrival {
            network: self.network,
            at,
        }
    }

    // ---- the output -----------------------------------------------------------------

    /// There is something to send: the caller, or whoever holds the output, will look.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
        // SYNC POINT output: before a failed `try_output`, against `is_wanted` after unlocking.
        fence(Ordering::SeqCst);
    }

    /// To be called with the output locked, before looking for what there is to send.
    pub(crate) fn will_look(&self) {
        self.wanted.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether somebody wanted to send while the output was locked. To be called after
    /// unlocking it.
    pub(crate) fn is_wanted(&self) -> bool {
        // SYNC POINT output: after unlocking, against the failed `try_output` after `want`.
        fence(Ordering::SeqCst);
        self.wanted.load(Ordering::Relaxed)
    }

    /// The output, if nobody else has it. Whoever unlocks it looks whether it
    /// [is wanted](Self::is_wanted); all but those who send take it as
    /// [`Held`](crate::held::Held), which does.
    pub(crate) fn try_output(&self) -> Option<MutexGuard<'_, Output>> {
        match self.output.try_lock() {
            Ok(output) => Some(output),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The same, as soon as nobody else has it.
    pub(crate) fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- what it is found to be -------------------------------------------------------

    /// Marks it closed; `false` if it was.
    pub(crate) fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Marks it handed over to its network's sender; `false` if it was.
    pub(crate) fn hand_over(&self) -> bool {
        !self.handed_over.swap(true, Ordering::AcqRel)
    }

    /// The sender has taken it out of its mailbox.
    pub(crate) fn taken_over(&self) {
        self.handed_over.store(false, Ordering::Release);
    }

    /// Whether its frames are copied at once.
    pub(crate) fn is_slow(&self, now: Time) -> bool {
        now.0 < self.slow_until.load(Ordering::Relaxed)
    }

    /// It has kept a receiver's memory for too long: its frames are copied at once for a
    /// while, and then it has another chance.
    pub(crate) fn slow_down(&self, now: Time) {
        self.slow_until.store((now + SLOW_FOR).0, Ordering::Relaxed);
    }

    // ---- echoes -----------------------------------------------------------------------

    /// Queues a ping or a pong; `false` when too many wait.
    pub(crate) fn push_echo(&self, kind: Kind, token: u64) -> bool {
        let mut echoes = self.echoes.lock().unwrap_or_else(PoisonError::into_inner);
        if echoes.len() >= ECHOES_MOST * HEADER_BYTES {
            return false;
        }
        echoes.extend_from_slice(&Header::echo(kind, token).to_control_frame());
        self.has_echoes.store(true, Ordering::Release);
        true
    }

    fn take_echoes(&self, into: &mut Vec<u8>) {
        if self.has_echoes.load(Ordering::Acquire) {
            let mut echoes = self.echoes.lock().unwrap_or_else(PoisonError::into_inner);
            self.has_echoes.store(false, Ordering::Relaxed);
            into.append(&mut echoes);
        }
    }

    /// Moves echoes and what `poll_control` gives into the urgent outbox.
    pub(crate) fn push_control(&self, output: &mut Output, poll: impl FnOnce(&mut Vec<u8>)) {
        let control = &mut output.control;
        self.take_echoes(control);
        poll(control);
        if !control.is_empty() {
            output.urgent.outbox.push(Buffer::copied(control), None);
            control.clear();
        }
    }
}

/// Frames that leave, or have left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Departed {
    /// What they are in the flow table.
    pub(crate) departure: Departure,
    /// Since when they are here, and what became of them.
    pub(crate) stay: Stay,
}

/// The sending halves of a link, and what waits for them.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) urgent: LaneOutput,
    pub(crate) bulk: LaneOutput,
    /// When more may leave, if something waits for a rate.
    pub(crate) held_until: Option<Time>,
    /// When the sender's thread looks again.
    pub(crate) timed_for: Option<Time>,
    /// What has left and the flow table does not know of yet.
    pub(crate) departed: Vec<Departed>,
    /// When it did.
    pub(crate) departed_at: Time,
    /// Whether the peer has left: nothing more is sent, and what it said last is still to be received.
    pub(crate) is_over: bool,
    control: Vec<u8>,
}

impl Output {
    pub(crate) const fn lane(&mut self, class: LaneClass) -> &mut LaneOutput {
        match class {
            LaneClass::Urgent => &mut self.urgent,
            LaneClass::Bulk => &mut self.bulk,
        }
    }

    pub(crate) fn lanes(&mut self) -> [&mut LaneOutput; 2] {
        [&mut self.urgent, &mut self.bulk]
    }

    /// Whether the sender's thread has to be told when to look again: it does not, or too late.
    pub(crate) fn needs_time(&self) -> bool {
        self.held_until
            .is_some_and(|until| self.timed_for.is_none_or(|timed| until < timed))
    }

    /// Whether there is a lane that something can be offered to.
    pub(crate) fn can_send(&self) -> bool {
        self.urgent.can_send() || self.bulk.can_send()
    }
}

/// One lane's sending half.
#[derive(Debug)]
pub(crate) struct LaneOutput {
    /// `None` when the link is closed and its sender's thread has let go of it.
    pub(crate) sender: Option<Box<dyn LaneSender>>,
    /// Frames with what they are in the flow table; control frames with nothing.
    pub(crate) outbox: Outbox<Option<Departed>>,
    /// Whether the lane took less than it was offered: the sender's thread waits for it.
    pub(crate) is_blocked: bool,
    /// Whether the sender's thread has its descriptor in its poller.
    pub(crate) is_watched: bool,
}

impl LaneOutput {
    fn new(sender: Box<dyn LaneSender>, class: LaneClass, gathers: bool) -> Self {
        let shape = sender.shape();
        let policy = match (shape, class) {
            // A large frame has its slot to itself: who receives it can leave it there.
            (Shape::Static { .. }, LaneClass::Bulk) => Policy::Eager,
            _ if gathers => Policy::Gathering,
            _ => Policy::Eager,
        };
        let outbox = Outbox::new(shape, policy, first_frame_bytes);
        Self {
            sender: Some(sender),
            outbox,
            is_blocked: false,
            is_watched: false,
        }
    }

    /// Whether something waits and the lane is not known to take no more.
    pub(crate) fn can_send(&self) -> bool {
        self.sender.is_some() && !self.is_blocked && !self.outbox.is_empty()
    }

    /// Whether the lane lends slots.
    pub(crate) fn is_static(&self) -> bool {
        let shape = self.sender.as_ref().map(|sender| sender.shape());
        matches!(shape, Some(Shape::Static { .. }))
    }

    /// Lets go of the lane, and of everything that waited for it.
    pub(crate) fn let_go(&mut self) -> Option<Box<dyn LaneSender>> {
        self.outbox = Outbox::new(
            Shape::Dynamic { gather_limit: 1 },
            Policy::Eager,
            first_frame_bytes,
        );
        self.is_blocked = false;
        self.is_watched = false;
        self.sender.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{SlotSender, Wanting};

    #[test]
    fn frames_that_wait_leave_together_unless_that_is_switched_off() {
        for (gathers, sends) in [(true, 1), (false, 3)] {
            let lane = Box::new(SlotSender::new(Wanting::default()));
            let mut output = LaneOutput::new(lane, LaneClass::Urgent, gathers);
            for token in 0..3 {
                let frame = Header::echo(Kind::Ping, token).to_control_frame();
                output.outbox.push(Buffer::copied(&frame), None);
            }
            let sender = output.sender.as_deref_mut().unwrap();
            let flushed = output.outbox.flush(sender, |_, _| {}).unwrap();
            assert!(!flushed.blocked);
            assert_eq!(output.outbox.counters().sends, sends);
        }
    }
}
