//! A lane whose peer is in the hands of a test: over real memory, with the peer's cards.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::HslTuning;
use super::host::{Connection, HostCard, HostDevice, Mode};
use super::lane::{HslReceiver, HslSender};
use super::layout::{Geometry, REGISTERED_AT};
use super::put::{Address, Descriptor, MessageId, NodeNumber, Notify, PutError, Sending};
use super::terms::{HslTerms, Side, receiver, sender};
use crate::local::bell::Bell;
use crate::local::memory::Mapping;

/// Slots of the lane.
pub(super) const SLOTS: u32 = 4;
/// Bytes of one,
pub(super) const SLOT_BYTES: u32 = 200;
/// and of a control slot.
pub(super) const CONTROL_BYTES: u32 = 100;

/// Which of the two the peer is.
pub(super) const PEER: NodeNumber = NodeNumber(1);
pub(super) const OURS: NodeNumber = NodeNumber(0);

/// Ours, and the peer's cards and bell ends.
pub(super) struct Attack {
    pub(super) sender: HslSender<HostDevice>,
    pub(super) receiver: HslReceiver<HostDevice>,
    /// What the peer writes to our receiving half,
    pub(super) messages: HostCard,
    /// and to our sending half.
    pub(super) answers: HostCard,
    pub(super) own: Side,
    pub(super) peer: Side,
    bells: Vec<UnixStream>,
}

pub(super) fn side() -> Side {
    let (slots, slot_bytes) = (SLOTS.into(), SLOT_BYTES.into());
    let geometry = Geometry::new(slots, slot_bytes, CONTROL_BYTES.into(), Mode::Adaptive)
        .expect("within the limits");
    let length = geometry.memory_bytes();
    let memory = Mapping::for_card(length).expect("memory");
    Side { memory, geometry }
}

fn socket_pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().expect("sockets")
}

impl Attack {
    pub(super) fn new() -> Self {
        let (own, peer) = (side(), side());
        let (sending, far_sending) = socket_pair();
        let (receiving, far_receiving) = socket_pair();
        let numbers = [OURS, PEER];
        let card = |list| {
            let to = Connection {
                local_registered: REGISTERED_AT..peer.memory.len(),
                node: PEER,
                peer: OURS,
                window: own.memory.clone(),
                registered: REGISTERED_AT..own.memory.len(),
                list,
                bell: Arc::new(Bell::new(socket_pair().0.into())),
            };
            let mut card = HostCard::new(peer.memory.clone(), Mode::Adaptive, to);
            card.carry_anywhere();
            card
        };
        let sender = sender(
            &own,
            &peer,
            numbers,
            Bell::new(sending.into()),
            &HslTerms::of(&HslTuning::default()),
        );
        Self {
            sender: sender.expect("memory"),
            receiver: receiver(&own, &peer, numbers, Bell::new(receiving.into())),
            messages: card(own.geometry.receiver_list()),
            answers: card(peer.geometry.sender_list()),
            own,
            peer,
            bells: vec![far_sending, far_receiving],
        }
    }

    /// The peer rings for as long as anybody takes it in.
    pub(super) fn ring(&self) {
        for bell in &self.bells {
            bell.set_nonblocking(true).expect("a socket");
            while std::io::Write::write(&mut &*bell, &[1; 4096]).is_ok() {}
        }
    }

    /// The peer is gone. Not by closing alone: a process that another test starts holds what this
    /// one has open until it runs its program.
    pub(super) fn hang_up(&mut self) {
        for bell in self.bells.drain(..) {
            // Miri does not know it, and starts no processes.
            let _ = bell.shutdown(Shutdown::Both);
        }
    }
}

/// What a card of the peer's tells.
pub(super) fn tell(
    card: &mut HostCard,
    message: MessageId,
    length: u32,
    words: [u64; 2],
) -> Result<(), PutError> {
    card.try_add(&told(message, length, REGISTERED_AT, words))
}

/// The entry of a put to `to` that is told of.
pub(super) fn told(message: MessageId, length: u32, to: usize, words: [u64; 2]) -> Descriptor {
    Descriptor {
        destination: OURS,
        local: Address(REGISTERED_AT as u64),
        remote: Address(to as u64),
        length,
        message,
        notify: Notify {
            sent: false,
            received: true,
        },
        words,
    }
}
