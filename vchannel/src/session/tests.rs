//! Two nodes in one process, seen from inside.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use madgate_bmm::{Buffer, Policy};
use madgate_gtm::wire::{DESCRIPTOR_BYTES, HEADER_BYTES, Kind, ReceiveMode, SMALL_PAYLOAD_BYTES};
use madgate_gtm::{Header, Time};
use madgate_tm::{Interest, LaneClass, LaneError, LaneSender, LentSlot, Piece, Shape};
use tempfile::TempDir;

use super::Session;
use super::core::{Core, Gathers, SWEEP, SWEEP_MOST};
use super::inbox::IDLE_BYTES;
use super::links::{CONTROL_BYTES_MOST, Link, LinkOutput, OUTBOX_BYTES, OUTBOX_BYTES_MOST};
use crate::cluster::Cluster;
use crate::conductor::{LinkKind, LinkRequest};
use crate::handshake::SessionKey;
use crate::packing::Packing;

pub(super) fn pair(protocol: &str, addresses: [&str; 2]) -> (TempDir, Session, Session) {
    pair_tuned(protocol, addresses, [""; 2])
}

/// The same, of nodes whose cluster files have these lines behind those of the network.
pub(super) fn pair_tuned(
    protocol: &str,
    addresses: [&str; 2],
    tuning: [&str; 2],
) -> (TempDir, Session, Session) {
    let files = tempfile::tempdir().unwrap();
    SessionKey::generate()
        .write_new(&files.path().join("session.key"))
        .unwrap();
    let mut directory = String::new();
    if protocol != "tcp" {
        directory = format!("directory = \"{}\"\n", files.path().join("net").display());
    }
    if protocol == "hsl" {
        directory += "trust = \"memory\"\n";
    }
    let [a, b] = addresses;
    let [a, b] = [("a", tuning[0]), ("b", tuning[1])].map(|(node, tuning)| {
        let text = format!(
            "[session]\nname = \"pair\"\nkey_file = \"session.key\"\n\
             [[network]]\nname = \"net\"\nprotocol = \"{protocol}\"\n{directory}{tuning}\
             [[node]]\nname = \"a\"\naddresses = {{ net = \"{a}\" }}\n\
             [[node]]\nname = \"b\"\naddresses = {{ net = \"{b}\" }}\n\
             [[channel]]\nname = \"main\"\nnetworks = [\"net\"]\n"
        );
        fs::write(files.path().join("cluster.toml"), &text).unwrap();
        let cluster = Cluster::parse(&text, files.path()).unwrap();
        Session::open(Arc::new(cluster), node).unwrap()
    });
    (files, a, b)
}

/// Both at once, as a port that is free may be found twice.
pub(super) fn free_addresses() -> [String; 2] {
    let bound = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    bound.map(|listener| listener.local_addr().unwrap().to_string())
}

/// Whether what has come was unpacked before its flow was closed, or afterwards.
#[test]
fn what_a_burst_took_is_given_back_when_its_flow_is_closed() {
    for is_late in [false, true] {
        const MESSAGES: usize = 300;
        let (_files, a, b) = pair("shm", ["a", "b"]);
        let (from, to) = (a.channel("main").unwrap(), b.channel("main").unwrap());
        for number in 1..=MESSAGES {
            let mut packing = from.begin_packing(b.node()).unwrap();
            packing.pack_safer(&[7; 64], ReceiveMode::Express).unwrap();
            match number {
                MESSAGES => packing.end_packing_delivered().unwrap(),
                _ => packing.end_packing().unwrap(),
            }
        }
        let kept = || b.inner().lock().in_flows[0].inbox.kept_bytes();
        let await_close = || {
            while b.inner().lock().in_flows[0].flow.is_open() {
                thread::yield_now();
            }
        };
        assert!(kept() > IDLE_BYTES);
        if is_late {
            await_close();
            assert!(kept() > IDLE_BYTES, "nothing of it is unpacked");
        }
        for _ in 0..MESSAGES {
            let mut unpacking = to.begin_unpacking().unwrap();
            unpacking.unpack_express(&mut [0; 64]).unwrap();
            unpacking.end_unpacking().unwrap();
        }
        await_close();
        assert!(kept() <= IDLE_BYTES, "{is_late}: {}", kept());
    }
}

