//! Buffer management: how what is to be sent becomes the buffers that a network likes.
//!
//! Paper 003 (section 2.1.1) puts a *buffer management module* in front of every
//! transmission module: some networks take any memory (*dynamic* buffers), some only their
//! own (*static* buffers), and some gain from several pieces handed over at once. Which
//! module serves a lane follows from the lane's [`Shape`](madgate_tm::Shape) alone, so all
//! protocols that like the same shape share one.
//!
//! ```text
//!                             ┌ dynamic: refers to the memory ──> try_send(pieces)
//!   push(Buffer) ──> Outbox ──┤
//!                             └ static: copies into a lent slot ──> commit(slot)
//!                                       large, where lanes can ───> try_send_gathered(pieces)
//!
//!                               eager: one buffer at a time
//!                               gathering: as many as there are
//! ```
//!
//! - [`Buffer`]: what is sent: a few bytes of head, and a body in the sender's memory, in a
//!   slot that arrived (sent on without a copy), or in a slot of the outgoing lane (filled
//!   before, so that sending is only its commit);
//! - [`Outbox`]: the queue in front of one lane; its [`Counters`] say which copies were made.

#![forbid(unsafe_code)]

mod buffer;
mod dynamic;
mod outbox;
mod slots;
#[cfg(test)]
mod tests;

pub use buffer::{Body, Buffer, HEAD_BYTES};
pub use outbox::{Borrowed, Copies, Counters, Flushed, Outbox, OutboxError, Policy};
