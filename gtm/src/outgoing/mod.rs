//! One flow at its source.
//!
//! [`Outgoing`] holds what has been packed and is not yet delivered, cuts it into frames as
//! credit allows, and brings the flow back when a hop ahead of it was lost. Its methods
//! fall into groups, to be called in any order:
//!
//! - **input from the application**: [`begin_message`](Outgoing::begin_message), then
//!   [`push_frame`](Outgoing::push_frame) for small blocks (encoded at once, copied) and
//!   [`push_block`](Outgoing::push_block) for large ones (a range of memory that only the
//!   caller can reach), and [`abort_message`](Outgoing::abort_message);
//! - **output**: [`poll_transmit`](Outgoing::poll_transmit) until it returns `None`, then
//!   [`poll_control`](Outgoing::poll_control); or both ways in one, for a small message with
//!   nothing before it: [`try_transmit_alone`](Outgoing::try_transmit_alone);
//! - **input from the network**: [`handle_credit`](Outgoing::handle_credit),
//!   [`handle_refusal`](Outgoing::handle_refusal), [`handle_held`](Outgoing::handle_held),
//!   [`handle_link_up`](Outgoing::handle_link_up), [`handle_link_lost`](Outgoing::handle_link_lost);
//! - **time**: [`next_deadline`](Outgoing::next_deadline), [`handle_timeout`](Outgoing::handle_timeout);
//! - **state**: [`is_delivered`](Outgoing::is_delivered), [`retained_bytes`](Outgoing::retained_bytes),
//!   [`take_failure`](Outgoing::take_failure), …
//!
//! Frames are cut when they are sent, not when they are packed: with little credit they are
//! smaller. A frame's position, label and checksum are therefore written then too.
//!
//! Messages are packed one after the other. A process has **one** [`Outgoing`] per flow for
//! as long as it runs: places and labels only ever grow, which is how the other end tells
//! what is new from what was late.

mod alone;
mod bundle;
mod clock;
mod cut;
mod network;
mod opening;
mod queue;
mod speed;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::time::Time;
use crate::wire::{
    Coverage, DESCRIPTOR_BYTES, Flags, FlowKey, HEADER_BYTES, Header, Kind, MAX_PAYLOAD_BYTES,
    Refusal,
};

pub use alone::ALONE_BYTES;
use bundle::Joinable;
pub use cut::FragmentHead;
use queue::{Pending, Sent};
use speed::Speed;

/// Bytes of a block in one fragment at most, so that its descriptor fits in front of them.
pub const MAX_FRAGMENT_BYTES: u32 = 16_777_208;

const _: () = assert!(MAX_FRAGMENT_BYTES as usize + DESCRIPTOR_BYTES == MAX_PAYLOAD_BYTES);

/// The first wait before an opening is repeated; doubles up to [`OPENING_RETRY_MOST`].
pub const OPENING_RETRY_FIRST: Duration = Duration::from_millis(50);
/// The same where the hop that refused it had no link onwards: it is making one, which takes some
/// milliseconds where it can be had, and there may be several such hops, one behind the other.
pub const LINK_RETRY_FIRST: Duration = Duration::from_millis(2);
/// The longest wait before an opening is repeated.
pub const OPENING_RETRY_MOST: Duration = Duration::from_millis(500);
/// The first wait for credit before the destination is asked, or twice as long as such waits take of
/// late, if that is longer: where many flows take turns, each of them waits, and nothing is lost.
/// Doubles up to [`PROBE_MOST`].
pub const PROBE_FIRST: Duration = Duration::from_millis(100);
/// Credit is asked for half as often each time that there was no more, but not more often than this
/// in a row: every four windows then.
const ASKS_IN_VAIN: u32 = 3;
/// The longest wait between two probes.
pub const PROBE_MOST: Duration = Duration::from_secs(2);
/// After this many probes that were answered, though nothing of what is under way arrived,
/// it is taken for lost (a header may have been corrupted on the way) and sent again. Twice
/// as many the next time, as long as nothing arrives.
pub const RESEND_AFTER_PROBES: u32 = 6;
/// A flow that is open fails after so many times [`Settings::give_up_after`] in which nobody has answered its
/// probes: a destination or a gateway is stopped, which no link tells. Once would be too short: where a
/// network is cut, links take a while to notice, and then the flow has its time to be carried again.
pub const SILENT_TIMES: u32 = 2;
/// How long a flow with nothing to send keeps its credit and admission, between two messages.
pub const IDLE_CLOSE: Duration = Duration::from_millis(250);

