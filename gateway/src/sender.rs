//! The sender of one network: `madgate-tx-<network>`.
//!
//! It serves links that are handed to it: because a lane took less than there was (it waits
//! until the lane takes more), because something must not leave yet for a rate (it waits until
//! then), or always, where the configuration says so.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver as Mailbox;
use madgate_gtm::Time;
use madgate_tm::{LaneClass, LaneError, Poller, Ready};

use crate::counters::add;
use crate::engine::{Engine, Hub, Touched};
use crate::fault::Fault;
use crate::instruments::{Stage, Stopwatch};
use crate::link::{LaneOutput, Link};
use crate::waiting::{Rounds, Waiting};

/// A lane that took less than there was.
#[derive(Debug)]
struct Blocked {
    link: Arc<Link>,
    class: LaneClass,
    is_static: bool,
    /// When it was last found to take nothing, having just been woken or come here.
    since: Time,
    /// Whether its descriptor is in the poller. It stays there until the lane is free again.
    is_watched: bool,
}

/// The thread's state.
#[derive(Debug)]
pub(crate) struct Sender {
    engine: Arc<Engine>,
    network: usize,
    poller: Poller,
    handovers: Mailbox<Arc<Link>>,
    /// By token.
    blocked: Vec<Option<Blocked>>,
    vacant: Vec<usize>,
    /// Links of which nobody would learn that a lane takes more: they are to be closed.
    deaf: Vec<(Arc<Link>, Fault)>,
    /// Static lanes that are tried again and again: it costs no system call.
    trying: Vec<usize>,
    /// Links with something that must not leave yet, in the order in which they were told so.
    timed: VecDeque<Arc<Link>>,
    /// When the first of them may go on.
    timed_until: Option<Time>,
    waiting: Waiting,
    watch: Stopwatch,
    /// When the last link was handed over.
    active_at: Time,
    passes: u32,
    rounds: Rounds,
    touched: Touched,
    ready: Vec<Ready>,
}

impl Sender {
    pub(crate) fn new(
        engine: Arc<Engine>,
        network: usize,
        poller: Poller,
        handovers: Mailbox<Arc<Link>>,
    ) -> Self {
        let waiting = Waiting::new(engine.settings.wait);
        let spent = Arc::clone(&engine.networks[network].sender_spent);
        let watch = Stopwatch::new(engine.clock, spent);
        Self {
            engine,
            network,
            poller,
            handovers,
            blocked: Vec::new(),
            vacant: Vec::new(),
            deaf: Vec::new(),
            trying: Vec::new(),
            timed: VecDeque::new(),
            timed_until: None,
            waiting,
            watch,
            active_at: Time(0),
            passes: 0,
            rounds: Rounds::default(),
            touched: Touched::default(),
            ready: Vec::new(),
        }
    }

    /// Sends until the engine stops.
    pub(crate) fn run(mut self) {
        while !self.engine.is_stopping() {
            self.do_work();
        }
    }

    /// One pass: everything that can be done now; sleeps when that is nothing. Returns
    /// whether anything was done.
    pub(crate) fn do_work(&mut self) -> bool {
        let mut progress = self.take_handovers();
        progress |= self.try_again();
        progress |= self.serve_timed();
        progress |= self.close_deaf();
        self.engine.serve_all(&mut self.touched, &mut self.watch);
        self.passes = self.passes.wrapping_add(1);
        self.rounds.note(progress);
        let now = self.engine.now();
        // With every batch handed over, the next one is looked for like the next arrival.
        let expects = self.engine.hands_over() && self.waiting.is_worth_it(self.active_at, now);
        if progress {
            // What is handed over without end must not keep lanes that take more by now waiting.
            if self.waits_for_lanes() && self.rounds.is_due(self.waiting.passes_per_look()) {
                self.look_at_descriptors(Some(Duration::ZERO));
            }
            return true;
        }
        let sleeps = !expects && self.trying.is_empty();
        let timeout = if sleeps {
            self.timed_until.map(|at| at.since(now))
        } else {
            Some(Duration::ZERO)
        };
        progress = self.look_at_descriptors(timeout);
        if !progress && !sleeps {
            self.waiting.pause(self.passes, expects);
        }
        progress
    }

    fn hub(&self) -> &Hub {
        &self.engine.networks[self.network]
    }

