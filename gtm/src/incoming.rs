//! One flow at its destination: order, duplicates and credit.
//!
//! The caller keeps the bytes; [`Incoming`] says what to do with each frame
//! ([`handle_opening`](Incoming::handle_opening), [`placement`](Incoming::placement)), is
//! told what was taken in ([`accept`](Incoming::accept)) and what the application has
//! consumed ([`consume`](Incoming::consume)), and makes the credit that goes back
//! ([`poll_credit`](Incoming::poll_credit)). A control frame from the source counts only if
//! [`is_current`](Incoming::is_current) says so. Checksums are the caller's to look at, of
//! an opening too, before anything else is asked about the frame.
//!
//! An [`Incoming`] lives as long as its process, or at least as long as its source may still
//! send what is late: it knows what is new from what was received before.

#[cfg(test)]
mod tests;
mod wide;

pub use wide::WideWindow;

use std::time::Duration;

use self::wide::Wide;

use crate::budget::{Budget, GUARANTEED_BYTES};
use crate::reassembly::Violation;
use crate::time::{FORGET_AFTER, LOST_AFTER, Time};
use crate::wire::{
    CHARGE_PER_FRAME, Flags, FlowKey, Header, HeaderRef, Opening, Refusal, is_older_label,
};

/// Nobody lacks credit who has so much: with 16 KiB of it a source sends a shorter fragment than it would.
const ENOUGH_BYTES: u64 = 64 << 10;

/// Where no source comes to.
const NOT_ASKED: u64 = u64::MAX;

/// How long an acknowledgement may wait for company.
pub const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(1);
/// The window that a flow starts with, in charged bytes; it doubles while the flow is
/// limited by it and the application keeps up: when the source asks for more, and little waits to be
/// consumed then, or all of it is consumed before anything comes that was granted since.
pub const FIRST_WINDOW_BYTES: u64 = 128 << 10;

/// What to do with an opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenVerdict {
    /// The flow is admitted under a new label: drop every frame that was held, and go on
    /// with the payload of this one by its [`placement`](Incoming::placement).
    Admitted {
        /// The message that has begun will not be completed: its source is another
        /// incarnation now, or gave up what was between.
        abandon_message: bool,
        /// The source is not the incarnation that it was.
        source_restarted: bool,
    },
    /// The opening was seen before; its payload has its placement as any other.
    Repeated,
    /// It comes from an incarnation that is known to be gone: ignore it.
    Stale,
    /// Send this back.
    Refused(Refusal),
}

/// Where a frame belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// It is the next one: take it in, then [`accept`](Incoming::accept).
    InOrder,
    /// Frames before it are still on their way (over the other lane): hold it.
    Ahead,
    /// It was received before: drop it.
    Duplicate,
    /// It belongs to another opening of the flow: drop it.
    Stale,
    /// The flow is not open: drop it and refuse with [`Refusal::Unknown`].
    Unknown,
}

/// One flow at its destination.
#[derive(Debug)]
pub struct Incoming {
    flow: FlowKey,
    incarnation: u64,
    source_incarnation: u64,
    /// The newest opening; in force while the flow is open.
    label: u32,
    is_open: bool,
    /// Whether a share of the budget is set aside for it.
    admitted: bool,
    /// Everything before this position was accepted.
    delivered: u64,
    /// Accepted and not consumed, in charged bytes.
    unconsumed: u64,
    granted: u64,
    /// Where the payload of the opening in force ends. Credit waits until that is accepted,
    /// or the source would send it twice.
    opened_up_to: u64,
    window: u64,
    window_most: u64,
    /// The same while fragments are large.
    wide: Wide,
    /// The source asked for credit and could use more than it got.
    starved: bool,
    /// What was granted when the source asked for credit, and the application had yet to consume much
    /// of the window.
    asked_at: Option<u64>,
    credit_wanted: bool,
    /// A probe came before what its source had sent up to here, and so is answered once more when that is
    /// here; [`NOT_ASKED`] if there is none.
    asked_up_to: u64,
    acknowledge_at: Option<Time>,
    suspended_since: Option<Time>,
    /// Whether it is closed, and its source is expected to open it again.
    is_awaited: bool,
    /// Up to where a message was accepted that was given up here.
    given_up: Option<u64>,
    last_heard: Time,
}

