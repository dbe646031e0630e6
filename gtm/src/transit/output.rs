//! What leaves a gateway: control, data in turns, and the credit that its leaving frees.

use super::{Departure, Lane, LinkId, Queued, Transit, link, pace};
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

    /// Whether the link, or a group that it is in, has a rate.
    fn is_limited(&self, link: LinkId) -> bool {
        let has_rate = |link: &link::Link| {
            let group = link.group.and_then(|group| self.groups.get(group));
            link.meter.has_rate() || group.is_some_and(Option::is_some)
        };
        self.links.at(link).is_some_and(has_rate)
    }

    /// The weights of the flows that wait for a lane, in all.
    fn waiting_weight(&self, link: LinkId, lane: Lane) -> u64 {
        let waiting = self
            .links
            .at(link)
            .into_iter()
            .flat_map(|link| link.turns(lane));
        let weights = waiting.filter_map(|index| {
            let flow = self.flows.get(*index as usize)?.as_ref()?;
            Some(u64::from(flow.weight))
        });
        weights.sum()
    }

    /// Takes what is next for `lane` of `link`, about `limit` bytes, flows taking turns
    /// (deficit round robin). Returns when to ask again, if something waits that must not leave
    /// now for a [rate](super::Rate): where links share one, ask for the others when one has
    /// sent.
    pub fn poll_transmit(
        &mut self,
        link: LinkId,
        lane: Lane,
        limit: usize,
        now: Time,
        take: impl FnMut(B, Departure),
    ) -> Option<Time> {
        let waiting = self.links.at_mut(link)?;
        waiting.release_due(now);
        if waiting.turns(lane).is_empty() {
            return waiting.held_back.next();
        }
        if let Some(at) = waiting.meter.opens_at(now) {
            return Some(at);
        }
        let number = waiting.group;
        let group = number.and_then(|group| self.groups.get_mut(group)?.as_mut());
        let limit = match group.map(|group| group.begin_turn(link, now)) {
            None => limit,
            Some(Ok(())) => limit.min(pace::LINK_QUANTUM_BYTES),
            Some(Err(at)) => return Some(at),
        };
        let weight = self
            .is_limited(link)
            .then(|| self.waiting_weight(link, lane));
        let taken = self.take_turns(link, lane, limit, now, take);
        let waiting = self.links.at_mut(link)?;
        if let Some(weight) = weight {
            waiting.note_sent(lane, taken, weight);
        }
        let has_more = !waiting.turns(lane).is_empty();
        let own = waiting.meter.opens_at(now).filter(|_| has_more);
        let next = own.into_iter().chain(waiting.held_back.next()).min();
        let group = number.and_then(|group| self.groups.get_mut(group)?.as_mut());
        let shared = group.and_then(|group| group.end_turn(link, has_more, now));
        next.into_iter().chain(shared).min()
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
            let Some(&index) = waiting.turns_mut(lane).front() else {
                break;
            };
            let Some(Some(flow)) = self.flows.get_mut(index as usize) else {
                waiting.turns_mut(lane).pop_front();
                continue;
            };
            if let Some(at) = flow.meter.opens_at(now) {
                waiting.turns_mut(lane).pop_front();
                waiting.held_back.push(at, index, lane);
                continue;
            }
            let mut group = waiting
                .group
                .and_then(|group| self.groups.get_mut(group)?.as_mut());
            let serial = flow.serial;
            let way = flow.way;
            let quantum = link::QUANTUM_BYTES * flow.weight as usize;
            let (queue, meter) = flow.queue_and_meter(lane);
            if !queue.has_turn {
                queue.deficit += quantum;
                queue.has_turn = true;
            }
            while taken < limit
                && is_open
                && meter.opens_at(now).is_none()
                && let Some(first) = queue.frames.front()
                && first.bytes <= queue.deficit
            {
                let Some(first) = queue.frames.pop_front() else {
                    break;
                };
                queue.deficit -= first.bytes;
                taken += first.bytes;
                meter.charge(first.bytes, now);
                waiting.meter.charge(first.bytes, now);
                is_open = waiting.meter.opens_at(now).is_none();
                if let Some(group) = &mut group {
                    group.charge(first.bytes, now);
                    is_open &= group.is_open(now);
                }
                self.queued_bytes -= first.bytes as u64;
                self.ways.unqueue(way, first.bytes);
                let Queued {
                    frame,
                    bytes,
                    charge,
                    frames,
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
            let empty = queue.frames.is_empty();
            if empty {
                queue.deficit = 0;
                queue.waits = false;
            } else if taken >= limit || !is_open || meter.opens_at(now).is_some() {
                // Its turn goes on when the link takes more, or it may send again.
                continue;
            }
            queue.has_turn = false;
            let turns = waiting.turns_mut(lane);
            turns.pop_front();
            if !empty {
                turns.push_back(index);
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
        if !news && (flow.granted >= flow.granted_ahead || flow.credit_pending) {
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
