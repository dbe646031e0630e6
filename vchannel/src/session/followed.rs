//! Lanes that bring something again and again are read without asking the poller first.
//!
//! A lane that has brought enough in a row is even taken out of the poller: then the kernel need
//! not note each arrival there, in the time of whoever sends. Who drives reads it in each pass from
//! then on, or puts it off for one; it is watched again before a thread sleeps or looks elsewhere,
//! and when it has been quiet for a while.

use madgate_tm::Poller;

use super::driver::Token;
use super::input::{Input, InputError};

/// Receptions without a quiet while after which a lane is only looked at, no longer watched.
const STREAK: u32 = 32;

/// Receptions that something which came as a whole weighs up.
const PARTS_PER_WHOLE: u32 = 4;

/// Looks in a row that find nothing, after which it is watched again, and the streak is over.
const QUIET_LOOKS: u32 = 1024;

/// Or whose link is to be closed, and why: its lane could not be watched again, and nobody would
/// learn of what arrives.
pub(super) type Watched = Result<(), (u32, InputError)>;

/// One lane that is followed, if any is.
#[derive(Debug, Default)]
pub(super) struct Followed {
    lane: Option<usize>,
    /// How often it brought something since it was quiet, or something else came.
    streak: u32,
    /// How often it was looked at since, without its bringing anything.
    quiet: u32,
    /// Whether its descriptor is out of the poller.
    is_unwatched: bool,
}

impl Followed {
    /// The lane that is followed.
    pub(super) const fn lane(&self) -> Option<usize> {
        self.lane
    }

    /// The lane, if it brought something last, and nothing else has come since.
    pub(super) const fn on_a_streak(&self) -> Option<usize> {
        if self.streak > 0 { self.lane } else { None }
    }

    /// The lane, if nobody but who looks at it learns of what it brings.
    pub(super) const fn unwatched(&self) -> Option<usize> {
        if self.is_unwatched { self.lane } else { None }
    }

    /// Follows this lane from now on, instead of another one, which is watched again.
    pub(super) fn follow(
        &mut self,
        lane: usize,
        inputs: &[Option<Input>],
        poller: &Poller,
    ) -> Watched {
        if self.lane == Some(lane) {
            return Ok(());
        }
        let watched = self.watch(inputs, poller);
        self.lane = Some(lane);
        watched
    }

    /// The lane was looked at, and `has_brought` something or not.
    pub(super) fn note_look(
        &mut self,
        has_brought: bool,
        inputs: &[Option<Input>],
        poller: &Poller,
    ) -> Watched {
        if !has_brought {
            self.quiet += 1;
            if self.quiet >= QUIET_LOOKS {
                return self.watch(inputs, poller);
            }
            return Ok(());
        }
        self.quiet = 0;
        self.streak = (self.streak + 1).min(2 * STREAK);
        if self.streak >= STREAK
            && !self.is_unwatched
            && let Some(input) = self.lane.and_then(|lane| inputs[lane].as_ref())
        {
            let (descriptor, _) = input.receiver.descriptor();
            self.is_unwatched = poller.remove(descriptor).is_ok();
        }
        Ok(())
    }

    /// The lane brought all at once of what comes in many parts where it is worth to follow it: then
    /// its sender is ahead, and who looks less often reads more at once.
    pub(super) fn note_whole(&mut self, inputs: &[Option<Input>], poller: &Poller) -> Watched {
        self.quiet = 0;
        self.streak = self.streak.saturating_sub(PARTS_PER_WHOLE);
        if self.streak == 0 {
            return self.watch(inputs, poller);
        }
        Ok(())
    }

    /// Something else came in between.
    pub(super) const fn end_streak(&mut self) {
        self.streak = 0;
    }

    /// The lane is watched again, as the thread is going to sleep or to look elsewhere.
    pub(super) fn watch(&mut self, inputs: &[Option<Input>], poller: &Poller) -> Watched {
        self.streak = 0;
        self.quiet = 0;
        if !std::mem::take(&mut self.is_unwatched) {
            return Ok(());
        }
        let Some((lane, input)) = self
            .lane
            .and_then(|lane| Some((lane, inputs[lane].as_ref()?)))
        else {
            return Ok(());
        };
        let (descriptor, interest) = input.receiver.descriptor();
        let token = Token::Input(lane, input.class).to_number();
        poller
            .add(descriptor, token, interest)
            .map_err(|error| (input.link, InputError::Deaf(error)))
    }