impl Incoming {
    /// A flow that nobody has opened yet, whose window never exceeds `window_most` bytes.
    #[must_use]
    pub fn new(flow: FlowKey, incarnation: u64, window_most: u64, now: Time) -> Self {
        Self {
            flow,
            incarnation,
            source_incarnation: 0,
            label: 0,
            is_open: false,
            admitted: false,
            delivered: 0,
            unconsumed: 0,
            granted: 0,
            opened_up_to: 0,
            window: FIRST_WINDOW_BYTES.min(window_most),
            window_most,
            wide: Wide::new(WideWindow::NONE, window_most),
            starved: false,
            asked_at: None,
            credit_wanted: false,
            asked_up_to: NOT_ASKED,
            acknowledge_at: None,
            suspended_since: None,
            is_awaited: false,
            given_up: None,
            last_heard: now,
        }
    }

    /// The same, whose window may be wider while one of the last fragments, a window of them, is large.
    #[must_use]
    pub const fn with_wide_window(mut self, wide: WideWindow) -> Self {
        self.wide = Wide::new(wide, self.window_most);
        self
    }

    /// The flow is opened, for the first time or again.
    pub fn handle_opening(
        &mut self,
        header: &Header,
        opening: &Opening,
        budget: &mut Budget,
        now: Time,
    ) -> OpenVerdict {
        if ![0, self.incarnation].contains(&opening.destination_incarnation) {
            return OpenVerdict::Refused(Refusal::OtherIncarnation);
        }
        let is_new = opening.source_incarnation != self.source_incarnation;
        if opening.source_incarnation < self.source_incarnation
            || (!is_new && is_older_label(header.label, self.label))
        {
            return OpenVerdict::Stale;
        }
        if !is_new && self.given_up.is_some_and(|at| header.position <= at) {
            return OpenVerdict::Refused(Refusal::GivenUp);
        }
        self.last_heard = now;
        if !is_new && header.label == self.label && self.is_open {
            self.credit_wanted = true;
            return OpenVerdict::Repeated;
        }
        let source_restarted = is_new && self.source_incarnation != 0;
        let is_duplicate = !is_new && header.position < self.delivered;
        let room = self.wide.most.max(GUARANTEED_BYTES);
        if !is_duplicate
            && self.unconsumed + header.charge() > room.min(budget.allowance(self.outstanding()))
        {
            return OpenVerdict::Refused(Refusal::NoRoom);
        }
        if !self.admitted {
            if !budget.try_admit() {
                return OpenVerdict::Refused(Refusal::NoRoom);
            }
            self.admitted = true;
        }
        let before = self.outstanding();
        let skipped = is_new || header.position > self.delivered;
        if skipped {
            self.delivered = header.position;
        }
        self.source_incarnation = opening.source_incarnation;
        self.label = header.label;
        self.is_open = true;
        self.starved = false;
        self.asked_at = None;
        self.suspended_since = None;
        self.is_awaited = false;
        self.given_up = None;
        // What was granted before is void; the opening's own payload counts as granted.
        self.granted = self.delivered.max(header.end_position());
        self.opened_up_to = header.end_position();
        self.window = FIRST_WINDOW_BYTES.min(self.window_most);
        self.wide.up_to = 0;
        self.credit_wanted = true;
        self.asked_up_to = NOT_ASKED;
        self.acknowledge_at = None;
        budget.change(before, self.outstanding());
        OpenVerdict::Admitted {
            abandon_message: skipped,
            source_restarted,
        }
    }

