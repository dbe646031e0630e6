//! What a connection needs of an endpoint: something to post writes to, which says later what has
//! become of them, and what has come.

use std::fmt;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::abi;
use super::domain::Facts;
use super::registrar::Lent;
use crate::local::memory::Mapping;

/// Completions that are read at once.
pub(super) const BATCH: usize = 16;

/// Where a write's bytes begin.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    /// There in what is sent from.
    Source(usize),
    /// There in memory that has been lent for it, which stays until the write is complete.
    Lent(Arc<Lent>, usize),
}

/// Where a write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    /// The other endpoint.
    pub(super) peer: abi::Address,
    pub(super) address: u64,
    pub(super) key: u64,
}

/// What became of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Posted {
    /// It goes on.
    Yes,
    /// Not now: there is no room, or no connection yet.
    NotNow,
    /// It never will: the error.
    Failed(i32),
}

/// What has happened at an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Completion {
    /// The operation that is complete, or the receive that has been taken.
    pub(super) place: Option<usize>,
    /// The other side has written, and says this; anything that fits.
    pub(super) notice: Option<u64>,
}

/// An endpoint. What an operation refers to until it is complete lives as long as this does.
pub(super) trait Posting: fmt::Debug + Send + Sync {
    /// What its network can do.
    fn facts(&self) -> &Facts;

    /// What is sent from.
    fn source(&self) -> &Arc<Mapping>;

    /// Writes `length` bytes from there, which nobody changes until operation `place` is complete;
    /// no other operation has that place. With `notice`, the other side is told that. With
    /// `delivered`, complete means that the bytes are there.
    fn write(
        &self,
        place: usize,
        from: (&Origin, usize),
        to: Target,
        notice: Option<u32>,
        delivered: bool,
    ) -> Posted;

    /// Writes `bytes`, which the provider takes over: at most as many as it says. With `notice`,
    /// the other side is told.
    fn inject(&self, bytes: &[u8], to: Target, notice: Option<u32>) -> Posted;

    /// Posts receive `place` again.
    fn post_receive(&self, place: usize) -> Posted;

    /// Receives that the provider did not take when the endpoint was opened.
    fn unposted_receives(&self) -> Range<usize> {
        0..0
    }

    /// Takes in completions: how many, or the error of one that failed. With most providers,
    /// nothing goes on unless somebody calls this.
    fn read(&self, into: &mut [Completion; BATCH]) -> Result<usize, i32>;

    /// What to wait for, where there is something.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Whether one may wait for the descriptor: nothing has come that it would not tell of.
    fn may_wait(&self) -> bool;
}