/// What a flow is and how it behaves; fixed for its life.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The flow.
    pub flow: FlowKey,
    /// The incarnation of the node that this is.
    pub incarnation: u64,
    /// Payload of a fragment at most, in bytes of its block; between 1 and
    /// [`MAX_FRAGMENT_BYTES`].
    pub fragment_bytes: u32,
    /// What checksums cover.
    pub checksum: Coverage,
    /// Whether there are gateways on its way: what follows of fragments is for them.
    pub crosses_gateways: bool,
    /// Whether small messages that wait share frames.
    pub bundles: bool,
    /// Whether a block that is alone on its way begins and ends with small fragments.
    pub ramps: bool,
    /// Whether fragments are the larger, the faster the flow is; else each is as large as it may be.
    pub sized_by_speed: bool,
    /// How long the flow may go without any hop carrying it before it fails, and [`SILENT_TIMES`] that
    /// without an answer to its probes.
    pub give_up_after: Duration,
    /// Where labels and the spread of retries come from.
    pub seed: u64,
}

/// Something to put on the link.
#[derive(Debug)]
pub enum Transmit<D> {
    /// Whole small frames, sealed, one after the other.
    Frames(Bytes),
    /// One frame whose payload lies in the caller's memory.
    Fragment {
        /// Header, and descriptor if the block starts here; to be sealed by the caller.
        head: FragmentHead,
        /// The memory of the block.
        data: D,
        /// Where the payload starts in the block.
        offset: u64,
        /// Bytes of payload taken from the block.
        length: usize,
    },
}

/// Why a flow failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No hop carried the flow for [`Settings::give_up_after`].
    Unreachable {
        /// What the last hop that answered said, if any did.
        last: Option<Refusal>,
    },
    /// Nobody has answered for [`SILENT_TIMES`] as long, though all links held.
    Silent,
    /// The destination was restarted: its present incarnation never knew this flow.
    Restarted,
    /// A hop says that no route leads to the destination, or not from here: the nodes
    /// disagree about the cluster.
    NoRoute,
    /// The destination runs without the flow's channel.
    NoChannel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not admitted; opens at `at` or later if there is something to send.
    Closed {
        at: Time,
    },
    /// The opening is on its way.
    Opening {
        retry_at: Time,
    },
    /// Admitted: credit counts.
    Open,
    Failed(Failure),
}

/// One flow at its source. See the [module](self) for the order of calls.
#[derive(Debug)]
pub struct Outgoing<D> {
    settings: Settings,
    /// Of a fragment at most, on this link.
    fragment_bytes: u32,
    state: State,
    link_is_up: bool,
    label: u32,
    random: u64,
    /// The destination's incarnation; 0 while unknown.
    destination_incarnation: u64,

    /// What has not been sent, in order; `tail` comes after all of it.
    pending: VecDeque<Pending<D>>,
    /// Encoded small frames, without position, label and checksum.
    tail: BytesMut,
    /// The last frame of the tail, if the next small message may join it.
    joinable: Option<Joinable>,
    /// What has been sent and is not delivered, in order.
    sent: VecDeque<Sent<D>>,
    /// Memory for the next small frames that leave alone.
    spare_run: Option<BytesMut>,
    /// Memory for the next tails, while something is under way.
    spare_tails: Vec<BytesMut>,
    /// The opening frame while it may have to be repeated.
    opening: Option<Bytes>,
    /// Whether nobody can have seen any part of what is not delivered, so that a destination
    /// with another incarnation than expected can have it.
    is_retargetable: bool,
    retained_bytes: u64,

    /// Position of the next frame.
    position: u64,
    delivered: u64,
    granted: u64,
    /// A frame or a probe has asked for credit, and the flow has not moved since.
    credit_asked: bool,
    /// Where a frame or a probe asked for credit last.
    asked_at: u64,
    /// How often in a row the answer was that there is no more; [`ASKS_IN_VAIN`] at most.
    asks_in_vain: u32,
    /// What was granted beyond what was delivered, when more was granted last.
    last_window: u64,
    speed: Speed,

