//! A lane over libfabric whose peer, and whose network, are in the hands of a fuzzer: the lists,
//! what notifications say, and what is said over the control connection.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::attendant::Attendant;
use super::connection::Connection;
use super::control::Control;
pub(in crate::hsl) use super::control::Half;
use super::domain::Facts;
use super::greeting::{GREETING_BYTES, Greeting};
use super::meeting::Meeting;
use super::outbox::lines_bytes;
use super::posting::{Completion, Posted};
use super::simulated::{Simulated, Written};
use crate::hsl::host::{ListPlace, Mode};
use crate::hsl::layout::{Geometry, REGISTERED_AT};
use crate::hsl::put::{Address, CARRIED_MOST, ENTRY_WORDS, Entry, MessageId, NodeNumber, Received};
use crate::lane::{Lane, LaneClass};
use crate::local::memory::{Mapping, SharedBytes};
use crate::local::ring::entry_at;

/// Operations of an endpoint, and receives that are posted.
const OPERATIONS: usize = 4;
const RECEIVES: usize = 4;
const PROVIDER: &str = "simulated";
/// What the two endpoints of the peer are called here.
const THERE: [u64; 2] = [3, 4];
const LINE_BYTES: usize = ENTRY_WORDS * 8;

/// What a provider does.
#[derive(Debug, Clone, Copy)]
pub(in crate::hsl) struct Provider {
    pub(in crate::hsl) is_ordered: bool,
    pub(in crate::hsl) injects: bool,
    pub(in crate::hsl) mode: Mode,
}

/// A lane, and what its peer and its network do.
#[derive(Debug)]
pub(in crate::hsl) struct Attacked {
    pub(in crate::hsl) lane: Lane,
    /// What sends here, and what receives.
    ends: [End; 2],
    own: SharedBytes,
    own_bytes: usize,
    peer: Greeting,
    /// `None` when the peer is gone.
    socket: Option<UnixStream>,
    /// Dropped last: a lane that goes has it look again.
    attended: Attended,
}

/// Connections that are looked after by whoever calls. They share the attendant, which would
/// share them if it was never asked to look.
#[derive(Debug)]
struct Attended {
    attendant: Arc<Attendant>,
    connections: Vec<Arc<Connection>>,
}

impl Attended {
    fn look(&mut self) {
        self.attendant.look(&mut self.connections);
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        self.look();
    }
}

#[derive(Debug)]
struct End {
    endpoint: Simulated,
    /// The list that the peer writes here,
    list: ListPlace,
    /// and what it has written there.
    written: u64,
    /// The list that is written there,
    list_there: ListPlace,
    /// and what has been.
    written_there: usize,
}

/// What the peer puts into a list.
#[derive(Debug, Clone, Copy)]
pub(in crate::hsl) struct Told {
    pub(in crate::hsl) source: u16,
    pub(in crate::hsl) message: MessageId,
    pub(in crate::hsl) length: u32,
    pub(in crate::hsl) words: [u64; 2],
    /// Where data goes that the entry carries, if it does.
    pub(in crate::hsl) carried: Option<u64>,
}

fn greeting(connects: bool, mode: Mode) -> Option<Greeting> {
    Some(Greeting {
        class: LaneClass::Urgent,
        connects,
        geometry: Geometry::new(4, 200, 100, mode).ok()?,
        key: 7,
        base: u64::MAX - 5000,
        provider: PROVIDER.to_owned(),
        names: [vec![1; 16], vec![2; 16]],
    })
}

/// What a peer greets this side with, if it may; whatever has been read once reads the same when
/// it is written again.
pub(in crate::hsl) fn greeted(bytes: &[u8; GREETING_BYTES]) -> Option<Attacked> {
    if let Ok(greeting) = Greeting::<Geometry>::decode(bytes) {
        assert_eq!(Greeting::decode(&greeting.encode()), Ok(greeting));
    }
    let said = greeting(false, Mode::Polling)?;
    match said.answered_by(bytes) {
        Ok(peer) => {
            let provider = Provider {
                is_ordered: true,
                injects: true,
                mode: Mode::Polling,
            };
            Attacked::of(&said, peer, provider).ok()
        }
        Err(what) => {
            assert!(!what.is_empty(), "refused without a word");
            None
        }
    }
}

