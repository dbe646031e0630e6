//! What a tuner and the nodes of its route tell each other: service messages whose bodies are
//! JSON, as they are few and people may have to read them.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::service::envelope::Head;

/// The longest body of such a message.
pub(crate) const MAX_BODY_BYTES: usize = 256 << 10;

const ASK: u8 = 0x40;
const TRY: u8 = 0x41;
const END: u8 = 0x42;
const STATE: u8 = 0x48;
const REFUSED: u8 = 0x49;

/// From the tuner. The tag of a message is the tuner's own, its number that of the trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// How it stands; also takes or renews the lease.
    Ask(Ask),
    /// Other values, for as long as the lease lasts.
    Try(Try),
    /// That was all: back to the values of the file.
    End,
}

/// How it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ask {
    /// How long nobody else may tune this node.
    pub(crate) lease_ms: u64,
    /// Knobs whose values in this node's file are of interest.
    pub(crate) names: Vec<String>,
}

/// Other values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Try {
    /// After so long without another order the node goes back to its file's values.
    pub(crate) lease_ms: u64,
    /// By the names of knobs.
    pub(crate) values: BTreeMap<String, String>,
}

/// From a node of the route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    State(State),
    /// The order is not obeyed, for this reason.
    Refused(String),
}

/// How it stands with a node that can be tuned.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The trial of this tuner whose values are in force; none: those of the file are.
    pub(crate) in_force: Option<u64>,
    /// Whether the values of another tuner are, who has gone: the node goes back to its file's.
    #[serde(default)]
    pub(crate) of_another: bool,
    /// The trial that is about to begin.
    pub(crate) coming: Option<u64>,
    /// The last trial that could not begin, and why.
    pub(crate) failed: Option<(u64, String)>,
    /// The processors that this node's threads may be pinned to.
    pub(crate) processors: Vec<usize>,
    /// What the node's file says of the knobs that were asked for.
    pub(crate) values: BTreeMap<String, String>,
}

impl Order {
    /// Whether a kind is an order.
    pub(crate) fn is_kind(kind: u8) -> bool {
        (ASK..=END).contains(&kind)
    }

    pub(crate) fn encode(&self, tag: u64, number: u64) -> serde_json::Result<(Head, Bytes)> {
        let (kind, body) = match self {
            Self::Ask(ask) => (ASK, serde_json::to_vec(ask)?),
            Self::Try(order) => (TRY, serde_json::to_vec(order)?),
            Self::End => (END, Vec::new()),
        };
        Ok(message(kind, tag, number, body))
    }

    pub(crate) fn decode(head: &Head, body: &[u8]) -> Option<Self> {
        match head.kind {
            ASK => serde_json::from_slice(body).ok().map(Self::Ask),
            TRY => serde_json::from_slice(body).ok().map(Self::Try),
            END => Some(Self::End),
            _ => None,
        }
    }
}

impl Answer {
    pub(crate) fn encode(&self, head: &Head) -> serde_json::Result<(Head, Bytes)> {
        let (kind, body) = match self {
            Self::State(state) => (STATE, serde_json::to_vec(state)?),
            Self::Refused(reason) => (REFUSED, reason.clone().into_bytes()),
        };
        Ok(message(kind, head.tag, head.number, body))
    }

    pub(crate) fn decode(head: &Head, body: &[u8]) -> Option<Self> {
        match head.kind {
            STATE => serde_json::from_slice(body).ok().map(Self::State),
            REFUSED => Some(Self::Refused(String::from_utf8_lossy(body).into_owned())),
            _ => None,
        }
    }
}

