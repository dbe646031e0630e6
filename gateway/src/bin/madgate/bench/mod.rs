//! `madgate bench`: measures the way to another node.
//!
//! - what is measured: [`latency`], [`stream`]; with whom: [`partner`]; what the gateways on the
//!   way do meanwhile: [`gateways`];
//! - what comes of it: [`finding`], as [`chart`], with its [`doubts`];
//! - [`figures`]: the papers' experiment, with processes of its own.

mod chart;
mod doubts;
mod figures;
mod finding;
mod gateways;
mod latency;
mod partner;
mod progress;
mod stream;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use madgate_vchannel::cluster::{format_size, parse_duration, parse_size};
use madgate_vchannel::{Channel, Cluster, NodeId, Session};
use serde::Serialize;

use crate::failure::{Context, Failure};
use crate::files::wire::count;
use crate::limits;
use crate::load::Watch;
use crate::node::{channel_to, find, join, leave, read_cluster};
use crate::output::{print, say};
use crate::service::order::MAX_MESSAGE_BYTES;
use chart::Chart;
use finding::{Figures, Finding};
use gateways::Gateways;
use latency::Load;
use partner::Partner;
use progress::Progress;

/// The longest measurement.
const MAX_TIME: Duration = Duration::from_secs(24 * 3600);
/// How long each size is measured, unless somebody says otherwise.
const TIME: Duration = Duration::from_secs(2);
/// How often the clock is read while small messages are streamed.
const CLOCK_EVERY_BYTES: usize = 64 << 10;
/// The most messages between two looks at the clock.
const CLOCK_EVERY_MESSAGES: usize = 256;
/// The most flows of `many`.
const MAX_FLOWS: usize = 256;

/// Measures the way to another node, which has to run `madgate serve` or `madgate gateway`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The cluster file.
    #[arg(required_unless_present = "figure6")]
    cluster: Option<PathBuf>,
    /// The node that this process is; with `many` all those that it is.
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        required_unless_present = "figure6"
    )]
    node: Vec<String>,
    /// The node at the other end; with `many` all of them.
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        required_unless_present = "figure6"
    )]
    to: Vec<String>,
    /// The channel; without it, the first that both nodes are in.
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// What is measured.
    #[arg(required_unless_present = "figure6")]
    kind: Option<Kind>,
    /// Sizes of messages; by default 8B for pingpong and loaded, 8B, 64B and 1KiB for flood, and
    /// 1MiB for the others.
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = message_size)]
    size: Vec<usize>,
    /// How long each size is measured, in each of these times; by default 2s.
    #[arg(long, value_name = "TIME,…", value_delimiter = ',', value_parser = time)]
    time: Vec<Duration>,
    /// What is measured before it counts; 0s: nothing.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = pause)]
    warm_up: Duration,
    /// Which way a stream goes.
    #[arg(long, value_enum, default_value = "there")]
    direction: Direction,
    /// With loaded: the load beside the messages, in percent of what it reaches alone.
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',', default_value = "0,50,100",
          value_parser = clap::value_parser!(u32).range(0..=100))]
    load: Vec<u32>,
    /// With loaded: the node that the load goes to, where that is another one.
    #[arg(long, value_name = "NAME")]
    load_to: Option<String>,
    /// With loaded: the channel that the load goes over; without it, another one than the
    /// messages, unless it goes to another node.
    #[arg(long, value_name = "NAME")]
    load_channel: Option<String>,
    /// With loaded: the size of its messages.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = message_size)]
    load_size: usize,
    /// Says so often what has gone through, while a stream runs.
    #[arg(long, value_name = "TIME", value_parser = time)]
    interval: Option<Duration>,
    /// One JSON object per result and line.
    #[arg(long)]
    json: bool,
    /// Draws bars of text at the end.
    #[arg(long)]
    plot: bool,
    /// Draws a picture into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Measures the papers' figures 6 and 7 instead, on this machine: bandwidth through a gateway
    /// between TCP and shared memory, for several packet sizes. Takes --size, --time, --packet,
    /// --json, --plot and --svg.
    #[arg(long, conflicts_with_all = ["cluster", "node", "to", "channel", "interval"])]
    figure6: bool,
    /// With --figure6: sizes of packets, by default 8KiB to 128KiB.
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = packet_size, requires = "figure6")]
    packet: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Half round trips: a message goes there and comes back.
    Pingpong,
    /// One message at a time, in one direction: what one takes, and the bandwidth of that.
    Ping,
    /// Bandwidth and messages per second: message after message, each unpacked and checked.
    Stream,
    /// The same with small messages.
    Flood,
    /// Half round trips beside a load, which is another flow over the same links.
    Loaded,
    /// A stream from each of many nodes to one of many others, all at once.
    Many,
}

