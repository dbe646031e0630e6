//! What the API promises, and how it answers what it does not allow: two or three sessions in
//! one process, over TCP and over shared memory.

mod arrived;
mod dropped;
mod ends;
mod mismatch;
mod order;
mod peers;
mod sending;
#[path = "../support/mod.rs"]
mod support;
mod switches;
mod threads;
mod within;
