//! The receiver of one network: `madgate-rx-<network>`.
//!
//! It waits on every lane of its network, reads what is there in batches, takes the frames in
//! (see [`intake`](crate::intake)), and sends on what it can at once. Lanes that were active
//! a moment ago are *hot*: they are looked at again and again before the thread sleeps. While
//! little comes, one thread looks at those of others too ([`crew`]); while much does, threads stand in for
//! each other ([`deputy`]).
//!
//! ```text
//!          ┌ stream.rs    sockets: batches of many frames
//!  lane ───┤   └ straight.rs   large frames, into a slot of the lane that they leave by, or
//!          │                     through a pipe to another socket
//!          └ slots.rs     shared memory: slot by slot
//! ```

#[cfg(test)]
mod arrived;
pub(crate) mod crew;
mod deputy;
mod input;
mod memory;
mod slots;
mod straight;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver as Mailbox;
use madgate_gtm::Time;
use madgate_gtm::transit::Lane;
use madgate_tm::{LaneClass, LaneError, LaneReceiver, Pipes, Poller, Ready};

use crate::batch::Batches;
use crate::counters::{add, read};
use crate::engine::{Command, Engine, Hub, Touched};
use crate::fault::Fault;
use crate::instruments::{Stage, Stopwatch};
use crate::link::Link;
use crate::scan::Item;
use crate::waiting::{Rounds, Waiting};
use input::Input;
use straight::Head;

/// Frames that are on their way through the kernel at once, each in a pipe of its own.
const PIPES_MOST: usize = 48;

/// How long pipes are kept that nobody uses.
const PIPES_KEPT: Duration = Duration::from_secs(1);

/// Passes in a row that received something after which a network has much to do.
const LOADED_PASSES: u32 = 4;

/// How long a thread looks after its own network alone after that, and how long it is taken for granted that
/// as much comes.
const UNEASE: Duration = Duration::from_millis(10);

/// What is received at once shows that much comes if it is this much: a receiver that is not in a hurry finds
/// more of it.
const MUCH_BYTES: usize = 64 << 10;

/// Turns in which what a lost link still holds is read at most: 128 MiB of what goes straight into slots.
const LAST_READS: usize = 256;

/// The thread's state.
#[derive(Debug)]
pub(crate) struct Receiver {
    engine: Arc<Engine>,
    /// Which of the engine's networks.
    network: usize,
    poller: Poller,
    freed: Mailbox<()>,
    /// In boxes, as each is taken out for its turn.
    inputs: Vec<Option<Box<Input>>>,
    vacant: Vec<usize>,
    /// Inputs that are looked at in each pass.
    hot: Vec<usize>,
    /// Inputs that have deadlines.
    timed: Vec<usize>,
    waiting: Waiting,
    watch: Stopwatch,
    passes: u32,
    rounds: Rounds,
    /// Passes in a row that received something.
    loaded_passes: u32,
    /// When there will not have been much to do for a while.
    eased_at: Time,
    /// Until when it is taken for granted that much comes at once, and its thread is scheduled for that.
    much_until: Option<Time>,
    /// The same of what leaves by its network.
    much_leaves_until: Option<Time>,
    /// How much had left by it when that was looked at, and when.
    left: (u64, Time),
    /// What has gone straight into slots.
    filled: Filled,
    // What a turn uses, kept so that nothing is allocated.
    batches: Batches,
    /// The beginning of a frame while its batch is reclaimed; memory for a small one is kept.
    beginning: Vec<u8>,
    pipes: Pipes,
    pipes_used_at: Time,
    /// Since when all pipes hold frames that wait.
    pipeless_since: Option<Time>,
    items: Vec<Item>,
    head: Head,
    touched: Touched,
    ready: Vec<Ready>,
    is_paused: bool,
    /// Whether a frame that is there was left where it is, as there is no slot for it.
    waits_for_slot: bool,
}

/// Frames that were received straight into slots.
#[derive(Debug, Clone, Copy, Default)]
struct Filled {
    frames: u64,
    bytes: u64,
}

impl Filled {
    /// One of so many bytes.
    const fn add(&mut self, bytes: u64) {
        self.frames += 1;
        self.bytes += bytes;
    }

    /// Those that have come since there were these.
    const fn since(self, before: Self) -> Self {
        Self {
            frames: self.frames - before.frames,
            bytes: self.bytes - before.bytes,
        }
    }
}