/// Which way a stream goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Direction {
    /// From this node to the other.
    There,
    /// From the other node to this one.
    Back,
    /// Both at once.
    Both,
}

impl Direction {
    const fn arrow(self) -> &'static str {
        match self {
            Self::There => "->",
            Self::Back => "<-",
            Self::Both => "<->",
        }
    }
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Pingpong => "pingpong",
            Self::Ping => "ping",
            Self::Stream => "stream",
            Self::Flood => "flood",
            Self::Loaded => "loaded",
            Self::Many => "many",
        }
    }

    const fn usual_sizes(self) -> &'static [usize] {
        match self {
            Self::Pingpong | Self::Loaded => &[8],
            Self::Flood => &[8, 64, 1024],
            Self::Ping | Self::Stream | Self::Many => &[1 << 20],
        }
    }
}

/// How long something is measured.
#[derive(Debug, Clone, Copy)]
struct Plan {
    warm_up: Duration,
    time: Duration,
}

fn message_size(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text).ok_or("expected a size such as 8B, 64KiB or 1MiB")?;
    let limit = format_size(count(MAX_MESSAGE_BYTES));
    usize::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= MAX_MESSAGE_BYTES)
        .ok_or_else(|| format!("a message has at most {limit} here"))
}

fn packet_size(text: &str) -> Result<usize, String> {
    use madgate_vchannel::cluster::MTU_BOUNDS;
    let bytes = parse_size(text).ok_or("expected a size such as 8KiB")?;
    if !MTU_BOUNDS.contains(&bytes) {
        let [least, most] = [*MTU_BOUNDS.start(), *MTU_BOUNDS.end()].map(format_size);
        return Err(format!("expected {least} to {most}"));
    }
    usize::try_from(bytes).map_err(|error| error.to_string())
}

fn time(text: &str) -> Result<Duration, String> {
    let time = pause(text)?;
    if time.is_zero() {
        return Err("expected more than nothing".into());
    }
    Ok(time)
}

fn pause(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).ok_or("expected a time such as 500ms, 2s or 1min")?;
    if time > MAX_TIME {
        return Err("expected a day at most".into());
    }
    Ok(time)
}

/// Messages between two looks at the clock.
fn burst_of(message_bytes: usize) -> usize {
    (CLOCK_EVERY_BYTES / message_bytes.max(1)).clamp(1, CLOCK_EVERY_MESSAGES)
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (Some(path), Some(kind)) = (&arguments.cluster, arguments.kind) else {
        return figures::run(&figures::Order {
            packets: &arguments.packet,
            messages: &arguments.size,
            time: arguments.time.first().copied(),
            json: arguments.json,
            plot: arguments.plot,
            svg: arguments.svg.as_deref(),
        });
    };
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
            measure: measure_of(kind).to_owned(),
            ..Chart::default()
        },
    };
    match (kind, arguments.node.as_slice(), arguments.to.as_slice()) {
        (Kind::Many, nodes, to) => bench.many(path, nodes, to),
        (_, [node], [to]) => bench.alone(path, node, to),
        _ => Err(Failure::new(
            "only `many` is measured with several nodes; name one with --node and one with --to",
        )),
    }
}

const fn measure_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Pingpong | Kind::Loaded => "half round trip, us",
        Kind::Flood => "messages per second",
        Kind::Ping | Kind::Stream | Kind::Many => "MB/s",
    }
}

struct Bench<'a> {
    arguments: &'a Arguments,
    kind: Kind,
    charted: Chart,
}

