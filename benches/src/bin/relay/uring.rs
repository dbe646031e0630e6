//! The bare relay once more, by `io_uring`: what is received into one of two buffers is sent while the
//! next is received. Unsafe island: the kernel is given places in memory.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Instant;

use clap::Args;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use madgate_benches::children::{Place, any_loopback, say, stage_plain};
use madgate_benches::waiting::{ADAPTIVE_SPIN, Wait};
use madgate_benches::{Contestant, Point, Process, Stage, Timing};

/// Bytes of each buffer.
const BUFFER_BYTES: usize = 256 * 1024;

/// Buffers of each direction.
const BUFFERS: usize = 2;

/// Entries of the ring: each direction has one call of each kind under way.
const ENTRIES: u32 = 8;

const RELAY: &str = "uring-relay";

/// A relay by `io_uring`, as [`Bare`](super::bare::Bare) is one by ordinary calls.
#[derive(Debug)]
pub(crate) enum Uring {
    /// It sleeps; its ends wait so.
    Asleep(Wait),
    /// It looks before it sleeps, and so do its ends.
    Looking,
}

impl Uring {
    /// How the ends wait, and the relay.
    fn waits(&self) -> [Wait; 2] {
        match self {
            Self::Asleep(ends) => [*ends, Wait::Sleep],
            Self::Looking => [Wait::Adaptive; 2],
        }
    }
}

impl Contestant for Uring {
    fn name(&self) -> &'static str {
        match self {
            Self::Asleep(_) => "uring",
            Self::Looking => "uring-looking",
        }
    }

    fn stage(&self, point: Point, timing: Timing) -> io::Result<Stage> {
        let [ends, relay] = self.waits();
        stage_plain(point, timing, ends, &Place::Tcp(any_loopback()), |sink| {
            let Place::Tcp(sink) = sink else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            let relay = Process::again(RELAY, [RELAY, &sink.to_string(), relay.name()])?;
            let at = relay.word("at ")?.parse().map_err(io::Error::other)?;
            Ok((Some(relay), at))
        })
    }
}

/// What the process of the relay must know.
#[derive(Debug, Args)]
pub(crate) struct UringArguments {
    /// Where to pass on to.
    to: SocketAddr,
    /// How to wait.
    #[arg(value_enum)]
    wait: Wait,
}

impl UringArguments {
    /// Relays one connection until either side closes.
    pub(crate) fn run(self) -> io::Result<()> {
        let listener = TcpListener::bind(any_loopback())?;
        say(&format!("at {}", Place::Tcp(listener.local_addr()?)))?;
        let (near, _) = listener.accept()?;
        let far = TcpStream::connect(self.to)?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;

        let mut builder = IoUring::builder();
        builder.setup_single_issuer();
        match self.wait {
            // What has completed is looked at when this thread waits for it, and not before.
            Wait::Sleep => builder.setup_defer_taskrun(),
            // It looks without a call of the ring's, and finds what other calls have brought.
            Wait::Adaptive | Wait::Spin => builder.setup_coop_taskrun(),
        };
        let mut ring = builder.build(ENTRIES).map_err(|error| {
            let what = format!("io_uring is not to be had here (Linux 6.1 has all of it): {error}");
            io::Error::new(error.kind(), what)
        })?;
        let mut directions = [
            Direction::new(0, &near, &far),
            Direction::new(1, &far, &near),
        ];
        let mut since = Instant::now();
        loop {
            for direction in &mut directions {
                direction.go_on(&mut ring)?;
            }
            if directions.iter().any(Direction::is_over) {
                return Ok(());
            }
            let looks = match self.wait {
                Wait::Sleep => false,
                Wait::Adaptive => since.elapsed() < ADAPTIVE_SPIN,
                Wait::Spin => true,
            };
            let wanted = usize::from(!looks);
            if wanted > 0 || !ring.submission().is_empty() {
                ring.submit_and_wait(wanted)?;
            }
            let mut has_completed = false;
            for completed in ring.completion() {
                let index = usize::from(completed.user_data() & DIRECTION_BIT != 0);
                directions[index].complete(&completed)?;
                has_completed = true;
            }
            if has_completed || !looks {
                since = Instant::now();
            } else {
                thread::yield_now();
            }
        }
    }
}

