//! How two processes find out that they belong to one session, before anything else is said.
//!
//! Start reading in [`SessionKey`].

mod incarnation;
mod key;
mod random;

pub use incarnation::draw_incarnation;
pub use key::{KEY_BYTES, KeyError, SessionKey};

/// What a link is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkKind {
    /// From endpoint to endpoint, in one hop.
    Regular,
    /// To an engine, which passes on what arrives: from an endpoint, or from another engine.
    Forward,
    /// From the last engine of a route to the destination's endpoint.
    Deliver,
}