    /// Whether the kernel is to tell of lanes that take more.
    const fn waits_for_lanes(&self) -> bool {
        self.blocked.len() > self.vacant.len() + self.trying.len()
    }

    fn take_handovers(&mut self) -> bool {
        let mut progress = false;
        // Those that are handed over meanwhile, perhaps by this thread, are for the next pass.
        for _ in 0..self.handovers.len() {
            let Ok(link) = self.handovers.try_recv() else {
                break;
            };
            progress = true;
            link.taken_over();
            self.attend(&link, false);
        }
        if self.hub().take_overflow() {
            progress = true;
            let network = self.hub().network;
            let mut all: Vec<_> = {
                let shared = self.engine.lock();
                shared
                    .links
                    .values()
                    .filter(|link| link.request.network == network)
                    .cloned()
                    .collect()
            };
            // The engine has forgotten those that were closed, which may be waited for here.
            let blocked = self.blocked.iter().flatten().map(|blocked| &blocked.link);
            let waited = blocked.chain(&self.timed);
            all.extend(waited.filter(|link| link.is_closed()).cloned());
            for link in all {
                self.attend(&link, false);
            }
        }
        if progress {
            self.active_at = self.engine.now();
        }
        progress
    }

    /// Serves a link, which no longer stands among the timed ones where it `was_timed`; lanes that take no
    /// more are waited for.
    fn attend(&mut self, link: &Arc<Link>, was_timed: bool) {
        if link.is_closed() {
            self.let_go(link);
            return;
        }
        self.watch.end(Stage::Waiting);
        self.engine.serve(link, &mut self.touched, &mut self.watch);
        self.watch.end(Stage::HandingOver);
        let engine = Arc::clone(&self.engine);
        let mut output = engine.hold(link);
        if was_timed {
            output.timed_for = None;
        }
        if let Some(at) = output.held_until {
            if output.timed_for.replace(at).is_none() {
                self.timed.push_back(Arc::clone(link));
            }
            self.timed_until = self.timed_until.into_iter().chain([at]).min();
        }
        for class in [LaneClass::Urgent, LaneClass::Bulk] {
            let lane = output.lane(class);
            if lane.sender.is_none() || !lane.is_blocked || lane.is_watched {
                continue;
            }
            lane.is_watched = true;
            let is_static = lane.is_static();
            let index = self.vacant.pop().unwrap_or_else(|| {
                self.blocked.push(None);
                self.blocked.len() - 1
            });
            self.blocked[index] = Some(Blocked {
                link: Arc::clone(link),
                class,
                is_static,
                since: self.engine.now(),
                is_watched: false,
            });
            if is_static || !self.watch(index, lane) {
                self.trying.push(index);
            }
        }
    }

    // ---- links that wait for a rate -------------------------------------------------------

    /// Serves those that may go on. Returns whether it was time.
    fn serve_timed(&mut self) -> bool {
        if self.timed_until.is_none_or(|at| at > self.engine.now()) {
            return false;
        }
        self.timed_until = None;
        for _ in 0..self.timed.len() {
            if let Some(link) = self.timed.pop_front() {
                self.attend(&link, true);
            }
        }
        true
    }

    // ---- lanes that are blocked ---------------------------------------------------------

    /// Tries those that are tried again and again; begins to wait for those that were for
    /// long enough.
    fn try_again(&mut self) -> bool {
        let mut progress = false;
        let mut at = 0;
        while let Some(&index) = self.trying.get(at) {
            if self.retry(index) {
                progress = true;
                self.trying.swap_remove(at);
            } else if self.is_tried_enough(index) {
                self.trying.swap_remove(at);
            } else {
                at += 1;
            }
        }
        progress
    }

    /// Offers a lane what waits for it. Returns whether it is blocked no longer.
    fn retry(&mut self, index: usize) -> bool {
        let Some(Blocked { link, class, .. }) = &self.blocked[index] else {
            return true;
        };
        let (link, class) = (Arc::clone(link), *class);
        self.engine.hold(&link).lane(class).is_blocked = false;
        self.watch.end(Stage::Waiting);
        self.engine.serve(&link, &mut self.touched, &mut self.watch);
        self.watch.end(Stage::HandingOver);
        let engine = Arc::clone(&self.engine);
        let mut output = engine.hold(&link);
        let lane = output.lane(class);
        let is_free = lane.sender.is_none() || !lane.is_blocked;
        if is_free {
            self.release(index, lane);
        }
        is_free
    }

