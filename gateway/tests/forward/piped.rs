//! Frames that wait in pipes, inside the kernel, for a link that takes nothing.

use std::ops::Range;
use std::thread;

use madgate_gtm::wire::{CHARGE_PER_FRAME, Flags};

use crate::member::{LaneOf, Member, admit, open, open_from, part};
use crate::traffic::{receive_from, send_from};
use crate::world::World;

const PAYLOAD_BYTES: usize = 60_000;

/// Small kernel buffers on the right, so that a link there soon takes nothing.
fn world() -> World {
    World::new("[gateway]\nsplice_from = \"16KiB\"")
        .networks(&[("left", "tcp"), ("right", "tcp")])
        .and("socket_buffer = \"64KiB\"\nunsent = \"64KiB\"")
        .node("a0", &[("left", "tcp")])
        .node("gw", &[("left", "tcp"), ("right", "tcp")])
        .node("b0", &[("right", "tcp")])
        .node("c0", &[("left", "tcp")])
        .node("e0", &[("right", "tcp")])
        .channel("main", &["left", "right"])
}

/// Sends parts of a message, as many of these as the credit allows; returns their bytes.
fn send_parts(source: &mut Member, numbers: Range<usize>, granted: u64) -> Vec<u8> {
    let mut sent = Vec::new();
    let before = numbers.start as u64;
    let mut offset = before * PAYLOAD_BYTES as u64;
    let mut position = offset + before * CHARGE_PER_FRAME;
    for number in numbers {
        let payload: Vec<u8> = (0..=250_u8)
            .cycle()
            .skip(number)
            .take(PAYLOAD_BYTES)
            .collect();
        let end = position + PAYLOAD_BYTES as u64 + CHARGE_PER_FRAME;
        if end > granted {
            break;
        }
        let frame = part(Flags::default(), position, offset, &payload);
        source.send(LaneOf::Bulk, &frame);
        sent.extend_from_slice(&frame);
        position = end;
        offset += PAYLOAD_BYTES as u64;
    }
    sent
}

#[test]
fn a_source_that_leaves_while_frames_wait_in_pipes_leaves_no_half_frame() {
    let world = world();
    let gateway = world.gateway("gw");
    let (mut source, mut destination, granted) = open(&world);
    // Alone, they leave before the next one comes, and from the second on through pipes.
    let mut first = 0;
    world.wait_until("frames go through pipes", || {
        let sent = send_parts(&mut source, first..first + 1, granted);
        assert!(destination.receive_bulk(sent.len()) == sent);
        first += 1;
        gateway.counters().spliced_frames > 0
    });
    let sent = send_parts(&mut source, first..first + 40, granted);
    assert!(
        sent.len() > 1 << 20,
        "more than the kernel keeps: {granted}"
    );
    drop(source);
    world.wait_until("its link is gone", || gateway.counters().links < 2);
    // It comes back, and what it sends then follows on the same link as what was left there.
    let last = part(Flags::default(), 0, 0, &[251; PAYLOAD_BYTES]);
    let source = thread::scope(|scope| {
        let again = scope.spawn(|| {
            let (mut source, _) = open_from(&world);
            source.send(LaneOf::Bulk, &last);
            source
        });
        admit(&mut destination);
        again.join().unwrap()
    });
    let mut frames = sent.chunks(last.len());
    loop {
        let frame = destination.receive_bulk(last.len());
        if frame == last {
            break;
        }
        assert!(frame == frames.next().unwrap(), "another than comes next");
    }
    let counters = gateway.counters();
    assert_eq!(counters.misbehaved, 0, "{counters:#?}");
    drop(source);
}

#[test]
fn a_link_that_takes_nothing_leaves_pipes_to_others() {
    let world = world();
    let gateway = world.gateway("gw");
    let (mut source, mut destination, granted) = open(&world);
    // More frames than there are pipes.
    let count = 120;
    let sent = send_parts(&mut source, 0..count, granted);
    let sent_bytes = u64::try_from(sent.len()).unwrap();
    world.wait_until("they are at the gateway", || {
        gateway.counters().networks[0].received_bytes >= sent_bytes
    });
    // The others get pipes again when those are taken from what stands still.
    let (a, e) = (world.node_of("a0"), world.node_of("e0"));
    let lengths = [1 << 20; 10];
    let mut number = 0;
    world.wait_until("others have pipes", || {
        thread::scope(|scope| {
            scope.spawn(|| send_from(&a, "e0", number, &lengths));
            scope.spawn(|| receive_from(&e, number, &lengths));
        });
        number += 10;
        // More than all of those.
        gateway.counters().spliced_frames > count as u64
    });
    assert!(destination.receive_bulk(sent.len())[..] == sent);
    let counters = gateway.counters();
    assert!(counters.parked_bytes > 0, "{counters:#?}");
    assert_eq!(counters.misbehaved, 0, "{counters:#?}");
}
