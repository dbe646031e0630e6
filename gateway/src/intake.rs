//! What arrived is taken in: from a batch of bytes to the flow table.

use std::sync::Arc;

use bytes::Bytes;
use madgate_bmm::Copies;
use madgate_gtm::transit::{Lane, LinkId, Outcome, Run};
use madgate_gtm::wire::{Opening, Refusal, URGENT_FRAME_BYTES};
use madgate_gtm::{Header, Kind, Time};
use madgate_tm::LaneClass;
use madgate_vchannel::cluster::FRAME_OVERHEAD_BYTES;
use madgate_vchannel::conductor::LinkRequest;

use crate::counters::add;
use crate::engine::{Engine, Shared, Touched};
use crate::fault::Fault;
use crate::frame::{Frame, Memory};
use crate::instruments::Stay;
use crate::link::Link;
use crate::router::Unroutable;
use crate::scan::Item;

/// Bytes that came together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole<'a> {
    pub(crate) bytes: &'a Bytes,
    pub(crate) at: Time,
    /// Whether they were copied out of the slots that they came in.
    pub(crate) is_copied: bool,
}

impl Engine {
    /// Takes the `items` of a batch in, which refer to the bytes of `whole`. The links that have
    /// something to send now are added to `touched`, whatever else happens.
    pub(crate) fn take_in(
        &self,
        from: &Arc<Link>,
        items: &mut Vec<Item>,
        whole: Whole<'_>,
        touched: &mut Touched,
    ) -> Result<(), Fault> {
        let now = whole.at;
        let stay = Stay::since(from.arrival(now));
        let mut is_answered = false;
        let mut frames = 0;
        let mut shared = self.lock();
        for item in items.drain(..) {
            match item {
                Item::Run { run, at } => {
                    let mut frame = Frame::new(Memory::shared(whole.bytes.slice(at)), stay);
                    if whole.is_copied {
                        frame.stay.copied = copies_of(&run);
                    }
                    frames += u64::from(run.frames);
                    self.take_run(&mut shared, from, &run, run.largest, frame, now, touched)?;
                }
                Item::Opening {
                    header,
                    opening,
                    at,
                } => {
                    drop(shared);
                    let route = self.router.route(from, &header, &opening)?;
                    shared = self.lock();
                    let route = route.and_then(|request| shared.carries(request, &opening));
                    if matches!(route, Err(Unroutable::TooLarge)) {
                        drop(shared);
                        self.note_disagreement(header.flow.source, opening.fragment_bytes);
                        shared = self.lock();
                    }
                    let route = route.map_err(|_| Refusal::NoRoute);
                    let frame = Frame::new(Memory::shared(whole.bytes.slice(at)), stay);
                    frames += 1;
                    let to_dial = self.open(
                        &mut shared,
                        from,
                        (&header, &opening),
                        route,
                        frame,
                        now,
                        touched,
                    );
                    if let Some(request) = to_dial {
                        drop(shared);
                        self.dial(request);
                        shared = self.lock();
                    }
                }
                Item::Control(header) if header.kind == Kind::Ping => {
                    if from.push_echo(Kind::Pong, header.position) {
                        touched.add(from);
                    }
                }
                Item::Control(header) if header.kind == Kind::Pong => is_answered = true,
                // An answer would tell that data does not arrive. Without one a source waits.
                Item::Control(header) if header.kind == Kind::Probe && self.is_draining() => {}
                Item::Control(header) => {
                    let outcome = shared.transit.handle_control(from.transit, &header, now);
                    shared.touch(outcome, touched);
                }
            }
        }
        drop(shared);
        add(&self.networks[from.network].tally.received_frames, frames);
        if is_answered {
            self.conductor
                .challenge_answered(from.request.peer, from.peer_incarnation);
        }
        Ok(())
    }