    /// Whether a lane is waited for from now on.
    fn is_tried_enough(&mut self, index: usize) -> bool {
        let now = self.engine.now();
        let Some(Blocked {
            link,
            class,
            is_static,
            since,
            ..
        }) = &self.blocked[index]
        else {
            return true;
        };
        if *is_static && self.waiting.is_worth_it(*since, now) {
            return false;
        }
        let (link, class) = (Arc::clone(link), *class);
        let engine = Arc::clone(&self.engine);
        let mut output = engine.hold(&link);
        self.watch(index, output.lane(class))
    }

    /// Waits for the descriptor of a lane. Returns whether it does; if not, it is to be
    /// tried again, or its link is about to be closed.
    fn watch(&mut self, index: usize, lane: &mut LaneOutput) -> bool {
        let (Some(blocked), Some(sender)) = (&mut self.blocked[index], &mut lane.sender) else {
            return false;
        };
        // A lane that has failed says so when it is sent on.
        if !sender.arm().unwrap_or(false) {
            return false;
        }
        if !blocked.is_watched {
            let token = u64::try_from(index).unwrap_or(u64::MAX - 1);
            let (descriptor, interest) = sender.descriptor();
            match self.poller.add(descriptor, token, interest) {
                Ok(()) => blocked.is_watched = true,
                Err(error) => {
                    let what = format!("it cannot be waited for: {error}");
                    let error = io::Error::new(error.kind(), what);
                    let fault = Fault::Lane(LaneError::Broken(error));
                    self.deaf.push((Arc::clone(&blocked.link), fault));
                }
            }
        }
        blocked.is_watched
    }

    /// The lane is free, or gone.
    fn release(&mut self, index: usize, lane: &mut LaneOutput) {
        let Some(blocked) = self.blocked[index].take() else {
            return;
        };
        if blocked.is_watched
            && let Some(sender) = &lane.sender
        {
            let (descriptor, _) = sender.descriptor();
            // It was added; what could go wrong went wrong then.
            let _ = self.poller.remove(descriptor);
        }
        lane.is_watched = false;
        self.vacant.push(index);
    }

    fn look_at_descriptors(&mut self, timeout: Option<Duration>) -> bool {
        self.rounds.begin();
        self.ready.clear();
        if timeout != Some(Duration::ZERO) {
            add(&self.hub().tally.sender_sleeps, 1);
        }
        match self.poller.wait(timeout) {
            Ok(ready) => self.ready.extend_from_slice(ready),
            Err(error) => tracing::error!(%error, "waiting for the network failed"),
        }
        for at in 0..self.ready.len() {
            let Ok(index) = usize::try_from(self.ready[at].token) else {
                continue;
            };
            let Some(Some(blocked)) = self.blocked.get_mut(index) else {
                continue;
            };
            blocked.since = self.engine.now();
            if blocked.is_static {
                let link = Arc::clone(&blocked.link);
                let mut output = self.engine.hold(&link);
                if let Some(sender) = &mut output.lane(blocked.class).sender {
                    sender.acknowledge_wake();
                }
                if !self.trying.contains(&index) {
                    self.trying.push(index);
                }
            } else {
                self.retry(index);
            }
        }
        !self.ready.is_empty()
    }

    // ---- links that are closed ------------------------------------------------------------

    /// Closes those whose lanes cannot be waited for. Returns whether there were any.
    fn close_deaf(&mut self) -> bool {
        let is_any = !self.deaf.is_empty();
        for (link, fault) in self.deaf.drain(..) {
            let mut output = self.engine.hold(&link);
            // It may have taken everything meanwhile.
            let is_blocked = output.lanes().iter().any(|lane| lane.is_blocked);
            drop(output);
            if is_blocked {
                self.engine.close_link(&link, &fault, &mut self.touched);
            }
        }
        is_any
    }

