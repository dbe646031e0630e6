//! The words of PUT: what an entry of the list of messages to send says, and what one of the
//! list of received messages tells.

use std::fmt;

/// A node of the network, as the card knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeNumber(pub u16);

/// A place in the registered memory of a node: what the papers call a physical address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

/// What stands for a message at both ends. The hardware of the papers had a few bits for it,
/// verbs have 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageId(pub u32);

/// At which ends the end of a put is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notify {
    /// Here, when the local memory may be used again.
    pub sent: bool,
    /// There, when the data is in the remote memory.
    pub received: bool,
}

/// An entry of the list of messages to send: what a card is to write where.
///
/// A message that is not contiguous, at either end, is several entries with one identifier, of
/// which the last asks for notification: a card writes in the order of its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// To whom.
    pub destination: NodeNumber,
    /// Where the data is.
    pub local: Address,
    /// Where it goes.
    pub remote: Address,
    /// How many bytes; none is allowed, and writes nothing but the notification.
    pub length: u32,
    /// Which message it belongs to.
    pub message: MessageId,
    /// Who is told.
    pub notify: Notify,
    /// Two words that travel with the notification.
    pub words: [u64; 2],
}

/// An entry of the list of received messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Who wrote.
    pub source: NodeNumber,
    /// Which message it belongs to.
    pub message: MessageId,
    /// Bytes of the put that asked for this notification.
    pub length: u32,
    /// What the sender put beside it.
    pub words: [u64; 2],
}

impl Received {
    /// Words of an entry of the list. The first bit is the ring's.
    ///
    /// ```text
    ///   63    62 ... 48   47 ... 32   31 .......... 0
    ///  phase  reserved     source      message           length   word   word
    /// ```
    pub(crate) fn to_words(self) -> [u64; ENTRY_WORDS] {
        let first = u64::from(self.source.0) << 32 | u64::from(self.message.0);
        [first, self.length.into(), self.words[0], self.words[1]]
    }

    /// What an entry says; reserved bits are somebody's mistake, and looked over.
    pub(crate) fn from_words([first, length, one, other]: [u64; ENTRY_WORDS]) -> Self {
        let [m0, m1, m2, m3, s0, s1, ..] = first.to_le_bytes();
        let [l0, l1, l2, l3, ..] = length.to_le_bytes();
        Self {
            source: NodeNumber(u16::from_le_bytes([s0, s1])),
            message: MessageId(u32::from_le_bytes([m0, m1, m2, m3])),
            length: u32::from_le_bytes([l0, l1, l2, l3]),
            words: [one, other],
        }
    }
}

/// Words of an entry of the list of received messages.
pub(crate) const ENTRY_WORDS: usize = 4;

/// Why a card does not do what an entry says. Nothing has been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// The list has no room: take in what was sent, or try again when the other side has read
    /// its list.
    #[error("the list has no room now")]
    Full,
    /// It is not connected to that node.
    #[error("the card is not connected to node {}", .0.0)]
    Node(NodeNumber),
    /// What is to be sent is not all registered here.
    #[error("{1} bytes at {0} are not registered memory of this node")]
    Local(Address, u32),
    /// Where it is to go is not all registered there.
    #[error("{1} bytes at {0} are not registered memory of the other node")]
    Remote(Address, u32),
    /// The other side has written what its card cannot have written.
    #[error("the other side's lists are impossible: {0}")]
    Peer(&'static str),
    /// The other side is gone, and what came from it has been taken in.
    #[error("the other side is gone")]
    Closed,
    /// The memory of the other side cannot be reached: its process has ended, or the system
    /// forbids it.
    #[error("the other side's memory cannot be reached (error {0} of the system)")]
    Unreachable(i32),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_entry_is_what_the_picture_says() {
        let received = Received {
            source: NodeNumber(2),
            message: MessageId(3),
            length: 4,
            words: [5, 6],
        };
        assert_eq!(received.to_words(), [2 << 32 | 3, 4, 5, 6]);
    }

    proptest! {
        #[test]
        fn entries_survive_their_list(words: [u64; ENTRY_WORDS]) {
            let received = Received::from_words(words);
            prop_assert_eq!(Received::from_words(received.to_words()), received);
            prop_assert_eq!(received.to_words()[0] >> 63, 0, "the ring's bit is left alone");
        }
    }
}
