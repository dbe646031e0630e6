//! Dynamic lanes: gathered sending, scattered reception.

use std::cell::Cell;

use bytes::BytesMut;

use super::Rig;
use super::meeting::Pair;
use super::traffic::{pattern, pattern_from, receive_some, send_some, sleep_until_arrival};
use crate::{Lane, LaneClass, LaneError, Piece, Pipes, Room, Shape};

fn dynamic_pair(rig: &Rig) -> Option<Pair> {
    let pair = Pair::new(rig, LaneClass::Bulk);
    matches!(pair.dialer.sender.shape(), Shape::Dynamic { .. }).then_some(pair)
}

/// Gather lists of any length, with empty pieces and cells among them, arrive in order;
/// what one call did not take is sent by the next.
pub fn gather_lists(rig: &Rig) {
    let Some(Pair {
        mut dialer,
        mut acceptor,
    }) = dynamic_pair(rig)
    else {
        return;
    };
    let Shape::Dynamic { gather_limit } = dialer.sender.shape() else {
        return;
    };
    assert!(gather_limit > 0);
    assert_eq!(dialer.sender.try_send(&[]).expect("nothing"), 0);
    assert_eq!(
        dialer
            .sender
            .try_send(&[Piece::default()])
            .expect("nothing"),
        0
    );
    for count in [
        1,
        2,
        3,
        gather_limit,
        gather_limit + 1,
        3 * gather_limit + 7,
    ] {
        let length_of = |index: usize| {
            if index.is_multiple_of(5) {
                0
            } else {
                index * 7 % 3000
            }
        };
        let mut blocks = Vec::new();
        let mut total = 0;
        for index in 0..count {
            blocks.push(pattern_from(total, length_of(index)));
            total += length_of(index);
        }
        let cells: Vec<Cell<u8>> = (total..total + 500)
            .map(|at| Cell::new(pattern(at)))
            .collect();
        total += cells.len();
        let mut pieces: Vec<Piece<'_>> = blocks.iter().map(|block| Piece::new(block)).collect();
        pieces.push(Piece::from_cells(&cells));

        let (mut rest, mut received) = (&mut pieces[..], Vec::new());
        while received.len() < total {
            if !rest.is_empty() {
                let sent = dialer.sender.try_send(rest).expect("sending");
                Piece::advance_slice(&mut rest, sent);
            }
            receive_some(acceptor.receiver.as_mut(), &mut received).expect("receiving");
        }
        assert!(rest.is_empty());
        assert!(
            received == pattern_from(0, total),
            "{count} pieces changed on their way"
        );
    }
}

/// What arrives fills the caller's memory first, then the batch, which never grows beyond
/// its capacity.
pub fn scattered_reception(rig: &Rig) {
    let Some(Pair {
        mut dialer,
        mut acceptor,
    }) = dynamic_pair(rig)
    else {
        return;
    };
    let Lane { receiver, .. } = &mut acceptor;
    assert_eq!(
        receiver
            .try_receive(Room::default(), &mut BytesMut::new())
            .expect("no room"),
        0
    );
    let mut batch = BytesMut::with_capacity(1000);
    assert_eq!(
        receiver
            .try_receive(Room::new(&mut [0; 10]), &mut batch)
            .expect("nothing there"),
        0
    );

    let (mut sent, mut received) = (0, 0);
    for straight_bytes in [0, 1, 100, 5000, 70_000].into_iter().cycle().take(200) {
        while sent < received + straight_bytes + 500 {
            let bytes = pattern_from(sent, 3000);
            match send_some(dialer.sender.as_mut(), &bytes).expect("sending") {
                Some(count) => sent += count,
                None => break,
            }
        }
        let mut straight = vec![0; straight_bytes];
        batch.clear();
        batch.extend_from_slice(b"kept");
        let capacity = batch.capacity();
        let count = loop {
            match receiver
                .try_receive(Room::new(&mut straight), &mut batch)
                .expect("receiving")
            {
                0 => sleep_until_arrival(receiver.as_mut()).expect("waiting"),
                count => break count,
            }
        };
        assert_eq!(batch.capacity(), capacity, "reallocated");
        let into_straight = count.min(straight_bytes);
        assert_eq!(batch.len() - 4, count - into_straight);
        assert_eq!(batch[..4], *b"kept");
        assert!(straight[..into_straight] == pattern_from(received, into_straight));
        let rest = pattern_from(received + into_straight, count - into_straight);
        assert!(batch[4..] == rest);
        received += count;
    }
    assert!(matches!(
        receiver.try_receive_slot(),
        Err(LaneError::WrongShape(_))
    ));
    assert!(matches!(
        dialer.sender.try_lend(),
        Err(LaneError::WrongShape(_))
    ));
}

/// Lanes that fill pipes and take them pass bytes on without their being read: all of them, in
/// order, whatever the pipe holds and whatever the lane takes at once; and say when there will
/// be no more. The others say that they do not.
pub fn pipes(rig: &Rig) {
    const TOTAL: usize = 3 << 20;
    let mut near = Pair::new(rig, LaneClass::Bulk);
    let mut far = Pair::new(rig, LaneClass::Bulk);
    let (receiver, sender) = (near.acceptor.receiver.as_mut(), far.dialer.sender.as_mut());
    let pipes = Pipes::new(1);
    let mut pipe = pipes.take(1 << 16).expect("a pipe").expect("the first");
    assert_eq!(receiver.fills_pipes(), sender.takes_pipes());
    if !receiver.fills_pipes() {
        assert!(matches!(
            receiver.try_receive_pipe(&mut pipe, 1),
            Err(LaneError::WrongShape(_))
        ));
        assert!(matches!(
            sender.try_send_pipe(&mut pipe, false),
            Err(LaneError::WrongShape(_))
        ));
        return;
    }
    assert_eq!(receiver.try_receive_pipe(&mut pipe, 1).expect("nothing"), 0);
    let bytes = pattern_from(0, TOTAL);
    let (mut sent, mut passed, mut received) = (0, 0, Vec::new());
    // The first bytes are the caller's.
    assert_eq!(pipe.write(&bytes[..100]).expect("writing"), 100);
    while received.len() < TOTAL {
        let rest = &bytes[100 + sent..];
        if !rest.is_empty() {
            sent += send_some(near.dialer.sender.as_mut(), rest)
                .expect("sending")
                .unwrap_or(0);
        }
        let most = (passed * 7 + 1) % 100_000;
        passed += receiver.try_receive_pipe(&mut pipe, most).expect("filling");
        sender.try_send_pipe(&mut pipe, true).expect("draining");
        if passed == TOTAL - 100 {
            while !pipe.is_empty() {
                sender.try_send_pipe(&mut pipe, false).expect("draining");
                receive_some(far.acceptor.receiver.as_mut(), &mut received).expect("receiving");
            }
            // Ends what was said to go on.
            sender.try_send(&[Piece::new(b"!")]).expect("sending");
        }
        receive_some(far.acceptor.receiver.as_mut(), &mut received).expect("receiving");
    }
    assert!(received[..TOTAL] == bytes, "changed on their way");

    drop(near.dialer);
    let end = loop {
        match receiver.try_receive_pipe(&mut pipe, 1000) {
            Ok(0) => sleep_until_arrival(receiver).expect("waiting"),
            Ok(count) => panic!("{count} bytes that nobody sent"),
            Err(error) => break error,
        }
    };
    assert!(matches!(end, LaneError::Closed), "{end}");
}
