//! What can be tuned: every knob of a cluster file by its name, what it means, and its value.
//!
//! ```text
//!   cluster file ──> Plan ──with(values)──> another Cluster, checked like any file
//!                      └──────────────────> its text, with comments and order kept
//! ```
//!
//! Values are checked in one place only, where cluster files are read. Keys that are no knobs
//! (names, addresses, the session key, folders, caps of memory) cannot be changed this way; those
//! of them that decide how fast a session is are [`SETTINGS`].

mod document;
mod plan;
mod settings;
#[cfg(test)]
mod tests;
mod value;

use std::fmt;

use madgate_tm::hsl::{Card, Mode};
use madgate_tm::{Protocol, Tuning};
use madgate_vchannel::Cluster;
use madgate_vchannel::cluster::{DEFAULT_MTU, EndpointSettings, GatewaySettings, Handover};

pub(crate) use plan::Plan;
pub(crate) use settings::SETTINGS;
pub(crate) use value::{Kind, Value};

/// Part of a cluster file that holds knobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    /// `[gateway]`
    Gateway,
    /// `[endpoint]`
    Endpoint,
    /// One `[[channel]]`
    Channel,
    /// One `[[network]]`
    Network,
}

/// A knob, whichever channel or network it is of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Knob {
    /// Where it stands.
    pub(crate) section: Section,
    /// What it is called there.
    pub(crate) key: &'static str,
    /// What its values look like.
    pub(crate) kind: Kind,
    /// What it does.
    pub(crate) meaning: &'static str,
    /// Values that are worth a try, from small to large.
    pub(crate) tried: &'static [&'static str],
    /// The protocols whose networks have it; none: it is not of a network.
    pub(crate) protocols: &'static [Protocol],
}

const TCP: &[Protocol] = &[Protocol::Tcp];
const HSL: &[Protocol] = &[Protocol::Hsl];
const LOCAL: &[Protocol] = &[Protocol::Shm, Protocol::Hsl];

/// `spin` is not among them: it never sleeps, and keeps processors busy with nothing to do.
const WAITS: &[&str] = &["sleep", "adaptive 20us", "adaptive 100us", "adaptive 1ms"];

