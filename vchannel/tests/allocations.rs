//! What messages cost in allocations once a flow runs steadily: everything in this process counts,
//! both sessions with all their threads.

mod support;

use std::alloc::System;
use std::sync::Barrier;
use std::thread;

use bytes::Bytes;
use madgate_vchannel::ReceiveMode::{Cheaper, Express};
use madgate_vchannel::{Channel, NodeId, Packing};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use support::{Nodes, Protocol};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What may be allocated however many messages there are: queues that grow to what is usual by
/// doubling, some twenty of them, and threads that wait for something for the first time.
const SETTLING: usize = 100;

/// Messages of which one may allocate, for all that others do meanwhile.
const ONE_IN: usize = 10;

fn allocations() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

/// What `messages` of them allocated, when as many had passed before; twice, as what is usual may
/// take more than the first to be found.
fn steady(messages: usize, mut pass: impl FnMut(usize)) -> usize {
    pass(messages);
    let mut made = usize::MAX;
    for _ in 0..2 {
        let before = allocations();
        pass(messages);
        made = made.min(allocations() - before);
    }
    made
}

/// Small blocks: copied when they are packed.
fn pack(channel: &Channel, to: NodeId, block: &[u8]) {
    let mut packing = channel.begin_packing(to).expect("begins");
    packing.pack_safer(block, Express).expect("packs");
    packing.end_packing().expect("ends");
}

fn unpack(channel: &Channel, block: &mut [u8]) {
    let mut unpacking = channel.begin_unpacking().expect("begins");
    unpacking.unpack_express(block).expect("unpacks");
    unpacking.end_unpacking().expect("ends");
}

/// Sends with `send` in a thread, and receives with `receive` in this one.
fn stream(messages: usize, send: impl Fn() + Sync, mut receive: impl FnMut()) -> usize {
    // The main thread first says how many are to come.
    let start = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3 {
                start.wait();
                (0..messages).for_each(|_| send());
            }
        });
        steady(messages, |messages| {
            start.wait();
            (0..messages).for_each(|_| receive());
        })
    })
}

/// Messages of `length` bytes, as fast as they are taken.
fn small_stream(protocol: Protocol, length: usize, messages: usize) -> usize {
    let nodes = Nodes::open(protocol, 2, "");
    let (from, at, to) = (nodes.channel(0), nodes.channel(1), nodes.id(1));
    let block = vec![7; length];
    let mut into = vec![0; length];
    stream(
        messages,
        || pack(&from, to, &block),
        || unpack(&at, &mut into),
    )
}

/// The same, each of which waits for an answer.
fn asked(protocol: Protocol, length: usize, messages: usize) -> usize {
    let nodes = Nodes::open(protocol, 2, "");
    let (one, other) = (nodes.channel(0), nodes.channel(1));
    let (one_id, other_id) = (nodes.id(0), nodes.id(1));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut block = vec![0; length];
            for _ in 0..3 * messages {
                unpack(&other, &mut block);
                pack(&other, one_id, &block);
            }
        });
        let mut block = vec![7; length];
        steady(messages, |messages| {
            for _ in 0..messages {
                pack(&one, other_id, &block);
                unpack(&one, &mut block);
            }
        })
    })
}

/// Blocks that are not small, packed with `pack` and copied.
fn copied_stream(
    protocol: Protocol,
    messages: usize,
    pack: impl for<'p> Fn(&mut Packing<'p>, &'p [u8]) + Sync,
) -> usize {
    let nodes = Nodes::open(protocol, 2, "");
    let (from, at, to) = (nodes.channel(0), nodes.channel(1), nodes.id(1));
    let block = vec![7; 5000];
    let mut into = vec![0; 5000];
    let send = || {
        let mut packing = from.begin_packing(to).expect("begins");
        pack(&mut packing, &block);
        packing.end_packing().expect("ends");
    };
    stream(messages, send, || unpack(&at, &mut into))
}

/// Large blocks that are given away, and unpacked into memory that is there.
fn large_stream(protocol: Protocol, length: usize, messages: usize) -> usize {
    let nodes = Nodes::open(protocol, 2, "");
    let (from, at, to) = (nodes.channel(0), nodes.channel(1), nodes.id(1));
    let block = Bytes::from(vec![7; length]);
    let mut into = vec![0; length];
    let send = || {
        let mut packing = from.begin_packing(to).expect("begins");
        packing.pack_owned(block.clone(), Cheaper).expect("packs");
        packing.end_packing().expect("ends");
    };
    let receive = || {
        let mut unpacking = at.begin_unpacking().expect("begins");
        unpacking.unpack_cheaper(&mut into).expect("unpacks");
        unpacking.end_unpacking().expect("ends");
    };
    stream(messages, send, receive)
}

/// One test: what others did meanwhile would count.
#[test]
fn what_a_steady_flow_allocates() {
    let before = allocations();
    let nodes = Nodes::open(Protocol::Tcp, 2, "");
    assert!(allocations() > before, "allocations are counted");
    drop(nodes);
    for protocol in support::ALL {
        // Where others want the processors, more is under way at one time than at another, and more
        // memory is made: some hundred pieces, however many messages. What each message costs, or one
        // of ten, is more than that.
        let messages = 50_000;
        let made = small_stream(protocol, 8, messages);
        println!("{protocol:?}, {messages} of 8 bytes: {made}");
        assert!(made <= SETTLING + messages / ONE_IN, "{protocol:?}: {made}");
        let messages = 20_000;
        let made = small_stream(protocol, 1000, messages);
        println!("{protocol:?}, {messages} of 1000 bytes: {made}");
        assert!(made <= SETTLING + messages / ONE_IN, "{protocol:?}: {made}");
        for length in [8, 1000] {
            let made = asked(protocol, length, messages);
            println!("{protocol:?}, {messages} of {length} bytes asked: {made}");
            assert!(made <= SETTLING + messages / ONE_IN, "{protocol:?}: {made}");
        }
        // Copies share pieces of memory, 13 each, which are used again while something is under way: two
        // for a new one. What comes before it is unpacked has memory of its own over TCP; over shared
        // memory its slots wait.
        let to_arrive = match protocol {
            Protocol::Tcp => messages,
            Protocol::Shm => 2 * messages,
            Protocol::Hsl => 0,
        };
        let pieces = 2 * messages / 13;
        let most = SETTLING + messages / ONE_IN + pieces + to_arrive;
        let made = copied_stream(protocol, messages, |packing, block| {
            packing.pack_safer(block, Express).expect("packs");
        });
        println!("{protocol:?}, {messages} of 5000 bytes, safer: {made}");
        assert!(made <= most, "{protocol:?}: {made}");
        let made = copied_stream(protocol, messages, |packing, block| {
            packing.pack_cheaper(block, Express).expect("packs");
        });
        println!("{protocol:?}, {messages} of 5000 bytes, cheaper: {made}");
        // And the list of what is lent.
        assert!(made <= most + messages, "{protocol:?}: {made}");
        // Two for each at most, whatever its length: what counts the references to the memory that
        // it came in before it was unpacked, and the list of what is unpacked when it ends.
        let messages = 300;
        let made = large_stream(protocol, 1 << 20, messages);
        println!("{protocol:?}, {messages} of 1 MiB: {made}");
        assert!(made <= SETTLING + 2 * messages, "{protocol:?}: {made}");
    }
}
