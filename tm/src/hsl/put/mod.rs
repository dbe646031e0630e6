//! PUT: the lowest layer (paper 000, section 2.3; report 004, section II.5).
//!
//! ```text
//!   add_entry ──> list of messages to send ──> card ═══> registered memory of the other node
//!                        │                       ╚══════> its list of received messages
//!   sent_notify <────────┘                                        │
//!                                            received_notify <────┘
//! ```
//!
//! A put writes a contiguous piece of registered memory of this node into registered memory of
//! another. Nobody there has to do anything for it; who wants to know looks at the list of
//! received messages. Which card does it is behind [`Device`].

mod descriptor;
mod device;
mod handler;
mod reaching;

use std::io;

pub use crate::local::arrivals::Lending;
pub use descriptor::{
    Address, Descriptor, MessageId, NodeNumber, Notify, PutError, Received, Sent,
};
pub use device::{Device, Receiving, Sending};
pub use reaching::{Name, Offered, Reaching, Refused, Source, Target};

pub(crate) use descriptor::{CARRIED_MOST, ENTRY_WORDS, Entry};
use handler::Handler;

/// Received messages that one flush forgets at most: the entries of the longest list.
pub const FLUSHED_MOST: usize = 8192;

/// PUT over one connection of a card.
///
/// - **Send**: [`add_entry`](Self::add_entry), then [`sent_notify`](Self::sent_notify) for
///   those that asked for it.
/// - **Receive**: [`received_notify`](Self::received_notify).
/// - **Start afresh**: [`flush_send_list`](Self::flush_send_list),
///   [`flush_received_list`](Self::flush_received_list).
#[derive(Debug)]
pub struct Put<D: Device> {
    sending: D::Sending,
    reception: Reception<D::Receiving>,
}

/// How the list of received messages is looked at.
#[derive(Debug)]
enum Reception<R> {
    /// By whoever asks.
    Polled(R),
    /// By a thread that the card wakes.
    Interrupts(Handler),
}

impl<D: Device> Put<D> {
    /// Looks at the list of received messages when it is asked.
    pub fn polling(sending: D::Sending, receiving: D::Receiving) -> Self {
        Self {
            sending,
            reception: Reception::Polled(receiving),
        }
    }

    /// Lets a handler thread take in the list of received messages, whenever the card says that
    /// something has come.
    ///
    /// # Errors
    /// When the system refuses the thread.
    pub fn with_interrupts(sending: D::Sending, receiving: D::Receiving) -> io::Result<Self>
    where
        D::Receiving: 'static,
    {
        Ok(Self {
            sending,
            reception: Reception::Interrupts(Handler::spawn(receiving)?),
        })
    }

    /// Adds an entry to the list of messages to send.
    ///
    /// # Errors
    /// When the list is full, or the card refuses the entry. Nothing is written then.
    pub fn add_entry(&mut self, descriptor: &Descriptor) -> Result<(), PutError> {
        self.sending.try_add(descriptor)
    }

    /// The next message that has been sent, of those that asked to be notified here.
    pub fn sent_notify(&mut self) -> Option<MessageId> {
        self.sending.next_sent().map(|sent| sent.message)
    }

    /// The next message that has been received: its identifier and two words.
    ///
    /// # Errors
    /// When the other side has written what its card cannot have written.
    pub fn received_notify(&mut self) -> Result<Option<Received>, PutError> {
        match &mut self.reception {
            Reception::Polled(receiving) => receiving.next_received(),
            Reception::Interrupts(handler) => handler.next_received(),
        }
    }

    /// Whether there may be one: a look at the list, where no handler reads it.
    #[inline]
    pub fn may_have_received(&self) -> bool {
        match &self.reception {
            Reception::Polled(receiving) => receiving.may_have_next(),
            Reception::Interrupts(_) => true,
        }
    }

    /// Forgets which messages have been sent; returns how many.
    pub fn flush_send_list(&mut self) -> usize {
        std::iter::from_fn(|| self.sending.next_sent()).count()
    }

    /// Forgets which messages have been received; returns how many. They are at most
    /// [`FLUSHED_MOST`], which no list holds more than: who goes on writing meanwhile keeps
    /// nobody.
    ///
    /// # Errors
    /// As [`received_notify`](Self::received_notify).
    pub fn flush_received_list(&mut self) -> Result<usize, PutError> {
        for count in 0..FLUSHED_MOST {
            if self.received_notify()?.is_none() {
                return Ok(count);
            }
        }
        Ok(FLUSHED_MOST)
    }

    /// How often a handler thread was woken by the card.
    pub fn interrupts(&self) -> u64 {
        match &self.reception {
            Reception::Polled(_) => 0,
            Reception::Interrupts(handler) => handler.interrupts(),
        }
    }

    /// The half that sends.
    pub(crate) fn sending(&mut self) -> &mut D::Sending {
        &mut self.sending
    }

    /// The half that receives, where nobody else has it.
    pub(crate) fn receiving(&mut self) -> Option<&mut D::Receiving> {
        match &mut self.reception {
            Reception::Polled(receiving) => Some(receiving),
            Reception::Interrupts(_) => None,
        }
    }
}
