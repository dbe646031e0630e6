//! What arrives at a gateway: openings, data, control.

use std::time::Duration;

use super::flow::Flow;
use super::link::{Link, SPARE_CONTROL_FRAMES, Turn};
use super::{LinkId, Outcome, Queued, Run, Transit};
use crate::reassembly::Violation;
use crate::time::Time;
use crate::transit::Lane;
use crate::wire::{FlowKey, Header, Kind, Opening, Refusal, is_older_label};

/// A link over which nothing has left for so long, though a rate allows it, may lead to somebody who
/// takes nothing any more.
const MOVES_WITHIN: Duration = Duration::from_secs(5);

impl<B> Transit<B> {
    /// A frame that opens a flow arrived from `from`; its checksum is known to be right, so
    /// that a broken one does not admit what nobody asked for. `to` is where the flow's
    /// route leads, or why it leads nowhere now; `frame` is the whole frame.
    pub fn handle_opening(
        &mut self,
        from: LinkId,
        header: &Header,
        opening: &Opening,
        to: Result<LinkId, Refusal>,
        frame: B,
        now: Time,
    ) -> Outcome {
        let to = match to {
            Ok(to) if self.links.contains(to) => to,
            Ok(_) => return self.refuse(from, header, Refusal::LinkDown),
            Err(reason) => return self.refuse(from, header, reason),
        };
        if let Some(index) = self.find(header.flow) {
            let known = self.flow(index);
            let is_same_source = opening.source_incarnation == known.source_incarnation;
            if opening.source_incarnation < known.source_incarnation
                || (is_same_source && is_older_label(header.label, known.label))
            {
                self.counters.stale += 1;
                return Outcome::Dropped;
            }
            if is_same_source && header.label == known.label {
                return self.handle_repeated_opening(index, from, header, frame, now);
            }
            self.forget(index);
        }
        if !self.budget.try_admit() {
            self.counters.refused += 1;
            return self.refuse(from, header, Refusal::NoRoom);
        }
        self.counters.opened += 1;
        let index = self.admit(header, opening, from, to, now);
        self.enqueue_opening(index, header, frame, now)
    }

    /// The source repeats an opening that it has no answer to.
    fn handle_repeated_opening(
        &mut self,
        index: u32,
        from: LinkId,
        header: &Header,
        frame: B,
        now: Time,
    ) -> Outcome {
        let flow = self.flow_mut(index);
        if flow.from != from {
            self.counters.stale += 1;
            return Outcome::Dropped;
        }
        if flow.has_credit() {
            self.promise(index, true, now);
            return Outcome::Send(from);
        }
        let (is_held, outstanding) = (flow.is_held(), flow.outstanding());
        if is_held && self.is_moving(index, now) {
            return self.say_held(from, header);
        }
        let flow = self.flow_mut(index);
        if is_held || outstanding != 0 || header.end_position() != flow.granted {
            return Outcome::Dropped;
        }
        flow.forwarded = header.position;
        let outstanding = flow.outstanding();
        self.budget.change(0, outstanding);
        self.enqueue_opening(index, header, frame, now)
    }

    fn enqueue_opening(&mut self, index: u32, header: &Header, frame: B, now: Time) -> Outcome {
        let queued = Queued {
            frame,
            end: header.end_position(),
            bytes: header.frame_bytes(),
            charge: header.charge(),
            frames: 1,
        };
        self.enqueue(index, Lane::Urgent, queued, now)
    }

    /// Data frames arrived from `from`. Before the destination has answered, those beyond what was granted
    /// are of an admission before this one, and dropped.
    ///
    /// # Errors
    /// When they are more than was granted; the link is to be closed.
    pub fn handle_run(
        &mut self,
        from: LinkId,
        run: &Run,
        frame: B,
        now: Time,
    ) -> Result<Outcome, Violation> {
        let Some(index) = self.find(run.flow) else {
            return Ok(self.refuse_stray(from, run.flow, run.label, run.frames));
        };
        let flow = self.flow_mut(index);
        if flow.label != run.label || flow.from != from {
            self.counters.stale += u64::from(run.frames);
            return Ok(Outcome::Dropped);
        }
        if run.largest > flow.largest_frame {
            return Err(Violation::LongerThanOpened {
                bytes: run.largest,
                most: flow.largest_frame,
            });
        }
        let charge = run.end - run.start;
        let is_beyond = run.end > flow.granted || flow.received + charge > flow.granted;
        if is_beyond && !flow.has_credit() {
            // A late copy of an opening has admitted it again: what was granted to the one before is void,
            // as its source will have learned.
            self.counters.stale += u64::from(run.frames);
            return Ok(Outcome::Dropped);
        }
        if is_beyond {
            return Err(Violation::BeyondCredit {
                end: run.end,
                granted: flow.granted,
            });
        }
        flow.received += charge;
        let queued = Queued {
            frame,
            end: run.end,
            bytes: run.bytes,
            charge,
            frames: run.frames,
        };
        self.note_parked(index, now);
        Ok(self.enqueue(index, run.lane, queued, now))
    }

