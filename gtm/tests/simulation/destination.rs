//! The receiving half of an endpoint: puts frames in order and back into messages, and
//! consumes them as its application pleases.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::{Bytes, BytesMut};
use madgate_gtm::incoming::WideWindow;
use madgate_gtm::wire::checksum::is_intact;
use madgate_gtm::wire::{
    Flags, FlowKey, HEADER_BYTES, Header, Kind, OPENING_BYTES, Opening, Refusal,
};
use madgate_gtm::{Budget, Incoming, OpenVerdict, Placement, Reassembly, Record, Violation};

use crate::message::{Block, Ledger};
use crate::network::Network;

/// What packed the flow's messages, by the incarnation of its source.
pub(crate) type Ledgers = HashMap<(FlowKey, u64), Ledger>;

/// Windows of large fragments.
const WIDE: WideWindow = WideWindow {
    from_bytes: 256 << 10,
    windows: 3,
};

#[derive(Debug)]
pub(crate) struct Destination {
    incarnation: u64,
    window_most: u64,
    pub(crate) budget: Budget,
    budget_bytes: u64,
    flows: BTreeMap<FlowKey, DestinationFlow>,
}

#[derive(Debug)]
struct DestinationFlow {
    incarnation: u64,
    incoming: Incoming,
    link: usize,
    reassembly: Reassembly,
    ahead: BTreeMap<u64, (Header, Bytes)>,
    ahead_bytes: u64,
    blocks: Vec<(Block, BytesMut)>,
    unconsumed: VecDeque<u64>,
}

impl Destination {
    pub(crate) fn new(incarnation: u64, window_most: u64, budget_bytes: u64) -> Self {
        Self {
            incarnation,
            window_most,
            budget: Budget::new(budget_bytes),
            budget_bytes,
            flows: BTreeMap::new(),
        }
    }

    /// A frame arrived. Returns a control frame to send back, if it calls for one.
    pub(crate) fn handle_frame(
        &mut self,
        link: usize,
        header: &Header,
        frame: &Bytes,
        ledgers: &mut Ledgers,
        network: &Network,
    ) -> Result<Option<Header>, Violation> {
        let now = network.now;
        let flow = self
            .flows
            .entry(header.flow)
            .or_insert_with(|| DestinationFlow {
                incarnation: self.incarnation,
                incoming: Incoming::new(header.flow, self.incarnation, self.window_most, now)
                    .with_wide_window(WIDE),
                link,
                reassembly: Reassembly::default(),
                ahead: BTreeMap::new(),
                ahead_bytes: 0,
                blocks: Vec::new(),
                unconsumed: VecDeque::new(),
            });
        let refuse = |label, reason, incarnation| {
            Ok(Some(Header::refusal(
                header.flow,
                label,
                reason,
                incarnation,
            )))
        };
        if header.kind != Kind::Data {
            if !header.is_intact_control() {
                return Ok(None);
            }
            let is_current = flow.incoming.is_current(header);
            match header.kind {
                Kind::Probe if !flow.incoming.handle_probe(header, now) => {
                    return refuse(header.label, Refusal::Unknown, 0);
                }
                Kind::Close if is_current => flow.close(&mut self.budget),
                Kind::Lost if is_current => {
                    flow.incoming.suspend(&mut self.budget, now);
                    flow.drop_ahead();
                }
                _ => {}
            }
            return Ok(None);
        }
        let mut payload = frame.slice(HEADER_BYTES..);
        if !is_intact(header, &payload) {
            if !flow.incoming.is_open() {
                return Ok(None);
            }
            let label = flow.incoming.label();
            flow.close(&mut self.budget);
            return refuse(label, Refusal::Corrupt, 0);
        }
        if header.flags.has(Flags::OPEN) {
            let opening = Opening::parse(&payload)?;
            payload = payload.slice(OPENING_BYTES..);
            match flow
                .incoming
                .handle_opening(header, &opening, &mut self.budget, now)
            {
                OpenVerdict::Admitted {
                    abandon_message, ..
                } => {
                    flow.link = link;
                    flow.drop_ahead();
                    if abandon_message {
                        flow.reassembly.abandon();
                        flow.blocks.clear();
                    }
                }
                OpenVerdict::Repeated => {}
                OpenVerdict::Stale => return Ok(None),
                OpenVerdict::Refused(reason) => {
                    return refuse(header.label, reason, self.incarnation);
                }
            }
            if header.is_bare_opening() {
                return Ok(None);
            }
        }
        match flow.incoming.placement(header)? {
            Placement::InOrder => flow.take(header, &payload, ledgers, network)?,
            Placement::Ahead => {
                if flow
                    .ahead
                    .insert(header.position, (*header, payload))
                    .is_none()
                {
                    flow.ahead_bytes += header.charge();
                }
            }
            Placement::Duplicate => flow.incoming.acknowledge_again(),
            Placement::Stale => {}
            Placement::Unknown => return refuse(header.label, Refusal::Unknown, 0),
        }
        Ok(None)
    }

    /// The application consumes what has arrived.
    pub(crate) fn consume(&mut self) {
        for flow in self.flows.values_mut() {
            while let Some(charge) = flow.unconsumed.pop_front() {
                flow.incoming.consume(charge, &mut self.budget);
            }
        }
    }

    /// The credit that is due, with the link that it goes back on.
    pub(crate) fn poll_credit(&mut self, network: &mut Network) -> Vec<(usize, Header)> {
        let now = network.now;
        let mut due = Vec::new();
        for flow in self.flows.values_mut() {
            if let Some(credit) = flow.incoming.poll_credit(&mut self.budget, now) {
                due.push((flow.link, credit));
            }
        }
        due
    }

