//! The messages of the two transmission modules, as PUT's identifiers and words say them
//! (paper 000, section 3.1; report 004, section II.3.1).
//!
//! | message | identifier | data | words |
//! |---|---|---|---|
//! | SHORT | control slot | in the slot | bytes of parts before this one |
//! | REQ | request | | bytes of the message |
//! | RSP | request, or a group of buffers | where the message goes | see below |
//! | DATA | buffer, or request | in the receiver's memory | for a buffer, as SHORT |
//! | CRDT | group of control slots | | which of them are free again |
//!
//! An identifier is 4 bits of kind and 28 bits of number. Control slots and buffers go back in
//! groups of 64, a bit each: the words of an RSP that nobody asked for are the control slots
//! and the buffers of its group that are free again, so that credit rides on it. A CRDT is what
//! is sent when there is only credit.
//!
//! A message of several parts is an entry for each, with one identifier, and only the last is told
//! of: it says how many bytes the others have put in front of it.

use super::put::{MessageId, Received};

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Data in a control slot.
    Short,
    /// A large message waits to be sent.
    Request,
    /// Where a large message goes.
    Response,
    /// A large message has been put.
    Data,
    /// Control slots are free again.
    Credit,
}

const KIND_SHIFT: u32 = 28;
/// The largest number that an identifier has room for.
const NUMBER_MAX: u32 = (1 << KIND_SHIFT) - 1;

/// Slots of a group.
pub(super) const GROUP: u32 = u64::BITS;

/// The identifier of a message.
pub(super) fn identifier(kind: Kind, number: u32) -> MessageId {
    debug_assert!(number <= NUMBER_MAX);
    let kind = match kind {
        Kind::Short => 1,
        Kind::Request => 2,
        Kind::Response => 3,
        Kind::Data => 4,
        Kind::Credit => 5,
    };
    MessageId(kind << KIND_SHIFT | (number & NUMBER_MAX))
}

/// What an identifier says, if it says anything.
pub(super) fn kind_of(MessageId(id): MessageId) -> Option<(Kind, u32)> {
    let kind = match id >> KIND_SHIFT {
        1 => Kind::Short,
        2 => Kind::Request,
        3 => Kind::Response,
        4 => Kind::Data,
        5 => Kind::Credit,
        _ => return None,
    };
    Some((kind, id & NUMBER_MAX))
}

/// The words of the last part of a message, before which others have put so many bytes.
pub(super) fn parts_before(bytes: u64) -> [u64; 2] {
    [bytes, 0]
}

/// How long a message is whose last part has come; what nothing has room for counts as
/// `u32::MAX`.
pub(super) fn length_with_parts(last: &Received) -> u32 {
    let [before, _] = last.words;
    u32::try_from(before.saturating_add(last.length.into())).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::put::NodeNumber;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn identifiers_are_what_the_table_says() {
        let id = identifier(Kind::Short, 7);
        assert_eq!(id, MessageId(0x1000_0007));
        assert_eq!(identifier(Kind::Credit, NUMBER_MAX), MessageId(0x5fff_ffff));
        assert_eq!(kind_of(MessageId(0)), None);
        assert_eq!(kind_of(MessageId(u32::MAX)), None);
    }

    #[test]
    fn parts_add_up_and_never_wrap() {
        let length_of = |length, words| {
            length_with_parts(&Received {
                source: NodeNumber(0),
                message: MessageId(0),
                length,
                words,
            })
        };
        assert_eq!(length_of(7, [0; 2]), 7);
        assert_eq!(length_of(7, parts_before(48)), 55);
        assert_eq!(length_of(1, parts_before(u32::MAX.into())), u32::MAX);
        assert_eq!(length_of(1, [u64::MAX, u64::MAX]), u32::MAX);
    }

    proptest! {
        #[test]
        fn what_an_identifier_says_gives_it_again(id: u32) {
            if let Some((kind, number)) = kind_of(MessageId(id)) {
                prop_assert_eq!(identifier(kind, number), MessageId(id));
            }
        }
    }
}
