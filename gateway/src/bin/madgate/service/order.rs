//! What the two ends of a bench tell each other.
//!
//! The measuring end gives an order and waits for `Ready`. Then payloads go: messages of one
//! block, with nothing around them. `Stop` ends it; the answer is a `Report`, behind the last
//! payload where the answering end sends some. A gateway can be ordered to watch itself; then
//! the answer to `Stop` is what it has `Seen`.

use bytes::{BufMut, Bytes, BytesMut};

use super::envelope::Head;
use super::seen::Seen;

/// The largest message of a bench.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 << 20;

const ECHO: u8 = 0x30;
const SINK: u8 = 0x31;
const STOP: u8 = 0x32;
const SOURCE: u8 = 0x33;
const BOTH: u8 = 0x34;
const TAKE: u8 = 0x35;
const WATCH: u8 = 0x36;
const READY: u8 = 0x38;
const REPORT: u8 = 0x39;
const BUSY: u8 = 0x3a;
const SEEN: u8 = 0x3b;
const UNABLE: u8 = 0x3c;

/// From the measuring end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Send back what comes.
    Echo,
    /// Check and count what comes, in messages of so many bytes.
    Sink { message_bytes: u64 },
    /// Send messages of so many bytes.
    Source { message_bytes: u64 },
    /// Do both at once.
    Both { message_bytes: u64 },
    /// Check and count what comes, and answer each message with an empty one.
    Take { message_bytes: u64 },
    /// Watch what this gateway does.
    Watch,
    /// That is all.
    Stop,
}

/// From the answering end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// Payloads may come.
    Ready,
    /// It serves as many others as it can.
    Busy,
    /// It is no gateway, and has nothing to watch.
    Unable,
    /// What has come and gone.
    Report(Report),
    /// What the gateway has done meanwhile.
    Seen(Box<Seen>),
}

/// What the answering end has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Report {
    /// Messages that have arrived there.
    pub(crate) arrived: u64,
    /// How many of them were not as they should be.
    pub(crate) wrong: u64,
    /// Messages that it has sent.
    pub(crate) sent: u64,
}

impl Order {
    /// Whether a kind is an order.
    pub(crate) fn is_kind(kind: u8) -> bool {
        (ECHO..=WATCH).contains(&kind)
    }

    pub(crate) fn encode(self, tag: u64) -> (Head, Bytes) {
        let (kind, number) = match self {
            Self::Echo => (ECHO, 0),
            Self::Sink { message_bytes } => (SINK, message_bytes),
            Self::Source { message_bytes } => (SOURCE, message_bytes),
            Self::Both { message_bytes } => (BOTH, message_bytes),
            Self::Take { message_bytes } => (TAKE, message_bytes),
            Self::Watch => (WATCH, 0),
            Self::Stop => (STOP, 0),
        };
        head(kind, tag, number, Bytes::new())
    }

    pub(super) fn decode(head: &Head) -> Option<Self> {
        let message_bytes = head.number;
        match head.kind {
            ECHO => Some(Self::Echo),
            SINK => Some(Self::Sink { message_bytes }),
            SOURCE => Some(Self::Source { message_bytes }),
            BOTH => Some(Self::Both { message_bytes }),
            TAKE => Some(Self::Take { message_bytes }),
            WATCH => Some(Self::Watch),
            STOP => Some(Self::Stop),
            _ => None,
        }
    }
}

impl Answer {
    pub(super) fn encode(&self, tag: u64) -> (Head, Bytes) {
        match self {
            Self::Ready => head(READY, tag, 0, Bytes::new()),
            Self::Busy => head(BUSY, tag, 0, Bytes::new()),
            Self::Unable => head(UNABLE, tag, 0, Bytes::new()),
            Self::Report(report) => {
                let mut body = BytesMut::with_capacity(16);
                body.put_u64_le(report.wrong);
                body.put_u64_le(report.sent);
                head(REPORT, tag, report.arrived, body.freeze())
            }
            Self::Seen(seen) => head(SEEN, tag, 0, seen.encode()),
        }
    }

