//! Large frames that come a little at a time, from more nodes than a receiver has batches for.

use madgate_vchannel::conductor::LinkKind;

use crate::member::{FLOW, LaneOf, Member, data, world_to};

const FRAME_BYTES: u32 = 60_000;
/// More than what is kept beside a batch in any case.
const PIECE_BYTES: usize = 5_000;

#[test]
fn a_frame_that_loses_its_batch_to_others_is_moved_once() {
    let nodes = ["a0", "c0", "d0", "e0", "f0"];
    let world = nodes[2..].iter().fold(
        world_to("tcp", "[gateway]\nsplice = false"),
        |world, node| world.node(node, &[("left", "tcp")]),
    );
    let gateway = world.gateway("gw");
    let dial = |node: &&str| Member::dial(&world, node, LinkKind::Forward, "left");
    let mut sources: Vec<Member> = nodes.iter().map(dial).collect();
    let received = || gateway.counters().networks[0].received_bytes;
    // Nobody asked for its flow: it is dropped, once it is whole.
    let frame = data(FLOW, 0, FRAME_BYTES);
    let mut sent = received();
    for piece in frame.chunks(PIECE_BYTES) {
        for source in &mut sources {
            source.send(LaneOf::Bulk, piece);
            sent += piece.len() as u64;
            world.wait_until("it has arrived", || received() >= sent);
        }
    }
    world.wait_until("all are whole", || {
        gateway.counters().stale >= nodes.len() as u64
    });
    let counters = gateway.counters();
    assert!(counters.parked_copies >= 3, "{counters:#?}");
    assert!(
        counters.parked_copies <= nodes.len() as u64,
        "{counters:#?}"
    );
}
