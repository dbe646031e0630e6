//! The trials of a node: whose turn it is to tune it, for how long, and what shall be in force.
//! Without I/O, clocks and threads of its own.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use madgate_vchannel::cluster::MAX_PIN;
use madgate_vchannel::{Cluster, NodeId};

use super::wire::{Answer, Ask, Order, State, Try};
use crate::knobs::{Name, Plan, Value};
use crate::units::counted;

/// Leases that a tuner may ask for.
pub(crate) const LEASE_BOUNDS: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(300);

/// Knobs that one order may name; a route has far fewer.
pub(crate) const MAX_NAMES: usize = 1024;

/// The trials of one node.
#[derive(Debug)]
pub(crate) struct Trials {
    /// The node's own file; without it, it cannot be tuned.
    plan: Option<Plan>,
    turn: Mutex<Turn>,
    /// Whether it is anybody's turn.
    is_held: AtomicBool,
    wake: Sender<()>,
    woken: Receiver<()>,
}

/// Where it stands.
#[derive(Debug, Default)]
struct Turn {
    holder: Option<Holder>,
    /// Whose trial is in force, and its number; none: the file's values are.
    in_force: Option<(u64, u64)>,
    coming: Option<Change>,
    failed: Option<(u64, u64, String)>,
}

/// Who tunes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holder {
    node: NodeId,
    tag: u64,
    until: Instant,
}

/// What shall be in force from now on.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The tuner's tag and the number of the trial; none: back to the values of the file.
    pub(crate) trial: Option<(u64, u64)>,
    /// What is different from the file, for people.
    pub(crate) what: String,
    pub(crate) cluster: Arc<Cluster>,
}

/// An order, with what it came with.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) source: NodeId,
    pub(crate) tag: u64,
    pub(crate) number: u64,
    /// Copies that run on this node.
    pub(crate) copies: usize,
}

impl Trials {
    /// Of a node with this file; `None`: of one that cannot be tuned.
    pub(crate) fn new(plan: Option<Plan>) -> Arc<Self> {
        let (wake, woken) = bounded(1);
        Arc::new(Self {
            plan,
            turn: Mutex::default(),
            is_held: AtomicBool::new(false),
            wake,
            woken,
        })
    }

    /// Whether this node is being tuned, and has to change at once when it is told to.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    /// Whether other values are in force than those of the file.
    pub(crate) fn are_on(&self) -> bool {
        self.turn().in_force.is_some()
    }

    /// Where it is told that there may be a change.
    pub(crate) fn woken(&self) -> &Receiver<()> {
        &self.woken
    }

    /// When the lease ends, unless it is renewed.
    pub(crate) fn lease_end(&self) -> Option<Instant> {
        self.turn().holder.map(|holder| holder.until)
    }

    /// What has to change now.
    pub(crate) fn due(&self, now: Instant) -> Option<Change> {
        let mut turn = self.turn();
        if turn.holder.is_some_and(|holder| holder.until <= now) {
            turn.holder = None;
            turn.coming = None;
            self.is_held.store(false, Ordering::Relaxed);
            if turn.in_force.is_some() {
                return self.back("the lease has ended");
            }
        }
        turn.coming.take()
    }

    /// The way back to the file; none for a node that has never left it.
    pub(crate) fn back(&self, why: &str) -> Option<Change> {
        let cluster = Arc::clone(self.plan.as_ref()?.cluster());
        Some(Change {
            trial: None,
            what: format!("back to the values of the file: {why}"),
            cluster,
        })
    }

    /// A change is in force.
    pub(crate) fn began(&self, trial: Option<(u64, u64)>) {
        let mut turn = self.turn();
        turn.in_force = trial;
        if trial.is_none() && turn.is_going_back() {
            turn.coming = None;
        }
    }

    /// A trial could not begin.
    pub(crate) fn failed(&self, trial: (u64, u64), why: &str) {
        self.turn().failed = Some((trial.0, trial.1, why.to_owned()));
    }

    /// Deals with an order.
    pub(crate) fn order(&self, order: Order, from: &Received, now: Instant) -> Answer {
        let Some(plan) = &self.plan else {
            return refused("this node does not run with --tunable");
        };
        let mut turn = self.turn();
        // A process that is this node again is another one: the one before it is gone.
        if let Some(holder) = turn.holder
            && holder.node != from.source
            && holder.until > now
        {
            let node = plan.cluster().node_name(holder.node);
            let left = (holder.until - now).as_secs_f64();
            return refused(&format!(
                "{node} is tuning it, and keeps it for {left:.0} s unless it says otherwise"
            ));
        }
        let done = match order {
            Order::Ask(ask) => turn.hold(from, ask.lease_ms, now).map(|()| {
                if turn.clear(from.tag, || self.back("another tuner has begun")) {
                    self.tell();
                }
                file_values(plan, &ask)
            }),
            Order::Try(order) => self
                .begin(plan, &mut turn, &order, from, now)
                .map(|()| BTreeMap::new()),
            Order::End => {
                turn.end(from, || self.back("its tuner has ended"));
                self.tell();
                Ok(BTreeMap::new())
            }
        };
        self.is_held.store(turn.holder.is_some(), Ordering::Relaxed);
        match done {
            Ok(values) => Answer::State(turn.state(from.tag, values)),
            Err(reason) => Answer::Refused(reason),
        }
    }

