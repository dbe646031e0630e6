//! What happens where rendezvous begins: messages of the same size by both transmission modules,
//! in alternating rounds.

use std::io::{self, Write};

use madgate_benches::json;
use madgate_benches::samples::Samples;
use madgate_benches::table::Table;
use serde::Serialize;

use crate::exchange::both_ends;
use crate::plan::{How, Memory, Plan, Traffic};

/// Around the paper's threshold of 16 KiB.
const SHIFTS: [u32; 6] = [11, 12, 13, 14, 15, 16];

/// One way for messages of any size.
#[derive(Debug, Clone, Copy)]
struct Way {
    how: How,
    memory: Memory,
    /// Rendezvous; else control messages.
    is_rendezvous: bool,
    traffic: Traffic,
}

impl Way {
    const fn control(how: How) -> Self {
        Self {
            how,
            // They are copied from wherever they are.
            memory: Memory::Arena,
            is_rendezvous: false,
            traffic: Traffic::Blocks,
        }
    }

    const fn rendezvous(how: How, memory: Memory) -> Self {
        Self {
            how,
            memory,
            is_rendezvous: true,
            traffic: Traffic::Blocks,
        }
    }

    const fn read(self) -> Self {
        Self {
            traffic: Traffic::Read,
            ..self
        }
    }

    fn module(self) -> &'static str {
        if self.is_rendezvous {
            "rendezvous"
        } else {
            "control"
        }
    }

    fn is_read(self) -> bool {
        self.traffic == Traffic::Read
    }

    /// Half round trips in microseconds, for each size: the median of a round.
    fn measure(self, sizes: &[usize], rounds: usize) -> io::Result<Vec<Option<f64>>> {
        let threshold = if self.is_rendezvous {
            sizes.first().map_or(0, |smallest| smallest / 2)
        } else {
            sizes.last().copied().unwrap_or_default()
        };
        let plan = Plan {
            threshold,
            traffic: self.traffic,
            ..Plan::of(self.how, self.memory, sizes.to_vec(), rounds)
        };
        let medians = both_ends(&plan)?.each_us;
        Ok(medians.iter().map(Samples::median).collect())
    }
}

/// What a table compares: the first is what the others are instead of.
struct Comparison {
    title: &'static str,
    ways: &'static [(&'static str, Way)],
}

const POLLING: How = How::Polling;
const INTERRUPT: How = How::Interrupt;

const COMPARISONS: [Comparison; 2] = [
    Comparison {
        title: "polling",
        ways: &[
            ("control message", Way::control(POLLING)),
            ("arena", Way::rendezvous(POLLING, Memory::Arena)),
            (
                "arena, read",
                Way::rendezvous(POLLING, Memory::Arena).read(),
            ),
            (
                "other, read",
                Way::rendezvous(POLLING, Memory::Other).read(),
            ),
            (
                "cached, read",
                Way::rendezvous(POLLING, Memory::Cached).read(),
            ),
            (
                "translated, read",
                Way::rendezvous(POLLING, Memory::Translated).read(),
            ),
        ],
    },
    Comparison {
        title: "interrupt",
        ways: &[
            ("control message", Way::control(INTERRUPT)),
            ("arena", Way::rendezvous(INTERRUPT, Memory::Arena)),
            (
                "arena, read",
                Way::rendezvous(INTERRUPT, Memory::Arena).read(),
            ),
            (
                "other, read",
                Way::rendezvous(INTERRUPT, Memory::Other).read(),
            ),
        ],
    },
];

/// One size in one way.
#[derive(Debug, Serialize)]
struct Line {
    table: &'static str,
    how: &'static str,
    module: &'static str,
    memory: &'static str,
    is_read: bool,
    message_bytes: usize,
    half_rtt_us: Option<f64>,
}

/// Measures, and prints what was measured.
pub(crate) fn print(quick: bool, json: bool) -> io::Result<()> {
    let sizes = SHIFTS.map(|shift| 1 << shift);
    let (rounds, messages) = if quick { (1, 50) } else { (7, 1000) };
    for Comparison { title, ways } in COMPARISONS {
        let mut figures = vec![[const { Vec::new() }; SHIFTS.len()]; ways.len()];
        for round in 0..rounds {
            eprintln!("threshold, {title}: round {} of {rounds}", round + 1);
            for turn in 0..ways.len() {
                // Each round begins with another one.
                let place = (round + turn) % ways.len();
                let medians = ways[place].1.measure(&sizes, messages)?;
                for (all, median) in figures[place].iter_mut().zip(medians) {
                    all.extend(median);
                }
            }
        }
        let figures: Vec<_> = figures
            .into_iter()
            .map(|sizes| sizes.map(|all| Samples::of(all).median()))
            .collect();
        if json {
            print_json(ways, &sizes, &figures)?;
        } else {
            print_table(title, ways, &sizes, &figures)?;
        }
    }
    Ok(())
}

/// Medians of one way, by size.
type Medians = [Option<f64>; SHIFTS.len()];

fn print_json(ways: &[(&str, Way)], sizes: &[usize], figures: &[Medians]) -> io::Result<()> {
    let lines = ways.iter().zip(figures).flat_map(|((_, way), medians)| {
        let points = sizes.iter().zip(medians);
        points.map(|(message_bytes, half_rtt_us)| Line {
            table: "threshold",
            how: way.how.name(),
            module: way.module(),
            memory: way.memory.name(),
            is_read: way.is_read(),
            message_bytes: *message_bytes,
            half_rtt_us: *half_rtt_us,
        })
    });
    json::print_lines(lines)
}

fn print_table(
    title: &str,
    ways: &[(&str, Way)],
    sizes: &[usize],
    figures: &[Medians],
) -> io::Result<()> {
    let header = [format!("{title}, half round trip, µs")].into_iter();
    let names = ways.iter().map(|(name, _)| (*name).to_owned());
    let mut table = Table::new(header.chain(names));
    for (place, bytes) in sizes.iter().enumerate() {
        let figures = figures
            .iter()
            .map(|medians| medians[place].map_or_else(|| "–".to_owned(), |it| format!("{it:.2}")));
        table.row([format!("{bytes} B")].into_iter().chain(figures));
    }
    writeln!(io::stdout().lock(), "\n{table}")
}
