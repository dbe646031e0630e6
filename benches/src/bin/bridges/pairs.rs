//! Two unlike networks with a gateway between, beside each of the two alone.
//!
//! What crosses both must at least cost what crossing each of them costs. How much more it costs
//! is what the gateway adds; how fast it is, next to what two processors have time for, is what
//! waiting for each other loses.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use madgate_benches::cluster::Setting;
use madgate_benches::contestant::{Alone, Measure};
use madgate_benches::json;
use madgate_benches::paths::{Forwarded, Regular};
use madgate_benches::rounds::{BYTES_PER_GB, BYTES_PER_GIB, Results};
use madgate_benches::samples::Samples;
use madgate_benches::table::Table;
use madgate_benches::{Contestant, Figures, Point, Stage, Timing};
use serde::Serialize;

use crate::{Common, cell, rounds};

/// Bytes of the messages.
const MESSAGE_BYTES: [usize; 2] = [64 << 10, 1 << 20];

/// Processors that the bench has.
const PROCESSORS: f64 = 2.0;

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
    /// Measure the pairs that it concerns once more with this in their cluster file: SECTION is network, tcp, shm,
    /// hsl, channel, endpoint or gateway. May be given several times.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    settings: Vec<Setting>,
}

/// What was measured of one way, as medians; the ratios are medians of each round's, but ratios of medians at
/// one distance, and null where nothing is between.
#[derive(Debug, Serialize)]
struct Line {
    path: &'static str,
    message_bytes: usize,
    /// At which distance, see [`AtDistance::line_ns_range`](madgate_benches::measured::AtDistance); null of all rounds.
    line_ns_range: Option<[f64; 2]>,
    /// How often it was measured there; null of all rounds.
    measurements: Option<usize>,
    gb_per_s: Option<f64>,
    cpu_s_per_gib: Option<f64>,
    gateway_cpu_s_per_gib: Option<f64>,
    cpu_of_direct: Option<f64>,
    throughput_of_possible: Option<f64>,
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
    let measure = if arguments.unread {
        Measure::Unread
    } else {
        Measure::Stream
    };
    let points = arguments
        .common
        .rounds
        .sizes_or(&MESSAGE_BYTES)
        .into_iter()
        .map(|message_bytes| Point {
            measure,
            message_bytes,
        });
    let points: Vec<_> = points.collect();
    let rounds = rounds::run(&contestants, &points, &arguments.common.rounds)?;
    let (all, distances) = (rounds.all(), rounds.by_distance());
    for point in points {
        let bytes = point.message_bytes;
        let lines_of_all = lines(&all, point);
        if arguments.common.json {
            json::print_lines(&lines_of_all)?;
        } else {
            print_table(&format!("{bytes} bytes"), &lines_of_all)?;
            print_notes()?;
        }
        for at in &distances {
            let Some(heading) = at.heading(&[point]) else {
                continue;
            };
            let lines = lines(&at.results, point).into_iter().map(|line| Line {
                line_ns_range: Some(at.line_ns_range),
                measurements: at.times.get(&(line.path, point)).copied(),
                ..line
            });
            let lines: Vec<_> = lines.collect();
            if arguments.common.json {
                json::print_lines(&lines)?;
            } else {
                print_table(&format!("{bytes} bytes, {heading}"), &lines)?;
            }
        }
    }
    Ok(())
}

