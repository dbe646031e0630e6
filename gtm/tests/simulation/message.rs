//! What is packed, and the model of what must arrive.

use std::collections::BTreeSet;

use bytes::Bytes;
use madgate_gtm::wire::{Descriptor, ReceiveMode, SendMode};

use crate::random::Random;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) bytes: Bytes,
    pub(crate) send: SendMode,
    pub(crate) receive: ReceiveMode,
}

impl Block {
    pub(crate) fn descriptor(&self) -> Descriptor {
        let length = u64::try_from(self.bytes.len()).unwrap();
        Descriptor::new(length, self.send, self.receive).unwrap()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) blocks: Vec<Block>,
    /// Given up after this many blocks.
    pub(crate) aborted_after: Option<usize>,
}

/// How large messages are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) blocks_most: usize,
    pub(crate) large_most: usize,
    pub(crate) abort_permille: usize,
}

impl Message {
    pub(crate) fn random(random: &mut Random, sizes: Sizes) -> Self {
        let blocks: Vec<Block> = (0..random.within(0..sizes.blocks_most + 1))
            .map(|_| Block::random(random, sizes))
            .collect();
        let aborted_after = random
            .chance(sizes.abort_permille)
            .then(|| random.within(0..blocks.len() + 1));
        Self {
            blocks,
            aborted_after,
        }
    }
}

impl Block {
    fn random(random: &mut Random, sizes: Sizes) -> Self {
        let length = match random.within(0..8) {
            0 => 0,
            1..=4 => random.within(1..100),
            5 => random.within(3880..3960).min(sizes.large_most),
            _ => random.within(0..sizes.large_most + 1),
        };
        let mut bytes = vec![0; length];
        for chunk in bytes.chunks_mut(8) {
            let word = random.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        Self {
            bytes: bytes.into(),
            send: random.pick(&[SendMode::Safer, SendMode::Later, SendMode::Cheaper]),
            receive: random.pick(&[ReceiveMode::Express, ReceiveMode::Cheaper]),
        }
    }
}

/// What one incarnation of a source packed into a flow, and what became of it.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// In the order of their numbers.
    pub(crate) packed: Vec<Message>,
    /// Incarnations of the destination, with the numbers of the messages that arrived there
    /// whole, in the order of arrival.
    pub(crate) received: Vec<(u64, u32)>,
    /// Numbers of messages that the source was told are not delivered.
    pub(crate) failed: BTreeSet<u32>,
}

impl Ledger {
    /// A message arrived whole at this incarnation of the destination.
    pub(crate) fn receive(&mut self, at: u64, number: u32, blocks: &[Block]) {
        let message = &self.packed[usize::try_from(number).unwrap()];
        assert_eq!(
            message.aborted_after, None,
            "message {number} was given up and arrived"
        );
        assert_eq!(message.blocks.len(), blocks.len(), "blocks of {number}");
        for (packed, arrived) in message.blocks.iter().zip(blocks) {
            assert!(packed == arrived, "message {number} arrived changed");
        }
        assert!(
            self.received.last().is_none_or(|last| *last < (at, number)),
            "message {number} arrived twice or out of order"
        );
        self.received.push((at, number));
    }

    /// Whether every message arrived, or was given up, or was named as not delivered.
    pub(crate) fn is_settled(&self) -> bool {
        let arrived: BTreeSet<u32> = self.received.iter().map(|(_, number)| *number).collect();
        self.packed.iter().enumerate().all(|(number, message)| {
            let number = u32::try_from(number).unwrap();
            message.aborted_after.is_some()
                || arrived.contains(&number)
                || self.failed.contains(&number)
        })
    }
}
