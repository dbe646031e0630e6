//! Two processes that send one message to and fro.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use madgate_benches::process::{PATIENCE, Process, die_with_parent};
use madgate_benches::samples::Samples;
use madgate_tm::Poller;
use madgate_tm::hsl::port::{Arrived, Block, Port, PortStart, PortTuning};
use madgate_tm::hsl::{Counters, Mode, counters};
use serde::{Deserialize, Serialize};

/// Looks that find nothing before the processor goes to somebody else: much longer than an
/// answer takes when the other end runs.
const LOOKS_BETWEEN_YIELDS: u32 = 20_000;
/// How long an adaptive end looks before it sleeps.
const ADAPTIVE_SPIN: Duration = Duration::from_micros(50);
/// Room for messages of 4 MiB, three at each end, and for those of all smaller sizes.
const ARENA_BYTES: usize = 48 << 20;
/// Round trips before those that count.
const WARM_UP: usize = 50;

/// How an end learns that something has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum How {
    Polling,
    Interrupt,
    Adaptive,
}

impl How {
    pub(crate) const ALL: [Self; 3] = [Self::Polling, Self::Interrupt, Self::Adaptive];

    fn mode(self) -> Mode {
        match self {
            Self::Polling => Mode::Polling,
            Self::Interrupt => Mode::Interrupt,
            Self::Adaptive => Mode::Adaptive,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.mode().name()
    }
}

/// Where messages are at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Memory {
    /// In the arena.
    Arena,
    /// Anywhere else.
    Other,
}

impl Memory {
    pub(crate) const ALL: [Self; 2] = [Self::Arena, Self::Other];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Arena => "arena",
            Self::Other => "other",
        }
    }
}

/// What is exchanged.
#[derive(Debug, Clone, Args)]
pub(crate) struct Plan {
    /// How both ends learn of arrivals.
    #[arg(long)]
    pub(crate) how: How,
    /// Where messages are.
    #[arg(long)]
    pub(crate) memory: Memory,
    /// Sizes of messages, ascending.
    #[arg(long, value_delimiter = ',')]
    pub(crate) sizes: Vec<usize>,
    /// Round trips of each; fewer of large ones, where this is not none.
    #[arg(long)]
    pub(crate) rounds: usize,
}

impl Plan {
    fn arguments(&self) -> Vec<String> {
        let sizes: Vec<String> = self.sizes.iter().map(usize::to_string).collect();
        let how = format!("--how={}", self.how.name());
        let memory = format!("--memory={}", self.memory.name());
        let (sizes, rounds) = (sizes.join(","), self.rounds);
        vec![
            how,
            memory,
            format!("--sizes={sizes}"),
            format!("--rounds={rounds}"),
        ]
    }

    /// The program's arguments that carry it out by itself.
    pub(crate) fn command(&self) -> Vec<String> {
        [vec!["exchange".to_owned()], self.arguments()].concat()
    }

    fn rounds_of(&self, bytes: usize) -> usize {
        if self.rounds == 0 {
            return 0;
        }
        self.rounds.min(((256 << 20) / bytes.max(1)).max(20)) + WARM_UP
    }
}

/// What one end counted.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Counted {
    /// System calls that cards made: doorbells, and writes through the kernel.
    pub(crate) calls: u64,
    pub(crate) interrupts: u64,
    /// Copies that are neither the card's nor the application's.
    pub(crate) copies: u64,
    /// Messages that were sent.
    pub(crate) messages: u64,
}

impl Counted {
    fn of(cards: Counters, port: &Port, copied_out: u64) -> Self {
        let ports = port.counters();
        Self {
            calls: cards.doorbells + cards.foreign_calls,
            interrupts: cards.interrupts,
            copies: ports.copies + copied_out,
            messages: ports.shorts + ports.rendezvous,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            interrupts: self.interrupts + other.interrupts,
            copies: self.copies + other.copies,
            messages: self.messages + other.messages,
        }
    }
}

/// What came out at the end that asks.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Half of each round trip, in microseconds, for each size.
    pub(crate) half_rtt_us: Vec<Samples>,
    /// What both ends counted.
    pub(crate) counted: Counted,
}

/// The process that answers.
#[derive(Debug, Args)]
pub(crate) struct Peer {
    /// Where the other end listens.
    #[arg(long)]
    socket: PathBuf,
    #[command(flatten)]
    plan: Plan,
}

impl Peer {
    pub(crate) fn run(&self) -> io::Result<()> {
        die_with_parent()?;
        let mut end = End::new(UnixStream::connect(&self.socket)?, true, &self.plan)?;
        for bytes in self.plan.sizes.iter().copied() {
            end.answer(bytes, self.plan.rounds_of(bytes))?;
        }
        let counted = serde_json::to_string(&end.counted())?;
        println!("{counted}");
        Ok(())
    }
}

/// Starts the other end, and exchanges messages with it.
pub(crate) fn both_ends(plan: &Plan) -> io::Result<Outcome> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("port");
    let listener = UnixListener::bind(&socket)?;
    let at = format!("--socket={}", socket.display());
    let arguments = [vec!["peer".to_owned(), at], plan.arguments()].concat();
    let peer = Process::again("peer", arguments)?;
    let mut end = End::new(listener.accept()?.0, false, plan)?;
    let mut half_rtt_us = Vec::new();
    for bytes in plan.sizes.iter().copied() {
        half_rtt_us.push(end.ask(bytes, plan.rounds_of(bytes))?);
    }
    let theirs: Counted = serde_json::from_str(&peer.line(PATIENCE)?)?;
    let counted = end.counted().plus(theirs);
    Ok(Outcome {
        half_rtt_us,
        counted,
    })
}