/// What a pass has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Something was received.
    Progress,
    /// Nothing, and it is worth to look again.
    Nothing,
    /// Nothing, and the kernel tells when there is something: for how long the thread may sleep.
    Idle(Option<Duration>),
}

impl Receiver {
    pub(crate) fn new(
        engine: Arc<Engine>,
        network: usize,
        poller: Poller,
        freed: Mailbox<()>,
        batches: Batches,
    ) -> Self {
        let waiting = Waiting::new(engine.settings.wait);
        let spent = Arc::clone(&engine.networks[network].receiver_spent);
        let watch = Stopwatch::new(engine.clock, spent);
        Self {
            engine,
            network,
            poller,
            freed,
            inputs: Vec::new(),
            vacant: Vec::new(),
            hot: Vec::new(),
            timed: Vec::new(),
            waiting,
            watch,
            passes: 0,
            rounds: Rounds::default(),
            loaded_passes: 0,
            eased_at: Time(0),
            much_until: None,
            much_leaves_until: None,
            left: (0, Time(0)),
            filled: Filled::default(),
            batches,
            beginning: Vec::new(),
            pipes: Pipes::new(PIPES_MOST),
            pipes_used_at: Time(0),
            pipeless_since: None,
            items: Vec::new(),
            head: Head::new(),
            touched: Touched::default(),
            ready: Vec::new(),
            is_paused: false,
            waits_for_slot: false,
        }
    }

    /// One pass: everything that can be done now.
    fn look(&mut self) -> Look {
        self.obey();
        let mut progress = self.look_at_hot();
        self.passes = self.passes.wrapping_add(1);
        self.rounds.note(progress);
        let sleeps = !progress && self.waiting.sleeps_at_once();
        if sleeps || self.hot.is_empty() || self.rounds.is_due(self.waiting.passes_per_look()) {
            self.rounds.begin();
            let now = self.engine.now();
            if progress {
                self.cool_those_that_tell(now);
            } else if let Some(limit) = self.cool(now) {
                self.loaded_passes = 0;
                return Look::Idle(limit);
            }
            progress |= self.look_at_descriptors(None);
        }
        if progress {
            self.note_load();
            Look::Progress
        } else {
            self.loaded_passes = 0;
            Look::Nothing
        }
    }

    /// Sleeps until something arrives, for `limit` at most, and receives it.
    fn sleep(&mut self, limit: Option<Duration>) {
        let limit = self.longest_sleep(limit);
        self.receive_ready(Some(limit));
    }

