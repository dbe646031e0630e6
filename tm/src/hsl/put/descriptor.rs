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

/// An entry of the list of messages to send that has been sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Which message it belonged to.
    pub message: MessageId,
    /// Where its data was, which is the caller's again.
    pub local: Address,
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

/// An entry of the list as it is written: what it tells, and, of a small put, the data itself,
/// which then needs no other line of memory to travel.
///
/// ```text
///   63      62      61 ... 48   47 ... 32   31 .......... 0
///  phase  carries   reserved     source      message           word 0
///  where the data goes (carried), else 0         length        word 1: 56 bits, 8 bits; or 32
///  the sender's two words                                      words 2 and 3
///  the data (carried)                                          words 4 to 7
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// What it tells.
    pub(crate) received: Received,
    /// Where to put its data, and the data; as many bytes as were received.
    pub(crate) carried: Option<(Address, [u8; CARRIED_MOST])>,
}

/// Bytes of data that an entry carries at most.
pub(crate) const CARRIED_MOST: usize = 32;
/// Words of an entry: one line of memory.
pub(crate) const ENTRY_WORDS: usize = 8;
const CARRIES: u64 = 1 << 62;
/// Addresses that an entry has room for.
const ADDRESS_BITS: u32 = 56;

const _: () = assert!(CARRIED_MOST == (ENTRY_WORDS - 4) * 8);

impl Entry {
    /// Whether data that goes to `address` can be carried.
    pub(crate) fn can_carry(address: Address, length: usize) -> bool {
        length <= CARRIED_MOST && address.0 < 1 << ADDRESS_BITS
    }

    /// The words of the list. The first bit is the ring's.
    pub(crate) fn to_words(self) -> [u64; ENTRY_WORDS] {
        let Received {
            source,
            message,
            length,
            words,
        } = self.received;
        let mut first = u64::from(source.0) << 32 | u64::from(message.0);
        let mut second = u64::from(length);
        let mut data = [0; 4];
        if let Some((address, bytes)) = &self.carried {
            first |= CARRIES;
            second |= address.0 << (u64::BITS - ADDRESS_BITS);
            for (word, bytes) in data.iter_mut().zip(bytes.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
        }
        let [d0, d1, d2, d3] = data;
        [first, second, words[0], words[1], d0, d1, d2, d3]
    }

    /// What an entry says, or what is wrong with it; reserved bits are somebody's mistake, and
    /// looked over.
    #[inline]
    pub(crate) fn from_words(words: [u64; ENTRY_WORDS]) -> Result<Self, &'static str> {
        let [first, second, one, other, data @ ..] = words;
        let [m0, m1, m2, m3, s0, s1, ..] = first.to_le_bytes();
        let [l0, l1, l2, l3, ..] = second.to_le_bytes();
        let mut received = Received {
            source: NodeNumber(u16::from_le_bytes([s0, s1])),
            message: MessageId(u32::from_le_bytes([m0, m1, m2, m3])),
            length: u32::from_le_bytes([l0, l1, l2, l3]),
            words: [one, other],
        };
        if first & CARRIES == 0 {
            return Ok(Self {
                received,
                carried: None,
            });
        }
        if usize::from(l0) > CARRIED_MOST {
            return Err("an entry that carries more than it has room for");
        }
        received.length = l0.into();
        let mut bytes = [0; CARRIED_MOST];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(data) {
            *bytes = word.to_le_bytes();
        }
        let address = Address(second >> (u64::BITS - ADDRESS_BITS));
        Ok(Self {
            received,
            carried: Some((address, bytes)),
        })
    }
}

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
    /// The other side is gone; when that is found in the list of received messages, what came
    /// from it has been taken in.
    #[error("the other side is gone")]
    Closed,
    /// The memory of the other side cannot be reached: it is not where it was said to be.
    #[error("the other side's memory cannot be reached (error {0} of the system)")]
    Unreachable(i32),
    /// The system does not let this process write the memory of another.
    #[error(
        "the system does not let this process write another's memory (error {0}): that takes what a \
         debugger may do (Yama's ptrace_scope, CAP_SYS_PTRACE); send from and into the arena, or \
         switch `foreign` off"
    )]
    Forbidden(i32),
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

    fn received(length: u32) -> Received {
        Received {
            source: NodeNumber(2),
            message: MessageId(3),
            length,
            words: [5, 6],
        }
    }

    #[test]
    fn an_entry_is_what_the_picture_says() {
        let plain = Entry {
            received: received(400),
            carried: None,
        };
        assert_eq!(plain.to_words(), [2 << 32 | 3, 400, 5, 6, 0, 0, 0, 0]);
        let mut data = [0; CARRIED_MOST];
        data[8] = 9;
        let carried = Entry {
            received: received(10),
            carried: Some((Address(0x1234), data)),
        };
        let first = 1 << 62 | 2 << 32 | 3;
        assert_eq!(carried.to_words(), [first, 0x0012_340a, 5, 6, 0, 9, 0, 0]);
    }

    proptest! {
        #[test]
        fn entries_survive_their_list(words: [u64; ENTRY_WORDS]) {
            if let Ok(entry) = Entry::from_words(words) {
                prop_assert_eq!(Entry::from_words(entry.to_words()), Ok(entry));
                prop_assert_eq!(entry.to_words()[0] >> 63, 0, "the ring's bit is left alone");
                let carries = entry.carried.is_some();
                prop_assert!(!carries || entry.received.length <= 32);
            }
        }
    }
}
