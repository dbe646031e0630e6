//! Links by which messages came that are not complete, and that are lost: they are awaited for a while,
//! and then what came of the messages is given up.

use madgate_gtm::Time;

use super::core::Core;
use super::inbox::Broken;

impl Core {
    /// A link is lost. If this node has dialled it, and flows that end here came by it, it is dialled
    /// again for as long as their messages wait for the rest.
    pub(super) fn await_link(&mut self, index: u32, now: Time) {
        let Some(link) = &self.links[index as usize] else {
            return;
        };
        if !link.is_dialed || !link.brings || self.accepted_link(link.request).is_some() {
            return;
        }
        if let Some(link) = &mut self.links[index as usize] {
            link.awaited_until = Some(now + self.cluster.link_timeout());
        }
        self.dial(index);
    }

    /// Links are no longer awaited that could not be had in time. Returns when there are others.
    fn end_awaiting(&mut self, now: Time) -> Option<Time> {
        let mut next: Option<Time> = None;
        for index in 0..u32::try_from(self.links.len()).unwrap_or(u32::MAX) {
            let Some(link) = &mut self.links[index as usize] else {
                continue;
            };
            match link.awaited_until {
                Some(until) if now >= until => {
                    link.awaited_until = None;
                    link.brings = false;
                    self.stop_dialing_if_unused(index);
                }
                Some(until) => next = Some(next.map_or(until, |next| next.min(until))),
                None => {}
            }
        }
        next
    }

    /// Breaks off messages whose way was lost for too long, dials no longer for them, and notes when
    /// the next one will be.
    pub(super) fn break_lost(&mut self, now: Time) {
        let mut next = self.end_awaiting(now);
        let limit = self.cluster.link_timeout();
        for index in 0..self.in_flows.len() {
            let flow = &mut self.in_flows[index];
            let Some(since) = flow.flow.unheard_since() else {
                continue;
            };
            if flow.reassembly.message().is_none() {
                continue;
            }
            let at = since + limit;
            if now >= at {
                flow.break_message(Broken::SourceLost);
                flow.flow.give_up_message();
                // What nobody will unpack takes no memory any more.
                self.give_back(u32::try_from(index).unwrap_or(u32::MAX));
            } else {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        self.lost_at = next;
    }
}
