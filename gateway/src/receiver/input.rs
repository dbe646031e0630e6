//! One lane as its receiver sees it.

use std::sync::Arc;

use bytes::BytesMut;
use madgate_gtm::Time;
use madgate_gtm::transit::Lane;
use madgate_gtm::wire::{AHEAD_BYTES, URGENT_FRAME_BYTES};
use madgate_tm::{AdaptiveSpin, Gather, LaneClass, LaneReceiver, Shape};

use super::straight::Straight;
use super::stream::Coming;
use crate::link::Link;
use crate::scan::Rules;

/// One lane. What is kept between two turns is the part of a frame that has arrived, and
/// nothing while there is none: a thousand idle links cost next to nothing.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) link: Arc<Link>,
    pub(super) rules: Rules,
    pub(super) receiver: Box<dyn LaneReceiver>,
    pub(super) is_static: bool,
    /// Whether it is looked at in each pass.
    pub(super) is_hot: bool,
    /// When something came last,
    pub(super) active_at: Time,
    /// and for how long it is worth to look for more.
    pub(super) spin: AdaptiveSpin,
    /// Bulk lane of slots: the input of its link's small frames, where it costs next to nothing to see
    /// that there are none. They go on first, as what they lead should find its receiver prepared.
    pub(super) urgent: Option<usize>,
    /// Bulk lane of slots: slots that it may still take in a turn in which small frames have come
    /// between; none in a turn that is over.
    pub(super) left_in_turn: usize,

    /// The beginning of a frame, with the batch that it is in.
    pub(super) batch: Option<BytesMut>,
    /// Or the beginning of a frame in memory of its own,
    pub(super) small: Vec<u8>,
    /// or in memory for all of that frame, as others needed its batch.
    pub(super) apart: Option<BytesMut>,
    /// Bytes that the frame whose beginning is here is long, if that is known.
    pub(super) frame_bytes: Option<usize>,
    /// Or a frame that is received straight into where it leaves from.
    pub(super) straight: Option<Straight>,
    /// Whether its bytes may go through pipes: the configuration says so, and the lane can do it.
    pub(super) splices: bool,
    /// Until when they do not, as a frame did not fit.
    pub(super) spilled_until: Time,
    /// Whether frames went straight lately: the next one's header is then read by itself.
    pub(super) prefers_straight: bool,
    /// Since when the frame whose header is here waits for a slot.
    pub(super) refused_at: Option<Time>,
    /// The block that is coming, and how much of it is waited for.
    pub(super) coming: Option<Coming>,
    pub(super) gather: Gather,

    /// Static: what each slot that went on by reference refers to until it is back, and since when
    /// those that are not back keep the lane short of slots.
    pub(super) held: Arc<()>,
    pub(super) slots: usize,
    pub(super) short_since: Option<Time>,
    /// Whether the receiver keeps its deadlines.
    pub(super) is_timed: bool,
}

impl Input {
    pub(super) fn new(
        link: Arc<Link>,
        class: LaneClass,
        receiver: Box<dyn LaneReceiver>,
        batch_bytes: usize,
        splices: bool,
        spin: AdaptiveSpin,
        now: Time,
    ) -> Self {
        let (lane, largest_frame) = match class {
            LaneClass::Urgent => (Lane::Urgent, URGENT_FRAME_BYTES),
            LaneClass::Bulk => (Lane::Bulk, batch_bytes),
        };
        let (is_static, slots) = match receiver.shape() {
            Shape::Static { slots, .. } => (true, slots),
            Shape::Dynamic { .. } => (false, 0),
        };
        Self {
            link,
            rules: Rules {
                lane,
                largest_frame,
            },
            splices: splices && receiver.fills_pipes(),
            spilled_until: Time(0),
            receiver,
            is_static,
            is_hot: false,
            active_at: now,
            spin,
            urgent: None,
            left_in_turn: 0,
            batch: None,
            small: Vec::new(),
            apart: None,
            frame_bytes: None,
            straight: None,
            prefers_straight: false,
            refused_at: None,
            coming: None,
            gather: Gather::new(),
            held: Arc::new(()),
            slots,
            short_since: None,
            is_timed: false,
        }
    }

    /// Slots that went on by reference and are not back.
    pub(super) fn held_slots(&self) -> usize {
        Arc::strong_count(&self.held) - 1
    }

    /// Whether the next bytes are read straight into a slot, or are the header that tells
    /// whether they can be.
    pub(super) fn goes_straight(&self) -> bool {
        self.straight.is_some()
            || (self.prefers_straight
                && self.batch.is_none()
                && self.frame_bytes.is_none()
                && self.small.len() <= AHEAD_BYTES)
    }
}
