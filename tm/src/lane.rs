//! What every transmission module offers: the traits, and the types that cross them.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::BytesMut;

pub use crate::piece::Piece;
pub use crate::pipe::Pipe;
pub use crate::room::Room;
pub use crate::slot::{LentSlot, ReceivedSlot};

/// The kind of buffers that a transmission module likes to be fed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Any memory of the caller's; up to `gather_limit` pieces in one call. Bytes form a
    /// stream: what is sent as one call may be received as several, and the reverse.
    Dynamic {
        /// How many pieces one call takes at most.
        gather_limit: usize,
    },
    /// Slots that the module lends. A slot is sent and received whole, slots keep the
    /// order in which they were committed.
    Static {
        /// Bytes that one slot holds.
        slot_bytes: usize,
        /// Slots per lane and direction.
        slots: usize,
    },
}

/// Which of a link's two lanes a connection is; the protocol sizes its buffers by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LaneClass {
    /// Promises and small frames: must not wait behind bulk.
    Urgent,
    /// Everything else.
    Bulk,
}

/// One connection after the handshake: a sending and a receiving half, which two threads
/// may own.
#[derive(Debug)]
pub struct Lane {
    /// The half that sends.
    pub sender: Box<dyn LaneSender>,
    /// The half that receives.
    pub receiver: Box<dyn LaneReceiver>,
}

/// The sending half of a lane.
///
/// Dynamic lanes implement [`try_send`](Self::try_send), static lanes
/// [`try_lend`](Self::try_lend) and [`commit`](Self::commit); the other family answers
/// [`LaneError::WrongShape`].
pub trait LaneSender: Send + fmt::Debug {
    /// What this lane likes.
    fn shape(&self) -> Shape;

