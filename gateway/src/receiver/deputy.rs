//! Deputies: while much comes by a network, the thread of the next one stands in for its own.
//!
//! A thread that is woken may have to wait for a processor: where the one that it ran on last is taken, and
//! another one falls idle a moment later, the system leaves it where it is, as it ran there not long ago.
//! With few processors that is most of the time. So two threads are woken for what comes, which as a rule ran
//! in different places, and whichever runs first receives it:
//!
//! ```text
//!            own thread                             deputy (the next network's thread)
//!   asks ──> lets go of the receiver ······┐ ┌····· sleeps in its berth
//!            sleeps in its berth           │ │
//!                 │              what comes wakes both
//!         waits for a processor            │ └────> takes the receiver, receives until nothing comes,
//!                 │                        │        or for some turns
//!         takes the receiver, or waits for it <──── lets go of it
//! ```
//!
//! A deputy goes after a part of a window ([`Stint`]): where its processor is that of who reads what it passes on,
//! that one waits meanwhile, and a source that has sent a whole window waits for it.
//!
//! Deputies are asked for what comes back too, where much leaves: the next window is in it.
//!
//! To be woken twice is little for what comes in large amounts, and much for a small message: nobody is asked
//! when nothing large has come for a while, nor where something has gone through pipes lately.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use madgate_tm::{Interest, Poller, Waker};

use super::crew::{Crew, Post};
use super::{Look, Receiver, UNEASE};

/// Turns in a row that a deputy takes at most: what comes by its own network waits as long.
const TURNS: u64 = 8;

/// What comes in pieces of so many bytes is large for a deputy: whole fragments of 64 KiB, and some that are not.
const LARGE_BYTES: u64 = 48 << 10;

/// Payloads of which size on have windows three times as wide where they go to memory.
const WIDE_BYTES: u64 = 96 << 10;

/// What a berth tells of: its own network has something,
const OWN: u64 = 0;
/// or the one before it has.
const BEFORE: u64 = 1;

/// Where a thread sleeps without its receiver.
#[derive(Debug)]
pub(super) struct Berth {
    /// Its own thread's alone.
    poller: Mutex<Poller>,
    waker: Waker,
}

impl Berth {
    /// One in which nothing is waited for yet.
    pub(super) fn new() -> io::Result<Self> {
        let poller = Poller::new()?;
        let waker = poller.waker();
        let poller = Mutex::new(poller);
        Ok(Self { poller, waker })
    }

    fn lock(&self) -> MutexGuard<'_, Poller> {
        self.poller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until there is something for its own network, for `limit` at most. Whether it is asked to stand
    /// in for the one before it.
    pub(super) fn sleep(&self, limit: Option<Duration>) -> bool {
        let mut poller = self.lock();
        // Much may be over meanwhile, and who was told to end by what another one took in must see it.
        let limit = limit.map_or(UNEASE, |limit| limit.min(UNEASE));
        match poller.wait(Some(limit)) {
            Ok(ready) => ready.iter().any(|ready| ready.token == BEFORE),
            Err(error) => {
                tracing::error!(%error, "waiting for networks failed");
                false
            }
        }
    }
}

/// What a deputy has done since it was asked.
#[derive(Debug, Default)]
struct Stint {
    turns: u64,
    /// Calls that received something,
    calls: u64,
    /// and how much.
    bytes: u64,
}

impl Stint {
    /// A turn of so many calls, which received so many bytes.
    const fn add(&mut self, calls: u64, bytes: u64) {
        self.turns += 1;
        self.calls += calls;
        self.bytes += bytes;
    }

    /// Whether that is enough, where windows of small fragments are so wide: a third of a window of what comes. Of
    /// smaller pieces each costs more, and the less the longer one thread goes on with them.
    const fn is_over(&self, window_bytes: u64) -> bool {
        let enough = if self.is_in_pieces_of(WIDE_BYTES) {
            window_bytes
        } else if self.is_in_pieces_of(LARGE_BYTES) {
            window_bytes / 3
        } else {
            u64::MAX
        };
        self.turns >= TURNS || self.bytes >= enough
    }

    const fn is_in_pieces_of(&self, bytes: u64) -> bool {
        self.bytes >= self.calls * bytes
    }
}

/// What a thread knows of what comes, and has told berths.
#[derive(Debug, Default)]
pub(super) struct Much {
    /// Much comes by its own network.
    is_own: bool,
    /// Its deputy has to do with its network too.
    is_here: bool,
    /// It comes so by the network whose deputy it is.
    is_before: bool,
    /// Its own network is in its berth,
    has_berth: bool,
    /// and in that of its deputy.
    has_deputy: bool,
}

impl Much {
    /// Whether a thread has to do with much.
    pub(super) const fn is_worked_on(&self) -> bool {
        self.is_own || self.is_before
    }

    /// For how long it may sleep with its receiver: it has to learn when that is over.
    pub(super) fn limit(&self, limit: Option<Duration>) -> Option<Duration> {
        limit
            .into_iter()
            .chain(self.is_before.then_some(UNEASE))
            .min()
    }