impl Attacked {
    /// With a peer that has greeted as it should.
    pub(in crate::hsl) fn new(provider: Provider) -> io::Result<Self> {
        let said = greeting(true, provider.mode).zip(greeting(false, provider.mode));
        let (said, peer) = said.ok_or(io::ErrorKind::InvalidInput)?;
        Self::of(&said, peer, provider)
    }

    fn of(said: &Greeting, peer: Greeting, provider: Provider) -> io::Result<Self> {
        let facts = Facts {
            provider: PROVIDER.to_owned(),
            ordered_bytes: if provider.is_ordered { usize::MAX } else { 0 },
            largest_bytes: usize::MAX,
            inject_bytes: if provider.injects { LINE_BYTES } else { 0 },
            needs_calls: true,
            ..Facts::default()
        };
        let end = |data_bytes: usize, list, list_there| -> io::Result<End> {
            let source = Mapping::private(data_bytes + lines_bytes(OPERATIONS))?;
            Ok(End {
                endpoint: Simulated::new(facts.clone(), source),
                list,
                written: 0,
                list_there,
                written_there: 0,
            })
        };
        let [here, there] = [said.geometry, peer.geometry];
        let sending = end(
            there.send_row().end(),
            there.sender_list(),
            there.receiver_list(),
        )?;
        let receiving = end(0, here.receiver_list(), here.sender_list())?;
        let own = Mapping::for_card(here.memory_bytes())?;
        let (ours, socket) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        let attendant = Arc::new(Attendant::new()?);
        let meeting = Meeting {
            own: Arc::clone(&own),
            operations: OPERATIONS,
            said,
            peer: &peer,
            control: Arc::new(Control::new(ours.into())?),
            attendant: Arc::clone(&attendant),
        };
        let endpoints = [&sending, &receiving].map(|end| Box::new(end.endpoint.clone()) as Box<_>);
        Ok(Self {
            lane: meeting.halves(endpoints, THERE)?.lane(),
            ends: [sending, receiving],
            own_bytes: own.len(),
            own: SharedBytes::new(own),
            peer,
            socket: Some(socket),
            attended: Attended {
                attendant,
                connections: Vec::new(),
            },
        })
    }

    fn end(&mut self, half: Half) -> &mut End {
        match half {
            Half::Sending | Half::Both => &mut self.ends[0],
            Half::Receiving => &mut self.ends[1],
        }
    }

    /// The peer's card puts an entry where the next one belongs, without telling of it.
    pub(in crate::hsl) fn put(&mut self, half: Half, told: Told) {
        let most = u32::try_from(CARRIED_MOST).unwrap_or(u32::MAX);
        let carried = told.carried.filter(|_| told.length <= most);
        let entry = Entry {
            received: Received {
                source: NodeNumber(told.source),
                message: told.message,
                length: told.length,
                words: told.words,
            },
            carried: carried.map(|to| (Address(to % (1 << 56)), [9; CARRIED_MOST])),
        };
        let end = self.end(half);
        let (place, words) = entry_at(end.written, end.list.entries, entry.to_words());
        end.written += 1;
        let at = end.list.at + place * LINE_BYTES;
        self.own
            .write(at, words.map(u64::to_ne_bytes).as_flattened());
    }

    /// The peer tells of something, which takes a receive or does not.
    pub(in crate::hsl) fn notify(&mut self, half: Half, notice: Option<u64>, receive: bool) {
        let place = receive.then_some(OPERATIONS + RECEIVES - 1);
        let completion = Completion { place, notice };
        let mut network = self.end(half).endpoint.network();
        network.completions.push_back(Ok(completion));
    }