/// Nobody else would before a timer does.
#[test]
fn who_has_no_credit_left_asks_at_once() {
    let addresses = free_addresses();
    let ungathered = "[endpoint]\ngather = false\nwindow = \"32KiB\"\n";
    let addresses = [addresses[0].as_str(), addresses[1].as_str()];
    let (_files, a, b) = pair_tuned("tcp", addresses, [ungathered; 2]);
    let channel = a.channel("main").unwrap();
    let send = || {
        let mut packing = channel.begin_packing(b.node()).unwrap();
        packing
            .pack_safer(&[7; 3000], ReceiveMode::Express)
            .unwrap();
        packing.end_packing().unwrap();
    };
    send();
    while !a.inner().lock().out_flows[0].flow.is_drained() {
        thread::yield_now();
    }
    // It answers nothing, and what it may still be sent fits into the kernel's buffers.
    let stopped = b.inner().lock();
    while a.inner().lock().out_flows[0].flow.nothing_unsent() {
        send();
    }
    let unsent = a.inner().lock().out_flows[0].flow.poll_control();
    assert_eq!(unsent, None, "it waits for somebody to send it");
    drop(stopped);
}

/// What no message can see: how much more is under way.
#[test]
fn windows_are_wide_where_they_are_to_be() {
    for (wide, from_bytes, most) in [("true", 256 << 10, 3 << 20), ("false", u64::MAX, 1 << 20)] {
        let settings = format!("[endpoint]\nwindow = \"1MiB\"\nwide_windows = {wide}\n");
        let (_files, a, b) = pair_tuned("shm", ["a", "b"], [settings.as_str(); 2]);
        let (from, to) = (a.channel("main").unwrap(), b.channel("main").unwrap());
        let block = [(Bytes::from_static(&[7]), ReceiveMode::Cheaper)];
        from.try_send(b.node(), &block).unwrap();
        let mut unpacking = to.begin_unpacking().unwrap();
        unpacking.unpack_owned(1, ReceiveMode::Cheaper).unwrap();
        unpacking.end_unpacking().unwrap();
        let flow = format!("{:?}", b.inner().lock().in_flows[0].flow);
        let expected =
            format!("window_most: 1048576, wide: Wide {{ from_bytes: {from_bytes}, most: {most},");
        assert!(flow.contains(&expected), "{flow}");
    }
}

/// Who packs meanwhile would take what room there is, each time that there is some.
#[test]
fn who_waits_for_room_has_the_turn_while_it_waits() {
    let little = "[endpoint]\nretention = \"64KiB\"\nwindow = \"64KiB\"\n";
    let (_files, a, b) = pair_tuned("shm", ["a", "b"], [little; 2]);
    let (from, to) = (a.channel("main").unwrap(), b.channel("main").unwrap());
    let block = |bytes| [(Bytes::from(vec![7; bytes]), ReceiveMode::Cheaper)];
    // More than the window, and nobody unpacks it.
    from.try_send(b.node(), &block(300_000)).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let within = Duration::from_secs(10);
            from.send_within(b.node(), &block(8), within)
        });
        let has_turn = || a.inner().lock().out_flows[0].packer.is_some();
        while !has_turn() && !waits.is_finished() {
            thread::yield_now();
        }
        assert!(has_turn());
        for bytes in [300_000, 8] {
            let mut unpacking = to.begin_unpacking().unwrap();
            unpacking.unpack_owned(bytes, ReceiveMode::Cheaper).unwrap();
            unpacking.end_unpacking().unwrap();
        }
        waits.join().unwrap().unwrap();
    });
}

