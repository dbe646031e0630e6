//! Small frames that travel in front of large ones, cut where a stream may cut them.

use std::collections::VecDeque;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use bytes::BytesMut;
use madgate_bmm::Policy;
use madgate_gtm::wire::{
    AHEAD_BYTES, DESCRIPTOR_BYTES, Descriptor, Flags, FlowKey, HEADER_BYTES, Kind, LEAD_BYTES,
    Opening, ReceiveMode, SendMode, checksum,
};
use madgate_gtm::{Header, Time};
use madgate_tm::{
    Interest, LaneClass, LaneError, LaneReceiver, LaneSender, LentSlot, Piece, ReceivedSlot, Room,
    Shape,
};
use tempfile::TempDir;

use super::super::core::Core;
use super::super::goal::Goal;
use super::super::links::{Link, LinkOutput};
use super::super::tests::pair_tuned;
use super::{FRAMES_PER_TURN, Input, InputError, SHORT_BATCH_BYTES, SHORT_FRAMES};
use crate::conductor::{LinkKind, LinkRequest};
use crate::session::Session;

/// Long enough to be received by a call of its own.
const LARGE: usize = 20_000;
/// Not so.
const SHORT: usize = 5000;

/// What is still to come of a stream: one piece at a time.
type Pieces = Arc<Mutex<VecDeque<BytesMut>>>;

/// Its end.
#[derive(Debug)]
struct Stream {
    pieces: Pieces,
    /// What was granted by what has been sent.
    granted: Arc<AtomicU64>,
    /// To have a descriptor.
    file: fs::File,
}

impl Stream {
    fn of(pieces: &Pieces) -> Box<Self> {
        Box::new(Self {
            pieces: Arc::clone(pieces),
            granted: Arc::default(),
            file: fs::File::open("/dev/null").unwrap(),
        })
    }
}

impl LaneReceiver for Stream {
    fn shape(&self) -> Shape {
        Shape::Dynamic { gather_limit: 2 }
    }

    fn try_receive(
        &mut self,
        mut first: Room<'_>,
        rest: &mut BytesMut,
    ) -> Result<usize, LaneError> {
        let mut pieces = self.pieces.lock().unwrap();
        let Some(piece) = pieces.front_mut() else {
            return Ok(0);
        };
        let to_first = first.len().min(piece.len());
        first.put(Piece::new(&piece.split_to(to_first)));
        let to_rest = (rest.capacity() - rest.len()).min(piece.len());
        rest.extend_from_slice(&piece.split_to(to_rest));
        if piece.is_empty() {
            pieces.pop_front();
        }
        Ok(to_first + to_rest)
    }

    fn try_receive_slot(&mut self) -> Result<Option<ReceivedSlot>, LaneError> {
        Err(LaneError::WrongShape("slots"))
    }

    fn try_receive_copy(&mut self, _: &mut BytesMut) -> Result<Option<usize>, LaneError> {
        Err(LaneError::WrongShape("slots"))
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        Ok(true)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.file.as_fd(), Interest::Readable)
    }

    fn acknowledge_wake(&mut self) {}
}

/// What is sent is forgotten, but for how much it grants.
impl LaneSender for Stream {
    fn shape(&self) -> Shape {
        Shape::Dynamic { gather_limit: 2 }
    }

    fn try_send(&mut self, pieces: &[Piece<'_>]) -> Result<usize, LaneError> {
        let mut sent = vec![0; pieces.iter().map(Piece::len).sum()];
        let mut filled = 0;
        for piece in pieces {
            filled += piece.copy_to(&mut sent[filled..]);
        }
        for frame in sent.as_chunks().0 {
            let header = Header::parse(frame).unwrap();
            if header.kind == Kind::Credit {
                self.granted.fetch_max(header.offset, Ordering::Relaxed);
            }
        }
        Ok(filled)
    }

    fn try_lend(&mut self) -> Result<Option<LentSlot>, LaneError> {
        Err(LaneError::WrongShape("slots"))
    }

    fn commit(&mut self, _: LentSlot, _: usize) -> Result<(), LaneError> {
        Err(LaneError::WrongShape("slots"))
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        Ok(false)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.file.as_fd(), Interest::Writable)
    }

    fn acknowledge_wake(&mut self) {}
}

