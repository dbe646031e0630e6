//! The messages of a flow that were not delivered.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use madgate_gtm::outgoing::SILENT_TIMES;
use madgate_gtm::{Failure, Time};

use super::core::Core;
use super::flows::OutFlow;
use crate::cluster::format_duration;
use crate::error::{self, PackError};

/// Failures of a flow that are remembered. Who asks for a message of before the oldest of them is told
/// that it failed, since nobody knows any more.
const FAILURES_MOST: usize = 64;

/// How long nobody carries a flow before the log says so, and pauses between two such lines.
const COMPLAIN_AFTER: Duration = Duration::from_secs(1);

/// Numbers of messages wrap. A failure is forgotten when so many have followed, long before the same
/// number can come again.
const MESSAGES_REMEMBERED: u32 = 1 << 30;

/// Messages that were given up together, and why.
#[derive(Debug, Clone)]
pub(crate) struct Lost {
    pub(crate) failure: Failure,
    /// What the link of the flow had met last, if it was down.
    reason: Option<String>,
    pub(crate) messages: Range<u32>,
}

impl Lost {
    fn concerns(&self, message: u32) -> bool {
        let Range { start, end } = self.messages;
        message.wrapping_sub(start) < end.wrapping_sub(start)
    }
}

/// What is known of one message.
#[derive(Debug, Clone)]
pub(crate) enum Fate {
    /// It did not fail.
    Kept,
    /// It was given up.
    Lost(Lost),
    /// It is of before the oldest failure that is remembered.
    Forgotten,
}

/// The failures of one flow, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    lost: VecDeque<Lost>,
    /// How many of the last ones no caller has been told of.
    untold: usize,
    /// The message behind the newest failure that is not remembered any more.
    forgotten: Option<u32>,
}

impl Failures {
    /// Notes that these messages were given up; of none, there is nothing to note.
    pub(crate) fn note(&mut self, failure: Failure, reason: Option<String>, messages: Range<u32>) {
        if messages.start == messages.end {
            return;
        }
        if self.lost.len() == FAILURES_MOST
            && let Some(oldest) = self.lost.pop_front()
        {
            self.untold = self.untold.min(self.lost.len());
            self.forgotten = Some(oldest.messages.end);
        }
        self.lost.push_back(Lost {
            failure,
            reason,
            messages,
        });
        self.untold += 1;
    }

    /// Whether there is a failure that no caller has been told of.
    pub(crate) const fn has_untold(&self) -> bool {
        self.untold > 0
    }

    /// The oldest failure that no caller has been told of; the caller tells it.
    #[inline]
    pub(crate) fn tell(&mut self) -> Option<Lost> {
        if self.untold == 0 {
            return None;
        }
        let oldest = self.lost.len() - self.untold;
        self.untold -= 1;
        self.lost.get(oldest).cloned()
    }

    /// What is known of `message`, whoever has been told.
    pub(crate) fn of(&self, message: u32) -> Fate {
        if let Some(lost) = self.lost.iter().find(|lost| lost.concerns(message)) {
            return Fate::Lost(lost.clone());
        }
        match self.forgotten {
            Some(end) if end.wrapping_sub(message).wrapping_sub(1) < u32::MAX / 2 => {
                Fate::Forgotten
            }
            _ => Fate::Kept,
        }
    }

    /// `message` begins: what is far behind it is forgotten.
    #[inline]
    pub(crate) fn begin(&mut self, message: u32) {
        if self.lost.is_empty() && self.forgotten.is_none() {
            return;
        }
        let is_far = |end: u32| message.wrapping_sub(end) > MESSAGES_REMEMBERED;
        while self
            .lost
            .front()
            .is_some_and(|lost| is_far(lost.messages.end))
        {
            self.lost.pop_front();
        }
        self.untold = self.untold.min(self.lost.len());
        if self.forgotten.is_some_and(is_far) {
            self.forgotten = None;
        }
    }
}

impl Core {
    /// Why messages of a flow were lost, in words.
    #[cold]
    pub(crate) fn error_of(&self, flow: u32, lost: Lost) -> PackError {
        let flow = &self.out_flows[flow as usize];
        let node = self.destination_of(flow);
        let within = self.cluster.link_timeout();
        let gateways = self.gateways_of(flow);
        PackError::of_failure(
            lost.failure,
            node,
            within,
            lost.reason,
            &gateways,
            lost.messages,
        )
    }

    /// What a link has met last, if it is down.
    pub(super) fn link_error(&self, link: u32) -> Option<String> {
        let link = self.links[link as usize].as_ref()?;
        if link.output.is_some() {
            return None;
        }
        let known = link.last_error.clone();
        Some(known.unwrap_or_else(|| {
            let peer = self.cluster.node_name(link.request.peer);
            let network = &self.cluster.network(link.request.network).name;
            format!(
                "{peer} over {network} does not answer: its process is stopped, its host is down, or the way there is cut"
            )
        }))
    }

