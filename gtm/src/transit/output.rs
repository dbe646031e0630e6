//! What leaves a gateway: control, data in turns, and the credit that its leaving frees.

use super::link::Turn;
use super::pace::Denied;
use super::{Departure, Lane, LinkId, Queued, RATES_OF_LINK, Transit, Waits, link, pace};
use crate::budget::GUARANTEED_BYTES;
use crate::time::Time;

impl<B> Transit<B> {
    /// Appends the control frames that wait for `link` to `out`, up to about `limit` bytes.
    pub fn poll_control(&mut self, link: LinkId, out: &mut Vec<u8>, limit: usize) {
        let Some(waiting) = self.links.at_mut(link) else {
            return;
        };
        while out.len() < limit
            && let Some(frame) = waiting.control.pop_front()
        {
            out.extend_from_slice(&frame);
        }
        while out.len() < limit {
            let Some(waiting) = self.links.at_mut(link) else {
                return;
            };
            let Some(index) = waiting.credits.pop_front() else {
                return;
            };
            let Some(Some(flow)) = self.flows.get_mut(index as usize) else {
                continue;
            };
            if flow.from == link && flow.credit_pending {
                flow.credit_pending = false;
                out.extend_from_slice(&flow.credit().to_control_frame());
            }
        }
    }

    /// In which order to [take](Self::poll_transmit) from the lanes of `link`. What is small goes
    /// first, unless a [rate](super::Rate) says how much may leave: lanes take turns then, as flows
    /// do, so that many small messages do not keep large ones for ever.
    pub fn lane_order(&mut self, link: LinkId, now: Time) -> [Lane; 2] {
        let is_limited = self.is_limited(link);
        match self.links.at_mut(link) {
            Some(waiting) if is_limited => {
                waiting.release_due(now);
                waiting.lane_order()
            }
            _ => [Lane::Urgent, Lane::Bulk],
        }
    }

    /// Whether the link shares a rate.
    fn is_limited(&self, link: LinkId) -> bool {
        let shares = |link: &link::Link| link.groups.iter().any(Option::is_some);
        self.links.at(link).is_some_and(shares)
    }

    /// Takes what is next for `lane` of `link`, about `limit` bytes, flows taking turns
    /// (deficit round robin). Where [rates](super::Rate) are kept, `take` may get less or nothing:
    /// returned is what the rest waits for. A link whose lanes all gave nothing, and were denied
    /// nothing, [passes its turns on](Self::pass_turns).
    pub fn poll_transmit(
        &mut self,
        link: LinkId,
        lane: Lane,
        limit: usize,
        now: Time,
        take: impl FnMut(B, Departure),
    ) -> Waits {
        let Some(waiting) = self.links.at_mut(link) else {
            return Waits::default();
        };
        waiting.release_due(now);
        if waiting.turns(lane).is_empty() {
            return Waits {
                until: waiting.held_back.next(),
                ..Waits::default()
            };
        }
        let groups = waiting.groups;
        if groups == [None; RATES_OF_LINK] {
            self.take_turns(link, lane, limit, now, take);
            let held_back = self.links.at(link).map(|link| &link.held_back);
            return Waits {
                until: held_back.and_then(pace::HeldBack::next),
                ..Waits::default()
            };
        }
        let weight = waiting.turns(lane).weight();
        if let Err(waits) = self.begin_turns(link, groups, now) {
            return waits;
        }
        let limit = limit.min(pace::LINK_QUANTUM_BYTES);
        let taken = self.take_turns(link, lane, limit, now, take);
        self.end_turns(link, lane, (taken, weight), now)
    }

    /// The link can send nothing now, whatever waits for it: others have its turns at the rates that it
    /// shares. Returns those to ask now.
    pub fn pass_turns(&mut self, link: LinkId) -> [Option<LinkId>; RATES_OF_LINK] {
        let groups = self.links.at(link).map(|link| link.groups);
        let groups = groups.unwrap_or_default();
        groups.map(|group| self.group(group)?.pass_turn(link))
    }

    /// Whether all rates that the link shares allow it to send; else what it waits for.
    fn begin_turns(
        &mut self,
        link: LinkId,
        groups: [Option<usize>; RATES_OF_LINK],
        now: Time,
    ) -> Result<(), Waits> {
        for at in 0..groups.len() {
            let begun = self
                .group(groups[at])
                .map(|group| group.begin_turn(link, now));
            let Some(Err(denied)) = begun else {
                continue;
            };
            let mut waits = Waits::default();
            match denied {
                Denied::Rate(opens_at) => waits.until = Some(opens_at),
                Denied::Turn(first) => waits.turns_of[at] = Some(first),
            }
            waits.is_closed = groups.iter().any(|group| {
                let group = self.group(*group);
                group.is_some_and(|group| group.opens_at(now).is_some())
            });
            for (group, turn_of) in groups.iter().zip(&mut waits.turns_of).skip(at + 1) {
                *turn_of = self.group(*group).and_then(|group| group.pass_turn(link));
            }
            return Err(waits);
        }
        Ok(())
    }

    /// The link has had its turn, and has sent so many bytes, while flows of this weight waited.
    fn end_turns(
        &mut self,
        link: LinkId,
        lane: Lane,
        (taken, weight): (usize, u64),
        now: Time,
    ) -> Waits {
        let mut waits = Waits::default();
        let Some(waiting) = self.links.at_mut(link) else {
            return waits;
        };
        waiting.note_sent(lane, taken, weight);
        let has_more = !waiting.turns(lane).is_empty();
        let held_back = waiting.held_back.next();
        let groups = waiting.groups;
        for (group, turn_of) in groups.into_iter().zip(&mut waits.turns_of) {
            let Some(group) = self.group(group) else {
                continue;
            };
            *turn_of = group.end_turn(link, has_more);
            if has_more {
                waits.until = waits.until.max(group.opens_at(now));
            }
        }
        waits.is_closed = waits.until.is_some();
        waits.until = waits.until.into_iter().chain(held_back).min();
        waits
    }

