//! The system calls of a TCP lane. Unsafe island: gather and scatter lists straight
//! from the callers' memory, spare capacity included.

#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use bytes::BytesMut;

use super::GATHER_LIMIT;
use crate::piece::Piece;
use crate::room::Room;

/// Sends what the socket takes of `pieces` (of the first [`GATHER_LIMIT`]), in one call.
pub(super) fn send(socket: BorrowedFd<'_>, pieces: &[Piece<'_>]) -> io::Result<usize> {
    const FLAGS: libc::c_int = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    let pieces = &pieces[..pieces.len().min(GATHER_LIMIT)];
    // `Piece` is `repr(transparent)` over `iovec` (asserted beside it).
    let vectors = pieces.as_ptr().cast::<libc::iovec>();
    let sent = if let [piece] = pieces {
        // SAFETY: the descriptor is open for as long as it is borrowed. The piece is valid
        // for reads of its length (the invariant of `Piece`); the kernel only reads it, and
        // minds no racing writes.
        unsafe {
            libc::send(
                socket.as_raw_fd(),
                piece.as_ptr().cast(),
                piece.len(),
                FLAGS,
            )
        }
    } else {
        // SAFETY: `msghdr` is plain data of integers and pointers, for which zero is valid
        // (no name, no control data, no flags).
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = vectors.cast_mut();
        message.msg_iovlen = pieces.len() as _;
        // SAFETY: as above, for each of the vectors, which with `message` live through the
        // call.
        unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, FLAGS) }
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives into `straight`, then into the spare capacity of `batch`, in one call.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    mut straight: Room<'_>,
    batch: &mut BytesMut,
) -> io::Result<usize> {
    let spare = batch.spare_capacity_mut();
    let received = if straight.is_empty() {
        // SAFETY: the descriptor is open for as long as it is borrowed, and non-blocking. The
        // memory is exclusively borrowed here and lives through the call, valid for writes of
        // its length; the kernel writes bytes, which need no alignment and may be anything.
        // (For one piece of memory this call is the cheaper one.)
        unsafe {
            libc::recv(
                socket.as_raw_fd(),
                spare.as_mut_ptr().cast(),
                spare.len(),
                0,
            )
        }
    } else {
        let vectors = [
            libc::iovec {
                iov_base: straight.as_mut_ptr().cast(),
                iov_len: straight.len(),
            },
            libc::iovec {
                iov_base: spare.as_mut_ptr().cast(),
                iov_len: spare.len(),
            },
        ];
        // SAFETY: as above, for both pieces of memory, which the vectors name; `straight` is valid
        // for writes of its length (the invariant of `Room`), and the kernel minds no racing accesses.
        unsafe { libc::readv(socket.as_raw_fd(), vectors.as_ptr(), 2) }
    };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let into_batch = received.saturating_sub(straight.len());
    // SAFETY: the kernel filled `straight` first and wrote the rest of what it received to
    // the start of the spare capacity, which therefore is initialised so far and is at
    // least so long.
    unsafe { batch.set_len(batch.len() + into_batch) };
    Ok(received)
}

/// Lets the descriptor become readable only when `bytes` are there.
pub(super) fn set_receive_low_water(socket: BorrowedFd<'_>, bytes: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as it is borrowed; the option is an
    // integer, which lives through the call, and its size is given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast::<libc::c_void>(),
            SIZE_OF_INT,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[allow(clippy::cast_possible_truncation, reason = "four")]
const SIZE_OF_INT: libc::socklen_t = mem::size_of::<libc::c_int>() as libc::socklen_t;
