//! The two halves of a TCP lane.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};

use bytes::BytesMut;
use socket2::Socket;

use super::{GATHER_LIMIT, sys};
use crate::lane::{
    LaneError, LaneReceiver, LaneSender, LentSlot, Piece, Pipe, ReceivedSlot, Room, Shape,
};
use crate::poller::Interest;

const SHAPE: Shape = Shape::Dynamic {
    gather_limit: GATHER_LIMIT,
};

#[derive(Debug)]
pub(super) struct TcpSender {
    socket: Socket,
}

impl TcpSender {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket }
    }
}

impl Drop for TcpSender {
    fn drop(&mut self) {
        // The receiving half has a descriptor of its own: say that nothing more comes. A
        // connection that is gone already needs not be told.
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }
}

impl LaneSender for TcpSender {
    fn shape(&self) -> Shape {
        SHAPE
    }

    fn try_send(&mut self, pieces: &[Piece<'_>]) -> Result<usize, LaneError> {
        not_now_is_zero(|| sys::send(self.socket.as_fd(), pieces))
    }

    fn takes_pipes(&self) -> bool {
        true
    }

    fn try_send_pipe(&mut self, pipe: &mut Pipe, has_more: bool) -> Result<usize, LaneError> {
        let most = pipe.len();
        not_now_is_zero(|| pipe.drain_to(&self.socket, most, has_more))
    }

    fn try_lend(&mut self) -> Result<Option<LentSlot>, LaneError> {
        Err(LaneError::WrongShape("lent slots"))
    }

    fn commit(&mut self, _slot: LentSlot, _length: usize) -> Result<(), LaneError> {
        Err(LaneError::WrongShape("lent slots"))
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        Ok(true)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.socket.as_fd(), Interest::Writable)
    }

    fn acknowledge_wake(&mut self) {}
}

#[derive(Debug)]
pub(super) struct TcpReceiver {
    socket: Socket,
    /// None, where each arrival wakes.
    low_water: Option<usize>,
}

impl TcpReceiver {
    pub(super) fn new(socket: Socket, has_low_water: bool) -> Self {
        Self {
            socket,
            low_water: has_low_water.then_some(1),
        }
    }
}

impl LaneReceiver for TcpReceiver {
    fn shape(&self) -> Shape {
        SHAPE
    }

    fn try_receive(
        &mut self,
        mut straight: Room<'_>,
        batch: &mut BytesMut,
    ) -> Result<usize, LaneError> {
        if straight.is_empty() && batch.len() == batch.capacity() {
            return Ok(0);
        }
        let mut ended = false;
        let received = not_now_is_zero(|| {
            let received = sys::receive(self.socket.as_fd(), straight.reborrow(), batch)?;
            ended = received == 0;
            Ok(received)
        })?;
        if ended {
            Err(LaneError::Closed)
        } else {
            Ok(received)
        }
    }

    fn fills_pipes(&self) -> bool {
        true
    }

    fn try_receive_pipe(&mut self, pipe: &mut Pipe, most: usize) -> Result<usize, LaneError> {
        let mut ended = false;
        let moved = not_now_is_zero(|| {
            let moved = pipe.fill_from(&self.socket, most)?;
            ended = moved == Some(0) && most > 0;
            Ok(moved.unwrap_or(0))
        })?;
        if ended {
            Err(LaneError::Closed)
        } else {
            Ok(moved)
        }
    }

    fn try_receive_slot(&mut self) -> Result<Option<ReceivedSlot>, LaneError> {
        Err(LaneError::WrongShape("received slots"))
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        Ok(true)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.socket.as_fd(), Interest::Readable)
    }

    fn acknowledge_wake(&mut self) {}

    fn set_low_water(&mut self, bytes: usize) -> Result<bool, LaneError> {
        let bytes = bytes.max(1);
        let Some(low_water) = &mut self.low_water else {
            return Ok(false);
        };
        if bytes != *low_water {
            let wanted = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
            sys::set_receive_low_water(self.socket.as_fd(), wanted)?;
            *low_water = bytes;
        }
        Ok(true)
    }
}

/// Repeats what a signal interrupted; *would block* is zero; a connection that the peer
/// closed before is [`LaneError::Closed`].
fn not_now_is_zero(mut call: impl FnMut() -> io::Result<usize>) -> Result<usize, LaneError> {
    loop {
        match call() {
            Ok(count) => return Ok(count),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return Ok(0),
                ErrorKind::Interrupted => {}
                ErrorKind::BrokenPipe => return Err(LaneError::Closed),
                _ => return Err(LaneError::Broken(error)),
            },
        }
    }
}
