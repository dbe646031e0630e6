//! Two nodes in one process, seen from inside.

use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use madgate_bmm::{Buffer, Policy};
use madgate_gtm::wire::{HEADER_BYTES, Kind, ReceiveMode};
use madgate_gtm::{Header, Time};
use madgate_tm::{
    Interest, LaneClass, LaneError, LaneReceiver, LaneSender, LentSlot, Piece, Poller,
    ReceivedSlot, Room, Shape,
};
use tempfile::TempDir;

use super::Session;
use super::core::{Core, Gathers, SWEEP, SWEEP_MOST};
use super::driver::{Driver, Patience};
use super::goal::{Goal, Nothing};
use super::input::{Input, InputError};
use super::links::{CONTROL_BYTES_MOST, Link, LinkOutput, OUTBOX_BYTES, OUTBOX_BYTES_MOST};
use crate::cluster::Cluster;
use crate::conductor::{LinkKind, LinkRequest};
use crate::handshake::SessionKey;

pub(super) fn pair(protocol: &str, addresses: [&str; 2]) -> (TempDir, Session, Session) {
    pair_tuned(protocol, addresses, [""; 2])
}

/// The same, of nodes whose cluster files have these lines behind those of the network.
fn pair_tuned(
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

fn say(from: &Session, to: &Session, what: u8) {
    let channel = from.channel("main").unwrap();
    let mut packing = channel.begin_packing(to.node()).unwrap();
    packing.pack_safer(&[what], ReceiveMode::Express).unwrap();
    packing
        .pack_owned(vec![what; LARGE].into(), ReceiveMode::Cheaper)
        .unwrap();
    packing.end_packing_delivered().unwrap();
}

fn hear(at: &Session) -> u8 {
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

/// A lane whose peer has sent some slots and gone.
#[derive(Debug)]
struct Ending {
    slots: std::vec::IntoIter<[u8; HEADER_BYTES]>,
    taken: Arc<AtomicUsize>,
    /// To have a descriptor.
    file: OwnedFd,
}

impl Ending {
    /// With so many pings, and a descriptor that can be waited for.
    fn with_pings(count: u64) -> Self {
        let ping = |number| Header::echo(Kind::Ping, number).to_control_frame();
        let slots: Vec<_> = (0..count).map(ping).collect();
        Self {
            slots: slots.into_iter(),
            taken: Arc::default(),
            file: UnixStream::pair().unwrap().0.into(),
        }
    }
}

impl LaneReceiver for Ending {
    fn shape(&self) -> Shape {
        Shape::Static {
            slot_bytes: HEADER_BYTES,
            slots: 4,
        }
    }

    fn try_receive(&mut self, _: Room<'_>, _: &mut BytesMut) -> Result<usize, LaneError> {
        Err(LaneError::WrongShape("a stream"))
    }

    fn try_receive_slot(&mut self) -> Result<Option<ReceivedSlot>, LaneError> {
        Err(LaneError::Closed)
    }

    fn try_receive_copy(&mut self, into: &mut BytesMut) -> Result<Option<usize>, LaneError> {
        let slot = self.slots.next().ok_or(LaneError::Closed)?;
        into.extend_from_slice(&slot);
        self.taken.fetch_add(1, Ordering::Relaxed);
        Ok(Some(slot.len()))
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        Err(LaneError::Closed)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.file.as_fd(), Interest::Readable)
    }

    fn acknowledge_wake(&mut self) {}
}

/// A link of a's to b that no conductor knows of.
fn unknown_link(a: &Session, b: &Session) -> u32 {
    let request = LinkRequest {
        kind: LinkKind::Regular,
        network: a.cluster().networks_of(a.node()).next().unwrap(),
        peer: b.node(),
    };
    let mut core = a.inner().lock();
    core.add_link(Link::new(request, false))
}

/// A driver beside the session's own, for links that no conductor knows of.
fn other_driver() -> Driver {
    let (_, events) = crossbeam_channel::bounded(1);
    Driver::new(Poller::new().unwrap(), events)
}

#[test]
fn what_one_lane_holds_is_taken_in_when_the_other_has_ended() {
    let (_files, a, b) = pair("shm", ["a", "b"]);
    let inner = a.inner();
    let link = unknown_link(&a, &b);
    let mut driver = other_driver();
    let (urgent, bulk) = (Ending::with_pings(2), Ending::with_pings(0));
    let taken = Arc::clone(&urgent.taken);
    for (class, lane) in [(LaneClass::Urgent, urgent), (LaneClass::Bulk, bulk)] {
        let input = Input::new(link, class, Box::new(lane), 1 << 20);
        inner.add_input(&mut driver, input);
    }
    let mut look = |_: &mut Core| false;
    let mut goal = Goal::new(None, &mut look);
    assert!(inner.receive(&mut driver, 1, &mut goal), "it has ended");
    assert_eq!(taken.load(Ordering::Relaxed), 2);
    assert!(driver.inputs.iter().all(Option::is_none));
}

#[test]
fn a_link_that_cannot_be_waited_for_is_closed() {
    let (_files, a, b) = pair("shm", ["a", "b"]);
    let inner = a.inner();
    let mut driver = other_driver();
    let lane = Ending {
        // Pollers take none of the kind.
        file: fs::File::open("/dev/null").unwrap().into(),
        ..Ending::with_pings(0)
    };
    let input = Input::new(
        unknown_link(&a, &b),
        LaneClass::Urgent,
        Box::new(lane),
        1 << 20,
    );
    inner.add_input(&mut driver, input);
    assert!(driver.has_chores);
    inner.do_chores(&mut driver);
    assert!(driver.inputs.iter().all(Option::is_none));
}

#[test]
fn what_a_peer_sent_before_it_went_is_taken_in() {
    let (_files, a, b) = pair("shm", ["a", "b"]);
    let inner = a.inner();
    let link = unknown_link(&a, &b);
    let lane = Ending::with_pings(2);
    let mut input = Input::new(link, LaneClass::Urgent, Box::new(lane), 1 << 20);
    let mut receive = || {
        let mut look = |_: &mut Core| false;
        let mut goal = Goal::new(None, &mut look);
        input.receive(inner, &mut goal, &mut BytesMut::new(), Time(0))
    };
    assert_eq!(receive().unwrap(), 2 * HEADER_BYTES);
    // Both are answered.
    let answers = {
        let core = inner.lock();
        core.links[link as usize].as_ref().unwrap().control.len()
    };
    assert_eq!(answers, 2 * HEADER_BYTES);
    assert!(matches!(
        receive(),
        Err(InputError::Lane(LaneError::Closed))
    ));
}

/// A lane on which every look finds the same.
#[derive(Debug)]
struct Steady {
    brings: Brings,
    looks: Arc<AtomicUsize>,
    /// To have a descriptor that tells nothing.
    ends: [UnixStream; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Brings {
    Pings,
    Nothing,
    TheEnd,
}

impl LaneReceiver for Steady {
    fn shape(&self) -> Shape {
        Shape::Dynamic { gather_limit: 2 }
    }

    fn try_receive(&mut self, _: Room<'_>, batch: &mut BytesMut) -> Result<usize, LaneError> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        match self.brings {
            Brings::Nothing => Ok(0),
            Brings::TheEnd => Err(LaneError::Closed),
            Brings::Pings => {
                let ping = Header::echo(Kind::Ping, 1).to_control_frame();
                batch.extend_from_slice(&ping);
                Ok(ping.len())
            }
        }
    }

    fn try_receive_slot(&mut self) -> Result<Option<ReceivedSlot>, LaneError> {
        Err(LaneError::WrongShape("slots"))
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        Ok(true)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.ends[0].as_fd(), Interest::Readable)
    }

    fn acknowledge_wake(&mut self) {}
}

/// A driver that follows a lane of small frames and a bulk lane, which is out of the poller; how often
/// that was looked at.
fn following(a: &Session, links: [u32; 2], brings: [Brings; 2]) -> (Driver, Arc<AtomicUsize>) {
    let mut driver = other_driver();
    let looks = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let classes = [LaneClass::Urgent, LaneClass::Bulk];
    for at in 0..classes.len() {
        let lane = Steady {
            brings: brings[at],
            looks: Arc::clone(&looks[at]),
            ends: UnixStream::pair().unwrap().into(),
        };
        let input = Input::new(links[at], classes[at], Box::new(lane), 1 << 20);
        a.inner().add_input(&mut driver, input);
    }
    driver.begin_drive(true, || a.inner().now());
    let (inputs, poller) = (&driver.inputs, &driver.poller);
    driver.small.follow(0, inputs, poller).unwrap();
    driver.bulk.follow(1, inputs, poller).unwrap();
    while driver.bulk.unwatched().is_none() {
        driver.bulk.note_look(true, inputs, poller).unwrap();
    }
    let [_, looks] = looks;
    (driver, looks)
}

#[test]
fn a_bulk_lane_waits_for_small_frames_and_callers_for_one_pass_at_most() {
    for (small, is_over) in [
        (Brings::Pings, false),
        (Brings::Nothing, true),
        (Brings::Pings, true),
    ] {
        let (_files, a, b) = pair("shm", ["a", "b"]);
        let link = unknown_link(&a, &b);
        let (mut driver, looks) = following(&a, [link; 2], [small, Brings::Nothing]);
        for _ in 0..6 {
            let mut look = |_: &mut Core| is_over;
            let mut goal = Goal::new(None, &mut look);
            goal.look(&mut a.inner().lock());
            a.inner().drive(&mut driver, Patience::None, &mut goal);
        }
        assert!(driver.bulk.unwatched().is_some());
        assert_eq!(looks.load(Ordering::Relaxed), 3, "{small:?} {is_over}");
    }
}

#[test]
fn a_bulk_lane_is_watched_again_where_small_frames_of_its_link_may_come_unseen() {
    let (_files, a, b) = pair("shm", ["a", "b"]);
    let links = [unknown_link(&a, &b), unknown_link(&a, &b)];
    for (links, is_caller) in [(links, true), ([links[0]; 2], false)] {
        let (mut driver, looks) = following(&a, links, [Brings::Pings, Brings::Nothing]);
        driver.begin_drive(is_caller, || a.inner().now());
        let mut look = |_: &mut Core| false;
        let mut goal = Goal::new(None, &mut look);
        a.inner().drive(&mut driver, Patience::None, &mut goal);
        assert_eq!(driver.bulk.unwatched(), None);
        assert_eq!(looks.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn nobody_sleeps_with_a_lane_out_of_the_poller() {
    let (_files, a, b) = pair("shm", ["a", "b"]);
    let link = unknown_link(&a, &b);
    let (mut driver, _) = following(&a, [link; 2], [Brings::Nothing; 2]);
    let mut look = |_: &mut Core| false;
    let mut goal = Goal::new(None, &mut look);
    let patience = Patience::Sleep(Some(Duration::ZERO));
    a.inner().drive(&mut driver, patience, &mut goal);
    assert_eq!(driver.bulk.unwatched(), None);
}

#[test]
fn a_peer_that_ends_is_noticed_on_a_lane_out_of_the_poller() {
    let (_files, a, b) = pair("shm", ["a", "b"]);
    let link = unknown_link(&a, &b);
    let (mut driver, looks) = following(&a, [link; 2], [Brings::Nothing, Brings::TheEnd]);
    let mut look = |_: &mut Core| false;
    let mut goal = Goal::new(None, &mut look);
    a.inner().drive(&mut driver, Patience::None, &mut goal);
    assert_eq!(looks.load(Ordering::Relaxed), 1);
    assert!(driver.inputs.iter().all(Option::is_none));
    assert_eq!((driver.small.lane(), driver.bulk.lane()), (None, None));
}

#[test]
fn an_acknowledgement_goes_with_what_a_caller_sends_who_is_about_to_leave() {
    let (_files, a, b) = pair_tuned("shm", ["a", "b"], ["[endpoint]\nwindow = \"128KiB\"\n"; 2]);
    // Half of a window.
    let large = vec![1; 64 << 10];
    let small = &large[..1];
    let send = |from: &Session, to: &Session, bytes: &[u8]| {
        let channel = from.channel("main").unwrap();
        let mut packing = channel.begin_packing(to.node()).unwrap();
        packing.pack_safer(bytes, ReceiveMode::Cheaper).unwrap();
        packing.end_packing().unwrap();
    };
    // What opens a flow is answered at once.
    for (from, to) in [(&a, &b), (&b, &a)] {
        thread::scope(|scope| {
            scope.spawn(|| say(from, to, 1));
            assert_eq!(hear(to), 1);
        });
    }
    let (inner, patience) = (b.inner(), Patience::Sleep(Some(Duration::ZERO)));
    let is_dirty = || !inner.lock().dirty.is_empty();
    // Only the test drives.
    inner.lock().callers += 1;
    inner.waker.wake();
    let mut driver = loop {
        match inner.try_drive() {
            Some(driver) => break driver,
            None => thread::yield_now(),
        }
    };
    let started = Instant::now();
    let has_time = || started.elapsed() < a.cluster().link_timeout();
    // Whether it waits after a pass in which it alone was due, if it was: a pass may come late.
    let mut waits = |is_caller: bool, is_over: bool, bytes: &[u8]| {
        let flow = || {
            let flow = &inner.lock().in_flows[0].flow;
            (flow.delivered(), flow.next_deadline())
        };
        let (before, _) = flow();
        send(&a, &b, bytes);
        let due = loop {
            inner.drive(&mut driver, patience, &mut Goal::new(None, &mut Nothing));
            let (delivered, due) = flow();
            if delivered >= before + bytes.len() as u64 {
                break due?;
            }
            assert!(has_time());
        };
        while inner.now() < due {
            thread::yield_now();
        }
        driver.begin_drive(is_caller, || inner.now());
        let sweep_at = inner.lock().sweep_at;
        let mut look = |_: &mut Core| is_over;
        let mut goal = Goal::new(None, &mut look);
        goal.look(&mut inner.lock());
        inner.drive(&mut driver, patience, &mut goal);
        let core = inner.lock();
        let is_alone = core.timed.is_empty() && core.sweep_at == sweep_at;
        is_alone.then(|| !core.dirty.is_empty())
    };
    let take = |bytes: &[u8]| {
        let channel = b.channel("main").unwrap();
        let mut unpacking = channel.begin_unpacking().unwrap();
        let block = unpacking.unpack_owned(bytes.len(), ReceiveMode::Cheaper);
        assert_eq!(block.unwrap(), bytes);
        unpacking.end_unpacking().unwrap();
    };
    for (is_caller, is_over, bytes) in [
        (true, true, small),
        (true, false, small),
        (false, true, small),
        (true, true, &large),
    ] {
        let waits = loop {
            assert!(has_time());
            let waits = waits(is_caller, is_over, bytes);
            take(bytes);
            if let Some(waits) = waits {
                break waits;
            }
        };
        let has_ample_credit = bytes.len() == 1;
        assert_eq!(waits, is_caller && is_over && has_ample_credit);
        send(&b, &a, small);
        // Nobody drives. Messages may gather for a moment, and credit with them.
        while is_dirty() {
            assert!(has_time());
            thread::yield_now();
        }
    }
    drop(driver);
    inner.lock().callers -= 1;
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
fn a_driver_that_panicked_leaves_no_block_behind() {
    let (_files, a, _b) = pair("shm", ["a", "b"]);
    let inner = a.inner();
    // The progress thread sleeps with the wheel, and leaves it to callers.
    inner.lock().callers += 1;
    inner.waker.wake();
    let driven = catch_unwind(AssertUnwindSafe(|| {
        let mut driver = inner.driver.lock();
        driver.serves_block = true;
        panic!("as the test wants it");
    }));
    assert!(driven.is_err());
    // Now and then the progress thread drives: whoever is first.
    let driver = loop {
        match inner.try_drive() {
            Some(driver) => break driver,
            None => thread::yield_now(),
        }
    };
    assert!(!driver.serves_block);
    inner.lock().callers -= 1;
}
