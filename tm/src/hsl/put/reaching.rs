//! Memory that was not registered when two nodes met, as a card is told of it: at this end to send
//! from, at the other one to write.

use std::fmt;
use std::io;
use std::ops::Range;

use super::descriptor::{Descriptor, PutError};
use super::device::Sending;

/// A card that also reaches memory that was not registered when the two sides met.
pub trait Reaching: Sending {
    /// Memory of this process that is sent from.
    type Source: Source;
    /// Memory of this process that the other side writes.
    type Target: Target;

    /// Bytes that one entry writes at most.
    fn largest(&self) -> u32;

    /// Makes memory ready to be sent from.
    ///
    /// # Errors
    /// When the card cannot be told of it; with the memory.
    fn source(&mut self, bytes: Vec<u8>) -> Result<Self::Source, Refused>;

    /// As [`try_add`](Sending::try_add), for data that is `part` of `source`, which is the card's
    /// until the entry is sent. The entry's `local` and `length` are not looked at.
    ///
    /// # Errors
    /// As `try_add`.
    fn try_add_part(
        &mut self,
        source: &Self::Source,
        part: Range<usize>,
        descriptor: &Descriptor,
    ) -> Result<(), PutError>;

    /// Makes memory ready to be written by the other side.
    ///
    /// # Errors
    /// When the card cannot be told of it; with the memory.
    fn target(&mut self, bytes: Vec<u8>) -> Result<Self::Target, Refused>;

    /// The other side offers this memory of its own, and no other.
    ///
    /// # Errors
    /// When that are more than 64 ranges: then it is none.
    fn offer(&mut self, offered: impl Iterator<Item = Offered>) -> Result<(), PutError>;
}

/// Memory that a card cannot be told of, and why.
pub type Refused = (Vec<u8>, io::Error);

/// Memory of the other side, as it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offered {
    /// The addresses that entries name.
    pub range: Range<u64>,
    /// What the card there calls it.
    pub name: Name,
}

/// What a card calls memory that it was told of after both sides had met; zeros where it needs no
/// name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Name {
    /// Of the registration.
    pub key: u64,
    /// Of the first byte.
    pub address: u64,
}

/// Memory of this process that is sent from: nobody changes it until it is back.
pub trait Source: fmt::Debug + Send {
    /// Bytes that it has.
    fn bytes(&self) -> usize;

    /// It, when all entries that name it are sent.
    fn back(self) -> Vec<u8>;
}

/// Memory of this process that the other side writes: nobody refers to it until it is back. One
/// that is dropped instead, when the other side knows of it, becomes nothing else before that is
/// safe.
pub trait Target: fmt::Debug + Send {
    /// Bytes that it has.
    fn bytes(&self) -> usize;

    /// What the other side is told: the address of its first byte, as entries name it, and what
    /// this side's card calls it.
    fn tell(&mut self) -> (u64, Name);

    /// It, when the other side writes it no more.
    fn back(self) -> Vec<u8>;
}

impl Source for Vec<u8> {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn back(self) -> Vec<u8> {
        self
    }
}
