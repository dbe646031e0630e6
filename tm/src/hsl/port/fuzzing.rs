//! A port whose peer is in the hands of a fuzzer.

use super::layout::SEGMENT_BYTES;
use super::matching::Span;
use super::{Arrived, Block, Port, Untaken, Why};
use crate::hsl::message::{Kind, identifier};
use crate::hsl::put::{Address, Descriptor, MessageId, Name, Notify};
use crate::lane::LaneError;

/// A port, what has arrived at it, and its peer.
#[derive(Debug)]
pub(in crate::hsl) struct Attacked {
    ours: Port,
    peer: Port,
    held: Vec<Arrived>,
    /// Numbers of what was sent and has not come back.
    sent: Vec<u64>,
    /// Bytes of each memory that was posted and has not come back.
    posted: Vec<u64>,
    /// A call has failed: what it had taken by then, nobody can tell.
    has_failed: bool,
}

impl Attacked {
    pub(in crate::hsl) fn new(ours: Port, peer: Port) -> Self {
        Self {
            ours,
            peer,
            held: Vec::new(),
            sent: Vec::new(),
            posted: Vec::new(),
            has_failed: false,
        }
    }

    /// The peer puts anything, with some data at the beginning of a control slot.
    pub(in crate::hsl) fn tell(&mut self, message: MessageId, length: u32, word: u64) {
        self.put(
            message,
            self.peer.peer_geometry.control_row().at,
            length,
            [word, 0],
        );
    }

    /// The peer answers a request with up to two segments, which may lie anywhere.
    pub(in crate::hsl) fn answer(&mut self, number: u8, at: u64, length: u32, count: u8) {
        let row = self.peer.peer_geometry.answer_row();
        let number = u32::from(number) % row.slots;
        let registered = self.peer.own_geometry.arena().0 as u64;
        let staging = self.peer.own_geometry.staging_row().at;
        let spans = [
            Span {
                at: registered.wrapping_add(at),
                length,
                name: Name::default(),
            },
            Span {
                at: registered,
                length: 50,
                name: Name::default(),
            },
        ];
        for (place, span) in spans.into_iter().enumerate() {
            let place = staging + place * SEGMENT_BYTES;
            self.peer.bytes.write(place, &span.encode());
        }
        let message = identifier(Kind::Response, number);
        let length = u32::try_from(2 * SEGMENT_BYTES).unwrap_or(0);
        self.put(
            message,
            row.slot_at(number),
            length,
            [u64::from(count % 4), 0],
        );
    }

    /// The peer writes into our list, or the words beside it, without its card.
    pub(in crate::hsl) fn scribble(&mut self, at: usize, bytes: &[u8]) {
        self.ours.bytes.write(at, bytes);
    }

    /// The peer gives credit that it may not have.
    pub(in crate::hsl) fn give_credit(&mut self, mask: u64) {
        self.put(identifier(Kind::Credit, 0), 0, 0, [0, mask]);
    }

    fn put(&mut self, message: MessageId, remote: usize, length: u32, words: [u64; 2]) {
        let descriptor = Descriptor {
            destination: self.peer.peer,
            local: Address(self.peer.own_geometry.staging_row().at as u64),
            remote: Address(remote as u64),
            length: length.min(self.peer.own_geometry.control_bytes()),
            message,
            notify: Notify {
                sent: false,
                received: true,
            },
            words,
        };
        // A full list is the peer's own fault.
        let _ = self.peer.put.add_entry(&descriptor);
    }

    /// Sends a message in two blocks.
    pub(in crate::hsl) fn send(&mut self, size: u8) -> Result<(), LaneError> {
        let bytes = usize::from(size) * 4;
        let mut blocks = vec![Block::Other(vec![size; bytes])];
        blocks.extend(self.ours.arena().allocate(size.into()).map(Block::Arena));
        match taken(self.ours.send(blocks)) {
            Ok(Some(number)) => {
                assert!(!self.sent.contains(&number), "a number is given twice");
                self.sent.push(number);
            }
            Ok(None) => {}
            Err(error) => return Err(self.fails(error)),
        }
        Ok(())
    }

    /// Posts memory; none at all would be a mistake of ours.
    pub(in crate::hsl) fn post(&mut self, size: u8) -> Result<(), LaneError> {
        let Some(buffer) = self.ours.arena().allocate(u32::from(size.max(1)) * 4) else {
            return Ok(());
        };
        let bytes = buffer.len() as u64;
        match taken(self.ours.post(vec![Block::Arena(buffer)])) {
            Ok(Some(())) => self.posted.push(bytes),
            Ok(None) => {}
            Err(error) => return Err(self.fails(error)),
        }
        Ok(())
    }

    fn fails(&mut self, error: LaneError) -> LaneError {
        self.has_failed = true;
        error
    }

    /// Something has come back: it was given away, and is not any more.
    fn comes_back(&mut self, which: impl FnOnce(&mut Self) -> &mut Vec<u64>, back: u64) {
        let has_failed = self.has_failed;
        let away = which(self);
        match away.iter().position(|given| *given == back) {
            Some(place) => drop(away.swap_remove(place)),
            None => assert!(has_failed, "{back} comes back that was not given away"),
        }
    }

    /// Drops what has arrived.
    pub(in crate::hsl) fn let_go(&mut self, place: u8) {
        if !self.held.is_empty() {
            self.held.swap_remove(usize::from(place) % self.held.len());
        }
    }

    /// Goes on.
    pub(in crate::hsl) fn progress(&mut self) -> Result<(), LaneError> {
        // The shortest ones are copied, one at a time, the others handed out.
        let copied = self.ours.receive_short(&mut [0; 16]);
        let progress = copied.and_then(|_| self.ours.progress());
        while let Some(arrived) = self.ours.next_arrived() {
            if let Arrived::Posted(blocks, _) = &arrived {
                self.comes_back(|own| &mut own.posted, super::block::length(blocks));
            }
            self.held.push(arrived);
        }
        while let Some((number, _)) = self.ours.next_sent() {
            self.comes_back(|own| &mut own.sent, number);
        }
        for arrived in &self.held {
            match arrived {
                Arrived::Short(slot) | Arrived::Unposted(slot) => {
                    slot.copy_out(0, &mut vec![0; slot.len()]);
                }
                Arrived::Posted(blocks, length) => {
                    assert!(*length <= super::block::length(blocks));
                }
            }
        }
        progress.map_err(|error| self.fails(error))
    }
}

/// That a port is full is no fault of anybody's: nothing is taken then.
fn taken<T>(result: Result<T, Untaken>) -> Result<Option<T>, LaneError> {
    match result {
        Err(Untaken {
            why: Why::Lane(error),
            ..
        }) => Err(error),
        Ok(taken) => Ok(Some(taken)),
        Err(_) => Ok(None),
    }
}