fn message(kind: u8, tag: u64, number: u64, body: Vec<u8>) -> (Head, Bytes) {
    let head = Head {
        kind,
        body_bytes: body.len(),
        tag,
        number,
    };
    (head, body.into())
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use proptest::{option, sample};

    use super::*;

    fn values() -> impl Strategy<Value = BTreeMap<String, String>> {
        btree_map(any::<String>(), any::<String>(), 0..4)
    }

    fn orders() -> impl Strategy<Value = Order> {
        let ask = (any::<u64>(), vec(any::<String>(), 0..4))
            .prop_map(|(lease_ms, names)| Order::Ask(Ask { lease_ms, names }));
        let values = (any::<u64>(), values())
            .prop_map(|(lease_ms, values)| Order::Try(Try { lease_ms, values }));
        prop_oneof![ask, values, Just(Order::End)]
    }

    fn answers() -> impl Strategy<Value = Answer> {
        let trials = (
            option::of(any::<u64>()),
            option::of(any::<u64>()),
            option::of(any::<(u64, String)>()),
            any::<bool>(),
        );
        let state = (trials, vec(any::<usize>(), 0..4), values()).prop_map(
            |((in_force, coming, failed, of_another), processors, values)| {
                Answer::State(State {
                    in_force,
                    of_another,
                    coming,
                    failed,
                    processors,
                    values,
                })
            },
        );
        prop_oneof![state, any::<String>().prop_map(Answer::Refused)]
    }

    #[test]
    fn messages_survive_the_way_and_others_are_none() {
        let values = BTreeMap::from([("gateway.depth".to_owned(), "4".to_owned())]);
        for order in [
            Order::Ask(Ask {
                lease_ms: 1,
                names: vec!["gateway.depth".to_owned()],
            }),
            Order::Try(Try {
                lease_ms: 2,
                values: values.clone(),
            }),
            Order::End,
        ] {
            let (head, body) = order.encode(7, 9).unwrap();
            assert!(Order::is_kind(head.kind) && (head.tag, head.number) == (7, 9));
            assert_eq!(Order::decode(&head, &body), Some(order));
            assert_eq!(Answer::decode(&head, &body), None);
        }
        let state = State {
            in_force: Some(3),
            failed: Some((2, "no".to_owned())),
            processors: vec![0, 5],
            values,
            ..State::default()
        };
        for answer in [Answer::State(state), Answer::Refused("no".to_owned())] {
            let (asked, _) = Order::End.encode(7, 9).unwrap();
            let (head, body) = answer.encode(&asked).unwrap();
            assert_eq!((head.tag, head.number), (7, 9));
            assert_eq!(Answer::decode(&head, &body), Some(answer));
            assert_eq!(Order::decode(&head, &body), None);
        }
        let (head, _) = message(TRY, 0, 0, Vec::new());
        for bad in [
            "",
            "{}",
            "{\"lease_ms\":-1,\"values\":{}}",
            "[",
            "{\"lease_ms\":1,\"values\":[]}",
        ] {
            assert_eq!(Order::decode(&head, bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_order_and_answer_survives_the_way(
            order in orders(),
            answer in answers(),
            tag: u64,
            number: u64,
        ) {
            let (asked, body) = order.encode(tag, number).unwrap();
            prop_assert_eq!((asked.tag, asked.number), (tag, number));
            prop_assert_eq!(asked.body_bytes, body.len());
            prop_assert_eq!(Order::decode(&asked, &body), Some(order));
            let (head, body) = answer.encode(&asked).unwrap();
            prop_assert_eq!((head.tag, head.number), (tag, number));
            prop_assert_eq!(head.body_bytes, body.len());
            prop_assert_eq!(Answer::decode(&head, &body), Some(answer));
        }

        #[test]
        fn no_bytes_of_a_peer_are_too_strange(
            kind in ASK - 1..=REFUSED + 1,
            order in orders(),
            answer in answers(),
            place: sample::Index,
            with in vec(any::<u8>(), 0..4),
        ) {
            let (head, body) = order.encode(0, 0).unwrap();
            let (answered, answer) = answer.encode(&head).unwrap();
            for (head, body) in [(head, body), (answered, answer)] {
                // Nearly right: some bytes are others, or there are more or fewer.
                let mut body = body.to_vec();
                let at = place.index(body.len() + 1);
                body.splice(at..body.len().min(at + 1), with.clone());
                for head in [head, Head { kind, ..head }] {
                    if let Some(order) = Order::decode(&head, &body) {
                        let (head, body) = order.encode(0, 0).unwrap();
                        prop_assert_eq!(Order::decode(&head, &body), Some(order));
                    }
                    if let Some(answer) = Answer::decode(&head, &body) {
                        let (head, body) = answer.encode(&head).unwrap();
                        prop_assert_eq!(Answer::decode(&head, &body), Some(answer));
                    }
                }
            }
        }
    }
}
