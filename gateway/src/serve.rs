//! Sending: from the flow table, through a link's outboxes, to its lanes.

use std::sync::Arc;

use madgate_bmm::Copies;
use madgate_gtm::transit::{Lane, LinkId};
use madgate_tm::LaneClass;

use crate::counters::add;
use crate::engine::{Engine, Hub, Shared, Touched};
use crate::fault::Fault;
use crate::instruments::{Stage, Stopwatch};
use crate::link::{Departed, LaneOutput, Link, Output};

/// Bytes that are taken from flows for an urgent lane before it has sent them: flows take turns up to
/// there, and no further. Credit for the other direction waits behind them.
const URGENT_OUTBOX_BYTES: usize = 256 << 10;

/// The same for a bulk lane.
const BULK_OUTBOX_BYTES: usize = 1 << 20;

/// Bytes of control frames that are taken at once.
const CONTROL_BYTES: usize = 16 << 10;

impl Engine {
    /// Sends what `touched` links have to send, and what follows from it, until nothing is
    /// left that is not blocked.
    pub(crate) fn serve_all(&self, touched: &mut Touched, watch: &mut Stopwatch) {
        while let Some(link) = touched.next() {
            if self.hands_over() {
                self.networks[link.network].hand_over(&link);
            } else {
                self.serve(&link, touched, watch);
            }
        }
    }

    /// Sends what one link has to send. If somebody else is sending on it, they do it.
    pub(crate) fn serve(&self, link: &Arc<Link>, touched: &mut Touched, watch: &mut Stopwatch) {
        let hub = &self.networks[link.network];
        link.want();
        while link.is_wanted() && !link.is_closed() {
            let Some(mut output) = link.try_output() else {
                return;
            };
            link.will_look();
            let pumped = self.pump(hub, link, &mut output, touched, watch);
            let waits_for_room = output
                .lanes()
                .iter()
                .any(|lane| lane.is_blocked && !lane.is_watched);
            let needs_thread = waits_for_room || output.needs_time();
            drop(output);
            match pumped {
                Ok(()) if needs_thread => hub.hand_over(link),
                Ok(()) => {}
                Err(fault) => self.close_link(link, &fault, touched),
            }
        }
    }

    /// Fills the outboxes and empties them into the lanes, until there is nothing more or
    /// the lanes take no more.
    fn pump(
        &self,
        hub: &Hub,
        link: &Link,
        output: &mut Output,
        touched: &mut Touched,
        watch: &mut Stopwatch,
    ) -> Result<(), Fault> {
        loop {
            self.fill(hub, link, output, touched);
            if !output.can_send() {
                return Ok(());
            }
            watch.end(Stage::HandingOver);
            let mut departed = std::mem::take(&mut output.departed);
            let sent = self
                .flush(hub, &mut output.urgent, &mut departed)
                .and_then(|urgent| Ok(urgent | self.flush(hub, &mut output.bulk, &mut departed)?));
            output.departed = departed;
            let (now, took) = watch.end(Stage::Sending);
            output.departed_at = now;
            add(
                &hub.tally.sending_ns,
                u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
            );
            if !sent? {
                return Ok(());
            }
            self.feed();
        }
    }

    /// Tells the flow table what has left, and takes what is next.
    fn fill(&self, hub: &Hub, link: &Link, output: &mut Output, touched: &mut Touched) {
        let now = self.rate_time();
        let mut shared = self.lock();
        let (mut is_closed, mut has_turn) = (false, false);
        output.held_until = None;
        for Departed { departure, stay } in output.departed.drain(..) {
            let at = output.departed_at;
            let (frames, bytes) = (departure.frames, departure.bytes);
            shared
                .pipelines
                .note(&stay, link.network, at, frames, bytes);
            if let Some(back) = shared.transit.handle_departure(&departure, at) {
                shared.touch_link(back, touched);
            }
        }
        shared.note_queued();
        let Shared { transit, links, .. } = &mut *shared;
        let mut ask = |turns: [Option<LinkId>; 2]| {
            for next in turns.into_iter().flatten() {
                if let Some(next) = links.get(&next) {
                    touched.add(next);
                }
            }
        };
        if !output.urgent.is_blocked {
            link.push_control(output, |control| {
                transit.poll_control(link.transit, control, CONTROL_BYTES);
            });
        }
        for lane in transit.lane_order(link.transit, now) {
            let (to, limit) = match lane {
                Lane::Urgent => (output.lane(LaneClass::Urgent), URGENT_OUTBOX_BYTES),
                Lane::Bulk => (output.lane(LaneClass::Bulk), BULK_OUTBOX_BYTES),
            };
            let queued = to.outbox.queued_bytes();
            if to.is_blocked || queued >= limit {
                continue;
            }
            let waits = transit.poll_transmit(
                link.transit,
                lane,
                limit - queued,
                now,
                |frame, departure| {
                    has_turn = true;
                    let stay = frame.stay;
                    let departed = Departed { departure, stay };
                    to.outbox
                        .push(frame.into_buffer(link.transit), Some(departed));
                },
            );
            if waits.until.is_some() {
                add(&hub.tally.held_back, 1);
            }
            output.held_until = waits.until.into_iter().chain(output.held_until).min();
            has_turn |= waits.is_denied();
            is_closed |= waits.is_closed;
            ask(waits.turns_of);
        }
        if !has_turn {
            ask(transit.pass_turns(link.transit));
        }
        if is_closed {
            // What comes for it will wait, and shall not keep the receivers' memory.
            link.slow_down(now);
        }
    }

    /// Sends what a lane takes. Returns whether anything left.
    fn flush(
        &self,
        hub: &Hub,
        output: &mut LaneOutput,
        departed: &mut Vec<Departed>,
    ) -> Result<bool, Fault> {
        if !output.can_send() {
            return Ok(false);
        }
        let Some(sender) = &mut output.sender else {
            return Ok(false);
        };
        let before = *output.outbox.counters();
        let mut copied = Copies::default();
        let flushed = output.outbox.flush(&mut **sender, |tag, copies| {
            // Control frames are nobody's.
            if let Some(mut frame) = tag {
                copied.add(copies);
                frame.stay.copied.add(copies);
                departed.push(frame);
            }
        })?;
        let after = *output.outbox.counters();
        output.is_blocked = flushed.blocked;
        // Who waits for it tries again and again, which is one time.
        if flushed.blocked && !output.is_watched {
            add(&hub.tally.blocked, 1);
        }
        add(&hub.tally.sends, after.sends - before.sends);
        add(&hub.tally.sent_bytes, after.bytes - before.bytes);
        self.tally.note_copies(copied);
        Ok(flushed.bytes > 0)
    }
}
