//! Networks and channels, as the file describes them.

use std::path::PathBuf;

use madgate_gtm::transit::{Rate, Share};
use madgate_tm::hsl::Mode;
use madgate_tm::{Endpoint, EndpointError, Protocol, Tuning};

use super::id::NetworkId;
use super::settings::MTU_BOUNDS;
use super::tuning::default_tuning;

/// What a frame adds to its fragment at most: the header, the opening of a flow and the
/// description of a block, rounded up to two cache lines.
pub const FRAME_OVERHEAD_BYTES: usize = 128;

/// A protocol, and the nodes that it connects.
#[derive(Debug, Clone)]
pub struct Network {
    /// Its name.
    pub name: String,
    /// How its nodes talk.
    pub protocol: Protocol,
    /// The folder where its nodes meet, as the file names it.
    pub written_directory: Option<PathBuf>,
    /// The same, resolved against the folder of the cluster file.
    pub directory: Option<PathBuf>,
    /// What a route pays for crossing it; 1 unless the file says otherwise.
    pub cost: u32,
    /// The largest fragment that it shall carry, where the file says so.
    pub mtu: Option<u32>,
    /// How fast a gateway may send into it.
    pub rate: Option<Rate>,
    /// How its links are tuned.
    pub tuning: Tuning,
}

/// A closed world of communication over some of the networks.
#[derive(Debug, Clone)]
pub struct Channel {
    /// Its name.
    pub name: String,
    /// The networks that it spans, in the order of their numbers.
    pub networks: Vec<NetworkId>,
    /// Its largest fragment, unless a network on the way carries less.
    pub mtu: u32,
    /// What each of its flows has of a gateway.
    pub share: Share,
    /// What the checksums of its frames cover that cross gateways.
    pub checksum: Checksum,
}

/// What the checksums cover of frames that cross gateways. Either is understood by who receives it, so
/// nodes need not agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksum {
    /// Header and payload, from the memory of the source to that of the destination: the default.
    #[default]
    Payload,
    /// The header alone, as on one hop over a protocol that keeps bytes whole: what memory or a card
    /// of a gateway changes in a payload is for the application to find.
    Header,
}

impl Checksum {
    /// What each is called in a cluster file.
    pub const NAMES: [(&'static str, Self); 2] =
        [("payload", Self::Payload), ("header", Self::Header)];

    /// What it is called in a cluster file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Payload => "payload",
            Self::Header => "header",
        }
    }
}

impl Network {
    /// The largest fragment that this network carries whole.
    #[must_use]
    pub fn largest_fragment_bytes(&self) -> u32 {
        let frame = madgate_tm::largest_frame(self.protocol, &self.tuning);
        let carried = u32::try_from(frame.saturating_sub(FRAME_OVERHEAD_BYTES)).unwrap_or(u32::MAX);
        let allowed = u32::try_from(*MTU_BOUNDS.end()).unwrap_or(u32::MAX);
        carried.min(self.mtu.unwrap_or(allowed))
    }

    /// Whether what is sent never leaves the memory of one host.
    #[must_use]
    pub fn stays_in_memory(&self) -> bool {
        madgate_tm::stays_in_memory(self.protocol, &self.tuning)
    }

    /// Whether its nodes are never told that something has come: who waits for it looks again and
    /// again, however its `wait` is.
    #[must_use]
    pub fn never_wakes(&self) -> bool {
        self.protocol == Protocol::Hsl && self.tuning.hsl.mode == Mode::Polling
    }

    /// How it would be tuned if the file said nothing of that, but for its `mtu` and its card, which
    /// slots follow.
    #[must_use]
    pub fn default_tuning(&self) -> Tuning {
        default_tuning(self.mtu, self.tuning.hsl.card.clone())
    }

    /// Reads an address of this network.
    ///
    /// # Errors
    /// When it is none.
    pub fn endpoint(&self, text: &str) -> Result<Endpoint, EndpointError> {
        Endpoint::parse(self.protocol, text, self.directory.as_deref())
    }
}
