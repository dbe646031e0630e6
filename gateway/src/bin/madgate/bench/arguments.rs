//! What can be asked of `madgate bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use madgate_vchannel::cluster::{MTU_BOUNDS, format_size, parse_duration, parse_size};
use serde::Serialize;

use super::chart::Axis;
use crate::files::wire::count;
use crate::service::order::MAX_MESSAGE_BYTES;

/// The longest measurement.
const MAX_TIME: Duration = Duration::from_secs(24 * 3600);
/// Both ways to call it, which the help cannot find out by itself.
const USAGE: &str = "madgate bench [OPTIONS] --node <NAME,…> --to <NAME,…> <CLUSTER> <KIND>
       madgate bench [OPTIONS] --figure6";
/// How long each size is measured, unless somebody says otherwise.
pub(super) const TIME: Duration = Duration::from_secs(2);

/// Measures the way to another node, which has to run `madgate serve` or `madgate gateway`.
#[derive(Debug, Args)]
#[command(override_usage = USAGE)]
pub(crate) struct Arguments {
    /// The cluster file.
    #[arg(required_unless_present = "figure6")]
    pub(super) cluster: Option<PathBuf>,
    /// The node that this process is; with `many`, all the nodes that it is.
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        required_unless_present = "figure6"
    )]
    pub(super) node: Vec<String>,
    /// The node at the other end; with `many` all of them.
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        required_unless_present = "figure6"
    )]
    pub(super) to: Vec<String>,
    /// The channel; without it, the first that both nodes are in.
    #[arg(long, value_name = "NAME")]
    pub(super) channel: Option<String>,
    /// What is measured.
    #[arg(required_unless_present = "figure6")]
    pub(super) kind: Option<Kind>,
    /// Sizes of messages; by default 8B for pingpong and loaded, 8B, 64B and 1KiB for flood, seven
    /// from 4KiB to 16MiB with --figure6, and 1MiB for the others.
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = message_size)]
    pub(super) size: Vec<usize>,
    /// How long each size is measured, in each of these times; by default 2s, with --figure6
    /// 200ms.
    #[arg(long, value_name = "TIME,…", value_delimiter = ',', value_parser = time)]
    pub(super) time: Vec<Duration>,
    /// What is measured before it counts; 0s: nothing.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = pause)]
    pub(super) warm_up: Duration,
    /// Which way a stream goes.
    #[arg(long, value_enum, default_value = "there")]
    pub(super) direction: Direction,
    /// With loaded: the load beside the messages, in percent of what it reaches alone; by default
    /// 0, 50 and 100.
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(super) load: Vec<u32>,
    /// With loaded: the node that the load goes to, where that is another one.
    #[arg(long, value_name = "NAME")]
    pub(super) load_to: Option<String>,
    /// With loaded: the channel that the load goes over; without it, another one than the
    /// messages, unless it goes to another node.
    #[arg(long, value_name = "NAME")]
    pub(super) load_channel: Option<String>,
    /// With loaded: the size of its messages, by default 1MiB.
    #[arg(long, value_name = "SIZE", value_parser = load_size)]
    pub(super) load_size: Option<usize>,
    /// Says so often what has gone through, while a stream runs.
    #[arg(long, value_name = "TIME", value_parser = crate::units::interval)]
    pub(super) interval: Option<Duration>,
    /// One JSON object per result and line.
    #[arg(long)]
    pub(super) json: bool,
    /// Draws bars of text at the end.
    #[arg(long, conflicts_with = "json")]
    pub(super) plot: bool,
    /// Draws a picture into this file.
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
    /// Measures the papers' figures 6 and 7 instead, on this machine: bandwidth through a gateway
    /// between TCP and shared memory, for several packet sizes. Takes --size, --time, --packet,
    /// --json, --plot and --svg.
    #[arg(long, conflicts_with_all = ["cluster", "node", "to", "channel", "interval", "kind",
          "warm_up", "direction", "load", "load_to", "load_channel", "load_size"])]
    pub(super) figure6: bool,
    /// With --figure6: sizes of packets, by default 8KiB to 128KiB.
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = packet_size)]
    pub(super) packet: Vec<usize>,
}

impl Arguments {
    /// An option that says nothing about what is measured.
    pub(super) fn misplaced(&self, kind: Kind) -> Option<&'static str> {
        let is_loaded = kind == Kind::Loaded;
        let is_stream = matches!(kind, Kind::Stream | Kind::Flood);
        let said = [
            (
                !self.packet.is_empty(),
                "--packet, which is for --figure6; sizes of messages are --size",
            ),
            (
                !is_loaded && !self.load.is_empty(),
                "--load, which is for `loaded`",
            ),
            (
                !is_loaded && self.load_to.is_some(),
                "--load-to, which is for `loaded`",
            ),
            (
                !is_loaded && self.load_channel.is_some(),
                "--load-channel, which is for `loaded`",
            ),
            (
                !is_loaded && self.load_size.is_some(),
                "--load-size, which is for `loaded`",
            ),
            (
                !is_stream && self.interval.is_some(),
                "--interval, which is for `stream` and `flood`",
            ),
            (
                !is_stream && self.direction != Direction::There,
                "--direction, which is for `stream` and `flood`",
            ),
        ];
        said.into_iter()
            .find_map(|(is_said, what)| is_said.then_some(what))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
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
pub(super) enum Direction {
    /// From this node to the other.
    There,
    /// From the other node to this one.
    Back,
    /// Both at once.
    Both,
}

impl Direction {
    pub(super) const fn arrow(self) -> &'static str {
        match self {
            Self::There => "->",
            Self::Back => "<-",
            Self::Both => "<->",
        }
    }
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Pingpong => "pingpong",
            Self::Ping => "ping",
            Self::Stream => "stream",
            Self::Flood => "flood",
            Self::Loaded => "loaded",
            Self::Many => "many",
        }
    }

    pub(super) const fn usual_sizes(self) -> &'static [usize] {
        match self {
            Self::Pingpong | Self::Loaded => &[8],
            Self::Flood => &[8, 64, 1024],
            Self::Ping | Self::Stream | Self::Many => &[1 << 20],
        }
    }

    /// What is measured, with its unit.
    pub(super) const fn measure(self) -> &'static str {
        match self {
            Self::Pingpong | Self::Loaded => "half round trip, us",
            Self::Flood => "messages per second",
            Self::Ping | Self::Stream | Self::Many => "MB/s",
        }
    }

    /// What that is drawn over.
    pub(super) const fn axis(self) -> Axis {
        match self {
            Self::Loaded => Axis::Loads,
            _ => Axis::Sizes,
        }
    }
}

pub(crate) fn message_size(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text).ok_or("expected a size such as 8B, 64KiB or 1MiB")?;
    let limit = format_size(count(MAX_MESSAGE_BYTES));
    usize::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= MAX_MESSAGE_BYTES)
        .ok_or_else(|| format!("a message has at most {limit} here"))
}

fn load_size(text: &str) -> Result<usize, String> {
    match message_size(text)? {
        0 => Err("messages without bytes are no load".into()),
        size => Ok(size),
    }
}

fn packet_size(text: &str) -> Result<usize, String> {
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
