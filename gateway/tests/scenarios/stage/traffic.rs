//! Messages that can be told apart: numbered, with contents that follow from the number.
//!
//! A message is an express block of 24 bytes (which run of the sender it is of, its number
//! in it, and how many bytes follow), and blocks of 1 MiB at most.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use madgate_vchannel::{Channel, NodeId, PackError, Packing, ReceiveMode, UnpackError, Unpacking};

use rustix::time::{ClockId, clock_gettime};

use super::node::{broken, say};

/// Bytes of a block at most.
const BLOCK_BYTES: usize = 1 << 20;

/// Where the contents of blocks begin in the pattern: as many different ones as this.
const STARTS: u64 = 4096;

/// How often a collector that waits looks whether it is to pause.
const LOOK: Duration = Duration::from_millis(250);

const HEADER_BYTES: usize = 24;

/// Bytes in which nothing repeats where a block, a fragment or a batch does.
fn pattern() -> &'static Bytes {
    static PATTERN: OnceLock<Bytes> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut bytes = Vec::new();
        while bytes.len() < BLOCK_BYTES + usize::try_from(STARTS).unwrap() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        bytes.into()
    })
}

/// Where in the pattern the contents of a block are.
fn contents(number: u64, block: u64, length: usize) -> Range<usize> {
    let start = usize::try_from((number * 7 + block * 13) % STARTS).unwrap();
    start..start + length
}

/// The blocks that `bytes` are sent as.
fn blocks(bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    let most = u64::try_from(BLOCK_BYTES).unwrap();
    (0..bytes.div_ceil(most)).map(move |block| {
        let length = (bytes - block * most).min(most);
        (block, usize::try_from(length).unwrap())
    })
}

fn header(run: u64, number: u64, bytes: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    for (place, value) in header.chunks_exact_mut(8).zip([run, number, bytes]) {
        place.copy_from_slice(&value.to_le_bytes());
    }
    header
}

/// Messages of one size, one after another.
pub(super) struct Stream {
    run: u64,
    bytes: u64,
    lends: bool,
    sent: u64,
}

impl Stream {
    /// Messages of so many bytes, whose memory is given away or lent.
    pub(super) fn new(bytes: u64, lends: bool) -> Self {
        // The standard library's keys are random.
        let run = RandomState::new().hash_one(std::process::id());
        Self {
            run,
            bytes,
            lends,
            sent: 0,
        }
    }

    /// Messages that ended.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends the next message; gives it up when `cut` becomes true.
    pub(super) fn send(
        &mut self,
        channel: &Channel,
        to: NodeId,
        cut: &AtomicBool,
    ) -> Result<(), PackError> {
        let mut packing = channel.begin_packing(to)?;
        let header = header(self.run, self.sent, self.bytes);
        packing.pack_safer(&header, ReceiveMode::Express)?;
        for (block, length) in blocks(self.bytes) {
            if cut.load(Ordering::Relaxed) {
                return Ok(());
            }
            let contents = contents(self.sent, block, length);
            if self.lends {
                packing.pack_cheaper(&pattern()[contents], ReceiveMode::Cheaper)?;
            } else {
                packing.pack_owned(pattern().slice(contents), ReceiveMode::Cheaper)?;
            }
        }
        packing.end_packing()?;
        self.sent += 1;
        Ok(())
    }
}

/// A message that was begun.
pub(super) struct Half {
    give_up: Arc<(Mutex<bool>, Condvar)>,
    packer: Option<thread::JoinHandle<()>>,
}

impl Half {
    /// Packs as many bytes as it says, of a message that goes on.
    pub(super) fn begin(channel: Channel, to: NodeId, bytes: u64) -> Self {
        let give_up = Arc::new((Mutex::new(false), Condvar::new()));
        let (packed, is_packed) = std::sync::mpsc::channel();
        let told = Arc::clone(&give_up);
        let packer = thread::spawn(move || {
            let mut packing = channel.begin_packing(to).unwrap();
            let header = header(0, 0, bytes + 1);
            packing.pack_safer(&header, ReceiveMode::Express).unwrap();
            pack_blocks(&mut packing, bytes);
            packed.send(()).unwrap();
            let (flag, condition) = &*told;
            let flag = flag.lock().unwrap();
            drop(condition.wait_while(flag, |given_up| !*given_up).unwrap());
        });
        is_packed.recv().unwrap();
        let packer = Some(packer);
        Self { give_up, packer }
    }
}

fn pack_blocks(packing: &mut Packing<'_>, bytes: u64) {
    for (block, length) in blocks(bytes) {
        let contents = pattern().slice(contents(0, block, length));
        packing.pack_owned(contents, ReceiveMode::Cheaper).unwrap();
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        *self.give_up.0.lock().unwrap() = true;
        self.give_up.1.notify_all();
        if let Some(packer) = self.packer.take() {
            packer.join().unwrap();
        }
    }
}

/// Unpacks and checks what arrives on one channel, and counts it.
pub(super) struct Collector {
    channel: Channel,
    state: Mutex<State>,
    resumed: Condvar,
}

#[derive(Default)]
struct State {
    is_paused: bool,
    /// When the last message was complete, by the clock that all processes share.
    last_nanos: u64,
    sources: HashMap<NodeId, Source>,
}

/// What came from one node.
#[derive(Default)]
struct Source {
    /// The number of the next message of each of its runs.
    next: HashMap<u64, u64>,
    /// Whether a message was lost, so that there may be a gap.
    has_gap: bool,
    /// Messages that have begun to be unpacked.
    begun: u64,
    messages: u64,
    bytes: u64,
}

