//! What the fuzz targets do, so that plain tests can replay their corpora: each is a function
//! from any bytes to nothing, which panics where it finds something wrong. The bytes say what a
//! peer writes that shares memory, and what this side does meanwhile.

use std::os::unix::net::UnixStream;

use bytes::BytesMut;

use super::attack::{Attack, SLOT_BYTES, SLOTS, tell};
use super::fabric::fuzzing::{Attacked as AttackedFabric, Half, Provider, Told, greeted};
use super::layout::REGISTERED_AT;
use super::port::fuzzing::Attacked;
use super::port::{Port, PortStart, PortTuning};
use super::put::MessageId;
use super::{Mode, PROTOCOL};
use crate::local::memory::SharedBytes;
use crate::{Lane, LaneError, LaneReceiver, LaneSender, LentSlot, Piece, ReceivedSlot};

/// Longer scripts only make the same mistakes again.
const STEPS_MAX: usize = 500;

/// Bytes that are used up from the front; zeros when there are no more.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let count = N.min(self.0.len());
        let (now, rest) = self.0.split_at(count);
        taken[..count].copy_from_slice(now);
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    /// A kind and a number that may be one.
    fn message(&mut self) -> MessageId {
        let [kind, number, high] = self.take();
        MessageId(u32::from(kind) << 28 | u32::from(high) << 20 | u32::from(number))
    }

    /// A word of few bits, or of many.
    fn word(&mut self) -> u64 {
        let [kind, bits] = self.take();
        match kind % 3 {
            0 => 1 << (bits % 64),
            1 => bits.into(),
            _ => u64::from_le_bytes(self.take()),
        }
    }
}

fn is_told(error: &LaneError) {
    match error {
        LaneError::Closed => {}
        LaneError::Peer { protocol, what } => {
            assert!(
                *protocol == PROTOCOL && !what.is_empty(),
                "a violation without a word"
            );
        }
        error => panic!("not the peer's fault: {error}"),
    }
}

/// A lane: whatever its peer writes to its lists, what is received are slots of its own, each
/// once, and what is lent can be committed.
pub fn lane(bytes: &[u8]) {
    let mut script = Script(bytes);
    let mut attack = Attack::new();
    let memory = SharedBytes::new(attack.own.memory.clone());
    let answers_at = attack.own.geometry.sender_list().at;
    let (mut held, mut lent) = (Vec::new(), Vec::new());
    for _ in 0..STEPS_MAX {
        if script.is_over() {
            break;
        }
        let step = script.byte();
        match step % 10 {
            0 => {
                let (message, length) = (script.message(), script.byte().into());
                let before = u64::from(step / 10) * 8;
                // A full list is the peer's own fault.
                let _ = tell(&mut attack.messages, message, length, [before, 0]);
            }
            1 => {
                let (message, words) = (script.message(), [script.word(), script.word()]);
                let _ = tell(&mut attack.answers, message, 0, words);
            }
            2 => {
                let at = usize::from(u16::from_le_bytes(script.take())) * 8;
                // In the list of messages, and what stands before it; or in that of answers.
                let list = if step / 10 % 2 == 0 { 0 } else { answers_at };
                memory.write(list + at, &script.take::<8>());
            }
            3 => match attack.receiver.try_receive_slot() {
                Ok(slot) => held.extend(slot),
                Err(error) => is_told(&error),
            },
            4 => {
                let place = usize::from(script.byte());
                if !held.is_empty() {
                    held.swap_remove(place % held.len());
                }
            }
            5 => match attack.sender.try_lend() {
                Ok(slot) => lent.extend(slot),
                Err(error) => is_told(&error),
            },
            6 => {
                let length = usize::from(script.byte()).min(SLOT_BYTES as usize);
                let sent = match lent.pop() {
                    Some(mut slot) => {
                        slot.room(..).put(Piece::new(&[7; SLOT_BYTES as usize]));
                        attack.sender.commit(slot, length)
                    }
                    None => {
                        let bytes = [7; SLOT_BYTES as usize];
                        let (one, other) = bytes[..length].split_at(length / 3);
                        let pieces = [Piece::new(one), Piece::new(other)];
                        attack.sender.try_send_gathered(&pieces).map(drop)
                    }
                };
                sent.unwrap_or_else(|error| is_told(&error));
            }
            7 => {
                for armed in [attack.receiver.arm(), attack.sender.arm()] {
                    armed.map_or_else(|error| is_told(&error), |_| ());
                }
            }
            8 => {
                attack.ring();
                attack.receiver.acknowledge_wake();
            }
            _ => attack.hang_up(),
        }
        assert!(held.len() <= 2 * SLOTS as usize && lent.len() <= SLOTS as usize);
        for slot in &held {
            let mut bytes = vec![0; slot.len()];
            slot.copy_out(0, &mut bytes);
        }
    }
    let peer = &attack.peer;
    let mut written = vec![0; peer.memory.len() - REGISTERED_AT];
    SharedBytes::new(peer.memory.clone()).read(REGISTERED_AT, &mut written);
    let is_sent = |byte| [0, 7].contains(byte);
    assert!(written.iter().all(is_sent), "it has what nobody sent");
}

