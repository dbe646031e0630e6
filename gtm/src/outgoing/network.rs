//! What the network tells a flow's source: credit, refusals, and how its link does.

use super::{ASKS_IN_VAIN, Failure, Outgoing, PROBE_MOST, RESEND_AFTER_PROBES, State};
use crate::time::Time;
use crate::wire::{Header, Kind, Refusal};

impl<D: Clone> Outgoing<D> {
    /// The destination's newest credit, perhaps lowered on its way.
    pub fn handle_credit(&mut self, credit: &Header, now: Time) {
        debug_assert_eq!(credit.kind, Kind::Credit);
        self.changes += 1;
        let (delivered, granted) = (credit.position, credit.offset);
        let out_of_range = delivered < self.delivered || delivered > self.position;
        if credit.label != self.label || out_of_range || granted < delivered {
            return;
        }
        match self.state {
            State::Opening { .. } => {
                self.opening = None;
                self.destination_incarnation = credit.credit_incarnation();
                self.rewind(delivered);
                self.granted = granted;
                self.state = State::Open;
                self.waits_since = now;
                // What there was on the way before says nothing about this one.
                self.asks_in_vain = 0;
                self.note_progress();
            }
            State::Open => {
                if self.credit_asked && delivered >= self.asked_at {
                    self.note_answer(granted > self.granted);
                }
                if delivered > self.delivered || granted > self.granted {
                    self.note_wait(now);
                    self.note_progress();
                    self.patience = RESEND_AFTER_PROBES;
                }
                self.release(delivered);
                self.speed.note(delivered, now);
                if granted > self.granted {
                    self.granted = granted;
                    self.last_window = granted - delivered;
                }
                if self.probes >= self.patience && !self.sent.is_empty() {
                    self.patience = self.patience.saturating_mul(2);
                    self.interruptions += 1;
                    self.state = State::Closed { at: now };
                }
            }
            State::Closed { .. } | State::Failed(_) => return,
        }
        (self.stuck_since, self.silent_since) = (None, None);
        self.last_refusal = None;
        self.attempts = 0;
        self.last_progress = now;
    }

    /// Some hop does not carry the flow.
    pub fn handle_refusal(&mut self, refusal: &Header, now: Time) {
        let Some(reason) = refusal.reason() else {
            return;
        };
        let live = matches!(self.state, State::Opening { .. } | State::Open);
        if refusal.label != self.label || !live {
            return;
        }
        self.changes += 1;
        self.interruptions += 1;
        self.silent_since = None;
        self.last_refusal = Some(reason);
        let went_nowhere = matches!(
            reason,
            Refusal::NoRoom | Refusal::LinkDown | Refusal::NoRoute | Refusal::NoChannel
        );
        if went_nowhere && self.is_retargetable && self.opening.is_some() {
            // Nobody has what the opening carried: the next one can carry it again.
            self.rewind(self.delivered);
        }
        match reason {
            Refusal::NoRoom => {
                // The hop lives: waiting for its memory is not being stuck.
                self.stuck_since = None;
                self.close_until_retry(now);
            }
            Refusal::LinkDown | Refusal::LinkLost => self.close_until_retry(now),
            Refusal::Unknown | Refusal::Corrupt => {
                self.note_stuck(now);
                if self.attempts > 1 {
                    self.close_until_retry(now);
                } else {
                    self.attempts += 1;
                    self.state = State::Closed { at: now };
                }
            }
            Refusal::OtherIncarnation => {
                if !self.retarget(refusal.offset, now) {
                    self.state = State::Failed(Failure::Restarted);
                }
            }
            Refusal::GivenUp => {
                self.state = State::Failed(Failure::Unreachable { last: Some(reason) });
            }
            Refusal::NoRoute => self.state = State::Failed(Failure::NoRoute),
            Refusal::NoChannel => self.state = State::Failed(Failure::NoChannel),
        }
    }

    /// A gateway has what was asked for, and it waits there for its turn, perhaps for a rate: it is
    /// neither lost nor stuck.
    pub fn handle_held(&mut self, held: &Header) {
        debug_assert_eq!(held.kind, Kind::Held);
        if held.label != self.label {
            return;
        }
        match self.state {
            State::Opening { .. } => {
                self.holdups += 1;
                self.stuck_since = None;
            }
            State::Open => {
                self.holdups += 1;
                self.silent_since = None;
                let more = self.probes.saturating_add(RESEND_AFTER_PROBES);
                self.patience = self.patience.max(more);
            }
            State::Closed { .. } | State::Failed(_) => {}
        }
    }

    /// The link to the first hop is up, for the first time or again.
    pub fn handle_link_up(&mut self, now: Time) {
        self.link_is_up = true;
        self.changes += 1;
        self.attempts = 0;
        if let State::Closed { .. } = self.state {
            self.state = State::Closed { at: now };
        }
    }

    /// Fragments that are cut from now on have so many bytes at most, however many the settings allow:
    /// what the link carries that comes up.
    pub fn limit_fragments(&mut self, most: u32) {
        self.fragment_bytes = self.settings.fragment_bytes.min(most.max(1));
    }

    /// The link to the first hop is lost: credit over it is void.
    pub fn handle_link_lost(&mut self, now: Time) {
        self.link_is_up = false;
        self.changes += 1;
        self.interruptions += 1;
        self.silent_since = None;
        self.control = None;
        if matches!(self.state, State::Opening { .. } | State::Open) {
            self.state = State::Closed { at: now };
        }
        self.note_stuck(now);
    }

    /// Whether there was more, when more was asked for.
    fn note_answer(&mut self, was_more: bool) {
        self.asks_in_vain = if was_more {
            0
        } else {
            ASKS_IN_VAIN.min(self.asks_in_vain + 1)
        };
    }

    /// What was waited for has come, in part at least. Where nothing was, credit tells of messages
    /// that are unpacked late, and not how long anything takes.
    fn note_wait(&mut self, now: Time) {
        let since = std::mem::replace(&mut self.waits_since, now);
        if !self.has_undelivered() {
            return;
        }
        let waited = now.since(since);
        let before = self.usual_wait - self.usual_wait / 32;
        self.usual_wait = before.max(waited).min(PROBE_MOST / 2);
    }

    fn note_progress(&mut self) {
        self.credit_asked = false;
        self.probes = 0;
    }
}
