//! Both halves of a lane over memory that is plainly this process's own, and that nobody had to
//! map: miri follows every access there, and finds two that have no order between them.

use std::sync::mpsc;
use std::thread;

use bytes::BytesMut;

use crate::{LaneError, LaneReceiver, LaneSender, Piece, ReceivedSlot};

const UNITS: usize = if cfg!(miri) { 24 } else { 20_000 };
/// Bytes of the longest unit; no slot may hold fewer.
pub(crate) const UNIT_BYTES_MAX: usize = 100;

/// What is sent arrives, in order, as it was: lent, copied or gathered by one thread, taken as
/// slots and as copies by another, and read and given back by a third one, which is as slow as it
/// likes.
pub(crate) fn units_travel(
    mut sender: impl LaneSender,
    receiver: impl LaneReceiver,
    bytes_most: usize,
) {
    let unit = |number| unit(number, bytes_most);
    let (hand_over, handed_over) = mpsc::channel();
    thread::scope(|scope| {
        // Gone when this thread fails, so that the others do not go on for ever.
        let (mut receiver, hand_over) = (receiver, hand_over);
        scope.spawn(move || (0..UNITS).for_each(|number| send(&mut sender, number, &unit(number))));
        scope.spawn(move || {
            for (number, slot) in handed_over {
                let slot: ReceivedSlot = slot;
                let mut bytes = vec![0; slot.len()];
                slot.copy_out(0, &mut bytes);
                assert_eq!(bytes, unit(number));
            }
        });
        let mut batch = BytesMut::new();
        for number in 0..UNITS {
            if number % 3 == 0 {
                batch.clear();
                until_some(|| receiver.try_receive_copy(&mut batch));
                assert_eq!(batch, unit(number));
            } else {
                let slot = until_some(|| receiver.try_receive_slot());
                hand_over.send((number, slot)).unwrap();
            }
        }
        drop(hand_over);
    });
}

fn unit(number: usize, bytes_most: usize) -> Vec<u8> {
    let mark = u8::try_from(number % 251).unwrap();
    vec![mark; number * 7 % (bytes_most + 1)]
}

fn send(sender: &mut impl LaneSender, number: usize, unit: &[u8]) {
    let (one, other) = unit.split_at(unit.len() / 3);
    match number % 4 {
        0 => {
            let mut slot = until_some(|| sender.try_lend());
            slot.room(..).put(Piece::new(unit));
            sender.commit(slot, unit.len()).unwrap();
        }
        1 => until_true(|| sender.try_send_copy(unit)),
        2 => until_true(|| sender.try_send_gathered(&[Piece::new(one), Piece::new(other)])),
        _ => {
            drop(until_some(|| sender.try_lend()));
            until_true(|| sender.try_send_copy(unit));
        }
    }
}

fn until_some<T>(mut attempt: impl FnMut() -> Result<Option<T>, LaneError>) -> T {
    loop {
        match attempt().unwrap() {
            Some(done) => return done,
            None => thread::yield_now(),
        }
    }
}

fn until_true(mut attempt: impl FnMut() -> Result<bool, LaneError>) {
    until_some(|| Ok(attempt()?.then_some(())));
}