/// Every knob; those that usually change most come first, and are tried first.
pub(crate) static KNOBS: [Knob; 35] = [
    Knob {
        section: Section::Channel,
        key: "mtu",
        kind: Kind::Size,
        meaning: "the largest fragment: long ones cost less each, short ones fill the pipeline sooner",
        tried: &[
            "16KiB", "32KiB", "64KiB", "128KiB", "256KiB", "512KiB", "1MiB", "2MiB",
        ],
        protocols: &[],
    },
    Knob {
        section: Section::Network,
        key: "slot_bytes",
        kind: Kind::Size,
        meaning: "what a slot of shared memory holds, and with it the largest fragment of the route",
        tried: &[
            "20KiB", "36KiB", "68KiB", "132KiB", "260KiB", "516KiB", "1028KiB",
        ],
        protocols: LOCAL,
    },
    Knob {
        section: Section::Network,
        key: "threshold",
        kind: Kind::Size,
        meaning: "up to here a message of remote write is a control message, beyond it a rendezvous",
        tried: &["1KiB", "4KiB", "16KiB", "64KiB"],
        protocols: HSL,
    },
    Knob {
        section: Section::Network,
        key: "mode",
        kind: Kind::Word,
        meaning: "how a node learns that something has come by remote write",
        // As above: `polling` never sleeps.
        tried: &["interrupt", "adaptive"],
        protocols: HSL,
    },
    Knob {
        section: Section::Gateway,
        key: "wait",
        kind: Kind::Wait,
        meaning: "how a gateway's threads wait: to look again costs processor time, to sleep costs latency",
        tried: WAITS,
        protocols: &[],
    },
    Knob {
        section: Section::Endpoint,
        key: "wait",
        kind: Kind::Wait,
        meaning: "the same for the threads of applications",
        tried: WAITS,
        protocols: &[],
    },
    Knob {
        section: Section::Gateway,
        key: "depth",
        kind: Kind::Count,
        meaning: "batches between a receiver and a sender; 2 is double buffering",
        tried: &["1", "2", "4", "8"],
        protocols: &[],
    },
    Knob {
        section: Section::Gateway,
        key: "batch",
        kind: Kind::Size,
        meaning: "what one system call of a gateway reads at most; at least a frame",
        tried: &["256KiB", "512KiB", "1MiB", "2MiB", "4MiB"],
        protocols: &[],
    },
    Knob {
        section: Section::Gateway,
        key: "handover",
        kind: Kind::Word,
        meaning: "whether a receiver sends by itself while the sender is idle, or always hands over",
        tried: &["inline", "thread"],
        protocols: &[],
    },
    Knob {
        section: Section::Gateway,
        key: "pin",
        kind: Kind::Pin,
        meaning: "the processors that a gateway's threads are pinned to, in turn",
        // What can be tried is for the machine to say.
        tried: &["none"],
        protocols: &[],
    },
    Knob {
        section: Section::Gateway,
        key: "splice",
        kind: Kind::Flag,
        meaning: "whether long payloads pass from socket to socket inside the kernel",
        tried: &["true", "false"],
        protocols: &[],
    },
    Knob {
        section: Section::Gateway,
        key: "splice_from",
        kind: Kind::Size,
        meaning: "payloads of blocks from here on do so, where any do",
        tried: &["16KiB", "64KiB", "256KiB", "1MiB"],
        protocols: &[],
    },
    Knob {
        section: Section::Gateway,
        key: "direct",
        kind: Kind::Size,
        meaning: "payloads from here on are received straight into where they leave from",
        tried: &["4KiB", "16KiB", "64KiB", "256KiB"],
        protocols: &[],
    },
    Knob {
        section: Section::Gateway,
        key: "ahead",
        kind: Kind::Size,
        meaning: "how much a gateway fills into slots ahead of the node that reads them",
        tried: &["4MiB", "7MiB", "16MiB", "1GiB"],
        protocols: &[],
    },
    Knob {
        section: Section::Gateway,
        key: "lookout",
        kind: Kind::Flag,
        meaning: "whether one receiver looks after all networks while little comes",
        tried: &["true", "false"],
        protocols: &[],
    },
    Knob {
        section: Section::Gateway,
        key: "deputies",
        kind: Kind::Flag,
        meaning: "whether, while much comes, receivers stand in for each other where one waits for a processor",
        tried: &["true", "false"],
        protocols: &[],
    },
    Knob {
        section: Section::Gateway,
        key: "sched_batch",
        kind: Kind::Flag,
        meaning: "whether receivers with much to do leave others the processor when they are woken",
        tried: &["true", "false"],
        protocols: &[],
    },
    Knob {
        section: Section::Endpoint,
        key: "window",
        kind: Kind::Size,
        meaning: "the most that one flow may have on its way, of fragments that are not large",
        tried: &["1MiB", "4MiB", "16MiB"],
        protocols: &[],
    },
    Knob {
        section: Section::Network,
        key: "socket_buffer",
        kind: Kind::Size,
        meaning: "kernel buffer of a bulk connection, in each direction",
        tried: &["512KiB", "1MiB", "2MiB", "4MiB"],
        protocols: TCP,
    },
    Knob {
        section: Section::Endpoint,
        key: "retention",
        kind: Kind::Size,
        meaning: "what a sender keeps of messages that are not delivered, so that it need not wait",
        tried: &["4MiB", "24MiB", "64MiB"],
        protocols: &[],
    },
    Knob {
        section: Section::Network,
        key: "unsent",
        kind: Kind::Size,
        meaning: "bytes of a bulk connection that the kernel may hold unsent",
        tried: &["256KiB", "2MiB", "8MiB"],
        protocols: TCP,
    },
    Knob {
        section: Section::Network,
        key: "slots",
        kind: Kind::Count,
        meaning: "slots of a bulk lane of shared memory",
        tried: &["16", "32", "64", "256"],
        protocols: LOCAL,
    },
    Knob {
        section: Section::Network,
        key: "urgent_unsent",
        kind: Kind::Size,
        meaning: "bytes of small messages that the kernel may hold unsent",
        tried: &["16KiB", "64KiB", "256KiB"],
        protocols: TCP,
    },
    Knob {
        section: Section::Network,
        key: "urgent_slots",
        kind: Kind::Count,
        meaning: "slots of a lane of small messages of shared memory",
        tried: &["16", "64", "256"],
        protocols: LOCAL,
    },
    Knob {
        section: Section::Network,
        key: "stores",
        kind: Kind::Word,
        meaning: "whether large units go to shared memory through the caches, past them, or as is faster",
        tried: &["adaptive", "cached", "streaming"],
        protocols: LOCAL,
    },
    Knob {
        section: Section::Network,
        key: "low_water",
        kind: Kind::Flag,
        meaning: "whether a receiver is woken for a good part of what is coming, or for each arrival",
        tried: &["true", "false"],
        protocols: TCP,
    },
    Knob {
        section: Section::Endpoint,
        key: "leads",
        kind: Kind::Flag,
        meaning: "whether small blocks, and what a large one begins with, travel in front of it",
        tried: &["true", "false"],
        protocols: &[],
    },
    Knob {
        section: Section::Endpoint,
        key: "straight",
        kind: Kind::Flag,
        meaning: "whether blocks that are being unpacked are received where they belong",
        tried: &["true", "false"],
        protocols: &[],
    },
    Knob {
        section: Section::Endpoint,
        key: "batches",
        kind: Kind::Flag,
        meaning: "whether payloads of less than 16 KiB are received many at once, and copied",
        tried: &["true", "false"],
        protocols: &[],
    },
    Knob {
        section: Section::Endpoint,
        key: "bundles",
        kind: Kind::Flag,
        meaning: "whether small messages that wait to be sent share frames",
        tried: &["true", "false"],
        protocols: &[],
    },
    Knob {
        section: Section::Gateway,
        key: "gather",
        kind: Kind::Flag,
        meaning: "whether frames that wait for a link leave together",
        tried: &["true", "false"],
        protocols: &[],
    },
    Knob {
        section: Section::Endpoint,
        key: "gather",
        kind: Kind::Flag,
        meaning: "whether frames that wait leave together, and messages of a burst wait for it",
        tried: &["true", "false"],
        protocols: &[],
    },
    Knob {
        section: Section::Endpoint,
        key: "ramps",
        kind: Kind::Flag,
        meaning: "whether blocks begin and end with small fragments, so that pipelines fill early",
        tried: &["true", "false"],
        protocols: &[],
    },
    Knob {
        section: Section::Endpoint,
        key: "sized_by_speed",
        kind: Kind::Flag,
        meaning: "whether fragments grow with the speed of their flow",
        tried: &["true", "false"],
        protocols: &[],
    },
    Knob {
        section: Section::Endpoint,
        key: "wide_windows",
        kind: Kind::Flag,
        meaning: "whether two or three windows may be on their way while fragments are large",
        tried: &["true", "false"],
        protocols: &[],
    },
];

