//! Table 2: what a message costs, counted from inside and from outside.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use madgate_benches::process::Process;
use madgate_benches::table::Table;
use serde::Serialize;

use crate::end::Counted;
use crate::exchange::both_ends;
use crate::packed::{PACKED_BYTES, Packed};
use crate::plan::{How, Memory, Plan};

/// Messages of case 1 and case 2: a control message, and a rendezvous.
const CASES: [(&str, usize, Memory); 3] = [
    ("case 1: control message", 8, Memory::Arena),
    ("case 2: rendezvous, arena", 256 << 10, Memory::Arena),
    ("case 2: rendezvous, other memory", 256 << 10, Memory::Other),
];

/// Case 2 through sessions at both ends.
const PACKED: &str = "case 2: packed, and unpacked where it arrives";

/// What the papers counted: case, implementation, system calls, interrupts, copies.
const PAPER: [[&str; 5]; 4] = [
    ["case 1: control message", "MPI-MPC 1", "1", "2", "2"],
    ["case 1: control message", "MPI-MPC 2", "0", "0", "2"],
    ["case 2: rendezvous", "MPI-MPC 1", "7", "6", "0"],
    ["case 2: rendezvous", "MPI-MPC 2", "4", "0", "0"],
];

/// What one kind of message costs; what could not be counted is null.
#[derive(Debug, Serialize)]
struct Line<'a> {
    table: &'static str,
    case: &'a str,
    how: &'a str,
    calls_per_message: f64,
    interrupts_per_message: f64,
    copies_per_message: f64,
    /// All system calls of both processes, for many messages less those for none.
    strace_calls_per_message: Option<f64>,
    /// Of those, calls that gave the processor away while waiting.
    strace_yields_per_message: Option<f64>,
}

/// Counts, and prints what was counted.
pub(crate) fn print(quick: bool, json: bool) -> io::Result<()> {
    let rounds = if quick { 200 } else { 5000 };
    let strace = strace_is_there();
    if !strace {
        eprintln!("strace is not there (ci/packages.sh installs it): counted from inside alone");
    }
    let mut table = Table::new([
        "per message",
        "mode",
        "system calls",
        "interrupts",
        "copies",
        "by strace",
        "yields",
    ]);
    let mut stdout = io::stdout().lock();
    for (case, bytes, memory) in CASES {
        for how in How::ALL {
            let plan = |rounds| Plan::of(how, memory, vec![bytes], rounds);
            let counted = |rounds| Ok(both_ends(&plan(rounds))?.counted);
            let command = |rounds| plan(rounds).command();
            let counted = count(&counted, &command, rounds, strace);
            tell(case, how, counted, json, &mut table, &mut stdout)?;
        }
    }
    for how in How::ALL {
        let packed = |rounds| Packed::of(how, PACKED_BYTES, rounds);
        let counted = |rounds| packed(rounds).both_ends();
        let command = |rounds| packed(rounds).command();
        let counted = count(&counted, &command, rounds, strace);
        tell(PACKED, how, counted, json, &mut table, &mut stdout)?;
    }
    if !json {
        for [case, who, calls, interrupts, copies] in PAPER {
            table.row([case, who, calls, interrupts, copies, "", ""]);
        }
        writeln!(stdout, "\n{table}")?;
    }
    Ok(())
}

/// Tells what was counted, if it could be.
fn tell(
    case: &str,
    how: How,
    counted: io::Result<PerMessage>,
    json: bool,
    table: &mut Table,
    out: &mut impl Write,
) -> io::Result<()> {
    match counted {
        Ok(counted) if json => {
            let line = counted.line(case, how.name());
            writeln!(out, "{}", serde_json::to_string(&line)?)?;
        }
        Ok(counted) => table.row(counted.line(case, how.name()).cells()),
        Err(error) => eprintln!("{case}, {}, is left out: {error}", how.name()),
    }
    Ok(())
}

