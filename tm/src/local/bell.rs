//! The Unix socket beside each direction of a lane: it wakes who sleeps, and its end tells
//! that the peer is gone.
//!
//! A socket and not an event counter, because the kernel can be told with each call not to
//! wait: a peer can make the writing of an event counter block.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

/// Reads at most so many times when silencing, whatever the peer sends.
const READS_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct Bell {
    socket: OwnedFd,
}

impl Bell {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Wakes the peer. Failures mean nothing: a full socket rings already, and a closed
    /// one tells by itself.
    pub(crate) fn ring(&self) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        while rustix::net::send(&self.socket, &[1], flags) == Err(Errno::INTR) {}
    }

    /// Takes in what has been rung; whether the peer is still there.
    pub(crate) fn silence(&self) -> bool {
        let mut rung = [0_u8; 64];
        for _ in 0..READS_MAX {
            match rustix::net::recv(&self.socket, &mut rung, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return false,
                Ok((count, _)) if count < rung.len() => return true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    /// Tells the peer that this direction of the lane is over.
    pub(crate) fn close(&self) {
        // One that is gone needs not be told.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