#[test]
fn nodes_may_have_slots_of_other_sizes() {
    for protocol in ["hsl", "shm"] {
        for (one, other) in [
            ("", "slot_bytes = \"5KiB\"\n"),
            ("", "mtu = \"4KiB\"\n"),
            ("slot_bytes = \"1MiB\"\n", ""),
            ("slot_bytes = \"1MiB\"\n", "slot_bytes = \"16KiB\"\n"),
        ] {
            let (_files, a, b) = pair_tuned(protocol, ["a", "b"], [one, other]);
            for (from, to) in [(&a, &b), (&b, &a), (&a, &b)] {
                let block: Vec<u8> = (0..=250).cycle().take(3_000_000).collect();
                thread::scope(|scope| {
                    scope.spawn(|| {
                        let channel = from.channel("main").unwrap();
                        let mut packing = channel.begin_packing(to.node()).unwrap();
                        packing.pack_cheaper(&block, ReceiveMode::Cheaper).unwrap();
                        packing.end_packing_delivered().unwrap();
                    });
                    let channel = to.channel("main").unwrap();
                    let unpacking = channel.begin_unpacking_within(Duration::from_secs(60));
                    let mut unpacking = unpacking.unwrap().expect("a message comes");
                    let taken = unpacking.unpack_owned(block.len(), ReceiveMode::Cheaper);
                    assert!(taken.unwrap() == block, "{protocol} {one} {other}");
                    unpacking.end_unpacking().unwrap();
                });
            }
        }
    }
}

fn stream(protocol: &str, addresses: [&str; 2], bytes: usize, count: usize) {
    let (_files, a, b) = pair(protocol, addresses);
    let to = b.node();
    let sender = thread::spawn(move || {
        let channel = a.channel("main").unwrap();
        let block = Bytes::from(vec![7; bytes]);
        for number in 0..count {
            let mut packing = channel.begin_packing(to).unwrap();
            packing
                .pack_safer(&number.to_le_bytes(), ReceiveMode::Cheaper)
                .unwrap();
            packing
                .pack_owned(block.clone(), ReceiveMode::Cheaper)
                .unwrap();
            packing.end_packing().unwrap();
        }
        drop(channel);
        a
    });
    let channel = b.channel("main").unwrap();
    let mut block = vec![0; bytes];
    for expected in 0..count {
        let mut number = [0; 8];
        let mut unpacking = channel.begin_unpacking().unwrap();
        unpacking.unpack_cheaper(&mut number).unwrap();
        unpacking.unpack_cheaper(&mut block).unwrap();
        unpacking.end_unpacking().unwrap();
        assert_eq!(usize::from_le_bytes(number), expected);
        assert!(block.iter().all(|byte| *byte == 7));
    }
    drop(sender.join().unwrap());
}

#[test]
fn messages_of_a_fragment_stream_over_shared_memory() {
    stream("shm", ["a", "b"], 65_528, 3000);
}

#[test]
fn messages_of_some_fragments_stream_over_shared_memory() {
    stream("shm", ["a", "b"], 1 << 20, 300);
}

#[test]
fn messages_stream_by_remote_write() {
    stream("hsl", ["a", "b"], 65_528, 3000);
    stream("hsl", ["a", "b"], 1 << 20, 300);
}

/// Larger than a slot of an urgent lane, and than one of a bulk lane.
const LARGE: usize = 200_000;

pub(super) fn say(from: &Session, to: &Session, what: u8) {
    let channel = from.channel("main").unwrap();
    let mut packing = channel.begin_packing(to.node()).unwrap();
    packing.pack_safer(&[what], ReceiveMode::Express).unwrap();
    packing
        .pack_owned(vec![what; LARGE].into(), ReceiveMode::Cheaper)
        .unwrap();
    packing.end_packing_delivered().unwrap();
}

pub(super) fn hear(at: &Session) -> u8 {
    let channel = at.channel("main").unwrap();
    let mut block = [0];
    let mut unpacking = channel.begin_unpacking().unwrap();
    unpacking.unpack_express(&mut block).unwrap();
    let large = unpacking.unpack_owned(LARGE, ReceiveMode::Cheaper).unwrap();
    unpacking.end_unpacking().unwrap();
    assert_eq!(large[..], [block[0]; LARGE]);
    block[0]
}

