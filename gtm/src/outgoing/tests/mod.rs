//! One flow at its source, against a destination that the test plays by hand.

mod alone;
mod bundle;
mod credit;
mod fragments;
mod lost;
mod memory;

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::{ALONE_BYTES, Failure, Outgoing, Settings, Transmit};
use crate::time::Time;
use crate::wire::checksum::{is_absent, is_intact};
use crate::wire::{
    Coverage, Descriptor, Flags, FlowKey, HEADER_BYTES, Header, Kind, ReceiveMode, Refusal,
    SendMode,
};

const FLOW: FlowKey = FlowKey {
    channel: 1,
    source: 2,
    destination: 3,
};
const THEIRS: u64 = 99;
const GIVE_UP: Duration = Duration::from_secs(30);
const ONE: Flags = Flags::DESCRIBED.with(Flags::END);
/// What `push_small` costs.
const SMALL: u64 = 128 + 16;

/// A way to take the next thing to send off a source.
type Poll = fn(&mut Outgoing<Bytes>, Time, usize) -> Option<Transmit<Bytes>>;

struct Source {
    outgoing: Outgoing<Bytes>,
    now: Time,
}

impl Source {
    fn new() -> Self {
        Self::with_fragments(1000)
    }

    fn with_fragments(fragment_bytes: u32) -> Self {
        Self::with(|settings| Settings {
            fragment_bytes,
            ..settings
        })
    }

    fn with(change: impl FnOnce(Settings) -> Settings) -> Self {
        let settings = Settings {
            flow: FLOW,
            incarnation: 7,
            fragment_bytes: 1000,
            checksum: Coverage::Whole,
            crosses_gateways: true,
            bundles: false,
            ramps: true,
            sized_by_speed: true,
            give_up_after: GIVE_UP,
            seed: 1,
        };
        let mut outgoing = Outgoing::new(change(settings), Time(0));
        outgoing.handle_link_up(Time(0));
        Self {
            outgoing,
            now: Time(0),
        }
    }

    /// A flow whose first message is delivered.
    fn opened(granted: u64) -> Self {
        Self::new().and_opened(granted)
    }

    fn and_opened(self, granted: u64) -> Self {
        let mut source = self;
        source.push_small();
        let opening = source.frames().remove(0);
        source.credit(opening.0.end_position(), granted);
        assert!(source.outgoing.is_drained());
        source
    }

    fn push_small(&mut self) -> u32 {
        let message = self.outgoing.begin_message();
        let mut payload = descriptor(8).to_bytes().to_vec();
        payload.extend_from_slice(&[u8::try_from(message % 251).unwrap(); 8]);
        self.outgoing.push_frame(ONE, message, 0, &payload);
        message
    }

    /// Begins a message, of which the first block is delivered.
    fn begin_one(&mut self) -> u32 {
        let message = self.outgoing.begin_message();
        let block = descriptor(0).to_bytes();
        self.outgoing
            .push_frame(Flags::DESCRIBED, message, 0, &block);
        let begun = self.frames().remove(0).0;
        self.credit(begun.end_position(), 1 << 20);
        message
    }

    fn push_block(&mut self, bytes: usize) -> u32 {
        let message = self.outgoing.begin_message();
        let block: Bytes = (0..bytes)
            .map(|at| u8::try_from(at % 251).unwrap())
            .collect();
        let length = u64::try_from(bytes).unwrap();
        self.outgoing
            .push_block(message, 0, descriptor(length), block, true);
        message
    }

    /// Tries to send a small message at once; its frame, if it left.
    fn send_alone(&mut self) -> Option<(Header, Bytes)> {
        let message = self.outgoing.begin_message();
        let mut payload = descriptor(8).to_bytes().to_vec();
        payload.extend_from_slice(&[u8::try_from(message % 251).unwrap(); 8]);
        let mut frame = [0; ALONE_BYTES];
        let now = self.now;
        let sent =
            self.outgoing
                .try_transmit_alone(message, 0, &payload, &mut frame, || now, |_| ());
        let Some(length) = sent else {
            self.outgoing.push_frame(ONE, message, 0, &payload);
            return None;
        };
        let header = Header::parse(frame.first_chunk().unwrap()).unwrap();
        assert_eq!(length, header.frame_bytes());
        let payload = Bytes::copy_from_slice(&frame[HEADER_BYTES..length]);
        assert!(is_absent(&header) || is_intact(&header, &payload));
        Some((header, payload))
    }

    /// All frames that may leave now, each with its payload.
    fn frames(&mut self) -> Vec<(Header, Bytes)> {
        self.frames_of(Outgoing::poll_transmit)
    }

    fn frames_of(&mut self, poll: Poll) -> Vec<(Header, Bytes)> {
        let mut frames = Vec::new();
        while let Some(transmit) = poll(&mut self.outgoing, self.now, 1 << 16) {
            let mut bytes = match transmit {
                Transmit::Frames(bytes) => bytes,
                Transmit::Fragment {
                    mut head,
                    data,
                    offset,
                    length,
                } => {
                    let start = usize::try_from(offset).unwrap();
                    let part = &data[start..start + length];
                    head.seal([part]);
                    let mut frame = BytesMut::from(head.as_bytes());
                    frame.extend_from_slice(part);
                    frame.freeze()
                }
            };
            while !bytes.is_empty() {
                let header = Header::parse(bytes.first_chunk().unwrap()).unwrap();
                let payload = bytes.split_to(header.frame_bytes()).slice(HEADER_BYTES..);
                assert!(is_absent(&header) || is_intact(&header, &payload));
                frames.push((header, payload));
            }
        }
        frames
    }

    fn messages(&mut self) -> Vec<u32> {
        self.frames()
            .iter()
            .map(|(header, _)| header.message)
            .collect()
    }

    fn credit(&mut self, delivered: u64, granted: u64) {
        let credit = Header::credit(FLOW, self.outgoing.label(), delivered, granted, THEIRS);
        self.outgoing.handle_credit(&credit, self.now);
    }

    fn held(&mut self) {
        let flow = self.outgoing.flow();
        let held = Header::new(Kind::Held, flow, self.outgoing.label());
        self.outgoing.handle_held(&held);
    }

    fn refuse(&mut self, reason: Refusal, incarnation: u64) {
        let refusal = Header::refusal(FLOW, self.outgoing.label(), reason, incarnation);
        self.outgoing.handle_refusal(&refusal, self.now);
    }

    /// Goes on to the next deadline, and does what is due.
    fn wait(&mut self) -> Duration {
        let deadline = self.outgoing.next_deadline().expect("a deadline");
        let waited = deadline.since(self.now);
        self.now = self.now.max(deadline);
        self.outgoing.handle_timeout(self.now);
        waited
    }

    fn control(&mut self) -> Option<Kind> {
        self.outgoing.poll_control().map(|header| header.kind)
    }

    fn failure(&mut self) -> Option<Failure> {
        self.outgoing
            .take_failure(self.now)
            .map(|(failure, _)| failure)
    }
}

fn descriptor(length: u64) -> Descriptor {
    Descriptor::new(length, SendMode::Cheaper, ReceiveMode::Cheaper).unwrap()
}
