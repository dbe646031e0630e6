//! Service messages over a channel.

use std::time::Duration;

use bytes::Bytes;
use madgate_vchannel::{
    Channel, Delivery, NodeId, PackError, Packing, ReceiveMode, TrySendError, UnpackError,
    Unpacking,
};
use thiserror::Error;

use super::envelope::{HEAD_BYTES, Head, HeadError};
use super::pattern::Messages;

/// Sends a service message; waits while the flow's retention budget is used up.
pub(crate) fn send(channel: &Channel, to: NodeId, message: (Head, Bytes)) -> Result<(), PackError> {
    packed_service(channel, to, message)?.end_packing()
}

/// As [`send`], for one whose delivery is to be waited for.
pub(crate) fn send_tracked(
    channel: &Channel,
    to: NodeId,
    message: (Head, Bytes),
) -> Result<Delivery, PackError> {
    packed_service(channel, to, message)?.end_packing_tracked()
}

fn packed_service(
    channel: &Channel,
    to: NodeId,
    (head, body): (Head, Bytes),
) -> Result<Packing<'_>, PackError> {
    let head = head.to_bytes();
    let mut packing = channel.begin_packing(to)?;
    packing.pack_safer(&head, ReceiveMode::Express)?;
    if !body.is_empty() {
        packing.pack_owned(body, ReceiveMode::Cheaper)?;
    }
    Ok(packing)
}

/// Larger payloads are given away, so that several are in flight; smaller ones are copied.
pub(crate) const COPY_BYTES: usize = 4 << 10;

/// Sends payload `sequence` of a bench; waits while the flow's retention budget is used up.
pub(crate) fn send_payload(
    channel: &Channel,
    to: NodeId,
    messages: &Messages,
    sequence: u64,
) -> Result<(), PackError> {
    packed(channel, to, messages, sequence)?.end_packing()
}

/// As [`send_payload`], for one whose delivery is to be waited for.
pub(crate) fn send_payload_tracked(
    channel: &Channel,
    to: NodeId,
    messages: &Messages,
    sequence: u64,
) -> Result<Delivery, PackError> {
    packed(channel, to, messages, sequence)?.end_packing_tracked()
}

#[inline]
fn packed<'m>(
    channel: &'m Channel,
    to: NodeId,
    messages: &'m Messages,
    sequence: u64,
) -> Result<Packing<'m>, PackError> {
    let mut packing = channel.begin_packing(to)?;
    if messages.size() <= COPY_BYTES {
        packing.pack_cheaper(messages.borrowed(sequence), ReceiveMode::Cheaper)?;
    } else {
        packing.pack_owned(messages.owned(sequence), ReceiveMode::Cheaper)?;
    }
    Ok(packing)
}

/// So long an answer that nobody asks for again waits at most, where its flow keeps as much as it may.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Answers with a service message, if that can be done at once: who misses it asks again.
pub(crate) fn answer(channel: &Channel, to: NodeId, message: (Head, Bytes)) -> Answered {
    answer_service(channel, to, message, Duration::ZERO)
}

/// The same to one who does not ask again. Who takes in what it is sent gets the answer, however little
/// this node keeps of what is not delivered; who does not is waited for only so long.
pub(crate) fn answer_once(channel: &Channel, to: NodeId, message: (Head, Bytes)) -> Answered {
    answer_service(channel, to, message, ANSWER_WITHIN)
}

/// As [`answer_once`], with a payload, to one that is `waited_for`.
pub(crate) fn answer_payload(
    channel: &Channel,
    to: NodeId,
    payload: Bytes,
    waited_for: bool,
) -> Answered {
    let blocks = [(payload, ReceiveMode::Cheaper)];
    let within = if waited_for {
        ANSWER_WITHIN
    } else {
        Duration::ZERO
    };
    answer_blocks(channel, to, &blocks, within)
}

fn answer_service(
    channel: &Channel,
    to: NodeId,
    (head, body): (Head, Bytes),
    within: Duration,
) -> Answered {
    let head = Bytes::copy_from_slice(&head.to_bytes());
    let blocks = [(head, ReceiveMode::Express), (body, ReceiveMode::Cheaper)];
    let present = if blocks[1].0.is_empty() { 1 } else { 2 };
    answer_blocks(channel, to, &blocks[..present], within)
}

/// Answers with a message, if that can be done in time.
///
/// A flow says once that messages before were not delivered, and then begins anew. Mostly those were
/// for a process that is gone.
fn answer_blocks(
    channel: &Channel,
    to: NodeId,
    blocks: &[(Bytes, ReceiveMode)],
    within: Duration,
) -> Answered {
    match channel.send_within(to, blocks, within) {
        Err(TrySendError::Pack(lost)) => Answered {
            sent: channel.send_within(to, blocks, within),
            lost: Some(lost),
        },
        sent => Answered { sent, lost: None },
    }
}

/// What became of an answer, and of those before it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Answered {
    pub(crate) sent: Result<Delivery, TrySendError>,
    /// Why messages before it were not delivered, where that is news.
    pub(crate) lost: Option<PackError>,
}

impl Answered {
    /// Whether it was sent or not does not matter, nor what was before: who misses it asks again, or is
    /// not there.
    pub(crate) fn or_drop(self) {
        if let Err(error) = self.sent {
            tracing::debug!(%error, "an answer is dropped");
        }
    }
}

/// A message, as far as its first block tells.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A service message, of which the body is still to be unpacked.
    Service(Head),
    /// A payload of so many bytes, which is still to be unpacked.
    Payload(usize),
}

/// Why a message is of no use.
#[derive(Debug, Error)]
pub(crate) enum TalkError {
    /// It has not arrived whole, or is not packed as it should be.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// Its head is none.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// It has no block at all.
    #[error("a message without blocks")]
    Empty,
}

/// Reads as much of a message as tells what it is.
pub(crate) fn read(unpacking: &mut Unpacking<'_>) -> Result<Incoming, TalkError> {
    let (length, mode) = unpacking.next_block()?.ok_or(TalkError::Empty)?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if mode != ReceiveMode::Express || length != HEAD_BYTES {
        return Ok(Incoming::Payload(length));
    }
    let mut head = [0; HEAD_BYTES];
    unpacking.unpack_express(&mut head)?;
    Ok(Incoming::Service(Head::parse(&head)?))
}

/// Reads the rest of a service message.
pub(crate) fn body(mut unpacking: Unpacking<'_>, head: &Head) -> Result<Bytes, TalkError> {
    let body = match head.body_bytes {
        0 => Bytes::new(),
        length => unpacking
            .unpack_owned(length, ReceiveMode::Cheaper)?
            .freeze(),
    };
    unpacking.end_unpacking()?;
    Ok(body)
}
