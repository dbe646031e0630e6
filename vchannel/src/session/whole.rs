//! The way of a small message that came whole, where all is as usual: from its frame to who waits for
//! it, or to the inbox of its flow, in one step.
//!
//! Everything else that may be about a frame, [`arrival`](super::arrival) sees to.

#[cfg(test)]
mod tests;

use madgate_gtm::Time;
use madgate_gtm::wire::{HEADER_BYTES, HeaderRef, checksum};

use super::core::Core;
use super::early;
use super::goal::Goal;
use super::input::Origin;

/// A small message that came whole, in order.
#[derive(Debug)]
pub(crate) struct WholeMessage<'m> {
    /// Its flow.
    pub(crate) flow: u32,
    /// Its blocks, each behind its descriptor: found right, and no more than an
    /// [`Early`](super::early::Early) takes.
    pub(crate) records: &'m [u8],
    /// What reading it gives back of the flow's credit.
    pub(crate) charge: u64,
}

impl Core {
    /// Takes a frame in that is all of a small message, on the link and in the place where it is
    /// expected. Else returns `false`, with nothing changed.
    ///
    /// Nothing follows from it but that its message is acknowledged in time, and can be claimed,
    /// unless it is what the `goal` is about: what comes unasked changes nothing about what may be
    /// granted.
    pub(super) fn take_whole(
        &mut self,
        origin: Origin,
        header: HeaderRef<'_>,
        frame: &[u8],
        now: Time,
        goal: &mut Goal<'_, '_>,
    ) -> bool {
        let may_be = self.settings().whole && header.is_whole_message();
        let payload = &frame[HEADER_BYTES..];
        if !may_be || payload.len() > early::RECORDS_BYTES {
            return false;
        }
        let Some(index) = self.find_in_flow(&header.flow()) else {
            return false;
        };
        let lacks_checksum = origin.may_lack_checksums && header.lacks_checksum();
        let flow = &mut self.in_flows[index as usize];
        let is_usual = flow.link == Some(origin.link)
            && flow.held.is_empty()
            && !flow.is_discarding
            && flow.reassembly.takes_whole(payload)
            && (lacks_checksum || checksum::is_frame_intact(frame))
            && flow.flow.try_accept_next(header, now);
        if !is_usual {
            return false;
        }
        let charge = header.payload_bytes() as u64 + madgate_gtm::wire::CHARGE_PER_FRAME;
        if !flow.is_timed
            && let Some(at) = flow.flow.next_deadline()
        {
            flow.is_timed = true;
            self.timed.push_back((at.max(now), index));
        }
        let message = WholeMessage {
            flow: index,
            records: payload,
            charge,
        };
        if !goal.offer(self, &message) {
            self.keep_whole(&message);
        }
        true
    }

    /// The message waits in the inbox of its flow until it is claimed.
    fn keep_whole(&mut self, message: &WholeMessage<'_>) {
        let flow = &mut self.in_flows[message.flow as usize];
        flow.inbox.push_whole(message.records, message.charge);
        if !flow.is_ready && !flow.is_claimed {
            flow.is_ready = true;
            self.channels[usize::from(flow.channel)]
                .flows
                .push_back(message.flow);
        }
    }
}
