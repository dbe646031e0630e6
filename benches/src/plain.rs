//! Messages over a bare socket: what a program would write that had nothing but the socket.
//!
//! A message goes as an 8-byte length and its bytes. Small ones leave in batches of
//! [`BATCH_BYTES`]; a large one is written straight from its memory with its header, by one
//! gathering call, and read straight into place, together with the header of the next.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::event::PollFlags;

use crate::ends::MessageEnd;
use crate::waiting::Wait;

/// How much small messages are collected before they are written.
pub const BATCH_BYTES: usize = 64 * 1024;

/// Messages of up to this many bytes are copied into a batch; larger ones are not copied.
pub const LARGEST_BATCHED: usize = 16 * 1024;

const HEADER_BYTES: usize = size_of::<u64>();

/// A connected socket of either kind.
pub trait Socket: Read + Write + AsFd {
    /// See [`TcpStream::set_nonblocking`].
    ///
    /// # Errors
    ///
    /// What the system call fails with.
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()>;
}

impl Socket for TcpStream {
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        TcpStream::set_nonblocking(self, nonblocking)
    }
}

impl Socket for UnixStream {
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        UnixStream::set_nonblocking(self, nonblocking)
    }
}

/// A [`MessageEnd`] over a bare socket.
#[derive(Debug)]
pub struct PlainEnd<S> {
    socket: S,
    wait: Wait,
    /// Small messages that wait to leave together.
    batch: Vec<u8>,
    /// What has been read and not yet looked at is `arrived[taken..filled]`.
    arrived: Vec<u8>,
    taken: usize,
    filled: usize,
}

impl<S: Socket> PlainEnd<S> {
    /// An end over `socket` that waits as `wait` says.
    ///
    /// # Errors
    ///
    /// If the socket cannot be switched to that.
    pub fn new(socket: S, wait: Wait) -> io::Result<Self> {
        socket.set_nonblocking(wait != Wait::Sleep)?;
        Ok(Self {
            socket,
            wait,
            batch: Vec::with_capacity(BATCH_BYTES),
            arrived: vec![0; BATCH_BYTES],
            taken: 0,
            filled: 0,
        })
    }

    /// Reads until at least `wanted` bytes wait to be looked at.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        if self.filled - self.taken >= wanted {
            return Ok(());
        }
        self.arrived.copy_within(self.taken..self.filled, 0);
        self.filled -= self.taken;
        self.taken = 0;
        while self.filled < wanted {
            let space = &mut self.arrived[self.filled..];
            self.filled += self
                .wait
                .until(&mut self.socket, PollFlags::IN, |socket| socket.read(space))
                .and_then(some)?;
        }
        Ok(())
    }

    /// Takes the header of the next message, which must say `length`.
    fn take_header(&mut self, length: usize) -> io::Result<()> {
        self.fill(HEADER_BYTES)?;
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&self.arrived[self.taken..self.taken + HEADER_BYTES]);
        self.taken += HEADER_BYTES;
        let says = u64::from_le_bytes(header);
        if says == length as u64 {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "a message of {says} bytes came where one of {length} was due"
        )))
    }

    /// Fills `message` with what has been read, and with the rest straight from the socket;
    /// the header of the next message comes along.
    fn receive_straight(&mut self, message: &mut [u8]) -> io::Result<()> {
        let early = (self.filled - self.taken).min(message.len());
        message[..early].copy_from_slice(&self.arrived[self.taken..self.taken + early]);
        self.taken += early;
        if early == message.len() {
            return Ok(());
        }
        (self.taken, self.filled) = (0, 0);
        let mut done = early;
        while done < message.len() {
            let mut places = [
                IoSliceMut::new(&mut message[done..]),
                IoSliceMut::new(&mut self.arrived[..HEADER_BYTES]),
            ];
            done += self
                .wait
                .until(&mut self.socket, PollFlags::IN, |socket| {
                    socket.read_vectored(&mut places)
                })
                .and_then(some)?;
        }
        self.filled = done - message.len();
        Ok(())
    }
}