/// A knob of one cluster file: `gateway.depth`, `channel.main.mtu`, `network.left.unsent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    knob: &'static Knob,
    /// Which channel or network; empty for the sections that are there once.
    of: String,
}

impl Section {
    /// What names of its knobs begin with.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Endpoint => "endpoint",
            Self::Channel => "channel",
            Self::Network => "network",
        }
    }

    /// Whether a file may have several of it.
    const fn is_named(self) -> bool {
        matches!(self, Self::Channel | Self::Network)
    }
}

impl Name {
    /// A knob of the channel or network called `of`.
    pub(crate) fn new(knob: &'static Knob, of: &str) -> Self {
        let of = if knob.section.is_named() { of } else { "" };
        Self {
            knob,
            of: of.to_owned(),
        }
    }

    /// Reads a name; whether the file has such a channel or network is not looked at.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split_once('.').and_then(|(section, rest)| {
            // Names of channels and networks may hold dots themselves, keys do not.
            let (of, key) = rest.rsplit_once('.').unwrap_or(("", rest));
            let is_it = |knob: &&Knob| {
                knob.section.prefix() == section
                    && knob.key == key
                    && knob.section.is_named() != of.is_empty()
            };
            Some((KNOBS.iter().find(is_it)?, of))
        });
        parts.map(|(knob, of)| Self::new(knob, of)).ok_or_else(|| {
            if settings::is_setting(text) {
                format!("{text} is yours to set, and not searched; `madgate tune list` says why")
            } else {
                format!("{text:?} is no knob; `madgate tune list` names them all")
            }
        })
    }

    /// Whether both stand in the same place of the file: are of one network, say.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        (self.knob.section, &self.of) == (other.knob.section, &other.of)
    }

    /// The knob, whichever channel or network it is of.
    pub(crate) const fn knob(&self) -> &'static Knob {
        self.knob
    }

    /// Whether the cluster has what it is of.
    pub(crate) fn is_in(&self, cluster: &Cluster) -> bool {
        match self.knob.section {
            Section::Gateway | Section::Endpoint => true,
            Section::Channel => cluster.channel_named(&self.of).is_some(),
            Section::Network => cluster.network_named(&self.of).is_some(),
        }
    }

    /// The value in a cluster; `None` where the cluster has nothing of that name, or its
    /// protocol no such knob.
    pub(crate) fn value_in(&self, cluster: &Cluster) -> Option<Value> {
        match self.knob.section {
            Section::Gateway => of_gateway(cluster.gateway_settings(), self.knob.key),
            Section::Endpoint => of_endpoint(cluster.endpoint_settings(), self.knob.key),
            Section::Channel => {
                let channel = cluster.channel_named(&self.of)?;
                Some(Value::Size(cluster.channel(channel).mtu.into()))
            }
            Section::Network => {
                let network = cluster.network(cluster.network_named(&self.of)?);
                let has_it = self.knob.protocols.contains(&network.protocol);
                has_it
                    .then(|| of_network(&network.tuning, network.protocol, self.knob.key))
                    .flatten()
            }
        }
    }

    /// Whether the cluster's file may give it this value.
    pub(crate) fn takes(&self, value: &Value, cluster: &Cluster) -> bool {
        let interrupts = || *value == Value::Word(Mode::Interrupt.name().to_owned());
        if self.knob.section != Section::Network || self.knob.key != "mode" || !interrupts() {
            return true;
        }
        // A card of libfabric's does not interrupt.
        let network = cluster.network_named(&self.of);
        network.is_some_and(|network| cluster.network(network).tuning.hsl.card == Card::Host)
    }

    /// The value that it has where a file does not say.
    pub(crate) fn default_in(&self, cluster: &Cluster) -> Option<Value> {
        let key = self.knob.key;
        match self.knob.section {
            Section::Gateway => of_gateway(&GatewaySettings::default(), key),
            Section::Endpoint => of_endpoint(&EndpointSettings::default(), key),
            Section::Channel => Some(Value::Size(DEFAULT_MTU.into())),
            Section::Network => {
                let network = cluster.network(cluster.network_named(&self.of)?);
                of_network(&network.default_tuning(), network.protocol, key)
            }
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = self.knob.section.prefix();
        if self.knob.section.is_named() {
            write!(f, "{prefix}.{}.{}", self.of, self.knob.key)
        } else {
            write!(f, "{prefix}.{}", self.knob.key)
        }
    }
}

