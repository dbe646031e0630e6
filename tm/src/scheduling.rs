//! Whether a thread that is woken takes the processor from who runs there. Unsafe island: two system
//! calls that the `rustix` crate does not have.

#![allow(unsafe_code)]

use std::marker::PhantomData;

/// How the system schedules the thread that made this: as usual, or with the policy `SCHED_BATCH`. With
/// that, being woken does not take the processor from who runs there: who is woken for each piece of what
/// goes on anyway leaves the other one to finish more of it first, and finds more. (A lone message waits as
/// long, though.)
///
/// A thread that has another policy than the usual one keeps it, as somebody has chosen that.
///
/// ```
/// use madgate_tm::Scheduling;
///
/// let mut scheduling = Scheduling::of_this_thread();
/// scheduling.set_batch(true);
/// // Work through what comes in large amounts.
/// scheduling.set_batch(false);
/// ```
#[derive(Debug)]
pub struct Scheduling {
    may_change: bool,
    is_batch: bool,
    /// It stays on the thread that it is about.
    _thread: PhantomData<*const ()>,
}

impl Scheduling {
    /// As this thread is.
    #[must_use]
    pub fn of_this_thread() -> Self {
        // SAFETY: it only says how the calling thread is scheduled, and takes no memory.
        let policy = unsafe { libc::sched_getscheduler(0) };
        Self {
            may_change: policy == libc::SCHED_OTHER,
            is_batch: false,
            _thread: PhantomData,
        }
    }

    /// Has this thread scheduled like that from now on; a system call where that changes anything. A system
    /// that refuses is not asked again.
    #[inline]
    pub fn set_batch(&mut self, is_batch: bool) {
        if self.may_change && is_batch != self.is_batch {
            self.change(is_batch);
        }
    }

    #[cold]
    fn change(&mut self, is_batch: bool) {
        let policy = if is_batch {
            libc::SCHED_BATCH
        } else {
            libc::SCHED_OTHER
        };
        let none = libc::sched_param { sched_priority: 0 };
        // SAFETY: the call reads one `sched_param`, which lives until it returns, and changes nothing but how
        // the calling thread is scheduled.
        let outcome = unsafe { libc::sched_setscheduler(0, policy, &raw const none) };
        if outcome == 0 {
            self.is_batch = is_batch;
        } else {
            self.may_change = false;
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    /// The policy of this thread, as the kernel says.
    fn policy() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // The name, which may hold anything, ends with the last parenthesis; the state behind it is field 3.
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(41 - 3).unwrap().parse().unwrap()
    }

    #[test]
    fn a_thread_is_scheduled_as_it_is_told() {
        // On a thread of its own.
        std::thread::spawn(|| {
            if policy() != libc::SCHED_OTHER {
                assert!(std::env::var_os("CI").is_none(), "another policy");
                eprintln!("skipped: this process has another scheduling policy than the usual one");
                return;
            }
            let mut scheduling = Scheduling::of_this_thread();
            for (is_batch, wanted) in [
                (false, libc::SCHED_OTHER),
                (true, libc::SCHED_BATCH),
                (true, libc::SCHED_BATCH),
                (false, libc::SCHED_OTHER),
            ] {
                scheduling.set_batch(is_batch);
                assert_eq!(policy(), wanted);
            }
            // What somebody else has chosen stays.
            scheduling.set_batch(true);
            let mut other = Scheduling::of_this_thread();
            for is_batch in [false, true, false] {
                other.set_batch(is_batch);
                assert_eq!(policy(), libc::SCHED_BATCH);
            }
        })
        .join()
        .unwrap();
    }
}
