//! Members that misbehave: their link is closed, and everything else goes on.

use madgate_gateway::Counters;
use madgate_gtm::wire::{Descriptor, Flags, Kind, ReceiveMode, Refusal, SendMode, checksum};
use madgate_gtm::{FlowKey, Header};
use madgate_vchannel::conductor::LinkKind;

use crate::member::{FLOW, LaneOf, Member, data, message, open, opening, part, world_to};
use crate::traffic::{pattern, receive_from, send_from};
use crate::world::{World, remote_writes};

/// a0 and c0 on the left, b0 on the right; ranks in the order of the file.
fn world(settings: &str) -> World {
    world_to("tcp", settings)
}

/// Runs `act` as c0 while a0 and b0 talk, and returns what the gateway counted.
fn misbehave(act: impl FnOnce(&mut Member)) -> Counters {
    let world = world("");
    let gateway = world.gateway("gw");
    let (a, b) = (world.node_of("a0"), world.node_of("b0"));
    send_from(&a, "b0", 0, &[8, 100_000]);
    receive_from(&b, 0, &[8, 100_000]);
    let mut member = Member::dial(&world, "c0", LinkKind::Forward, "left");
    act(&mut member);
    send_from(&a, "b0", 2, &[8, 100_000]);
    receive_from(&b, 2, &[8, 100_000]);
    gateway.counters()
}

/// What is sent closes the link of who sent it, and nothing else.
fn closes(lane: LaneOf, bytes: &[u8]) {
    let counters = misbehave(|member| {
        member.send(lane, bytes);
        member.hear_to_the_end();
    });
    assert_eq!(counters.misbehaved, 1);
    assert_eq!(counters.queued_bytes, 0);
}

/// Gateways do not look into messages: what is wrong inside is noticed at the end, where it is its
/// source that is refused, and not the gateway that passed it on.
#[test]
fn what_is_wrong_inside_a_message_harms_its_source_alone() {
    const TIMES: u32 = 30;
    let descriptor = Descriptor::new(40, SendMode::Safer, ReceiveMode::Express).unwrap();
    let cut = [&descriptor.to_bytes()[..], &[1; 8]].concat();
    let bundled = [&[16][..], &cut].concat();
    let whole = Flags::DESCRIBED.with(Flags::END);
    let counters = misbehave(|member| {
        for label in 1..=TIMES {
            member.send(LaneOf::Urgent, &opening(FLOW, label, 65_536));
            let credit = member.hear();
            assert_eq!((credit.kind, credit.label), (Kind::Credit, label));
            let (flags, offset, payload) = if label.is_multiple_of(2) {
                (whole.with(Flags::BUNDLE), 2, bundled.repeat(2))
            } else {
                (whole, 0, cut.clone())
            };
            let mut header = Header {
                flags,
                offset,
                position: credit.position,
                length: u32::try_from(payload.len()).unwrap(),
                ..Header::new(Kind::Data, FLOW, label)
            };
            let mut running = checksum::Running::start(&header);
            running.update(&payload);
            header.checksum = running.finish();
            member.send(LaneOf::Urgent, &[&header.to_bytes()[..], &payload].concat());
            let refusal = std::iter::repeat_with(|| member.hear())
                .find(|answer| answer.kind == Kind::Refusal)
                .unwrap();
            assert_eq!(refusal.reason(), Some(Refusal::Corrupt));
        }
    });
    assert_eq!((counters.misbehaved, counters.queued_bytes), (0, 0));
}

#[test]
fn what_is_no_frame_closes_the_link() {
    closes(LaneOf::Urgent, &[0xff; 4096]);
    let mut reserved = Header::new(Kind::Probe, FLOW, 1).to_control_frame();
    reserved[1] = 0x80;
    closes(LaneOf::Urgent, &reserved);
}

#[test]
fn frames_that_are_too_long_close_the_link() {
    closes(LaneOf::Urgent, &data(FLOW, 0, 5000)[..48]);
    closes(LaneOf::Bulk, &data(FLOW, 0, 8 << 20)[..48]);
}

#[test]
fn frames_on_the_wrong_lane_close_the_link() {
    for frame in [
        Header::credit(FLOW, 1, 0, 1, 1),
        Header::new(Kind::Probe, FLOW, 1),
    ] {
        closes(LaneOf::Bulk, &frame.to_control_frame());
    }
}

#[test]
fn openings_without_a_checksum_over_all_of_them_close_the_link() {
    let mut frame = opening(FLOW, 1, 1000);
    frame[1] |= Flags::HEADER_ONLY.bits();
    closes(LaneOf::Urgent, &frame);
}

