//! Sending: from the flow table, through a link's outboxes, to its lanes.

use std::sync::Arc;

use madgate_bmm::Copies;
use madgate_gtm::transit::{Lane, LinkId};
use madgate_tm::LaneClass;

use crate::counters::add;
use crate::engine::{Command, Engine, Hub, Shared, Touched};
use crate::fault::Fault;
use crate::instruments::{Stage, Stopwatch};
use crate::link::{Departed, LaneOutput, Link, Output};

/// Bytes that are taken from flows for an urgent lane before it has sent them: flows take turns up to
/// there, and no further. Credit for the other direction waits behind them.
const URGENT_OUTBOX_BYTES: usize = 256 << 10;

/// The same for a bulk lane.
const BULK_OUTBOX_BYTES: usize = 1 << 20;

/// What a thread sends before it goes on with its own work: what others have for the same links meanwhile,
/// the senders of their networks send.
const PUMP_BYTES: usize = 4 << 20;

/// Bytes of control frames that are taken at once.
const CONTROL_BYTES: usize = 16 << 10;

impl Engine {
    /// Sends what `touched` links have to send, and what follows from it, until nothing is
    /// left that is not blocked.
    pub(crate) fn serve_all(&self, touched: &mut Touched, watch: &mut Stopwatch) {
        let mut left = PUMP_BYTES;
        while let Some(link) = touched.next() {
            if self.hands_over() || left == 0 {
                self.networks[link.network].hand_over(&link);
            } else {
                self.serve_within(&mut left, &link, touched, watch);
            }
        }
    }

    /// Sends what one link has to send. If somebody else is sending on it, they do it.
    pub(crate) fn serve(&self, link: &Arc<Link>, touched: &mut Touched, watch: &mut Stopwatch) {
        self.serve_within(&mut { PUMP_BYTES }, link, touched, watch);
    }

    /// The same, as far as so many bytes go; the rest is for the network's sender.
    fn serve_within(
        &self,
        left: &mut usize,
        link: &Arc<Link>,
        touched: &mut Touched,
        watch: &mut Stopwatch,
    ) {
        let hub = &self.networks[link.network];
        link.want();
        while link.is_wanted() && !link.is_closed() {
            let Some(mut output) = link.try_output() else {
                return;
            };
            link.will_look();
            if output.is_over {
                continue;
            }
            let pumped = self.pump(left, (hub, link), &mut output, touched, watch);
            if pumped.as_ref().is_err_and(Fault::has_left) {
                output.is_over = true;
                output.held_until = None;
            }
            let waits_for_room = output
                .lanes()
                .iter()
                .any(|lane| lane.is_blocked && !lane.is_watched);
            let needs_thread = waits_for_room || output.needs_time();
            drop(output);
            match pumped {
                Ok(Pumped::Enough) => {
                    // Whoever wants to send meanwhile is served there too.
                    hub.hand_over(link);
                    return;
                }
                Ok(Pumped::All) if needs_thread => hub.hand_over(link),
                Ok(Pumped::All) => {}
                // What it has said last, as which messages it had, is for the receiver to find.
                Err(fault) if fault.has_left() => {
                    hub.command(Command::Left(Arc::clone(link), fault));
                }
                Err(fault) => self.close_link(link, &fault, touched),
            }
        }
    }

    /// Fills the outboxes and empties them into the lanes, until there is nothing more, the lanes take
    /// no more, or no bytes are `left`.
    fn pump(
        &self,
        left: &mut usize,
        (hub, link): (&Hub, &Link),
        output: &mut Output,
        touched: &mut Touched,
        watch: &mut Stopwatch,
    ) -> Result<Pumped, Fault> {
        loop {
            self.fill(hub, link, output, touched);
            if !output.can_send() {
                return Ok(Pumped::All);
            }
            if *left == 0 {
                return Ok(Pumped::Enough);
            }
            watch.end(Stage::HandingOver);
            let mut departed = std::mem::take(&mut output.departed);
            let sent = self
                .flush(hub, &mut output.urgent, &mut departed)
                .and_then(|urgent| Ok(urgent + self.flush(hub, &mut output.bulk, &mut departed)?));
            output.departed = departed;
            let (now, took) = watch.end(Stage::Sending);
            output.departed_at = now;
            add(
                &hub.tally.sending_ns,
                u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
            );
            let sent = sent?;
            if sent == 0 {
                return Ok(Pumped::All);
            }
            *left = left.saturating_sub(sent);
            self.feed();
        }
    }