impl<S: Socket> MessageEnd for PlainEnd<S> {
    #[inline]
    fn send(&mut self, message: &mut [u8]) -> io::Result<()> {
        let header = (message.len() as u64).to_le_bytes();
        if message.len() > LARGEST_BATCHED {
            self.flush()?;
            return write_all(&mut self.socket, self.wait, &header, message);
        }
        if self.batch.len() + HEADER_BYTES + message.len() > BATCH_BYTES {
            self.flush()?;
        }
        self.batch.extend_from_slice(&header);
        self.batch.extend_from_slice(message);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        write_all(&mut self.socket, self.wait, &self.batch, &[])?;
        self.batch.clear();
        Ok(())
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> io::Result<()> {
        self.take_header(message.len())?;
        if message.len() > LARGEST_BATCHED {
            return self.receive_straight(message);
        }
        self.fill(message.len())?;
        message.copy_from_slice(&self.arrived[self.taken..self.taken + message.len()]);
        self.taken += message.len();
        Ok(())
    }
}

/// Writes `front` and then `back`, gathered.
fn write_all<S: Socket>(
    socket: &mut S,
    wait: Wait,
    mut front: &[u8],
    mut back: &[u8],
) -> io::Result<()> {
    while !front.is_empty() || !back.is_empty() {
        let pieces = [IoSlice::new(front), IoSlice::new(back)];
        let written = wait
            .until(socket, PollFlags::OUT, |socket| {
                socket.write_vectored(&pieces)
            })
            .and_then(some)?;
        let of_front = written.min(front.len());
        front = &front[of_front..];
        back = &back[written - of_front..];
    }
    Ok(())
}

/// No bytes at all means that the other side has closed.
fn some(count: usize) -> io::Result<usize> {
    match count {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::ends::{run_ping, run_pong, run_sink, run_source};

    const WAITS: [Wait; 3] = [Wait::Sleep, Wait::Adaptive, Wait::Spin];

    #[test]
    fn a_stream_arrives_as_sent_whatever_its_messages() {
        for wait in WAITS {
            for bytes in [8, 1000, LARGEST_BATCHED, LARGEST_BATCHED + 1, 1 << 20] {
                let (left, right) = UnixStream::pair().unwrap();
                let source = thread::spawn(move || {
                    let mut end = PlainEnd::new(left, wait)?;
                    run_source(&mut end, bytes, Duration::from_millis(10))
                });
                let mut end = PlainEnd::new(right, wait).unwrap();
                let report = run_sink(&mut end, bytes, Duration::ZERO, true).unwrap();
                source.join().unwrap().unwrap();
                assert!(report.total_bytes >= report.messages * bytes as u64);
                assert!(report.total_bytes > 0);
            }
        }
    }

    #[test]
    fn a_ping_comes_back() {
        for wait in WAITS {
            for bytes in [8, 1 << 20] {
                let (left, right) = UnixStream::pair().unwrap();
                let pong = thread::spawn(move || run_pong(&mut PlainEnd::new(left, wait)?, bytes));
                let mut end = PlainEnd::new(right, wait).unwrap();
                let report =
                    run_ping(&mut end, bytes, Duration::ZERO, Duration::from_millis(10)).unwrap();
                pong.join().unwrap().unwrap();
                assert!(report.round_trips > 0);
            }
        }
    }

    #[test]
    fn another_length_than_was_due_is_an_error() {
        let (left, right) = UnixStream::pair().unwrap();
        let mut left = PlainEnd::new(left, Wait::Sleep).unwrap();
        let mut right = PlainEnd::new(right, Wait::Sleep).unwrap();
        left.send(&mut [0; 8]).unwrap();
        left.flush().unwrap();
        let error = right.receive(&mut [0; 9]).unwrap_err();
        assert!(error.to_string().contains("8 bytes"), "{error}");
    }
}
