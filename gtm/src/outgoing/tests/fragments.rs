//! Sizes of fragments.

use bytes::Bytes;

use super::super::{FragmentHead, Outgoing, Transmit};
use super::{SMALL, Settings, Source, descriptor};
use crate::wire::{CHARGE_PER_FRAME, DESCRIPTOR_BYTES, Flags, HEADER_BYTES, Header, LEAD_BYTES};

#[test]
fn large_fragments_come_between_smaller_ones() {
    let kib = |fragments: &[u32]| fragments.iter().map(|kib| kib << 10).collect::<Vec<_>>();
    for (block, expected) in [
        (64, kib(&[64])),
        (100, kib(&[64, 36])),
        (1024, kib(&[64, 64, 128, 256, 256, 128, 64, 64])),
        (
            2048,
            kib(&[64, 64, 128, 256, 256, 256, 256, 256, 256, 128, 64, 64]),
        ),
    ] {
        let mut source = Source::with_fragments(256 << 10).and_opened(1 << 30);
        source.push_block(block << 10);
        let lengths: Vec<u32> = source
            .frames()
            .iter()
            .map(|(header, _)| {
                let described = header.flags.has(Flags::DESCRIBED);
                header.length - if described { 8 } else { 0 }
            })
            .collect();
        assert_eq!(lengths, expected, "{block} KiB");
    }
}

impl Source {
    /// KiB of the payload of each frame that leaves now, descriptors left out.
    fn kib(&mut self) -> Vec<usize> {
        let bytes = |(_, payload): &(Header, Bytes)| payload.len() >> 10;
        self.frames().iter().map(bytes).collect()
    }
}

#[test]
fn fragments_begin_small_where_nothing_is_under_way_and_end_small_where_nothing_follows() {
    let mut source = Source::with_fragments(256 << 10).and_opened(100 << 20);
    source.push_block(1 << 20);
    assert_eq!(source.kib(), [64, 64, 128, 256, 256, 128, 64, 64]);
    // Behind that, which is not delivered.
    source.push_block(1 << 20);
    assert_eq!(source.kib(), [256, 256, 256, 128, 64, 64]);
    source.push_block(1 << 20);
    source.push_block(1 << 20);
    assert_eq!(
        source.kib(),
        [256, 256, 256, 256, 256, 256, 256, 128, 64, 64]
    );
    // All is delivered.
    let end = source.outgoing.positions().1;
    source.credit(end, 100 << 20);
    source.push_block(128 << 10);
    assert_eq!(source.kib(), [64, 64]);
}

#[test]
fn fragments_are_as_large_as_they_may_be_where_ramps_and_speed_are_switched_off() {
    let with = |ramps, sized_by_speed| {
        let change = |settings| Settings {
            fragment_bytes: 512 << 10,
            ramps,
            sized_by_speed,
            ..settings
        };
        let mut source = Source::with(change).and_opened(100 << 20);
        source.push_block(1 << 20);
        source.kib()
    };
    assert_eq!(with(true, true), [64, 64, 128, 256, 256, 128, 64, 64]);
    assert_eq!(with(false, true), [256; 4]);
    assert_eq!(with(true, false), [64, 64, 128, 256, 256, 128, 64, 64]);
    assert_eq!(with(false, false), [512; 2]);
}

#[test]
fn the_last_credit_is_not_spent_on_a_fragment_that_leaves_a_crumb() {
    let mut source = Source::with_fragments(256 << 10).and_opened(1000);
    let start = source.outgoing.positions().1;
    let granted = start + (900 << 10);
    source.credit(start, granted);
    for _ in 0..5 {
        source.push_block(256 << 10);
    }
    // What is under way brings credit for the next as a whole.
    let frames = source.frames();
    let lengths: Vec<_> = frames.iter().map(|(_, payload)| payload.len()).collect();
    assert_eq!(lengths.iter().sum::<usize>() >> 10, 768, "{lengths:?}");
    assert!(frames.last().unwrap().0.flags.has(Flags::WANT));
    source.credit(start, start + (2 << 20));
    assert!(source.kib().iter().all(|kib| *kib >= 64));
    // With nothing under way there is nothing to wait for.
    let mut source = Source::with_fragments(256 << 10).and_opened(1000);
    let start = source.outgoing.positions().1;
    source.credit(start, start + (30 << 10));
    source.push_block(256 << 10);
    assert_eq!(source.kib(), [29]);
}

impl Source {
    /// The small frames and the fragment that leave next.
    fn frames_and_fragment(&mut self) -> (Bytes, FragmentHead) {
        let Some(Transmit::Frames(frames)) = self.outgoing.poll_transmit(self.now, 1 << 16) else {
            panic!("small frames come first");
        };
        match self.outgoing.poll_transmit(self.now, 1 << 16) {
            Some(Transmit::Fragment { head, .. }) => (frames, head),
            other => panic!("{other:?}"),
        }
    }

    /// A message of a small block and a large one, which costs [`SMALL_AND_LARGE`].
    fn push_small_and_large(&mut self, small: usize) {
        let message = self.outgoing.begin_message();
        let length = u64::try_from(small).unwrap();
        let payload = [&descriptor(length).to_bytes()[..], &vec![7; small]].concat();
        self.outgoing
            .push_frame(Flags::DESCRIBED, message, 0, &payload);
        let block = Bytes::from(vec![8; 50_000]);
        self.outgoing
            .push_block(message, 1, descriptor(50_000), block, true);
    }
}

impl Source {
    /// Bytes of blocks in each frame that leaves now where short ones lead large ones.
    fn led(&mut self) -> Vec<usize> {
        let frames = self.frames_of(Outgoing::poll_transmit_led);
        let bytes = |(header, payload): &(Header, Bytes)| {
            let described = header.flags.has(Flags::DESCRIBED);
            payload.len() - if described { DESCRIPTOR_BYTES } else { 0 }
        };
        frames.iter().map(bytes).collect()
    }
}

