//! Small frames of many small blocks, kept as they came.
//!
//! A block that waits to be unpacked costs about a hundred bytes besides its own, and its
//! sender paid eight for it when it shares a frame with many others. Such a frame is kept as
//! it came, and taken apart block by block as they are unpacked: what waits takes no more
//! memory than about twice what was granted for it.

use bytes::{Buf, Bytes};
use madgate_gtm::Record;
use madgate_gtm::wire::{DESCRIPTOR_BYTES, Descriptor};

/// A frame of more blocks than this is kept as it came.
const BLOCKS_APART: usize = 4;

/// The blocks of one small frame, which reassembly has taken in and found right.
#[derive(Debug)]
pub(crate) struct Crumbs {
    pub(super) message: u32,
    /// Number of the first block.
    block: u32,
    /// Descriptor and bytes of one block after the other. The last may not be complete.
    payload: Bytes,
}

impl Crumbs {
    /// Whether a payload of described blocks holds so many that it is to be kept as it is.
    pub(super) fn are_many(payload: &[u8]) -> bool {
        let mut rest = payload;
        for _ in 0..BLOCKS_APART {
            let Some((descriptor, data)) = rest.split_first_chunk::<DESCRIPTOR_BYTES>() else {
                return false;
            };
            // What is wrong with it, reassembly will say.
            let length = Descriptor::parse(*descriptor).map_or(u64::MAX, |block| block.length());
            let Some(after) = usize::try_from(length).ok().and_then(|at| data.get(at..)) else {
                return false;
            };
            rest = after;
        }
        !rest.is_empty()
    }

    /// Keeps the frame whose first block is `first`.
    pub(super) fn new(first: &Record, payload: &[u8]) -> Self {
        Self {
            message: first.message,
            block: first.block,
            payload: Bytes::copy_from_slice(payload),
        }
    }

    /// Whether all blocks were taken.
    pub(super) fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }
}

impl Iterator for Crumbs {
    type Item = (Record, Bytes);

    /// The next block, with its bytes.
    fn next(&mut self) -> Option<Self::Item> {
        let descriptor = *self.payload.first_chunk::<DESCRIPTOR_BYTES>()?;
        // It was parsed before.
        let descriptor = Descriptor::parse(descriptor).ok()?;
        self.payload.advance(DESCRIPTOR_BYTES);
        let here = self.payload.len();
        let length = usize::try_from(descriptor.length()).map_or(here, |length| length.min(here));
        let record = Record {
            message: self.message,
            block: self.block,
            descriptor,
            offset: 0,
            length,
        };
        self.block = self.block.wrapping_add(1);
        Some((record, self.payload.split_to(length)))
    }
}

#[cfg(test)]
mod tests {
    use madgate_gtm::wire::{Flags, FlowKey, Header, Kind, ReceiveMode, SendMode};
    use madgate_gtm::{Reassembly, Record};

    use super::*;

    /// Records of these lengths, the last with only `cut` of its bytes.
    fn payload(lengths: &[usize], cut: usize) -> Vec<u8> {
        let mut payload = Vec::new();
        for (place, &length) in (1..).zip(lengths) {
            let bytes = u64::try_from(length).unwrap();
            let descriptor = Descriptor::new(bytes, SendMode::Safer, ReceiveMode::Express);
            payload.extend_from_slice(&descriptor.unwrap().to_bytes());
            payload.extend(std::iter::repeat_n(place, length));
        }
        payload.truncate(payload.len() - cut);
        payload
    }

    #[test]
    fn blocks_come_out_as_reassembly_saw_them() {
        for (lengths, cut) in [
            (&[0, 0, 0, 0, 0][..], 0),
            (&[1, 0, 300, 2, 0, 7], 0),
            (&[5, 4, 3, 2, 1, 500], 499),
            (&[5, 4, 3, 2, 1, 500], 500),
        ] {
            let payload = payload(lengths, cut);
            assert!(Crumbs::are_many(&payload), "{lengths:?}");
            let flow = FlowKey {
                channel: 0,
                source: 1,
                destination: 2,
            };
            let mut header = Header::new(Kind::Data, flow, 1);
            header.flags = Flags::DESCRIBED;
            header.message = 9;
            header.length = u32::try_from(payload.len()).unwrap();
            let mut seen: Vec<(Record, Vec<u8>)> = Vec::new();
            Reassembly::default()
                .handle_small(&header, &payload, |record, bytes| {
                    seen.push((record, bytes.to_vec()));
                })
                .unwrap();
            let mut crumbs = Crumbs::new(&seen[0].0, &payload);
            for (record, bytes) in seen {
                assert!(!crumbs.is_empty());
                let (found, contents) = crumbs.next().unwrap();
                assert_eq!((found, &contents[..]), (record, &bytes[..]));
            }
            assert!(crumbs.is_empty());
            assert!(crumbs.next().is_none());
        }
    }

    #[test]
    fn few_blocks_are_not_many() {
        assert!(!Crumbs::are_many(&payload(&[8], 0)));
        assert!(!Crumbs::are_many(&payload(&[0, 1, 2, 3], 0)));
        assert!(Crumbs::are_many(&payload(&[0, 1, 2, 3, 0], 0)));
        assert!(!Crumbs::are_many(&[]));
        assert!(!Crumbs::are_many(&[0xff; 100]));
    }
}
