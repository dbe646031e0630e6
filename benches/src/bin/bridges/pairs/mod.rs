//! Two unlike networks with a gateway between, beside each of the two alone.
//!
//! What crosses both must at least cost what crossing each of them costs, and take as long. How much more
//! it is is what the gateway adds.

mod throughput;
mod trips;

use std::io;

use clap::{Args, ValueEnum};
use madgate_benches::cluster::Setting;
use madgate_benches::contestant::Alone;
use madgate_benches::measured::AtDistance;
use madgate_benches::paths::{Forwarded, Regular};
use madgate_benches::rounds::{AtPoint, Results};
use madgate_benches::samples::Samples;
use madgate_benches::{Contestant, Figures, Point, Stage, Timing};
use serde::Serialize;

use crate::{Common, rounds};

/// Each network alone.
const DIRECT: [&str; 3] = ["tcp", "shm", "hsl"];

/// What crosses two networks.
#[derive(Debug, Clone, Copy)]
struct Pair {
    /// What it is called on the command line.
    key: &'static str,
    protocols: [&'static str; 2],
    /// Its name.
    default: &'static str,
    /// Where checksums cover what they cover of a network alone: the header.
    header: &'static str,
    /// With what `--set` says.
    set: &'static str,
}

macro_rules! pair {
    ($left:literal, $right:literal) => {
        Pair {
            key: concat!($left, "-", $right),
            protocols: [$left, $right],
            default: concat!($left, "->", $right),
            header: concat!($left, "->", $right, ", header"),
            set: concat!($left, "->", $right, ", set"),
        }
    };
}

const PAIRS: [Pair; 4] = [
    pair!("tcp", "shm"),
    pair!("shm", "tcp"),
    pair!("hsl", "tcp"),
    pair!("tcp", "hsl"),
];

/// What makes checksums cover headers alone.
const HEADER_ONLY: &str = "channel.checksum=header";

/// Where processes run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Place {
    /// Where the system puts them.
    Anywhere,
    /// The process from which TCP leaves has a processor for itself, and the two others share one.
    /// Over one network, each end has one.
    Chosen,
}

/// A contestant whose processes are kept where they are best.
struct Placed {
    contestant: Box<dyn Contestant>,
    /// Who is alone; if nobody, both ends are apart.
    alone: Option<Alone>,
}

impl Contestant for Placed {
    fn name(&self) -> &'static str {
        self.contestant.name()
    }

    fn stage(&self, point: Point, timing: Timing) -> io::Result<Stage> {
        let stage = self.contestant.stage(point, timing)?;
        match self.alone {
            Some(alone) => stage.keep_alone(alone)?,
            None => stage.keep_apart()?,
        }
        Ok(stage)
    }
}

impl Place {
    fn put(self, contestant: Box<dyn Contestant>, alone: Option<Alone>) -> Box<dyn Contestant> {
        match self {
            Self::Anywhere => contestant,
            Self::Chosen => Box::new(Placed { contestant, alone }),
        }
    }
}

impl Pair {
    /// The process from which TCP leaves.
    fn sender_over_tcp(&self) -> Alone {
        match self.protocols {
            ["tcp", _] => Alone::Source,
            _ => Alone::Relay,
        }
    }
}

/// A pair on the command line.
fn pair(text: &str) -> Result<Pair, String> {
    let named = PAIRS.into_iter().find(|pair| pair.key == text);
    named.ok_or_else(|| {
        let keys = PAIRS.map(|pair| pair.key).join(", ");
        format!("the pairs are {keys}")
    })
}

/// Those of the pairs that are asked for, each once; all, if none is.
fn chosen(asked: &[Pair]) -> Vec<Pair> {
    let is_asked = |pair: &Pair| asked.iter().any(|one| one.key == pair.key);
    let of_all = PAIRS.into_iter();
    of_all
        .filter(|pair| asked.is_empty() || is_asked(pair))
        .collect()
}

#[derive(Debug, Args)]
pub(crate) struct PairsArguments {
    #[command(flatten)]
    pub(super) common: Common,
    /// Only these pairs, and the networks that they are of: tcp-shm, shm-tcp, hsl-tcp, tcp-hsl.
    #[arg(long, value_delimiter = ',', num_args = 1.., value_parser = pair)]
    pairs: Vec<Pair>,
    /// Where processes run.
    #[arg(long, value_enum, default_value = "anywhere")]
    place: Place,
    /// Sinks look at the numbers of messages only, and not at each byte: what checking costs is
    /// then in neither figure.
    #[arg(long)]
    unread: bool,
    /// Measure half round trips, of messages of 8 bytes where no size is asked for, instead of throughput.
    #[arg(long, conflicts_with = "unread")]
    trips: bool,
    /// Measure the pairs that it concerns once more with this in their cluster file: SECTION is network, tcp, shm,
    /// hsl, channel, endpoint or gateway. May be given several times.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    settings: Vec<Setting>,
}

/// Which way figures are of, and where they are from.
#[derive(Debug, Serialize)]
struct Measured {
    path: &'static str,
    message_bytes: usize,
    /// At which distance, see [`AtDistance::line_ns_range`]; null of all rounds.
    line_ns_range: Option<[f64; 2]>,
    /// How often it was measured there; null of all rounds.
    measurements: Option<usize>,
}

/// All figures of one point, or those of them at one distance.
#[derive(Clone, Copy)]
struct Part<'r> {
    results: &'r Results,
    point: Point,
    distance: Option<&'r AtDistance<AtPoint, Figures>>,
}

