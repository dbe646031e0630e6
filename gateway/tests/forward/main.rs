//! Messages through gateways: whole nodes in one process, over loopback and shared memory.

#![allow(clippy::unwrap_used, reason = "where something is missing a test ends")]

#[path = "../support/mod.rs"]
mod support;

mod blocked;
mod bundles;
mod chains;
mod endings;
mod fragments;
mod hostile;
mod idle;
mod leading;
mod member;
mod pieces;
mod piped;
mod rates;
mod traffic;
mod world;

use std::thread;

use madgate_gateway::{Counters, Gateway};
use madgate_gtm::Header;
use madgate_gtm::wire::{Flags, HEADER_BYTES, ReceiveMode, checksum};
use madgate_vchannel::cluster::EndpointSettings;
use member::{Listener, admit, world_to};
use traffic::{pattern, receive_all, receive_from, send_all, send_from};
use world::{World, fabrics, remote_writes};

fn lengths() -> Vec<usize> {
    let mut lengths = vec![
        0,
        1,
        8,
        100,
        3000,
        4000,
        5000,
        65535,
        65536,
        65537,
        200_000,
        1 << 20,
    ];
    lengths.extend([8; 2000]);
    lengths.extend([3_000_001, 7, 70_000, 70_000, 9]);
    lengths
}

fn there_and_back(left: &str, right: &str, settings: &str) -> Counters {
    let world = World::two(left, right, settings);
    let gateway = world.gateway("gw");
    let (a, b) = (world.node_of("a0"), world.node_of("b0"));
    let lengths = lengths();
    thread::scope(|scope| {
        scope.spawn(|| send_all(&a, "b0", &lengths));
        scope.spawn(|| receive_all(&b, &lengths));
    });
    thread::scope(|scope| {
        scope.spawn(|| send_all(&b, "a0", &lengths));
        scope.spawn(|| receive_all(&a, &lengths));
    });
    let counters = gateway.counters();
    let foretold = Gateway::flow_limit(gateway.cluster(), gateway.node()).unwrap();
    assert_eq!(counters.flow_limit, foretold);
    assert_eq!(
        (counters.stale, counters.corrupt, counters.misbehaved),
        (0, 0, 0)
    );
    let with_frames_of_their_own = lengths.iter().filter(|&&length| length > 72).count();
    assert!(counters.frames >= 2 * u64::try_from(with_frames_of_their_own).unwrap());
    check_instruments(&counters);
    println!(
        "{left} to {right}: {counters:#?}, {:.3} copies per frame",
        counters.copies_per_frame()
    );
    counters
}

/// What the instruments say belongs together, and to what was carried.
fn check_instruments(counters: &Counters) {
    let ways: Vec<_> = counters
        .pipelines
        .iter()
        .map(|pipeline| (&*pipeline.from, &*pipeline.to))
        .collect();
    assert_eq!(ways, [("left", "right"), ("right", "left")]);
    let mut carried = (0, 0);
    for pipeline in &counters.pipelines {
        carried = (carried.0 + pipeline.frames, carried.1 + pipeline.bytes);
        assert!(pipeline.pieces <= pipeline.frames);
        assert_eq!(pipeline.hop.frames(), pipeline.frames);
        let (median, longest) = (pipeline.hop.quantile(0.5), pipeline.hop.longest());
        assert!(!median.is_zero() && median <= longest, "{pipeline:?}");
        assert!(longest <= counters.uptime);
    }
    assert_eq!(carried, (counters.frames, counters.bytes));
    let none = counters.since(counters);
    assert_eq!((none.frames, none.flows_opened), (0, 0));
    assert!(none.pipelines.iter().all(|way| way.hop.frames() == 0));
    assert!(none.uptime.is_zero() && none.networks[0].receiver.waiting.is_zero());
    assert_eq!(none.flow_limit, counters.flow_limit);
    assert!(counters.queued_peak_bytes > 0);
    for network in &counters.networks {
        let way_out = counters.pipelines.iter().find(|way| way.to == network.name);
        assert_eq!(network.sent_frames, way_out.unwrap().frames);
        assert!(network.received_frames > 0 && network.sent_bytes > 0);
        assert!(!network.sending.is_zero());
        // Every moment belongs to one stage.
        for times in [network.receiver, network.sender] {
            assert_eq!(times.busy() + times.waiting, counters.uptime, "{times:?}");
        }
        assert!(!network.receiver.handing_over.is_zero());
        assert!(network.sender.receiving.is_zero());
    }
}

