//! A link that runs steadily allocates nothing for what passes through its outbox.

use std::os::fd::BorrowedFd;

use bytes::Bytes;
use madgate_bmm::{Borrowed, Buffer, Outbox, Policy};
use madgate_tm::{Interest, LaneError, LaneSender, LentSlot, Piece, Shape};

const FRAME_BYTES: usize = 100;

/// Takes everything, slots or stream, or half of it.
#[derive(Debug)]
struct Sink {
    shape: Shape,
    /// The slot to lend next: made here, so that lending does not allocate.
    slots: Vec<LentSlot>,
    takes_half: bool,
}

impl LaneSender for Sink {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn try_send(&mut self, pieces: &[Piece<'_>]) -> Result<usize, LaneError> {
        let total: usize = pieces.iter().map(Piece::len).sum();
        Ok(if self.takes_half { total / 2 } else { total })
    }

    fn try_lend(&mut self) -> Result<Option<LentSlot>, LaneError> {
        Ok(self.slots.pop())
    }

    fn commit(&mut self, slot: LentSlot, _: usize) -> Result<(), LaneError> {
        self.slots.push(slot);
        Ok(())
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        Ok(true)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        unreachable!("nobody sleeps in this test")
    }

    fn acknowledge_wake(&mut self) {}
}

/// Many rounds of everything that an outbox does.
fn rounds(outbox: &mut Outbox<u32>, lane: &mut Sink, batch: &Bytes, count: u32) {
    for round in 0..count {
        for number in 0..20 {
            outbox.push(Buffer::shared(batch.slice(..5 * FRAME_BYTES)), number);
            outbox.push(Buffer::with_head(&[7; 48], batch.slice(..52)), number);
        }
        lane.takes_half = round % 3 == 0;
        outbox.flush(lane, |_, _| {}).expect("it takes all");
        lane.takes_half = false;
        outbox.flush(lane, |_, _| {}).expect("it takes all");
        let sent = outbox.send_borrowed(lane, &[Piece::new(&batch[..FRAME_BYTES])], 0);
        assert_eq!(sent.expect("it takes all"), Borrowed::Left(0));
    }
}

#[test]
fn flushing_does_not_allocate() {
    let batch = Bytes::from(vec![7; 1000]);
    let shapes = [
        Shape::Dynamic { gather_limit: 16 },
        Shape::Static {
            slot_bytes: 1000,
            slots: 4,
        },
    ];
    for shape in shapes {
        for policy in [Policy::Eager, Policy::Gathering] {
            let mut lane = Sink {
                shape,
                slots: (0..4).map(|_| LentSlot::detached(1000)).collect(),
                takes_half: false,
            };
            let mut outbox = Outbox::new(shape, policy, |_| FRAME_BYTES);
            // The queue grows to what is usual.
            rounds(&mut outbox, &mut lane, &batch, 4);
            let made = allocation_counter::measure(|| {
                rounds(&mut outbox, &mut lane, &batch, 100);
            });
            assert_eq!(made.count_total, 0, "{shape:?}, {policy:?}");
        }
    }
}
