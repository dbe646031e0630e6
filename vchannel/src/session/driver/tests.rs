//! What is looked at when, what comes of lanes that end, and when credit leaves.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use madgate_gtm::wire::{HEADER_BYTES, Kind, ReceiveMode};
use madgate_gtm::{Header, Time};
use madgate_tm::{Interest, LaneClass, LaneError, LaneReceiver, Poller, ReceivedSlot, Room, Shape};

use super::super::Session;
use super::super::core::Core;
use super::super::goal::{Goal, Nothing};
use super::super::input::{Input, InputError};
use super::super::tests::{hear, pair, pair_tuned, say, unknown_link};
use super::pace::HOT_PASSES;
use super::{Driver, Patience};
use crate::cluster::DEFAULT_SPIN;

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

/// A driver beside the session's own, for links that no conductor knows of.
fn other_driver() -> Driver {
    let (_, events) = crossbeam_channel::bounded(1);
    Driver::new(Poller::new().unwrap(), events, DEFAULT_SPIN)
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

#[test]
fn who_shares_the_processor_gives_it_up_after_few_looks_and_looks_at_descriptors_as_often() {
    let mut driver = other_driver();
    let counts = |driver: &Driver| {
        let looks = driver.slot_looks(Patience::None);
        [
            looks,
            driver.passes_per_yield(),
            driver.passes_per_look(false),
        ]
    };
    assert_eq!(counts(&driver)[1..], [1, 1]);
    driver.static_inputs.push(0);
    assert_eq!(counts(&driver), [64, 16, 8]);
    driver.crowd.note_yield(Duration::from_micros(50));
    assert_eq!(counts(&driver), [8, 1, 1]);
    assert_eq!(driver.slot_looks(Patience::Sleep(None)), 1);
    // All links are of shared memory.
    driver.inputs.push(None);
    assert_eq!(counts(&driver), [8, 1, 16]);
    // The other one computes: it would keep the processor for long each time.
    driver.crowd.note_yield(Duration::from_millis(3));
    assert_eq!(counts(&driver), [64, 16, 64]);
}

#[test]
fn all_descriptors_are_looked_at_each_time_where_what_else_is_looked_at_brings_nothing() {
    let (_files, a, b) = pair("shm", ["a", "b"]);
    let link = unknown_link(&a, &b);
    let (mut driver, _) = following(&a, [link; 2], [Brings::Nothing; 2]);
    // The bulk lane is looked at in between.
    assert_eq!(driver.passes_per_look(false), HOT_PASSES);
    driver.watch_bulk();
    assert_eq!(driver.small.lane(), Some(0));
    assert_eq!(driver.passes_per_look(false), 1);
    driver.note_small_look(true);
    assert_eq!(driver.passes_per_look(false), HOT_PASSES);
    // Something else came.
    driver.small.end_streak();
    assert_eq!(driver.passes_per_look(false), 1);
}

#[test]
fn a_wait_that_ends_with_what_it_was_for_says_how_long_that_took() {
    // What comes besides, now and then, says so too.
    const IN_A_ROW: u32 = 10;
    // Long enough for an answer to come within twice that, whatever else runs.
    let tuning = "[endpoint]\nspin = \"10ms\"\n";
    let (_files, a, b) = pair_tuned("shm", ["a", "b"], [tuning; 2]);
    let ask = |from: &Session, to: &Session, more: bool| {
        let channel = from.channel("main").unwrap();
        let mut packing = channel.begin_packing(to.node()).unwrap();
        let more = [u8::from(more)];
        packing.pack_safer(&more, ReceiveMode::Express).unwrap();
        packing.end_packing().unwrap();
    };
    let hear = |at: &Session| {
        let channel = at.channel("main").unwrap();
        let mut more = [0];
        let mut unpacking = channel.begin_unpacking().unwrap();
        unpacking.unpack_express(&mut more).unwrap();
        unpacking.end_unpacking().unwrap();
        more != [0]
    };
    let limit = || a.inner().driver.lock().spin.limit();
    let forget = || {
        let late = |_| a.inner().driver.lock().spin.note(Duration::from_secs(1));
        (0..100).for_each(late);
        assert_eq!(limit(), Duration::ZERO);
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            while hear(&b) {
                while !a.inner().driver_sleeps.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                ask(&b, &a, true);
            }
        });
        let started = Instant::now();
        let mut told = 0;
        while told < IN_A_ROW && started.elapsed() < Duration::from_secs(60) {
            forget();
            ask(&a, &b, true);
            assert!(hear(&a));
            told = if limit().is_zero() { 0 } else { told + 1 };
        }
        ask(&a, &b, false);
        assert_eq!(told, IN_A_ROW);
    });
}
