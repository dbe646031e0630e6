//! TCP: dynamic buffers, gather writes, bounded unsent bytes.
//!
//! A lane is a connection. Its sender hands pieces to `sendmsg`, its receiver fills the
//! caller's memory with `readv`, and that is all that stands between the caller and the
//! kernel. What the kernel holds unsent is bounded (`TCP_NOTSENT_LOWAT`): bytes in its
//! buffer cannot be overtaken. Within one host nothing is paced (`congestion`).

mod buffers;
mod congestion;
mod lane;
mod rendezvous;
mod sys;

#[cfg(test)]
mod tests;

pub(crate) use rendezvous::{connect, connect_for, listen, listen_for};

/// The largest frame that a TCP link carries: a limit of sense, not of the protocol.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// How many pieces one call gathers at most (the system's `IOV_MAX` is 1024; beyond this
/// the kernel's own work per piece outweighs the call that is saved).
pub const GATHER_LIMIT: usize = 256;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 1024;

/// Addresses of one host name that are tried.
const ADDRESSES_MAX: usize = 8;
