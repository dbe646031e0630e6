//! Links in virtual time: each is two lanes forth and one back, which delay what they carry,
//! split it anywhere, take only so much at a time, and can be lost.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use bytes::{Bytes, BytesMut};
use madgate_gtm::wire::{HEADER_BYTES, Header, Kind, WireError};
use madgate_gtm::{Time, transit};

use crate::random::Random;

/// Which way through a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    Urgent,
    Bulk,
    Back,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// Something may have arrived on a link.
    Arrival {
        link: usize,
        way: Way,
    },
    /// A party has something to do in time.
    Wake(usize),
    /// The link between two parties is lost, for this many microseconds.
    LinkLost(usize, usize, u64),
    LinkUp(usize, usize),
    /// The accepting side finds out that a link is lost.
    AcceptorNotices(usize),
    /// A party loses all it knows and starts again.
    Restart(usize),
    /// A party does nothing until it goes on.
    Stop(usize),
    GoOn(usize),
    /// An endpoint's application does not consume until it goes on.
    AppStop(usize),
    AppGoOn(usize),
    /// Gateways forget silent flows.
    Sweep,
}

/// How links treat what they carry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manners {
    /// Bytes under way at most, before a sender must wait.
    pub(crate) capacity: usize,
    /// Bytes of one piece at most; pieces arrive one by one.
    pub(crate) piece_most: usize,
    pub(crate) latency_us: usize,
    /// In a million bytes of data frames, this many are changed.
    pub(crate) corrupt_per_million: usize,
    /// In a thousand control frames, this many vanish.
    pub(crate) drop_control_permille: usize,
}

#[derive(Debug, Default)]
struct Stream {
    under_way: VecDeque<(Time, Bytes)>,
    bytes: usize,
    last_arrival: Time,
    received: BytesMut,
}

/// One life of the link between two parties; a lost link is never used again.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) from: usize,
    pub(crate) to: usize,
    urgent: Stream,
    bulk: Stream,
    back: Stream,
    pub(crate) dialer_holds: bool,
    pub(crate) acceptor_holds: bool,
    /// What the gateways at its ends call it.
    pub(crate) dialer_id: Option<transit::LinkId>,
    pub(crate) acceptor_id: Option<transit::LinkId>,
}

impl Link {
    fn stream(&mut self, way: Way) -> &mut Stream {
        match way {
            Way::Urgent => &mut self.urgent,
            Way::Bulk => &mut self.bulk,
            Way::Back => &mut self.back,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) now: Time,
    pub(crate) random: Random,
    pub(crate) manners: Manners,
    pub(crate) links: Vec<Link>,
    /// The link that is up between two parties.
    pub(crate) current: HashMap<(usize, usize), usize>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    next_event: u64,
}

impl Network {
    pub(crate) fn new(random: Random, manners: Manners) -> Self {
        Self {
            now: Time(0),
            random,
            manners,
            links: Vec::new(),
            current: HashMap::new(),
            events: BinaryHeap::new(),
            next_event: 0,
        }
    }

    pub(crate) fn schedule(&mut self, at: Time, event: Event) {
        self.next_event += 1;
        self.events
            .push(Reverse((at.max(self.now), self.next_event, event)));
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let Reverse((at, _, event)) = self.events.pop()?;
        self.now = at;
        Some(event)
    }

    pub(crate) fn connect(&mut self, from: usize, to: usize) -> usize {
        self.links.push(Link {
            from,
            to,
            urgent: Stream::default(),
            bulk: Stream::default(),
            back: Stream::default(),
            dialer_holds: true,
            acceptor_holds: true,
            dialer_id: None,
            acceptor_id: None,
        });
        let link = self.links.len() - 1;
        self.current.insert((from, to), link);
        link
    }

    /// The way that a party's control frames take on a link.
    pub(crate) fn control_way(&self, party: usize, link: usize) -> Way {
        if self.links[link].from == party {
            Way::Urgent
        } else {
            Way::Back
        }
    }

    /// Bytes that may be sent now.
    pub(crate) fn room(&mut self, link: usize, way: Way) -> usize {
        let capacity = self.manners.capacity;
        capacity.saturating_sub(self.links[link].stream(way).bytes)
    }

