//! The bare relay once more, by `io_uring`: what is received into one of two buffers is sent while the
//! next is received. Unsafe island: the kernel is given places in memory.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use crate::bare::{BUFFER_BYTES, Patience};

/// Buffers of each direction.
const BUFFERS: usize = 2;

/// Entries of the ring: each direction has one call of each kind under way.
const ENTRIES: u32 = 8;

/// Relays between two connections until either side closes.
pub(crate) fn relay(near: &TcpStream, far: &TcpStream, patience: &mut Patience) -> io::Result<()> {
    let mut builder = IoUring::builder();
    builder.setup_single_issuer();
    if patience.is_none() {
        // What has completed is looked at when this thread waits for it, and not before.
        builder.setup_defer_taskrun();
    } else {
        // It looks without a call of the ring's, and finds what other calls have brought.
        builder.setup_coop_taskrun();
    }
    let mut ring = builder.build(ENTRIES).map_err(|error| {
        let what = format!("io_uring is not to be had here (Linux 6.1 has all of it): {error}");
        io::Error::new(error.kind(), what)
    })?;
    let mut directions = [Direction::new(0, near, far), Direction::new(1, far, near)];
    loop {
        for direction in &mut directions {
            direction.go_on(&mut ring)?;
        }
        if directions.iter().any(Direction::is_over) {
            return Ok(());
        }
        let looks = patience.looks();
        if !looks || !ring.submission().is_empty() {
            ring.submit_and_wait(usize::from(!looks))?;
        }
        let mut has_completed = false;
        for completed in ring.completion() {
            let index = usize::from(completed.user_data() & DIRECTION_BIT != 0);
            directions[index].complete(&completed)?;
            has_completed = true;
        }
        patience.note(looks, has_completed);
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
            // SAFETY: the socket is open for as long as the ring is (`relay`), and the buffer is never
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
