//! Small messages that wait share frames.
//!
//! A message of a few bytes has a header six times as long, and all that every hop does with a
//! frame is done for it alone. Where messages wait anyhow, because the link is busy or more
//! of them are packed right now, one that is no larger than [`BUNDLED_BYTES`] joins the frame
//! before it: its records go behind theirs, behind a byte or two that say how long they are. Nothing
//! waits for others to join.

use super::Outgoing;
#[cfg(doc)]
use crate::wire::BUNDLED_BYTES;
use crate::wire::{
    CHARGE_PER_MESSAGE, HEADER_BYTES, SMALL_PAYLOAD_BYTES, bundled, bundled_prefix_bytes, encoded,
};

/// The last frame of the tail, if it holds nothing but whole messages that others may join.
///
/// Frames leave the tail at its front, and as a whole: while the tail has any, its last one is
/// the one that was pushed last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Joinable {
    /// Bytes of the frame.
    frame_bytes: usize,
    /// How many messages it holds.
    messages: u32,
    /// Number of the message that may join.
    next: u32,
}

impl Joinable {
    /// A frame of so many bytes that holds just `message`.
    pub(super) const fn new(frame_bytes: usize, message: u32) -> Self {
        Self {
            frame_bytes,
            messages: 1,
            next: message.wrapping_add(1),
        }
    }

    /// What its messages cost besides their bytes, when another joins.
    const fn further_charge(&self) -> u64 {
        self.messages as u64 * CHARGE_PER_MESSAGE
    }

    /// Bytes that go in front of the records of its first message, when another joins.
    const fn prefix_bytes(&self) -> usize {
        if self.messages == 1 {
            bundled_prefix_bytes(self.frame_bytes - HEADER_BYTES)
        } else {
            0
        }
    }
}

impl<D: Clone> Outgoing<D> {
    /// Appends a whole message, of [`BUNDLED_BYTES`] at most, to the last frame of the tail. Returns
    /// whether it could.
    pub(super) fn join(&mut self, message: u32, records: &[u8]) -> bool {
        let Some(last) = self.joinable else {
            return false;
        };
        let Some(start) = self.tail.len().checked_sub(last.frame_bytes) else {
            return false;
        };
        let prefix_bytes = bundled_prefix_bytes(records.len());
        let added = last.prefix_bytes() + prefix_bytes + records.len();
        let frame_bytes = last.frame_bytes + added;
        let charge = (frame_bytes - HEADER_BYTES) as u64 + last.further_charge();
        let has_room =
            charge <= SMALL_PAYLOAD_BYTES as u64 && self.tail.capacity() - self.tail.len() >= added;
        if !has_room || message != last.next {
            return false;
        }
        if last.messages == 1 {
            self.make_bundle(start);
        }
        bundled::push_prefix(&mut self.tail, records.len());
        self.tail.extend_from_slice(records);
        let messages = last.messages + 1;
        encoded::mark_bundle(&mut self.tail[start..], messages);
        self.retained_bytes += added as u64;
        self.joinable = Some(Joinable {
            frame_bytes,
            messages,
            next: message.wrapping_add(1),
        });
        true
    }

    /// The records of the one message in the frame at `start`, the last of the tail, get in front
    /// what says how long they are.
    fn make_bundle(&mut self, start: usize) {
        let first = start + HEADER_BYTES;
        let length = self.tail.len() - first;
        bundled::push_prefix(&mut self.tail, length);
        self.tail[first..].rotate_right(bundled_prefix_bytes(length));
    }
}
