//! `madgate bench`: measures the way to another node.
//!
//! - what can be asked: [`arguments`];
//! - what is measured: [`latency`], [`stream`]; with whom: [`partner`]; what the gateways on the
//!   way do meanwhile: [`gateways`];
//! - what ends one in which nothing moves: [`watchdog`];
//! - what comes of it: [`finding`], as [`chart`], with its [`doubts`];
//! - [`figures`]: the papers' experiment, with processes of its own.

mod arguments;
mod chart;
pub(crate) mod doubts;
mod figures;
mod finding;
mod gateways;
mod latency;
mod partner;
mod progress;
mod stream;
mod watchdog;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use madgate_vchannel::cluster::format_duration;
use madgate_vchannel::{Channel, Cluster, NodeId, Session};

use crate::failure::Failure;
use crate::limits;
use crate::load::Watch;
use crate::node::{channel_to, join, leave, read_cluster};
use crate::output::{print, say};
use crate::save::{Target, inputs, keep_apart};
pub(crate) use arguments::{Arguments, message_size};
use arguments::{Direction, Kind, TIME};
use chart::Chart;
use finding::{Figures, Finding};
use gateways::Gateways;
use latency::Load;
pub(crate) use partner::{Partner, stillness_limit};
use progress::Progress;
use watchdog::Watchdog;

/// How often the clock is read while small messages are streamed.
const CLOCK_EVERY_BYTES: usize = 64 << 10;
/// The most messages between two looks at the clock.
const CLOCK_EVERY_MESSAGES: usize = 256;
/// The most flows of `many`.
const MAX_FLOWS: usize = 256;

/// Messages per second of one message after another, as `tune` measures them.
pub(crate) fn messages_per_s(
    partner: Partner<'_>,
    size: usize,
    [warm_up, time]: [Duration; 2],
) -> Result<f64, Failure> {
    let plan = Plan { warm_up, time };
    let progress = Progress::default();
    let found = stream::stream(partner, size, Direction::There, &plan, &progress)?;
    Ok(found.messages_per_s)
}

/// How long it takes until a message, or a burst of small ones, is there and checked.
pub(crate) fn time_of_one(partner: Partner<'_>, size: usize) -> Result<Duration, Failure> {
    let started = Instant::now();
    messages_per_s(partner, size, [Duration::ZERO; 2])?;
    Ok(started.elapsed())
}

/// The median half round trip of lone messages, in microseconds, as `tune` measures it.
pub(crate) fn half_round_trip_us(
    partner: Partner<'_>,
    size: usize,
    [warm_up, time]: [Duration; 2],
) -> Result<f64, Failure> {
    let plan = Plan { warm_up, time };
    let found = latency::pingpong(partner, size, &plan)?;
    Ok(found.times.p50_us)
}

/// The load beside messages, in percent, unless somebody says otherwise.
const LOADS: &[u32] = &[0, 50, 100];
/// The size of its messages.
const LOAD_BYTES: usize = 1 << 20;

/// A load that goes beside what is measured: the percentage of how many bytes per second.
type Beside<'l> = (Load<'l>, (u32, f64));

/// How long something is measured.
#[derive(Debug, Clone, Copy)]
struct Plan {
    warm_up: Duration,
    time: Duration,
}

impl Plan {
    /// What comes before anything counts, if anything does.
    fn before(self) -> Option<Self> {
        let before = Self {
            warm_up: Duration::ZERO,
            time: self.warm_up,
        };
        (!self.warm_up.is_zero()).then_some(before)
    }

    /// What counts.
    fn counted(self) -> Self {
        Self {
            warm_up: Duration::ZERO,
            ..self
        }
    }
}

