//! The command as people use it: real processes, real files, and what happens when some of
//! them die.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it is, helpers included"
)]

#[path = "../support/mod.rs"]
mod support;

mod absent;
mod bench;
mod card;
mod containers;
mod copying;
mod demo;
mod dying;
mod full_disk;
mod lacking;
mod pinned;
mod resting;
mod scheduled;
mod slow_disk;
mod sweep;
mod tune;
mod undialled;
mod unequal;
mod unread;
mod usage;
mod watch;
mod world;