/// What was counted, for each message.
struct PerMessage {
    calls: f64,
    interrupts: f64,
    copies: f64,
    strace: Option<[f64; 2]>,
}

/// Counts an exchange of as many messages, less one of none: from inside, as `counted` does, and
/// from outside, where the program does the same with the arguments `command`.
fn count(
    counted: &dyn Fn(usize) -> io::Result<Counted>,
    command: &dyn Fn(usize) -> Vec<String>,
    rounds: usize,
    strace: bool,
) -> io::Result<PerMessage> {
    let none = counted(0)?;
    let many = counted(rounds)?;
    let messages = many.messages - none.messages;
    // Noise of the one may be more than all of the other: a figure below nothing says so.
    let per_message = |many: u64, none: u64| {
        let less = ratio(none, messages);
        ratio(many, messages) - less
    };
    let strace = if strace {
        let [none_calls, none_yields] = traced(command(0))?;
        let [calls, yields] = traced(command(rounds))?;
        Some([
            per_message(calls, none_calls),
            per_message(yields, none_yields),
        ])
    } else {
        None
    };
    Ok(PerMessage {
        calls: per_message(many.calls, none.calls),
        interrupts: per_message(many.interrupts, none.interrupts),
        copies: per_message(many.copies, none.copies),
        strace,
    })
}

fn ratio(count: u64, messages: u64) -> f64 {
    // Both are far below 2^52.
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let ratio = count as f64 / messages.max(1) as f64;
    ratio
}

impl PerMessage {
    fn line<'a>(&self, case: &'a str, how: &'a str) -> Line<'a> {
        Line {
            table: "costs",
            case,
            how,
            calls_per_message: self.calls,
            interrupts_per_message: self.interrupts,
            copies_per_message: self.copies,
            strace_calls_per_message: self.strace.map(|[calls, yields]| calls - yields),
            strace_yields_per_message: self.strace.map(|[_, yields]| yields),
        }
    }
}

impl Line<'_> {
    fn cells(&self) -> [String; 7] {
        let figure = |value: f64| {
            // What is nothing, from a difference of two runs, has no sign.
            let value = if value.abs() < 0.005 { 0.0 } else { value };
            format!("{value:.2}")
        };
        let counted = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), figure);
        [
            self.case.to_owned(),
            self.how.to_owned(),
            figure(self.calls_per_message),
            figure(self.interrupts_per_message),
            figure(self.copies_per_message),
            counted(self.strace_calls_per_message),
            counted(self.strace_yields_per_message),
        ]
    }
}

fn strace_is_there() -> bool {
    let version = Command::new("strace")
        .arg("-V")
        .stdout(Stdio::null())
        .status();
    version.is_ok_and(|status| status.success())
}

/// How long an exchange may take that is traced.
const TRACED_WITHIN: Duration = Duration::from_secs(300);

/// System calls of both ends of an exchange, and how many of them gave the processor away.
fn traced(command: Vec<String>) -> io::Result<[u64; 2]> {
    let folder = madgate_benches::scratch::folder()?;
    let summary = folder.path().join("summary");
    let mut arguments: Vec<OsString> = ["-f", "-c", "-o"].map(Into::into).into();
    arguments.extend([summary.clone().into(), env::current_exe()?.into()]);
    arguments.extend(command.into_iter().map(Into::into));
    Process::program("strace", arguments)?.finish_within(TRACED_WITHIN)?;
    let (mut calls, mut yields) = (0, 0);
    // Time, seconds, µs for each, calls, errors where there are any, name.
    for line in fs::read_to_string(&summary)?.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (Some(count), Some(name)) = (fields.get(3), fields.last()) else {
            continue;
        };
        let Ok(count) = count.parse::<u64>() else {
            continue;
        };
        match *name {
            "total" => {}
            "sched_yield" => {
                calls += count;
                yields += count;
            }
            _ => calls += count,
        }
    }
    Ok([calls, yields])
}
