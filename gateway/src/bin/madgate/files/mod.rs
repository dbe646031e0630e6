//! Copying files and folders to another node, over messages. Knows nothing of the command
//! line, and nothing of sessions: messages come in and go out as values.
//!
//! ```text
//!  walk ──> read: chunks, digest ══bounded══> send ──requests──> receive ──> temporary files
//!                                              ^                    │          settle: sync,
//!                                              └──── replies ───────┘          rename, sync
//! ```
//!
//! Start reading in [`wire`], then [`send`] and [`receive`]. What keeps everything beneath
//! the served folder is in [`path`] and [`root`]; what keeps half files from final names in
//! [`temporary`], and what takes away those of a killed server in [`sweep`].

pub(crate) mod path;
pub(crate) mod read;
pub(crate) mod receive;
pub(crate) mod root;
pub(crate) mod send;
pub(crate) mod settle;
pub(crate) mod sweep;
pub(crate) mod temporary;
#[cfg(test)]
mod tests;
pub(crate) mod walk;
pub(crate) mod wire;