/// A header with a checksum of its own that is wrong, or not there: what memory does, and no peer.
#[test]
fn damaged_headers_close_the_link_and_are_counted_as_such() {
    for lane in [LaneOf::Urgent, LaneOf::Bulk] {
        let mut frame = data(FLOW, 0, 8);
        frame[1] |= Flags::HEADER_ONLY.bits();
        frame[16..20].fill(0);
        // As it is, and with a length that no frame has.
        for length in [8, 5 << 20] {
            frame[12..16].copy_from_slice(&u32::to_le_bytes(length));
            let counters = misbehave(|member| {
                member.send(lane, &frame);
                member.hear_to_the_end();
            });
            assert_eq!((counters.misbehaved, counters.corrupt), (0, 1));
            assert_eq!(counters.queued_bytes, 0);
        }
    }
}

#[test]
fn a_source_that_its_link_cannot_have_closes_it() {
    closes(
        LaneOf::Urgent,
        &opening(FlowKey { source: 0, ..FLOW }, 1, 1000),
    );
    closes(
        LaneOf::Urgent,
        &opening(FlowKey { source: 99, ..FLOW }, 1, 1000),
    );
}

/// Whom a gateway has dialled to deliver sends over that link too, and is no freer for it.
#[test]
fn a_destination_speaks_for_no_other_source() {
    let world = world("");
    let gateway = world.gateway("gw");
    let (mut source, mut destination, granted) = open(&world);
    // The source of what comes to it is somebody else.
    for kind in [Kind::Close, Kind::Lost] {
        let frame = Header::new(kind, FLOW, 1).to_control_frame();
        destination.send(LaneOf::Urgent, &frame);
    }
    destination.send(LaneOf::Urgent, &data(FLOW, granted, 8));
    destination.send(LaneOf::Bulk, &data(FLOW, granted, 60_000));
    destination.ping();
    let whole = message(b"goes on");
    source.send(LaneOf::Urgent, &whole);
    assert_eq!(destination.receive_urgent(whole.len()), whole);
    let counters = gateway.counters();
    assert_eq!((counters.misbehaved, counters.flows), (0, 1));
    let of_a0 = FlowKey { source: 0, ..FLOW };
    destination.send(LaneOf::Urgent, &opening(of_a0, 1, 1000));
    destination.hear_to_the_end();
    assert_eq!(gateway.counters().misbehaved, 1);
}

#[test]
fn more_than_was_granted_closes_the_link() {
    let counters = misbehave(|member| {
        let open = opening(FLOW, 1, 65536);
        // Until the link to b0 is there, the gateway refuses.
        loop {
            member.send(LaneOf::Urgent, &open);
            let answer = member.hear();
            assert_eq!(answer.flow, FLOW);
            if answer.kind == Kind::Credit {
                let far = answer.offset;
                member.send(LaneOf::Bulk, &data(FLOW, far, 60_000));
                break;
            }
        }
        member.hear_to_the_end();
    });
    assert_eq!(counters.misbehaved, 1);
}

#[test]
fn a_frame_that_comes_in_many_small_pieces_does_not_fit_in_a_pipe_and_arrives() {
    let world = world("[gateway]\nsplice_from = \"1KiB\"");
    let gateway = world.gateway("gw");
    let b = world.node_of("b0");
    let mut member = Member::dial(&world, "c0", LinkKind::Forward, "left");
    let open = opening(FLOW, 1, 65536);
    let granted = loop {
        member.send(LaneOf::Urgent, &open);
        let answer = member.hear();
        if answer.kind == Kind::Credit {
            break answer.offset;
        }
    };
    let block: Vec<u8> = (0..=255).cycle().take(8000).collect();
    assert!(granted > 9000, "{granted}");
    let ping = Header::echo(Kind::Ping, 1).to_control_frame();
    for piece in message(&block).chunks(64) {
        member.send(LaneOf::Bulk, piece);
        // What the kernel keeps of another connection lies between two pieces.
        member.send(LaneOf::Urgent, &ping);
        assert_eq!(member.hear().kind, Kind::Pong);
    }
    let mut arrived = vec![0; block.len()];
    let mut unpacking = b.channel.begin_unpacking().unwrap();
    unpacking.unpack_express(&mut arrived).unwrap();
    unpacking.end_unpacking().unwrap();
    assert!(arrived == block);
    let counters = gateway.counters();
    assert_eq!((counters.spliced_frames, counters.misbehaved), (0, 0));
    assert!(counters.parked_bytes > 0, "{counters:#?}");
}