    /// Where a data frame belongs.
    ///
    /// # Errors
    /// When it is beyond what was granted, or overlaps what was accepted.
    pub fn placement(&self, header: &Header) -> Result<Placement, Violation> {
        if !self.is_open {
            return Ok(Placement::Unknown);
        }
        if header.label != self.label {
            return Ok(Placement::Stale);
        }
        let end = header.end_position();
        if end > self.granted {
            return Err(Violation::BeyondCredit {
                end,
                granted: self.granted,
            });
        }
        if header.position == self.delivered {
            return Ok(Placement::InOrder);
        }
        if header.position > self.delivered {
            return Ok(Placement::Ahead);
        }
        if end > self.delivered {
            return Err(Violation::Overlap {
                position: header.position,
                delivered: self.delivered,
            });
        }
        Ok(Placement::Duplicate)
    }

    /// The frame that was in order has been taken in, intact.
    pub fn accept(&mut self, header: &Header, now: Time) {
        let charge = header.charge();
        debug_assert_eq!(header.position, self.delivered);
        self.delivered += charge;
        self.unconsumed += charge;
        self.last_heard = now;
        if u64::from(header.length) >= self.wide.from_bytes {
            self.wide.up_to = self.delivered + self.window_most;
        }
        if self.delivered >= self.asked_up_to {
            self.asked_up_to = NOT_ASKED;
            self.credit_wanted = true;
        }
        if header.flags.has(Flags::WANT) {
            self.want_credit();
        } else if self.acknowledge_at.is_none() {
            self.acknowledge_at = Some(now + ACKNOWLEDGE_WITHIN);
        }
    }

    /// Takes in a frame that is whole and intact, opens nothing and asks for nothing, in one step, if
    /// it is the next one, and no probe asks for what ends with it. Else returns `false`, with nothing changed: see
    /// [`placement`](Self::placement) and [`accept`](Self::accept).
    #[inline]
    pub fn try_accept_next(&mut self, header: HeaderRef<'_>, now: Time) -> bool {
        let charge = header.payload_bytes() as u64 + CHARGE_PER_FRAME;
        let is_next = self.is_open
            && header.label() == self.label
            && header.position() == self.delivered
            && self.granted - self.delivered >= charge
            && self.asked_up_to - self.delivered > charge;
        if !is_next {
            return false;
        }
        self.delivered += charge;
        self.unconsumed += charge;
        self.last_heard = now;
        if self.acknowledge_at.is_none() {
            self.acknowledge_at = Some(now + ACKNOWLEDGE_WITHIN);
        }
        true
    }

    /// The source asks for the newest credit; `false` when the flow is not open under its
    /// label and the answer is a refusal. What it has sent before may come after this, by another lane:
    /// then it is answered again when that is here.
    pub fn handle_probe(&mut self, header: &Header, now: Time) -> bool {
        self.last_heard = now;
        let known = self.is_current(header);
        if known {
            // With so much to send still, it says that it is there, or asks what has been delivered.
            let left = self.granted.saturating_sub(header.position);
            let is_at_rest = header.position == self.delivered;
            if left >= self.width() / 2 && (is_at_rest || left >= ENOUGH_BYTES) {
                self.credit_wanted = true;
            } else {
                self.want_credit();
            }
            if header.position > self.delivered {
                self.asked_up_to = header.position;
            }
        }
        known
    }

    /// A frame of this opening came twice though it was received: the source does not know.
    pub const fn acknowledge_again(&mut self) {
        self.credit_wanted = true;
    }

    /// The application has consumed `charge` bytes of what was accepted.
    #[inline(always)]
    pub fn consume(&mut self, charge: u64, budget: &mut Budget) {
        let before = self.outstanding();
        self.unconsumed -= charge;
        if self.unconsumed == 0 && self.asked_at.is_some_and(|at| self.delivered <= at) {
            // Nothing has come since that was granted since: the application waits for its source.
            self.widen();
        }
        if self.admitted {
            budget.change(before, self.outstanding());
        }
        self.release_if_over(budget);
    }

