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
//!                 │                        │        or it was its turn for long enough
//!         takes the receiver, or waits for it <──── lets go of it
//! ```
//!
//! A deputy that fills slots goes after a third of a window ([`Stint`]): where its processor is that of who reads
//! them, that one waits meanwhile, and a source that has sent a whole window waits for it.
//!
//! While much comes to be copied, deputies are asked for what comes back too, by networks that much leaves by: the
//! source's next window is in it.
//!
//! To be woken twice is little for what comes in large amounts, and much for a small message: nobody is asked
//! when nothing large has come for a while, nor where something has gone through pipes lately.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use madgate_tm::{Interest, Poller, Waker};
use madgate_vchannel::cluster::EndpointSettings;

use super::crew::{Crew, Post};
use super::{Filled, Look, Receiver, UNEASE};

/// Turns in a row that a deputy takes at most: what comes by its own network waits as long.
const TURNS: u64 = 8;

/// Frames of so many bytes are large for a deputy. Smaller ones cost more, byte for byte, and the less the longer
/// one thread goes on with them.
const LARGE_BYTES: u64 = 64 << 10;

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
    /// What it has received into slots.
    filled: Filled,
}

impl Stint {
    const fn add(&mut self, filled: Filled) {
        self.turns += 1;
        self.filled.frames += filled.frames;
        self.filled.bytes += filled.bytes;
    }

    /// Whether that is enough, for destinations with these settings: a third of the window of a flow with such frames,
    /// of all flows together. (The mean of what was received tells how large they are.)
    const fn is_over(&self, settings: &EndpointSettings) -> bool {
        self.turns >= TURNS || self.has_filled_enough(settings)
    }

    const fn has_filled_enough(&self, settings: &EndpointSettings) -> bool {
        let Filled { frames, bytes } = self.filled;
        if frames == 0 || bytes / frames < LARGE_BYTES {
            return false;
        }
        bytes >= settings.window_into_memory(bytes / frames) / 3
    }
}

/// What a thread knows of what comes, and has told berths.
#[derive(Debug, Default)]
pub(super) struct Much {
    /// Much comes by its own network.
    is_own: bool,
    /// Its deputy has to do with its network too.
    is_here: bool,
    /// It may be asked to stand in for another one.
    is_before: bool,
    /// Much comes by the network for which it may be asked.
    comes_before: bool,
    /// Its own network is in its berth,
    has_berth: bool,
    /// and in that of its deputy.
    has_deputy: bool,
}

impl Much {
    /// Whether a thread has to do with much that comes.
    pub(super) const fn is_worked_on(&self) -> bool {
        self.is_own || self.comes_before
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
        let (post, before) = (&self.posts[index], self.before(index));
        much.is_own = receiver.has_much();
        // To pass on what nobody has to copy is so little that it is better done in one place.
        let comes = much.is_own && !receiver.has_pipes();
        if comes != post.comes_much.load(Ordering::Relaxed) {
            post.comes_much.store(comes, Ordering::Relaxed);
        }
        let leaves = !comes && self.sees_much_leave(post, receiver);
        if !leaves {
            receiver.much_leaves_until = None;
        }
        let is_here = comes || leaves;
        let is_before = before.has_deputy.load(Ordering::Relaxed);
        much.comes_before = is_before && before.comes_much.load(Ordering::Relaxed);
        if (is_here, is_before) != (much.is_here, much.is_before) {
            (much.is_here, much.is_before) = (is_here, is_before);
            self.change_berths(index, receiver, much);
        }
    }

    /// Whether much leaves by a network, while much that threads have to copy comes by any. (As a rule that is what
    /// leaves: it is not looked at what came by which.)
    fn sees_much_leave(&self, post: &Post, receiver: &mut Receiver) -> bool {
        let mut posts = self.posts.iter();
        let is_asked = post.berth.is_some()
            && !receiver.has_pipes()
            && posts.any(|post| post.comes_much.load(Ordering::Relaxed));
        is_asked && receiver.has_much_leaving()
    }

