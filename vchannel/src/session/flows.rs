//! The flows that start and end at this node, as the session keeps them.

use std::collections::{BTreeMap, VecDeque};
use std::thread::ThreadId;

use bytes::Bytes;
use madgate_gtm::{Header, Incoming, Outgoing, Reassembly, Violation};

use super::copies::Copies;
use super::failures::Failures;
use super::inbox::{Broken, Inbox};

/// Memory of a block that is being sent.
#[derive(Debug, Clone)]
pub(crate) enum Memory {
    /// Kept here until it is delivered.
    Owned(Bytes),
    /// Lent by the caller that is sending now; its number among the blocks that it lent.
    Borrowed(usize),
}

/// A flow that starts here.
#[derive(Debug)]
pub(crate) struct OutFlow {
    pub(crate) flow: Outgoing<Memory>,
    /// The link to the first hop.
    pub(crate) link: u32,
    /// Whether it stands in the link's list of flows with something to send.
    pub(crate) is_waiting: bool,
    /// The thread that packs a message.
    pub(crate) packer: Option<ThreadId>,
    /// Whether that thread sends borrowed memory, so that nobody else may take from the flow.
    pub(crate) has_borrower: bool,
    /// What was not delivered.
    pub(crate) failures: Failures,
    /// Whether the log says that nobody carries it, for as long as that is so.
    pub(crate) is_complained_of: bool,
    /// Memory for the next message's small blocks.
    pub(crate) scratch: Vec<u8>,
    /// Memory for blocks that are longer, and have to be copied.
    pub(crate) copies: Copies,
}

impl OutFlow {
    pub(crate) fn new(flow: Outgoing<Memory>, link: u32) -> Self {
        Self {
            flow,
            link,
            is_waiting: false,
            packer: None,
            has_borrower: false,
            failures: Failures::default(),
            is_complained_of: false,
            scratch: Vec::new(),
            copies: Copies::default(),
        }
    }

    /// Begins the next message, of which this is the number.
    #[inline]
    pub(crate) fn begin_message(&mut self) -> u32 {
        let message = self.flow.begin_message();
        self.failures.begin(message);
        message
    }

    /// Whether `message`, which is being packed, was given up with all before it: its flow has
    /// failed. Nothing more may be pushed for it.
    #[inline]
    pub(crate) const fn is_given_up(&self, message: u32) -> bool {
        // It has no end yet, so that nobody can have delivered it.
        self.flow.is_delivered(message)
    }
}

/// A flow that ends here.
#[derive(Debug)]
pub(crate) struct InFlow {
    pub(crate) flow: Incoming,
    /// Rank of its source.
    pub(crate) source: u32,
    /// Number of its channel.
    pub(crate) channel: u16,
    /// The link that its frames come from.
    pub(crate) link: Option<u32>,
    pub(crate) reassembly: Reassembly,
    /// Frames that arrived before those in front of them, by position.
    pub(crate) held: BTreeMap<u64, (Header, Bytes)>,
    pub(crate) inbox: Inbox,
    /// Whether a message of it is being unpacked.
    pub(crate) is_claimed: bool,
    /// Whether the message that is being unpacked was dropped, and is to be drained.
    pub(crate) is_discarding: bool,
    /// Whether it stands in its channel's list of flows with a message.
    pub(crate) is_ready: bool,
    /// Whether it stands in the link's list of flows that may have credit to give.
    pub(crate) has_credit: bool,
    /// Whether its acknowledgement is in the list of those to come.
    pub(crate) is_timed: bool,
}

impl InFlow {
    pub(crate) fn new(flow: Incoming, source: u32, channel: u16) -> Self {
        Self {
            flow,
            source,
            channel,
            link: None,
            reassembly: Reassembly::default(),
            held: BTreeMap::new(),
            inbox: Inbox::default(),
            is_claimed: false,
            is_discarding: false,
            is_ready: false,
            has_credit: false,
            is_timed: false,
        }
    }

    /// Its source has closed the flow, and everything that came is unpacked: what a burst took is given back.
    pub(crate) fn shrink_if_idle(&mut self) {
        if !self.flow.is_open() && self.inbox.is_empty() {
            self.inbox.shrink();
        }
    }

    /// The message that has begun to arrive will not go on.
    pub(crate) fn break_message(&mut self, why: Broken) {
        self.held.clear();
        if let Some(message) = self.reassembly.message() {
            self.inbox.break_message(message, self.is_claimed, why);
        }
        self.reassembly.abandon();
    }

    /// Keeps a frame until those in front of it have arrived. What is kept was granted, as no part
    /// of it is kept twice.
    ///
    /// # Errors
    /// When it covers part of another one that is kept.
    pub(crate) fn hold(
        &mut self,
        header: &Header,
        payload: impl FnOnce() -> Bytes,
    ) -> Result<(), Violation> {
        let position = header.position;
        let before = self.held.range(..=position).next_back();
        let overlaps = match before {
            Some((_, (other, _))) if other == header => return Ok(()),
            Some((_, (other, _))) => other.end_position() > position,
            None => false,
        };
        let mut behind = self.held.range(position + 1..);
        if overlaps
            || behind
                .next()
                .is_some_and(|(at, _)| *at < header.end_position())
        {
            return Err(Violation::Overlap {
                position,
                delivered: self.flow.delivered(),
            });
        }
        self.held.insert(position, (*header, payload()));
        Ok(())
    }

    /// The frame that was held and is in order now.
    pub(crate) fn take_held(&mut self) -> Option<(Header, Bytes)> {
        let first = self.held.first_entry()?;
        (*first.key() == self.flow.delivered()).then(|| first.remove())
    }

    /// Whether the inbox starts with a message that nobody unpacks.
    pub(crate) fn has_message(&self) -> bool {
        !self.is_claimed && !self.inbox.is_empty()
    }
}

/// Messages that wait to be unpacked, by the flow that they are on: flows take turns.
#[derive(Debug, Default)]
pub(crate) struct ReadyFlows {
    pub(crate) flows: VecDeque<u32>,
}
