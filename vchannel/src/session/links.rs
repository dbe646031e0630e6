//! The links of an endpoint, as the session keeps them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use madgate_bmm::{Buffer, Flushed, Outbox, OutboxError, Policy};
use madgate_gtm::outgoing::ALONE_BYTES;
use madgate_gtm::wire::{HEADER_BYTES, first_frame_bytes};
use madgate_gtm::{Header, Time};
use madgate_tm::{LaneClass, LaneSender, Shape};
use parking_lot::{Mutex, MutexGuard};

use crate::cluster::FRAME_OVERHEAD_BYTES;
use crate::conductor::{LinkKind, LinkRequest};

/// Control frames that wait for a link at most; sources ask again for what is dropped.
pub(crate) const CONTROL_BYTES_MOST: usize = 1024 * HEADER_BYTES;

/// Bytes that are taken from flows for a lane before it has sent them.
pub(crate) const OUTBOX_BYTES: usize = 256 << 10;

/// The same for a lane of large frames, as long as it takes whatever it is offered: what one call or
/// one wake-up costs is then shared by more. What comes later waits behind it, which where a lane is
/// slow must be little.
pub(crate) const OUTBOX_BYTES_MOST: usize = 1 << 20;

/// A link of this endpoint: one that it dialled, to send, or one that it accepted. Both carry
/// messages both ways.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) request: LinkRequest,
    /// The connection's number, once it is up.
    pub(crate) id: u64,
    pub(crate) peer_incarnation: u64,
    pub(crate) is_dialed: bool,
    /// Dialled: whether the conductor is at it.
    pub(crate) is_dialing: bool,
    /// Dialled: whether others have sent by it, who may not be able to dial this node.
    pub(crate) brings: bool,
    /// Dialled, and lost: until when it is dialled for what they send.
    pub(crate) awaited_until: Option<Time>,
    pub(crate) output: Option<Arc<LinkOutput>>,
    /// Flows with something to send, in the order of their turns.
    pub(crate) waiting: VecDeque<u32>,
    /// All flows that start here and go over it.
    pub(crate) flows: Vec<u32>,
    /// Flows that end here and may have credit to give.
    pub(crate) credits: VecDeque<u32>,
    /// Control frames to send.
    pub(crate) control: Vec<u8>,
    /// Whether it stands in the list of links to flush.
    pub(crate) is_dirty: bool,
    /// Dialled: why the last attempt failed.
    pub(crate) last_error: Option<String>,
    /// Whether the log says that it is lost, or cannot be had.
    pub(crate) is_missed: bool,
    /// Whether its peer was asked whether it is still there, and has not answered.
    pub(crate) is_challenged: bool,
    /// Gathering: when it was last flushed, and whether the progress thread flushes now.
    pub(crate) last_flush: Time,
    pub(crate) is_gathering: bool,
    /// Gathering: bytes since the last flush.
    pub(crate) gathered: usize,
    /// When a packing thread last sent by itself what had gathered.
    pub(crate) streamed_at: Option<Time>,
    /// Gathering: how many waits had begun when the last short message was packed.
    pub(crate) waits_before: u64,
    /// Whether a lane took less than it was offered, and has not said that it takes more.
    pub(crate) is_stalled: bool,
}

impl Link {
    pub(crate) const fn new(request: LinkRequest, is_dialed: bool) -> Self {
        Self {
            request,
            id: 0,
            peer_incarnation: 0,
            is_dialed,
            is_dialing: false,
            brings: false,
            awaited_until: None,
            output: None,
            waiting: VecDeque::new(),
            flows: Vec::new(),
            credits: VecDeque::new(),
            control: Vec::new(),
            is_dirty: false,
            last_error: None,
            is_missed: false,
            is_challenged: false,
            last_flush: Time(0),
            is_gathering: false,
            gathered: 0,
            streamed_at: None,
            waits_before: u64::MAX,
            is_stalled: false,
        }
    }

    /// What flows ask for that may leave by it.
    pub(crate) const fn serves(&self) -> LinkRequest {
        self.request.served_if(self.is_dialed)
    }

    /// Whether its frames cross no gateway: there is one source at its other end.
    pub(crate) fn is_regular(&self) -> bool {
        self.request.kind == LinkKind::Regular
    }

    /// Whether there is a connection.
    pub(crate) const fn is_up(&self) -> bool {
        self.output.is_some()
    }

    /// Queues a control frame for the peer.
    pub(crate) fn push_control(&mut self, header: &Header) {
        if self.control.len() < CONTROL_BYTES_MOST {
            self.control.extend_from_slice(&header.to_control_frame());
        }
    }
}

/// The sending side of a link: whoever has something to send locks it, sends for everybody,
/// and unlocks it.
#[derive(Debug)]
pub(crate) struct LinkOutput {
    lanes: Mutex<Lanes>,
    /// Whether small frames are stored in memory, with no system call but to wake who sleeps.
    only_stores: bool,
    /// The largest fragment that it carries: slots of the peer's may be smaller than the cluster file of
    /// this node says.
    largest_fragment: u32,
    /// Whether somebody found the lanes taken: who held them looks again whether there is
    /// something to send. Written by threads that hold the core's lock, and by that one.
    missed: AtomicBool,
}

/// Both lanes' senders and what waits for them.
#[derive(Debug)]
pub(crate) struct Lanes {
    pub(crate) urgent: LaneOutput,
    pub(crate) bulk: LaneOutput,
}