    /// Whether its thread may sleep without it, so that others have it meanwhile: for how long.
    #[allow(
        clippy::option_option,
        reason = "not at all, for some time, or without limit"
    )]
    fn sleeps_elsewhere(&mut self, limit: Option<Duration>) -> Option<Option<Duration>> {
        // What waits for a slot would wake it, and others, all the time.
        if self.waits_for_slot || !self.poller.waits_elsewhere() {
            return None;
        }
        add(&self.hub().tally.sleeps, 1);
        Some(self.longest_sleep(limit))
    }

    /// Receives what has arrived while nobody waited with it. Whether there was anything.
    fn wake(&mut self) -> bool {
        self.receive_ready(None)
    }

    fn longest_sleep(&self, limit: Option<Duration>) -> Option<Duration> {
        let much = self.much_until.into_iter().chain(self.much_leaves_until);
        let much = much.map(|until| until.since(self.engine.now()));
        let pipes = self.pipes.are_there().then_some(PIPES_KEPT);
        limit.into_iter().chain(much).chain(pipes).min()
    }

    #[allow(clippy::option_option, reason = "as of what it calls")]
    fn receive_ready(&mut self, sleep: Option<Option<Duration>>) -> bool {
        self.waits_for_slot = false;
        let progress = self.look_at_descriptors(sleep);
        if !progress && self.waits_for_slot {
            // What is to be received is there all the time: who reads the slots may need the processor.
            self.waiting.pause(self.passes, true);
        }
        progress
    }

    /// Lets others run between two looks.
    fn give_way(&mut self) {
        let costs_calls = self.hot_costs_calls();
        self.waiting.pause(self.passes, costs_calls);
    }

    // ---- how much there is to do --------------------------------------------------------

    fn note_load(&mut self) {
        self.loaded_passes = self.loaded_passes.saturating_add(1);
        if self.is_loaded() {
            self.eased_at = self.engine.now() + UNEASE;
        }
    }

    /// Whether something came in each of the last passes.
    const fn is_loaded(&self) -> bool {
        self.loaded_passes >= LOADED_PASSES
    }

    /// Whether much has come at once lately.
    fn has_much(&mut self) -> bool {
        let until = self.much_until;
        self.much_until = until.filter(|until| self.engine.now() < *until);
        self.much_until.is_some()
    }

    /// Whether much has left by its network lately, whoever sent it.
    fn has_much_leaving(&mut self) -> bool {
        let now = self.engine.now();
        let bytes = read(&self.hub().tally.sent_bytes);
        let (before, at) = self.left;
        let is_lately = now.since(at) < UNEASE;
        let is_much = is_lately && bytes.saturating_sub(before) >= MUCH_BYTES as u64;
        if is_much || !is_lately {
            self.left = (bytes, now);
        }
        let until = self.much_leaves_until.filter(|until| now < *until);
        self.much_leaves_until = is_much.then_some(now + UNEASE).or(until);
        self.much_leaves_until.is_some()
    }

    /// Whether something of what came went through pipes lately.
    fn has_pipes(&self) -> bool {
        self.pipes.are_there()
    }

    /// Whether there has not been much to do for a while.
    fn is_at_ease(&self) -> bool {
        self.eased_at == Time(0) || self.engine.now() >= self.eased_at
    }

    fn hub(&self) -> &Hub {
        &self.engine.networks[self.network]
    }

    // ---- where to look ------------------------------------------------------------------

    fn look_at_hot(&mut self) -> bool {
        let mut progress = false;
        let mut at = 0;
        while let Some(&index) = self.hot.get(at) {
            progress |= self.turn(index);
            at += 1;
        }
        progress
    }

    fn hot_costs_calls(&self) -> bool {
        self.hot.iter().any(|&index| {
            self.inputs[index]
                .as_ref()
                .is_some_and(|input| !input.is_static)
        })
    }

    /// Lanes that were quiet for long are not looked at any longer until they tell. Returns
    /// for how long the thread may sleep; `None` if it must not.
    fn cool(&mut self, now: Time) -> Option<Option<Duration>> {
        let mut at = 0;
        while let Some(&index) = self.hot.get(at) {
            let stays_hot = match &mut self.inputs[index] {
                Some(input)
                    if self
                        .waiting
                        .is_worth_its_spin(&input.spin, input.active_at, now) =>
                {
                    true
                }
                // A lane that has failed says so when it is received from.
                Some(input) => !input.receiver.arm().unwrap_or(false),
                None => false,
            };
            if stays_hot {
                at += 1;
            } else {
                if let Some(input) = &mut self.inputs[index] {
                    input.is_hot = false;
                }
                self.hot.swap_remove(at);
            }
        }
        self.hot.is_empty().then(|| self.next_deadline(now))
    }

    /// The same while there is something to do, for those that tell without being armed.
    fn cool_those_that_tell(&mut self, now: Time) {
        let Self {
            hot,
            inputs,
            waiting,
            ..
        } = self;
        hot.retain(|&index| {
            let Some(input) = &mut inputs[index] else {
                return false;
            };
            input.is_hot =
                input.is_static || waiting.is_worth_its_spin(&input.spin, input.active_at, now);
            input.is_hot
        });
    }

    /// Something has come.
    fn note_arrival(&mut self, index: usize, now: Time) {
        if let Some(input) = &mut self.inputs[index] {
            input.spin.note(now.since(input.active_at));
            input.active_at = now;
        }
        self.heat(index, now);
    }

    fn heat(&mut self, index: usize, now: Time) {
        let Some(input) = &mut self.inputs[index] else {
            return;
        };
        // Large frames come in batches, each of which is worth being woken for.
        let is_urgent = input.rules.lane == Lane::Urgent;
        let is_worth_it =
            input.is_static || (is_urgent && self.waiting.is_worth_its_spin(&input.spin, now, now));
        let is_hot = is_worth_it && input.gather.is_off();
        if is_hot != input.is_hot {
            input.is_hot = is_hot;
            if is_hot {
                self.hot.push(index);
            } else {
                self.hot.retain(|hot| *hot != index);
            }
        }
    }

    /// Its thread leaves it to the lookout.
    pub(crate) fn note_leave(&self) {
        add(&self.hub().tally.leaves, 1);
    }

    /// Another thread has received for its own.
    pub(crate) fn note_stand_in(&self) {
        add(&self.hub().tally.stand_ins, 1);
    }

    /// Looks which descriptors are ready, after `sleep` at most; receives from those.
    #[allow(
        clippy::option_option,
        reason = "not at all, for some time, or without limit"
    )]
    fn look_at_descriptors(&mut self, sleep: Option<Option<Duration>>) -> bool {
        let has_pipes = self.pipes.are_there();
        let timeout = match sleep {
            None => Some(Duration::ZERO),
            Some(limit) => {
                add(&self.hub().tally.sleeps, 1);
                limit
            }
        };
        self.ready.clear();
        match self.poller.wait(timeout) {
            Ok(ready) => self.ready.extend_from_slice(ready),
            Err(error) => tracing::error!(%error, "waiting for the network failed"),
        }
        if has_pipes && self.engine.now().since(self.pipes_used_at) >= PIPES_KEPT {
            self.pipes.close_idle();
        }
        let mut progress = false;
        for at in 0..self.ready.len() {
            let Ok(index) = usize::try_from(self.ready[at].token) else {
                continue;
            };
            let Some(Some(input)) = self.inputs.get_mut(index) else {
                continue;
            };
            if input.is_static {
                input.receiver.acknowledge_wake();
                // It was armed: it has to be looked at until it is armed again.
                let now = self.engine.now();
                self.heat(index, now);
            }
            progress |= self.turn(index);
        }
        self.keep_deadlines();
        progress
    }

    // ---- receiving ------------------------------------------------------------------------

    /// Receives from one lane and sends on what came; closes its link if that fails. What comes by a
    /// bulk lane of slots lets small frames pass that came before it, some times.
    fn turn(&mut self, index: usize) -> bool {
        let mut progress = false;
        for _ in 0..slots::LEADS_PER_TURN {
            let bulk = self.inputs.get(index).and_then(Option::as_deref);
            if let Some(urgent) = bulk.and_then(|bulk| self.urgent_before(bulk)) {
                progress |= self.receive_once(urgent);
            }
            progress |= self.receive_once(index);
            let bulk = self.inputs.get(index).and_then(Option::as_deref);
            if bulk.is_none_or(|bulk| bulk.left_in_turn == 0) {
                return progress;
            }
        }
        if let Some(Some(bulk)) = self.inputs.get_mut(index) {
            bulk.left_in_turn = 0;
        }
        progress
    }

    fn receive_once(&mut self, index: usize) -> bool {
        let Some(Some(mut input)) = self.inputs.get_mut(index).map(Option::take) else {
            return false;
        };
        if self.is_paused && input.rules.lane == Lane::Bulk {
            self.inputs[index] = Some(input);
            return false;
        }
        let received = self.receive(&mut input);
        let progress = match received {
            Ok(progress) => {
                self.inputs[index] = Some(input);
                progress
            }
            Err(fault) => {
                let link = Arc::clone(&input.link);
                self.inputs[index] = Some(input);
                self.fail(Some(index), &link, &fault);
                true
            }
        };
        if progress {
            self.note_arrival(index, self.watch.time_of_batch());
        }
        self.note_deadlines(index);
        self.serve_touched();
        if progress && self.engine.hands_over() {
            // Nothing was sent, which would have ended the stage.
            self.watch.end(Stage::HandingOver);
        }
        progress
    }

    /// The input of small frames that go on before what comes by `bulk`, if there are any.
    fn urgent_before(&self, bulk: &Input) -> Option<usize> {
        let index = bulk.urgent?;
        let urgent = self.inputs[index].as_deref()?;
        urgent.receiver.may_have_arrived().then_some(index)
    }

    /// Sends on what links that were touched have to send.
    fn serve_touched(&mut self) {
        self.engine.serve_all(&mut self.touched, &mut self.watch);
    }

    fn receive(&mut self, input: &mut Input) -> Result<bool, Fault> {
        if input.is_static {
            self.receive_slots(input)
        } else {
            // Where something comes in every pass, nothing is between two but the end of handing
            // over.
            let before = if self.is_loaded() {
                Stage::HandingOver
            } else {
                Stage::Waiting
            };
            self.watch.end(before);
            self.receive_stream(input)
        }
    }

    /// A link has failed, by the input that is named or where it is sent on. What its other lanes still
    /// hold is taken in if the peer has left: it has sent all of that before, and may not have read all
    /// that was sent to it.
    fn fail(&mut self, failed: Option<usize>, link: &Arc<Link>, fault: &Fault) {
        if fault.has_left() && !link.is_closed() {
            for other in 0..self.inputs.len() {
                let Some(mut input) = self.inputs[other].take() else {
                    continue;
                };
                if failed != Some(other) && Arc::ptr_eq(&input.link, link) {
                    input.urgent = None;
                    for _ in 0..LAST_READS {
                        if !matches!(self.receive(&mut input), Ok(true)) {
                            break;
                        }
                    }
                }
                self.inputs[other] = Some(input);
            }
        }
        // What has come of it whole leaves before its flows are forgotten.
        self.serve_touched();
        self.engine.close_link(link, fault, &mut self.touched);
        self.let_go(link);
    }

    // ---- commands -------------------------------------------------------------------------

    fn obey(&mut self) {
        let mut has_more = false;
        for command in self.hub().take_commands() {
            match command {
                Command::Add(link, class, receiver) => {
                    self.add(link, class, receiver);
                    has_more = true;
                }
                Command::Drop(link) => self.let_go(&link),
                Command::Left(link, fault) => self.fail(None, &link, &fault),
            }
        }
        if self.engine.is_draining() && (has_more || !self.is_paused) {
            self.pause();
        }
    }

    fn add(&mut self, link: Arc<Link>, class: LaneClass, receiver: Box<dyn LaneReceiver>) {
        if link.is_closed() {
            return;
        }
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.inputs.push(None);
            self.inputs.len() - 1
        });
        let token = u64::try_from(index).unwrap_or(u64::MAX - 1);
        let (descriptor, interest) = receiver.descriptor();
        let watched = self.poller.add(descriptor, token, interest);
        let now = self.engine.now();
        let input = Box::new(Input::new(
            Arc::clone(&link),
            class,
            receiver,
            self.batches.capacity(),
            self.engine.settings.splice,
            self.waiting.new_spin(),
            now,
        ));
        let is_static = input.is_static;
        self.inputs[index] = Some(input);
        self.pair(&link);
        if let Err(error) = watched {
            tracing::error!(%error, "a link cannot be waited for");
            self.fail(Some(index), &link, &Fault::Lane(LaneError::Broken(error)));
        } else if is_static {
            // Not armed yet.
            self.heat(index, now);
        }
    }

    /// Tells the bulk lane of a link of slots where its small frames come.
    fn pair(&mut self, link: &Arc<Link>) {
        let network = self.engine.cluster.network(self.hub().network);
        if !network.stays_in_memory() {
            // Memory does not show whether there are any.
            return;
        }
        let of_link = |lane| {
            self.inputs.iter().position(|input| {
                let input = input.as_deref().filter(|input| input.is_static);
                input
                    .is_some_and(|input| Arc::ptr_eq(&input.link, link) && input.rules.lane == lane)
            })
        };
        let urgent = of_link(Lane::Urgent);
        if let Some(bulk) = of_link(Lane::Bulk)
            && let Some(bulk) = &mut self.inputs[bulk]
        {
            bulk.urgent = urgent;
        }
    }

    /// Lets go of a link that is closed.
    fn let_go(&mut self, link: &Arc<Link>) {
        for index in 0..self.inputs.len() {
            let input = self.inputs[index].as_deref();
            if !input.is_some_and(|input| Arc::ptr_eq(&input.link, link)) {
                continue;
            }
            if let Some(input) = self.inputs[index].take() {
                let (descriptor, _) = input.receiver.descriptor();
                // It was added; what could go wrong went wrong then.
                let _ = self.poller.remove(descriptor);
                if let Some(batch) = input.batch {
                    self.batches.give_back(batch);
                }
                self.hot.retain(|hot| *hot != index);
                self.timed.retain(|timed| *timed != index);
                self.vacant.push(index);
            }
        }
    }

    /// The gateway drains: data stays where it is, with the source in the end. Urgent lanes are
    /// received from still, as what goes back to sources comes by them: what has arrived.
    fn pause(&mut self) {
        self.is_paused = true;
        for index in 0..self.inputs.len() {
            let Some(input) = &mut self.inputs[index] else {
                continue;
            };
            if input.rules.lane == Lane::Bulk {
                let (descriptor, _) = input.receiver.descriptor();
                // As above.
                let _ = self.poller.remove(descriptor);
                input.is_hot = false;
                self.hot.retain(|hot| *hot != index);
            }
        }
    }
}
