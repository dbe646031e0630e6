//! Messages whose bytes tell which they are.

use bytes::Bytes;
use madgate_vchannel::ReceiveMode;

use crate::world::{LONG, Node};

/// The bytes of a message: nothing that repeats where a fragment or a batch does.
pub(crate) fn pattern(seed: u64, length: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}

/// Sends messages of these lengths, numbered from 0.
pub(crate) fn send_all(from: &Node, to: &str, lengths: &[usize]) {
    send_from(from, to, 0, lengths);
}

/// The same, numbered from `first`.
pub(crate) fn send_from(from: &Node, to: &str, first: u64, lengths: &[usize]) {
    let to = from.session.cluster().node(to).unwrap();
    for (number, &length) in (first..).zip(lengths) {
        let mut packing = from.channel.begin_packing(to).unwrap();
        packing
            .pack_owned(pattern(number, length), ReceiveMode::Cheaper)
            .unwrap();
        packing.end_packing().unwrap();
    }
}

/// One message, of which all is known to have arrived then.
pub(crate) fn send_delivered(from: &Node, to: &str, number: u64, length: usize) {
    let to = from.session.cluster().node(to).unwrap();
    let mut packing = from.channel.begin_packing(to).unwrap();
    packing
        .pack_owned(pattern(number, length), ReceiveMode::Cheaper)
        .unwrap();
    packing.end_packing_delivered().unwrap();
}

/// Receives them, in order and as they were sent.
pub(crate) fn receive_all(at: &Node, lengths: &[usize]) {
    receive_from(at, 0, lengths);
}

/// The same for messages that are numbered from `first`.
pub(crate) fn receive_from(at: &Node, first: u64, lengths: &[usize]) {
    for (number, &length) in (first..).zip(lengths) {
        let mut unpacking = at
            .channel
            .begin_unpacking_within(LONG)
            .unwrap()
            .expect("a message");
        let block = unpacking
            .unpack_owned(length, ReceiveMode::Cheaper)
            .unwrap();
        unpacking.end_unpacking().unwrap();
        assert!(
            block == pattern(number, length),
            "message {number} of {length} bytes"
        );
    }
}