    /// Says in the log, once, that nobody has carried a flow for a while, as who waits for it hears
    /// nothing until it is given up.
    pub(super) fn complain_if_stuck(&mut self, index: usize, now: Time) {
        let slot = &mut self.out_flows[index];
        let Some(since) = slot.flow.stuck_since() else {
            slot.is_complained_of = false;
            return;
        };
        let within = self.cluster.link_timeout();
        let patience = COMPLAIN_AFTER.min(within / 4);
        if slot.is_complained_of || now.since(since) < patience || now < self.complain_at {
            return;
        }
        slot.is_complained_of = true;
        self.complain_at = now + COMPLAIN_AFTER;
        let slot = &self.out_flows[index];
        let reason = error::why_unreachable(
            self.link_error(slot.link),
            slot.flow.last_refusal(),
            &self.gateways_of(slot),
        );
        let most = match slot.flow.is_open() {
            true => within * SILENT_TIMES,
            false => within,
        };
        let (node, within) = (self.destination_of(slot), format_duration(most));
        tracing::info!("{node} is not reached yet, and tried for {within} at most: {reason}");
    }

    /// The names of the gateways that a flow crosses, in order.
    fn gateways_of(&self, flow: &OutFlow) -> Vec<String> {
        let key = flow.flow.flow();
        let to = self.cluster.node_with_rank(key.destination);
        let routes = self
            .routes
            .get(usize::from(key.channel))
            .and_then(Option::as_ref);
        let route = to
            .zip(routes)
            .and_then(|(to, routes)| routes.route(self.node, to).ok());
        route.map_or_else(Vec::new, |route| {
            let names = route.gateways().map(|node| self.cluster.node_name(node));
            names.map(str::to_owned).collect()
        })
    }

    /// The name of the node that a flow goes to.
    pub(crate) fn destination_of(&self, flow: &OutFlow) -> String {
        let rank = flow.flow.flow().destination;
        let node = self.cluster.node_with_rank(rank);
        node.map_or_else(String::new, |node| self.cluster.node_name(node).to_owned())
    }

    /// What was lost that no caller has been told of; it is told now.
    pub(crate) fn tell_all(&mut self) -> Vec<PackError> {
        let mut told = Vec::new();
        for index in 0..u32::try_from(self.out_flows.len()).unwrap_or(u32::MAX) {
            while let Some(lost) = self.out_flows[index as usize].failures.tell() {
                told.push(self.error_of(index, lost));
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHY: Failure = Failure::Restarted;

    fn is_lost(failures: &Failures, message: u32) -> bool {
        matches!(failures.of(message), Fate::Lost(_))
    }

    #[test]
    fn each_failure_is_told_once_in_order_and_known_for_good() {
        let mut failures = Failures::default();
        assert!(failures.tell().is_none());
        failures.note(WHY, None, 3..8);
        failures.note(WHY, None, 8..8);
        failures.note(WHY, None, 10..12);
        assert_eq!(failures.tell().unwrap().messages, 3..8);
        assert_eq!(failures.tell().unwrap().messages, 10..12);
        assert!(failures.tell().is_none());
        let lost: Vec<_> = (0..14)
            .filter(|message| is_lost(&failures, *message))
            .collect();
        assert_eq!(lost, [3, 4, 5, 6, 7, 10, 11]);
    }

    #[test]
    fn nothing_of_before_what_is_remembered_counts_as_delivered() {
        let mut failures = Failures::default();
        let failed = u32::try_from(FAILURES_MOST).unwrap() + 3;
        for number in 0..failed {
            failures.note(WHY, None, 10 * number..10 * number + 1);
        }
        assert!(matches!(failures.of(5), Fate::Forgotten));
        assert!(matches!(failures.of(20), Fate::Forgotten));
        assert!(matches!(failures.of(25), Fate::Kept));
        assert!(is_lost(&failures, 30));
        let told = std::iter::from_fn(|| failures.tell()).count();
        assert_eq!(told, FAILURES_MOST);
    }

    #[test]
    fn numbers_that_come_again_did_not_fail() {
        let mut failures = Failures::default();
        let wraps = Range {
            start: u32::MAX - 1,
            end: 2,
        };
        failures.note(WHY, None, wraps);
        assert!(is_lost(&failures, u32::MAX) && is_lost(&failures, 1) && !is_lost(&failures, 2));
        failures.begin(1000);
        assert!(is_lost(&failures, 0));
        failures.begin(MESSAGES_REMEMBERED + 3);
        assert!(matches!(failures.of(0), Fate::Kept));
        assert!(failures.tell().is_none());
    }
}
