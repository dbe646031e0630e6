//! A gateway: `Transit`, and the links around it.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use madgate_gtm::transit::{Departure, Lane, LinkId, Outcome, Run};
use madgate_gtm::wire::checksum::is_intact;
use madgate_gtm::wire::{Flags, FlowKey, HEADER_BYTES, Header, Kind, Opening, Refusal};
use madgate_gtm::{Budget, Transit, Violation};

use crate::network::{Network, Way};

#[derive(Debug)]
pub(crate) struct Gateway {
    party: usize,
    pub(crate) transit: Transit<Bytes>,
    budget_bytes: u64,
    /// Links that are up, by what this gateway calls them.
    links: HashMap<LinkId, usize>,
    /// What links took and has not been noted yet.
    departures: Vec<Departure>,
}

impl Gateway {
    pub(crate) fn new(party: usize, budget_bytes: u64) -> Self {
        Self {
            party,
            transit: Transit::new(Budget::new(budget_bytes)),
            budget_bytes,
            links: HashMap::new(),
            departures: Vec::new(),
        }
    }

    pub(crate) fn add_link(&mut self, link: usize) -> LinkId {
        let id = self.transit.add_link();
        assert!(self.links.insert(id, link).is_none());
        id
    }

    pub(crate) fn remove_link(&mut self, id: LinkId) {
        self.links.remove(&id);
        let _ = self.transit.remove_link(id);
    }

    /// Frames that arrived together on one lane of a link.
    pub(crate) fn handle_frames(
        &mut self,
        from: LinkId,
        way: Way,
        frames: Vec<(Header, Bytes)>,
        next_hops: &HashMap<(usize, FlowKey), usize>,
        network: &Network,
    ) -> Result<(), Violation> {
        let mut run: Option<(Run, BytesMut)> = None;
        let lane = match way {
            Way::Bulk => Lane::Bulk,
            Way::Urgent | Way::Back => Lane::Urgent,
        };
        for (header, frame) in frames {
            let joins = run.as_ref().is_some_and(|(run, _)| {
                is_plain(&header)
                    && lane == Lane::Urgent
                    && (run.flow, run.label, run.end)
                        == (header.flow, header.label, header.position)
            });
            if joins && let Some((run, bytes)) = &mut run {
                run.end = header.end_position();
                run.bytes += frame.len();
                run.largest = run.largest.max(frame.len());
                run.frames += 1;
                bytes.extend_from_slice(&frame);
                continue;
            }
            self.end_run(from, run.take(), network)?;
            if is_plain(&header) {
                let begun = Run {
                    flow: header.flow,
                    label: header.label,
                    start: header.position,
                    end: header.end_position(),
                    bytes: frame.len(),
                    largest: frame.len(),
                    frames: 1,
                    lane,
                };
                run = Some((begun, BytesMut::from(frame)));
            } else {
                self.handle_special(from, &header, frame, next_hops, network)?;
            }
        }
        self.end_run(from, run, network)
    }

    fn end_run(
        &mut self,
        from: LinkId,
        run: Option<(Run, BytesMut)>,
        network: &Network,
    ) -> Result<(), Violation> {
        if let Some((run, bytes)) = run {
            self.transit
                .handle_run(from, &run, bytes.freeze(), network.now)?;
        }
        Ok(())
    }

    fn handle_special(
        &mut self,
        from: LinkId,
        header: &Header,
        frame: Bytes,
        next_hops: &HashMap<(usize, FlowKey), usize>,
        network: &Network,
    ) -> Result<(), Violation> {
        if header.kind != Kind::Data {
            if header.is_intact_control() {
                self.transit.handle_control(from, header, network.now);
            }
            return Ok(());
        }
        if !is_intact(header, &frame[HEADER_BYTES..]) {
            return Ok(());
        }
        let opening = Opening::parse(&frame[HEADER_BYTES..])?;
        let to = match next_hops.get(&(self.party, header.flow)) {
            None => Err(Refusal::NoRoute),
            Some(next) => network
                .current
                .get(&(self.party, *next))
                .and_then(|link| network.links[*link].dialer_id)
                .ok_or(Refusal::LinkDown),
        };
        let outcome = self
            .transit
            .handle_opening(from, header, &opening, to, frame, network.now);
        assert_ne!(to.err(), Some(Refusal::NoRoute));
        let _: Outcome = outcome;
        Ok(())
    }

    /// Sends what links take.
    pub(crate) fn flush(&mut self, network: &mut Network) {
        // Departures are noted late now and then, as by a sender thread.
        if network.random.chance(700) {
            for departure in self.departures.drain(..) {
                let _ = self.transit.handle_departure(&departure, network.now);
            }
        }
        let mut links: Vec<(LinkId, usize)> = self.links.iter().map(|(a, b)| (*a, *b)).collect();
        links.sort_unstable();
        for (id, link) in links {
            let way = network.control_way(self.party, link);
            let mut control = Vec::new();
            if network.room(link, way) > 0 {
                self.transit.poll_control(id, &mut control, 1 << 16);
            }
            // Frame by frame, so that one can be lost alone.
            for frame in control.chunks(HEADER_BYTES) {
                network.send(link, way, Bytes::copy_from_slice(frame));
            }
            if way == Way::Back {
                continue;
            }
            for (lane, way) in [(Lane::Urgent, Way::Urgent), (Lane::Bulk, Way::Bulk)] {
                let room = network.room(link, way);
                let mut taken = Vec::new();
                self.transit
                    .poll_transmit(id, lane, room, network.now, |frame, departure| {
                        taken.push((frame, departure));
                    });
                for (frame, departure) in taken {
                    assert_eq!(frame.len(), departure.bytes);
                    network.send(link, way, frame);
                    self.departures.push(departure);
                }
            }
        }
    }

    pub(crate) fn has_more_to_do(&self) -> bool {
        !self.departures.is_empty()
    }

    pub(crate) fn check(&self) {
        let promised = self.transit.budget().promised();
        assert!(
            promised <= self.budget_bytes,
            "a gateway promised {promised} of {}",
            self.budget_bytes
        );
        assert!(
            self.transit.queued_bytes() <= promised,
            "a gateway queues {} and promised {promised}",
            self.transit.queued_bytes()
        );
    }
}

/// A data frame that does not open its flow.
fn is_plain(header: &Header) -> bool {
    header.kind == Kind::Data && !header.flags.has(Flags::OPEN)
}