/// Messages between two looks at the clock.
fn burst_of(message_bytes: usize) -> usize {
    (CLOCK_EVERY_BYTES / message_bytes.max(1)).clamp(1, CLOCK_EVERY_MESSAGES)
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (Some(path), Some(kind)) = (&arguments.cluster, arguments.kind) else {
        if arguments.time.len() > 1 {
            return Err(Failure::usage(
                "--figure6 measures each point for one --time, and there are several",
            ));
        }
        return figures::run(&figures::Order {
            packets: &arguments.packet,
            messages: &arguments.size,
            time: arguments.time.first().copied(),
            json: arguments.json,
            plot: arguments.plot,
            svg: arguments.svg.as_deref(),
        });
    };
    if let Some(what) = arguments.misplaced(kind) {
        return Err(Failure::usage(format!(
            "{} does nothing with {what}",
            kind.name()
        )));
    }
    limits::raise_descriptors();
    let bench = Bench {
        arguments,
        kind,
        charted: Chart {
            title: format!(
                "{} from {} to {}",
                kind.name(),
                arguments.node.join(","),
                arguments.to.join(",")
            ),
            measure: kind.measure().to_owned(),
            axis: kind.axis(),
            ..Chart::default()
        },
        picture: None,
    };
    match (kind, arguments.node.as_slice(), arguments.to.as_slice()) {
        (Kind::Many, nodes, to) => bench.many(path, nodes, to),
        (_, [node], [to]) => bench.alone(path, node, to),
        _ => Err(Failure::usage(
            "only `many` is measured with several nodes; name one with --node and one with --to",
        )),
    }
}

struct Bench<'a> {
    arguments: &'a Arguments,
    kind: Kind,
    charted: Chart,
    /// Where the picture goes.
    picture: Option<Target>,
}

