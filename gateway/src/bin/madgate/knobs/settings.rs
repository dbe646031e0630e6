//! What decides how fast a session is and is nobody's to search for: policies, bounds, and what
//! shows elsewhere than on the route that is measured.

use std::collections::BTreeMap;
use std::time::Duration;

use madgate_gtm::transit::Rate;
use madgate_tm::Protocol;
use madgate_tm::hsl::Card;
use madgate_vchannel::Cluster;
use madgate_vchannel::cluster::{
    Channel, Checksum, EndpointSettings, GatewaySettings, Network, compact_names, format_duration,
    format_rate, format_size,
};

/// Names of nodes that are written at most, ranges counting as one.
const NAMES_MOST: usize = 8;

/// Something of a cluster file that is for its owner to set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    /// What it is called.
    pub(crate) key: &'static str,
    /// What it does.
    pub(crate) meaning: &'static str,
    /// Why it is not searched for.
    pub(crate) why: &'static str,
    of: Of,
}

/// Where it stands, and what it is there.
#[derive(Debug, Clone, Copy)]
enum Of {
    Gateway(fn(&GatewaySettings) -> String),
    Endpoint(fn(&EndpointSettings) -> String),
    /// Of each; the default besides.
    Channels(fn(&Channel) -> String, &'static str),
    Networks(fn(&Network) -> Option<String>, &'static str),
    /// Of each node where it is another than the default.
    Nodes(fn(&Cluster, Node) -> Option<String>, &'static str),
}

type Node = madgate_vchannel::NodeId;

/// One setting of one cluster file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) default: String,
}

const POLICY: &str = "it says who gets how much, not what is fast";
const CAP: &str = "it is a cap, and what it is good for shows with many flows";
const LIVENESS: &str = "it says when a peer counts as gone, not what is fast";
const MEANT: &str = "it is part of what the file means: every node has the same";
const SWITCH: &str = "it saves work and never makes any; off, it shows whether a fault is its own";

/// Every one of them.
pub(crate) static SETTINGS: [Setting; 19] = [
    Setting {
        key: "mtu",
        meaning: "the largest fragment that the network shall carry",
        why: "it is a bound; the `mtu` of the channel is searched below it",
        of: Of::Networks(
            |network| {
                let mtu = network.mtu;
                Some(mtu.map_or_else(carried, |bytes| format_size(bytes.into())))
            },
            CARRIED,
        ),
    },
    Setting {
        key: "rate",
        meaning: "how fast each gateway sends into the network",
        why: POLICY,
        of: Of::Networks(|network| Some(rate(network.rate)), FREE),
    },
    Setting {
        key: "cost",
        meaning: "what a route pays for crossing the network, where two have as many hops",
        why: "it decides which route there is to measure",
        of: Of::Networks(|network| Some(network.cost.to_string()), "1"),
    },
    Setting {
        key: "congestion",
        meaning: "the congestion control of the network's connections",
        why: "what it is good for shows beside other traffic, and in losses",
        of: Of::Networks(
            |network| {
                let named = &network.tuning.tcp.congestion;
                let is_tcp = network.protocol == Protocol::Tcp;
                is_tcp.then(|| named.clone().unwrap_or_else(|| OF_SYSTEM.to_owned()))
            },
            OF_SYSTEM,
        ),
    },
    Setting {
        key: "keepalive",
        meaning: "how long a connection may be silent before it is probed",
        why: LIVENESS,
        of: Of::Networks(
            |network| of_tcp(network, network.tuning.tcp.keepalive),
            "10s",
        ),
    },
    Setting {
        key: "user_timeout",
        meaning: "how long a peer may acknowledge nothing before its connection is given up",
        why: LIVENESS,
        of: Of::Networks(
            |network| of_tcp(network, network.tuning.tcp.user_timeout),
            "30s",
        ),
    },
    Setting {
        key: "rate",
        meaning: "how fast a gateway sends each flow of the channel on",
        why: POLICY,
        of: Of::Channels(|channel| rate(channel.share.rate), FREE),
    },
    Setting {
        key: "weight",
        meaning: "how much of a link each flow of the channel has, beside those of others",
        why: POLICY,
        of: Of::Channels(|channel| channel.share.weight.to_string(), "1"),
    },
    Setting {
        key: "checksum",
        meaning: "what the checksums of frames through gateways cover: header and payload, or the header",
        why: "it says what is to be found out, and by whom",
        of: Of::Channels(
            |channel| channel.checksum.name().to_owned(),
            Checksum::Payload.name(),
        ),
    },
    Setting {
        key: "rate",
        meaning: "how fast a gateway sends to a node, over each network",
        why: POLICY,
        of: Of::Nodes(
            |cluster, node| cluster.node_rate(node).map(format_rate),
            FREE,
        ),
    },
    Setting {
        key: "memory",
        meaning: "the cap of one node on what it promises to keep",
        why: CAP,
        of: Of::Nodes(memory_of, "that of [gateway] or [endpoint]"),
    },
    Setting {
        key: "memory",
        meaning: "the cap on what a forwarding engine promises to keep: flows, and how fast they are",
        why: CAP,
        of: Of::Gateway(|settings| format_size(settings.memory_bytes)),
    },
    Setting {
        key: "memory",
        meaning: "the same of a session, for arriving messages",
        why: CAP,
        of: Of::Endpoint(|settings| format_size(settings.memory_bytes)),
    },
    Setting {
        key: "alone",
        meaning: "whether a small message that nothing waits before leaves at once",
        why: SWITCH,
        of: Of::Endpoint(|settings| settings.alone.to_string()),
    },
    Setting {
        key: "whole",
        meaning: "whether a small message that came whole is taken in in one step",
        why: SWITCH,
        of: Of::Endpoint(|settings| settings.whole.to_string()),
    },
    Setting {
        key: "unsealed",
        meaning: "whether frames that stay in the memory of one host have no checksum",
        why: SWITCH,
        of: Of::Endpoint(|settings| settings.unsealed.to_string()),
    },
    Setting {
        key: "device",
        meaning: "what the card of remote write is",
        why: MEANT,
        of: Of::Networks(
            |network| is_hsl(network).then(|| network.tuning.hsl.card.name().to_owned()),
            "host",
        ),
    },
    Setting {
        key: "provider",
        meaning: "with device libfabric: who moves the bytes",
        why: MEANT,
        of: Of::Networks(provider, FIRST),
    },
    Setting {
        key: "domain",
        meaning: "with device libfabric: which interface",
        why: "it is where the machine is connected",
        of: Of::Networks(domain, BY_ADDRESS),
    },
];

const FIRST: &str = "the first that is offered";
const BY_ADDRESS: &str = "that of the address";

const CARRIED: &str = "what its protocol carries";
const FREE: &str = "none";
const OF_SYSTEM: &str = "the system's";

fn carried() -> String {
    CARRIED.to_owned()
}

fn rate(rate: Option<Rate>) -> String {
    rate.map_or_else(|| FREE.to_owned(), format_rate)
}

fn of_tcp(network: &Network, time: Duration) -> Option<String> {
    (network.protocol == Protocol::Tcp).then(|| format_duration(time))
}

fn is_hsl(network: &Network) -> bool {
    network.protocol == Protocol::Hsl
}

fn provider(network: &Network) -> Option<String> {
    match &network.tuning.hsl.card {
        Card::Libfabric { provider, .. } => {
            Some(provider.clone().unwrap_or_else(|| FIRST.to_owned()))
        }
        _ => None,
    }
}

fn domain(network: &Network) -> Option<String> {
    match &network.tuning.hsl.card {
        Card::Libfabric { domain, .. } => {
            Some(domain.clone().unwrap_or_else(|| BY_ADDRESS.to_owned()))
        }
        _ => None,
    }
}

/// The cap of a node that has one of its own.
fn memory_of(cluster: &Cluster, node: Node) -> Option<String> {
    let (own, of_all) = if cluster.is_gateway(node) {
        let of_all = cluster.gateway_settings().memory_bytes;
        (cluster.engine_memory_bytes(node), of_all)
    } else {
        let of_all = cluster.endpoint_settings().memory_bytes;
        (cluster.endpoint_memory_bytes(node), of_all)
    };
    (own != of_all).then(|| format_size(own))
}

impl Setting {
    /// The section that it is a key of.
    pub(crate) const fn section(&self) -> &'static str {
        match self.of {
            Of::Gateway(_) => "gateway",
            Of::Endpoint(_) => "endpoint",
            Of::Channels(..) => "channel",
            Of::Networks(..) => "network",
            Of::Nodes(..) => "node",
        }
    }

    /// What it is in a cluster, everywhere where it is something.
    pub(crate) fn sets(&self, cluster: &Cluster) -> Vec<Set> {
        let (section, key) = (self.section(), self.key);
        let once = |value, default| {
            let name = format!("{section}.{key}");
            vec![Set {
                name,
                value,
                default,
            }]
        };
        let of_one = |of: &str, value, default: &str| Set {
            name: format!("{section}.{of}.{key}"),
            value,
            default: default.to_owned(),
        };
        match self.of {
            Of::Gateway(read) => {
                let default = read(&GatewaySettings::default());
                once(read(cluster.gateway_settings()), default)
            }
            Of::Endpoint(read) => {
                let default = read(&EndpointSettings::default());
                once(read(cluster.endpoint_settings()), default)
            }
            Of::Channels(read, default) => {
                let channels = cluster.channels().iter();
                let one = |channel: &Channel| of_one(&channel.name, read(channel), default);
                channels.map(one).collect()
            }
            Of::Networks(read, default) => {
                let networks = cluster.networks().iter();
                let one = |network: &Network| {
                    let value = read(network)?;
                    Some(of_one(&network.name, value, default))
                };
                networks.filter_map(one).collect()
            }
            Of::Nodes(read, default) => {
                let mut nodes_by_value: BTreeMap<String, Vec<&str>> = BTreeMap::new();
                for node in cluster.nodes() {
                    if let Some(value) = read(cluster, node) {
                        let name = cluster.node_name(node);
                        nodes_by_value.entry(value).or_default().push(name);
                    }
                }
                let written = nodes_by_value.into_iter().map(|(value, names)| {
                    let names = compact_names(names, NAMES_MOST);
                    of_one(&names, value, default)
                });
                let others = of_one("*", default.to_owned(), default);
                written.chain([others]).collect()
            }
        }
    }
}

/// Whether a name like `network.left.rate` is of a setting; which channel, network or node is not
/// looked at.
pub(crate) fn is_setting(name: &str) -> bool {
    let parts = name.split_once('.').map(|(section, rest)| {
        let key = rest.rsplit_once('.').map_or(rest, |(_, key)| key);
        (section, key)
    });
    let is_it = |setting: &Setting| Some((setting.section(), setting.key)) == parts;
    SETTINGS.iter().any(is_it)
}