/// A node that receives the frames of a flow over a stream, and the stream.
struct Receiving {
    node: Session,
    input: Input,
    pieces: Pieces,
    /// How far the flow may go.
    granted: Arc<AtomicU64>,
    flow: FlowKey,
    position: u64,
    /// Of the next message.
    number: u32,
    /// Bytes of the large block of each message.
    large: usize,
    _source: Session,
    _files: TempDir,
}

impl Receiving {
    fn new() -> Self {
        Self::tuned("")
    }

    /// The same, with these lines in the cluster file.
    fn tuned(lines: &str) -> Self {
        // Their network is not used.
        let (files, source, node) = pair_tuned("shm", ["a", "b"], [lines; 2]);
        let request = LinkRequest {
            kind: LinkKind::Regular,
            network: node.cluster().networks_of(node.node()).next().unwrap(),
            peer: source.node(),
        };
        let pieces = Pieces::default();
        let urgent = Stream::of(&pieces);
        let granted = Arc::clone(&urgent.granted);
        let output = LinkOutput::new(urgent, Stream::of(&pieces), Policy::Gathering);
        let mut link = Link::new(request, false);
        link.output = Some(Arc::new(output));
        let link = node.inner().lock().add_link(link);
        let flow = FlowKey {
            channel: 0,
            source: source.node().rank(),
            destination: node.node().rank(),
        };
        let mut receiving = Self {
            node,
            input: Input::new(link, LaneClass::Bulk, Stream::of(&pieces), 1 << 20),
            pieces,
            granted,
            flow,
            position: 0,
            number: 0,
            large: LARGE,
            _source: source,
            _files: files,
        };
        let opening = Opening {
            source_incarnation: 1,
            destination_incarnation: 0,
            fragment_bytes: 65_536,
        };
        let opening = receiving.frame(Flags::OPEN, 0, &opening.to_bytes());
        receiving.receive(&opening, &[]).unwrap();
        receiving
    }

    /// The flow's next frame.
    fn frame(&mut self, flags: Flags, block: u32, payload: &[u8]) -> Vec<u8> {
        let mut header = Header::new(Kind::Data, self.flow, 1);
        header.flags = flags;
        header.message = self.number;
        header.block = block;
        header.position = self.position;
        header.length = u32::try_from(payload.len()).unwrap();
        let mut running = checksum::Running::start(&header);
        running.update(payload);
        header.checksum = running.finish();
        self.position = header.end_position();
        [&header.to_bytes()[..], payload].concat()
    }

    /// The frames of the flow's next message: small blocks, and a large one.
    fn message(&mut self, small: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut block = 0;
        for &small in small {
            let record = record(&contents(self.number, small));
            bytes.extend(self.frame(Flags::DESCRIBED, block, &record));
            block += 1;
        }
        let flags = Flags::DESCRIBED.with(Flags::END);
        let record = record(&contents(self.number, self.large));
        bytes.extend(self.frame(flags, block, &record));
        self.number += 1;
        bytes
    }

    /// Waits until all frames so far may come: another thread of the node may be about to say so.
    fn wait_for_credit(&self) {
        while self.granted.load(Ordering::Relaxed) < self.position {
            self.node.inner().flush_dirty();
            thread::yield_now();
        }
    }

    /// Takes in what a stream brings that is cut at `cuts`.
    fn receive(&mut self, bytes: &[u8], cuts: &[usize]) -> Result<(), InputError> {
        let mut rest = BytesMut::from(bytes);
        let mut at = 0;
        for &cut in cuts {
            let piece = rest.split_to(cut - at);
            self.pieces.lock().unwrap().push_back(piece);
            at = cut;
        }
        self.pieces.lock().unwrap().push_back(rest);
        let mut look = |_: &mut Core| false;
        let mut goal = Goal::new(None, &mut look);
        let mut scratch = BytesMut::new();
        while !self.pieces.lock().unwrap().is_empty() {
            let inner = self.node.inner();
            self.input
                .receive(inner, &mut goal, &mut scratch, Time(0))?;
            // Credit, without which no more may come.
            inner.flush_dirty();
        }
        Ok(())
    }

    /// Unpacks a message, which is the one of that `number`.
    fn unpack(&self, number: u32, small: &[usize]) {
        let channel = self.node.channel("main").unwrap();
        let mut unpacking = channel.try_begin_unpacking().unwrap().expect("a message");
        for &length in small.iter().chain(&[self.large]) {
            let block = unpacking.unpack_owned(length, ReceiveMode::Cheaper);
            assert!(block.unwrap() == contents(number, length));
        }
        unpacking.end_unpacking().unwrap();
    }
}