    /// Whether it may sleep in its berth.
    pub(super) const fn has_berth(&self) -> bool {
        self.has_berth
    }
}

impl Crew {
    /// The network whose deputy a thread is.
    fn before(&self, index: usize) -> &Post {
        let posts = self.posts.len();
        &self.posts[(index + posts - 1) % posts]
    }

    /// The berth of a network's deputy.
    fn berth_of_deputy(&self, index: usize) -> Option<&Berth> {
        self.posts[(index + 1) % self.posts.len()].berth.as_ref()
    }

    /// Looks whether much comes, and makes berths ready while it does.
    pub(super) fn look_for_much(&self, index: usize, receiver: &mut Receiver, much: &mut Much) {
        much.is_own = receiver.has_much();
        let post = &self.posts[index];
        let comes = receiver.has_much_to_copy();
        if comes != post.comes_much.load(Ordering::Relaxed) {
            post.comes_much.store(comes, Ordering::Relaxed);
        }
        let leaves = receiver.has_much_leaving();
        let is_here = comes || (leaves && self.has_much_to_copy());
        let is_before = self.before(index).has_much.load(Ordering::Relaxed);
        if (is_here, is_before) != (much.is_here, much.is_before) {
            (much.is_here, much.is_before) = (is_here, is_before);
            self.change_berths(index, receiver, much);
        }
    }

    /// Whether much comes by any network that threads have to copy.
    fn has_much_to_copy(&self) -> bool {
        let mut posts = self.posts.iter();
        posts.any(|post| post.comes_much.load(Ordering::Relaxed))
    }

    /// A thread lets go of its network for longer.
    pub(super) fn forget_much(&self, index: usize, receiver: &Receiver, much: &mut Much) {
        self.posts[index].comes_much.store(false, Ordering::Relaxed);
        (much.is_own, much.is_here, much.is_before) = (false, false, false);
        self.change_berths(index, receiver, much);
    }

    /// Puts a network into berths, or takes it out of them: what comes by a poller that is in others takes
    /// longer to be told of.
    fn change_berths(&self, index: usize, receiver: &Receiver, much: &mut Much) {
        let (post, poller) = (&self.posts[index], &receiver.poller);
        let (Some(own), Some(deputys)) = (&post.berth, self.berth_of_deputy(index)) else {
            return;
        };
        let is_near = much.is_here || much.is_before;
        if is_near != much.has_berth {
            much.has_berth = match is_near {
                true => is_done(own.lock().add(poller, OWN, Interest::Readable)),
                false => !is_done(own.lock().remove(poller)),
            };
        }
        if much.is_here != much.has_deputy {
            much.has_deputy = match much.is_here {
                true => is_done(deputys.waker.add(poller)),
                false => !is_done(deputys.waker.remove(poller)),
            };
            post.has_much.store(much.has_deputy, Ordering::Relaxed);
            if much.has_deputy {
                // Who sleeps until something comes by its own network learns of it.
                let next = (index + 1) % self.posts.len();
                receiver.engine.networks[next].receiver_waker.wake();
            }
        }
    }

    /// What comes next by a network is to wake its deputy too, if there is much.
    pub(super) fn ask_deputy(&self, index: usize, receiver: &Receiver, much: &Much) {
        if let Some(berth) = self.berth_of_deputy(index).filter(|_| much.has_deputy) {
            // It is in there; what could go wrong went wrong when it was added.
            let _ = berth.waker.wake_once_for(&receiver.poller, BEFORE);
        }
    }

    /// Receives for the network before this one, unless somebody else does.
    pub(super) fn stand_in(&self, index: usize) {
        let before = self.before(index);
        let mut stint = Stint::default();
        while !stint.is_over(self.window_bytes) {
            // Others have it between two turns.
            let Some(mut receiver) = before.try_lock() else {
                return;
            };
            let (calls, bytes) = receiver.received();
            let look = if receiver.wake() {
                Look::Progress
            } else {
                receiver.look()
            };
            match look {
                Look::Progress => {
                    receiver.note_stand_in();
                    let (calls_now, bytes_now) = receiver.received();
                    stint.add(calls_now - calls, bytes_now - bytes);
                }
                // There is nothing that its own thread has to do.
                Look::Idle(None) if receiver.poller.waits_elsewhere() => return,
                Look::Nothing | Look::Idle(_) => break,
            }
        }
        if let Some(berth) = &before.berth {
            berth.waker.wake();
        }
    }
}