    /// The lane is no more.
    pub(super) fn forget(&mut self, lane: usize) {
        if self.lane == Some(lane) {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use bytes::BytesMut;
    use madgate_tm::{Interest, LaneClass, LaneError, LaneReceiver, ReceivedSlot, Room, Shape};

    use super::*;

    /// A lane of which only the descriptor is asked for.
    #[derive(Debug)]
    struct Quiet(UnixStream);

    impl LaneReceiver for Quiet {
        fn shape(&self) -> Shape {
            Shape::Dynamic { gather_limit: 2 }
        }

        fn try_receive(&mut self, _: Room<'_>, _: &mut BytesMut) -> Result<usize, LaneError> {
            Ok(0)
        }

        fn try_receive_slot(&mut self) -> Result<Option<ReceivedSlot>, LaneError> {
            Err(LaneError::WrongShape("slots"))
        }

        fn arm(&mut self) -> Result<bool, LaneError> {
            Ok(true)
        }

        fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
            (self.0.as_fd(), Interest::Readable)
        }

        fn acknowledge_wake(&mut self) {}
    }

    /// Two lanes that have something to read, in a poller.
    struct Lanes {
        poller: Poller,
        inputs: Vec<Option<Input>>,
        _peers: Vec<UnixStream>,
    }

    impl Lanes {
        fn new() -> Self {
            let poller = Poller::new().unwrap();
            let mut inputs = Vec::new();
            let mut peers = Vec::new();
            for index in 0..2 {
                let (ours, mut peer) = UnixStream::pair().unwrap();
                peer.write_all(b"something").unwrap();
                let token = Token::Input(index, LaneClass::Urgent).to_number();
                poller.add(&ours, token, Interest::Readable).unwrap();
                let receiver = Box::new(Quiet(ours));
                inputs.push(Some(Input::new(0, LaneClass::Urgent, receiver, 1024)));
                peers.push(peer);
            }
            Self {
                poller,
                inputs,
                _peers: peers,
            }
        }

        /// Those of which the poller tells.
        fn watched(&mut self) -> Vec<u64> {
            let ready = self.poller.wait(Some(Duration::ZERO)).unwrap();
            let mut tokens: Vec<u64> = ready.iter().map(|ready| ready.token).collect();
            tokens.sort_unstable();
            tokens
        }

        fn followed(&self, lane: usize, receptions: u32) -> Followed {
            let mut followed = Followed::default();
            followed.follow(lane, &self.inputs, &self.poller).unwrap();
            self.look(&mut followed, true, receptions);
            followed
        }

        fn look(&self, followed: &mut Followed, has_brought: bool, times: u32) {
            for _ in 0..times {
                followed
                    .note_look(has_brought, &self.inputs, &self.poller)
                    .unwrap();
            }
        }
    }

    #[test]
    fn a_lane_that_brings_much_is_out_of_the_poller_until_it_is_watched_again() {
        let mut lanes = Lanes::new();
        let mut followed = lanes.followed(1, STREAK - 1);
        assert_eq!(lanes.watched(), [0, 1]);
        assert_eq!(followed.unwatched(), None);
        lanes.look(&mut followed, true, 1);
        assert_eq!(followed.unwatched(), Some(1));
        assert_eq!(lanes.watched(), [0]);
        followed.watch(&lanes.inputs, &lanes.poller).unwrap();
        assert_eq!(lanes.watched(), [0, 1]);
        assert_eq!((followed.lane(), followed.unwatched()), (Some(1), None));
    }

    #[test]
    fn a_lane_that_brings_all_at_once_is_watched_again() {
        let mut lanes = Lanes::new();
        let mut followed = lanes.followed(0, 10 * STREAK);
        let wholes = 2 * STREAK / PARTS_PER_WHOLE;
        for _ in 1..wholes {
            followed.note_whole(&lanes.inputs, &lanes.poller).unwrap();
        }
        assert_eq!(lanes.watched(), [1]);
        followed.note_whole(&lanes.inputs, &lanes.poller).unwrap();
        assert_eq!(lanes.watched(), [0, 1]);
    }

    #[test]
    fn what_comes_in_between_ends_the_streak() {
        let mut lanes = Lanes::new();
        let mut followed = lanes.followed(0, STREAK - 1);
        followed.end_streak();
        lanes.look(&mut followed, true, STREAK - 1);
        assert_eq!(lanes.watched(), [0, 1]);
    }

    #[test]
    fn a_lane_is_on_a_streak_from_what_it_brings_to_what_comes_in_between() {
        let lanes = Lanes::new();
        let mut followed = lanes.followed(0, 0);
        assert_eq!(followed.on_a_streak(), None);
        lanes.look(&mut followed, true, 1);
        lanes.look(&mut followed, false, 1);
        assert_eq!(followed.on_a_streak(), Some(0));
        followed.end_streak();
        assert_eq!((followed.lane(), followed.on_a_streak()), (Some(0), None));
    }

    #[test]
    fn a_lane_that_has_become_quiet_is_watched_again() {
        let mut lanes = Lanes::new();
        let mut followed = lanes.followed(0, STREAK);
        lanes.look(&mut followed, false, QUIET_LOOKS - 1);
        assert_eq!(lanes.watched(), [1]);
        lanes.look(&mut followed, false, 1);
        assert_eq!(lanes.watched(), [0, 1]);
        assert_eq!(followed.unwatched(), None);
    }

    #[test]
    fn a_lane_is_watched_again_when_another_one_is_followed() {
        let mut lanes = Lanes::new();
        let mut followed = lanes.followed(0, STREAK);
        followed.follow(1, &lanes.inputs, &lanes.poller).unwrap();
        assert_eq!(lanes.watched(), [0, 1]);
        assert_eq!((followed.lane(), followed.unwatched()), (Some(1), None));
    }

    #[test]
    fn a_lane_that_is_no_more_is_not_looked_at() {
        let mut lanes = Lanes::new();
        let mut followed = lanes.followed(0, STREAK);
        lanes.inputs[0] = None;
        followed.forget(1);
        assert_eq!(followed.unwatched(), Some(0));
        followed.forget(0);
        assert_eq!((followed.lane(), followed.unwatched()), (None, None));
        followed.watch(&lanes.inputs, &lanes.poller).unwrap();
        assert_eq!(lanes.watched(), [1]);
    }

    #[test]
    fn who_cannot_be_watched_again_is_named() {
        let lanes = Lanes::new();
        let mut followed = lanes.followed(0, STREAK);
        // The poller has it already: it is refused.
        let (descriptor, interest) = lanes.inputs[0].as_ref().unwrap().receiver.descriptor();
        lanes.poller.add(descriptor, 0, interest).unwrap();
        let (link, error) = followed.watch(&lanes.inputs, &lanes.poller).unwrap_err();
        assert!(matches!(error, InputError::Deaf(_)), "{error}");
        assert_eq!(link, 0);
    }
}