fn turn(node: &Session, input: &mut Input) -> Result<usize, InputError> {
    let mut look = |_: &mut Core| false;
    let mut goal = Goal::new(None, &mut look);
    let inner = node.inner();
    let received = input.receive(inner, &mut goal, &mut BytesMut::new(), Time(0));
    inner.flush_dirty();
    received
}

fn contents(number: u32, length: usize) -> Vec<u8> {
    (0..=250)
        .cycle()
        .skip(number as usize % 251)
        .take(length)
        .collect()
}

fn record(block: &[u8]) -> Vec<u8> {
    let length = u64::try_from(block.len()).unwrap();
    let descriptor = Descriptor::new(length, SendMode::Cheaper, ReceiveMode::Cheaper).unwrap();
    [&descriptor.to_bytes()[..], block].concat()
}

#[test]
fn small_frames_in_front_of_large_ones_arrive_wherever_the_stream_is_cut() {
    let most = LEAD_BYTES - HEADER_BYTES - DESCRIPTOR_BYTES;
    let mut receiving = Receiving::new();
    for small in [&[8][..], &[0, 40], &[most], &[1000], &[]] {
        for cut in 1..AHEAD_BYTES + 10 {
            let number = receiving.number;
            let mut bytes = receiving.message(small);
            let first = bytes.len();
            bytes.extend(receiving.message(small));
            let cuts = [cut, first - 1, first + cut];
            receiving.wait_for_credit();
            receiving.receive(&bytes, &cuts).unwrap();
            for number in [number, number + 1] {
                receiving.unpack(number, small);
            }
        }
    }
}

impl Receiving {
    /// Messages of one block go all the way, so many.
    fn pass(&mut self, count: u32) {
        for _ in 0..count {
            let number = self.number;
            let bytes = self.message(&[]);
            self.wait_for_credit();
            self.receive(&bytes, &[]).unwrap();
            self.unpack(number, &[]);
        }
    }
}

#[test]
fn short_frames_are_read_many_at_once_wherever_the_stream_is_cut() {
    let mut receiving = Receiving::new();
    receiving.large = SHORT;
    receiving.pass(SHORT_FRAMES);
    for small in [&[][..], &[8], &[1000]] {
        for cut in (1..3 * SHORT).step_by(97) {
            let number = receiving.number;
            let messages: Vec<_> = (0..4).map(|_| receiving.message(small)).collect();
            receiving.wait_for_credit();
            receiving.receive(&messages.concat(), &[cut]).unwrap();
            assert_eq!(receiving.input.batch.capacity(), SHORT_BATCH_BYTES);
            assert!(receiving.input.batch.is_empty() && receiving.input.arriving.is_none());
            (number..number + 4).for_each(|number| receiving.unpack(number, small));
        }
    }
}

#[test]
fn short_frames_are_read_one_by_one_where_batches_are_switched_off() {
    let mut receiving = Receiving::tuned("[endpoint]\nbatches = false\n");
    receiving.large = SHORT;
    receiving.pass(2 * SHORT_FRAMES);
    assert_eq!(receiving.input.batch.capacity(), AHEAD_BYTES);
}

#[test]
fn a_lane_is_read_frame_by_frame_again_when_long_ones_come() {
    let mut receiving = Receiving::new();
    for _ in 0..2 {
        receiving.large = LARGE;
        receiving.pass(2);
        assert_eq!(receiving.input.batch.capacity(), AHEAD_BYTES);
        receiving.large = SHORT;
        receiving.pass(SHORT_FRAMES - 1);
        assert_eq!(receiving.input.batch.capacity(), AHEAD_BYTES);
        receiving.pass(1);
        assert_eq!(receiving.input.batch.capacity(), SHORT_BATCH_BYTES);
        // The batch that its head comes in holds much of it.
        receiving.large = LARGE;
        let number = receiving.number;
        let bytes = receiving.message(&[8]);
        receiving.wait_for_credit();
        receiving.receive(&bytes, &[LARGE / 2]).unwrap();
        receiving.unpack(number, &[8]);
    }
}