/// The numbers of the links that are up.
fn links(session: &Session) -> Vec<u64> {
    let core = session.inner().lock();
    let up = core.links.iter().flatten().filter(|link| link.is_up());
    up.map(|link| link.id).collect()
}

/// Breaks every link that is up.
fn cut(session: &Session) {
    let mut core = session.inner().lock();
    for index in 0..core.links.len() {
        let index = u32::try_from(index).unwrap();
        if let Some(output) = core.output(index) {
            core.note_broken(index, &output, LaneError::Closed.into());
        }
    }
    drop(core);
    session.inner().waker.wake();
}

#[test]
fn two_that_talk_both_ways_share_a_link() {
    // Of the addresses of loopback, this process has one to itself.
    let host = Ipv4Addr::from(0x7f00_0000 | (std::process::id() & 0x00ff_ffff));
    let tcp = [7310, 7311].map(|port| format!("{host}:{port}"));
    for (protocol, addresses) in [
        ("tcp", [&*tcp[0], &*tcp[1]]),
        ("shm", ["a", "b"]),
        ("hsl", ["a", "b"]),
    ] {
        let (_files, a, b) = pair(protocol, addresses);
        for what in 0..3 {
            say(&a, &b, what);
            assert_eq!(hear(&b), what);
            say(&b, &a, what);
            assert_eq!(hear(&a), what);
        }
        assert_eq!((links(&a).len(), links(&b).len()), (1, 1), "{protocol}");
        // Both find their flow another link, whoever dials first.
        for (turn, cutter) in [(10, &a), (20, &b)] {
            cut(cutter);
            thread::scope(|both| {
                both.spawn(|| say(&a, &b, turn));
                both.spawn(|| say(&b, &a, turn + 1));
                assert_eq!((hear(&b), hear(&a)), (turn, turn + 1));
            });
        }
    }
}

/// Who answers may not be able to dial, and has something to send when it is back.
#[test]
fn a_link_that_brought_messages_is_dialled_again_for_as_long_as_links_may_be_lost() {
    let (_files, a, b) = pair("shm", ["a", "b"]);
    say(&a, &b, 1);
    assert_eq!(hear(&b), 1);
    say(&b, &a, 2);
    assert_eq!(hear(&a), 2);
    let cluster = Arc::clone(b.cluster());
    b.close(Duration::from_secs(60)).unwrap();
    let is_dialling = || {
        let core = a.inner().lock();
        let mut links = core.links.iter().flatten();
        links.any(|link| link.is_dialing)
    };
    while !is_dialling() {
        thread::yield_now();
    }
    for says in [false, true] {
        // Nobody has anything to send, but b comes back.
        let b = Session::open(Arc::clone(&cluster), "b").unwrap();
        while links(&b).is_empty() {
            thread::yield_now();
        }
        if says {
            say(&b, &a, 3);
            assert_eq!(hear(&a), 3);
        }
        b.close(Duration::from_secs(60)).unwrap();
        while !is_dialling() {
            thread::yield_now();
        }
    }
    let later = a.inner().now() + 2 * cluster.link_timeout();
    a.inner().lock().handle_timeout(later);
    assert!(!is_dialling());
}

#[test]
fn half_a_message_that_is_lost_puts_off_nothing_else() {
    let (_files, a, b) = pair("shm", ["a", "b"]);
    say(&a, &b, 1);
    assert_eq!(hear(&b), 1);
    let from_b = b.channel("main").unwrap();
    let mut half = from_b.begin_packing(a.node()).unwrap();
    // The first of them leaves with the second.
    for _ in 0..2 {
        let block = Bytes::from(vec![2; LARGE]);
        half.pack_owned(block, ReceiveMode::Cheaper).unwrap();
    }
    let at_a = a.channel("main").unwrap();
    let mut unpacking = at_a.begin_unpacking().unwrap();
    unpacking.unpack_owned(LARGE, ReceiveMode::Cheaper).unwrap();

    let (inner, now) = (a.inner(), a.inner().now());
    let mut core = inner.lock();
    let is_up = |link: &Option<Link>| link.as_ref().is_some_and(Link::is_up);
    let link = core.links.iter().position(is_up).unwrap();
    core.link_is_lost(u32::try_from(link).unwrap(), String::new(), now);
    // Nothing is due to b, and the rest of its message is waited for.
    core.sweep_at = None;
    core.handle_timeout(now);
    assert_eq!(core.lost_at, Some(now + a.cluster().link_timeout()));
    // What a sends is looked after all the same.
    core.wake_flow(0);
    assert!(core.next_deadline().unwrap() <= now + SWEEP_MOST);
}

