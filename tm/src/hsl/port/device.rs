//! What ports are made over.

use std::fmt;
use std::os::fd::BorrowedFd;

use crate::hsl::put::{Device, Reaching};
use crate::poller::Interest;

/// A kind of card that ports are made over.
pub trait PortDevice: Device<Sending: Reaching> {
    /// What both sides have in common beside memory: when it is dropped, the other side learns
    /// of it.
    type Link: Link;
}

/// What the two sides of a port have in common beside memory.
pub trait Link: fmt::Debug + Send {
    /// What a sleeper waits for.
    fn descriptor(&self) -> (BorrowedFd<'_>, Interest);
}