#[test]
fn what_claims_to_be_longer_than_any_frame_is_not_waited_for() {
    let mut receiving = Receiving::new();
    let mut head = receiving.frame(Flags::DESCRIBED, 0, &record(&contents(0, LARGE)));
    head.truncate(AHEAD_BYTES / 2);
    head[12..16].copy_from_slice(&(8_u32 << 20).to_le_bytes());
    let error = receiving.receive(&head, &[]).unwrap_err();
    assert!(matches!(error, InputError::Fault(_)), "{error}");
}

#[test]
fn a_large_frame_that_comes_early_lets_the_other_lane_have_a_turn() {
    let small = [8];
    for comes_then in [true, false] {
        let mut receiving = Receiving::new();
        let urgent = Pieces::default();
        let link = receiving.input.link;
        let mut other = Input::new(link, LaneClass::Urgent, Stream::of(&urgent), 1 << 20);
        let bytes = receiving.message(&small);
        let (first, large) = bytes.split_at(HEADER_BYTES + DESCRIPTOR_BYTES + small[0]);
        let left = |pieces: &Pieces| pieces.lock().unwrap().front().map_or(0, BytesMut::len);
        let pieces = Arc::clone(&receiving.pieces);
        pieces.lock().unwrap().push_back(large.into());
        urgent.lock().unwrap().push_back(first.into());

        assert_eq!(receiving.turn().unwrap(), AHEAD_BYTES);
        assert_eq!(left(&pieces), large.len() - AHEAD_BYTES);
        if comes_then {
            receiving.turn_of(&mut other).unwrap();
        }
        // It waits no longer, whether they have come or not.
        receiving.turn().unwrap();
        assert_eq!(left(&pieces), 0);
        if !comes_then {
            receiving.turn_of(&mut other).unwrap();
        }
        receiving.unpack(0, &small);
    }
}

/// A length that has changed on its way makes payload of what are frames, and frames of payload.
#[test]
fn damaged_headers_end_a_bulk_lane_before_their_length_is_acted_on() {
    let flags = Flags::DESCRIBED.with(Flags::HEADER_ONLY);
    for (length, damaged) in [(LARGE, 20_000_u32), (LARGE, 16), (8, 10_000)] {
        let mut receiving = Receiving::new();
        let mut frame = receiving.frame(flags, 0, &record(&contents(0, length)));
        // Its checksum covers the header alone.
        let header = Header::parse(frame.first_chunk().unwrap()).unwrap();
        let sum = checksum::Running::start(&header).finish();
        frame[16..20].copy_from_slice(&sum.to_le_bytes());
        assert!(Receiving::new().receive(&frame, &[]).is_ok());
        frame[12..16].copy_from_slice(&damaged.to_le_bytes());
        frame.resize(AHEAD_BYTES.max(frame.len()), 0);
        let error = receiving.receive(&frame, &[]).unwrap_err();
        assert!(matches!(error, InputError::Damaged), "{damaged}: {error}");
    }
}

#[test]
fn control_frames_stay_off_the_bulk_lane() {
    let mut receiving = Receiving::new();
    let control = Header::echo(Kind::Ping, 7).to_control_frame();
    let data = receiving.message(&[]);
    let refused = receiving.receive(&[&control[..], &data[..]].concat(), &[]);
    assert!(refused.unwrap_err().to_string().contains("bulk lane"));
}

// ---- slots ------------------------------------------------------------------------------

/// What is still to come on a lane of slots; a slot that is none ends it.
type Coming = Arc<Mutex<VecDeque<Option<Vec<u8>>>>>;

/// Its receiver.
#[derive(Debug)]
struct Slots {
    coming: Coming,
    /// To have a descriptor.
    file: fs::File,
}

impl LaneReceiver for Slots {
    fn shape(&self) -> Shape {
        Shape::Static {
            slot_bytes: 4096,
            slots: 64,
        }
    }

    fn try_receive(&mut self, _: Room<'_>, _: &mut BytesMut) -> Result<usize, LaneError> {
        Err(LaneError::WrongShape("a stream"))
    }

    fn try_receive_slot(&mut self) -> Result<Option<ReceivedSlot>, LaneError> {
        Err(LaneError::WrongShape("lends no slots"))
    }

    fn try_receive_copy(&mut self, into: &mut BytesMut) -> Result<Option<usize>, LaneError> {
        let mut coming = self.coming.lock().unwrap();
        match coming.front() {
            None => return Ok(None),
            Some(None) => return Err(LaneError::Closed),
            Some(Some(slot)) => into.extend_from_slice(slot),
        }
        Ok(coming.pop_front().flatten().map(|slot| slot.len()))
    }

