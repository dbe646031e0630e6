//! What the fuzz targets do, so that plain tests can replay their corpora: each is a function
//! from any bytes to nothing, which panics where it finds something wrong.

use std::os::unix::net::UnixStream;

use super::entry::Entry;
use super::greeting::{DIALECT, decode, encode};
use super::layout::{Geometry, PUBLISH_AT};
use super::memory::{OwnMemory, PeerMemory};
use super::receiver::receiver;
use crate::LaneReceiver;
use crate::local::bell::Bell;
use crate::local::greeting::Greeting;
use crate::local::ring::RingWriter;

/// A greeting: what is not refused says what its bytes say, and memory of that size has all the
/// slots, each by itself.
///
/// A byte says whether the size of the memory is made right.
pub fn greeting(bytes: &[u8]) {
    let Some((kind, said)) = bytes.split_first() else {
        return;
    };
    let mut said = said.to_vec();
    if kind & 1 == 0 {
        agree(&mut said);
    }
    let geometry = Greeting::decode(&said, DIALECT).and_then(|greeting| {
        assert_eq!(greeting.encode(DIALECT), said[..]);
        let geometry = decode(&greeting.terms)?;
        assert_eq!(encode(geometry), greeting.terms);
        Ok(geometry)
    });
    match geometry {
        Ok(geometry) => receives_every_slot(geometry),
        Err(what) => assert!(!what.is_empty(), "refused without a word"),
    }
}

/// Makes the size of the memory what the slots take, so that other sizes of these are tried.
fn agree(said: &mut [u8]) {
    let Some([s0, s1, s2, s3, b0, b1, b2, b3, memory @ ..]) = said.get_mut(8..24) else {
        return;
    };
    let slots = u32::from_le_bytes([*s0, *s1, *s2, *s3]);
    let slot_bytes = u32::from_le_bytes([*b0, *b1, *b2, *b3]);
    if let Ok(geometry) = Geometry::new(slots.into(), slot_bytes.into()) {
        memory.copy_from_slice(&(geometry.memory_bytes() as u64).to_le_bytes());
    }
}

/// A peer with such memory fills all its slots.
fn receives_every_slot(geometry: Geometry) {
    let (memory, file) = OwnMemory::new(geometry).expect("memory");
    let peer = PeerMemory::new(&file, geometry).expect("memory as it was said");
    let (own, _) = OwnMemory::new(Geometry::new(1, 1).expect("within the limits")).expect("memory");
    let (near, _far) = UnixStream::pair().expect("sockets");
    let mut receiver = receiver(&own, &peer, Bell::new(near.into()));
    let words = memory.words(PUBLISH_AT, geometry.ring_entries());
    let mut publisher = RingWriter::new(words);
    let length = geometry.slot_bytes();
    let mut held = Vec::new();
    for slot in 0..geometry.slots() {
        publisher.publish(Entry { slot, length }.to_words());
        let slot = receiver.try_receive_slot().expect("an honest peer");
        let slot = slot.expect("it was published");
        // Its last byte is there.
        slot.copy_out(slot.len() - 1, &mut [0]);
        held.push(slot);
    }
    assert_eq!(held.len(), geometry.slots() as usize);
}

#[cfg(test)]
mod tests {
    use madgate_gtm::fuzzing::replay;

    #[test]
    fn corpora_and_what_is_near_them_hold() {
        replay(env!("CARGO_MANIFEST_DIR"), "shm_greeting", super::greeting);
    }
}