/// How often a receiver left its network to another one.
fn leaves(counters: &Counters) -> u64 {
    counters.networks.iter().map(|network| network.leaves).sum()
}

#[test]
fn tcp_to_tcp() {
    there_and_back("tcp", "tcp", "");
}

#[test]
fn tcp_to_tcp_through_memory() {
    there_and_back("tcp", "tcp", "[gateway]\nsplice = false");
}

#[test]
fn payloads_are_received_where_they_leave_from_always_or_never() {
    for direct in ["1KiB", "16MiB"] {
        let settings = format!("[gateway]\nsplice = false\ndirect = \"{direct}\"");
        for right in ["tcp", "shm"] {
            there_and_back("tcp", right, &settings);
        }
    }
}

#[test]
fn slots_are_filled_far_ahead_of_their_reader_or_eight_of_them() {
    for ahead in ["64KiB", "1GiB"] {
        let settings = format!("[gateway]\nahead = \"{ahead}\"");
        for (left, right) in [("tcp", "shm"), ("shm", "hsl"), ("hsl", "tcp")] {
            there_and_back(left, right, &settings);
        }
    }
}

#[test]
fn what_goes_through_the_senders_is_sent_by_them() {
    let counters = there_and_back("tcp", "shm", "[gateway]\nhandover = \"thread\"");
    for network in &counters.networks {
        assert!(network.handed_over > 0 && network.sender_sleeps > 0);
        assert!(!network.sender.sending.is_zero());
    }
}

#[test]
fn frames_may_leave_one_by_one() {
    for (left, right) in [("tcp", "tcp"), ("tcp", "shm"), ("hsl", "shm")] {
        there_and_back(left, right, "[gateway]\ngather = false");
    }
}

#[test]
fn receivers_may_take_the_processor_whenever_they_are_woken() {
    for (left, right) in [("tcp", "tcp"), ("shm", "tcp")] {
        there_and_back(left, right, "[gateway]\nsched_batch = false");
    }
}

#[test]
fn receivers_stand_in_for_each_other_while_much_comes_unless_the_file_says_otherwise() {
    let much = [1 << 20; 20];
    for (left, right) in [("shm", "tcp"), ("tcp", "shm"), ("tcp", "tcp")] {
        for settings in ["", "deputies = false", "pin = [0]"] {
            // Nobody stands in for who only passes pipes on.
            let world = World::two(
                left,
                right,
                &format!("[gateway]\nsplice = false\n{settings}"),
            );
            let gateway = world.gateway("gw");
            let (a, b) = (world.node_of("a0"), world.node_of("b0"));
            let stand_ins = || {
                let networks = gateway.counters().networks;
                networks.iter().map(|of| of.stand_ins).sum::<u64>()
            };
            let (mut first, count) = (0, u64::try_from(much.len()).unwrap());
            world.wait_until("a thread stood in for another", || {
                thread::scope(|scope| {
                    scope.spawn(|| send_from(&a, "b0", first, &much));
                    scope.spawn(|| receive_from(&b, first, &much));
                });
                first += count;
                // A lone message in between, which nobody is asked to look for.
                send_all(&b, "a0", &[8]);
                receive_all(&a, &[8]);
                !settings.is_empty() || stand_ins() > 0
            });
            if !settings.is_empty() {
                assert_eq!(stand_ins(), 0, "{settings}");
            }
        }
    }
}

#[test]
fn tcp_to_tcp_with_each_network_looked_after_by_its_own_thread() {
    let counters = there_and_back("tcp", "tcp", "[gateway]\nlookout = false");
    assert_eq!(leaves(&counters), 0);
}

