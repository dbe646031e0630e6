//! One end of a port: sends and receives as the plan says, and counts.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use madgate_benches::process::PATIENCE;
use madgate_benches::samples::Samples;
use madgate_tm::hsl::fabric::{FabricDevice, FabricPortStart};
use madgate_tm::hsl::host::HostDevice;
use madgate_tm::hsl::port::{Arrived, Block, Port, PortDevice, PortStart, PortTuning, Untaken};
use madgate_tm::hsl::{Counters, counters};
use madgate_tm::{Interest, LaneError, Poller};
use serde::{Deserialize, Serialize};

use crate::plan::{How, Memory, Plan, Traffic, WARM_UP};
use crate::translation::Translation;

/// Looks that find nothing before the processor goes to somebody else: much longer than an
/// answer takes when the other end runs.
const LOOKS_BETWEEN_YIELDS: u32 = 20_000;
/// Looks at the list alone between two times that a port sees to everything else.
const LIST_LOOKS: u32 = 32;
/// Room for messages of 4 MiB, three at each end, and for those of all smaller sizes.
const ARENA_BYTES: usize = 48 << 20;
/// Messages of a stream that are on their way at once.
const WINDOW: usize = 4;

/// What one end counted.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Counted {
    /// System calls that cards made: doorbells, and writes through the kernel.
    pub(crate) calls: u64,
    pub(crate) interrupts: u64,
    /// Messages that were copied at one end, other than by the card.
    pub(crate) copies: u64,
    /// Messages that were sent.
    pub(crate) messages: u64,
}

impl Counted {
    fn of<D: PortDevice>(cards: Counters, port: &Port<D>) -> Self {
        let ports = port.counters();
        Self {
            calls: cards.doorbells + cards.foreign_calls,
            interrupts: cards.interrupts,
            copies: ports.copies,
            messages: ports.shorts + ports.rendezvous,
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            interrupts: self.interrupts + other.interrupts,
            copies: self.copies + other.copies,
            messages: self.messages + other.messages,
        }
    }
}

/// One end.
pub(crate) struct End<D: PortDevice> {
    port: Port<D>,
    how: How,
    memory: Memory,
    traffic: Traffic,
    spin: Duration,
    translation: Translation,
    poller: Poller,
    /// Where messages are copied to that are read.
    scratch: Vec<u8>,
}

/// Blocks of one size: what is sent, and what will be posted next.
struct Blocks {
    out: Vec<Block>,
    spare: Vec<Block>,
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

/// The blocks that a port had no room for.
fn room_wanted(untaken: Untaken) -> io::Result<Vec<Block>> {
    if untaken.is_for_want_of_room() {
        return Ok(untaken.blocks);
    }
    Err(failed(untaken))
}

/// Sleeps until the other end has said something.
fn wait_for(start: &impl AsFd) -> io::Result<()> {
    let mut poller = Poller::new()?;
    poller.add(start, 0, Interest::Readable)?;
    poller.wait(Some(PATIENCE)).map(drop)
}

fn tuning(plan: &Plan) -> PortTuning {
    PortTuning {
        threshold_bytes: plan.threshold,
        // What comes early waits until something is posted for it.
        buffers: 0,
        arena_bytes: ARENA_BYTES,
        mode: plan.how.mode(),
        foreign: plan.memory != Memory::Arena,
        registrations: plan.registrations(),
        ..PortTuning::default()
    }
}

impl End<HostDevice> {
    /// Over the emulated card.
    pub(crate) fn of_host(socket: UnixStream, connects: bool, plan: &Plan) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let mut start = PortStart::new(socket, connects, tuning(plan)).map_err(failed)?;
        loop {
            match start.advance().map_err(failed)? {
                Some(port) => return Self::new(port, plan, Translation::of(plan.memory)?),
                // Asleep: calls that only look would be counted from outside.
                None => wait_for(&start)?,
            }
        }
    }
}