    fn may_have_arrived(&self) -> bool {
        !self.coming.lock().unwrap().is_empty()
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        Ok(true)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.file.as_fd(), Interest::Readable)
    }

    fn acknowledge_wake(&mut self) {}
}

impl Receiving {
    /// The same over slots, of small frames.
    fn over_slots() -> (Self, Coming) {
        let mut receiving = Self::new();
        let coming = Coming::default();
        let slots = Slots {
            coming: Arc::clone(&coming),
            file: fs::File::open("/dev/null").unwrap(),
        };
        let link = receiving.input.link;
        receiving.input = Input::new(link, LaneClass::Urgent, Box::new(slots), 1 << 20);
        (receiving, coming)
    }

    /// The frame of the flow's next message, which is small.
    fn small(&mut self) -> Vec<u8> {
        let record = record(&contents(self.number, 8));
        let frame = self.frame(Flags::DESCRIBED.with(Flags::END), 0, &record);
        self.number += 1;
        frame
    }

    /// One turn of the lane.
    fn turn(&mut self) -> Result<usize, InputError> {
        turn(&self.node, &mut self.input)
    }

    /// One turn of another lane.
    fn turn_of(&self, input: &mut Input) -> Result<usize, InputError> {
        turn(&self.node, input)
    }

    /// Unpacks the small messages of these numbers, behind which there is no other.
    fn unpack_small(&self, numbers: std::ops::Range<u32>) {
        let channel = self.node.channel("main").unwrap();
        for number in numbers {
            let mut unpacking = channel.try_begin_unpacking().unwrap().expect("a message");
            let block = unpacking.unpack_owned(8, ReceiveMode::Cheaper).unwrap();
            assert!(block == contents(number, 8), "message {number}");
            unpacking.end_unpacking().unwrap();
        }
        assert!(channel.try_begin_unpacking().unwrap().is_none());
    }
}

#[test]
fn slots_are_taken_in_in_order_so_many_in_a_turn() {
    for count in [1, 2, 3, 15, 16, 17, 40] {
        let (mut receiving, coming) = Receiving::over_slots();
        for _ in 0..count {
            let slot = receiving.small();
            coming.lock().unwrap().push_back(Some(slot));
        }
        let mut left = count;
        while left > 0 {
            assert!(receiving.turn().unwrap() > 0);
            let taken = left.min(FRAMES_PER_TURN);
            left -= taken;
            assert_eq!(coming.lock().unwrap().len(), left, "of {count}");
        }
        assert_eq!(receiving.turn().unwrap(), 0);
        receiving.unpack_small(0..u32::try_from(count).unwrap());
    }
}

#[test]
fn slots_may_have_several_frames_or_none() {
    let (mut receiving, coming) = Receiving::over_slots();
    let two = [receiving.small(), receiving.small()].concat();
    let one = receiving.small();
    let last = receiving.small();
    for slots in [vec![vec![]], vec![vec![], two], vec![one, vec![], last]] {
        coming.lock().unwrap().extend(slots.into_iter().map(Some));
        receiving.turn().unwrap();
        assert!(coming.lock().unwrap().is_empty());
    }
    receiving.unpack_small(0..4);
}

#[test]
fn a_frame_ends_where_its_slot_does() {
    for before in [0, 1, 2] {
        let (mut receiving, coming) = Receiving::over_slots();
        for _ in 0..before {
            let slot = receiving.small();
            coming.lock().unwrap().push_back(Some(slot));
        }
        let frame = receiving.small();
        let (head, tail) = frame.split_at(HEADER_BYTES + 3);
        let parts = [head, tail].map(|part| Some(part.to_vec()));
        coming.lock().unwrap().extend(parts);
        let refused = receiving.turn().unwrap_err();
        assert!(matches!(refused, InputError::Fault(_)), "{refused}");
        receiving.unpack_small(0..before);
    }
}

#[test]
fn what_came_before_the_end_of_a_lane_is_taken_in() {
    for before in [1, 2, 5] {
        let (mut receiving, coming) = Receiving::over_slots();
        for _ in 0..before {
            let slot = receiving.small();
            coming.lock().unwrap().push_back(Some(slot));
        }
        coming.lock().unwrap().push_back(None);
        assert!(receiving.turn().unwrap() > 0);
        assert!(receiving.turn().unwrap_err().is_end());
        receiving.unpack_small(0..before);
    }
}