    /// A thread lets go of its network for longer.
    pub(super) fn forget_much(&self, index: usize, receiver: &Receiver, much: &mut Much) {
        self.posts[index].comes_much.store(false, Ordering::Relaxed);
        *much = Much {
            has_berth: much.has_berth,
            has_deputy: much.has_deputy,
            ..Much::default()
        };
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
            post.has_deputy.store(much.has_deputy, Ordering::Relaxed);
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
        while !stint.is_over(&self.endpoints) {
            // Others have it between two turns.
            let Some(mut receiver) = before.try_lock() else {
                return;
            };
            let filled_before = receiver.filled;
            let look = if receiver.wake() {
                Look::Progress
            } else {
                receiver.look()
            };
            match look {
                Look::Progress => {
                    receiver.note_stand_in();
                    stint.add(receiver.filled.since(filled_before));
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
    use madgate_gtm::Time;
    use madgate_gtm::wire::HEADER_BYTES;
    use madgate_vchannel::cluster::GatewaySettings;

    use super::super::MUCH_BYTES;
    use super::super::arrived::receiver_of;
    use super::*;
    use crate::batch::Batches;
    use crate::counters::add;
    use crate::fixture::Fixture;

    /// The crew of a gateway whose receivers have nothing to wait for, and how the first is woken.
    fn crew(fixture: &Fixture) -> (Crew, Waker) {
        let receiver = |network| {
            let (poller, batches) = (Poller::new().unwrap(), Batches::new(2, 1 << 16));
            let engine = Arc::clone(&fixture.engine);
            Receiver::new(engine, network, poller, never(), batches)
        };
        let receivers: Vec<_> = (0..2).map(receiver).collect();
        let waker = receivers[0].poller.waker();
        let crew = Crew::new(
            receivers,
            &GatewaySettings::default(),
            EndpointSettings::default(),
        );
        let crew = crew.unwrap();
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
        let mut look = |receivers: [&mut Receiver; 2], much: bool, left_bytes: u64| {
            let [first, second] = receivers;
            first.much_until = much.then_some(Time(u64::MAX));
            second.left.1 = Time(u64::MAX);
            add(&fixture.engine.networks[1].tally.sent_bytes, left_bytes);
            crew.look_for_much(0, first, &mut at_first);
            crew.look_for_much(1, second, &mut at_second);
            // Who is scheduled for what comes in large amounts has to do with that.
            assert_eq!([&at_first, &at_second].map(Much::is_worked_on), [much; 2]);
            [&at_first, &at_second].map(|much| much.has_deputy)
        };
        let much_bytes = u64::try_from(MUCH_BYTES).unwrap();
        let (first, second) = (&mut *first, &mut *second);
        assert_eq!(look([first, second], true, 0), [true, false]);
        assert_eq!(look([first, second], true, much_bytes - 1), [true, false]);
        assert_eq!(look([first, second], true, 1), [true, true]);
        // No longer.
        second.much_leaves_until = Some(Time(0));
        assert_eq!(look([first, second], true, 0), [true, false]);
        assert_eq!(look([first, second], true, much_bytes), [true, true]);
        // What leaves came some other way: through a pipe, say.
        assert_eq!(look([first, second], false, much_bytes), [false, false]);
        assert_eq!(second.much_leaves_until, None, "it wakes for nothing");
        // What comes by this network goes through pipes, and so may what leaves by it.
        let pipe = second.pipes.take(1).unwrap().unwrap();
        assert_eq!(look([first, second], true, much_bytes), [true, false]);
        drop(pipe);
    }

    #[test]
    fn what_left_while_much_comes_wakes_nobody_when_that_is_over() {
        let fixture = Fixture::new();
        let (crew, _) = crew(&fixture);
        let mut receiver = crew.posts[0].try_lock().unwrap();
        // Much left before it came.
        receiver.much_leaves_until = Some(Time(1));
        receiver.much_until = Some(Time(u64::MAX));
        crew.look_for_much(0, &mut receiver, &mut Much::default());
        let limit = receiver.longest_sleep(None);
        assert!(limit.is_some_and(|limit| limit > UNEASE), "{limit:?}");
    }

    #[test]
    fn a_network_that_is_left_to_another_thread_has_nothing_to_be_copied() {
        let fixture = Fixture::new();
        let (crew, _) = crew(&fixture);
        let mut receiver = crew.posts[0].try_lock().unwrap();
        let mut much = Much::default();
        receiver.much_until = Some(Time(u64::MAX));
        let comes_much = || crew.posts[0].comes_much.load(Ordering::Relaxed);
        crew.look_for_much(0, &mut receiver, &mut much);
        assert!(comes_much());
        crew.forget_much(0, &receiver, &mut much);
        assert!(!comes_much());
    }

    #[test]
    fn a_deputy_goes_after_some_turns_or_a_third_of_a_window_in_slots() {
        const KIB: u64 = 1 << 10;
        let narrow = EndpointSettings {
            window_bytes: 3 << 20,
            wide_windows: false,
            ..EndpointSettings::default()
        };
        let wide = EndpointSettings {
            wide_windows: true,
            ..narrow.clone()
        };
        for (settings, turn, turns) in [
            // Of large frames it is one window of three, unless they have only one.
            (&wide, &[512 * KIB; 2][..], 3),
            (&narrow, &[512 * KIB; 2], 1),
            (&narrow, &[512 * KIB - 1; 2], 2),
            // So it is for smaller ones,
            (&wide, &[LARGE_BYTES; 8], 2),
            (&wide, &[LARGE_BYTES, 90 * KIB, 64 * KIB, 70 * KIB], 4),
            // and none of those that are small, nor of what goes elsewhere.
            (&wide, &[LARGE_BYTES - 1; 100], TURNS),
            (&narrow, &[], TURNS),
        ] {
            let mut stint = Stint::default();
            let mut taken = 0;
            while !stint.is_over(settings) {
                let mut filled = Filled::default();
                turn.iter().for_each(|&bytes| filled.add(bytes));
                stint.add(filled);
                taken += 1;
            }
            assert_eq!(taken, turns, "{turn:?}");
        }
    }

    #[test]
    fn who_stands_in_leaves_what_is_more_than_its_share() {
        let fixture = Fixture::new();
        let payload = u32::try_from(LARGE_BYTES).unwrap() - u32::try_from(HEADER_BYTES).unwrap();
        let lengths = [payload; 100];
        let receivers = vec![
            receiver_of(&fixture, &lengths),
            receiver_of(&fixture, &[payload]),
        ];
        let endpoints = EndpointSettings {
            window_bytes: 6 << 20,
            ..EndpointSettings::default()
        };
        let crew = Crew::new(receivers, &GatewaySettings::default(), endpoints).unwrap();
        for share in [1, 2] {
            crew.stand_in(1);
            // Two mebibytes, which takes it four turns.
            let filled = crew.posts[0].try_lock().unwrap().filled;
            assert_eq!(filled.bytes, share * (2 << 20));
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
