//! What PUT needs of a card. How a card notices that something has arrived is its own business:
//! most of today's do not show it in plain memory.

use std::fmt;
use std::os::fd::BorrowedFd;

use super::descriptor::{Descriptor, MessageId, PutError, Received};
use crate::poller::Interest;

/// A kind of card.
pub trait Device: fmt::Debug {
    /// The half that sends.
    type Sending: Sending;
    /// The half that receives.
    type Receiving: Receiving;
}

/// The half of a card that has the list of messages to send.
pub trait Sending: fmt::Debug + Send {
    /// Checks an entry and puts it on the list. The card writes entries in the order of the
    /// list; the local memory is the card's until the entry is sent.
    ///
    /// # Errors
    /// When the list is full, or the entry names what is not registered: nothing is written.
    fn try_add(&mut self, descriptor: &Descriptor) -> Result<(), PutError>;

    /// The next entry that has been sent and was to be notified here.
    fn next_sent(&mut self) -> Option<MessageId>;
}

/// The half of a card that has the list of received messages.
pub trait Receiving: fmt::Debug + Send {
    /// The next entry of the list.
    ///
    /// # Errors
    /// When the other side has written what cannot be.
    fn next_received(&mut self) -> Result<Option<Received>, PutError>;

    /// Prepares to sleep until an entry comes; `false` when one is there.
    fn arm(&mut self) -> bool;

    /// Says that nobody sleeps any more.
    fn disarm(&mut self);

    /// What a sleeper waits for.
    fn descriptor(&self) -> (BorrowedFd<'_>, Interest);

    /// Takes in what woke a sleeper; whether the other side is still there.
    fn acknowledge(&mut self) -> bool;
}
