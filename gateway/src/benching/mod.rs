//! Parts of the engine as it uses them, for the benches that time them.

mod handover;
mod instruments;

pub use handover::{Receiving, Sending, pipeline};
pub use instruments::Instruments;