    pub(crate) fn next_deadline(&self) -> Option<madgate_gtm::Time> {
        let deadlines = self.flows.values();
        deadlines
            .filter_map(|flow| flow.incoming.next_deadline())
            .min()
    }

    pub(crate) fn handle_link_lost(&mut self, link: usize, network: &Network) {
        for flow in self.flows.values_mut() {
            if flow.link == link && flow.incoming.is_open() {
                flow.incoming.suspend(&mut self.budget, network.now);
                flow.drop_ahead();
            }
        }
    }

    pub(crate) fn sweep(&mut self, network: &Network) {
        for flow in self.flows.values_mut() {
            flow.incoming.handle_timeout(&mut self.budget, network.now);
            if !flow.incoming.is_open() {
                flow.drop_ahead();
            }
        }
    }

    pub(crate) fn check(&self) {
        assert!(
            self.budget.promised() <= self.budget_bytes,
            "a destination promised {} of {}",
            self.budget.promised(),
            self.budget_bytes
        );
        let held: u64 = self
            .flows
            .values()
            .map(|flow| flow.incoming.unconsumed() + flow.ahead_bytes)
            .sum();
        assert!(
            held <= self.budget.promised(),
            "a destination holds {held} and promised {}",
            self.budget.promised()
        );
    }
}

impl DestinationFlow {
    fn close(&mut self, budget: &mut Budget) {
        self.incoming.close(budget);
        self.drop_ahead();
    }

    fn drop_ahead(&mut self) {
        self.ahead.clear();
        self.ahead_bytes = 0;
    }

    /// Takes the frame that was in order in, and those that waited for it.
    fn take(
        &mut self,
        header: &Header,
        payload: &Bytes,
        ledgers: &mut Ledgers,
        network: &Network,
    ) -> Result<(), Violation> {
        self.take_one(header, payload, ledgers, network)?;
        while let Some(next) = self.ahead.first_entry() {
            let (header, _) = next.get();
            match self.incoming.placement(header)? {
                Placement::InOrder => {
                    let (header, payload) = next.remove();
                    self.ahead_bytes -= header.charge();
                    self.take_one(&header, &payload, ledgers, network)?;
                }
                Placement::Ahead => break,
                other => panic!("a frame that was held is {other:?}"),
            }
        }
        Ok(())
    }

    fn take_one(
        &mut self,
        header: &Header,
        payload: &Bytes,
        ledgers: &mut Ledgers,
        network: &Network,
    ) -> Result<(), Violation> {
        if header.flags.has(Flags::BUNDLE) {
            return self.take_bundle(header, payload, ledgers, network);
        }
        let blocks = &mut self.blocks;
        let mut take = |record: Record, bytes: &[u8]| {
            if record.offset == 0 && usize::try_from(record.block).unwrap() == blocks.len() {
                let block = Block {
                    bytes: Bytes::new(),
                    send: record.descriptor.send,
                    receive: record.descriptor.receive,
                };
                blocks.push((block, BytesMut::new()));
            }
            assert_eq!(blocks.len(), usize::try_from(record.block).unwrap() + 1);
            let (_, there) = blocks.last_mut().unwrap();
            assert_eq!(there.len(), usize::try_from(record.offset).unwrap());
            assert_eq!(record.length, bytes.len());
            there.extend_from_slice(bytes);
        };
        let ends = if header.is_small() {
            self.reassembly.handle_small(header, payload, take)?
        } else {
            let descriptor = header
                .flags
                .has(Flags::DESCRIBED)
                .then(|| *payload.first_chunk().unwrap());
            let skipped = descriptor.map_or(0, |bytes: [u8; 8]| bytes.len());
            let (record, ends) = self.reassembly.handle_fragment(header, descriptor)?;
            take(record, &payload[skipped..]);
            ends
        };
        self.accept(header, network);
        if header.flags.has(Flags::ABORT) {
            self.blocks.clear();
        }
        if ends {
            let blocks: Vec<Block> = self
                .blocks
                .drain(..)
                .map(|(block, bytes)| Block {
                    bytes: bytes.freeze(),
                    ..block
                })
                .collect();
            self.ledger(header, ledgers)
                .receive(self.incarnation, header.message, &blocks);
        }
        Ok(())
    }

    fn accept(&mut self, header: &Header, network: &Network) {
        self.incoming.accept(header, network.now);
        self.unconsumed.push_back(header.charge());
    }

    /// What packed the messages of a frame.
    fn ledger<'l>(&self, header: &Header, ledgers: &'l mut Ledgers) -> &'l mut Ledger {
        let key = (header.flow, self.incoming.source_incarnation());
        ledgers.get_mut(&key).unwrap()
    }

    /// Takes several whole messages in.
    fn take_bundle(
        &mut self,
        header: &Header,
        payload: &Bytes,
        ledgers: &mut Ledgers,
        network: &Network,
    ) -> Result<(), Violation> {
        assert!(self.blocks.is_empty());
        let mut messages: Vec<(u32, Vec<Block>)> = Vec::new();
        let take = |record: Record, bytes: &[u8]| {
            if messages
                .last()
                .is_none_or(|(last, _)| *last != record.message)
            {
                messages.push((record.message, Vec::new()));
            }
            let (_, blocks) = messages.last_mut().unwrap();
            assert_eq!(blocks.len(), usize::try_from(record.block).unwrap());
            assert!(record.offset == 0 && record.ends_block());
            blocks.push(Block {
                bytes: Bytes::copy_from_slice(bytes),
                send: record.descriptor.send,
                receive: record.descriptor.receive,
            });
        };
        assert!(self.reassembly.handle_small(header, payload, take)?);
        self.accept(header, network);
        let ledger = self.ledger(header, ledgers);
        for (number, blocks) in &messages {
            ledger.receive(self.incarnation, *number, blocks);
        }
        Ok(())
    }
}