    /// Tells the flow table what has left, and takes what is next.
    fn fill(&self, hub: &Hub, link: &Link, output: &mut Output, touched: &mut Touched) {
        let now = self.rate_time();
        let mut shared = self.lock();
        let (mut is_closed, mut has_turn) = (false, false);
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
        let (mut is_looked_at, mut held_until) = (false, None);
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
                        .push(frame.into_buffer(link.transit, lane), Some(departed));
                },
            );
            is_looked_at = true;
            held_until = waits.until.into_iter().chain(held_until).min();
            has_turn |= waits.is_denied();
            is_closed |= waits.is_closed;
            ask(waits.turns_of);
        }
        if is_looked_at {
            let before = std::mem::replace(&mut output.held_until, held_until);
            // Who comes by before that time finds the same wait.
            if held_until.is_some() && before.is_none_or(|until| until <= now) {
                add(&hub.tally.held_back, 1);
            }
        } else if output.held_until.is_some_and(|until| until <= now) {
            // It waits for room in the lanes now, which is looked for in another way.
            output.held_until = None;
        }
        if !has_turn {
            ask(transit.pass_turns(link.transit));
        }
        if is_closed {
            // What comes for it will wait, and shall not keep the receivers' memory.
            link.slow_down(now);
        }
    }

    /// Sends what a lane takes. Returns how many bytes left.
    fn flush(
        &self,
        hub: &Hub,
        output: &mut LaneOutput,
        departed: &mut Vec<Departed>,
    ) -> Result<usize, Fault> {
        if !output.can_send() {
            return Ok(0);
        }
        let Some(sender) = &mut output.sender else {
            return Ok(0);
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
        Ok(flushed.bytes)
    }
}

/// How far a link was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pumped {
    /// There is nothing more that could leave.
    All,
    /// There is, and somebody else is to go on.
    Enough,
}

#[cfg(test)]
mod tests {
    use madgate_gtm::{Kind, Time};

    use super::*;
    use crate::fixture::Fixture;

    fn watch(fixture: &Fixture) -> Stopwatch {
        let engine = &fixture.engine;
        Stopwatch::new(engine.clock, Arc::clone(&engine.networks[1].receiver_spent))
    }

    #[test]
    fn who_can_send_nothing_passes_its_turn_at_a_rate_on() {
        let fixture = Fixture::limited();
        let (stuck, other) = (fixture.link(), fixture.link_on());
        let engine = &fixture.engine;
        let waits = |link: &Link| {
            let shared = engine.lock();
            shared.transit.has_queued(link.transit, Lane::Urgent)
        };
        // The one sends a frame, and stands there for another turn when its neighbour takes no more.
        fixture.wait_for(&stuck, 0);
        fixture.wait_for(&stuck, 1);
        engine.hold(&stuck).urgent.is_blocked = true;
        let mut sent = 0;
        engine.lock().transit.poll_transmit(
            stuck.transit,
            Lane::Urgent,
            1,
            Time(1),
            |_, departure| sent += departure.frames,
        );
        assert_eq!(sent, 1);
        fixture.wait_for(&other, 2);
        let mut watch = watch(&fixture);
        let mut touched = Touched::default();
        engine.serve(&other, &mut touched, &mut watch);
        engine.serve_all(&mut touched, &mut watch);
        assert!(waits(&stuck));
        assert!(!waits(&other));
    }

    #[test]
    fn what_is_held_back_once_is_counted_once_whoever_comes_by() {
        let fixture = Fixture::slow();
        let link = fixture.link();
        let engine = &fixture.engine;
        let mut watch = watch(&fixture);
        let held_back = || engine.networks[1].tally.counters().held_back;
        for source in 0..3 {
            fixture.wait_for(&link, source);
        }
        assert_eq!(held_back(), 0);
        for _ in 0..5 {
            engine.serve(&link, &mut Touched::default(), &mut watch);
            assert_eq!(held_back(), 1);
        }
    }

    #[test]
    fn what_was_held_back_waits_for_lanes_that_take_nothing_and_for_no_time() {
        let fixture = Fixture::slow();
        let link = fixture.link();
        let engine = &fixture.engine;
        let mut watch = watch(&fixture);
        let mut output = engine.hold(&link);
        output.urgent.is_blocked = true;
        output.bulk.is_blocked = true;
        for (until, is_kept) in [(Time(0), false), (Time(u64::MAX), true)] {
            output.held_until = Some(until);
            drop(output);
            engine.serve(&link, &mut Touched::default(), &mut watch);
            output = engine.hold(&link);
            assert_eq!(output.held_until.is_some(), is_kept, "{until:?}");
        }
    }

    #[test]
    fn who_receives_is_not_kept_by_what_others_have_to_send() {
        let fixture = Fixture::new();
        let link = fixture.endless_link();
        let spent = Arc::clone(&fixture.engine.networks[0].receiver_spent);
        let mut watch = Stopwatch::new(fixture.engine.clock, spent);
        let mut touched = Touched::default();
        link.push_echo(Kind::Ping, 0);
        fixture.engine.serve(&link, &mut touched, &mut watch);
        assert!(fixture.is_handed_over(&link));
        assert!(link.try_output().is_some_and(|output| output.can_send()));
    }
}
