//! Any sequence of blocks, of any sizes and modes, arrives as it was packed: from one
//! session to another, over every protocol.

mod support;

use std::cell::Cell;
use std::thread;

use bytes::Bytes;
use madgate_vchannel::{Channel, NodeId, PackError, ReceiveMode, UnpackError};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, TestRunner};
use support::{ALL, Nodes, Protocol, pattern};

/// Each opens two sessions.
const CASES: u32 = 40;

#[derive(Debug, Clone, Copy)]
enum Packs {
    Safer,
    Later,
    Cheaper,
    Owned,
}

#[derive(Debug, Clone)]
struct Block {
    packs: Packs,
    receive: ReceiveMode,
    /// Unpacked into memory of its own, whatever its mode.
    unpacks_owned: bool,
    length: usize,
}

type Message = Vec<Block>;

fn block() -> impl Strategy<Value = Block> {
    use Packs::{Cheaper, Later, Owned, Safer};
    let packs = prop_oneof![Just(Safer), Just(Later), Just(Cheaper), Just(Owned)];
    let receive = prop_oneof![Just(ReceiveMode::Express), Just(ReceiveMode::Cheaper)];
    let length = prop_oneof![
        8 => 0..200_usize,
        2 => 3_800..4_200_usize,
        2 => 0..65_536_usize,
        1 => 60_000..600_000_usize,
    ];
    (packs, receive, any::<bool>(), length).prop_map(|(packs, receive, unpacks_owned, length)| {
        Block {
            packs,
            receive,
            unpacks_owned,
            length,
        }
    })
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    vec(vec(block(), 0..12), 1..12)
}

/// What a block holds.
fn content(message: usize, block: usize, length: usize) -> Vec<u8> {
    let seed = u32::try_from(message * 100 + block).expect("there are few");
    pattern(seed, length)
}

fn pack(channel: &Channel, to: NodeId, number: usize, message: &Message) -> Result<(), PackError> {
    let contents = message.iter().enumerate();
    let contents: Vec<_> = contents
        .map(|(place, block)| content(number, place, block.length))
        .collect();
    let cells: Vec<_> = message
        .iter()
        .map(|block| vec![Cell::new(0xBA); block.length])
        .collect();
    let mut packing = channel.begin_packing(to)?;
    for (place, block) in message.iter().enumerate() {
        let (bytes, receive) = (&contents[place], block.receive);
        match block.packs {
            Packs::Safer => {
                let mut bytes = bytes.clone();
                packing.pack_safer(&bytes, receive)?;
                bytes.fill(0xBA);
            }
            Packs::Later => packing.pack_later(&cells[place], receive)?,
            Packs::Cheaper => packing.pack_cheaper(bytes, receive)?,
            Packs::Owned => packing.pack_owned(Bytes::copy_from_slice(bytes), receive)?,
        }
    }
    for (cells, bytes) in cells.iter().zip(&contents) {
        cells
            .iter()
            .zip(bytes)
            .for_each(|(cell, byte)| cell.set(*byte));
    }
    packing.end_packing()
}

/// Unpacks one message; `Ok(false)` when something else arrived than was packed.
fn unpack(channel: &Channel, number: usize, message: &Message) -> Result<bool, UnpackError> {
    let mut intos: Vec<_> = message.iter().map(|block| vec![0; block.length]).collect();
    let mut is_right = true;
    let mut unpacking = channel.begin_unpacking()?;
    for ((place, block), into) in message.iter().enumerate().zip(&mut intos) {
        match block.receive {
            receive if block.unpacks_owned => {
                let owned = unpacking.unpack_owned(block.length, receive)?;
                into.copy_from_slice(&owned);
            }
            ReceiveMode::Express => {
                unpacking.unpack_express(into)?;
                is_right &= *into == content(number, place, block.length);
            }
            ReceiveMode::Cheaper => unpacking.unpack_cheaper(into)?,
        }
    }
    unpacking.end_unpacking()?;
    for (place, into) in intos.iter().enumerate() {
        is_right &= *into == content(number, place, into.len());
    }
    Ok(is_right)
}

/// Says which messages did not arrive as they were packed.
fn exchange(protocol: Protocol, messages: &[Message]) -> Vec<String> {
    let nodes = Nodes::open(protocol, 2, "");
    let (here, there, to) = (nodes.channel(0), nodes.channel(1), nodes.id(1));
    thread::scope(|scope| {
        scope.spawn(move || {
            for (number, message) in messages.iter().enumerate() {
                pack(&here, to, number, message).expect("packs");
            }
        });
        let mut wrong = Vec::new();
        for (number, message) in messages.iter().enumerate() {
            match unpack(&there, number, message) {
                Ok(true) => {}
                Ok(false) => wrong.push(format!("message {number} arrived with other bytes")),
                Err(error) => wrong.push(format!("message {number}: {error}")),
            }
        }
        wrong
    })
}

#[test]
fn any_sequence_of_blocks_arrives_as_packed() {
    for protocol in ALL {
        let mut runner = TestRunner::new(ProptestConfig {
            cases: CASES,
            source_file: Some(file!()),
            failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
            ..ProptestConfig::default()
        });
        let result = runner.run(&messages(), |messages| {
            let wrong = exchange(protocol, &messages);
            prop_assert!(wrong.is_empty(), "over {protocol:?}: {wrong:?}");
            Ok(())
        });
        if let Err(error) = result {
            panic!("{error}");
        }
    }
}