impl End<FabricDevice> {
    /// Over a card of libfabric's, which is told of memory by the port.
    pub(crate) fn of_fabric(socket: UnixStream, connects: bool, plan: &Plan) -> io::Result<Self> {
        let card = plan.wanted.card();
        let start = FabricPortStart::new(socket, connects, tuning(plan), &card);
        let mut start = start.map_err(failed)?;
        let mut port = loop {
            match start.advance().map_err(failed)? {
                Some(port) => break port,
                None => wait_for(&start)?,
            }
        };
        if let Some((_, Some(why))) = port.registrations() {
            return Err(io::Error::other(why.to_owned()));
        }
        Self::new(port, plan, Translation::No)
    }
}

impl<D: PortDevice> End<D> {
    fn new(port: Port<D>, plan: &Plan, translation: Translation) -> io::Result<Self> {
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
            traffic: plan.traffic,
            spin: Duration::from_micros(plan.spin_us),
            translation,
            poller,
            scratch: vec![0; plan.sizes.iter().copied().max().unwrap_or(0)],
        })
    }

    pub(crate) fn counted(&self) -> Counted {
        Counted::of(counters(), &self.port)
    }

    fn block(&self, bytes: usize) -> io::Result<Vec<Block>> {
        let block = match self.memory {
            Memory::Other | Memory::Translated | Memory::Cached => Block::Other(vec![1; bytes]),
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
            self.post(first)?;
        }
        Ok(blocks)
    }

    /// The end that asks, and measures.
    pub(crate) fn ask(&mut self, bytes: usize, rounds: usize) -> io::Result<Samples> {
        if self.traffic == Traffic::Stream {
            return self.stream(bytes, rounds);
        }
        let mut blocks = self.begin(bytes)?;
        let mut samples = Vec::with_capacity(rounds);
        let mut asked = Instant::now();
        for _ in 0..rounds {
            self.send(&mut blocks)?;
            self.receive(&mut blocks)?;
            let answered = Instant::now();
            samples.push((answered - asked).as_secs_f64() * 1e6 / 2.0);
            asked = answered;
        }
        self.check(&blocks, bytes, rounds)?;
        Ok(Samples::of(samples.split_off(WARM_UP.min(rounds))))
    }

    /// The end that answers.
    pub(crate) fn answer(&mut self, bytes: usize, rounds: usize) -> io::Result<()> {
        if self.traffic == Traffic::Stream {
            return self.drain(bytes, rounds);
        }
        let mut blocks = self.begin(bytes)?;
        for _ in 0..rounds {
            self.receive(&mut blocks)?;
            self.send(&mut blocks)?;
        }
        self.check(&blocks, bytes, rounds)
    }

    /// Sends messages as fast as they are taken, until the other end says that all are there.
    fn stream(&mut self, bytes: usize, rounds: usize) -> io::Result<Samples> {
        let idle: io::Result<Vec<_>> = (0..WINDOW).map(|_| self.block(bytes)).collect();
        let mut idle = idle?;
        self.send_all(&mut idle, WARM_UP.min(rounds))?;
        let begun = Instant::now();
        let counted = rounds.saturating_sub(WARM_UP);
        self.send_all(&mut idle, counted)?;
        match self.wait(Port::next_arrived)? {
            Arrived::Short(_) => {}
            _ => {
                return Err(io::Error::other(
                    "the other end did not say that all is there",
                ));
            }
        }
        // Far below 2^52.
        #[allow(clippy::cast_precision_loss, reason = "small numbers")]
        let messages = counted.max(1) as f64;
        Ok(Samples::of(vec![
            begun.elapsed().as_secs_f64() * 1e6 / messages,
        ]))
    }

    fn send_all(&mut self, idle: &mut Vec<Vec<Block>>, count: usize) -> io::Result<()> {
        let (mut begun, mut left) = (0, 0);
        while left < count {
            while begun < count
                && let Some(blocks) = idle.pop()
            {
                self.translate(&blocks)?;
                match self.port.send(blocks) {
                    Ok(_) => begun += 1,
                    Err(untaken) => {
                        idle.push(room_wanted(untaken)?);
                        break;
                    }
                }
            }
            idle.push(self.wait(|port| port.next_sent().map(|(_, blocks)| blocks))?);
            left += 1;
        }
        Ok(())
    }

    /// Takes in a stream, and says when all of it is there.
    fn drain(&mut self, bytes: usize, rounds: usize) -> io::Result<()> {
        for _ in 0..WINDOW {
            let blocks = self.block(bytes)?;
            self.post(blocks)?;
        }
        for _ in 0..rounds {
            match self.wait(Port::next_arrived)? {
                Arrived::Posted(blocks, length) if length == bytes as u64 => self.post(blocks)?,
                _ => return Err(io::Error::other("a message came where nothing was posted")),
            }
        }
        while !self.port.send_short(&[1]).map_err(failed)? {
            self.port.progress().map_err(failed)?;
        }
        Ok(())
    }

    /// Memory that a card is to use is registered first, where that is measured.
    fn translate(&self, blocks: &[Block]) -> io::Result<()> {
        for block in blocks {
            if let Block::Other(bytes) = block
                && bytes.len() > self.port.threshold_bytes()
            {
                self.translation.translate(bytes)?;
            }
        }
        Ok(())
    }

    fn post(&mut self, blocks: Vec<Block>) -> io::Result<()> {
        self.translate(&blocks)?;
        self.port.post(blocks).map_err(failed)
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
        if self.traffic == Traffic::Short
            && let Some(Block::Other(bytes)) = blocks.out.first()
        {
            while !self.port.send_short(bytes).map_err(failed)? {
                self.port.progress().map_err(failed)?;
            }
            return Ok(());
        }
        let mut out = std::mem::take(&mut blocks.out);
        self.translate(&out)?;
        loop {
            match self.port.send(out) {
                Ok(_) => break,
                Err(untaken) => out = room_wanted(untaken)?,
            }
            self.port.progress().map_err(failed)?;
        }
        blocks.out = self.wait(|port| port.next_sent().map(|(_, blocks)| blocks))?;
        Ok(())
    }

    fn receive(&mut self, blocks: &mut Blocks) -> io::Result<()> {
        if self.traffic == Traffic::Short {
            let mut into = std::mem::take(&mut self.scratch);
            let received = self.wait_for(|port| port.receive_short(&mut into));
            self.scratch = into;
            return received.map(drop);
        }
        match self.wait(Port::next_arrived)? {
            Arrived::Short(slot) => {
                slot.copy_out(0, &mut self.scratch[..slot.len()]);
            }
            Arrived::Posted(arrived, _) => {
                if self.traffic == Traffic::Read {
                    for block in &arrived {
                        block.read(0, &mut self.scratch[..block.len()]);
                    }
                }
                let next = std::mem::replace(&mut blocks.spare, arrived);
                self.post(next)?;
            }
            _ => return Err(io::Error::other("a message came where nothing was posted")),
        }
        Ok(())
    }

    fn wait<T>(&mut self, mut take: impl FnMut(&mut Port<D>) -> Option<T>) -> io::Result<T> {
        self.wait_for(|port| {
            port.progress()?;
            Ok(take(port))
        })
    }

    /// Looks at the list, and at nothing else, for a moment or until something is there. Returns how
    /// often it looked.
    fn look_at_list(&self) -> u32 {
        for look in 1..LIST_LOOKS {
            if self.port.may_have_arrived() {
                return look;
            }
            std::hint::spin_loop();
        }
        LIST_LOOKS
    }

    /// Looks until there is what `look` looks for, and goes on meanwhile.
    fn wait_for<T>(
        &mut self,
        mut look: impl FnMut(&mut Port<D>) -> Result<Option<T>, LaneError>,
    ) -> io::Result<T> {
        let (mut looks, mut since) = (0_u32, None);
        loop {
            looks += match self.how {
                How::Polling => self.look_at_list(),
                How::Adaptive | How::Interrupt => 1,
            };
            if let Some(found) = look(&mut self.port).map_err(failed)? {
                return Ok(found);
            }
            if self.how != How::Adaptive {
                // A handler that is interrupted needs a processor too.
                if self.how == How::Interrupt || looks >= LOOKS_BETWEEN_YIELDS {
                    looks = 0;
                    std::thread::yield_now();
                }
                std::hint::spin_loop();
                continue;
            }
            if !self.spin.is_zero() && since.get_or_insert_with(Instant::now).elapsed() < self.spin
            {
                std::hint::spin_loop();
            } else if self.port.arm().map_err(failed)? {
                self.poller.wait(Some(PATIENCE))?;
                self.port.acknowledge();
            }
        }
    }
}
