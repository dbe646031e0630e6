//! Small frames that come in front of a large one of their message, on the lane for large ones.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use madgate_gateway::Gateway;
use madgate_gtm::Header;
use madgate_gtm::wire::{
    AHEAD_BYTES, DESCRIPTOR_BYTES, Descriptor, Flags, HEADER_BYTES, Kind, LEAD_BYTES, ReceiveMode,
    SendMode, checksum,
};

use crate::member::{FLOW, LaneOf, Listener, Member, admit, open, open_from, opening, world_to};
use crate::world::{LONG, World};

/// Enough to go straight.
const LARGE: usize = 17_000;

const SPLICING: &str = "[gateway]\nsplice_from = \"16KiB\"";
const READING: &str = "[gateway]\nsplice = false";

/// Larger, by this much each time, are the places where what is sent is cut.
const STEP: usize = 9;

/// The frames of messages of small blocks and a large one.
struct Messages {
    number: u32,
    position: u64,
    /// Up to where the gateway has granted.
    granted: u64,
}

impl Messages {
    const fn new(granted: u64) -> Self {
        Self {
            number: 0,
            position: 0,
            granted,
        }
    }

    /// Waits until what `source` has still to send of them is granted.
    fn await_credit(&mut self, source: &mut Member) {
        while self.granted < self.position {
            let answer = source.hear();
            if answer.kind == Kind::Credit {
                self.granted = self.granted.max(answer.offset);
            }
        }
    }

    fn next(&mut self, lead: &Lead) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (block, length) in (0..).zip(lead.small) {
            self.push(&mut bytes, block, *length, 0..*length);
        }
        let block = u32::try_from(lead.small.len()).unwrap();
        if lead.first > 0 {
            self.push(&mut bytes, block, LARGE, 0..lead.first);
        }
        self.push(&mut bytes, block, LARGE, lead.first..LARGE);
        self.number += 1;
        bytes
    }

    /// Appends the frame of a part of a block of `length` bytes.
    fn push(&mut self, bytes: &mut Vec<u8>, block: u32, length: usize, part: Range<usize>) {
        let contents = contents(self.number, length);
        let is_first = part.start == 0;
        let is_last = length == LARGE && part.end == length;
        let length = u64::try_from(length).unwrap();
        let descriptor = Descriptor::new(length, SendMode::Cheaper, ReceiveMode::Cheaper).unwrap();
        let mut payload = contents[part.clone()].to_vec();
        if is_first {
            payload.splice(..0, descriptor.to_bytes());
        }
        let mut header = Header::new(Kind::Data, FLOW, 1);
        header.flags = Flags::DESCRIBED
            .when(is_first)
            .with(Flags::END.when(is_last));
        header.message = self.number;
        header.block = block;
        header.offset = u64::try_from(part.start).unwrap();
        header.position = self.position;
        header.length = u32::try_from(payload.len()).unwrap();
        let mut running = checksum::Running::start(&header);
        running.update(&payload);
        header.checksum = running.finish();
        self.position = header.end_position();
        bytes.extend(header.to_bytes());
        bytes.extend(payload);
    }
}

fn contents(number: u32, length: usize) -> Vec<u8> {
    let bytes = (0..=250).cycle().skip(number as usize % 251);
    bytes.take(length).collect()
}

/// What leads the large block of a message.
#[derive(Debug)]
struct Lead {
    /// Lengths of small blocks.
    small: &'static [usize],
    /// Its own first bytes.
    first: usize,
}

/// Leads up to as much as may be one, and more.
fn leads() -> [Lead; 7] {
    const MOST: usize = LEAD_BYTES - HEADER_BYTES - DESCRIPTOR_BYTES;
    let all: [(&[usize], usize); 7] = [
        (&[], 0),
        (&[8], 0),
        (&[0, 40], 0),
        (&[MOST], 0),
        (&[1000], 0),
        (&[], 64),
        (&[8], 64),
    ];
    all.map(|(small, first)| Lead { small, first })
}

/// Sends messages of small blocks and a large one from `source`, each cut elsewhere: its second
/// part goes when the gateway has taken the first. After each, `receive` gets what leads its large
/// block, its number and its frames.
fn send_cut(
    world: &World,
    gateway: &Gateway,
    source: &mut Member,
    granted: u64,
    mut receive: impl FnMut(&Lead, u32, &[u8]),
) {
    let mut messages = Messages::new(granted);
    let received = || gateway.counters().networks[0].received_bytes;
    for lead in leads() {
        for cut in (1..AHEAD_BYTES + 2 * STEP).step_by(STEP) {
            let number = messages.number;
            let bytes = messages.next(&lead);
            messages.await_credit(source);
            let taken = received() + u64::try_from(cut).unwrap();
            source.send(LaneOf::Bulk, &bytes[..cut]);
            world.wait_until("the gateway has the first part", || received() >= taken);
            source.send(LaneOf::Bulk, &bytes[cut..]);
            receive(&lead, number, &bytes);
        }
    }
    assert_eq!(gateway.counters().misbehaved, 0);
}

