//! The sending half of an endpoint: packs messages, and puts on the link what its flows say.

use bytes::{Bytes, BytesMut};
use madgate_gtm::outgoing::{Failure, Settings, Transmit};
use madgate_gtm::wire::{Flags, FlowKey, Header, Kind, SMALL_PAYLOAD_BYTES};
use madgate_gtm::{Outgoing, Time};

use crate::message::{Ledger, Message};
use crate::network::{Network, Way};
use crate::random::Random;

#[derive(Debug)]
pub(crate) struct SourceFlow {
    pub(crate) outgoing: Outgoing<Bytes>,
    pub(crate) next_hop: usize,
    /// Messages that are still to be packed, the next one last.
    pub(crate) script: Vec<Message>,
    packing: Option<Packing>,
    /// Bytes that it keeps at most before it stops packing.
    retention: u64,
}

#[derive(Debug)]
struct Packing {
    message: Message,
    number: u32,
    next_block: usize,
    /// Records that wait to be pushed, and the number of the first of them.
    gathered: Option<(u32, BytesMut)>,
}

impl SourceFlow {
    pub(crate) fn new(
        settings: Settings,
        next_hop: usize,
        script: Vec<Message>,
        retention: u64,
        now: Time,
    ) -> Self {
        Self {
            outgoing: Outgoing::new(settings, now),
            next_hop,
            script,
            packing: None,
            retention,
        }
    }

    pub(crate) fn key(&self) -> FlowKey {
        self.outgoing.flow()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.script.is_empty() && self.packing.is_none() && self.outgoing.is_drained()
    }

    /// Packs what retention allows, block by block. Returns whether it stopped before that.
    pub(crate) fn pack(&mut self, ledger: &mut Ledger, random: &mut Random) -> bool {
        while self.outgoing.retained_bytes() < self.retention {
            let Some(packing) = &mut self.packing else {
                let Some(message) = self.script.pop() else {
                    return false;
                };
                ledger.packed.push(message.clone());
                self.packing = Some(Packing {
                    message,
                    number: self.outgoing.begin_message(),
                    next_block: 0,
                    gathered: None,
                });
                continue;
            };
            if packing.pack_block(&mut self.outgoing, random) {
                self.packing = None;
            }
            if random.chance(100) {
                return true;
            }
        }
        false
    }

    /// What was failed is noted; the message that is being packed is among it.
    pub(crate) fn note_failure(&mut self, ledger: &mut Ledger, now: Time) -> Option<Failure> {
        let (failure, numbers) = self.outgoing.take_failure(now)?;
        ledger.failed.extend(numbers);
        if self.packing.take().is_some() {
            assert_eq!(self.outgoing.retained_bytes(), 0);
        }
        Some(failure)
    }

    /// Puts on the link what there is room for.
    pub(crate) fn flush(&mut self, party: usize, network: &mut Network) {
        let now = network.now;
        self.outgoing.handle_timeout(now);
        let Some(&link) = network.current.get(&(party, self.next_hop)) else {
            return;
        };
        // A fragment may be larger than the room: a link takes at least one frame.
        while network.room(link, Way::Urgent) > 0 && network.room(link, Way::Bulk) > 0 {
            let limit = network.room(link, Way::Urgent);
            // What leads goes by the other lane here, and may come later.
            let leads = self.outgoing.positions().1.is_multiple_of(2);
            let transmit = if leads {
                self.outgoing.poll_transmit_led(now, limit)
            } else {
                self.outgoing.poll_transmit(now, limit)
            };
            match transmit {
                Some(Transmit::Frames(frames)) => network.send(link, Way::Urgent, frames),
                Some(Transmit::Fragment {
                    mut head,
                    data,
                    offset,
                    length,
                }) => {
                    let start = usize::try_from(offset).unwrap();
                    let part = &data[start..start + length];
                    head.seal([part]);
                    let mut frame = BytesMut::from(head.as_bytes());
                    frame.extend_from_slice(part);
                    let way = way_of(head.header());
                    network.send(link, way, frame.freeze());
                }
                None => break,
            }
        }
        if let Some(control) = self.outgoing.poll_control() {
            let frame = Bytes::copy_from_slice(&control.to_control_frame());
            network.send(link, Way::Urgent, frame);
        }
    }

    pub(crate) fn handle_control(&mut self, header: &Header, now: Time) {
        match header.kind {
            Kind::Credit => self.outgoing.handle_credit(header, now),
            Kind::Refusal => self.outgoing.handle_refusal(header, now),
            Kind::Held => self.outgoing.handle_held(header),
            other => panic!("{other:?} arrived at a source"),
        }
    }
}

/// The lane of a data frame.
pub(crate) fn way_of(header: &Header) -> Way {
    if header.is_small() {
        Way::Urgent
    } else {
        Way::Bulk
    }
}

impl Packing {
    /// Packs one block, or ends the message; returns whether it is over.
    fn pack_block(&mut self, outgoing: &mut Outgoing<Bytes>, random: &mut Random) -> bool {
        if self.message.aborted_after == Some(self.next_block) {
            outgoing.abort_message(self.number);
            return true;
        }
        let Some(block) = self.message.blocks.get(self.next_block).cloned() else {
            match self.gathered.take() {
                Some((first, records)) => {
                    let flags = Flags::DESCRIBED.with(Flags::END);
                    outgoing.push_frame(flags, self.number, first, &records);
                }
                None => outgoing.push_frame(Flags::END, self.number, 0, &[]),
            }
            if random.chance(200) {
                outgoing.request_acknowledgement();
            }
            return true;
        };
        let number = u32::try_from(self.next_block).unwrap();
        self.next_block += 1;
        let record_bytes = 8 + block.bytes.len();
        let gathered = self
            .gathered
            .as_ref()
            .map_or(0, |(_, records)| records.len());
        if gathered + record_bytes > SMALL_PAYLOAD_BYTES || random.chance(150) {
            self.push_gathered(outgoing);
        }
        if record_bytes > SMALL_PAYLOAD_BYTES || random.chance(150) {
            self.push_gathered(outgoing);
            let is_last = self.next_block == self.message.blocks.len()
                && self.message.aborted_after.is_none();
            let ends = is_last && random.chance(700);
            let (descriptor, bytes) = (block.descriptor(), block.bytes);
            outgoing.push_block(self.number, number, descriptor, bytes, ends);
            return ends;
        }
        let (_, records) = self
            .gathered
            .get_or_insert_with(|| (number, BytesMut::new()));
        records.extend_from_slice(&block.descriptor().to_bytes());
        records.extend_from_slice(&block.bytes);
        false
    }

    fn push_gathered(&mut self, outgoing: &mut Outgoing<Bytes>) {
        if let Some((first, records)) = self.gathered.take() {
            outgoing.push_frame(Flags::DESCRIBED, self.number, first, &records);
        }
    }
}
