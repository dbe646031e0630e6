//! Both lanes of a link: what goes on first, and what becomes of them when one ends.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard};

use crossbeam_channel::never;
use madgate_gtm::wire::FlowKey;
use madgate_gtm::{Header, Time};
use madgate_tm::{Interest, LaneClass, LaneError, LaneReceiver, Poller, Room};

use super::*;
use crate::batch::Batches;
use crate::counters::read;
use crate::engine::Touched;
use crate::fixture::{Fixture, SlotReceiver};
use crate::instruments::Stopwatch;

/// What both lanes of a link hold, and what was taken from which.
#[derive(Debug, Default)]
struct Arriving {
    urgent: VecDeque<Vec<u8>>,
    bulk: VecDeque<Vec<u8>>,
    /// What comes by the urgent lane right after the next slot of the other is taken.
    then: Option<Vec<u8>>,
    /// What comes by it comes again at once.
    endless: bool,
    taken: Vec<LaneClass>,
}

/// One of the two.
#[derive(Debug)]
struct Arrivals {
    class: LaneClass,
    both: Arc<Mutex<Arriving>>,
    descriptor: UnixStream,
}

impl Arrivals {
    fn of(both: &Arc<Mutex<Arriving>>, class: LaneClass) -> Box<Self> {
        Box::new(Self {
            class,
            both: Arc::clone(both),
            descriptor: UnixStream::pair().unwrap().0,
        })
    }

    fn both(&self) -> MutexGuard<'_, Arriving> {
        self.both.lock().unwrap()
    }
}

impl LaneReceiver for Arrivals {
    fn shape(&self) -> Shape {
        let (slot_bytes, slots) = (1 << 16, 8);
        Shape::Static { slot_bytes, slots }
    }

    fn try_receive(&mut self, _: Room<'_>, _: &mut BytesMut) -> Result<usize, LaneError> {
        Err(LaneError::WrongShape("a stream"))
    }

    fn try_receive_slot(&mut self) -> Result<Option<ReceivedSlot>, LaneError> {
        let mut both = self.both();
        let slot = match self.class {
            LaneClass::Urgent if both.endless => both.urgent.front().cloned(),
            LaneClass::Urgent => both.urgent.pop_front(),
            LaneClass::Bulk => both.bulk.pop_front(),
        };
        if slot.is_some() {
            both.taken.push(self.class);
            let then = both.then.take();
            both.urgent.extend(then);
        }
        Ok(slot.map(ReceivedSlot::detached))
    }

    fn may_have_arrived(&self) -> bool {
        let both = self.both();
        !match self.class {
            LaneClass::Urgent => both.urgent.is_empty(),
            LaneClass::Bulk => both.bulk.is_empty(),
        }
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        Ok(true)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.descriptor.as_fd(), Interest::Readable)
    }

    fn acknowledge_wake(&mut self) {}
}

fn receiver(fixture: &Fixture, network: usize) -> Receiver {
    let engine = Arc::clone(&fixture.engine);
    let (poller, batches) = (Poller::new().unwrap(), Batches::new(2, 1 << 20));
    Receiver::new(engine, network, poller, never(), batches)
}