    /// A control frame that belongs to a flow arrived from `from`; its checksum is known to
    /// be right.
    pub fn handle_control(&mut self, from: LinkId, header: &Header, now: Time) -> Outcome {
        let Some(index) = self.find(header.flow) else {
            return match header.kind {
                Kind::Probe => self.refuse(from, header, Refusal::Unknown),
                _ => Outcome::Dropped,
            };
        };
        let flow = self.flow_mut(index);
        let expected = if header.kind.goes_back() {
            flow.to
        } else {
            flow.from
        };
        if flow.label != header.label || expected != from {
            return match header.kind {
                Kind::Probe => self.refuse(from, header, Refusal::Unknown),
                _ => Outcome::Dropped,
            };
        }
        flow.last_heard = now;
        let (towards_source, towards_destination) = (flow.from, flow.to);
        match header.kind {
            Kind::Credit => {
                if !flow.handle_credit(header) {
                    return Outcome::Dropped;
                }
                self.promise(index, true, now);
                Outcome::Send(towards_source)
            }
            Kind::Refusal => {
                self.forget(index);
                self.queue_control(towards_source, header);
                Outcome::Send(towards_source)
            }
            Kind::Held => {
                // It can be done without, unlike what else waits there.
                let is_busy = |link: &Link| link.control.len() >= SPARE_CONTROL_FRAMES;
                if self.links.at(towards_source).is_some_and(is_busy) {
                    return Outcome::Dropped;
                }
                self.queue_control(towards_source, header);
                Outcome::Send(towards_source)
            }
            Kind::Close | Kind::Lost => {
                self.forget(index);
                self.queue_control(towards_destination, header);
                Outcome::Send(towards_destination)
            }
            Kind::Probe => {
                let is_held = flow.is_held() && self.is_moving(index, now);
                self.queue_control(towards_destination, header);
                if is_held {
                    self.say_held(towards_source, header);
                    return Outcome::SendBoth([towards_source, towards_destination]);
                }
                Outcome::Send(towards_destination)
            }
            Kind::Data | Kind::Ping | Kind::Pong => Outcome::Dropped,
        }
    }

    // ---- inside -----------------------------------------------------------------------

    fn admit(
        &mut self,
        header: &Header,
        opening: &Opening,
        from: LinkId,
        to: LinkId,
        now: Time,
    ) -> u32 {
        let serial = self.counters.opened;
        let share = self.shares.get(usize::from(header.flow.channel));
        let share = share.copied().unwrap_or_default();
        let debt = self.debts.remove(&header.flow).unwrap_or(Time(0));
        let mut flow = Flow::new(serial, header, opening, from, to, (share, debt), now);
        let network = |link| self.links.at(link).and_then(|link| link.network);
        flow.way = self.ways.of(network(from), network(to));
        self.budget.change(0, flow.outstanding());
        let index = if let Some(index) = self.vacant.pop() {
            self.flows[index as usize] = Some(flow);
            index
        } else {
            self.flows.push(Some(flow));
            // Bounded by the budget's flow limit, itself 32 bits.
            u32::try_from(self.flows.len() - 1).unwrap_or(u32::MAX)
        };
        self.by_key.insert(header.flow, index);
        index
    }

    fn enqueue(&mut self, index: u32, lane: Lane, queued: Queued<B>, now: Time) -> Outcome {
        let bytes = queued.bytes;
        self.queued_bytes += bytes as u64;
        self.ways.queue(self.flow(index).way, bytes);
        let flow = self.flow_mut(index);
        flow.last_heard = now;
        let to = flow.to;
        let turn = Turn {
            flow: index,
            weight: flow.weight,
        };
        let queue = flow.queue(lane);
        queue.frames.push_back(queued);
        if !queue.waits {
            queue.waits = true;
            if let Some(link) = self.links.at_mut(to) {
                link.turns_mut(lane).push(turn);
            }
        }
        Outcome::Send(to)
    }

    /// Whether what waits of a flow waits for its turn, or for a rate, and not for a neighbour that takes
    /// nothing.
    fn is_moving(&self, index: u32, now: Time) -> bool {
        let flow = self.flow(index);
        let Some(link) = self.links.at(flow.to) else {
            return false;
        };
        let groups = link.groups.iter().flatten();
        let groups = groups.filter_map(|group| self.groups.get(*group)?.as_ref());
        // Who waits for a turn at one rate does not stand in line at the other.
        let waits = groups.clone().any(|group| group.holds(flow.to));
        let is_closed = groups.clone().any(|group| group.opens_at(now).is_some());
        let is_paced = flow.meter.opens_at(now).is_some() || (waits && is_closed);
        is_paced || now.since(link.last_departure) < MOVES_WITHIN
    }

    /// Tells a source that what it sent is here: however long that waits, it is not lost.
    fn say_held(&mut self, to: LinkId, asked: &Header) -> Outcome {
        self.queue_control(to, &Header::new(Kind::Held, asked.flow, asked.label));
        Outcome::Send(to)
    }

    fn refuse(&mut self, to: LinkId, header: &Header, reason: Refusal) -> Outcome {
        self.queue_control(to, &Header::refusal(header.flow, header.label, reason, 0));
        Outcome::Send(to)
    }

    /// Frames of a flow that is not known: says so once, not once per frame.
    fn refuse_stray(&mut self, from: LinkId, flow: FlowKey, label: u32, frames: u32) -> Outcome {
        self.counters.stale += u64::from(frames);
        let Some(link) = self.links.at_mut(from) else {
            return Outcome::Dropped;
        };
        if link.last_stray == Some((flow, label)) {
            return Outcome::Dropped;
        }
        link.last_stray = Some((flow, label));
        self.queue_control(from, &Header::refusal(flow, label, Refusal::Unknown, 0));
        Outcome::Send(from)
    }
}