/// The payload of the next frame on the bulk lane.
fn receive_payload(destination: &mut Member) -> BytesMut {
    let head = destination.receive_bulk(HEADER_BYTES);
    let header = Header::parse(head.first_chunk().unwrap()).unwrap();
    destination.receive_bulk(usize::try_from(header.length).unwrap())
}

/// What comes out of a gateway on the lane for large frames, so many payloads of it, where a session
/// sends a message of a small block, if there is one, and a large one.
fn sent_there(leads: bool, small: Option<&[u8]>, payloads: usize) -> Vec<BytesMut> {
    let world = world_to("tcp", &format!("{READING}\n[endpoint]\nleads = {leads}"));
    let source = world.node_of("c0");
    let to = source.session.cluster().node("b0").unwrap();
    let mut packing = source.channel.begin_packing(to).unwrap();
    if let Some(small) = small {
        packing.pack_safer(small, ReceiveMode::Cheaper).unwrap();
    }
    let large = Bytes::from(contents(0, LARGE));
    packing.pack_owned(large, ReceiveMode::Cheaper).unwrap();
    packing.end_packing().unwrap();
    // All of it waits for the way to be there.
    let listener = Listener::of(world.cluster(), "b0");
    let _gateway = world.gateway("gw");
    let mut destination = listener.accept();
    admit(&mut destination);
    let payloads = (0..payloads).map(|_| receive_payload(&mut destination));
    payloads.collect()
}

#[test]
fn a_session_sends_them_there_unless_that_is_switched_off() {
    let large = contents(0, LARGE);
    let led = sent_there(true, Some(b"number"), 2);
    assert!(led[0][DESCRIPTOR_BYTES..] == *b"number");
    assert!(led[1][DESCRIPTOR_BYTES..] == large);
    let alone = sent_there(false, Some(b"number"), 1);
    assert!(alone[0][DESCRIPTOR_BYTES..] == large);
}

#[test]
fn a_message_that_begins_with_a_large_block_is_led_by_its_first_bytes() {
    let large = contents(0, LARGE);
    let (first, rest) = large.split_at(64);
    let led = sent_there(true, None, 2);
    assert!(led[0][DESCRIPTOR_BYTES..] == *first);
    assert!(led[1] == rest);
    let alone = sent_there(false, None, 1);
    assert!(alone[0][DESCRIPTOR_BYTES..] == large);
}

#[test]
fn they_go_on_in_front_of_it_wherever_the_stream_is_cut() {
    for settings in [SPLICING, READING] {
        let world = world_to("tcp", settings);
        let gateway = world.gateway("gw");
        let (mut source, mut destination, granted) = open(&world);
        send_cut(
            &world,
            &gateway,
            &mut source,
            granted,
            |lead, number, bytes| {
                let received = destination.receive_bulk(bytes.len());
                assert!(received[..] == *bytes, "{settings} {lead:?} {number}");
            },
        );
        let spliced = gateway.counters().spliced_frames;
        assert_eq!(spliced > 0, settings == SPLICING);
    }
}

#[test]
fn what_is_corrupt_between_them_stays_behind() {
    for settings in [SPLICING, READING] {
        let world = world_to("tcp", settings);
        let gateway = world.gateway("gw");
        let (mut source, mut destination, granted) = open(&world);
        let mut messages = Messages::new(granted);
        // From the first on, the gateway knows where such frames go.
        let lead = Lead {
            small: &[8],
            first: 0,
        };
        let first = messages.next(&lead);
        source.send(LaneOf::Bulk, &first);
        assert!(destination.receive_bulk(first.len())[..] == first);
        let frames = messages.next(&lead);
        let (small, large) = frames.split_at(HEADER_BYTES + DESCRIPTOR_BYTES + 8);
        let mut corrupt = opening(FLOW, 1, 65_536);
        *corrupt.last_mut().unwrap() ^= 1;
        source.send(LaneOf::Bulk, &[small, &corrupt, large].concat());
        let received = destination.receive_bulk(frames.len());
        assert!(received[..] == frames, "{settings}");
        let counters = gateway.counters();
        assert_eq!((counters.misbehaved, counters.corrupt), (0, 1));
    }
}

#[test]
fn they_arrive_whatever_the_large_ones_leave_by() {
    for (right, settings) in [("tcp", SPLICING), ("tcp", READING), ("shm", "")] {
        let world = world_to(right, settings);
        let gateway = world.gateway("gw");
        let b = world.node_of("b0");
        let (mut source, granted) = open_from(&world);
        send_cut(&world, &gateway, &mut source, granted, |lead, number, _| {
            let mut unpacking = b.channel.begin_unpacking_within(LONG).unwrap().unwrap();
            for &length in lead.small.iter().chain(&[LARGE]) {
                let block = unpacking
                    .unpack_owned(length, ReceiveMode::Cheaper)
                    .unwrap();
                assert!(block == contents(number, length), "{right} {number}");
            }
            unpacking.end_unpacking().unwrap();
        });
    }
}