impl Bench<'_> {
    /// What is measured between two nodes.
    fn alone(mut self, path: &Path, node: &str, to: &str) -> Result<ExitCode, Failure> {
        let (cluster, own) = read_cluster(path, node)?;
        let to = other_than(&cluster, own, to)?;
        self.prepare_picture(path, &cluster)?;
        let session = join(&cluster, node)?;
        let channel = channel_to(&session, to, self.arguments.channel.as_deref())?;
        let partner = Partner::new(&channel, to);
        let loader = if self.kind == Kind::Loaded {
            Some(self.load_place(&session, &channel, to)?)
        } else {
            None
        };
        let load = loader.as_ref().map(|(channel, node)| Load {
            partner: Partner::new(channel, *node),
            message_bytes: self.arguments.load_size.unwrap_or(LOAD_BYTES),
        });
        let mut gateways = Gateways::between(&channel, to)?;
        let nodes = gateways.nodes().chain([own, to]);
        let spinners = doubts::spinners(&cluster, own, nodes);
        partner.greet()?;
        let watchdog = watch_over(std::slice::from_ref(&session))?;
        for (size, plan) in self.points() {
            for beside in self.loads(load, &plan)? {
                // Gateways count what is measured, and nothing before it.
                if let Some(before) = plan.before() {
                    self.measure(partner, beside, size, &before, (None, None))?;
                }
                let answer = match self.kind {
                    Kind::Ping => Some(latency::answer(partner, &plan.counted())?),
                    _ => None,
                };
                let watch = Watch::start();
                gateways.begin()?;
                let interval = self.arguments.interval;
                let with = (answer, interval);
                let figures = self.measure(partner, beside, size, &plan.counted(), with)?;
                let (seen, gone) = gateways.end()?;
                let mut doubts = doubts::doubts(spinners, watch.end());
                doubts.extend(gone);
                doubts.extend(figures.doubt());
                doubts.extend(doubts::of_trials(&seen));
                let partner = partner.name().to_owned();
                let ends = [node.to_owned(), partner];
                self.tell(ends, plan.time, figures, &seen, &doubts)?;
            }
        }
        drop((loader, watchdog));
        leave(session, channel);
        self.draw()
    }

    /// The loads beside which something is measured, one after the other, each with what it is a
    /// part of; or none at all.
    fn loads<'l>(
        &self,
        load: Option<Load<'l>>,
        plan: &Plan,
    ) -> Result<Vec<Option<Beside<'l>>>, Failure> {
        let Some(load) = load else {
            return Ok(vec![None]);
        };
        let full = load.alone(plan)?;
        let loads = match self.arguments.load.as_slice() {
            [] => LOADS,
            loads => loads,
        };
        let beside = loads.iter().map(|percent| Some((load, (*percent, full))));
        Ok(beside.collect())
    }

    fn measure(
        &self,
        partner: Partner<'_>,
        beside: Option<Beside<'_>>,
        size: usize,
        plan: &Plan,
        (answer, interval): (Option<Duration>, Option<Duration>),
    ) -> Result<Figures, Failure> {
        let arguments = self.arguments;
        if let Some((load, part)) = beside {
            return Ok(Figures::Latency(load.beside(partner, size, part, plan)?));
        }
        let found = match self.kind {
            Kind::Ping => {
                let answer = answer.unwrap_or_default();
                Figures::OneWay(latency::one_way(partner, size, answer, plan)?)
            }
            Kind::Stream | Kind::Flood => {
                let direction = arguments.direction;
                let progress = Progress::every(interval, arguments.json, size, direction)?;
                Figures::Throughput(stream::stream(partner, size, direction, plan, &progress)?)
            }
            Kind::Pingpong | Kind::Loaded | Kind::Many => {
                Figures::Latency(latency::pingpong(partner, size, plan)?)
            }
        };
        Ok(found)
    }

    /// The channel and the node that the load goes to: another flow than that of the messages.
    fn load_place(
        &self,
        session: &Session,
        channel: &Channel,
        to: NodeId,
    ) -> Result<(Channel, NodeId), Failure> {
        let cluster = session.cluster();
        let node = match &self.arguments.load_to {
            Some(name) => other_than(cluster, session.node(), name)?,
            None => to,
        };
        if let Some(name) = &self.arguments.load_channel {
            if name == channel.name() && node == to {
                return Err(same_flow());
            }
            return Ok((channel_to(session, node, Some(name))?, node));
        }
        if node != to {
            return Ok((channel_to(session, node, Some(channel.name()))?, node));
        }
        let mut shared = cluster.channel_ids().filter(|id| {
            let is_in = |node| cluster.is_in_channel(node, *id);
            cluster.channel(*id).name != channel.name() && is_in(session.node()) && is_in(node)
        });
        let id = shared.next().ok_or_else(same_flow)?;
        Ok((
            channel_to(session, node, Some(&cluster.channel(id).name))?,
            node,
        ))
    }

    /// Many nodes of this process send to many others.
    fn many(mut self, path: &Path, nodes: &[String], to: &[String]) -> Result<ExitCode, Failure> {
        let flows = nodes.len().max(to.len());
        if flows > MAX_FLOWS {
            return Err(Failure::usage(format!(
                "at most {MAX_FLOWS} flows are measured"
            )));
        }
        for (at, node) in nodes.iter().enumerate() {
            if nodes[..at].contains(node) {
                return Err(Failure::usage(format!("--node names {node} twice")));
            }
            if to.contains(node) {
                return Err(Failure::usage(format!(
                    "{node} is both in --node and in --to: it is this process, which answers nobody"
                )));
            }
        }
        let ends_of = |flow: usize| (&nodes[flow % nodes.len()], &to[flow % to.len()]);
        for flow in 0..flows {
            let (from, to) = ends_of(flow);
            if (0..flow).any(|other| ends_of(other) == (from, to)) {
                return Err(Failure::usage(format!(
                    "there would be two flows from {from} to {to}: name each node once, or as many \
                     others with --node"
                )));
            }
        }
        let (cluster, _) = read_cluster(path, &nodes[0])?;
        self.prepare_picture(path, &cluster)?;
        let mut sessions: Vec<Session> = Vec::new();
        for node in nodes {
            cluster.find_node(node)?;
            sessions.push(join(&cluster, node)?);
        }
        let mut ends = Vec::new();
        for flow in 0..flows {
            let session = &sessions[flow % sessions.len()];
            let to = other_than(&cluster, session.node(), &to[flow % to.len()])?;
            ends.push((
                channel_to(session, to, self.arguments.channel.as_deref())?,
                to,
            ));
        }
        let partners: Vec<Partner<'_>> = ends
            .iter()
            .map(|(channel, node)| Partner::new(channel, *node))
            .collect();
        let mut gateways = Gateways::between(&ends[0].0, ends[0].1)?;
        let of_flows = partners.iter().map(|flow| flow.node);
        let senders = sessions.iter().map(Session::node);
        let all: Vec<NodeId> = gateways.nodes().chain(of_flows).chain(senders).collect();
        let spinners = doubts::spinners(&cluster, sessions[0].node(), unique(all));
        for partner in &partners {
            partner.greet()?;
        }
        let watchdog = watch_over(&sessions)?;
        for (size, plan) in self.points() {
            if let Some(before) = plan.before() {
                stream::many(&partners, size, before.time)?;
            }
            let watch = Watch::start();
            gateways.begin()?;
            let found = stream::many(&partners, size, plan.time)?;
            let (seen, gone) = gateways.end()?;
            let mut doubts = doubts::doubts(spinners, watch.end());
            doubts.extend(gone);
            doubts.extend(doubts::of_trials(&seen));
            let figures = Figures::Many(found);
            let ends = [nodes.join(","), to.join(",")];
            self.tell(ends, plan.time, figures, &seen, &doubts)?;
        }
        drop((ends, watchdog));
        for session in sessions {
            crate::node::close(session);
        }
        self.draw()
    }

    /// Every size in every time.
    fn points(&self) -> Vec<(usize, Plan)> {
        let Arguments { size, time, .. } = self.arguments;
        let sizes = match size.as_slice() {
            [] => self.kind.usual_sizes(),
            sizes => sizes,
        };
        let times = match time.as_slice() {
            [] => &[TIME],
            times => times,
        };
        let warm_up = self.arguments.warm_up;
        let plans = |size| {
            times.iter().map(move |time| {
                (
                    size,
                    Plan {
                        warm_up,
                        time: *time,
                    },
                )
            })
        };
        sizes.iter().copied().flat_map(plans).collect()
    }

    fn tell(
        &mut self,
        [from, to]: [String; 2],
        time: Duration,
        figures: Figures,
        seen: &[crate::service::seen::Seen],
        doubts: &[String],
    ) -> Result<(), Failure> {
        // Where there is one time for all, everybody knows it.
        let says_time = self.arguments.time.len() > 1;
        let beside = if says_time {
            format!(", {}", format_duration(time))
        } else {
            String::new()
        };
        figures.chart(self.kind == Kind::Flood, &beside, &mut self.charted);
        for doubt in doubts {
            say(&format!(
                "madgate: these figures are not to be trusted: {doubt}"
            ));
        }
        let finding = Finding {
            bench: self.kind.name(),
            from,
            to,
            time_s: time.as_secs_f64(),
            says_time,
            figures,
            gateways: seen.to_vec(),
            doubts: doubts.to_vec(),
        };
        finding.print(self.arguments.json)
    }

    /// Where a picture cannot be written, that is said before anything is measured.
    fn prepare_picture(&mut self, path: &Path, cluster: &Cluster) -> Result<(), Failure> {
        if let Some(picture) = &self.arguments.svg {
            keep_apart(("--svg", picture), &inputs(path, cluster))?;
            self.picture = Some(Target::prepare(picture, None)?);
        }
        Ok(())
    }

    fn draw(self) -> Result<ExitCode, Failure> {
        if self.arguments.plot {
            print(&format!("\n{}", self.charted.text()))?;
        }
        if let Some(picture) = self.picture {
            picture.write(&chart::svg(&[self.charted])?)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Ends this process when nothing moves in any of these sessions, which are of one cluster.
fn watch_over(sessions: &[Session]) -> Result<Watchdog, Failure> {
    let limit = stillness_limit(sessions[0].cluster());
    Watchdog::start(sessions.to_vec(), limit)
}

/// A node that `own` can measure the way to.
fn other_than(cluster: &Arc<Cluster>, own: NodeId, name: &str) -> Result<NodeId, Failure> {
    let node = cluster.find_node(name)?;
    if node == own {
        return Err(Failure::new(format!("{name} is this node itself")));
    }
    Ok(node)
}

fn unique(mut nodes: Vec<NodeId>) -> impl Iterator<Item = NodeId> {
    nodes.sort_unstable_by_key(|node| node.rank());
    nodes.dedup();
    nodes.into_iter()
}

fn same_flow() -> Failure {
    Failure::new(
        "the load would be the same flow as the messages, which stand in order: name another \
         node that answers with --load-to, or a second channel of both nodes with --load-channel",
    )
}