#[test]
fn who_waits_for_a_block_without_bytes_sleeps() {
    let (_files, a, b) = pair("shm", ["a", "b"]);
    let at_a = a.channel("main").unwrap();
    let mut packing = at_a.begin_packing(b.node()).unwrap();
    // It fills a frame, which leaves when there is more; that stays until it is known what comes next.
    let first = vec![2; SMALL_PAYLOAD_BYTES - DESCRIPTOR_BYTES];
    packing.pack_safer(&first, ReceiveMode::Express).unwrap();
    packing.pack_safer(&[], ReceiveMode::Express).unwrap();
    let is_there = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let channel = b.channel("main").unwrap();
            let mut unpacking = channel.begin_unpacking().unwrap();
            unpacking.unpack_express(&mut vec![0; first.len()]).unwrap();
            is_there.store(true, Ordering::SeqCst);
            unpacking.unpack_express(&mut []).unwrap();
            unpacking.end_unpacking().unwrap();
        });
        let sleeps = || b.inner().driver_sleeps.load(Ordering::SeqCst);
        let mut waits = 0;
        while (!is_there.load(Ordering::SeqCst) || !sleeps()) && waits < 1000 {
            waits = b.inner().lock().waits;
            thread::yield_now();
        }
        packing.end_packing().unwrap();
        receiver.join().unwrap();
        assert!(waits < 1000, "it waits again and again");
    });
}

#[test]
fn a_session_whose_caller_has_waited_for_long_is_looked_after_when_it_leaves() {
    let (_files, a, b) = pair("shm", ["a", "b"]);
    thread::scope(|scope| {
        let caller = scope.spawn(|| hear(&b));
        while !b.inner().lock().is_forgotten {
            thread::yield_now();
        }
        say(&a, &b, 1);
        assert_eq!(caller.join().unwrap(), 1);
    });
    // Nobody calls at b any more, and what comes there is taken in.
    let channel = a.channel("main").unwrap();
    let mut packing = channel.begin_packing(b.node()).unwrap();
    packing.pack_safer(&[2], ReceiveMode::Cheaper).unwrap();
    packing.end_packing().unwrap();
    let deadline = Instant::now() + a.cluster().link_timeout();
    let is_drained = |core: &mut Core| core.is_drained().then_some(());
    let delivered = a.inner().wait(Some(deadline), None, is_drained);
    assert!(delivered.is_some());
}

#[test]
fn a_flow_that_is_admitted_is_looked_at_when_something_is_due() {
    let (_files, a, b) = pair("shm", ["a", "b"]);
    let channel = a.channel("main").unwrap();
    // With half a message on its way it stays so.
    let mut half = channel.begin_packing(b.node()).unwrap();
    for _ in 0..2 {
        let block = Bytes::from(vec![2; LARGE]);
        half.pack_owned(block, ReceiveMode::Cheaper).unwrap();
    }
    let inner = a.inner();
    let is_open = |core: &mut Core| core.out_flows[0].flow.is_open().then_some(());
    inner.wait(None, None, is_open).unwrap();
    let mut core = inner.lock();
    let now = inner.now();
    core.sweep_at = Some(now);
    core.handle_timeout(now);
    let flow = &core.out_flows[0].flow;
    assert!(flow.is_open());
    let due = flow.next_deadline().unwrap();
    assert_eq!(core.sweep_at, Some(due.max(now + SWEEP)));
    // What comes between may bring it nearer.
    core.sweep_at = Some(now + a.cluster().link_timeout());
    core.note_deadline(0);
    assert_eq!(core.sweep_at, Some(due));
    assert!(core.has_first_deadline, "a driver that sleeps is told");
}

