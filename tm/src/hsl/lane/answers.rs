//! What the receiving half of a lane tells the sending half at the other side: which control
//! slots are free again, and which buffers it may write. From whatever thread drops them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::hsl::layout::Geometry;
use crate::hsl::message::{GROUP, Kind, identifier};
use crate::hsl::pending::{Pending, Place};
use crate::hsl::put::{Address, Descriptor, NodeNumber, Notify, PutError, Sending};
use crate::local::arrivals::GoesBack;

/// The way back, shared by the slots that are out.
#[derive(Debug)]
pub(super) struct Answers<S> {
    pending: Pending<S>,
    peer: NodeNumber,
    /// The other side's list is full, which it cannot be.
    failed: AtomicBool,
}

impl<S: Sending> Answers<S> {
    /// Answers through `card` to `peer`, which is told at once that everything is free: with
    /// buffers offered before it asks, it never waits for an answer.
    pub(super) fn new(geometry: Geometry, mut card: S, peer: NodeNumber) -> Self {
        let mut is_told = true;
        for group in 0..geometry.slots().div_ceil(GROUP) {
            let slots = GROUP.min(geometry.slots() - group * GROUP);
            let all = u64::MAX >> (GROUP - slots);
            let offered = if geometry.has_rendezvous() { all } else { 0 };
            is_told &= answer(&mut card, peer, group, [all, offered]).is_ok();
        }
        Self {
            pending: Pending::new(geometry.slots(), card),
            peer,
            failed: AtomicBool::new(!is_told),
        }
    }

    /// Whether the other side's list was ever full.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// A slot of this side's is free again, which the other side is told with the next answer.
    pub(super) fn lay_down(&self, place: Place, slot: u32) {
        self.pending.lay_down(place, slot);
    }

    /// Tells the other side which slots are free again.
    pub(super) fn tell(&self) {
        self.pending.pass(|card, group, freed| {
            if answer(card, self.peer, group, freed).is_err() {
                self.failed.store(true, Ordering::Relaxed);
            }
        });
    }
}

/// Tells which control slots and which buffers of a group are free: credit rides on the answer
/// that offers buffers, and goes by itself when there is none.
fn answer(
    card: &mut impl Sending,
    peer: NodeNumber,
    group: u32,
    [control, buffers]: [u64; 2],
) -> Result<(), PutError> {
    let kind = if buffers == 0 {
        Kind::Credit
    } else {
        Kind::Response
    };
    card.try_add(&Descriptor {
        destination: peer,
        local: Address(0),
        remote: Address(0),
        length: 0,
        message: identifier(kind, group),
        notify: Notify {
            sent: false,
            received: true,
        },
        words: [control, buffers],
    })
}

/// How control slots go back.
#[derive(Debug)]
pub(super) struct ControlBack<S>(pub(super) Arc<Answers<S>>);

impl<S: Sending> GoesBack for ControlBack<S> {
    fn give_back(&self, slot: u32) {
        self.0.lay_down(Place::Control, slot);
        self.0.tell();
    }
}

/// How buffers go back.
#[derive(Debug)]
pub(super) struct BufferBack<S>(pub(super) Arc<Answers<S>>);

impl<S: Sending> GoesBack for BufferBack<S> {
    fn give_back(&self, slot: u32) {
        self.0.lay_down(Place::Buffer, slot);
        self.0.tell();
    }
}
