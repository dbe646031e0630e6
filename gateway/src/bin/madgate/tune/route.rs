//! The nodes of a route, as the tuner has them: what is in force there, and how to change it.
//!
//! A trial begins at the far end, so that orders still pass the gateways that have not changed
//! yet. Every node answers before it closes its session; then the tuner does the same with its
//! own, and asks everybody whether the values are in force.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{process, thread};

use bytes::Bytes;
use crossbeam_channel::{RecvTimeoutError, after, bounded, never, select};
use madgate_vchannel::cluster::format_duration;
use madgate_vchannel::topology::Routes;
use madgate_vchannel::{Channel, Cluster, NodeId, PackError, Session};

use crate::bench::{Partner, stillness_limit};
use crate::failure::{Context, Failure};
use crate::knobs::{Name, Plan, Value};
use crate::logging::{self, Held};
use crate::motion::{Beside, Motion};
use crate::node::{channel_to, join};
use crate::output::say;
use crate::service::envelope::Head;
use crate::service::talk::{self, Incoming};
use crate::signals::{Endings, exit_code};
use crate::tunable::wire::{Answer, Ask, Order, State, Try};

/// How long nodes keep a trial of a tuner that says nothing more, and how long they do at most, where
/// messages take long.
const LEASE: Duration = Duration::from_secs(15);
const LEASE_MOST: Duration = Duration::from_secs(300);
/// A lease is so many times what the longest message takes: it is renewed behind some of them.
const LEASE_MESSAGES: u32 = 8;
/// When it is renewed.
const RENEWAL: Duration = Duration::from_secs(4);
/// What that and its answer come to at most, with the headers of their frames.
const RENEWAL_BYTES: u64 = 16 << 10;
/// How long a node may take to answer, the restart of its session included.
const ANSWER_LIMIT: Duration = Duration::from_secs(12);
/// How much longer, where messages take long.
const ANSWER_MORE: Duration = Duration::from_secs(30);
/// How long somebody who wants no more waits for what is being measured.
const BREAK_OFF_WITHIN: Duration = Duration::from_secs(2);
/// How long the last order of all may take.
const END_LIMIT: Duration = Duration::from_secs(2);
/// How long a gateway has to answer which is asked whether it is why somebody else does not.
const LAST_QUESTION: Duration = Duration::from_secs(1);
/// How soon an order is repeated that is not answered.
const REPEAT_AFTER: Duration = Duration::from_millis(250);
/// How soon a node is asked again that has not changed yet.
const ASK_AGAIN: Duration = Duration::from_millis(5);
/// How long the last acknowledgements may take before the tuner's own session is closed.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// A route that is tuned.
#[derive(Debug)]
pub(crate) struct Route<'a> {
    plan: &'a Plan,
    node: &'a str,
    /// Where somebody says that they want no more.
    endings: &'a Endings,
    to: NodeId,
    channel_name: String,
    /// Every other node of the route, farthest first.
    peers: Vec<NodeId>,
    /// Those of them that have answered, and so are to be told when it is over.
    begun: Vec<NodeId>,
    networks: Vec<String>,
    tag: u64,
    number: u64,
    /// None only while it is opened again.
    joined: Option<(Session, Channel)>,
    /// What is in force everywhere; `None`: who knows.
    in_force: Option<Vec<(Name, Value)>>,
    lease: Duration,
    renewed: Instant,
    /// What is logged of sessions that are closed and opened again, from the first trial on.
    held: Option<Held>,
}

/// Why a search ends early.
#[derive(Debug)]
pub(crate) enum Stop {
    Failure(Failure),
    /// Somebody does not want to wait for the end.
    Signal(i32),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// What becomes of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tried {
    InForce,
    /// Who says no, and why.
    Refused(String),
}

