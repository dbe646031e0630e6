//! Pipes: buffers of the kernel's, for bytes that pass through without being looked at.
//!
//! What a socket has received can be moved into a pipe, and from there to another socket,
//! without being copied: only references to the kernel's own memory move. A pipe is a buffer
//! like any other, only that its bytes leave it in order, once, and that reading them into
//! memory costs the copy that it was there to save.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};

/// Bytes that a pipe is asked to hold at most. Where the system is as shipped, ordinary users are
/// refused more than 1 MiB.
pub const CAPACITY_MOST: usize = 4 << 20;

/// Bytes that an ordinary user may ask for, where the system is as shipped.
const ORDINARY_MOST: usize = 1 << 20;

/// The kernel counts pages, and a page may hold little of what a network brings in small
/// packets: a pipe is asked to hold this many times the bytes that it is for.
const SPARE: usize = 3;

/// Pipes that are used again and again, `most` of them at a time.
#[derive(Debug, Clone)]
pub struct Pipes(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    most: usize,
    /// Bytes that one may be asked to hold. What was refused is not asked for again until pipes have
    /// not been used for a while.
    capacity_most: AtomicUsize,
    /// Pipes that exist, idle or not.
    made: AtomicUsize,
    idle: Mutex<Vec<Ends>>,
}

#[derive(Debug)]
struct Ends {
    read: OwnedFd,
    write: OwnedFd,
    capacity: usize,
}

/// A pipe that is in use. When it is dropped it is there for the next user; what it still
/// holds is lost.
#[derive(Debug)]
pub struct Pipe {
    /// `None` only while it is dropped.
    ends: Option<Ends>,
    pool: Arc<Pool>,
    /// Bytes in it.
    length: usize,
    /// Bytes that have left it.
    taken: usize,
}

impl Pipes {
    /// No pipes yet, and never more than `most`.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Pool {
            most,
            capacity_most: AtomicUsize::new(CAPACITY_MOST),
            made: AtomicUsize::new(0),
            idle: Mutex::default(),
        }))
    }

    /// An empty pipe for so many bytes; `None` when all are in use. One may be full before it
    /// holds them ([`Pipe::is_full`]), or hold more than its capacity: the kernel counts pages,
    /// and what networks bring often comes in larger pieces.
    ///
    /// # Errors
    /// When the system has none to give: no descriptors, or the user's limit for pipes is
    /// reached, or too low for a pipe that large, or for one of 1 MiB.
    pub fn take(&self, bytes: usize) -> io::Result<Option<Pipe>> {
        let idle = self.0.idle().pop();
        let mut ends = match idle {
            Some(ends) => ends,
            None => match self.0.make()? {
                Some(ends) => ends,
                None => return Ok(None),
            },
        };
        ends.grow(bytes.saturating_mul(SPARE), &self.0.capacity_most);
        if ends.capacity < bytes.min(ORDINARY_MOST) {
            self.0.idle().push(ends);
            return Err(io::Error::other("the user may have no pipe that large"));
        }
        Ok(Some(Pipe {
            ends: Some(ends),
            pool: Arc::clone(&self.0),
            length: 0,
            taken: 0,
        }))
    }

    /// Whether there are any, in use or not.
    #[must_use]
    pub fn are_there(&self) -> bool {
        self.0.made.load(Ordering::Relaxed) > 0
    }

    /// Gives those that are not in use back to the system.
    pub fn close_idle(&self) {
        let idle = std::mem::take(&mut *self.0.idle());
        self.0.made.fetch_sub(idle.len(), Ordering::Relaxed);
        // What all pipes of a user hold together has a limit as well, of which others may have let go.
        self.0.capacity_most.store(CAPACITY_MOST, Ordering::Relaxed);
    }
}