    /// Takes one frame in that is not part of a batch, and came at `now`.
    pub(crate) fn take_frame(
        &self,
        from: &Arc<Link>,
        run: &Run,
        memory: Memory,
        now: Time,
        touched: &mut Touched,
    ) -> Result<(), Fault> {
        let mut stay = Stay::since(from.arrival(now));
        stay.is_spliced = memory.is_piped();
        let frame = Frame::new(memory, stay);
        add(
            &self.networks[from.network].tally.received_frames,
            run.frames.into(),
        );
        let mut shared = self.lock();
        self.take_run(&mut shared, from, run, run.bytes, frame, now, touched)
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "one run and everything that it touches"
    )]
    fn take_run(
        &self,
        shared: &mut Shared,
        from: &Link,
        run: &Run,
        largest: usize,
        mut frame: Frame,
        now: Time,
        touched: &mut Touched,
    ) -> Result<(), Fault> {
        if self.is_draining() {
            // Its source has it still, and sends it again when the gateway is back.
            return Ok(());
        }
        let mut run = *run;
        let passage = shared
            .transit
            .passage(from.transit, run.flow, run.label, now);
        if let Some(passage) = passage
            && let Some(to) = shared.links.get(&passage.to)
        {
            let is_small = largest <= URGENT_FRAME_BYTES;
            if is_small && to.bulk_slots().is_some() && !frame.is_in_place_of(passage.to) {
                // A small part of a large message, or what leads one: here it would take a slot of its own.
                run.lane = Lane::Urgent;
            }
            let class = match run.lane {
                Lane::Urgent => LaneClass::Urgent,
                Lane::Bulk => LaneClass::Bulk,
            };
            if let Some(most) = to.largest_frame(class)
                && largest > most
            {
                return Err(Fault::TooLong {
                    bytes: largest,
                    most,
                });
            }
            if passage.is_held || to.is_slow(now) {
                self.tally.note_parked(frame.detach());
            }
        }
        let outcome = shared.transit.handle_run(from.transit, &run, frame, now)?;
        shared.touch(outcome, touched);
        Ok(())
    }

    /// Admits a flow, or refuses it. Returns a link to dial, if that is why.
    #[allow(
        clippy::too_many_arguments,
        reason = "one opening and everything that it touches"
    )]
    fn open(
        &self,
        shared: &mut Shared,
        from: &Link,
        (header, opening): (&Header, &Opening),
        route: Result<LinkRequest, Refusal>,
        frame: Frame,
        now: Time,
        touched: &mut Touched,
    ) -> Option<LinkRequest> {
        let mut to_dial = None;
        let to = match route {
            Ok(_) if self.is_draining() => Err(Refusal::LinkDown),
            Ok(request) => {
                let to: Option<LinkId> = shared.ways.get(&request).map(|link| link.transit);
                let is_news = !shared.asked.contains_key(&request);
                let asked = shared.asked.entry(request).or_default();
                asked.at = now;
                if to.is_none() {
                    asked.needed_since.get_or_insert(now);
                    to_dial = is_news.then_some(request);
                }
                to.ok_or(Refusal::LinkDown)
            }
            Err(refusal) => Err(refusal),
        };
        let outcome = shared
            .transit
            .handle_opening(from.transit, header, opening, to, frame, now);
        shared.touch(outcome, touched);
        to_dial
    }
}

/// What it takes to copy each frame of a run.
pub(crate) fn copies_of(run: &Run) -> Copies {
    Copies {
        times: run.frames.into(),
        bytes: u64::try_from(run.bytes).unwrap_or(u64::MAX),
    }
}

impl Shared {
    /// Whether the link that a flow is to leave by carries its fragments, if it is up: slots of the peer's
    /// may be smaller than the cluster file of this node says.
    fn carries(&self, request: LinkRequest, opening: &Opening) -> Result<LinkRequest, Unroutable> {
        let link = self.ways.get(&request);
        let most = link.and_then(|link| link.largest_frame(LaneClass::Bulk));
        let largest = opening.fragment_bytes as usize + FRAME_OVERHEAD_BYTES;
        match most {
            Some(most) if largest > most => Err(Unroutable::TooLarge),
            _ => Ok(request),
        }
    }

    /// Notes which link has something to send.
    pub(crate) fn touch(&self, outcome: Outcome, touched: &mut Touched) {
        match outcome {
            Outcome::Send(link) => self.touch_link(link, touched),
            Outcome::SendBoth(links) => {
                for link in links {
                    self.touch_link(link, touched);
                }
            }
            Outcome::Dropped => {}
        }
    }

    pub(crate) fn touch_link(&self, link: LinkId, touched: &mut Touched) {
        if let Some(link) = self.links.get(&link) {
            touched.add(link);
        }
    }
}

#[cfg(test)]
mod tests {
    use madgate_gtm::transit::Lane;
    use madgate_tm::LentSlot;

    use super::*;
    use crate::fixture::Fixture;
    use crate::frame::LentFrame;
    use crate::scan::run_of;

    #[test]
    fn what_is_small_takes_no_slot_of_its_own_unless_it_is_in_one() {
        let fixture = Fixture::new();
        let (from, to) = (fixture.link_on(), fixture.link());
        let flow = fixture.flow(&from, &to, 0, 1 << 16);
        let opened = fixture
            .engine
            .lock()
            .transit
            .passage(from.transit, flow, 1, Time(1));
        let opened = opened.unwrap();
        assert_eq!((opened.to, opened.promised), (to.transit, 1 << 16));
        let header = Header {
            length: 1000,
            ..Header::new(Kind::Data, flow, 1)
        };
        assert!(header.frame_bytes() <= URGENT_FRAME_BYTES);
        let take = |header: &Header, memory| {
            let (run, mut touched) = (run_of(header, Lane::Bulk), Touched::default());
            let now = Time(2);
            fixture
                .engine
                .take_frame(&from, &run, memory, now, &mut touched)
                .unwrap();
            let transit = &fixture.engine.lock().transit;
            [Lane::Urgent, Lane::Bulk].map(|lane| transit.has_queued(to.transit, lane))
        };
        // The rest of a block, whose beginning was large, may have been received into a slot of the
        // bulk lane: it is that lane's.
        let slot = LentSlot::detached(1 << 16);
        let lent = LentFrame::new(slot, &header, to.transit, Arc::clone(&to.lent));
        assert_eq!(take(&header, Memory::Lent(lent)), [false, true]);
        let bytes = Bytes::from(vec![0; header.frame_bytes()]);
        assert_eq!(take(&header, Memory::shared(bytes)), [true, true]);
    }
}