    /// Sends whole frames.
    pub(crate) fn send(&mut self, link: usize, way: Way, mut bytes: Bytes) {
        if self.manners.corrupt_per_million > 0 {
            bytes = self.corrupt(bytes);
        }
        let (piece_most, latency_us) = (self.manners.piece_most, self.manners.latency_us);
        let receives = match way {
            Way::Back => self.links[link].dialer_holds,
            _ => self.links[link].acceptor_holds,
        };
        if !receives {
            return;
        }
        while !bytes.is_empty() {
            let most = bytes.len().min(piece_most);
            let piece = bytes.split_to(self.random.within(1..most + 1));
            let delay = self.random.duration_us(1..latency_us + 2);
            let now = self.now;
            let stream = self.links[link].stream(way);
            let at = (now + delay).max(stream.last_arrival);
            stream.last_arrival = at;
            stream.bytes += piece.len();
            stream.under_way.push_back((at, piece));
            self.schedule(at, Event::Arrival { link, way });
        }
    }

    /// The next whole frame that has arrived.
    pub(crate) fn receive(
        &mut self,
        link: usize,
        way: Way,
    ) -> Option<Result<(Header, Bytes), WireError>> {
        let now = self.now;
        let stream = self.links[link].stream(way);
        while let Some((at, _)) = stream.under_way.front()
            && *at <= now
        {
            let (_, piece) = stream.under_way.pop_front()?;
            stream.bytes -= piece.len();
            stream.received.extend_from_slice(&piece);
        }
        let header = match Header::parse(stream.received.first_chunk::<HEADER_BYTES>()?) {
            Ok(header) => header,
            Err(error) => return Some(Err(error)),
        };
        if stream.received.len() < header.frame_bytes() {
            return None;
        }
        let frame = stream.received.split_to(header.frame_bytes()).freeze();
        if header.kind != Kind::Data && self.random.chance(self.manners.drop_control_permille) {
            return self.receive(link, way);
        }
        Some(Ok((header, frame)))
    }

    /// The link is lost: the dialer knows at once; the acceptor still gets what has come
    /// through so far, and notices after it.
    pub(crate) fn lose(&mut self, link: usize) {
        self.links[link].dialer_holds = false;
        let key = (self.links[link].from, self.links[link].to);
        if self.current.get(&key) == Some(&link) {
            self.current.remove(&key);
        }
        for way in [Way::Urgent, Way::Bulk] {
            let survives = self.random.within(0..3);
            let stream = self.links[link].stream(way);
            let keep = stream.under_way.len() * survives / 3;
            for (_, piece) in stream.under_way.drain(keep..) {
                stream.bytes -= piece.len();
            }
        }
        let back = self.links[link].stream(Way::Back);
        *back = Stream::default();
    }

    /// Neither side uses the link any more.
    pub(crate) fn forget(&mut self, link: usize) {
        let gone = &mut self.links[link];
        (gone.dialer_holds, gone.acceptor_holds) = (false, false);
        for way in [Way::Urgent, Way::Bulk, Way::Back] {
            *gone.stream(way) = Stream::default();
        }
        let key = (gone.from, gone.to);
        if self.current.get(&key) == Some(&link) {
            self.current.remove(&key);
        }
    }

    /// Changes a byte here and there, but none that frames are told apart by.
    fn corrupt(&mut self, bytes: Bytes) -> Bytes {
        let mut changed = BytesMut::from(bytes);
        let mut at = 0;
        while at < changed.len() {
            let header = Header::parse(changed[at..].first_chunk().unwrap()).unwrap();
            let frame_bytes = header.frame_bytes();
            let permille = self.manners.corrupt_per_million * frame_bytes / 1000;
            if header.kind == Kind::Data && self.random.chance(permille.min(100)) {
                let place = self.random.within(2..frame_bytes);
                if !(12..16).contains(&place) {
                    changed[at + place] ^= 1 << self.random.within(0..8);
                }
            }
            at += frame_bytes;
        }
        changed.freeze()
    }
}