    next_message: u32,
    /// Every message before this one is delivered.
    delivered_messages: u32,
    /// Whether the last byte that is delivered lies inside a message.
    is_inside_message: bool,
    acknowledgement_wanted: bool,

    /// When the flow was last found not to be carried though it had something to send.
    stuck_since: Option<Time>,
    /// Since when probes have not been answered, while the flow is open.
    silent_since: Option<Time>,
    last_refusal: Option<Refusal>,
    attempts: u32,
    /// When the last credit came, or the last frame left while there was none outstanding.
    last_progress: Time,
    /// Since when something is waited for: it moved last then, or left with nothing before it.
    waits_since: Time,
    /// How long such a wait takes, at most, of late.
    usual_wait: Duration,
    probes: u32,
    /// How many probes without progress make it send again.
    patience: u32,
    control: Option<Kind>,
    /// How often something came that may let the flow go on.
    changes: u64,
    /// How often it was interrupted.
    interruptions: u64,
    /// How often a gateway said that something of it waits there.
    holdups: u64,
}

impl<D: Clone> Outgoing<D> {
    /// A flow that has sent nothing yet, over a link that is not up yet.
    #[must_use]
    pub fn new(settings: Settings, now: Time) -> Self {
        let fragment_bytes = settings.fragment_bytes.clamp(1, MAX_FRAGMENT_BYTES);
        Self {
            settings: Settings {
                fragment_bytes,
                ..settings
            },
            fragment_bytes,
            state: State::Closed { at: now },
            link_is_up: false,
            label: 0,
            random: settings.seed,
            destination_incarnation: 0,
            pending: VecDeque::new(),
            tail: BytesMut::new(),
            joinable: None,
            sent: VecDeque::new(),
            spare_run: None,
            spare_tails: Vec::new(),
            opening: None,
            is_retargetable: false,
            retained_bytes: 0,
            position: 0,
            delivered: 0,
            granted: 0,
            credit_asked: false,
            asked_at: 0,
            asks_in_vain: 0,
            last_window: 0,
            speed: Speed::default(),
            next_message: 0,
            delivered_messages: 0,
            is_inside_message: false,
            acknowledgement_wanted: false,
            stuck_since: None,
            silent_since: None,
            last_refusal: None,
            attempts: 0,
            last_progress: now,
            waits_since: now,
            usual_wait: Duration::ZERO,
            probes: 0,
            patience: RESEND_AFTER_PROBES,
            control: None,
            changes: 0,
            interruptions: 0,
            holdups: 0,
        }
    }

    // ---- input from the application ------------------------------------------------

    /// Starts the next message and returns its number.
    pub fn begin_message(&mut self) -> u32 {
        let message = self.next_message;
        self.next_message = self.next_message.wrapping_add(1);
        message
    }

    /// Gives the newest message up, which will not be completed. The destination discards
    /// what it has of it; memory that the caller lent for it is forgotten, and not asked for
    /// again.
    pub fn abort_message(&mut self, message: u32) {
        self.forget_blocks_of(message);
        self.push_frame(Flags::ABORT, message, 0, &[]);
    }

    /// Asks for the acknowledgement of everything pushed so far as soon as it is delivered,
    /// because somebody waits for it.
    pub fn request_acknowledgement(&mut self) {
        if !self.nothing_unsent() {
            self.acknowledgement_wanted = true;
        } else if !self.sent.is_empty() && self.state == State::Open {
            self.control = Some(Kind::Probe);
        }
    }

    // ---- output ---------------------------------------------------------------------

    /// A control frame to send to the destination, if one is due.
    pub fn poll_control(&mut self) -> Option<Header> {
        if !self.link_is_up {
            return None;
        }
        let kind = self.control.take()?;
        let mut header = Header::new(kind, self.settings.flow, self.label);
        header.position = self.position;
        Some(header)
    }

    // ---- state ----------------------------------------------------------------------

    /// The flow.
    #[must_use]
    pub const fn flow(&self) -> FlowKey {
        self.settings.flow
    }

    /// Whether the destination has all of `message`.
    #[must_use]
    pub const fn is_delivered(&self, message: u32) -> bool {
        // Numbers wrap; a flow never has half of them in flight.
        self.delivered_messages
            .wrapping_sub(message)
            .wrapping_sub(1)
            < u32::MAX / 2
    }