/// A link of a's to b that no conductor knows of.
pub(super) fn unknown_link(a: &Session, b: &Session) -> u32 {
    let request = LinkRequest {
        kind: LinkKind::Regular,
        network: a.cluster().networks_of(a.node()).next().unwrap(),
        peer: b.node(),
    };
    let mut core = a.inner().lock();
    core.add_link(Link::new(request, false))
}

/// A lane that takes so many bytes at a time.
#[derive(Debug)]
struct Taking {
    file: OwnedFd,
    most: Arc<AtomicUsize>,
}

fn taking(most: &Arc<AtomicUsize>) -> Box<dyn LaneSender> {
    Box::new(Taking {
        file: UnixStream::pair().unwrap().0.into(),
        most: Arc::clone(most),
    })
}

impl LaneSender for Taking {
    fn shape(&self) -> Shape {
        Shape::Dynamic { gather_limit: 2 }
    }

    fn try_send(&mut self, pieces: &[Piece<'_>]) -> Result<usize, LaneError> {
        let bytes = pieces.iter().map(Piece::len).sum();
        Ok(self.most.load(Ordering::Relaxed).min(bytes))
    }

    fn try_lend(&mut self) -> Result<Option<LentSlot>, LaneError> {
        Err(LaneError::WrongShape("slots"))
    }

    fn commit(&mut self, _: LentSlot, _: usize) -> Result<(), LaneError> {
        Err(LaneError::WrongShape("slots"))
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        Ok(true)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.file.as_fd(), Interest::Writable)
    }

    fn acknowledge_wake(&mut self) {}
}

#[test]
fn a_lane_of_large_frames_is_given_more_at_a_time_while_it_takes_all() {
    let most = Arc::new(AtomicUsize::new(usize::MAX));
    let output = LinkOutput::new(taking(&most), taking(&most), Policy::Gathering);
    let mut lanes = output.lock();
    let mut given = |class| {
        let lane = lanes.lane(class);
        lane.is_blocked = false;
        let mut bytes = lane.outbox.queued_bytes();
        while lane.has_room() {
            lane.push(Buffer::copied(&[0; 64 << 10]));
            bytes += 64 << 10;
        }
        lane.flush().unwrap();
        bytes
    };
    let first = OUTBOX_BYTES;
    for expected in [first, 2 * first, OUTBOX_BYTES_MOST, OUTBOX_BYTES_MOST] {
        assert_eq!(given(LaneClass::Bulk), expected);
        assert_eq!(given(LaneClass::Urgent), first);
    }
    // It takes less than it is offered, and is offered less; then what waits, and begins anew.
    most.store(1, Ordering::Relaxed);
    for _ in 0..8 {
        given(LaneClass::Bulk);
    }
    most.store(usize::MAX, Ordering::Relaxed);
    given(LaneClass::Bulk);
    assert_eq!(given(LaneClass::Bulk), 2 * first);
}

#[test]
fn answers_to_a_peer_that_takes_none_are_bounded() {
    let (_files, a, b) = pair("shm", ["a", "b"]);
    let inner = a.inner();
    let link = unknown_link(&a, &b);
    let full = || taking(&Arc::default());
    let output = Arc::new(LinkOutput::new(full(), full(), Policy::Gathering));
    let with_link = |what: &mut dyn FnMut(&mut Link)| {
        what(inner.lock().links[link as usize].as_mut().unwrap());
    };
    with_link(&mut |link| link.output = Some(Arc::clone(&output)));
    let most = OUTBOX_BYTES + CONTROL_BYTES_MOST;
    for _ in 0..=2 * most / CONTROL_BYTES_MOST {
        with_link(&mut |link| {
            while link.control.len() < CONTROL_BYTES_MOST {
                link.push_control(&Header::echo(Kind::Pong, 1));
            }
        });
        inner.flush(link);
        output.lock().urgent.is_blocked = false;
    }
    let waiting = output.lock().urgent.outbox.queued_bytes();
    assert!(waiting > 0 && waiting <= most, "{waiting} bytes");
}