impl<'a> Route<'a> {
    /// Joins the session as `node`.
    pub(crate) fn open(
        plan: &'a Plan,
        node: &'a str,
        to: NodeId,
        channel: Option<&str>,
        endings: &'a Endings,
    ) -> Result<Self, Failure> {
        let cluster = plan.cluster();
        let session = join(cluster, node)?;
        let channel = channel_to(&session, to, channel)?;
        let channel_name = channel.name().to_owned();
        let id = cluster
            .channel_named(&channel_name)
            .ok_or_else(|| Failure::new("the channel has gone"))?;
        let route = Routes::new(Arc::clone(cluster), id).route(session.node(), to)?;
        let mut peers: Vec<NodeId> = route.gateways().collect();
        peers.push(to);
        peers.reverse();
        let networks = route.hops.iter();
        let networks = networks.map(|hop| cluster.network(hop.network).name.clone());
        Ok(Self {
            plan,
            node,
            endings,
            to,
            channel_name,
            peers,
            begun: Vec::new(),
            networks: networks.collect(),
            tag: RandomState::new().build_hasher().finish(),
            number: 0,
            joined: Some((session, channel)),
            in_force: Some(Vec::new()),
            lease: LEASE,
            renewed: Instant::now(),
            held: None,
        })
    }

    /// The channel to measure over.
    pub(crate) fn channel(&self) -> Result<&Channel, Failure> {
        self.joined
            .as_ref()
            .map(|(_, channel)| channel)
            .ok_or_else(|| Failure::new("the session is closed"))
    }

    /// The networks that it crosses, in order.
    pub(crate) fn networks(&self) -> Vec<&str> {
        self.networks.iter().map(String::as_str).collect()
    }

    /// Its nodes other than this one.
    pub(crate) fn peers(&self) -> impl Iterator<Item = NodeId> {
        self.peers.iter().copied()
    }

    /// Whether it crosses gateways.
    pub(crate) fn has_gateways(&self) -> bool {
        self.peers.len() > 1
    }

    /// Its nodes in order, and the channel.
    pub(crate) fn describe(&self) -> String {
        let cluster = self.plan.cluster();
        let others = self.peers.iter().rev().map(|peer| cluster.node_name(*peer));
        let nodes: Vec<&str> = std::iter::once(self.node).chain(others).collect();
        format!("{} on channel {}", nodes.join(" -> "), self.channel_name)
    }

    /// Takes the turn to tune every node, and returns the processors that all gateways have.
    /// Warns where a node's file has other values.
    pub(crate) fn begin(&mut self, names: &[Name]) -> Result<Vec<usize>, Stop> {
        let mut processors: Option<Vec<usize>> = None;
        for (place, peer) in self.peers.clone().into_iter().enumerate() {
            // Whoever tuned it before has just told it to go back to its file: what is sent to it until it
            // has would be lost.
            let state = self.ask(peer, names, |state| !state.of_another)?;
            self.begun.push(peer);
            self.compare(peer, names, &state);
            // The first one is the destination.
            if place > 0 {
                let has = |processor: &usize| state.processors.contains(processor);
                let common = processors.unwrap_or_else(|| state.processors.clone());
                processors = Some(common.into_iter().filter(has).collect());
            }
        }
        self.renewed = Instant::now();
        // Links are lost from here on because nodes are restarted.
        self.held = logging::hold();
        Ok(processors.unwrap_or_default())
    }

    /// From now on leases last long enough for messages that take so long.
    pub(crate) fn suit(&mut self, longest: Duration) {
        self.lease = (longest * LEASE_MESSAGES).clamp(LEASE, LEASE_MOST);
    }

    /// Something has failed: what was logged last may tell why.
    pub(crate) fn tell_held(&mut self) {
        if let Some(held) = self.held.take() {
            held.tell();
        }
    }

