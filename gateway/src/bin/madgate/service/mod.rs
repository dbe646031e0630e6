//! Service.
pub(crate) mod envelope;