#[test]
fn who_waits_between_small_messages_is_not_held_back_where_others_gather() {
    const BYTES: usize = 17;
    let (_files, a, b) = pair("shm", ["a", "b"]);
    let link = unknown_link(&a, &b);
    let mut core = a.inner().lock();
    let gathers = |core: &mut Core| core.gathers(link, BYTES, || Time(1_000_000));
    let burst = std::array::from_fn(|_| gathers(&mut core));
    assert_eq!(
        burst,
        [Gathers::No, Gathers::No, Gathers::Start, Gathers::Yes],
        "the first has waited, the second is long after the last flush"
    );
    // What gathered leaves together, with whatever comes meanwhile.
    core.waits += 1;
    assert_eq!(gathers(&mut core), Gathers::Yes);
    // From then on each message is waited for.
    for _ in 0..3 {
        core.links[link as usize].as_mut().unwrap().gathered = 0;
        core.waits += 1;
        assert_eq!(gathers(&mut core), Gathers::No);
    }
    core.links[link as usize].as_mut().unwrap().gathered = 0;
    assert_eq!(gathers(&mut core), Gathers::Yes, "nobody has waited");
    core.settings.gather = false;
    assert_eq!(gathers(&mut core), Gathers::No, "that is switched off");
}

#[test]
fn copies_of_what_is_delivered_take_no_memory() {
    let [one, other] = free_addresses();
    let (_files, a, b) = pair("tcp", [&one, &other]);
    let channel = a.channel("main").unwrap();
    for count in [100, 1] {
        for number in 1..=count {
            let mut packing = channel.begin_packing(b.node()).unwrap();
            packing
                .pack_safer(&[1; 8000], ReceiveMode::Cheaper)
                .unwrap();
            if number == count {
                packing.end_packing_delivered().unwrap();
            } else {
                packing.end_packing().unwrap();
            }
            // Of what nobody takes no more is delivered than a window.
            if number % 10 == 0 {
                let channel = b.channel("main").unwrap();
                for _ in 0..10 {
                    drop(channel.begin_unpacking().unwrap());
                }
            }
        }
        assert_eq!(a.inner().lock().out_flows[0].copies.pieces(), 1);
    }
}

#[test]
fn copies_of_what_is_given_up_take_no_memory() {
    let (_files, a, b) = pair("shm", ["a", "b"]);
    let to = b.node();
    drop(b);
    let channel = a.channel("main").unwrap();
    for _ in 0..100 {
        let mut packing = channel.begin_packing(to).unwrap();
        packing
            .pack_safer(&[1; 8000], ReceiveMode::Cheaper)
            .unwrap();
        packing.end_packing().unwrap();
    }
    let mut core = a.inner().lock();
    // Eight in a piece.
    assert_eq!(core.out_flows[0].copies.pieces(), 13);
    core.out_flows[0].flow.give_up();
    core.note_failure(0, a.inner().now());
    assert_eq!(core.out_flows[0].copies.pieces(), 1);
}

/// Of longer ones few gather, so that the next would wait after nearly each.
#[test]
fn only_what_comes_behind_small_messages_waits_for_their_packer() {
    let (_files, a, b) = pair("shm", ["a", "b"]);
    let index = unknown_link(&a, &b);
    let mut core = a.inner().lock();
    let waits = core.waits;
    for (bytes, count, waits_for_packer) in [(16 << 10, 2, false), (1 << 10, 32, true)] {
        let link = core.links[index as usize].as_mut().unwrap();
        link.is_gathering = true;
        link.waits_before = waits;
        link.gathered = 0;
        for _ in 1..count {
            assert_eq!(core.gathers(index, bytes, || Time(7)), Gathers::Yes);
        }
        assert_eq!(core.gathers(index, bytes, || Time(7)), Gathers::No);
        let link = core.links[index as usize].as_ref().unwrap();
        assert_eq!(
            link.streamed_at.is_some(),
            waits_for_packer,
            "{bytes} bytes"
        );
    }
}

