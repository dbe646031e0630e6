//! What happens where rendezvous begins: messages of the same size by both transmission modules,
//! and how long it takes to read them where they arrived.

use std::io::{self, Write};

use madgate_benches::table::Table;
use serde::Serialize;

use crate::exchange::both_ends;
use crate::plan::{How, Memory, Plan, Traffic};

/// Around the paper's threshold of 16 KiB.
const SHIFTS: [u32; 6] = [11, 12, 13, 14, 15, 16];

/// One size; half round trips in microseconds.
#[derive(Debug, Serialize)]
struct Line {
    table: &'static str,
    message_bytes: usize,
    control_us: f64,
    rendezvous_us: f64,
    rendezvous_read_us: f64,
}

/// Measures, and prints what was measured.
pub(crate) fn print(quick: bool, json: bool) -> io::Result<()> {
    let sizes: Vec<usize> = SHIFTS.iter().map(|shift| 1 << shift).collect();
    let rounds = if quick { 50 } else { 5000 };
    let measure = |threshold, traffic| {
        let plan = Plan {
            threshold,
            traffic,
            ..Plan::of(How::Polling, Memory::Arena, sizes.clone(), rounds)
        };
        Ok::<_, io::Error>(both_ends(&plan)?.each_us)
    };
    let (smallest, largest) = (sizes[0], sizes[sizes.len() - 1]);
    let control = measure(largest, Traffic::Blocks)?;
    let rendezvous = measure(smallest / 2, Traffic::Blocks)?;
    let read = measure(smallest / 2, Traffic::Read)?;
    let mut table = Table::new([
        "polling, arena, half round trip, µs",
        "control message",
        "rendezvous",
        "rendezvous, and read",
    ]);
    let mut stdout = io::stdout().lock();
    for (place, bytes) in sizes.iter().enumerate() {
        let [control_us, rendezvous_us, rendezvous_read_us] =
            [&control, &rendezvous, &read].map(|each| each[place].median().unwrap_or(f64::NAN));
        let line = Line {
            table: "threshold",
            message_bytes: *bytes,
            control_us,
            rendezvous_us,
            rendezvous_read_us,
        };
        if json {
            writeln!(stdout, "{}", serde_json::to_string(&line)?)?;
            continue;
        }
        let figures = [control_us, rendezvous_us, rendezvous_read_us];
        let figures = figures.map(|figure| format!("{figure:.2}"));
        table.row([format!("{bytes} B")].into_iter().chain(figures));
    }
    if !json {
        writeln!(stdout, "\n{table}")?;
    }
    Ok(())
}
