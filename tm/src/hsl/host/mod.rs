//! The `host` device: an emulated card for the nodes of one host.
//!
//! Each side of a connection makes one memory, which the other maps and may write: its
//! *registered* memory, and its lists. What a card does, the thread does that adds the entry: it
//! checks it, stores the data in the other side's memory, and then the notification in the other
//! side's list. There is no copy in between, and no system call but to wake who sleeps.
//!
//! ```text
//!   this side                                  the other side's memory
//!   ─────────                                 ┌────────────────────────┐
//!   registered memory ── card: check, store ──┼─> registered memory    │
//!   entry ───────────────┘        └───────────┼─> list of received     │
//!                                             │   messages             │
//!   how far it has been read  <───────────────┼── head                 │
//!   must it be woken?  <──────────────────────┼── armed?               │
//!                                             └────────────────────────┘
//! ```
//!
//! A put of few bytes that is to be notified travels in the notification itself: one line of
//! memory goes from processor to processor, where there were two. The other card puts the data
//! where it belongs when the entry is read. So does not travel what goes where others than the
//! reader of the list may look: to an arena, and to a node whose list another thread reads.
//!
//! Memory of the other process that is not registered is reached through the kernel, where that
//! is switched on, and only where the other side has offered it.
//!
//! A list is a ring of entries with phase bits. Its reader says how far it has come, which is
//! the writer's credit: an entry is never overwritten that has not been read.

mod card;
mod credit;
mod foreign;
mod list;

pub use card::HostCard;
pub use list::HostList;

pub(crate) use card::Connection;
pub(crate) use foreign::{FOREIGN, ForeignProcess};

use std::ops::Range;

use super::put::{Address, Device};

/// How the other side learns that something has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Mode {
    /// It looks, and is never woken.
    Polling,
    /// It is woken for each notification.
    Interrupt,
    /// It looks; when it wants to sleep, it says so, and is woken.
    #[default]
    Adaptive,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Polling, Self::Interrupt, Self::Adaptive];

    /// Its name in the cluster file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Polling => "polling",
            Self::Interrupt => "interrupt",
            Self::Adaptive => "adaptive",
        }
    }
}

/// The emulated card.
#[derive(Debug)]
pub struct HostDevice;

impl Device for HostDevice {
    type Sending = HostCard;
    type Receiving = HostList;

    const SENDS_AT_ONCE: bool = true;
}

/// Where one half of a connection has its list, in the memory of who reads it.
#[derive(Debug, Clone)]
pub(crate) struct ListPlace {
    /// The word that says whether its reader sleeps.
    pub(crate) armed_at: usize,
    /// The word that says how far it has been read.
    pub(crate) head_at: usize,
    /// The entries.
    pub(crate) at: usize,
    /// How many of them are used; a power of two.
    pub(crate) entries: usize,
    /// Where data may go that travels in them; nowhere, if this is empty. Who reads the list
    /// writes it there, so it is memory that nobody else of that process reads meanwhile: slots
    /// that are lent by the thread that reads the list, and what that thread alone reads.
    pub(crate) carries: Range<u64>,
}

/// Where `length` bytes at `address` begin, if all of them are within `registered`.
pub(super) fn range_within(
    address: Address,
    length: u32,
    registered: &Range<u64>,
) -> Option<usize> {
    let end = address.0.checked_add(length.into())?;
    (registered.start <= address.0 && end <= registered.end)
        .then(|| usize::try_from(address.0).ok())
        .flatten()
}