/// Where sending costs a call, longer ones do too.
#[test]
fn only_small_messages_gather_where_sending_is_storing() {
    let [one, other] = free_addresses();
    for (protocol, addresses, gathers_longer) in [
        ("shm", ["a", "b"], Gathers::No),
        ("hsl", ["a", "b"], Gathers::No),
        ("tcp", [&one, &other], Gathers::Yes),
    ] {
        let (_files, a, b) = pair(protocol, addresses);
        let channel = a.channel("main").unwrap();
        let packing = channel.begin_packing(b.node()).unwrap();
        packing.end_packing_delivered().unwrap();
        let mut core = a.inner().lock();
        let index = core.out_flows[0].link;
        let waits = core.waits;
        let link = core.links[index as usize].as_mut().unwrap();
        assert!(link.is_up());
        link.is_gathering = true;
        link.waits_before = waits;
        let gathers = [3900, 5000].map(|bytes| core.gathers(index, bytes, || Time(0)));
        assert_eq!(gathers, [Gathers::Yes, gathers_longer], "{protocol}");
    }
}

#[test]
fn messages_of_up_to_16_kib_gather_whatever_their_blocks_are() {
    static BLOCK: [u8; 20_000] = [1; 20_000];
    let (_files, a, b) = pair("shm", ["a", "b"]);
    let to = b.node();
    // Nothing leaves.
    drop(b);
    let channel = a.channel("main").unwrap();
    drop(channel.begin_packing(to).unwrap());
    // Bytes that gathered while a message was packed and ended.
    let gathered = |pack: &dyn Fn(&mut Packing<'_>)| {
        let link = a.inner().lock().out_flows[0].link as usize;
        let gathered = |set: Option<usize>| {
            let mut core = a.inner().lock();
            let waits = core.waits;
            let link = core.links[link].as_mut().unwrap();
            link.is_gathering = true;
            link.waits_before = waits;
            link.gathered = set.unwrap_or(link.gathered);
            link.gathered
        };
        gathered(Some(1));
        let mut packing = channel.begin_packing(to).unwrap();
        pack(&mut packing);
        packing.end_packing().unwrap();
        gathered(None) - 1
    };
    let safer = |lengths: &'static [usize]| {
        gathered(&move |packing| {
            for &length in lengths {
                let block = &BLOCK[..length];
                packing.pack_safer(block, ReceiveMode::Cheaper).unwrap();
            }
        })
    };
    let cheaper = |length| {
        gathered(&move |packing| {
            let block = &BLOCK[..length];
            packing.pack_cheaper(block, ReceiveMode::Cheaper).unwrap();
        })
    };
    let owned = |length| {
        gathered(&move |packing| {
            let block = Bytes::from_static(&BLOCK[..length]);
            packing.pack_owned(block, ReceiveMode::Cheaper).unwrap();
        })
    };
    for (bytes, gathered) in [
        (0, gathered(&|_| ())),
        (3800, safer(&[3800])),
        (4096, safer(&[4096])),
        (4096, cheaper(4096)),
        (4096, owned(4096)),
        (5008, safer(&[8, 5000])),
        (5008, safer(&[5000, 8])),
        (8000, safer(&[4000, 4000])),
        (10_000, safer(&[5000, 5000])),
        (16 << 10, cheaper(16 << 10)),
    ] {
        let in_front = gathered.checked_sub(bytes);
        assert!(
            in_front.is_some_and(|more| (HEADER_BYTES..200).contains(&more)),
            "{gathered} bytes of a message of {bytes}"
        );
    }
    assert_eq!([safer(&[20_000]), cheaper(20_000), owned(20_000)], [0; 3]);
}
