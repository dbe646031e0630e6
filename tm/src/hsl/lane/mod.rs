//! Lanes over remote write, for everything above.
//!
//! Each direction is by itself, so that two threads can own the halves without a lock: the
//! sending half puts messages into the memory of the receiving half and reads its answers, and
//! the reverse. A slot is lent only when there is a place at the other side for whatever will be
//! in it, a control slot *and* a buffer, so that committing never waits: the receiver has
//! answered before it was asked.

mod answers;
mod receiver;
mod sender;
mod slot_source;

pub(super) use receiver::{HslReceiver, receiver};
pub(super) use sender::HslSender;
pub(super) use slot_source::SlotSource;
