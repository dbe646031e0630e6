//! What signals do, kept as the program has it. Unsafe island: it asks the system, and tells it.
//!
//! A library that libfabric brings (`libinfinipath`, for cards that are long gone) takes SIGTERM, SIGINT
//! and others over when it is loaded, and ends the process at once when they come: no gateway would
//! drain any more.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// Signals of the standard; those behind them are for programs' own purposes.
const SIGNALS: std::ops::RangeInclusive<c_int> = 1..=31;

/// Does something that may change what signals do, and undoes that. One thread at a time: who came in
/// between would take for the program's what another's action has set.
///
/// A program that sets a handler meanwhile, in another thread, sets it again afterwards.
pub(super) fn keep<R>(action: impl FnOnce() -> R) -> R {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before: Vec<_> = SIGNALS.map(handler).collect();
    let result = action();
    for (signal, before) in SIGNALS.zip(before) {
        let is_other = |now: libc::sigaction| {
            before.is_some_and(|before| before.sa_sigaction != now.sa_sigaction)
        };
        if let Some(before) = before
            && handler(signal).is_some_and(is_other)
        {
            // SAFETY: the system gave this action as that of the signal before, so its handler is one
            // that the program had: it stays, as code does that a handler may be in.
            unsafe { libc::sigaction(signal, &raw const before, ptr::null_mut()) };
        }
    }
    result
}

/// What a signal does; nothing of one that there is not.
fn handler(signal: c_int) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::uninit();
    // SAFETY: nothing is set, and `action` is a place for the answer.
    let error = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: without an error it was written.
    (error == 0).then(|| unsafe { action.assume_init() })
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    extern "C" fn other(_: c_int) {}

    #[test]
    fn a_handler_that_is_taken_over_is_put_back() {
        let signal = libc::SIGURG;
        let before = handler(signal).unwrap().sa_sigaction;
        let taken = keep(|| {
            // SAFETY: the handler does nothing.
            unsafe { libc::signal(signal, other as *const () as usize) };
            handler(signal).unwrap().sa_sigaction
        });
        assert_ne!(taken, before);
        assert_eq!(handler(signal).unwrap().sa_sigaction, before);
        assert!(handler(0).is_none() && handler(10_000).is_none());
    }

    #[test]
    fn threads_do_not_take_each_others_actions_for_the_programs() {
        let signal = libc::SIGWINCH;
        let before = handler(signal).unwrap().sa_sigaction;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        keep(|| {
                            // SAFETY: the handler does nothing.
                            unsafe { libc::signal(signal, other as *const () as usize) };
                            std::thread::yield_now();
                        });
                    }
                });
            }
        });
        assert_eq!(handler(signal).unwrap().sa_sigaction, before);
    }
}