fn is_done(changed: io::Result<()>) -> bool {
    if let Err(error) = &changed {
        tracing::warn!(%error, "receivers cannot stand in for each other");
    }
    changed.is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crossbeam_channel::never;
    use madgate_vchannel::cluster::GatewaySettings;

    use madgate_gtm::Time;

    use super::super::MUCH_BYTES;
    use super::*;
    use crate::batch::Batches;
    use crate::counters::add;
    use crate::fixture::Fixture;

    const WINDOW_BYTES: u64 = 1 << 20;

    /// The crew of a gateway whose receivers have nothing to wait for, and how the first is woken.
    fn crew(fixture: &Fixture) -> (Crew, Waker) {
        let receiver = |network| {
            let (poller, batches) = (Poller::new().unwrap(), Batches::new(2, 1 << 16));
            let engine = Arc::clone(&fixture.engine);
            Receiver::new(engine, network, poller, never(), batches)
        };
        let receivers: Vec<_> = (0..2).map(receiver).collect();
        let waker = receivers[0].poller.waker();
        let crew = Crew::new(receivers, &GatewaySettings::default(), WINDOW_BYTES).unwrap();
        (crew, waker)
    }

    #[test]
    fn a_thread_is_deputy_while_much_comes_by_the_network_before_its_own() {
        let fixture = Fixture::new();
        let (crew, waker) = crew(&fixture);
        let [mut first, mut second] = [0, 1].map(|index| crew.posts[index].try_lock().unwrap());
        let [mut at_first, mut at_second] = [Much::default(), Much::default()];
        first.note_received(MUCH_BYTES);
        crew.look_for_much(0, &mut first, &mut at_first);
        crew.look_for_much(1, &mut second, &mut at_second);
        assert!(at_first.has_berth() && at_second.has_berth());
        assert!(at_first.is_worked_on() && at_second.is_worked_on());
        assert_eq!(
            (at_first.limit(None), at_second.limit(None)),
            (None, Some(UNEASE))
        );

        // Each time that it is asked it is told once.
        let berth = crew.posts[1].berth.as_ref().unwrap();
        for _ in 0..2 {
            assert!(first.poller.waits_elsewhere());
            waker.wake();
            assert!(!berth.sleep(None), "nobody has asked");
            crew.ask_deputy(0, &first, &at_first);
            assert!(berth.sleep(None));
            assert!(!berth.sleep(None), "it has been told");
            first.wake();
        }

        crew.forget_much(0, &first, &mut at_first);
        crew.look_for_much(1, &mut second, &mut at_second);
        for much in [at_first, at_second] {
            assert!(!much.has_berth() && !much.is_worked_on());
            assert_eq!(much.limit(None), None);
        }
        assert!(first.poller.waits_elsewhere());
        waker.wake();
        assert!(!berth.sleep(None), "it is in no berth any longer");
    }

    #[test]
    fn the_network_that_much_leaves_by_has_a_deputy_too_while_it_comes_to_be_copied() {
        let fixture = Fixture::new();
        let (crew, _) = crew(&fixture);
        let [mut first, mut second] = [0, 1].map(|index| crew.posts[index].try_lock().unwrap());
        let [mut at_first, mut at_second] = [Much::default(), Much::default()];
        let mut look = |much: bool, left_bytes: u64| {
            first.much_until = much.then_some(Time(u64::MAX));
            if !much {
                second.much_leaves_until = None;
            }
            add(&fixture.engine.networks[1].tally.sent_bytes, left_bytes);
            crew.look_for_much(0, &mut first, &mut at_first);
            crew.look_for_much(1, &mut second, &mut at_second);
            [&at_first, &at_second].map(|much| much.has_deputy)
        };
        let much_bytes = u64::try_from(MUCH_BYTES).unwrap();
        assert_eq!(look(true, much_bytes - 1), [true, false]);
        // Little by little it is as much.
        assert_eq!(look(true, 1), [true, true]);
        // What leaves came some other way: through a pipe.
        assert_eq!(look(false, much_bytes), [false, false]);
        assert_eq!(look(false, 0), [false, false]);
    }

    #[test]
    fn a_deputy_goes_after_some_turns_or_a_part_of_a_window() {
        const KIB: u64 = 1 << 10;
        for (calls, bytes, turns) in [
            // Each of them is a window of three.
            (1, WINDOW_BYTES, 1),
            (2, 512 * KIB, 2),
            (4, 512 * KIB - 1, 3),
            // A third of the only one.
            (4, 256 * KIB, 2),
            (6, 350 * KIB, 1),
            (1, LARGE_BYTES, 8),
            // However much it is in all.
            (100, 100 * (LARGE_BYTES - 1), TURNS),
            (0, 0, TURNS),
        ] {
            let mut stint = Stint::default();
            let mut taken = 0;
            while !stint.is_over(WINDOW_BYTES) {
                stint.add(calls, bytes);
                taken += 1;
            }
            assert_eq!(taken, turns, "{calls} calls, {bytes} bytes");
        }
    }

    #[test]
    fn who_stands_in_waits_for_nobody_and_leaves_what_it_finds_to_be_told_of() {
        let fixture = Fixture::new();
        let (crew, waker) = crew(&fixture);
        let own = crew.posts[0].berth.as_ref().unwrap();
        let is_awake = || !own.lock().wait(Some(Duration::ZERO)).unwrap().is_empty();
        // Its own thread has it.
        let first = crew.posts[0].try_lock().unwrap();
        crew.stand_in(1);
        drop(first);
        // Nothing is there, and whoever wakes it finds its thread asleep.
        own.lock()
            .add(
                &crew.posts[0].try_lock().unwrap().poller,
                OWN,
                Interest::Readable,
            )
            .unwrap();
        crew.stand_in(1);
        assert!(!is_awake());
        waker.wake();
        assert!(is_awake());
    }
}