#[test]
fn a_large_block_that_begins_its_message_is_led_by_its_first_bytes() {
    let mut source = Source::with_fragments(256 << 10).and_opened(1 << 30);
    source.push_block(1 << 20);
    let lengths = source.led();
    assert_eq!(lengths[..2], [64, 64 << 10]);
    assert!(lengths[1..].iter().all(|bytes| *bytes >= 60 << 10));
    assert_eq!(lengths.iter().sum::<usize>(), 1 << 20);
    source.push_block(16 << 10);
    assert_eq!(source.led(), [64, (16 << 10) - 64]);
    // What is shorter is not, nor what has something of its message in front of it.
    source.push_block((16 << 10) - 1);
    assert_eq!(source.led(), [(16 << 10) - 1]);
    source.push_small_and_large(8);
    assert_eq!(source.led(), [8, 50_000]);
}

#[test]
fn first_bytes_lead_only_what_leaves_with_them() {
    let both = 50_000 + u64::try_from(DESCRIPTOR_BYTES).unwrap() + 64 + 2 * CHARGE_PER_FRAME;
    for (credit, expected) in [(both, &[64, 50_000 - 64][..]), (both - 1, &[50_000])] {
        let mut source = Source::with_fragments(256 << 10).and_opened(1000);
        let start = source.outgoing.positions().1;
        source.credit(start, start + credit);
        source.push_block(50_000);
        assert_eq!(source.led(), expected);
    }
}

#[test]
fn what_first_bytes_lead_asks_for_credit_and_they_do_not() {
    let mut source = Source::with_fragments(1 << 20).and_opened(1000);
    let start = source.outgoing.positions().1;
    source.credit(start, start + 200_000);
    // Half a window is used when the first bytes leave.
    let fixed = 2 * CHARGE_PER_FRAME + u64::try_from(DESCRIPTOR_BYTES).unwrap();
    source.push_block(usize::try_from(99_900 - start - fixed).unwrap());
    assert_eq!(source.frames().len(), 2);
    source.push_block(50_000);
    source.push_block(100_000);
    let frames = source.frames_of(Outgoing::poll_transmit_led);
    let asks: Vec<_> = frames
        .iter()
        .map(|(header, payload)| (payload.len(), header.flags.has(Flags::WANT)))
        .collect();
    assert_eq!(asks, [(64 + 8, false), (50_000 - 64, true)]);
}

#[test]
fn first_bytes_are_sent_again_with_the_rest() {
    let mut source = Source::with_fragments(256 << 10).and_opened(1 << 30);
    let start = source.outgoing.positions().1;
    source.push_block(50_000);
    let first = source.frames_of(Outgoing::poll_transmit_led);
    source.outgoing.handle_link_lost(source.now);
    source.outgoing.handle_link_up(source.now);
    let opening = source.frames_of(Outgoing::poll_transmit_led);
    assert_eq!(opening.len(), 1);
    source.credit(start, 1 << 30);
    let again = source.frames_of(Outgoing::poll_transmit_led);
    let payloads = |frames: &[(Header, Bytes)]| -> Vec<Bytes> {
        let payloads = frames.iter().map(|(_, payload)| payload.clone());
        payloads.collect()
    };
    assert_eq!(payloads(&first).len(), 2);
    assert_eq!(payloads(&again), payloads(&first));
}

/// What a message of a small block of 8 bytes and a large one costs: two descriptors, two frames.
const SMALL_AND_LARGE: u64 = 50_008 + 2 * (8 + 128);

#[test]
fn a_small_frame_stays_with_its_block_while_there_is_no_credit_for_that() {
    let mut source = Source::with_fragments(256 << 10).and_opened(SMALL + SMALL_AND_LARGE + 1000);
    source.push_small_and_large(8);
    source.push_small();
    source.push_small_and_large(8);
    // The one before them leaves; of theirs nothing does, which would be of no use yet.
    assert_eq!(source.messages(), [1, 1, 2]);
    // With credit for some of the block they are on their way.
    let delivered = SMALL + SMALL_AND_LARGE + SMALL;
    source.credit(delivered, delivered + 20_000);
    let lengths: Vec<_> = source.frames().iter().map(|(_, it)| it.len()).collect();
    assert_eq!(lengths.len(), 2);
    assert!(lengths[0] == 16 && lengths[1] > 16 << 10);
}

#[test]
fn a_small_frame_leaves_before_its_block_where_nothing_is_under_way() {
    let mut source = Source::with_fragments(256 << 10).and_opened(SMALL + SMALL);
    source.push_small_and_large(8);
    assert_eq!(source.frames().len(), 1);
}

#[test]
fn small_frames_lead_a_large_one_of_their_message_alone() {
    let mut source = Source::with_fragments(256 << 10).and_opened(1 << 30);
    let most = LEAD_BYTES - HEADER_BYTES - DESCRIPTOR_BYTES;
    for (small, may_lead) in [(0, true), (8, true), (most, true), (most + 1, false)] {
        source.push_small_and_large(small);
        let (frames, fragment) = source.frames_and_fragment();
        assert_eq!(fragment.may_follow(&frames), may_lead, "{small}");
    }
    // A message that is complete is waited for.
    source.push_small();
    source.push_block(50_000);
    let (frames, fragment) = source.frames_and_fragment();
    assert!(!fragment.may_follow(&frames));
    source.push_small();
    source.push_small_and_large(8);
    let (frames, fragment) = source.frames_and_fragment();
    assert!(!fragment.may_follow(&frames));
    assert!(!fragment.may_follow(&[]));
}