impl Bench<'_> {
    /// What is measured between two nodes.
    fn alone(mut self, path: &Path, node: &str, to: &str) -> Result<ExitCode, Failure> {
        let (cluster, own) = read_cluster(path, node)?;
        let to = other_than(&cluster, own, to)?;
        let session = join(&cluster, node)?;
        let channel = channel_to(&session, to, self.arguments.channel.as_deref())?;
        let partner = Partner {
            channel: &channel,
            node: to,
        };
        let loader = if self.kind == Kind::Loaded {
            Some(self.load_place(&session, &channel, to)?)
        } else {
            None
        };
        let load = loader.as_ref().map(|(channel, node)| Load {
            partner: Partner {
                channel,
                node: *node,
            },
            message_bytes: self.arguments.load_size,
        });
        let mut gateways = Gateways::between(&channel, to)?;
        let nodes = gateways.nodes().chain([own, to]);
        let spinners = doubts::spinners(&cluster, nodes);
        partner.greet()?;
        for (size, plan) in self.points() {
            let watch = Watch::start();
            gateways.begin()?;
            let found = self.measure(partner, load, size, &plan)?;
            let seen = gateways.end()?;
            let doubts = doubts::doubts(spinners, watch.end());
            for figures in found {
                self.tell(
                    node.to_owned(),
                    partner.name().to_owned(),
                    figures,
                    &seen,
                    &doubts,
                )?;
            }
        }
        drop(loader);
        leave(session, channel);
        self.draw()
    }

    fn measure(
        &self,
        partner: Partner<'_>,
        load: Option<Load<'_>>,
        size: usize,
        plan: &Plan,
    ) -> Result<Vec<Figures>, Failure> {
        let arguments = self.arguments;
        if let Some(load) = load {
            let full = load.alone(plan)?;
            let loads = arguments.load.iter();
            return loads
                .map(|percent| load.beside(partner, size, (*percent, full), plan))
                .map(|found| found.map(Figures::Latency))
                .collect();
        }
        let found = match self.kind {
            Kind::Ping => Figures::OneWay(latency::one_way(partner, size, plan)?),
            Kind::Stream | Kind::Flood => {
                let progress = Progress::every(arguments.interval, arguments.json);
                let direction = arguments.direction;
                Figures::Throughput(stream::stream(partner, size, direction, plan, &progress)?)
            }
            Kind::Pingpong | Kind::Loaded | Kind::Many => {
                Figures::Latency(latency::pingpong(partner, size, plan)?)
            }
        };
        Ok(vec![found])
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
            return Err(Failure::new(format!(
                "at most {MAX_FLOWS} flows are measured"
            )));
        }
        let (cluster, _) = read_cluster(path, &nodes[0])?;
        let mut sessions: Vec<Session> = Vec::new();
        for node in nodes {
            find(&cluster, node)?;
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
            .map(|(channel, node)| Partner {
                channel,
                node: *node,
            })
            .collect();
        let mut gateways = Gateways::between(&ends[0].0, ends[0].1)?;
        let of_flows = partners.iter().map(|flow| flow.node);
        let senders = sessions.iter().map(Session::node);
        let all: Vec<NodeId> = gateways.nodes().chain(of_flows).chain(senders).collect();
        let spinners = doubts::spinners(&cluster, unique(all));
        for partner in &partners {
            partner.greet()?;
        }
        for (size, plan) in self.points() {
            let watch = Watch::start();
            gateways.begin()?;
            let found = stream::many(&partners, size, &plan)?;
            let seen = gateways.end()?;
            let doubts = doubts::doubts(spinners, watch.end());
            let figures = Figures::Many(found);
            self.tell(nodes.join(","), to.join(","), figures, &seen, &doubts)?;
        }
        drop(ends);
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
        from: String,
        to: String,
        figures: Figures,
        seen: &[crate::service::seen::Seen],
        doubts: &[String],
    ) -> Result<(), Failure> {
        figures.chart(self.kind == Kind::Flood, &mut self.charted);
        for doubt in doubts {
            say(&format!(
                "madgate: these figures are not to be trusted: {doubt}"
            ));
        }
        let finding = Finding {
            bench: self.kind.name(),
            from,
            to,
            figures,
            gateways: seen.to_vec(),
            doubts: doubts.to_vec(),
        };
        finding.print(self.arguments.json)
    }

    fn draw(self) -> Result<ExitCode, Failure> {
        if self.arguments.plot {
            print(&format!("\n{}", self.charted.text()))?;
        }
        if let Some(path) = &self.arguments.svg {
            write_svg(path, &[self.charted])?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn write_svg(path: &Path, charts: &[Chart]) -> Result<(), Failure> {
    let svg = chart::svg(charts)?;
    fs::write(path, svg).or_fail(|| format!("cannot write {}", path.display()))
}

/// A node that `own` can measure the way to.
fn other_than(cluster: &Arc<Cluster>, own: NodeId, name: &str) -> Result<NodeId, Failure> {
    let node = find(cluster, name)?;
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
