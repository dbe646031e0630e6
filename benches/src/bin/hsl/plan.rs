//! What two ends exchange, and in which way.

use clap::{Args, ValueEnum};
use madgate_benches::cores;
use madgate_tm::hsl::registration::RegistrationLimits;
use madgate_tm::hsl::{Card, Mode};
use serde::Serialize;

/// How long an adaptive end looks before it sleeps.
const ADAPTIVE_SPIN_US: u64 = 50;
/// Control messages as large as the paper's.
const THRESHOLD_BYTES: usize = 16 << 10;
/// Messages before those that count.
pub(crate) const WARM_UP: usize = 50;
/// Bytes of the messages of one size, at most, that go each way.
const BYTES_MOST: usize = 256 << 20;

/// How an end learns that something has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum How {
    Polling,
    Interrupt,
    Adaptive,
}

impl How {
    pub(crate) const ALL: [Self; 3] = [Self::Polling, Self::Interrupt, Self::Adaptive];

    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Polling => Mode::Polling,
            Self::Interrupt => Mode::Interrupt,
            Self::Adaptive => Mode::Adaptive,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.mode().name()
    }
}

/// Where messages are at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Memory {
    /// In the arena.
    Arena,
    /// Anywhere else: the kernel writes it.
    Other,
    /// Anywhere else, and registered for each rendezvous, as a card of the papers needs it.
    Translated,
    /// The same through a registration cache.
    Cached,
}

impl Memory {
    pub(crate) const ALL: [Self; 4] = [Self::Arena, Self::Other, Self::Translated, Self::Cached];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Arena => "arena",
            Self::Other => "other",
            Self::Translated => "translated",
            Self::Cached => "cached",
        }
    }
}

/// What is done with messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Traffic {
    /// One goes there and back: blocks are sent, and taken where they arrive.
    Blocks,
    /// The same, and what arrives is read.
    Read,
    /// The same for messages that fit in a control slot and go from where they are.
    Short,
    /// Many go one way, some at a time.
    Stream,
}

impl Traffic {
    fn name(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Read => "read",
            Self::Short => "short",
            Self::Stream => "stream",
        }
    }
}

/// Which card the ports have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Device {
    /// The emulated one.
    #[default]
    Host,
    /// One of libfabric's.
    Libfabric,
}

/// A card, and its provider.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Wanted {
    /// Which card the ports have. `libfabric` is for the ping-pong, polling and adaptive.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) device: Device,
    /// libfabric's name of the provider; the first that it offers if left out.
    #[arg(long)]
    pub(crate) provider: Option<String>,
}

impl Wanted {
    pub(crate) fn card(&self) -> Card {
        match self.device {
            Device::Host => Card::Host,
            Device::Libfabric => Card::Libfabric {
                provider: self.provider.clone(),
                domain: None,
            },
        }
    }

    /// Its name, for people.
    pub(crate) fn name(&self) -> String {
        match (self.device, &self.provider) {
            (Device::Host, _) => "host".to_owned(),
            (Device::Libfabric, None) => "libfabric".to_owned(),
            (Device::Libfabric, Some(provider)) => format!("libfabric, {provider}"),
        }
    }

    /// How its ends can learn of arrivals.
    pub(crate) fn hows(&self) -> &'static [How] {
        match self.device {
            Device::Host => &How::ALL,
            Device::Libfabric => &[How::Polling, How::Adaptive],
        }
    }

    /// Where messages can be.
    pub(crate) fn memories(&self) -> &'static [Memory] {
        match self.device {
            Device::Host => &Memory::ALL,
            // What is not registered cannot be written there.
            Device::Libfabric => &[Memory::Arena, Memory::Translated, Memory::Cached],
        }
    }
}

/// What is exchanged.
#[derive(Debug, Clone, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) wanted: Wanted,
    /// How both ends learn of arrivals.
    #[arg(long)]
    pub(crate) how: How,
    /// Where messages are.
    #[arg(long)]
    pub(crate) memory: Memory,
    /// What is done with them.
    #[arg(long)]
    pub(crate) traffic: Traffic,
    /// Bytes of the largest control message.
    #[arg(long, default_value_t = THRESHOLD_BYTES)]
    pub(crate) threshold: usize,
    /// How long an adaptive end looks before it sleeps, in microseconds.
    #[arg(long, default_value_t = ADAPTIVE_SPIN_US)]
    pub(crate) spin_us: u64,
    /// Sizes of messages, ascending.
    #[arg(long, value_delimiter = ',')]
    pub(crate) sizes: Vec<usize>,
    /// Round trips of each; fewer of large ones, where this is not none.
    #[arg(long)]
    pub(crate) rounds: usize,
}

impl Plan {
    /// Messages to and fro, with all else as usual.
    pub(crate) fn of(how: How, memory: Memory, sizes: Vec<usize>, rounds: usize) -> Self {
        Self {
            wanted: Wanted::default(),
            how,
            memory,
            traffic: Traffic::Blocks,
            threshold: THRESHOLD_BYTES,
            spin_us: ADAPTIVE_SPIN_US,
            sizes,
            rounds,
        }
    }

    /// The program's arguments that say it again.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let sizes: Vec<String> = self.sizes.iter().map(usize::to_string).collect();
        let device = match self.wanted.device {
            Device::Host => "host",
            Device::Libfabric => "libfabric",
        };
        let provider = self.wanted.provider.iter();
        let mut arguments: Vec<String> = provider
            .map(|provider| format!("--provider={provider}"))
            .collect();
        arguments.extend([
            format!("--device={device}"),
            format!("--how={}", self.how.name()),
            format!("--memory={}", self.memory.name()),
            format!("--traffic={}", self.traffic.name()),
            format!("--threshold={}", self.threshold),
            format!("--spin-us={}", self.spin_us),
            format!("--sizes={}", sizes.join(",")),
            format!("--rounds={}", self.rounds),
        ]);
        arguments
    }

    /// How many registrations a card keeps that has to be told of memory.
    pub(crate) fn registrations(&self) -> Option<RegistrationLimits> {
        (self.memory == Memory::Cached).then(RegistrationLimits::default)
    }

    /// The program's arguments that carry it out by itself.
    pub(crate) fn command(&self) -> Vec<String> {
        [vec!["exchange".to_owned()], self.arguments()].concat()
    }

    /// How many messages of one size are sent, with those of the warm-up.
    pub(crate) fn rounds_of(&self, bytes: usize) -> usize {
        if self.rounds == 0 {
            return 0;
        }
        self.rounds.min((BYTES_MOST / bytes.max(1)).max(20)) + WARM_UP
    }

    /// Which processor each end is kept on. Not where a handler interrupts it: that is a thread
    /// of its own, which needs one too.
    pub(crate) fn cores(&self) -> Option<[usize; 2]> {
        if self.how == How::Interrupt {
            return None;
        }
        cores::two()
    }
}