#[test]
fn a_lookout_passes_questions_and_answers_on_and_what_much_there_is_too() {
    for (left, right) in [
        ("tcp", "tcp"),
        ("tcp", "shm"),
        ("shm", "shm"),
        ("tcp", "hsl"),
    ] {
        for wait in ["adaptive", "spin", "sleep"] {
            let world = World::two(left, right, &format!("[gateway]\nwait = \"{wait}\""));
            let gateway = world.gateway("gw");
            let (a, b) = (world.node_of("a0"), world.node_of("b0"));
            thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..20 {
                        for _ in 0..20 {
                            send_all(&a, "b0", &[8]);
                            receive_all(&a, &[8]);
                        }
                        // Both directions at once, more than a lookout keeps.
                        thread::scope(|both| {
                            both.spawn(|| send_all(&a, "b0", &[40_000; 50]));
                            receive_all(&a, &[40_000; 50]);
                        });
                    }
                });
                for _ in 0..20 {
                    for _ in 0..20 {
                        receive_all(&b, &[8]);
                        send_all(&b, "a0", &[8]);
                    }
                    thread::scope(|both| {
                        both.spawn(|| send_all(&b, "a0", &[40_000; 50]));
                        receive_all(&b, &[40_000; 50]);
                    });
                }
            });
            match wait {
                // Neither thread ever sleeps, so that one of them leaves its network soon.
                "spin" => world.wait_until("a receiver is left to another", || {
                    leaves(&gateway.counters()) > 0
                }),
                "sleep" => assert_eq!(leaves(&gateway.counters()), 0),
                _ => {}
            }
        }
    }
}

#[test]
fn large_blocks_pass_unread_from_socket_to_socket_unless_that_is_switched_off() {
    let mixed: &[usize] = &[1 << 20, 70_000, 100, 3_000_001];
    let short: &[usize] = &[40_000, 100];
    for (settings, lengths, splices) in [
        ("", mixed, true),
        ("[gateway]\nsplice = false", mixed, false),
        ("", short, false),
        ("[gateway]\nsplice_from = \"32KiB\"", short, true),
        ("[gateway]\nsplice_from = \"4MiB\"", mixed, false),
    ] {
        let world = World::two("tcp", "tcp", settings);
        let gateway = world.gateway("gw");
        let (a, b) = (world.node_of("a0"), world.node_of("b0"));
        let lengths = lengths.repeat(10);
        let count = u64::try_from(lengths.len()).unwrap();
        let mut first = 0;
        // What comes while the gateway has nothing else to do is read with what was before it.
        world.wait_until("some of it passed so", || {
            thread::scope(|scope| {
                scope.spawn(|| send_from(&a, "b0", first, &lengths));
                scope.spawn(|| receive_from(&b, first, &lengths));
            });
            first += count;
            !splices || gateway.counters().spliced_frames > 0
        });
        let counters = gateway.counters();
        assert_eq!(counters.spliced_frames > 0, splices, "{counters:#?}");
        assert_eq!((counters.copies, counters.misbehaved), (0, 0));
    }
}

#[test]
fn tcp_to_shm() {
    there_and_back("tcp", "shm", "");
}

#[test]
fn shm_to_shm() {
    there_and_back("shm", "shm", "");
}

#[test]
fn hsl_on_either_side_of_every_other() {
    for (left, right) in [
        ("tcp", "hsl"),
        ("hsl", "tcp"),
        ("shm", "hsl"),
        ("hsl", "shm"),
        ("hsl", "hsl"),
    ] {
        there_and_back(left, right, "");
    }
}

#[test]
fn cards_of_libfabric_on_either_side_of_every_other() {
    for fabric in fabrics() {
        for (left, right) in [
            ("tcp", fabric),
            (fabric, "tcp"),
            ("shm", fabric),
            (fabric, "hsl"),
            (fabric, fabric),
        ] {
            there_and_back(left, right, "");
        }
    }
}