impl Collector {
    pub(super) fn start(channel: Channel) -> Arc<Self> {
        let collector = Arc::new(Self {
            channel,
            state: Mutex::default(),
            resumed: Condvar::new(),
        });
        let works = Arc::clone(&collector);
        thread::spawn(move || works.work());
        collector
    }

    pub(super) fn pause(&self, is_paused: bool) {
        self.state.lock().unwrap().is_paused = is_paused;
        self.resumed.notify_all();
    }

    /// When the last message was complete, and what came until then.
    pub(super) fn counts(&self) -> (u64, Vec<String>) {
        let cluster = self.channel.session().cluster();
        let state = self.state.lock().unwrap();
        let count = |(node, source): (&NodeId, &Source)| {
            let (name, node) = (self.channel.name(), cluster.node_name(*node));
            let Source {
                begun,
                messages,
                bytes,
                ..
            } = source;
            format!("{name}/{node}={begun}/{messages}/{bytes}")
        };
        (state.last_nanos, state.sources.iter().map(count).collect())
    }

    fn work(&self) {
        loop {
            let state = self.state.lock().unwrap();
            drop(self.resumed.wait_while(state, |state| state.is_paused));
            match self.channel.begin_unpacking_within(LOOK) {
                Ok(None) => {}
                Ok(Some(unpacking)) => self.unpack(unpacking),
                Err(error) => broken(error),
            }
        }
    }

    fn unpack(&self, unpacking: Unpacking<'_>) {
        let node = unpacking.source();
        let mut state = self.state.lock().unwrap();
        state.sources.entry(node).or_default().begun += 1;
        drop(state);
        let result = unpack(unpacking);
        let mut state = self.state.lock().unwrap();
        state.last_nanos = nanos();
        let source = state.sources.entry(node).or_default();
        let name = self.channel.session().cluster().node_name(node);
        match result {
            Ok((run, number, bytes)) => {
                let next = source.next.entry(run).or_default();
                if number < *next || (number > *next && !source.has_gap) {
                    broken(format!("message {number} of {name} where {next} was due"));
                }
                *next = number + 1;
                source.has_gap = false;
                source.messages += 1;
                source.bytes += bytes;
            }
            Err(error @ UnpackError::Mismatch { .. }) => broken(error),
            Err(error) => {
                source.has_gap = true;
                say(&format!("lost {} {name} {error}", self.channel.name()));
            }
        }
    }
}

/// The time of a clock that all processes share.
fn nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// Unpacks one message, and checks its contents: its run, number and bytes.
fn unpack(mut unpacking: Unpacking<'_>) -> Result<(u64, u64, u64), UnpackError> {
    let mut header = [0; HEADER_BYTES];
    unpacking.unpack_express(&mut header)?;
    let field = |place: usize| {
        let bytes = &header[8 * place..][..8];
        u64::from_le_bytes(bytes.try_into().unwrap())
    };
    let (run, number, bytes) = (field(0), field(1), field(2));
    for (block, length) in blocks(bytes) {
        let arrived = unpacking.unpack_owned(length, ReceiveMode::Cheaper)?;
        if arrived != pattern()[contents(number, block, length)] {
            broken(format!("wrong bytes in message {number}, block {block}"));
        }
    }
    unpacking.end_unpacking()?;
    Ok((run, number, bytes))
}

/// Sends back the eight bytes that each message begins with, to whoever it comes from.
pub(super) fn echo(channel: &Channel) {
    let mut rest = Vec::new();
    loop {
        let mut ball = [0; 8];
        let mut unpacking = channel.begin_unpacking().unwrap();
        let from = unpacking.source();
        unpacking.unpack_express(&mut ball).unwrap();
        if let Some((length, receive)) = unpacking.next_block().unwrap() {
            assert_eq!(receive, ReceiveMode::Express);
            rest.resize(usize::try_from(length).unwrap(), 0);
            unpacking.unpack_express(&mut rest).unwrap();
        }
        unpacking.end_unpacking().unwrap();
        throw(channel, from, &ball);
    }
}

/// The median time of messages of a number and so many bytes more there, and of the number back.
pub(super) fn toss(channel: &Channel, to: NodeId, count: u64, bytes: usize) -> Duration {
    let weight = vec![7; bytes];
    let mut times: Vec<Duration> = (0..count)
        .map(|number| {
            let began = Instant::now();
            let mut packing = channel.begin_packing(to).unwrap();
            let head = number.to_le_bytes();
            packing.pack_safer(&head, ReceiveMode::Express).unwrap();
            packing.pack_cheaper(&weight, ReceiveMode::Express).unwrap();
            packing.end_packing().unwrap();
            catch(channel, number);
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

/// The median half round trip of eight bytes.
pub(super) fn ping(channel: &Channel, to: NodeId, count: u64) -> Duration {
    let mut halves: Vec<Duration> = (0..count)
        .map(|number| {
            let began = Instant::now();
            throw(channel, to, &number.to_le_bytes());
            catch(channel, number);
            began.elapsed() / 2
        })
        .collect();
    halves.sort_unstable();
    halves[halves.len() / 2]
}

fn throw(channel: &Channel, to: NodeId, ball: &[u8]) {
    let mut packing = channel.begin_packing(to).unwrap();
    packing.pack_safer(ball, ReceiveMode::Express).unwrap();
    packing.end_packing().unwrap();
}

fn catch(channel: &Channel, number: u64) {
    let mut ball = [0; 8];
    let mut unpacking = channel.begin_unpacking().unwrap();
    unpacking.unpack_express(&mut ball).unwrap();
    unpacking.end_unpacking().unwrap();
    if u64::from_le_bytes(ball) != number {
        broken(format!("{ball:?} came back for {number}"));
    }
}
