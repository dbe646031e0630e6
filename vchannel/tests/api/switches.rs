//! Messages arrive whichever ways they go: with each switch of the ends off, with all of them, and
//! however threads wait.

use std::thread;

use madgate_vchannel::ReceiveMode::{Cheaper, Express};
use madgate_vchannel::cluster::EndpointSettings;
use madgate_vchannel::{Channel, NodeId};

use crate::support::{ALL, Nodes, pattern};

/// Every fast way of an end that can be switched off.
fn switches() -> [&'static str; 11] {
    EndpointSettings::default().switches().map(|(key, _)| key)
}

/// Bytes of the blocks of each message: small ones, and such that lead a large one.
const MESSAGES: [&[usize]; 7] = [
    &[8],
    &[1, 0, 40],
    &[300],
    &[8, 200_000],
    &[70_000, 8],
    &[600_000],
    &[5000],
];

/// Messages of one kind that come one after the other.
const RUN: u32 = 12;

fn count() -> u32 {
    RUN * u32::try_from(MESSAGES.len()).expect("few kinds")
}

fn lengths(number: u32) -> &'static [usize] {
    MESSAGES[(number / RUN) as usize]
}

fn send(channel: &Channel, to: NodeId, number: u32) {
    let lengths = lengths(number);
    let mut packing = channel.begin_packing(to).expect("begins");
    for (seed, length) in (number..).zip(lengths) {
        let block = pattern(seed, *length);
        packing.pack_safer(&block, Cheaper).expect("packs");
    }
    packing.end_packing().expect("ends");
}

fn receive(channel: &Channel, number: u32) {
    let lengths = lengths(number);
    let mut blocks: Vec<_> = lengths.iter().map(|length| vec![0; *length]).collect();
    let mut unpacking = channel.begin_unpacking().expect("begins");
    for block in &mut blocks {
        unpacking.unpack_cheaper(block).expect("unpacks");
    }
    unpacking.end_unpacking().expect("ends");
    for (seed, block) in (number..).zip(&blocks) {
        assert!(block == &pattern(seed, block.len()), "message {number}");
    }
}

/// Messages that are answered one by one, then both ways as fast as they are taken.
fn talk(nodes: &Nodes) {
    let (one, other) = (nodes.channel(0), nodes.channel(1));
    let (one_id, other_id) = (nodes.id(0), nodes.id(1));
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..count() {
                receive(&other, number);
                send(&other, one_id, number);
            }
        });
        for number in 0..count() {
            send(&one, other_id, number);
            receive(&one, number);
        }
    });
    thread::scope(|scope| {
        scope.spawn(|| (0..count()).for_each(|number| send(&one, other_id, number)));
        scope.spawn(|| (0..count()).for_each(|number| send(&other, one_id, number)));
        scope.spawn(|| (0..count()).for_each(|number| receive(&one, number)));
        scope.spawn(|| (0..count()).for_each(|number| receive(&other, number)));
    });
}

#[test]
fn messages_arrive_with_each_switch_off() {
    for protocol in ALL {
        for switch in switches() {
            talk(&Nodes::open(
                protocol,
                2,
                &format!("[endpoint]\n{switch} = false\n"),
            ));
        }
        let all: String = switches()
            .map(|switch| format!("{switch} = false\n"))
            .concat();
        talk(&Nodes::open(protocol, 2, &format!("[endpoint]\n{all}")));
        for wait in ["sleep", "spin"] {
            let text = format!("[endpoint]\nwait = {wait:?}\n");
            talk(&Nodes::open(protocol, 2, &text));
        }
        talk(&Nodes::open(protocol, 2, ""));
    }
}

/// A message that nobody waits for arrives too, though its sender does nothing more.
#[test]
fn a_message_that_may_not_leave_alone_is_not_left_behind() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "[endpoint]\nalone = false\nwhole = false\n");
        let (from, at, to) = (nodes.channel(0), nodes.channel(1), nodes.id(1));
        for number in 0..20 {
            let mut packing = from.begin_packing(to).expect("begins");
            packing.pack_safer(&[number], Express).expect("packs");
            packing.end_packing().expect("ends");
            let mut block = [0];
            let mut unpacking = at.begin_unpacking().expect("begins");
            unpacking.unpack_express(&mut block).expect("unpacks");
            unpacking.end_unpacking().expect("ends");
            assert_eq!(block, [number]);
        }
    }
}