/// One lane's sender and what waits for it.
#[derive(Debug)]
pub(crate) struct LaneOutput {
    pub(crate) sender: Box<dyn LaneSender>,
    pub(crate) outbox: Outbox<()>,
    /// Where a small frame is made that nothing waits before.
    pub(crate) frame: [u8; ALONE_BYTES],
    /// Whether it took less than it was offered: wait until it takes more. Who marks it so
    /// notes the link as blocked too, before letting go of the lane ([`Core::note_blocked`]);
    /// who waits for it clears the mark ([`Inner::watch`]).
    ///
    /// [`Core::note_blocked`]: super::core::Core::note_blocked
    /// [`Inner::watch`]: super::Inner::watch
    pub(crate) is_blocked: bool,
    /// Bytes that may wait in its outbox now, and what that may become.
    room: usize,
    room_most: usize,
}

impl LinkOutput {
    pub(crate) fn new(
        urgent: Box<dyn LaneSender>,
        bulk: Box<dyn LaneSender>,
        policy: Policy,
    ) -> Self {
        let largest_fragment = match bulk.shape() {
            Shape::Static { slot_bytes, .. } => {
                u32::try_from(slot_bytes.saturating_sub(FRAME_OVERHEAD_BYTES)).unwrap_or(u32::MAX)
            }
            Shape::Dynamic { .. } => u32::MAX,
        };
        Self {
            only_stores: urgent.only_stores(),
            largest_fragment,
            lanes: Mutex::new(Lanes {
                urgent: LaneOutput::new(urgent, policy, OUTBOX_BYTES),
                bulk: LaneOutput::new(bulk, policy, OUTBOX_BYTES_MOST),
            }),
            missed: AtomicBool::new(false),
        }
    }

    /// The largest fragment that it carries.
    pub(crate) const fn largest_fragment(&self) -> u32 {
        self.largest_fragment
    }

    /// Whether to send a small frame is to store it in memory.
    pub(crate) const fn only_stores(&self) -> bool {
        self.only_stores
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock()
    }

    /// The lanes, to send what waits, unless another thread has them. It is told, and looks
    /// again when it lets go of them ([`was_missed`](Self::was_missed)).
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Lanes>> {
        self.try_lock_quietly().or_else(|| {
            self.missed.store(true, Ordering::Relaxed);
            // SYNC POINT B: pairs with the fence in `was_missed`. Either that sees the mark, or
            // the lanes are seen to be free here.
            fence(Ordering::SeqCst);
            self.try_lock_quietly()
        })
    }

    /// The same, if a small frame that nothing waits before can go at once.
    pub(crate) fn try_lock_clear(&self) -> Option<MutexGuard<'_, Lanes>> {
        let is_clear = |lane: &LaneOutput| !lane.is_blocked && lane.outbox.is_empty();
        self.try_lock().filter(|lanes| is_clear(&lanes.urgent))
    }

    /// Whether somebody found the lanes taken that the caller has just let go of, and has left
    /// sending to it.
    pub(crate) fn was_missed(&self) -> bool {
        // SYNC POINT B: pairs with the fence in `try_lock`.
        fence(Ordering::SeqCst);
        self.missed.load(Ordering::Relaxed) && self.missed.swap(false, Ordering::Relaxed)
    }

    fn try_lock_quietly(&self) -> Option<MutexGuard<'_, Lanes>> {
        self.lanes.try_lock()
    }
}

impl Lanes {
    pub(crate) fn lane(&mut self, class: LaneClass) -> &mut LaneOutput {
        match class {
            LaneClass::Urgent => &mut self.urgent,
            LaneClass::Bulk => &mut self.bulk,
        }
    }
}

impl LaneOutput {
    fn new(sender: Box<dyn LaneSender>, policy: Policy, room_most: usize) -> Self {
        let outbox = Outbox::new(sender.shape(), policy, first_frame_bytes);
        Self {
            sender,
            outbox,
            frame: [0; ALONE_BYTES],
            is_blocked: false,
            room: OUTBOX_BYTES,
            room_most,
        }
    }

    /// Queues whole frames.
    pub(crate) fn push(&mut self, buffer: Buffer) {
        self.outbox.push(buffer, ());
    }

    /// Sends what the lane takes now.
    pub(crate) fn flush(&mut self) -> Result<Flushed, OutboxError> {
        if self.outbox.is_empty() {
            // A lane may be full of what was sent past the queue: it says when it takes more.
            return Ok(Flushed::default());
        }
        let flushed = self.outbox.flush(&mut *self.sender, |(), _| {})?;
        self.is_blocked = flushed.blocked;
        if flushed.blocked {
            self.room = (self.room / 2).max(OUTBOX_BYTES);
        } else if flushed.bytes >= self.room {
            self.room = (self.room * 2).min(self.room_most);
        }
        Ok(flushed)
    }

    /// Whether small frames may go in front of a large one: on static lanes they would take a slot
    /// of their own.
    pub(crate) fn takes_leads(&self) -> bool {
        matches!(self.sender.shape(), Shape::Dynamic { .. })
    }

    /// Whether it would take more now.
    pub(crate) fn has_room(&self) -> bool {
        !self.is_blocked && self.outbox.queued_bytes() < self.room
    }
}