    /// Lets go of a link that is closed: its lanes end here.
    fn let_go(&mut self, link: &Arc<Link>) {
        self.timed.retain(|timed| !Arc::ptr_eq(timed, link));
        let engine = Arc::clone(&self.engine);
        let mut output = engine.hold(link);
        for index in 0..self.blocked.len() {
            let is_its = |blocked: &Blocked| Arc::ptr_eq(&blocked.link, link);
            if let Some(blocked) = self.blocked[index]
                .as_ref()
                .filter(|blocked| is_its(blocked))
            {
                let class = blocked.class;
                self.release(index, output.lane(class));
                self.trying.retain(|trying| *trying != index);
            }
        }
        let dropped: usize = output
            .lanes()
            .iter()
            .map(|lane| lane.outbox.queued_bytes())
            .sum();
        let ends: Vec<_> = output.lanes().into_iter().map(LaneOutput::let_go).collect();
        drop(output);
        if dropped > 0 {
            tracing::debug!(
                bytes = dropped,
                "dropped with a link; their source has them"
            );
        }
        drop(ends);
        self.engine.feed();
    }
}

#[cfg(test)]
mod tests {
    use madgate_tm::Interest;

    use super::*;
    use crate::fixture::Fixture;

    /// A sender's thread, with a link whose bulk lane is blocked.
    fn blocked(fixture: &Fixture) -> (Sender, Arc<Link>) {
        let link = fixture.link();
        (blocked_on(fixture, &link), link)
    }

    fn blocked_on(fixture: &Fixture, link: &Arc<Link>) -> Sender {
        let engine = Arc::clone(&fixture.engine);
        let handovers = fixture.ends[link.network].handovers.clone();
        let mut sender = Sender::new(engine, link.network, Poller::new().unwrap(), handovers);
        sender.blocked.push(Some(Blocked {
            link: Arc::clone(link),
            class: LaneClass::Bulk,
            is_static: false,
            since: Time(0),
            is_watched: false,
        }));
        let mut output = sender.engine.hold(link);
        output.bulk.is_blocked = true;
        output.bulk.is_watched = true;
        drop(output);
        sender
    }

    #[test]
    fn a_link_that_is_closed_while_the_mailbox_is_full_is_let_go() {
        let fixture = Fixture::new();
        let (mut sender, link) = blocked(&fixture);
        let other = fixture.link_on();
        while !sender.handovers.is_full() {
            sender.hub().hand_over(&other);
            other.taken_over();
        }
        let mut touched = Touched::default();
        sender
            .engine
            .close_link(&link, &Fault::Replaced, &mut touched);
        while sender.take_handovers() {}
        assert!(sender.blocked.iter().all(Option::is_none));
        assert!(sender.engine.hold(&link).bulk.sender.is_none());
    }

    #[test]
    fn a_lane_that_takes_more_is_served_beside_links_that_are_handed_over_without_end() {
        let fixture = Fixture::new();
        let (mut sender, link) = blocked(&fixture);
        let other = fixture.link_on();
        // The descriptor of a lane that is free again.
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        sender.poller.add(&near, 0, Interest::Writable).unwrap();
        let mut passes = 0;
        while fixture.engine.hold(&link).bulk.is_blocked {
            passes += 1;
            assert!(passes < 100, "nobody looks at it");
            sender.hub().hand_over(&other);
            assert!(sender.do_work());
        }
        assert!(passes > 1, "it need not be looked at in each pass");
    }

    #[test]
    fn a_link_whose_lane_cannot_be_waited_for_is_closed() {
        let fixture = Fixture::new();
        let link = fixture.patient_link();
        let mut sender = blocked_on(&fixture, &link);
        let engine = Arc::clone(&sender.engine);
        let mut output = engine.hold(&link);
        // Its descriptor is in the poller already, which takes none twice.
        let (descriptor, interest) = output.bulk.sender.as_ref().unwrap().descriptor();
        sender.poller.add(descriptor, 7, interest).unwrap();
        assert!(!sender.watch(0, &mut output.bulk));
        drop(output);
        assert!(!link.is_closed());
        sender.do_work();
        assert!(link.is_closed());
        while sender.take_handovers() {}
        assert!(sender.blocked.iter().all(Option::is_none));
    }

    #[test]
    fn what_others_want_to_send_while_a_lane_is_armed_leaves() {
        let fixture = Fixture::new();
        let (mut sender, link) = blocked(&fixture);
        assert!(!fixture.is_handed_over(&link));
        // Armed, the lane finds somebody who wants to send.
        assert!(!sender.is_tried_enough(0));
        assert!(fixture.is_handed_over(&link));
    }
}