    /// Sees to it that these values are in force on every node.
    pub(crate) fn switch(&mut self, values: &[(Name, Value)]) -> Result<Tried, Stop> {
        if self.in_force.as_deref() == Some(values) {
            return Ok(Tried::InForce);
        }
        let changed = match self
            .plan
            .with(values.iter().map(|(name, value)| (name, value)))
        {
            Ok(changed) => changed,
            Err(why) => return Ok(Tried::Refused(why)),
        };
        self.in_force = None;
        self.number += 1;
        let number = self.number;
        let texts = values
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()));
        let order = Order::Try(Try {
            lease_ms: millis(self.lease),
            values: texts.collect(),
        });
        for peer in self.peers.clone() {
            let knows = |state: &State| {
                let failed = state.failed.as_ref().map(|(number, _)| *number);
                [state.coming, state.in_force, failed].contains(&Some(number))
            };
            if let Answer::Refused(why) = self.request(peer, &order, self.answer_limit(), knows)? {
                return Ok(Tried::Refused(format!("{}: {why}", self.name(peer))));
            }
        }
        self.rejoin(&changed.cluster)?;
        // The nearest first: what is sent across a gateway that has not changed yet may have
        // fragments that it does not carry.
        for peer in self.peers.clone().into_iter().rev() {
            let is_settled = |state: &State| {
                let failed = state.failed.as_ref().map(|(number, _)| *number);
                [state.in_force, failed].contains(&Some(number))
            };
            let state = self.ask(peer, &[], is_settled)?;
            if let Some((_, why)) = state.failed.filter(|(failed, _)| *failed == number) {
                return Ok(Tried::Refused(format!("{}: {why}", self.name(peer))));
            }
        }
        self.renewed = Instant::now();
        self.in_force = Some(values.to_vec());
        Ok(Tried::InForce)
    }

    /// Renews the leases where it is time to.
    pub(crate) fn keep(&mut self) -> Result<(), Stop> {
        if self.renewed.elapsed() < RENEWAL {
            return Ok(());
        }
        for peer in self.peers.clone() {
            let number = self.number;
            let state = self.ask(peer, &[], |_| true)?;
            if number > 0 && self.in_force.is_some() && state.in_force != Some(number) {
                return Err(Failure::new(format!(
                    "{} has gone back to its own values; it was restarted, or its lease ended",
                    self.name(peer)
                ))
                .into());
            }
        }
        self.renewed = Instant::now();
        Ok(())
    }

    /// Does something with the far end that may take long, and renews the leases meanwhile. Somebody
    /// who wants no more does not wait for it for long; and where it has not ended `within` so long, or
    /// nothing moves any more, the process does: a message waits for a node that is stopped for as long
    /// as it takes.
    pub(crate) fn keeping<T>(
        &self,
        within: Option<Duration>,
        work: impl FnOnce(Partner<'_>) -> Result<T, Failure>,
    ) -> Result<T, Stop> {
        let channel = self.channel()?;
        let to = self.to;
        let renewals = Beside {
            bytes: RENEWAL_BYTES,
            every: RENEWAL,
        };
        let mut motion = Motion::among_others(channel.progress(to), renewals);
        let stillness_limit = stillness_limit(self.plan.cluster());
        let ask = self.encode(&self.ask_for(&[]))?;
        let (done, is_done) = bounded::<()>(0);
        let endings = self.endings;
        let too_late = within.map_or_else(never, after);
        let renew = move || {
            let mut moved = Instant::now();
            loop {
                select! {
                    recv(is_done) -> _ => return None,
                    recv(endings.signals()) -> signal => {
                        let signal = signal.ok()?;
                        if is_done.recv_timeout(BREAK_OFF_WITHIN) == Err(RecvTimeoutError::Timeout) {
                            self.leave(channel, "broken off; nothing was written");
                            process::exit(exit_code(signal));
                        }
                        return Some(signal);
                    }
                    recv(too_late) -> _ => {
                        self.leave(
                            channel,
                            "messages take longer over this way than half of the budget: nothing was \
                             tried; name smaller ones with --size, or a longer --budget",
                        );
                        process::exit(1);
                    }
                    default(RENEWAL) => {
                        if motion.has_moved(channel.progress(to)) {
                            moved = Instant::now();
                        } else if moved.elapsed() >= stillness_limit {
                            self.leave(
                                channel,
                                &format!(
                                    "nothing has moved to {} for {}: it or a gateway on the way is stopped, \
                                     or a network is cut; look at their logs; nothing was written",
                                    self.name(to),
                                    format_duration(stillness_limit),
                                ),
                            );
                            process::exit(1);
                        }
                        for peer in &self.peers {
                            // Without waiting, for whatever that would be. Who cannot be reached is
                            // noticed by what is measured.
                            talk::answer(channel, *peer, ask.clone()).or_drop();
                        }
                    }
                }
            }
        };
        thread::scope(|scope| {
            let renewing = thread::Builder::new()
                .name("madgate-lease".into())
                .spawn_scoped(scope, renew)
                .or_fail(|| "cannot start a thread".into())?;
            let result = work(Partner::among_others(channel, to, renewals));
            drop(done);
            match renewing.join() {
                Ok(Some(signal)) => Err(Stop::Signal(signal)),
                _ => Ok(result?),
            }
        })
    }

    /// Tells everybody, as far as that can be done at once, that it is over, in the middle of something
    /// that takes long.
    fn leave(&self, channel: &Channel, why: &str) {
        for peer in &self.begun {
            if let Ok(end) = self.encode(&Order::End) {
                talk::answer(channel, *peer, end).or_drop();
            }
        }
        say(&format!(
            "madgate: {why}; the nodes of the route go back to their own values within {} s",
            self.lease.as_secs()
        ));
    }

    /// Nothing could be measured with what is in force, if it is: leaves the session, with whatever is
    /// still under way, and joins it again.
    pub(crate) fn recover(&mut self) -> Result<(), Failure> {
        self.in_force = None;
        // As the nodes are, so that whatever they carry is carried.
        let cluster = Arc::clone(self.channel()?.session().cluster());
        self.rejoin(&cluster)
    }

    /// Sends everybody back to the values of their files, and leaves the session. Who does not
    /// hear it goes back when its lease ends.
    pub(crate) fn end(mut self) {
        for peer in std::mem::take(&mut self.begun) {
            let why = match self.request(peer, &Order::End, END_LIMIT, |_| true) {
                Ok(_) => continue,
                Err(Stop::Failure(failure)) => failure.to_string(),
                Err(Stop::Signal(_)) => "it was not waited for".to_owned(),
            };
            tracing::warn!(
                "{} goes back to its own values within {} s: {why}",
                self.name(peer),
                self.lease.as_secs()
            );
        }
        if let Some((session, channel)) = self.joined.take() {
            crate::node::leave(session, channel);
        }
    }

    /// Closes the session, and opens it again with another cluster.
    fn rejoin(&mut self, cluster: &Arc<Cluster>) -> Result<(), Failure> {
        if let Some((session, channel)) = self.joined.take() {
            drop(channel);
            if let Err(error) = session.close(CLOSE_LIMIT) {
                tracing::debug!(%error, "the session is left early");
            }
        }
        let session = join(cluster, self.node)?;
        let channel = session.channel(&self.channel_name)?;
        self.joined = Some((session, channel));
        Ok(())
    }

    /// Asks a node until it has answered so.
    fn ask(
        &mut self,
        peer: NodeId,
        names: &[Name],
        is_it: impl Fn(&State) -> bool,
    ) -> Result<State, Stop> {
        match self.request(peer, &self.ask_for(names), self.answer_limit(), is_it)? {
            Answer::State(state) => Ok(state),
            Answer::Refused(why) => {
                Err(Failure::new(format!("{} cannot be tuned: {why}", self.name(peer))).into())
            }
        }
    }

    /// Whether somebody wants no more.
    pub(crate) fn look_for_signal(&self) -> Result<(), Stop> {
        let signal = self.endings.signals().try_recv();
        signal.map_or(Ok(()), |signal| Err(Stop::Signal(signal)))
    }

    /// Gives an order again and again, until it is refused or has led to such a state, or somebody wants
    /// no more.
    fn request(
        &self,
        peer: NodeId,
        order: &Order,
        limit: Duration,
        is_it: impl Fn(&State) -> bool,
    ) -> Result<Answer, Stop> {
        let channel = self.channel()?;
        let message = self.encode(order)?;
        let deadline = Instant::now() + limit;
        let (mut met, mut answered) = (None, false);
        while Instant::now() < deadline {
            match talk::send(channel, peer, message.clone()) {
                Ok(()) => {}
                // What was on its way to a node before it changed is lost; the next is not.
                Err(error @ (PackError::Restarted { .. } | PackError::Disagreement { .. })) => {
                    met = Some(error);
                }
                Err(error) => return Err(Failure::from(error).into()),
            }
            self.look_for_signal()?;
            match self.answer(channel, peer, deadline.min(Instant::now() + REPEAT_AFTER))? {
                Some(Answer::State(state)) if !is_it(&state) => {
                    answered = true;
                    thread::sleep(ASK_AGAIN);
                }
                Some(answer) => return Ok(answer),
                None => {}
            }
        }
        if answered {
            return Err(Failure::new(format!(
                "{} does not do what it was told; it was restarted, or another one tunes it",
                self.name(peer)
            ))
            .into());
        }
        let peer_name = self.name(peer);
        let what = match self.silent_before(channel, peer) {
            Some(gateway) => format!(
                "{} does not answer, by which the way to {peer_name} goes; it has to run `madgate gateway` \
                 with --tunable",
                self.name(gateway)
            ),
            None => format!(
                "{peer_name} has not answered for {} s; it has to run `madgate gateway` or `madgate serve` \
                 with --tunable",
                limit.as_secs()
            ),
        };
        let failure = met.map_or_else(|| Failure::new(&what), |met| Failure::caused(&what, met));
        Err(failure.into())
    }

    /// The first gateway on the way to a node that says nothing, which may be why the node does not.
    fn silent_before(&self, channel: &Channel, peer: NodeId) -> Option<NodeId> {
        let ask = self.encode(&self.ask_for(&[])).ok()?;
        let mut nearer = self.peers.iter().rev().take_while(|node| **node != peer);
        let is_silent = |node: &&NodeId| {
            // Without waiting for who may have gone.
            talk::answer(channel, **node, ask.clone()).or_drop();
            let deadline = Instant::now() + LAST_QUESTION;
            !matches!(self.answer(channel, **node, deadline), Ok(Some(_)))
        };
        nearer.find(is_silent).copied()
    }

    /// The next answer of a node to the present order, if one comes in time.
    fn answer(
        &self,
        channel: &Channel,
        peer: NodeId,
        deadline: Instant,
    ) -> Result<Option<Answer>, Failure> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(mut unpacking) = channel.begin_unpacking_within(left)? else {
                return Ok(None);
            };
            if unpacking.source() != peer {
                continue;
            }
            // What broke off, as its sender was restarted, is no answer.
            let Ok(Incoming::Service(head)) = talk::read(&mut unpacking) else {
                continue;
            };
            if (head.tag, head.number) != (self.tag, self.number) {
                continue;
            }
            let Ok(body) = talk::body(unpacking, &head) else {
                continue;
            };
            if let Some(answer) = Answer::decode(&head, &body) {
                return Ok(Some(answer));
            }
        }
    }

    /// How it stands, and what a node's file says of these knobs.
    fn ask_for(&self, names: &[Name]) -> Order {
        Order::Ask(Ask {
            lease_ms: millis(self.lease),
            names: names.iter().map(Name::to_string).collect(),
        })
    }

    /// How long a node may take to answer, behind what is under way.
    fn answer_limit(&self) -> Duration {
        ANSWER_LIMIT + (self.lease - LEASE).min(ANSWER_MORE)
    }

    fn encode(&self, order: &Order) -> Result<(Head, Bytes), Failure> {
        let message = order.encode(self.tag, self.number);
        message.or_fail(|| "cannot write an order".into())
    }

    fn compare(&self, peer: NodeId, names: &[Name], state: &State) {
        for name in names {
            let own = name.value_in(self.plan.cluster());
            let (Some(own), Some(its)) = (own, state.values.get(&name.to_string())) else {
                continue;
            };
            if own.to_string() != *its {
                tracing::warn!(
                    "the file of {} has {name} = {its}, this one {own}: this one counts",
                    self.name(peer)
                );
            }
        }
    }

    fn name(&self, node: NodeId) -> &str {
        self.plan.cluster().node_name(node)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