    /// Reads an answer.
    pub(crate) fn decode(head: &Head, body: &[u8]) -> Option<Self> {
        match head.kind {
            READY => Some(Self::Ready),
            BUSY => Some(Self::Busy),
            UNABLE => Some(Self::Unable),
            REPORT => {
                let (wrong, rest) = body.split_first_chunk()?;
                Some(Self::Report(Report {
                    arrived: head.number,
                    wrong: u64::from_le_bytes(*wrong),
                    sent: u64::from_le_bytes(*rest.first_chunk()?),
                }))
            }
            SEEN => Some(Self::Seen(Box::new(Seen::decode(body)?))),
            _ => None,
        }
    }
}

fn head(kind: u8, tag: u64, number: u64, body: Bytes) -> (Head, Bytes) {
    let head = Head {
        kind,
        body_bytes: body.len(),
        tag,
        number,
    };
    (head, body)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::service::seen;

    fn orders() -> impl Strategy<Value = Order> {
        prop_oneof![
            Just(Order::Echo),
            any::<u64>().prop_map(|message_bytes| Order::Sink { message_bytes }),
            any::<u64>().prop_map(|message_bytes| Order::Source { message_bytes }),
            any::<u64>().prop_map(|message_bytes| Order::Both { message_bytes }),
            any::<u64>().prop_map(|message_bytes| Order::Take { message_bytes }),
            Just(Order::Watch),
            Just(Order::Stop),
        ]
    }

    fn answers() -> impl Strategy<Value = Answer> {
        let reports = any::<[u64; 3]>().prop_map(|[arrived, wrong, sent]| {
            Answer::Report(Report {
                arrived,
                wrong,
                sent,
            })
        });
        prop_oneof![
            Just(Answer::Ready),
            Just(Answer::Busy),
            Just(Answer::Unable),
            reports,
            seen::tests::any_seen().prop_map(|seen| Answer::Seen(Box::new(seen))),
        ]
    }

    #[test]
    fn orders_and_answers_survive_the_way() {
        let message_bytes = 77;
        for order in [
            Order::Echo,
            Order::Sink { message_bytes },
            Order::Source { message_bytes },
            Order::Both { message_bytes },
            Order::Take { message_bytes },
            Order::Watch,
            Order::Stop,
        ] {
            let (head, body) = order.encode(9);
            assert!(Order::is_kind(head.kind) && body.is_empty() && head.tag == 9);
            assert_eq!(Order::decode(&head), Some(order));
        }
        let report = Report {
            arrived: 1,
            wrong: 2,
            sent: u64::MAX,
        };
        for answer in [
            Answer::Ready,
            Answer::Busy,
            Answer::Unable,
            Answer::Report(report),
            Answer::Seen(Box::default()),
        ] {
            let (head, body) = answer.encode(9);
            assert!(!Order::is_kind(head.kind));
            assert_eq!(Answer::decode(&head, &body), Some(answer));
            assert_eq!(Order::decode(&head), None);
        }
        let (head, body) = Answer::Report(report).encode(9);
        assert_eq!(Answer::decode(&head, &body[..15]), None);
        assert_eq!(Answer::decode(&Head { kind: SEEN, ..head }, b"{"), None);
    }

    proptest! {
        #[test]
        fn any_order_and_answer_survives_the_way(order in orders(), answer in answers(), tag: u64) {
            let (head, body) = order.encode(tag);
            prop_assert_eq!((head.tag, head.body_bytes), (tag, body.len()));
            prop_assert_eq!(Order::decode(&head), Some(order));
            let (head, body) = answer.encode(tag);
            prop_assert_eq!((head.tag, head.body_bytes), (tag, body.len()));
            prop_assert_eq!(Answer::decode(&head, &body), Some(answer));
        }

        #[test]
        fn no_bytes_of_a_peer_are_too_strange(
            kind in ECHO - 1..=UNABLE + 1,
            number: u64,
            body in vec(any::<u8>(), 0..40),
        ) {
            let head = Head { kind, body_bytes: body.len(), tag: 0, number };
            if let Some(order) = Order::decode(&head) {
                prop_assert!(Order::is_kind(kind));
                prop_assert_eq!(Order::decode(&order.encode(0).0), Some(order));
            }
            if let Some(answer) = Answer::decode(&head, &body) {
                prop_assert!(!Order::is_kind(kind));
                let (head, body) = answer.encode(0);
                prop_assert_eq!(Answer::decode(&head, &body), Some(answer));
            }
        }
    }
}