    /// The source closes the flow, or its link is lost, or it misbehaves: what is granted
    /// and not used is void, and frames that are held for those before them are to be
    /// dropped. What was accepted stays until it is consumed.
    pub fn close(&mut self, budget: &mut Budget) {
        let before = self.outstanding();
        self.is_open = false;
        self.is_awaited = false;
        self.granted = self.delivered;
        self.starved = false;
        self.asked_at = None;
        self.credit_wanted = false;
        self.asked_up_to = NOT_ASKED;
        self.acknowledge_at = None;
        if self.admitted {
            budget.change(before, self.outstanding());
        }
        self.release_if_over(budget);
    }

    /// As [`close`](Self::close), for a source that is to open the flow again, as it has been refused, say.
    pub fn close_for_now(&mut self, budget: &mut Budget) {
        self.close(budget);
        self.is_awaited = true;
    }

    /// As [`close`](Self::close), and remembers since when nobody may be there to go on.
    pub fn suspend(&mut self, budget: &mut Budget, now: Time) {
        self.close(budget);
        self.suspended_since.get_or_insert(now);
    }

    /// The message that the last frame left unfinished is given up, its source having been away for
    /// too long, or having sent what cannot be: a source that comes back in the middle of it is
    /// refused, and so fails.
    pub const fn give_up_message(&mut self) {
        self.given_up = Some(self.delivered);
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do, if nothing is heard of the
    /// source until then.
    #[must_use]
    pub fn forgotten_at(&self) -> Option<Time> {
        const A_MOMENT: Duration = Duration::from_nanos(1);
        let silence = match (self.is_open, self.is_awaited) {
            (true, _) => FORGET_AFTER,
            (false, true) => LOST_AFTER,
            (false, false) => return None,
        };
        Some(self.last_heard + silence + A_MOMENT)
    }

    /// [Closes](Self::close_for_now) a flow whose source has been silent for [`FORGET_AFTER`], and
    /// [suspends](Self::suspend) one that was to be opened again after [`LOST_AFTER`]. To be called when
    /// [`forgotten_at`](Self::forgotten_at) says, or every few seconds.
    pub fn handle_timeout(&mut self, budget: &mut Budget, now: Time) {
        let silence = now.since(self.last_heard);
        if self.is_open && silence > FORGET_AFTER {
            self.close_for_now(budget);
        }
        if self.is_awaited && silence > LOST_AFTER {
            self.suspend(budget, now);
        }
    }

    /// Whether [`poll_credit`](Self::poll_credit) has something to send now. An
    /// acknowledgement that may still wait is left to [`next_deadline`](Self::next_deadline).
    #[must_use]
    #[inline]
    pub fn is_credit_due(&self, budget: &Budget) -> bool {
        if !self.is_open || self.opened_up_to > self.delivered {
            return false;
        }
        if self.credit_wanted {
            return true;
        }
        // With more than half of all that it may have, whatever could be granted is not worth it: how
        // much that is, takes a division.
        if !self.starved && self.outstanding() > self.most().div_ceil(2) {
            return false;
        }
        let (target, allowed) = self.promise(budget);
        self.is_worth_it(target - self.granted, allowed)
    }

    /// What the flow may have outstanding where there is memory for it.
    fn most(&self) -> u64 {
        self.width().max(GUARANTEED_BYTES)
    }

    /// How wide the window is.
    fn width(&self) -> u64 {
        self.window.min(self.widest())
    }

    /// How wide it may become, as long as what arrives is as it is now.
    const fn widest(&self) -> u64 {
        if self.delivered < self.wide.up_to {
            self.wide.most
        } else {
            self.window_most
        }
    }

    /// How far can be granted now, and how much the flow may have outstanding.
    fn promise(&self, budget: &Budget) -> (u64, u64) {
        let allowed = budget.allowance(self.outstanding()).min(self.most());
        let room = allowed.saturating_sub(self.unconsumed);
        (self.granted.max(self.delivered + room), allowed)
    }

    /// Whether to grant `more` at once: few large promises rather than many small ones,
    /// unless the source has run out.
    const fn is_worth_it(&self, more: u64, allowed: u64) -> bool {
        more > 0 && (more >= allowed / 2 || (self.starved && self.unconsumed == 0))
    }

    /// The credit frame to send back, if one is due.
    pub fn poll_credit(&mut self, budget: &mut Budget, now: Time) -> Option<Header> {
        if !self.is_open || self.opened_up_to > self.delivered {
            return None;
        }
        let before = self.outstanding();
        let (target, allowed) = self.promise(budget);
        let due = self.credit_wanted
            || self.is_worth_it(target - self.granted, allowed)
            || self.acknowledge_at.is_some_and(|at| now >= at);
        if !due {
            return None;
        }
        self.granted = target;
        budget.change(before, self.outstanding());
        self.starved = self.starved && self.granted - self.delivered < self.width() / 2;
        self.credit_wanted = false;
        self.acknowledge_at = None;
        Some(Header::credit(
            self.flow,
            self.label,
            self.delivered,
            self.granted,
            self.incarnation,
        ))
    }

    /// Whether the source has used so little of its window since it was granted more that it will not
    /// soon stand still for want of credit: an eighth at most. What it keeps until it is delivered is
    /// another matter.
    #[must_use]
    pub fn has_ample_credit(&self) -> bool {
        let width = self.width();
        self.granted - self.delivered >= width - width / 8
    }

    /// When an acknowledgement is due.
    #[must_use]
    pub const fn next_deadline(&self) -> Option<Time> {
        self.acknowledge_at
    }

    /// Since when the flow's way from its source has been interrupted.
    #[must_use]
    pub const fn suspended_since(&self) -> Option<Time> {
        self.suspended_since
    }

    /// Since when nobody is there to go on, of whom nothing has been heard either: who asks and is refused
    /// for want of memory is there.
    #[must_use]
    pub fn unheard_since(&self) -> Option<Time> {
        self.suspended_since.map(|since| since.max(self.last_heard))
    }

    /// When its source was last heard of.
    #[must_use]
    pub const fn last_heard(&self) -> Time {
        self.last_heard
    }

    /// Whether the flow is open.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether the flow is open under the label of this frame, so that a control frame from
    /// its source counts.
    #[must_use]
    pub const fn is_current(&self, header: &Header) -> bool {
        self.is_open && header.label == self.label
    }

    /// The label in force; 0 while the flow is not open.
    #[must_use]
    pub const fn label(&self) -> u32 {
        if self.is_open { self.label } else { 0 }
    }

    /// Everything before this position was accepted, in charged bytes.
    #[must_use]
    pub const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// The incarnation of the source that opened the flow last; 0 if none did.
    #[must_use]
    pub const fn source_incarnation(&self) -> u64 {
        self.source_incarnation
    }

    /// Accepted and not consumed, in charged bytes.
    #[must_use]
    pub const fn unconsumed(&self) -> u64 {
        self.unconsumed
    }

    fn want_credit(&mut self) {
        self.credit_wanted = true;
        self.starved = true;
        if self.unconsumed <= self.width() / 2 {
            self.widen();
        } else {
            self.asked_at = Some(self.granted);
        }
    }

    fn widen(&mut self) {
        self.asked_at = None;
        self.window = (self.width() * 2).min(self.widest());
    }

    /// Memory that this flow has or may yet fill.
    const fn outstanding(&self) -> u64 {
        self.unconsumed + (self.granted - self.delivered)
    }

    fn release_if_over(&mut self, budget: &mut Budget) {
        if self.admitted && !self.is_open && self.unconsumed == 0 {
            budget.release(self.outstanding());
            self.admitted = false;
        }
    }
}
