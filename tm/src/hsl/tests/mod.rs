//! PUT over the emulated card, lanes whose peer misbehaves, and the rings and the door under
//! loom.

#[cfg(not(loom))]
mod fuzzing;
#[cfg(not(loom))]
mod hostile;
#[cfg(loom)]
mod loom;
#[cfg(not(loom))]
mod put;