impl<'r> Part<'r> {
    /// The ways that were measured: each network alone, and the pairs with the two that they cross.
    fn ways(self) -> impl Iterator<Item = (Measured, Option<[&'static str; 2]>)> + 'r {
        let direct = DIRECT.into_iter().map(|name| (name, None));
        let named = |name: fn(&Pair) -> &'static str| {
            let pairs = PAIRS.iter();
            pairs.map(move |pair| (name(pair), Some(pair.protocols)))
        };
        let default = named(|pair| pair.default);
        let header = named(|pair| pair.header);
        let set = named(|pair| pair.set);
        let all = direct.chain(default).chain(header).chain(set);
        let here = all.filter(move |(name, _)| self.results.contains_key(&(*name, self.point)));
        here.map(move |(path, protocols)| (self.measured(path), protocols))
    }

    /// A figure of one way.
    fn samples(self, path: &'static str, figure: fn(&Figures) -> &Samples) -> Option<&'r Samples> {
        self.results.get(&(path, self.point)).map(figure)
    }

    /// The sum of that figure of both networks alone.
    fn sum(
        self,
        protocols: Option<[&'static str; 2]>,
        figure: fn(&Figures) -> &Samples,
    ) -> Option<Samples> {
        let [left, right] = protocols?.map(|alone| self.samples(alone, figure));
        Some(left?.with(right?, |left, right| left + right))
    }

    fn measured(self, path: &'static str) -> Measured {
        let times = |at: &AtDistance<AtPoint, Figures>| at.times.get(&(path, self.point)).copied();
        Measured {
            path,
            message_bytes: self.point.message_bytes,
            line_ns_range: self.distance.map(|at| at.line_ns_range),
            measurements: self.distance.and_then(times),
        }
    }

    /// What its table is headed by; nothing where there is none.
    fn heading(self) -> Option<String> {
        let bytes = self.point.message_bytes;
        match self.distance {
            None => Some(format!("{bytes} bytes")),
            Some(at) => Some(format!("{bytes} bytes, {}", at.heading(&[self.point])?)),
        }
    }
}

pub(crate) fn bench(arguments: &PairsArguments) -> io::Result<()> {
    let wait = arguments.common.wait;
    let chosen = chosen(&arguments.pairs);
    let idle = |setting: &&Setting| !chosen.iter().any(|pair| setting.concerns(&pair.protocols));
    if let Some(setting) = arguments.settings.iter().find(idle) {
        let why = format!("{} concerns none of the chosen pairs", setting.name());
        return Err(io::Error::other(why));
    }
    let is_needed = |protocol: &&str| chosen.iter().any(|pair| pair.protocols.contains(protocol));
    let direct = DIRECT.into_iter().filter(is_needed);
    let mut contestants: Vec<Box<dyn Contestant>> = direct
        .map(|protocol| {
            let network = Box::new(Regular::new(protocol, protocol, wait));
            arguments.place.put(network, None)
        })
        .collect();
    let mut add = |pair: &Pair, name, settings| -> io::Result<()> {
        let forwarded = Forwarded {
            settings,
            ..Forwarded::new(name, pair.protocols, wait)
        };
        forwarded.check()?;
        let alone = Some(pair.sender_over_tcp());
        contestants.push(arguments.place.put(Box::new(forwarded), alone));
        Ok(())
    };
    for pair in &chosen {
        add(pair, pair.default, Vec::new())?;
    }
    for pair in &chosen {
        add(pair, pair.header, Setting::read_all(&[HEADER_ONLY])?)?;
    }
    for pair in &chosen {
        let concerns = |setting: &&Setting| setting.concerns(&pair.protocols);
        let settings = arguments.settings.iter().filter(concerns).cloned();
        let settings: Vec<_> = settings.collect();
        if !settings.is_empty() {
            add(pair, pair.set, settings)?;
        }
    }
    let round_arguments = &arguments.common.rounds;
    let (points, print): (_, fn(Part<'_>, bool) -> io::Result<()>) = if arguments.trips {
        (trips::points(round_arguments), trips::print)
    } else {
        (
            throughput::points(round_arguments, arguments.unread),
            throughput::print,
        )
    };
    let rounds = rounds::run(&contestants, &points, round_arguments)?;
    let (all, distances) = (rounds.all(), rounds.by_distance());
    for point in points {
        let of_all = Part {
            results: &all,
            point,
            distance: None,
        };
        print(of_all, arguments.common.json)?;
        for at in &distances {
            let there = Part {
                results: &at.results,
                distance: Some(at),
                ..of_all
            };
            print(there, arguments.common.json)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_chosen_by_their_names() {
        for known in PAIRS {
            assert_eq!(pair(known.key).unwrap().default, known.default);
        }
        assert!(pair("tcp->shm").unwrap_err().contains("tcp-shm"));
        let keys = |asked: &[Pair]| {
            chosen(asked)
                .iter()
                .map(|pair| pair.key)
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(&[]).len(), PAIRS.len());
        // Twice is once: the rounds of one name are compared one by one.
        assert_eq!(
            keys(&[PAIRS[2], PAIRS[0], PAIRS[2]]),
            ["tcp-shm", "hsl-tcp"]
        );
    }

    #[test]
    fn who_sends_over_tcp_is_alone() {
        for (key, sender) in [
            ("tcp-shm", Alone::Source),
            ("shm-tcp", Alone::Relay),
            ("hsl-tcp", Alone::Relay),
            ("tcp-hsl", Alone::Source),
        ] {
            assert_eq!(pair(key).unwrap().sender_over_tcp(), sender, "{key}");
        }
    }
}