/// Both ways at once, over `left` with TCP, and `right` with these keys.
fn both_ways(right: &str, settings: &str, keys: &str) {
    both_ways_of(right, settings, keys, "");
}

/// The same, on a channel with these keys.
fn both_ways_of(right: &str, settings: &str, keys: &str, of_channel: &str) {
    let world = World::new(settings)
        .networks(&[("left", "tcp"), ("right", right)])
        .and(keys)
        .node("a0", &[("left", "tcp")])
        .node("gw", &[("left", "tcp"), ("right", right)])
        .node("b0", &[("right", right)])
        .channel("main", &["left", "right"])
        .and(of_channel);
    let gateway = world.gateway("gw");
    let (a, b) = (world.node_of("a0"), world.node_of("b0"));
    let lengths = lengths();
    thread::scope(|scope| {
        scope.spawn(|| send_all(&a, "b0", &lengths));
        scope.spawn(|| receive_all(&b, &lengths));
        scope.spawn(|| send_all(&b, "a0", &lengths));
        scope.spawn(|| receive_all(&a, &lengths));
    });
    let counters = gateway.counters();
    let told = format!("{settings} {keys} {of_channel}");
    assert_eq!((counters.misbehaved, counters.corrupt), (0, 0), "{told}");
}

#[test]
fn checksums_of_headers_alone() {
    for right in ["tcp", "shm", "hsl"] {
        for settings in ["", "[gateway]\nsplice = false"] {
            both_ways_of(right, settings, "", "checksum = \"header\"");
        }
    }
}

#[test]
fn checksums_cover_what_the_channel_says() {
    for (key, is_lone) in [
        ("", false),
        ("checksum = \"payload\"", false),
        ("checksum = \"header\"", true),
    ] {
        let world = world_to("tcp", "").and(key);
        let _gateway = world.gateway("gw");
        let source = world.node_of("c0");
        let to = source.session.cluster().node("b0").unwrap();
        let listener = Listener::of(world.cluster(), "b0");
        let mut packing = source.channel.begin_packing(to).unwrap();
        let block = pattern(0, 100_000);
        packing
            .pack_owned(block.clone(), ReceiveMode::Cheaper)
            .unwrap();
        packing.end_packing().unwrap();
        let mut destination = listener.accept();
        admit(&mut destination);
        let head = destination.receive_bulk(HEADER_BYTES);
        let header = Header::parse(head.first_chunk().unwrap()).unwrap();
        let payload = destination.receive_bulk(usize::try_from(header.length).unwrap());
        assert_eq!(header.flags.has(Flags::HEADER_ONLY), is_lone, "{key:?}");
        assert!(checksum::is_intact(&header, &payload));
        let mut other = payload.to_vec();
        *other.last_mut().unwrap() ^= 1;
        assert_eq!(checksum::is_intact(&header, &other), is_lone, "{key:?}");
    }
}

#[test]
fn hsl_in_every_mode_and_with_small_and_large_control_messages() {
    for keys in [
        "mode = \"polling\"",
        "mode = \"interrupt\"",
        "mode = \"adaptive\"\nthreshold = \"1KiB\"",
        // No frame is larger than that: none goes by rendezvous.
        "threshold = \"1MiB\"",
    ] {
        both_ways("hsl", "", keys);
    }
}

#[test]
fn each_switch_of_the_ends_the_other_way() {
    for (switch, _) in EndpointSettings::default().switches() {
        for right in ["tcp", "shm", "hsl"] {
            both_ways(right, &format!("[endpoint]\n{switch} = false"), "");
        }
    }
    for wait in ["sleep", "spin"] {
        for right in ["tcp", "shm", "hsl"] {
            both_ways(right, &format!("[endpoint]\nwait = {wait:?}"), "");
        }
    }
    both_ways("tcp", "", "low_water = true");
}

/// Messages of a round; each waits until the one before has been received.
const ROUND: u64 = 20;

/// Rounds until one is as it has to be, at most. A frame that waits for a slot for a millisecond is
/// copied, and a thread may be kept from its processor for longer: such a round tells nothing.
const ROUNDS_MOST: usize = 50;

