//! How long the messages in a bundle are: each has one or two bytes in front that say so, seven bits
//! in each, the lower ones first, as in LEB128. In the first of two the highest bit is set.

use std::ops::Range;

use bytes::{BufMut, BytesMut};

use super::{BUNDLED_BYTES, DESCRIPTOR_BYTES, WireError};

/// What one byte can say.
const SHORT_MOST: usize = 0x7f;
/// Says that another byte follows.
const MORE: u8 = 0x80;

const _: () = assert!(BUNDLED_BYTES < 1 << 14, "two bytes are enough");

/// Bytes in front of a message in a bundle whose records have so many.
#[must_use]
pub const fn bundled_prefix_bytes(records: usize) -> usize {
    if records <= SHORT_MOST { 1 } else { 2 }
}

/// Appends what is in front of a message in a bundle whose records have so many bytes.
#[inline]
pub(crate) fn push_prefix(payload: &mut BytesMut, records: usize) {
    debug_assert!(records <= BUNDLED_BYTES);
    let [low, ..] = records.to_le_bytes();
    let [high, ..] = (records >> 7).to_le_bytes();
    // Each of a length that is known here.
    match bundled_prefix_bytes(records) {
        1 => payload.put_u8(low),
        _ => payload.extend_from_slice(&[low | MORE, high]),
    }
}

/// How many bytes the records of a message in a bundle have, which begins with these two.
///
/// # Errors
/// [`WireError::Bundle`] when they are too few to be any, more than [`BUNDLED_BYTES`], or said in more
/// bytes than it takes.
#[inline]
pub fn bundled_bytes(begin: [u8; 2]) -> Result<usize, WireError> {
    let records = match begin {
        [short @ ..MORE, _] => usize::from(short),
        [low, high @ 1..MORE] => usize::from(low ^ MORE) | usize::from(high) << 7,
        _ => return Err(WireError::Bundle),
    };
    if (DESCRIPTOR_BYTES..=BUNDLED_BYTES).contains(&records) {
        Ok(records)
    } else {
        Err(WireError::Bundle)
    }
}

/// Where the records of the first message are in what is left of a bundle's payload. The next message
/// begins behind them.
///
/// # Errors
/// As [`bundled_bytes`], and when they are not all there.
#[inline]
pub(crate) fn first(payload: &[u8]) -> Result<Range<usize>, WireError> {
    let begin = payload.first_chunk().ok_or(WireError::Bundle)?;
    let records = bundled_bytes(*begin)?;
    let start = bundled_prefix_bytes(records);
    let end = start + records;
    if end <= payload.len() {
        Ok(start..end)
    } else {
        Err(WireError::Bundle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_read_as_it_was_written() {
        for length in DESCRIPTOR_BYTES..=BUNDLED_BYTES {
            let mut payload = BytesMut::new();
            push_prefix(&mut payload, length);
            let bytes = payload.len();
            assert_eq!(bytes, bundled_prefix_bytes(length));
            payload.resize(bytes + length + 3, 0);
            assert_eq!(first(&payload), Ok(bytes..bytes + length));
            payload.truncate(bytes + length - 1);
            assert_eq!(first(&payload), Err(WireError::Bundle), "{length}");
        }
        assert_eq!([127, 128].map(bundled_prefix_bytes), [1, 2]);
    }

    #[test]
    fn what_is_no_length_is_refused() {
        let rest = [0; 20];
        let with_rest = |prefix: &[u8]| first(&[prefix, &rest].concat());
        assert_eq!(with_rest(&[8]), Ok(1..9));
        // No records, or a part of a descriptor.
        assert_eq!(with_rest(&[0]), Err(WireError::Bundle));
        assert_eq!(with_rest(&[7]), Err(WireError::Bundle));
        // More than is bundled.
        let [low, ..] = (BUNDLED_BYTES + 1).to_le_bytes();
        let longer = [&[low | MORE, 9], &[0; 2000][..]].concat();
        assert_eq!(bundled_bytes([longer[0] - 1, 9]), Ok(BUNDLED_BYTES));
        assert_eq!(first(&longer), Err(WireError::Bundle));
        // Two bytes for what one can say, and the first of three.
        assert_eq!(with_rest(&[0x88, 0]), Err(WireError::Bundle));
        assert_eq!(with_rest(&[0x88, 0x80, 1]), Err(WireError::Bundle));
        // The first of two, and nothing at all.
        assert_eq!(first(&[0x88]), Err(WireError::Bundle));
        assert_eq!(first(&[]), Err(WireError::Bundle));
    }
}