/// A lane over libfabric: whatever its peer writes and tells, and whatever becomes of what is
/// posted, what is received are slots of its own, and nothing is written but what is the peer's.
pub fn fabric_lane(bytes: &[u8]) {
    let mut script = Script(bytes);
    let kind = script.byte();
    let provider = Provider {
        is_ordered: kind & 1 == 0,
        injects: kind & 2 == 0,
        mode: if kind & 4 == 0 {
            Mode::Adaptive
        } else {
            Mode::Polling
        },
    };
    let mut attacked = AttackedFabric::new(provider).expect("memory and sockets");
    let mut slots = Slots::default();
    for _ in 0..STEPS_MAX {
        if script.is_over() {
            break;
        }
        let step = script.byte();
        let half = if step & 1 == 0 {
            Half::Sending
        } else {
            Half::Receiving
        };
        match step >> 1 & 15 {
            0..4 => slots.step(&mut attacked, &mut script),
            4..6 => {
                let told = told(&mut script);
                attacked.put(half, told);
                // Now and then it says something else.
                let notice = match script.byte() % 8 {
                    0 => script.word(),
                    _ => told.message.0.into(),
                };
                attacked.notify(half, Some(notice), false);
            }
            6 => attacked.put(half, told(&mut script)),
            7 => {
                let receive = script.byte();
                let notice = (receive & 2 == 0).then(|| script.word());
                attacked.notify(half, notice, receive & 1 == 0);
            }
            8 => {
                let at = usize::from(u16::from_le_bytes(script.take())) * 8;
                attacked.scribble(at, script.take());
            }
            9 => attacked.tell_read(half, script.word()),
            10..12 => attacked.complete(half, script.byte()),
            12 => attacked.answer(half, script.byte()),
            13 => {
                let bytes = script.take::<16>();
                attacked.say(&bytes[..1 + usize::from(script.byte() % 16)]);
            }
            14 => attacked.attend(),
            _ => match script.byte() % 16 {
                0 => attacked.fail(half),
                1 => attacked.hang_up(),
                _ => attacked.attend(),
            },
        }
        attacked.check_written();
    }
}

fn told(script: &mut Script<'_>) -> Told {
    let kind = script.byte();
    Told {
        // The peer of who connects is node 1.
        source: u16::from(!kind.is_multiple_of(8)),
        message: script.message(),
        length: script.byte().into(),
        words: [script.word(), script.word()],
        carried: (kind & 8 == 0).then(|| script.word()),
    }
}

/// Slots of a lane that somebody has.
#[derive(Debug, Default)]
struct Slots {
    held: Vec<ReceivedSlot>,
    lent: Vec<LentSlot>,
}