    /// The peer writes anywhere in what it may write.
    pub(in crate::hsl) fn scribble(&self, at: usize, bytes: [u8; 8]) {
        let most = self.own_bytes - bytes.len();
        self.own.write(at.min(most), &bytes);
    }

    /// Says how far this side's messages have been read.
    pub(in crate::hsl) fn tell_read(&mut self, half: Half, read: u64) {
        let at = self.end(half).list_there.head_at;
        self.own.write(at, &read.to_ne_bytes());
    }

    /// The network completes one of the writes that go on.
    pub(in crate::hsl) fn complete(&mut self, half: Half, which: u8) {
        self.end(half).endpoint.complete(which.into());
    }

    /// The network takes writes from now on, does not now, or never will again.
    pub(in crate::hsl) fn answer(&mut self, half: Half, kind: u8) {
        self.end(half).endpoint.network().answer = match kind % 8 {
            0 => Posted::Failed(-5),
            1..4 => Posted::NotNow,
            _ => Posted::Yes,
        };
    }

    /// A write of this side's fails.
    pub(in crate::hsl) fn fail(&mut self, half: Half) {
        let mut network = self.end(half).endpoint.network();
        network.completions.push_back(Err(-5));
    }

    /// The peer says something over the control connection, which it does not read.
    pub(in crate::hsl) fn say(&mut self, bytes: &[u8]) {
        if let Some(socket) = &mut self.socket {
            // A full socket is the peer's own fault.
            let _ = socket.write(bytes);
        }
    }

    /// The peer is gone.
    pub(in crate::hsl) fn hang_up(&mut self) {
        self.socket = None;
    }

    /// The attendant looks once.
    pub(in crate::hsl) fn attend(&mut self) {
        self.attended.look();
    }

    /// Whatever was posted goes to the peer's own memory: data to what is registered for it,
    /// each notification to the next entry of its list, and how far its messages have been read to
    /// one word.
    pub(in crate::hsl) fn check_written(&mut self) {
        let registered = REGISTERED_AT..self.peer.geometry.memory_bytes();
        for (end, there) in self.ends.iter_mut().zip(THERE) {
            let list = &end.list_there;
            let head = end.list.head_at..end.list.head_at + 8;
            for written in end.endpoint.network().written.drain(..) {
                let Written { to, length, notice } = written;
                assert_eq!((to.peer, to.key), (there, self.peer.key));
                let at = to.address.wrapping_sub(self.peer.base);
                let start = usize::try_from(at).expect("an address of the peer's");
                let is_within = |range: &std::ops::Range<usize>| {
                    range.start <= start && length <= range.end.saturating_sub(start)
                };
                let is_allowed = if notice.is_some() {
                    let next = end.written_there % list.entries;
                    end.written_there += 1;
                    (start, length) == (list.at + next * LINE_BYTES, LINE_BYTES)
                } else {
                    is_within(&registered) || is_within(&head)
                };
                assert!(is_allowed, "{length} bytes at {start}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_that_is_not_taken_now_is_posted_when_it_is() {
        let mut attacked = Attacked::new(Provider {
            is_ordered: true,
            injects: true,
            mode: Mode::Polling,
        })
        .unwrap();
        let posted = |attacked: &mut Attacked| {
            let end = attacked.end(Half::Receiving);
            std::mem::take(&mut end.endpoint.network().receives)
        };
        let (not_now, yes) = (1, 4);
        attacked.answer(Half::Receiving, not_now);
        // A notification has taken one.
        attacked.notify(Half::Receiving, None, true);
        assert!(attacked.lane.receiver.try_receive_slot().unwrap().is_none());
        attacked.attend();
        assert!(posted(&mut attacked).is_empty());
        attacked.answer(Half::Receiving, yes);
        attacked.attend();
        assert_eq!(posted(&mut attacked), [OPERATIONS + RECEIVES - 1]);
        attacked.attend();
        assert!(posted(&mut attacked).is_empty());
    }
}
