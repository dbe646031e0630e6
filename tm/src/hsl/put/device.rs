//! What PUT needs of a card. How a card notices that something has arrived is its own business:
//! most of today's do not show it in plain memory.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::descriptor::{Descriptor, PutError, Received, Sent};
use crate::local::arrivals::Lending;
use crate::piece::Piece;
use crate::poller::Interest;

/// A kind of card.
pub trait Device: fmt::Debug {
    /// The half that sends.
    type Sending: Sending;
    /// The half that receives.
    type Receiving: Receiving;

    /// Whether an entry is sent when the call returns that adds it, so that nobody need ask.
    const SENDS_AT_ONCE: bool;
}

/// The half of a card that has the list of messages to send.
pub trait Sending: fmt::Debug + Send {
    /// Checks an entry and puts it on the list. The card writes entries in the order of the
    /// list; the local memory is the card's until the entry is sent.
    ///
    /// # Errors
    /// When the list is full, or the entry names what is not registered: nothing is written.
    fn try_add(&mut self, descriptor: &Descriptor) -> Result<(), PutError>;

    /// Bytes that [`try_add_from`](Self::try_add_from) takes at most.
    fn anywhere_most(&self) -> u32;

    /// As [`try_add`](Self::try_add), for data that need not be in registered memory, and is the
    /// caller's again when this returns. The entry's `local` and `length` are not looked at.
    ///
    /// # Errors
    /// As `try_add`, and when there is more data than the card takes in this way, or it takes
    /// data only in entries that are to be notified there.
    fn try_add_from(&mut self, data: Piece<'_>, descriptor: &Descriptor) -> Result<(), PutError>;

    /// The next entry that has been sent and was to be notified here.
    fn next_sent(&mut self) -> Option<Sent>;
}

/// The half of a card that has the list of received messages.
pub trait Receiving: fmt::Debug + Send {
    /// The next entry of the list.
    ///
    /// # Errors
    /// When the other side has written what cannot be.
    fn next_received(&mut self) -> Result<Option<Received>, PutError>;

    /// From now on, an entry whose data (which travels in it) belongs to what `slots` lends is
    /// one that cannot be, and is not written. For a list that the thread reads which also lends.
    fn keep_out_of(&mut self, slots: Arc<dyn Lending>);

    /// Whether there is a next entry.
    fn has_next(&mut self) -> bool;

    /// Whether it is worth asking for the next entry; `false` where a look at plain memory says
    /// that there is none.
    fn may_have_next(&self) -> bool;

    /// Prepares to sleep until an entry comes; `false` when one is there, or nobody would be
    /// woken.
    fn arm(&mut self) -> bool;

    /// Says that nobody sleeps any more.
    fn disarm(&mut self);

    /// What a sleeper waits for.
    fn descriptor(&self) -> (BorrowedFd<'_>, Interest);

    /// Takes in what woke a sleeper; whether the other side is still there.
    fn acknowledge(&mut self) -> bool;

    /// Whether more may come: the other side is there, or what it has put is still on its way.
    fn is_peer_there(&mut self) -> bool;

    /// Tells the other side that this half is over. What it has added is still sent.
    fn close(&mut self);
}
