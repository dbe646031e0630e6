//! Three processes that solve a linear system in stochastic arithmetic.
//!
//! ```text
//! cargo run --release -p madgate-gateway --example cestac
//! cargo run --release -p madgate-gateway --example cestac -- --mode interrupt
//! cargo run --release -p madgate-gateway --example cestac -- --gateway
//! ```
//!
//! CESTAC computes everything three times, rounds each result up or down by chance, and knows from
//! how far the three are apart which digits mean something. Here each of three processes has one of
//! the samples. They have to agree wherever a program branches, so they exchange values of 8 bytes,
//! about as many as the system has entries: whether this is fast is a matter of latency alone. It is
//! the application of paper 000, section 6, where an exchange took 74 µs with interrupts and 47 µs
//! without.
//!
//! ```text
//! main.rs        starts the processes, compares with a run of one process
//! place.rs       the cluster file
//! brothers.rs    the exchange: two messages out, two in
//! gauss.rs       elimination with pivoting, whoever has the other samples
//! arithmetic.rs  rounding by chance; means, digits and computed zeros
//! ```

mod arithmetic;
mod brothers;
#[path = "../common/mod.rs"]
mod common;
mod gauss;
mod place;

use std::error::Error;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use madgate_gateway::Gateway;
use madgate_vchannel::{Cluster, Session};

use arithmetic::{SAMPLES, digits};
use brothers::Messages;
use gauss::{Alone, Arithmetic, System};
use place::{GATEWAY, Mode, NODES, Protocol, cluster_file};

/// Solves a linear system in stochastic arithmetic, with one of three processes for each sample.
#[derive(Debug, Parser)]
struct Arguments {
    /// Equations, and unknowns
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u16).range(1..=2000))]
    size: u16,
    /// The network on which the processes are
    #[arg(long, value_enum, default_value = "hsl")]
    protocol: Protocol,
    /// How they learn that a value has come
    #[arg(long, value_enum, default_value = "adaptive")]
    mode: Mode,
    /// Put the third process on another network, of TCP, behind a gateway
    #[arg(long)]
    gateway: bool,
    /// For the processes that this one starts: who it is
    #[arg(long, hide = true, requires = "cluster")]
    node: Option<String>,
    #[arg(long, hide = true)]
    cluster: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    match (&arguments.node, &arguments.cluster) {
        (Some(node), Some(file)) if node == GATEWAY => forward(file),
        (Some(node), Some(file)) => compute(node, file, arguments.size.into()),
        _ => lead(&arguments),
    }
}

/// Starts everybody, and compares what they find.
fn lead(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let size = arguments.size.into();
    let text = cluster_file(arguments.protocol, arguments.mode, arguments.gateway)?;
    let (folder, cluster) = common::make_cluster(&text)?;
    drop(cluster);
    let file = folder.path().join("cluster.toml");

    let gateway = if arguments.gateway {
        let mut gateway = Started::new(GATEWAY, &file, arguments.size)?;
        gateway.line()?;
        Some(gateway)
    } else {
        None
    };
    let mut processes = Vec::new();
    for node in NODES {
        processes.push(Started::new(node, &file, arguments.size)?);
    }
    let mut found = Vec::new();
    for process in processes {
        found.push(process.outcome(size)?);
    }
    if let Some(gateway) = gateway {
        gateway.end()?;
    }

    let begun = Instant::now();
    let mut arithmetic = Arithmetic::new(0, Alone);
    let expected = System::<SAMPLES>::new(size).solve(&mut arithmetic)?;
    let (comparisons, _) = arithmetic.finish();
    let alone = begun.elapsed();

    let mut fewest_digits = f64::INFINITY;
    for (unknown, samples) in expected.iter().enumerate() {
        for (process, sample) in found.iter().zip(samples) {
            if process.unknowns[unknown].to_bits() != sample.to_bits() {
                return Err(format!("unknown {unknown} is not that of one process").into());
            }
        }
        fewest_digits = fewest_digits.min(digits(*samples));
    }
    println!(
        "{size} equations, {comparisons} exchanges: all {size} unknowns are bit for bit those of \
         one process that has all samples ({alone:.1?}), with {fewest_digits:.1} digits or more"
    );
    for (node, outcome) in NODES.iter().zip(&found) {
        println!(
            "{node:8} {:7.2} us an exchange (two messages out, two in)",
            outcome.exchange.as_secs_f64() * 1e6
        );
    }
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let threads = SAMPLES + usize::from(arguments.gateway);
    if arguments.mode != Mode::Interrupt && threads > processors {
        println!(
            "{threads} processes look for what comes on {processors} processors: they yield to \
             each other, and that is part of the time"
        );
    }
    Ok(())
}