    /// Whether the flow is admitted: its next deadline comes no sooner than what is sent or arrives
    /// meanwhile allows, but for probes of what is sent after a rest.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether everything that was pushed is delivered.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        !self.has_undelivered()
    }

    /// Whether a link has to carry the flow: something is not delivered, or a message has begun
    /// and not ended. Its destination waits for the rest of that, and must be told if its source
    /// goes; who carries the flow tells it.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.has_undelivered() || self.is_inside_message
    }

    /// Whether nothing waits to be sent for the first time (it may still be undelivered).
    #[must_use]
    pub fn nothing_unsent(&self) -> bool {
        self.pending.is_empty() && self.tail.is_empty()
    }

    /// Bytes of messages that are kept because they are not delivered.
    #[must_use]
    pub const fn retained_bytes(&self) -> u64 {
        self.retained_bytes
    }

    /// What counts against the retention budget: the bytes that are kept, or as many as the
    /// headers of all messages that are not delivered would have, if that is more. Messages that
    /// share frames take little memory, and time all the same: those that were packed last would
    /// wait for so many of them.
    #[must_use]
    pub fn backlog_bytes(&self) -> u64 {
        let messages = self.next_message.wrapping_sub(self.delivered_messages);
        self.retained_bytes
            .max(u64::from(messages) * HEADER_BYTES as u64)
    }

    /// Where the flow stands: positions delivered, sent and granted up to, in charged bytes.
    #[must_use]
    pub const fn positions(&self) -> (u64, u64, u64) {
        (self.delivered, self.position, self.granted)
    }

    /// The label of the newest opening; 0 before the first.
    #[must_use]
    pub const fn label(&self) -> u32 {
        self.label
    }

    /// What the last hop that refused the flow said, while it is not carried.
    #[must_use]
    pub const fn last_refusal(&self) -> Option<Refusal> {
        self.last_refusal
    }

    /// Since when nobody carries what is not delivered, or answers for it.
    #[must_use]
    pub fn stuck_since(&self) -> Option<Time> {
        self.stuck_since.or(self.silent_since)
    }

    /// Why the flow failed, and the numbers of the messages that were not delivered. They
    /// are dropped; what is packed afterwards opens the flow anew. The last of them may not
    /// be complete: nothing more is to be pushed for it.
    pub fn take_failure(&mut self, now: Time) -> Option<(Failure, Range<u32>)> {
        let State::Failed(failure) = self.state else {
            return None;
        };
        let undelivered = self.delivered_messages..self.next_message;
        self.pending.clear();
        self.tail.clear();
        self.sent.clear();
        self.spare_tails.clear();
        self.opening = None;
        self.retained_bytes = 0;
        // The destination sees by the gap that what it has of a message stays alone.
        self.position += 1;
        self.delivered = self.position;
        self.delivered_messages = self.next_message;
        self.is_inside_message = false;
        self.destination_incarnation = 0;
        self.acknowledgement_wanted = false;
        (self.stuck_since, self.silent_since) = (None, None);
        self.last_refusal = None;
        self.attempts = 0;
        self.control = None;
        self.state = State::Closed { at: now };
        Some((failure, undelivered))
    }

    /// A number that grows whenever credit, a refusal or a link may have changed what can be
    /// sent.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// A number that grows whenever the flow is interrupted: what was polled before and has
    /// not been sent is polled again.
    #[must_use]
    pub const fn interruptions(&self) -> u64 {
        self.interruptions
    }

    /// How often a gateway has said, when it was asked, that something of it waits there.
    #[must_use]
    pub const fn holdups(&self) -> u64 {
        self.holdups
    }

    /// Gives everything that is not delivered up: the flow fails, because its owner cannot
    /// keep the memory of what is to be sent.
    pub const fn give_up(&mut self) {
        if !matches!(self.state, State::Failed(_)) {
            self.state = State::Failed(Failure::Unreachable {
                last: self.last_refusal,
            });
        }
    }

    /// Whether the flow has failed and [`take_failure`](Self::take_failure) tells why.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    // ---- inside ---------------------------------------------------------------------

    fn has_undelivered(&self) -> bool {
        !self.sent.is_empty() || !self.nothing_unsent()
    }
}