    /// Dynamic: hands over as many bytes of `pieces`, in order, as the network takes now,
    /// in one system call. `Ok(0)` for a non-empty total means *not now*: wait for
    /// [`Interest::Writable`](crate::Interest) after [`arm`](Self::arm).
    ///
    /// # Errors
    /// When the peer is gone or the connection broke.
    fn try_send(&mut self, pieces: &[Piece<'_>]) -> Result<usize, LaneError>;

    /// Whether [`try_send_pipe`](Self::try_send_pipe) works.
    fn takes_pipes(&self) -> bool {
        false
    }

    /// Dynamic, where [`takes_pipes`](Self::takes_pipes): moves what is in `pipe`, as far as
    /// the network takes it now, without looking at it. `has_more` says that other bytes follow
    /// at once. Returns how many bytes left; fewer than were there means *not now*, as with
    /// [`try_send`](Self::try_send).
    ///
    /// # Errors
    /// As [`try_send`](Self::try_send); [`LaneError::WrongShape`] where pipes do not work.
    fn try_send_pipe(&mut self, pipe: &mut Pipe, has_more: bool) -> Result<usize, LaneError> {
        let _ = (pipe, has_more);
        Err(LaneError::WrongShape("pipes"))
    }

    /// Static: borrows a free slot, or `None` when all are with the peer or lent.
    ///
    /// # Errors
    /// When the peer is gone or broke the protocol of the ring.
    fn try_lend(&mut self) -> Result<Option<LentSlot>, LaneError>;

    /// Static: sends the first `length` bytes of a slot that this lane lent. Slots commit
    /// in any order. A slot that is dropped instead goes back unused.
    ///
    /// # Errors
    /// When the slot is not this lane's, `length` is more than it holds, or the peer is gone.
    fn commit(&mut self, slot: LentSlot, length: usize) -> Result<(), LaneError>;

    /// Static: sends a copy of `unit` in a slot of its own, if one is free: the short way for
    /// what is small. Returns whether it was.
    ///
    /// # Errors
    /// As [`try_send_gathered`](Self::try_send_gathered).
    fn try_send_copy(&mut self, unit: &[u8]) -> Result<bool, LaneError> {
        self.try_send_gathered(&[Piece::new(unit)])
    }

    /// Whether to send is to store in memory, and costs no system call but to wake who sleeps.
    fn only_stores(&self) -> bool {
        false
    }

    /// Whether [`try_send_gathered`](Self::try_send_gathered) sends bytes from where they are. A
    /// lane that does not copies them into a slot.
    fn gathers(&self) -> bool {
        false
    }

    /// Static: sends one unit, which is `pieces` one after the other, in a slot of its own, if one
    /// is free. Returns whether it was; all of the unit has been taken then, and nothing of it
    /// otherwise.
    ///
    /// # Errors
    /// [`LaneError::Misuse`] when they are more than a slot holds, and the lane goes on; else as
    /// [`try_lend`](Self::try_lend) and [`commit`](Self::commit).
    fn try_send_gathered(&mut self, pieces: &[Piece<'_>]) -> Result<bool, LaneError> {
        let Some(mut slot) = self.try_lend()? else {
            return Ok(false);
        };
        let mut length = 0;
        for piece in pieces {
            if slot.capacity() - length < piece.len() {
                return Err(TOO_LONG);
            }
            slot.room(length..).put(*piece);
            length += piece.len();
        }
        self.commit(slot, length)?;
        Ok(true)
    }

    /// Prepares to sleep until the lane takes more. Returns `false` when it can already
    /// (try again instead of sleeping). Costs nothing on protocols whose descriptor tells.
    /// Waits for what the peer does: a lent slot that another thread of this process drops
    /// wakes nobody.
    ///
    /// # Errors
    /// When the peer is gone.
    fn arm(&mut self) -> Result<bool, LaneError>;

    /// The descriptor to wait on for room, and with which interest (see
    /// [`Poller`](crate::Poller)). It is another one than the receiving half's, so that one
    /// poller can wait on both.
    fn descriptor(&self) -> (BorrowedFd<'_>, crate::Interest);

    /// Takes note that the descriptor woke somebody (drains an event counter; nothing on
    /// sockets).
    fn acknowledge_wake(&mut self);
}

/// The receiving half of a lane.
pub trait LaneReceiver: Send + fmt::Debug {
    /// What the other side's sender sends: a stream (dynamic) or slots (static).
    fn shape(&self) -> Shape;

    /// Dynamic: one system call that fills `straight` first and then the spare capacity of
    /// `batch` (whose length grows by what went there; it is never reallocated). Returns
    /// the total; `Ok(0)` means *nothing now* (or no room was given).
    ///
    /// # Errors
    /// [`LaneError::Closed`] when the peer closed the connection in order, other errors
    /// when it broke.
    fn try_receive(&mut self, straight: Room<'_>, batch: &mut BytesMut)
    -> Result<usize, LaneError>;

    /// Whether [`try_receive_pipe`](Self::try_receive_pipe) works.
    fn fills_pipes(&self) -> bool {
        false
    }

    /// Dynamic, where [`fills_pipes`](Self::fills_pipes): moves up to `most` bytes that have
    /// arrived into `pipe`, without looking at them. Returns how many; `Ok(0)` means *nothing
    /// now*, or that the pipe [is full](Pipe::is_full).
    ///
    /// # Errors
    /// As [`try_receive`](Self::try_receive); [`LaneError::WrongShape`] where pipes do not
    /// work.
    fn try_receive_pipe(&mut self, pipe: &mut Pipe, most: usize) -> Result<usize, LaneError> {
        let _ = (pipe, most);
        Err(LaneError::WrongShape("pipes"))
    }

    /// Static: the next committed slot, or `None` when there is none now. The slot goes
    /// back to the peer when it is dropped, from any thread.
    ///
    /// # Errors
    /// [`LaneError::Closed`] when the peer is gone and all that it committed has been
    /// received; [`LaneError::Peer`] when it broke the protocol of the ring.
    fn try_receive_slot(&mut self) -> Result<Option<ReceivedSlot>, LaneError>;

    /// Static: appends the bytes of the next committed slot to `into`, which grows if it has to,
    /// and gives the slot back: the short way for what is small. Returns how many bytes there
    /// were, or `None` when there is no slot now. A lane may give several slots back at once, the
    /// last of them when it is asked again and nothing more has come, or armed.
    ///
    /// # Errors
    /// As [`try_receive_slot`](Self::try_receive_slot).
    fn try_receive_copy(&mut self, into: &mut BytesMut) -> Result<Option<usize>, LaneError> {
        let Some(slot) = self.try_receive_slot()? else {
            return Ok(None);
        };
        let start = into.len();
        into.resize(start + slot.len(), 0);
        slot.copy_out(0, &mut into[start..]);
        Ok(Some(slot.len()))
    }

    /// Whether it is worth receiving: `false` says that nothing is there now, at next to no cost
    /// where the lane has such a way to look. It does not tell of a peer that is gone: receive
    /// now and then, whatever it says.
    fn may_have_arrived(&self) -> bool {
        true
    }

    /// Prepares to sleep until something arrives. Returns `false` when something is there
    /// already (receive instead of sleeping).
    ///
    /// # Errors
    /// When the peer is gone and nothing is left to receive.
    fn arm(&mut self) -> Result<bool, LaneError>;

    /// The descriptor to wait on for arrivals, and with which interest.
    fn descriptor(&self) -> (BorrowedFd<'_>, crate::Interest);

    /// Takes note that the descriptor woke somebody (drains an event counter; nothing on
    /// sockets).
    fn acknowledge_wake(&mut self);

    /// Says that bytes are coming and that waking is not worth it before `bytes` of them
    /// are there (at least 1). Only for bytes that are certain to come: nothing else may be
    /// waiting behind them. Returns whether it does that; a lane that does not wakes at each
    /// arrival.
    ///
    /// # Errors
    /// When the system refuses it.
    fn set_low_water(&mut self, bytes: usize) -> Result<bool, LaneError> {
        let _ = bytes;
        Ok(false)
    }
}

/// Where peers that connect are found.
pub trait Listener: AsFd + Send + fmt::Debug {
    /// The next peer that has connected, or `None` when there is none now.
    ///
    /// # Errors
    /// When the listening socket itself fails; what is wrong with one peer is not an error
    /// here.
    fn try_accept(&mut self) -> io::Result<Option<Box<dyn Stranger>>>;

    /// Where it listens, with the port that the system chose where none was named.
    fn local_endpoint(&self) -> crate::Endpoint;

    /// Whether peers may cease to find it while it listens: they meet in a folder, and somebody may
    /// remove what is there.
    fn can_be_lost(&self) -> bool {
        false
    }

    /// Whether they do not find it any more. It is to be dropped then, and another one to be made.
    fn is_lost(&self) -> bool {
        false
    }
}

/// A connection whose peer has not proved who it is: a pipe for the bytes of a handshake.
///
/// It holds a descriptor and nothing else; buffers come with [`establish`](Self::establish).
/// One that is still connecting answers [`io::ErrorKind::WouldBlock`] until it is.
pub trait Stranger: AsFd + Send + fmt::Debug {
    /// Reads what has arrived. `Ok(0)` means that the peer closed the connection. Ask for
    /// no more than the handshake still has to come: what follows it belongs to the lane.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when nothing is there.
    fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize>;

    /// Writes what the connection takes.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when it takes nothing now; the connection's own error
    /// when connecting failed.
    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Who it is on the network, for people: an address, or a process.
    fn describe(&self) -> String;

    /// Has this side lend and fill no further slot while there are so many `bytes` in those that the other
    /// side has not given back, or as many as [`LEAST_AHEAD`] full slots hold if that is more; what is lent
    /// by then may still be committed. So much is filled ahead of who reads it, and stays in caches if it is
    /// little; small frames still have all slots. Who reads them must not keep so much. Nothing for lanes
    /// without slots, or whose slots are not in the [memory of a host](crate::stays_in_memory).
    fn limit_ahead(&mut self, _bytes: usize) {}

    /// Turns the connection into a lane, now that the handshake is over and every byte of
    /// it has been read.
    ///
    /// # Errors
    /// When the system refuses what the lane needs.
    fn establish(self: Box<Self>, class: LaneClass) -> Result<Box<dyn Establishing>, LaneError>;
}

/// Slots that are filled [however little](Stranger::limit_ahead) is to be filled ahead, if there are as many.
pub const LEAST_AHEAD: usize = 8;

/// What a connection becomes when its handshake is over.
pub(crate) trait Upgrade: Clone + fmt::Debug + Send + 'static {
    /// As [`Stranger::limit_ahead`].
    fn limit_ahead(&mut self, _bytes: usize) {}

    /// Begins to make a lane of it; `connects` on the side that connected.
    ///
    /// # Errors
    /// As [`Stranger::establish`].
    fn establish(
        &self,
        socket: OwnedFd,
        connects: bool,
        class: LaneClass,
    ) -> Result<Box<dyn Establishing>, LaneError>;
}

/// A lane that is being set up (shared memory exchanges descriptors; TCP is ready at once).
pub trait Establishing: AsFd + Send + fmt::Debug {
    /// Goes on as far as it can; `None` means *wait until readable and call again*.
    ///
    /// # Errors
    /// When the peer is gone, or sent something that cannot be a lane.
    fn advance(&mut self) -> Result<Option<Lane>, LaneError>;
}

/// What is to be sent is more than a slot holds.
pub(crate) const TOO_LONG: LaneError = LaneError::Misuse("sent more than a slot holds");

/// Why a lane cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// The peer closed its end, or its process ended.
    #[error("the peer closed the connection")]
    Closed,
    /// The system reports that the connection broke, or that it has no way to make it
    /// ([`Unsupported`](io::ErrorKind::Unsupported)).
    #[error("{}{}", what_broke(.0), .0)]
    Broken(#[from] io::Error),
    /// The peer did something that the protocol does not allow.
    #[error("the peer breaks the {protocol} protocol: {what}")]
    Peer {
        /// The protocol.
        protocol: &'static str,
        /// What it did.
        what: String,
    },
    /// The caller did something that the lane does not allow.
    #[error("wrong use of a lane: {0}")]
    Misuse(&'static str),
    /// The caller asked a dynamic lane for slots, or a static lane for a stream.
    #[error("this lane does not work with {0}")]
    WrongShape(&'static str),
}

/// What was there has broken; what cannot be had was not there.
fn what_broke(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::Unsupported => "",
        _ => "the connection broke: ",
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_has_not_broken() {
        let told = |kind| LaneError::from(io::Error::new(kind, "such and such")).to_string();
        assert_eq!(
            told(io::ErrorKind::TimedOut),
            "the connection broke: such and such"
        );
        assert_eq!(told(io::ErrorKind::Unsupported), "such and such");
    }
}
