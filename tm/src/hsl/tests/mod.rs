//! PUT over the emulated card, lanes whose peer misbehaves, buffers of the other side that are filled in
//! place, lanes between threads, ports between processes, and the rings and the door under loom.

#[cfg(not(loom))]
mod fuzzing;
#[cfg(not(loom))]
mod hostile;
#[cfg(loom)]
mod loom;
#[cfg(not(loom))]
mod placed;
#[cfg(not(loom))]
mod processes;
#[cfg(not(loom))]
mod put;
#[cfg(not(loom))]
mod threads;

#[cfg(not(loom))]
use super::Mode;

/// All modes. Miri does not know what the handler thread of interrupts sleeps in.
#[cfg(not(loom))]
pub(in crate::hsl) fn modes() -> impl Iterator<Item = Mode> {
    Mode::ALL
        .into_iter()
        .filter(|mode| !cfg!(miri) || *mode != Mode::Interrupt)
}

/// Says what cannot be tried, and why, where it is seen: the standard macros would hide it with
/// the output of a test that passes. Where everything is to be tried, it fails.
#[cfg(not(loom))]
pub(in crate::hsl) fn skip(why: &str) {
    use std::io::Write;
    assert!(std::env::var_os("CI").is_none(), "{why}");
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