impl Slots {
    /// What the owner of the lane does.
    fn step(&mut self, attacked: &mut AttackedFabric, script: &mut Script<'_>) {
        let Lane { sender, receiver } = &mut attacked.lane;
        let (kind, which) = (script.byte(), usize::from(script.byte()));
        let done = match kind % 8 {
            0 => receiver.try_receive_slot().map(|slot| {
                self.held.extend(slot);
            }),
            1 => receiver.try_receive_copy(&mut BytesMut::new()).map(drop),
            2 => {
                if !self.held.is_empty() {
                    self.held.swap_remove(which % self.held.len());
                }
                Ok(())
            }
            3 => sender.try_lend().map(|slot| self.lent.extend(slot)),
            4 => match self.lent.pop() {
                Some(slot) => sender.commit(slot, which.min(SLOT_BYTES as usize)),
                None => Ok(()),
            },
            5 => sender
                .try_send_copy(&[7; SLOT_BYTES as usize][..which.min(SLOT_BYTES as usize)])
                .map(drop),
            6 => receiver.arm().and_then(|_| sender.arm()).map(drop),
            _ => {
                receiver.acknowledge_wake();
                sender.acknowledge_wake();
                Ok(())
            }
        };
        match done {
            // The network may break by itself.
            Ok(()) | Err(LaneError::Broken(_)) => {}
            Err(error) => is_told(&error),
        }
        assert!(self.held.len() <= 2 * SLOTS as usize && self.lent.len() <= SLOTS as usize);
        for slot in &self.held {
            slot.copy_out(0, &mut vec![0; slot.len()]);
        }
    }
}

/// A greeting over libfabric: what is not refused is a lane that sends what its slots hold.
pub fn fabric_greeting(bytes: &[u8]) {
    let mut script = Script(bytes);
    let Some(mut attacked) = greeted(&script.take()) else {
        return;
    };
    let sender = &mut attacked.lane.sender;
    // Nothing has been offered.
    assert!(matches!(sender.try_lend(), Ok(None)));
    attacked.put(
        Half::Sending,
        Told {
            source: 0,
            message: MessageId(3 << 28),
            length: 0,
            words: [1, 1],
            carried: None,
        },
    );
    attacked.notify(Half::Sending, Some(3 << 28), false);
    let sender = &mut attacked.lane.sender;
    match sender.try_lend() {
        Ok(Some(slot)) => {
            let all = slot.capacity();
            sender.commit(slot, all).expect("a slot that was lent");
        }
        Ok(None) => panic!("nothing is lent where all is free"),
        // There may be nothing to offer.
        Err(error) => is_told(&error),
    }
    attacked.check_written();
}

fn ports() -> Option<[Port; 2]> {
    let tuning = PortTuning {
        slots: 4,
        threshold_bytes: 100,
        buffers: 2,
        buffer_bytes: 1000,
        arena_bytes: 4096,
        mode: Mode::Polling,
        stores: crate::Stores::default(),
        foreign: false,
        registrations: None,
    };
    let (one, other) = UnixStream::pair().ok()?;
    let mut near = PortStart::new(one, true, tuning.clone()).ok()?;
    let mut far = PortStart::new(other, false, tuning).ok()?;
    near.advance().ok()?;
    let far = far.advance().ok()??;
    Some([near.advance().ok()??, far])
}

/// A port: whatever its peer writes and answers, messages are in memory of its own, and what is
/// posted and sent comes back.
pub fn port(bytes: &[u8]) {
    let mut script = Script(bytes);
    let Some([ours, peer]) = ports() else {
        return;
    };
    let mut attacked = Attacked::new(ours, peer);
    for _ in 0..STEPS_MAX {
        if script.is_over() {
            break;
        }
        let step = script.byte();
        let done = match step % 7 {
            0 => {
                let (message, length) = (script.message(), script.byte().into());
                attacked.tell(message, length, script.word());
                Ok(())
            }
            1 => {
                let (number, at) = (script.byte(), script.word());
                let length = u32::from_le_bytes(script.take());
                attacked.answer(number, at, length, script.byte());
                Ok(())
            }
            2 => attacked.send(script.byte()),
            3 => attacked.post(script.byte()),
            4 => {
                attacked.let_go(script.byte());
                Ok(())
            }
            5 => {
                attacked.give_credit(script.word());
                Ok(())
            }
            _ if step / 7 % 4 == 3 => {
                let at = usize::from(u16::from_le_bytes(script.take())) * 8;
                attacked.scribble(at, &script.take::<8>());
                Ok(())
            }
            _ => attacked.progress(),
        };
        done.unwrap_or_else(|error| is_told(&error));
    }
}