/// Bytes of a large message.
const LARGE: usize = 50_000;

/// Large messages that find everything free are carried in one frame each, and from a socket in one that
/// leads it; the gateway copies their bytes `copies` times.
fn copies_large_frames(left: &str, right: &str, copies: u64) {
    let world = World::two(left, right, "");
    let gateway = world.gateway("gw");
    let (a, b) = (world.node_of("a0"), world.node_of("b0"));
    let frames = if left == "tcp" { 2 * ROUND } else { ROUND };
    // What a round tells: frames, copies of them, and copies of those that had to wait.
    let round = |frames: u64| {
        let before = gateway.counters();
        for _ in 0..ROUND {
            thread::scope(|scope| {
                scope.spawn(|| send_all(&a, "b0", &[LARGE]));
                scope.spawn(|| receive_all(&b, &[LARGE]));
            });
        }
        // A frame is counted after it has left, and its copies are before that: what is read in
        // between does not agree with itself.
        let mut seen = gateway.counters();
        world.wait_until("all frames are counted, with their copies", || {
            seen = gateway.counters().since(&before);
            let of_ways = seen.pipelines.iter().map(|way| way.copies).sum::<u64>();
            seen.frames >= frames && of_ways == seen.copies
        });
        assert_eq!((seen.corrupt, seen.misbehaved), (0, 0));
        // All of it was done for this one direction; back goes only credit.
        assert_eq!(seen.pipelines.len(), 1, "{:?}", seen.pipelines);
        let way = &seen.pipelines[0];
        assert_eq!((&*way.from, &*way.to), ("left", "right"));
        assert_eq!((way.frames, way.copies), (seen.frames, seen.copies));
        assert_eq!(way.copied_bytes, seen.copied_bytes);
        // What leads is copied into slots.
        let large_copies = seen.copied_bytes / u64::try_from(LARGE).unwrap();
        (seen.frames, large_copies, seen.parked_copies)
    };
    // The flow is opened by a frame of its own, and the lanes learn what comes on them.
    round(frames + 1);
    let mut rounds = Vec::new();
    while rounds.last() != Some(&(frames, copies * ROUND, 0)) {
        assert!(
            rounds.len() < ROUNDS_MOST,
            "{left} to {right}, {copies} copies each: {rounds:?}"
        );
        rounds.push(round(frames));
    }
}

/// What is received from a socket goes into the memory that it leaves from; what arrives in a slot
/// leaves from there by a socket.
#[test]
fn large_frames_from_and_to_sockets_are_not_copied() {
    let others = ["tcp", "shm"].into_iter().chain(remote_writes());
    for other in others {
        copies_large_frames("tcp", other, 0);
        copies_large_frames(other, "tcp", 0);
    }
}

/// One copy is unavoidable from slots to slots, but for the emulated card: it reads those of others.
#[test]
fn large_frames_are_copied_once_from_slots_to_slots() {
    for (left, right, copies) in [
        ("shm", "shm", 1),
        ("hsl", "shm", 1),
        ("shm", "hsl", 0),
        ("hsl", "hsl", 0),
    ] {
        copies_large_frames(left, right, copies);
    }
    for fabric in fabrics() {
        for (left, right) in [("shm", fabric), (fabric, "shm"), ("hsl", fabric)] {
            copies_large_frames(left, right, 1);
        }
    }
}

#[test]
fn a_long_stream_of_large_messages() {
    for right in [vec!["tcp"], remote_writes()].concat() {
        let world = World::two("tcp", right, "");
        let gateway = world.gateway("gw");
        let (a, b) = (world.node_of("a0"), world.node_of("b0"));
        let lengths = vec![1 << 20; 300];
        thread::scope(|scope| {
            scope.spawn(|| send_all(&a, "b0", &lengths));
            scope.spawn(|| receive_all(&b, &lengths));
        });
        assert_eq!(gateway.counters().misbehaved, 0);
    }
}
