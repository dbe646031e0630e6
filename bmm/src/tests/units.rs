//! Units whose bytes say which they are.

use std::sync::Arc;

use bytes::Bytes;
use madgate_tm::{Pipes, ReceivedSlot};

use crate::{Body, Buffer, HEAD_BYTES};

/// Length and number.
pub(super) const UNIT_HEAD_BYTES: usize = 8;

/// A unit of `length` bytes, or of as many as it takes at least.
pub(super) fn unit(number: u32, length: usize) -> Vec<u8> {
    let length = length.max(UNIT_HEAD_BYTES);
    let mut unit = Vec::with_capacity(length);
    unit.extend_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
    unit.extend_from_slice(&number.to_le_bytes());
    let pattern = number
        .to_le_bytes()
        .into_iter()
        .cycle()
        .zip((0..=250_u8).cycle());
    unit.extend(
        pattern
            .map(|(number, place)| number ^ place)
            .take(length - UNIT_HEAD_BYTES),
    );
    unit
}

/// What an outbox is told about units.
pub(super) fn unit_length(bytes: &[u8]) -> usize {
    usize::try_from(u32::from_le_bytes(bytes[..4].try_into().unwrap())).unwrap()
}

/// The number of the unit at the front of some bytes, which go on behind it; checks every
/// byte of it.
pub(super) fn read_unit(bytes: &mut &[u8]) -> u32 {
    let number = u32::from_le_bytes(bytes[4..UNIT_HEAD_BYTES].try_into().unwrap());
    let (first, rest) = bytes.split_at(unit_length(bytes));
    assert!(
        first == unit(number, first.len()),
        "unit {number} is damaged"
    );
    *bytes = rest;
    number
}

/// The numbers of the units that some bytes are.
pub(super) fn read_units(mut bytes: &[u8]) -> Vec<u32> {
    let mut numbers = Vec::new();
    while !bytes.is_empty() {
        numbers.push(read_unit(&mut bytes));
    }
    numbers
}

/// A unit whose first `head` bytes stand in the buffer's head.
pub(super) fn headed(unit: &[u8], head: usize) -> Buffer {
    let head = head.min(HEAD_BYTES).min(unit.len());
    Buffer::with_head(&unit[..head], Bytes::copy_from_slice(&unit[head..]))
}

/// A unit whose body is in the middle of a slot that arrived.
pub(super) fn received(unit: &[u8], head: usize) -> Buffer {
    let head = head.min(HEAD_BYTES).min(unit.len());
    let mut memory = b"before".to_vec();
    let start = memory.len();
    memory.extend_from_slice(&unit[head..]);
    let range = start..memory.len();
    memory.extend_from_slice(b"behind");
    let body = Body::Received {
        slot: ReceivedSlot::detached(memory),
        range,
        counted: Arc::new(()),
    };
    Buffer::unit(&unit[..head], body)
}

/// A unit in a pipe.
pub(super) fn piped(unit: &[u8]) -> Buffer {
    let mut pipe = Pipes::new(1).take(unit.len()).unwrap().unwrap();
    assert_eq!(pipe.write(unit).unwrap(), unit.len());
    Buffer::of(Body::Piped(pipe))
}