/// Opens a flow and sends the beginning of a large block in a frame, and then a few bytes of it
/// at a time.
fn send_tiny_parts(member: &mut Member, tiny: usize) {
    let open = opening(FLOW, 1, 65536);
    loop {
        member.send(LaneOf::Urgent, &open);
        if member.hear().kind == Kind::Credit {
            break;
        }
    }
    let descriptor = Descriptor::new(1 << 20, SendMode::Safer, ReceiveMode::Express);
    let descriptor = descriptor.unwrap().to_bytes();
    let first = part(
        Flags::DESCRIBED,
        0,
        0,
        &[&descriptor[..], &[1; 492]].concat(),
    );
    member.send(LaneOf::Bulk, &first);
    let mut at = (500 + 128, 492);
    let mut next = || {
        let bytes = part(Flags::default(), at.0, at.1, &vec![1; tiny]);
        let length = u64::try_from(tiny).unwrap();
        at = (at.0 + length + 128, at.1 + length);
        bytes
    };
    // Alone, and with more behind it.
    member.ping_among_others();
    member.send(LaneOf::Bulk, &next());
    member.ping_among_others();
    member.send(LaneOf::Bulk, &[next(), next(), next()].concat());
    member.ping_among_others();
}

#[test]
fn tiny_parts_of_a_large_block_on_the_bulk_lane_harm_nobody() {
    for right in [vec!["tcp", "shm"], remote_writes()].concat() {
        for tiny in [0, 3, 8, 9, 100_usize] {
            let world = world_to(right, "");
            let gateway = world.gateway("gw");
            let (a, b) = (world.node_of("a0"), world.node_of("b0"));
            let mut member = Member::dial(&world, "c0", LinkKind::Forward, "left");
            send_tiny_parts(&mut member, tiny);
            send_from(&a, "b0", 0, &[100_000]);
            let from = b.session.cluster().node("a0").unwrap();
            let mut block = vec![0; 100_000];
            let mut unpacking = b.channel.begin_unpacking_from(from).unwrap();
            unpacking.unpack_cheaper(&mut block).unwrap();
            unpacking.end_unpacking().unwrap();
            assert!(block == pattern(0, 100_000));
            assert_eq!(gateway.counters().misbehaved, 0);
        }
    }
}

#[test]
fn flows_that_lead_nowhere_are_refused() {
    let counters = misbehave(|member| {
        for flow in [
            FlowKey {
                destination: 99,
                ..FLOW
            },
            FlowKey { channel: 7, ..FLOW },
            // On the same network: that is no gateway's business.
            FlowKey {
                destination: 0,
                ..FLOW
            },
            FlowKey {
                destination: 1,
                ..FLOW
            },
        ] {
            member.send(LaneOf::Urgent, &opening(flow, 1, 1000));
            let answer = member.hear();
            assert_eq!((answer.kind, answer.flow), (Kind::Refusal, flow));
        }
        // Larger fragments than this gateway's channels have.
        member.send(LaneOf::Urgent, &opening(FLOW, 1, 1 << 24));
        assert_eq!(member.hear().kind, Kind::Refusal);
    });
    assert_eq!(counters.misbehaved, 0);
}

#[test]
fn frames_of_unknown_flows_are_refused_once() {
    let counters = misbehave(|member| {
        let flow = FlowKey {
            destination: 2,
            ..FLOW
        };
        let frames = [data(flow, 0, 8), data(flow, 136, 8), data(flow, 1000, 8)].concat();
        member.send(LaneOf::Urgent, &frames);
        member.send(
            LaneOf::Urgent,
            &Header::echo(Kind::Ping, 77).to_control_frame(),
        );
        let answers = [member.hear(), member.hear()];
        let mut kinds = answers.map(|answer| answer.kind);
        kinds.sort_unstable_by_key(|kind| *kind as u8);
        assert_eq!(kinds, [Kind::Refusal, Kind::Pong]);
        assert!(answers.iter().any(|answer| answer.position == 77));
    });
    assert_eq!((counters.misbehaved, counters.stale), (0, 3));
}

#[test]
fn corrupt_frames_are_dropped() {
    let counters = misbehave(|member| {
        let mut open = opening(FLOW, 1, 1000);
        open[60] ^= 1;
        let mut probe = Header::new(Kind::Probe, FLOW, 1).to_control_frame();
        probe[16] ^= 1;
        member.send(LaneOf::Urgent, &[&open[..], &probe].concat());
        member.send(
            LaneOf::Urgent,
            &Header::echo(Kind::Ping, 1).to_control_frame(),
        );
        assert_eq!(member.hear().kind, Kind::Pong);
    });
    assert_eq!((counters.misbehaved, counters.corrupt), (0, 2));
}