fn lines(results: &Results, point: Point) -> Vec<Line> {
    let samples = |name, figure: fn(&Figures) -> &Samples| results.get(&(name, point)).map(figure);
    let line = |path, protocols: Option<[&'static str; 2]>| {
        let all = |name| samples(name, |it| &it.all_cpu_s_per_gib);
        let gb_per_s = samples(path, |it| &it.gb_per_s);
        let sum = protocols.and_then(|[left, right]| {
            Some(all(left)?.with(all(right)?, |left, right| left + right))
        });
        // Both of the same rounds, in which the machine was as fast for one as for the other.
        let of_sum = |these: Option<&Samples>, ratio: fn(f64, f64) -> f64| {
            these?.with(sum.as_ref()?, ratio).median()
        };
        Line {
            path,
            message_bytes: point.message_bytes,
            line_ns_range: None,
            measurements: None,
            gb_per_s: gb_per_s.and_then(Samples::median),
            cpu_s_per_gib: all(path).and_then(Samples::median),
            gateway_cpu_s_per_gib: samples(path, |it| &it.cpu_s_per_gib).and_then(Samples::median),
            cpu_of_direct: of_sum(all(path), |cpu, sum| cpu / sum),
            throughput_of_possible: of_sum(gb_per_s, |gb, sum| gb / possible(sum)),
        }
    };
    let is_measured = |name: &&'static str| results.contains_key(&(*name, point));
    let direct = DIRECT.into_iter().map(|name| line(name, None));
    let named = |name: fn(&Pair) -> &'static str| {
        let pairs = PAIRS.iter().map(move |pair| (name(pair), pair.protocols));
        pairs.map(|(name, both)| line(name, Some(both)))
    };
    let default = named(|pair| pair.default);
    let header = named(|pair| pair.header);
    let set = named(|pair| pair.set);
    let all = direct.chain(default).chain(header).chain(set);
    all.filter(|line| is_measured(&line.path)).collect()
}

/// GB per second that the processors have time for, when each GiB costs them so much.
fn possible(cpu_s_per_gib: f64) -> f64 {
    PROCESSORS / cpu_s_per_gib * BYTES_PER_GIB / BYTES_PER_GB
}

fn print_table(of: &str, lines: &[Line]) -> io::Result<()> {
    let mut table = Table::new([
        "",
        "GB/s",
        "CPU s/GiB, all",
        "of both direct",
        "GB/s of possible",
        "CPU s/GiB, gateway",
    ]);
    for line in lines {
        table.row([
            line.path.to_owned(),
            cell(line.gb_per_s, 2),
            cell(line.cpu_s_per_gib, 3),
            cell(line.cpu_of_direct, 2),
            cell(line.throughput_of_possible, 2),
            cell(line.gateway_cpu_s_per_gib, 3),
        ]);
    }
    let mut stdout = io::stdout().lock();
    write!(stdout, "\nmessages of {of}\n\n{table}")
}

fn print_notes() -> io::Result<()> {
    writeln!(
        io::stdout().lock(),
        "\nMedians; ratios are medians of each round's. CPU: user and system time of source, sink \
         and gateway. Of both direct: its ratio to the sum of both networks'. Possible: what \
         {PROCESSORS} processors have time for at that sum. Header: with `checksum = \"header\"` of the \
         channel, so that no payload has a checksum, as over one network alone."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of one round.
    fn figures(gb_per_s: f64, all: f64) -> Figures {
        Figures {
            gb_per_s: Samples::of(vec![gb_per_s]),
            all_cpu_s_per_gib: Samples::of(vec![all]),
            ..Figures::default()
        }
    }

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

    #[test]
    fn a_pair_is_compared_with_the_sum_of_both() {
        let point = Point::stream(MESSAGE_BYTES[0]);
        let results = Results::from([
            (("tcp", point), figures(2.0, 0.75)),
            (("shm", point), figures(3.0, 0.25)),
            (("tcp->shm", point), figures(1.0, 1.5)),
        ]);
        let lines = lines(&results, point);
        let of = |path| lines.iter().find(|line| line.path == path).unwrap();
        assert_eq!(of("tcp->shm").cpu_of_direct, Some(1.5));
        // Two processors have time for 2 GiB per second.
        let share = of("tcp->shm").throughput_of_possible.unwrap();
        assert!((share - 1e9 / 2_147_483_648.0).abs() < 1e-12);
        assert_eq!(of("tcp").cpu_of_direct, None);
        // Of what was not measured there is no line.
        assert!(lines.iter().all(|line| line.path != "tcp->hsl"));
    }
}
