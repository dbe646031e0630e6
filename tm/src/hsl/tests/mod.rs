//! PUT over the emulated card, lanes whose peer misbehaves, ports between processes, and the rings
//! and the door under loom.

#[cfg(not(loom))]
mod fuzzing;
#[cfg(not(loom))]
mod hostile;
#[cfg(loom)]
mod loom;
#[cfg(not(loom))]
mod processes;
#[cfg(not(loom))]
mod put;

/// Says what cannot be tried, and why, where it is seen: the standard macros would hide it with
/// the output of a test that passes. Where everything is to be tried, it fails.
#[cfg(not(loom))]
pub(in crate::hsl) fn skip(why: &str) {
    use std::io::Write;
    assert!(std::env::var_os("CI").is_none(), "{why}");
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