    /// Flows take turns until `limit` bytes are taken, nothing is left, or a rate says to wait.
    /// Returns how many bytes were taken.
    fn take_turns(
        &mut self,
        link: LinkId,
        lane: Lane,
        limit: usize,
        now: Time,
        mut take: impl FnMut(B, Departure),
    ) -> usize {
        let mut taken = 0;
        let mut is_open = true;
        while taken < limit && is_open {
            let Some(waiting) = self.links.at_mut(link) else {
                break;
            };
            let Some(index) = waiting.turns(lane).first() else {
                break;
            };
            let Some(Some(flow)) = self.flows.get_mut(index as usize) else {
                waiting.turns_mut(lane).take_first();
                continue;
            };
            let turn = Turn {
                flow: index,
                weight: flow.weight,
            };
            if let Some(at) = flow.meter.opens_at(now) {
                waiting.turns_mut(lane).take_first();
                waiting.held_back.push(at, turn, lane);
                continue;
            }
            let groups = waiting.groups;
            let serial = flow.serial;
            let way = flow.way;
            let quantum = link::QUANTUM_BYTES * flow.weight as usize;
            let (queue, other, meter) = flow.queues_and_meter(lane);
            // With a rate of its own, a flow gains nothing from what is small passing what is large.
            let others = other.end().filter(|_| meter.has_rate());
            let is_first = |end: u64| others.is_none_or(|others| end < others);
            if !queue.has_turn {
                queue.deficit += quantum;
                queue.has_turn = true;
            }
            while taken < limit
                && is_open
                && meter.opens_at(now).is_none()
                && let Some(first) = queue.frames.front()
                && first.bytes <= queue.deficit
                && is_first(first.end)
            {
                let Some(first) = queue.frames.pop_front() else {
                    break;
                };
                queue.deficit -= first.bytes;
                taken += first.bytes;
                meter.charge(first.bytes, now);
                for group in groups.into_iter().flatten() {
                    if let Some(Some(group)) = self.groups.get_mut(group) {
                        group.charge(first.bytes, now);
                        is_open &= group.opens_at(now).is_none();
                    }
                }
                self.queued_bytes -= first.bytes as u64;
                self.ways.unqueue(way, first.bytes);
                let Queued {
                    frame,
                    bytes,
                    charge,
                    frames,
                    ..
                } = first;
                take(
                    frame,
                    Departure {
                        flow: index,
                        serial,
                        charge,
                        bytes,
                        frames,
                    },
                );
            }
            let is_over = queue.end().is_none_or(|end| !is_first(end));
            if is_over {
                queue.leave();
                if others.is_some() && !std::mem::replace(&mut other.waits, true) {
                    // What waits for the other lane came before what is left here.
                    waiting.turns_mut(lane.other()).push(turn);
                }
            } else if taken >= limit || !is_open || meter.opens_at(now).is_some() {
                // Its turn goes on when the link takes more, or it may send again.
                continue;
            }
            queue.has_turn = false;
            let turns = waiting.turns_mut(lane);
            turns.take_first();
            if !is_over {
                turns.push(turn);
            }
        }
        taken
    }

    /// What was taken has left this gateway. Returns the link on which credit can go back
    /// now, if any can.
    pub fn handle_departure(&mut self, departure: &Departure, now: Time) -> Option<LinkId> {
        self.counters.frames += u64::from(departure.frames);
        self.counters.bytes += departure.bytes as u64;
        let flow = self.flows.get_mut(departure.flow as usize)?.as_mut()?;
        if flow.serial != departure.serial {
            return None;
        }
        let before = flow.outstanding();
        flow.forwarded += departure.charge;
        if let Some(link) = self.links.at_mut(flow.to) {
            link.last_departure = now;
        }
        self.budget.change(before, flow.outstanding());
        self.promise(departure.flow, false, now)
    }

    /// Promises the source as much as the destination grants and the budget allows. With
    /// `news` there is something to tell the source in any case.
    pub(super) fn promise(&mut self, index: u32, news: bool, now: Time) -> Option<LinkId> {
        let flow = self.flows[index as usize].as_mut()?;
        let before = flow.outstanding();
        // Credit that waits for its link says what there is when it leaves.
        if !news && flow.granted >= flow.granted_ahead {
            return None;
        }
        let allowed = flow.forwarded + self.budget.allowance(before);
        let target = flow.granted_ahead.min(allowed).max(flow.granted);
        let more = target - flow.granted;
        // Few large promises rather than many small ones, unless nothing is under way and the
        // source may be waiting for what a small frame takes.
        let may_be_stuck =
            flow.received == flow.forwarded && flow.granted - flow.received < GUARANTEED_BYTES;
        let is_worth_it = more >= before / 2 || may_be_stuck;
        if !news && (more == 0 || !is_worth_it) {
            return None;
        }
        flow.granted = target;
        self.budget.change(before, flow.outstanding());
        let from = flow.from;
        if !flow.credit_pending && flow.has_credit() {
            flow.credit_pending = true;
            if let Some(link) = self.links.at_mut(from) {
                link.credits.push_back(index);
            }
        }
        self.note_parked(index, now);
        Some(from)
    }
}
