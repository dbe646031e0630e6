//! The control connection of a lane: the socket over which both sides have met. It tells that the
//! peer is gone, and where each direction ends: data takes another way, and may come later than
//! the end of this one.
//!
//! | bytes of a note | |
//! |---|---|
//! | 0 | 1: the sending half has ended; 2: the receiving half has |
//! | 1–7 | reserved, zero |
//! | 8–15 | of a sending half: how many notifications it has put |
//!
//! Each half says once that it has ended; a port, which is both, says either.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

const NOTE_BYTES: usize = 16;
const SENDING_ENDED: u8 = 1;
const RECEIVING_ENDED: u8 = 2;

/// Which half of a lane; of a port, one connection is both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hsl) enum Half {
    Sending,
    Receiving,
    Both,
}

#[derive(Debug)]
pub(super) struct Control {
    socket: OwnedFd,
    bells: [Bell; 2],
    heard: Mutex<Heard>,
}

/// What the other side has said.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Heard {
    /// Its sending half has ended, after so many notifications.
    pub(super) sending_ended: Option<u64>,
    pub(super) receiving_ended: bool,
    /// Nothing more is said: its process is gone, or both halves are, or it talks nonsense.
    pub(super) is_over: bool,
    note: [u8; NOTE_BYTES],
    note_length: usize,
}

impl Heard {
    /// Whether somebody there still takes in what this side sends.
    pub(super) fn has_receiver(&self) -> bool {
        !self.is_over && !self.receiving_ended
    }

    fn take(&mut self) {
        let [kind, a, b, c, d, e, f, g, count @ ..] = self.note;
        let count = u64::from_le_bytes(count);
        self.note_length = 0;
        match (kind, [a, b, c, d, e, f, g]) {
            // Who says it again would be listened to without end.
            (SENDING_ENDED, [0, 0, 0, 0, 0, 0, 0]) if self.sending_ended.is_none() => {
                self.sending_ended = Some(count);
            }
            (RECEIVING_ENDED, [0, 0, 0, 0, 0, 0, 0]) if count == 0 && !self.receiving_ended => {
                self.receiving_ended = true;
            }
            _ => self.is_over = true,
        }
    }
}

impl Control {
    /// Over a connected socket, after the greetings.
    pub(super) fn new(socket: OwnedFd) -> std::io::Result<Self> {
        Ok(Self {
            socket,
            bells: [Bell::new()?, Bell::new()?],
            heard: Mutex::new(Heard::default()),
        })
    }

    /// What wakes a half.
    pub(super) fn bell(&self, half: Half) -> &Bell {
        match half {
            Half::Sending | Half::Both => &self.bells[0],
            Half::Receiving => &self.bells[1],
        }
    }

    /// Takes in what has been said.
    pub(super) fn listen(&self) -> Heard {
        let mut heard = self.heard();
        let mut has_news = false;
        while !heard.is_over {
            let Heard {
                note, note_length, ..
            } = &mut *heard;
            let rest = &mut note[*note_length..];
            match rustix::net::recv(&self.socket, rest, RecvFlags::DONTWAIT) {
                Ok((count, _)) if count > 0 => heard.note_length += count,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Ok(_) | Err(_) => heard.is_over = true,
            }
            if heard.note_length == NOTE_BYTES {
                heard.take();
            }
            has_news = true;
        }
        let now = *heard;
        drop(heard);
        if has_news {
            // It may be for the half that has not looked.
            self.bells.iter().for_each(Bell::ring);
        }
        now
    }

    /// Says that what sends has ended, after so many notifications.
    pub(super) fn say_sending_ended(&self, notifications: u64) {
        let mut note = [0; NOTE_BYTES];
        note[0] = SENDING_ENDED;
        note[8..].copy_from_slice(&notifications.to_le_bytes());
        self.say(&note);
    }

    /// Says that what receives has ended.
    pub(super) fn say_receiving_ended(&self) {
        let mut note = [0; NOTE_BYTES];
        note[0] = RECEIVING_ENDED;
        self.say(&note);
    }

    fn say(&self, note: &[u8; NOTE_BYTES]) {
        // Two notes are said at most, for which every socket has room; a peer that is gone need
        // not be told.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        while rustix::net::send(&self.socket, note, flags) == Err(Errno::INTR) {}
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// An event counter that wakes threads of this process.
#[derive(Debug)]
pub(super) struct Bell(OwnedFd);

impl Bell {
    pub(super) fn new() -> std::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(eventfd(0, flags)?))
    }

    /// One that is full rings already.
    pub(super) fn ring(&self) {
        while rustix::io::write(&self.0, &1_u64.to_ne_bytes()) == Err(Errno::INTR) {}
    }

    pub(super) fn silence(&self) {
        while rustix::io::read(&self.0, &mut [0; 8]) == Err(Errno::INTR) {}
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    fn pair() -> (Control, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Control::new(ours.into()).unwrap(), theirs)
    }

    #[test]
    fn each_half_hears_how_the_other_side_ends() {
        let (near, far) = pair();
        let far = Control::new(far.into()).unwrap();
        assert!(near.listen().has_receiver());
        far.say_sending_ended(70_000);
        assert_eq!(near.listen().sending_ended, Some(70_000));
        assert!(near.listen().has_receiver());
        far.say_receiving_ended();
        let heard = near.listen();
        assert!(heard.receiving_ended && !heard.is_over);
        drop(far);
        assert!(near.listen().is_over);
    }

    #[test]
    fn a_note_may_come_in_pieces_and_nonsense_is_the_end() {
        let (near, mut far) = pair();
        far.write_all(&[1, 0, 0]).unwrap();
        assert_eq!(near.listen().sending_ended, None);
        far.write_all(&[0; 13]).unwrap();
        assert_eq!(near.listen().sending_ended, Some(0));
        far.write_all(&[3; 40]).unwrap();
        assert!(near.listen().is_over);
    }

    #[test]
    fn what_is_said_twice_is_the_end() {
        let (near, mut far) = pair();
        far.write_all(&[1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0].repeat(2))
            .unwrap();
        let heard = near.listen();
        assert!(heard.is_over);
        assert_eq!(heard.sending_ended, Some(5), "the first counts");
    }
}