impl Pool {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Ends>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self) -> io::Result<Option<Ends>> {
        let has_room = |made: usize| (made < self.most).then(|| made + 1);
        let counted = self
            .made
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room);
        if counted.is_err() {
            return Ok(None);
        }
        let made = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
        let (read, write) = made.inspect_err(|_| self.forget_one())?;
        let capacity =
            rustix::pipe::fcntl_getpipe_size(&write).inspect_err(|_| self.forget_one())?;
        Ok(Some(Ends {
            read,
            write,
            capacity,
        }))
    }

    fn forget_one(&self) {
        self.made.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Ends {
    /// Asks for so much more capacity, or for as much of it as users may have.
    fn grow(&mut self, wanted: usize, most: &AtomicUsize) {
        for may_retry in [true, false] {
            let capacity = wanted.min(most.load(Ordering::Relaxed));
            if self.capacity >= capacity {
                return;
            }
            match rustix::pipe::fcntl_setpipe_size(&self.write, capacity) {
                Ok(capacity) => self.capacity = capacity,
                Err(_) if may_retry && capacity > ORDINARY_MOST => {
                    most.store(ORDINARY_MOST, Ordering::Relaxed);
                }
                Err(_) => return,
            }
        }
    }
}

impl Pipe {
    /// Bytes that are in it.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether none are.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes that have left it since it was taken.
    #[must_use]
    pub const fn taken(&self) -> usize {
        self.taken
    }

    /// Puts bytes in that are in memory; they are copied. Returns how many found room.
    ///
    /// # Errors
    /// Those of the system.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = not_now_is_zero(|| rustix::io::write(&self.ends().write, bytes))?;
        self.length += written;
        Ok(written)
    }

    /// Takes bytes out into memory. Returns how many came; all that fit, if as many are there.
    ///
    /// # Errors
    /// Those of the system.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut total = 0;
        while total < into.len() && self.length > 0 {
            let rest = &mut into[total..];
            let read = not_now_is_zero(|| rustix::io::read(&self.ends().read, &mut *rest))?;
            if read == 0 {
                break;
            }
            total += read;
            self.note_taken(read);
        }
        Ok(total)
    }

    /// Moves up to `most` bytes in that `from`, a socket, has received. `Ok(None)` when it has
    /// none or there is no room ([`is_full`](Self::is_full) tells which); `Ok(Some(0))` when
    /// there will be no more.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn fill_from(&mut self, from: impl AsFd, most: usize) -> io::Result<Option<usize>> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let moved = splice(from.as_fd(), &self.ends().write, most, flags)?;
        self.length += moved.unwrap_or(0);
        Ok(moved)
    }

    /// Moves up to `most` of its bytes to `to`, a socket; `has_more` if others follow at once.
    /// Returns how many the socket took. Where the peer is gone the kernel sends SIGPIPE as well,
    /// which Rust's programs ignore from the start.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn drain_to(&mut self, to: impl AsFd, most: usize, has_more: bool) -> io::Result<usize> {
        let mut flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        if has_more {
            flags |= SpliceFlags::MORE;
        }
        let moved = splice(&self.ends().read, to.as_fd(), most.min(self.length), flags)?;
        let moved = moved.unwrap_or(0);
        self.note_taken(moved);
        Ok(moved)
    }

    /// Whether nothing more fits now, however few bytes are in it.
    #[must_use]
    pub fn is_full(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let ends = self.ends();
        let mut looked = [PollFd::new(&ends.write, PollFlags::OUT)];
        let none = Timespec::default();
        // What cannot be asked is taken for full: it is emptied then, which always helps.
        poll(&mut looked, Some(&none)).is_err() || !looked[0].revents().contains(PollFlags::OUT)
    }

    fn note_taken(&mut self, bytes: usize) {
        self.length -= bytes.min(self.length);
        self.taken += bytes;
    }

    fn ends(&self) -> &Ends {
        match &self.ends {
            Some(ends) => ends,
            None => unreachable!("a pipe is only without its ends while it is dropped"),
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        match self.ends.take() {
            Some(ends) if self.length == 0 => self.pool.idle().push(ends),
            // What is in it belongs to nobody any more.
            _ => self.pool.forget_one(),
        }
    }
}