#[test]
fn small_frames_go_on_before_large_ones_that_come_after_them() {
    let frame = |length: u32| {
        let (channel, source, destination) = (0, 2, 0);
        let flow = FlowKey {
            channel,
            source,
            destination,
        };
        let mut header = Header::new(Kind::Data, flow, 1);
        header.length = length;
        let mut bytes = header.to_bytes().to_vec();
        bytes.resize(header.frame_bytes(), 0);
        bytes
    };
    let large = || frame(32 << 10);
    let ping = || Header::echo(Kind::Ping, 1).to_control_frame().to_vec();
    let (urgent, bulk) = (LaneClass::Urgent, LaneClass::Bulk);
    for order in [[urgent, bulk], [bulk, urgent]] {
        let fixture = Fixture::new();
        let link = fixture.link();
        let mut receiver = receiver(&fixture, link.network);
        let both = Arc::new(Mutex::new(Arriving::default()));
        for class in order {
            let lane = Arrivals::of(&both, class);
            receiver.add(Arc::clone(&link), class, lane);
        }
        let at = |class| order.iter().position(|other| *other == class).unwrap();
        let mut turn = |expected: &[LaneClass]| {
            assert!(receiver.turn(at(bulk)), "{order:?}");
            assert_eq!(std::mem::take(&mut both.lock().unwrap().taken), expected);
        };
        both.lock().unwrap().urgent = [ping()].into();
        both.lock().unwrap().bulk = [large(), large(), large(), large()].into();
        both.lock().unwrap().then = None;
        turn(&[urgent, bulk, bulk, bulk, bulk]);

        both.lock().unwrap().bulk = [large(), large(), large()].into();
        both.lock().unwrap().then = Some(ping());
        turn(&[bulk, urgent, bulk, bulk]);

        // It does not fall behind where they come all the time, and goes no further ahead of others
        // than without them.
        both.lock().unwrap().endless = true;
        both.lock().unwrap().urgent = [ping()].into();
        both.lock().unwrap().bulk = (0..100).map(|_| large()).collect();
        let mut both_in_turn = vec![];
        for _ in 0..LEADS_PER_TURN {
            both_in_turn.extend([urgent; SLOTS_PER_TURN]);
            both_in_turn.push(bulk);
        }
        turn(&both_in_turn);
        both.lock().unwrap().endless = false;
        both.lock().unwrap().urgent.clear();
        turn(&[bulk; SLOTS_PER_TURN]);

        // Nor by more bytes, however large slots are.
        both.lock().unwrap().bulk = (0..100).map(|_| frame(512 << 10)).collect();
        turn(&[bulk; SLOTS_PER_TURN / 8]);
    }
}

#[test]
fn what_a_peer_has_said_before_it_left_is_taken_in_where_who_sends_finds_that_first() {
    let fixture = Fixture::new();
    let link = fixture.left_link();
    let mut receiver = receiver(&fixture, link.network);
    let said = [1, 2].map(|number| Header::echo(Kind::Pong, number).to_control_frame().to_vec());
    receiver.add(
        Arc::clone(&link),
        LaneClass::Urgent,
        Box::new(SlotReceiver::new(said)),
    );
    let hub = &fixture.engine.networks[link.network];
    let mut watch = Stopwatch::new(fixture.engine.clock, Arc::clone(&hub.sender_spent));
    let mut touched = Touched::default();
    fixture.wait_for(&link, 0);
    for _ in 0..2 {
        fixture.engine.serve(&link, &mut touched, &mut watch);
        assert!(!link.is_closed(), "nobody has looked what it said");
    }
    receiver.obey();
    assert_eq!(read(&hub.tally.receives), 2);
    assert!(link.is_closed());
    assert!(receiver.inputs.iter().all(Option::is_none));
}

#[test]
fn what_came_before_a_lane_ended_is_taken_in() {
    let fixture = Fixture::new();
    let link = fixture.link();
    let mut receiver = receiver(&fixture, link.network);
    let ping = Header::echo(Kind::Ping, 1).to_control_frame();
    let lane = Box::new(SlotReceiver::new([ping.to_vec()]));
    let (class, now) = (LaneClass::Urgent, Time(0));
    let spin = receiver.waiting.new_spin();
    let mut input = Input::new(Arc::clone(&link), class, lane, 1 << 16, false, spin, now);
    let received = receiver.receive_slots(&mut input);
    assert!(matches!(received, Err(Fault::Lane(LaneError::Closed))));
    // It is answered.
    let tally = &fixture.engine.networks[link.network].tally;
    assert_eq!(read(&tally.sends), 1);
}