/// One of the three: computes its sample of everything.
fn compute(node: &str, file: &Path, size: usize) -> Result<(), Box<dyn Error>> {
    let session = Session::open(Arc::new(Cluster::read(file)?), node)?;
    let channel = session.channel("values")?;
    let rank = |name: &str| session.cluster().node(name);
    let [Some(first), Some(second), Some(third)] = NODES.map(rank) else {
        return Err("the cluster file lacks one of the three".into());
    };
    let sample = NODES
        .iter()
        .position(|name| *name == node)
        .ok_or("no sample for this node")?;
    let messages = Messages::new(channel, sample, [first, second, third]);
    let mut arithmetic = Arithmetic::new(sample, messages);
    // Links are made when they are first needed: that is not part of an exchange.
    arithmetic.all([0.0])?;
    let (_, mut messages) = arithmetic.finish();
    messages.taken = Duration::ZERO;

    let mut arithmetic = Arithmetic::new(sample, messages);
    let unknowns = System::<1>::new(size).solve(&mut arithmetic)?;
    let (exchanges, messages) = arithmetic.finish();
    let mean = messages.taken / u32::try_from(exchanges.max(1))?;
    drop(messages);
    let mut out = io::stdout().lock();
    writeln!(out, "{}", mean.as_nanos())?;
    for [unknown] in unknowns {
        writeln!(out, "{}", unknown.to_bits())?;
    }
    out.flush()?;
    session.close(Duration::from_secs(10))?;
    Ok(())
}

/// The gateway: forwards until its input ends.
fn forward(file: &Path) -> Result<(), Box<dyn Error>> {
    let gateway = Gateway::start(Arc::new(Cluster::read(file)?), GATEWAY)?;
    println!("forwards");
    io::copy(&mut io::stdin(), &mut io::sink())?;
    drop(gateway);
    Ok(())
}

/// A process that was started.
struct Started {
    name: &'static str,
    child: Child,
    /// Its end tells the gateway to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// What one of the three found.
struct Outcome {
    /// How long an exchange took, on average.
    exchange: Duration,
    unknowns: Vec<f64>,
}

impl Started {
    fn new(name: &'static str, cluster: &Path, size: u16) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--node", name, "--size", &size.to_string(), "--cluster"])
            .arg(cluster)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self {
            name,
            child,
            input,
            output,
        })
    }

    fn line(&mut self) -> Result<String, Box<dyn Error>> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(format!("the process of {} says nothing", self.name).into());
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    fn outcome(mut self, size: usize) -> Result<Outcome, Box<dyn Error>> {
        let exchange = Duration::from_nanos(self.line()?.parse()?);
        let mut unknowns = Vec::new();
        for _ in 0..size {
            unknowns.push(f64::from_bits(self.line()?.parse()?));
        }
        self.end()?;
        Ok(Outcome { exchange, unknowns })
    }

    fn end(mut self) -> Result<(), Box<dyn Error>> {
        drop(self.input.take());
        self.output.read_to_end(&mut Vec::new())?;
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the process of {} failed: {status}", self.name).into())
        }
    }
}

/// None is left behind where another has failed.
impl Drop for Started {
    fn drop(&mut self) {
        // Nothing is to be done where it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