/// `None` stands for "not now".
fn splice(
    from: impl AsFd,
    to: impl AsFd,
    most: usize,
    flags: SpliceFlags,
) -> io::Result<Option<usize>> {
    loop {
        match rustix::pipe::splice(&from, None, &to, None, most, flags) {
            Ok(moved) => return Ok(Some(moved)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn not_now_is_zero(mut call: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Ok(count) => return Ok(count),
            Err(error) => match io::Error::from(error).kind() {
                ErrorKind::WouldBlock => return Ok(0),
                ErrorKind::Interrupted => {}
                _ => return Err(error.into()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn bytes_pass_in_order_without_memory_of_ours() {
        let (mut source, from) = UnixStream::pair().unwrap();
        let (to, mut sink) = UnixStream::pair().unwrap();
        from.set_nonblocking(true).unwrap();
        to.set_nonblocking(true).unwrap();
        let pipes = Pipes::new(1);
        let mut pipe = pipes.take(100).unwrap().unwrap();
        assert_eq!(pipe.fill_from(&from, 100).unwrap(), None, "nothing there");
        assert!(!pipe.is_full());
        assert_eq!(pipe.write(b"head ").unwrap(), 5);
        source.write_all(b"body and more").unwrap();
        assert_eq!(pipe.fill_from(&from, 4).unwrap(), Some(4));
        assert_eq!((pipe.len(), pipe.taken()), (9, 0));
        assert_eq!(pipe.drain_to(&to, 2, true).unwrap(), 2);
        assert_eq!(pipe.drain_to(&to, 100, false).unwrap(), 7);
        assert_eq!((pipe.len(), pipe.taken()), (0, 9));
        let mut arrived = [0; 9];
        sink.read_exact(&mut arrived).unwrap();
        assert_eq!(&arrived, b"head body");
        drop(source);
        assert_eq!(pipe.fill_from(&from, 100).unwrap(), Some(9));
        assert_eq!(pipe.fill_from(&from, 100).unwrap(), Some(0), "the end");
        let mut rest = [0; 20];
        assert_eq!(pipe.read(&mut rest).unwrap(), 9);
        assert_eq!(&rest[..9], b" and more");
    }

    #[test]
    fn a_pool_gives_as_many_as_it_may_and_empty_ones() {
        let pipes = Pipes::new(2);
        let mut first = pipes.take(100).unwrap().unwrap();
        let second = pipes.take(100).unwrap().unwrap();
        assert!(pipes.take(100).unwrap().is_none());
        first.write(b"left behind").unwrap();
        drop(first);
        let mut third = pipes.take(100).unwrap().unwrap();
        assert_eq!(third.read(&mut [0; 20]).unwrap(), 0);
        drop(second);
        assert!(pipes.take(100).unwrap().is_some());
        assert!(pipes.are_there());
        pipes.close_idle();
        assert!(pipes.are_there(), "one is in use");
        drop(third);
        pipes.close_idle();
        assert!(!pipes.are_there());
    }

    #[test]
    fn what_the_system_refuses_is_not_asked_for_until_pipes_rest() {
        let pipes = Pipes::new(1);
        let most = &pipes.0.capacity_most;
        let mut ends = pipes.0.make().unwrap().unwrap();
        most.store(usize::MAX, Ordering::Relaxed);
        ends.grow(1 << 50, most);
        assert_eq!(ends.capacity, ORDINARY_MOST);
        assert_eq!(most.load(Ordering::Relaxed), ORDINARY_MOST);
        pipes.close_idle();
        assert_eq!(most.load(Ordering::Relaxed), CAPACITY_MOST);
    }

    #[test]
    fn a_pipe_for_more_than_users_may_have_is_as_large_as_they_may_have() {
        let pipes = Pipes::new(1);
        pipes
            .0
            .capacity_most
            .store(ORDINARY_MOST, Ordering::Relaxed);
        let pipe = pipes.take(ORDINARY_MOST + 1).unwrap().unwrap();
        assert_eq!(pipe.ends().capacity, ORDINARY_MOST);
    }

    #[test]
    fn a_pipe_says_when_it_is_full() {
        let pipes = Pipes::new(1);
        let mut pipe = pipes.take(100).unwrap().unwrap();
        let much = vec![7; CAPACITY_MOST + 1];
        let written = pipe.write(&much).unwrap();
        assert!(written < much.len());
        assert!(pipe.is_full());
        assert_eq!(pipe.read(&mut vec![0; CAPACITY_MOST]).unwrap(), written);
        assert!(!pipe.is_full());
    }
}