/// Every knob of a cluster that concerns these channels and networks, in the order in which
/// they are tried.
pub(crate) fn names<'a>(
    channels: &[&'a str],
    networks: &[&'a str],
    cluster: &Cluster,
) -> Vec<Name> {
    let of = |section| match section {
        Section::Gateway | Section::Endpoint => &[""][..],
        Section::Channel => channels,
        Section::Network => networks,
    };
    KNOBS
        .iter()
        .flat_map(|knob| of(knob.section).iter().map(|of| Name::new(knob, of)))
        .filter(|name| name.value_in(cluster).is_some())
        .collect()
}

fn of_gateway(settings: &GatewaySettings, key: &str) -> Option<Value> {
    Some(match key {
        "wait" => Value::Wait(settings.wait),
        "depth" => Value::Count(count(settings.depth)),
        "batch" => Value::Size(count(settings.batch_bytes)),
        "handover" => Value::Word(
            match settings.handover {
                Handover::Inline => "inline",
                Handover::Thread => "thread",
            }
            .to_owned(),
        ),
        "pin" => Value::Pin(settings.pin.clone()),
        "splice" => Value::Flag(settings.splice),
        "splice_from" => Value::Size(count(settings.splice_from_bytes)),
        "direct" => Value::Size(count(settings.direct_bytes)),
        "ahead" => Value::Size(count(settings.ahead_bytes)),
        "gather" => Value::Flag(settings.gather),
        "lookout" => Value::Flag(settings.lookout),
        "deputies" => Value::Flag(settings.deputies),
        "sched_batch" => Value::Flag(settings.sched_batch),
        _ => return None,
    })
}

fn of_endpoint(settings: &EndpointSettings, key: &str) -> Option<Value> {
    Some(match key {
        "wait" => Value::Wait(settings.wait),
        "window" => Value::Size(settings.window_bytes),
        "retention" => Value::Size(settings.retention_bytes),
        _ => {
            let mut switches = settings.switches().into_iter();
            Value::Flag(switches.find(|(switch, _)| *switch == key)?.1)
        }
    })
}

fn of_network(tuning: &Tuning, protocol: Protocol, key: &str) -> Option<Value> {
    let (hsl, shm) = (&tuning.hsl, &tuning.shm);
    let (slot_bytes, slots, urgent_slots, stores) = match protocol {
        Protocol::Hsl => (
            hsl.bulk_slot_bytes,
            hsl.bulk_slots,
            hsl.urgent_slots,
            hsl.stores,
        ),
        _ => (
            shm.bulk_slot_bytes,
            shm.bulk_slots,
            shm.urgent_slots,
            shm.stores,
        ),
    };
    Some(match key {
        "slot_bytes" => Value::Size(count(slot_bytes)),
        "slots" => Value::Count(count(slots)),
        "urgent_slots" => Value::Count(count(urgent_slots)),
        // A card of libfabric's stores by itself.
        "stores" if tuning.hsl.card == Card::Host => Value::Word(stores.name().to_owned()),
        "threshold" => Value::Size(count(tuning.hsl.threshold_bytes)),
        "mode" => Value::Word(tuning.hsl.mode.name().to_owned()),
        "socket_buffer" => Value::Size(count(tuning.tcp.bulk_buffer_bytes)),
        "unsent" => Value::Size(tuning.tcp.bulk_unsent_bytes.into()),
        "urgent_unsent" => Value::Size(tuning.tcp.urgent_unsent_bytes.into()),
        "low_water" => Value::Flag(tuning.tcp.low_water),
        _ => return None,
    })
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
