//! What the fuzz targets do, so that plain tests can replay their corpora.
//!
//! A target is a function from any bytes to nothing, which panics where it finds something
//! wrong. `fuzz/fuzz_targets/` has a few lines for each, `fuzz/corpus/` what was found
//! interesting.

mod flows;
mod gateway;
mod replay;
#[cfg(test)]
mod tests;
mod wire;

pub use flows::{incoming, outgoing, reassembly};
pub use gateway::transit;
pub use replay::replay;
pub use wire::{descriptor, header, opening};

use crate::wire::{HEADER_BYTES, Header};

/// A target.
pub type Target = fn(&[u8]);

/// Every target by its name.
pub const TARGETS: [(&str, Target); 7] = [
    ("descriptor", descriptor),
    ("header", header),
    ("incoming", incoming),
    ("opening", opening),
    ("outgoing", outgoing),
    ("reassembly", reassembly),
    ("transit", transit),
];

/// Bytes that are used up from the front.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A header that can be; bytes that are none are skipped.
    fn header(&mut self) -> Option<Header> {
        let (bytes, rest) = self.0.split_first_chunk::<HEADER_BYTES>()?;
        self.0 = rest;
        Header::parse(bytes).ok()
    }

    fn take(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }
}