    fn begin(
        &self,
        plan: &Plan,
        turn: &mut Turn,
        order: &Try,
        from: &Received,
        now: Instant,
    ) -> Result<(), String> {
        turn.hold(from, order.lease_ms, now)?;
        if turn.knows((from.tag, from.number)) {
            // Asked again, as the answer was lost.
            return Ok(());
        }
        if from.copies > 0 {
            let transfers = counted(from.copies, "transfer");
            return Err(format!(
                "it receives files, {transfers} at present, which a trial would break off"
            ));
        }
        let values = parse(&order.values)?;
        let changed = plan.with(values.iter().map(|(name, value)| (name, value)))?;
        let different: Vec<String> = values
            .iter()
            .filter(|(name, value)| name.value_in(plan.cluster()).as_ref() != Some(value))
            .map(|(name, value)| format!("{name} = {value}"))
            .collect();
        let what = match &different[..] {
            [] => "the values of the file".to_owned(),
            values => values.join(", "),
        };
        let by = plan.cluster().node_name(from.source);
        turn.coming = Some(Change {
            trial: Some((from.tag, from.number)),
            what: format!("trial {} of {by}: {what}", from.number),
            cluster: changed.cluster,
        });
        self.tell();
        Ok(())
    }

    fn tell(&self) {
        // One that is told already looks at everything.
        let _ = self.wake.try_send(());
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Takes or renews the lease.
    fn hold(&mut self, from: &Received, lease_ms: u64, now: Instant) -> Result<(), String> {
        let lease = Duration::from_millis(lease_ms);
        if !LEASE_BOUNDS.contains(&lease) {
            return Err(format!(
                "a lease of {lease:?} is out of bounds: {:?} to {:?}",
                LEASE_BOUNDS.start(),
                LEASE_BOUNDS.end()
            ));
        }
        self.holder = Some(Holder {
            node: from.source,
            tag: from.tag,
            until: now + lease,
        });
        Ok(())
    }

    fn end(&mut self, from: &Received, back: impl FnOnce() -> Option<Change>) {
        // A late order of a tuner whose turn is over.
        if self.holder.is_some_and(|holder| holder.tag != from.tag) {
            return;
        }
        self.holder = None;
        self.coming = self.in_force.and_then(|_| back());
    }

    fn is_going_back(&self) -> bool {
        let coming = self.coming.as_ref();
        coming.is_some_and(|change| change.trial.is_none())
    }

    /// Whether the values of another tuner are in force.
    fn is_of_another(&self, tag: u64) -> bool {
        self.in_force.is_some_and(|(whose, _)| whose != tag)
    }

    /// Sees to it that no values of another tuner's stay in force. Whether that takes a change which was
    /// not coming anyway.
    fn clear(&mut self, tag: u64, back: impl FnOnce() -> Option<Change>) -> bool {
        let is_to_go = self.is_of_another(tag) && !self.is_going_back();
        if is_to_go {
            self.coming = back();
        }
        is_to_go
    }

    fn knows(&self, trial: (u64, u64)) -> bool {
        let coming = self.coming.as_ref().and_then(|change| change.trial);
        let failed = self.failed.as_ref().map(|(tag, number, _)| (*tag, *number));
        [self.in_force, coming, failed].contains(&Some(trial))
    }

    /// How it stands for the tuner with this tag.
    fn state(&self, tag: u64, values: BTreeMap<String, String>) -> State {
        let own = |trial: Option<(u64, u64)>| {
            trial.and_then(|(whose, number)| (whose == tag).then_some(number))
        };
        let failed = self.failed.as_ref().filter(|(whose, ..)| *whose == tag);
        State {
            in_force: own(self.in_force),
            of_another: self.is_of_another(tag),
            coming: own(self.coming.as_ref().and_then(|change| change.trial)),
            failed: failed.map(|(_, number, why)| (*number, why.clone())),
            processors: processors(),
            values,
        }
    }
}

fn refused(reason: &str) -> Answer {
    Answer::Refused(reason.to_owned())
}

fn parse(values: &BTreeMap<String, String>) -> Result<Vec<(Name, Value)>, String> {
    if values.len() > MAX_NAMES {
        return Err(format!("more than {MAX_NAMES} values"));
    }
    values
        .iter()
        .map(|(name, value)| {
            let name = Name::parse(name)?;
            let value =
                Value::parse(name.knob().kind, value).map_err(|why| format!("{name}: {why}"))?;
            Ok((name, value))
        })
        .collect()
}

/// What the file says of these knobs; unknown ones are left out.
fn file_values(plan: &Plan, ask: &Ask) -> BTreeMap<String, String> {
    ask.names
        .iter()
        .take(MAX_NAMES)
        .filter_map(|name| {
            let value = Name::parse(name).ok()?.value_in(plan.cluster())?;
            Some((name.clone(), value.to_string()))
        })
        .collect()
}

/// The processors that this process may run on.
pub(crate) fn processors() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None);
    let has = |processor: &usize| set.as_ref().is_ok_and(|set| set.is_set(*processor));
    (0..MAX_PIN).filter(has).collect()
}