/// What a completion tells: whose it is, and of which kind.
const DIRECTION_BIT: u64 = 1;
const SEND_BIT: u64 = 2;

/// One direction of the connection.
struct Direction<'s> {
    index: u64,
    from: &'s TcpStream,
    to: &'s TcpStream,
    /// Buffers that nothing is in; the first is being received into, if `receives`.
    free: VecDeque<&'static mut [u8; BUFFER_BYTES]>,
    /// Those with so many bytes to send, and how many of these were sent; the first is being sent, if
    /// `sends`.
    filled: VecDeque<(&'static mut [u8; BUFFER_BYTES], usize, usize)>,
    receives: bool,
    sends: bool,
    /// Whether its sender has closed.
    has_ended: bool,
}

impl<'s> Direction<'s> {
    fn new(index: u64, from: &'s TcpStream, to: &'s TcpStream) -> Self {
        let buffer = || {
            let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
            // The kernel may write there until the process ends.
            Box::leak(buffer.try_into().expect("it is as long"))
        };
        Self {
            index,
            from,
            to,
            free: (0..BUFFERS).map(|_| buffer()).collect(),
            filled: VecDeque::new(),
            receives: false,
            sends: false,
            has_ended: false,
        }
    }

    /// Whether all that came was sent, and no more will come.
    fn is_over(&self) -> bool {
        self.has_ended && self.filled.is_empty()
    }

    /// Asks for what can be under way and is not.
    fn go_on(&mut self, ring: &mut IoUring) -> io::Result<()> {
        if !self.receives
            && !self.has_ended
            && let Some(buffer) = self.free.front_mut()
        {
            let length = length_of(&buffer[..]);
            let receive = opcode::Recv::new(
                types::Fd(self.from.as_raw_fd()),
                buffer.as_mut_ptr(),
                length,
            );
            // SAFETY: the socket is open for as long as the ring is (`run`), and the buffer is never
            // freed (`new`). It is the first that is free, which nothing else uses while `receives`,
            // until the completion says that the call has ended.
            unsafe { push(ring, &receive.build().user_data(self.index)) }?;
            self.receives = true;
        }
        if !self.sends
            && let Some((buffer, length, sent)) = self.filled.front()
        {
            let rest = &buffer[*sent..*length];
            let length = length_of(rest);
            let send = opcode::Send::new(types::Fd(self.to.as_raw_fd()), rest.as_ptr(), length);
            // SAFETY: as above; the buffer is the first that is filled, which nothing else uses while
            // `sends`.
            unsafe { push(ring, &send.build().user_data(self.index | SEND_BIT)) }?;
            self.sends = true;
        }
        Ok(())
    }

    /// A call of this direction has ended.
    fn complete(&mut self, completed: &cqueue::Entry) -> io::Result<()> {
        let is_send = completed.user_data() & SEND_BIT != 0;
        let Ok(bytes) = usize::try_from(completed.result()) else {
            return Err(io::Error::from_raw_os_error(-completed.result()));
        };
        if !is_send {
            self.receives = false;
            self.has_ended = bytes == 0;
            if bytes > 0
                && let Some(buffer) = self.free.pop_front()
            {
                self.filled.push_back((buffer, bytes, 0));
            }
            return Ok(());
        }
        self.sends = false;
        let mut is_sent = false;
        if let Some((_, length, sent)) = self.filled.front_mut() {
            *sent += bytes;
            is_sent = sent == length;
        }
        if is_sent && let Some((buffer, ..)) = self.filled.pop_front() {
            self.free.push_back(buffer);
        }
        Ok(())
    }
}

/// A buffer's length, as an entry has it.
fn length_of(buffer: &[u8]) -> u32 {
    u32::try_from(buffer.len()).unwrap_or(u32::MAX)
}

/// Adds a call to those that the ring is told of next.
///
/// # Safety
/// What the entry names is there, and nobody else's, until its completion has come.
unsafe fn push(ring: &mut IoUring, entry: &squeue::Entry) -> io::Result<()> {
    // SAFETY: the caller's.
    let pushed = unsafe { ring.submission().push(entry) };
    pushed.map_err(io::Error::other)
}