/// One end.
struct End {
    port: Port,
    how: How,
    memory: Memory,
    poller: Poller,
    /// Where a short message is copied to.
    scratch: Vec<u8>,
    copied_out: u64,
}

/// Blocks of one size: what is sent, and what will be posted next.
struct Blocks {
    out: Vec<Block>,
    spare: Vec<Block>,
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

impl End {
    fn new(socket: UnixStream, connects: bool, plan: &Plan) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let tuning = PortTuning {
            arena_bytes: ARENA_BYTES,
            mode: plan.how.mode(),
            foreign: plan.memory == Memory::Other,
            ..PortTuning::default()
        };
        let mut start = PortStart::new(socket, connects, tuning).map_err(failed)?;
        let port = loop {
            match start.advance().map_err(failed)? {
                Some(port) => break port,
                None => std::thread::yield_now(),
            }
        };
        let mut poller = Poller::new()?;
        let (descriptor, interest) = port.descriptor();
        if plan.how == How::Adaptive {
            poller.add(descriptor, 0, interest)?;
        }
        poller.wait(Some(Duration::ZERO))?;
        Ok(Self {
            port,
            how: plan.how,
            memory: plan.memory,
            poller,
            scratch: vec![0; 64 << 10],
            copied_out: 0,
        })
    }

    fn counted(&self) -> Counted {
        Counted::of(counters(), &self.port, self.copied_out)
    }

    fn block(&self, bytes: usize) -> io::Result<Vec<Block>> {
        let block = match self.memory {
            Memory::Other => Block::Other(vec![1; bytes]),
            Memory::Arena => {
                let length = u32::try_from(bytes).map_err(io::Error::other)?;
                let buffer = self.port.arena().allocate(length);
                let mut buffer = buffer.ok_or_else(|| io::Error::other("the arena is full"))?;
                buffer.write(0, &vec![1; bytes]);
                Block::Arena(buffer)
            }
        };
        Ok(vec![block])
    }

    /// Posts memory for the first message of a size.
    fn begin(&mut self, bytes: usize) -> io::Result<Blocks> {
        let blocks = Blocks {
            out: self.block(bytes)?,
            spare: self.block(bytes)?,
        };
        if bytes > self.port.threshold_bytes() {
            let first = self.block(bytes)?;
            self.port.post(first).map_err(failed)?;
        }
        Ok(blocks)
    }

    fn ask(&mut self, bytes: usize, rounds: usize) -> io::Result<Samples> {
        let mut blocks = self.begin(bytes)?;
        let mut samples = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let asked = Instant::now();
            self.send(&mut blocks)?;
            self.receive(&mut blocks)?;
            samples.push(asked.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
        self.check(&blocks, bytes, rounds)?;
        let mut sorted = Samples::default();
        samples
            .iter()
            .skip(WARM_UP)
            .for_each(|half| sorted.push(*half));
        Ok(sorted)
    }

    fn answer(&mut self, bytes: usize, rounds: usize) -> io::Result<()> {
        let mut blocks = self.begin(bytes)?;
        for _ in 0..rounds {
            self.receive(&mut blocks)?;
            self.send(&mut blocks)?;
        }
        self.check(&blocks, bytes, rounds)
    }

    /// What arrived last is what was sent.
    fn check(&self, blocks: &Blocks, bytes: usize, rounds: usize) -> io::Result<()> {
        let mut arrived = vec![0; bytes];
        if bytes > self.port.threshold_bytes() {
            blocks.spare[0].read(0, &mut arrived);
        } else {
            arrived.copy_from_slice(&self.scratch[..bytes]);
        }
        if rounds == 0 || arrived.iter().all(|byte| *byte == 1) {
            return Ok(());
        }
        Err(io::Error::other("what arrived is not what was sent"))
    }

    fn send(&mut self, blocks: &mut Blocks) -> io::Result<()> {
        let mut out = std::mem::take(&mut blocks.out);
        loop {
            match self.port.send(out).map_err(failed)? {
                Ok(_) => break,
                Err(back) => out = back,
            }
            self.port.progress().map_err(failed)?;
        }
        blocks.out = self.wait(|port| port.next_sent().map(|(_, blocks)| blocks))?;
        Ok(())
    }

    fn receive(&mut self, blocks: &mut Blocks) -> io::Result<()> {
        match self.wait(Port::next_arrived)? {
            Arrived::Short(slot) => {
                slot.copy_out(0, &mut self.scratch[..slot.len()]);
                self.copied_out += 1;
            }
            Arrived::Posted(arrived, _) => {
                let next = std::mem::replace(&mut blocks.spare, arrived);
                self.port.post(next).map_err(failed)?;
            }
            _ => return Err(io::Error::other("a message came where nothing was posted")),
        }
        Ok(())
    }

    fn wait<T>(&mut self, mut take: impl FnMut(&mut Port) -> Option<T>) -> io::Result<T> {
        let (mut looks, mut since) = (0_u32, None);
        loop {
            self.port.progress().map_err(failed)?;
            if let Some(taken) = take(&mut self.port) {
                return Ok(taken);
            }
            looks += 1;
            if self.how != How::Adaptive {
                if looks.is_multiple_of(LOOKS_BETWEEN_YIELDS) {
                    std::thread::yield_now();
                }
                std::hint::spin_loop();
                continue;
            }
            if since.get_or_insert_with(Instant::now).elapsed() < ADAPTIVE_SPIN {
                std::hint::spin_loop();
            } else if self.port.arm().map_err(failed)? {
                self.poller.wait(Some(PATIENCE))?;
                self.port.acknowledge();
            }
        }
    }
}
