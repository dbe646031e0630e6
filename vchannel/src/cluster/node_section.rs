//! `[[node]]`: where ranges become nodes.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use madgate_tm::Endpoint;
use toml::Spanned;
use toml::de::DeValue;

use super::fields::{At, Fields};
use super::id::{NetworkId, NodeId};
use super::mistake::Report;
use super::network::Network;
use super::nodes::{GroupAddress, NodeGroup, NodeTable};
use super::pattern::{Alignment, Pattern, PatternKind};
use super::sections::Networks;
use super::settings::MEMORY_BOUNDS;
use super::{MAX_NAME_BYTES, MAX_NODES};

/// Reads every `[[node]]` table.
pub(super) fn read_nodes(
    tables: Vec<Spanned<DeValue<'_>>>,
    networks: &Networks,
    report: &mut Report,
) -> NodeTable {
    let mut reader = NodeReader {
        networks,
        by_name: networks.by_name(),
        nodes: NodeTable::new(networks.read.len()),
        taken: vec![HashMap::new(); networks.read.len()],
        text: String::new(),
    };
    for table in tables {
        const KEYS: [&str; 5] = ["name", "gateway", "addresses", "memory", "rate"];
        if let Some(fields) = Fields::open_value(table, "[[node]]", &KEYS, report) {
            reader.read(fields, report);
        }
    }
    reader.nodes
}

struct NodeReader<'a> {
    networks: &'a Networks,
    by_name: HashMap<&'a str, NetworkId>,
    nodes: NodeTable,
    /// Per network, who has which address already.
    taken: Vec<HashMap<String, NodeId>>,
    /// Where patterns are expanded.
    text: String,
}

impl NodeReader<'_> {
    fn read(&mut self, mut fields: Fields<'_>, report: &mut Report) {
        let name = fields.required_string("name", report);
        let gateway = fields.flag("gateway", report).unwrap_or(false);
        let memory_bytes = fields.size("memory", &MEMORY_BOUNDS, report);
        let rate = fields.rate("rate", report);
        let addresses = fields.take("addresses");
        if addresses.is_none() {
            fields.missing("addresses", report);
        }
        let Some((name, name_span)) = name else {
            return;
        };
        let Some(pattern) = read_name(&name, &name_span, report) else {
            return;
        };
        let Some(ranks) = self.push_names(&pattern, &name, &name_span, report) else {
            return;
        };
        let addresses = addresses
            .map(|value| self.read_addresses(value, &pattern, &name, &ranks, report))
            .unwrap_or_default();
        let span = fields.span;
        let line = report.line(span.start);
        self.nodes.push_group(NodeGroup {
            ranks,
            gateway,
            memory_bytes,
            rate,
            addresses,
            span,
            line,
        });
    }

    /// Gives each name a rank. Names that are taken are reported and the whole group left out.
    fn push_names(
        &mut self,
        pattern: &Pattern,
        name: &str,
        span: &Range<usize>,
        report: &mut Report,
    ) -> Option<Range<u32>> {
        let first = self.nodes.len();
        let room = u64::try_from(MAX_NODES - first).unwrap_or(0);
        if pattern.count() > room {
            let message = format!("\"{name}\" makes more than {MAX_NODES} nodes");
            report.mistake(span, message, "a cluster file holds at most that many");
            return None;
        }
        for index in 0..pattern.count() {
            pattern.expand(index, Alignment::Combined, &mut self.text);
            if let Err(taken) = self.nodes.push_name(&self.text) {
                // They are in the order of their ranks.
                let groups = self.nodes.groups();
                let place = groups.partition_point(|group| group.ranks.end <= taken.0);
                let group = groups.get(place);
                let message = match group.filter(|group| group.ranks.contains(&taken.0)) {
                    Some(group) => format!(
                        "a node called \"{}\" is there already, on line {}",
                        self.text,
                        report.line(group.span.start)
                    ),
                    None => format!("\"{name}\" makes the name \"{}\" twice", self.text),
                };
                report.mistake(span, message, "every node has a name of its own");
                // The ranks of what was pushed stay as nodes without networks; nothing is
                // built from a file with mistakes.
                break;
            }
        }
        let rank = |index| NodeId::from_index(index).rank();
        Some(rank(first)..rank(self.nodes.len())).filter(|ranks| !ranks.is_empty())
    }

    fn read_addresses(
        &mut self,
        value: Spanned<DeValue<'_>>,
        name: &Pattern,
        name_text: &str,
        ranks: &Range<u32>,
        report: &mut Report,
    ) -> Box<[GroupAddress]> {
        let span = value.span();
        let DeValue::Table(table) = value.into_inner() else {
            let help = "write addresses = { left = \"10.0.0.1:7100\" }, a network and where the node is on it";
            report.mistake(&span, "`addresses` should be a table", help);
            return Box::default();
        };
        // Its keys are the names of networks; they are looked up below.
        let keys: Vec<String> = table.keys().map(|key| key.get_ref().to_string()).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let entries = Fields::open(table, span.clone(), "`addresses`", &keys, report);
        let mistakes_before = report.mistakes();
        let entries = entries.into_strings(report);
        if entries.is_empty() && report.mistakes() == mistakes_before {
            let message = format!("\"{name_text}\" is on no network");
            report.mistake(&span, message, "give it an address on one at least");
        }
        let mut addresses: Vec<GroupAddress> = entries
            .into_iter()
            .filter_map(|entry| self.read_address(entry, name, name_text, ranks, report))
            .collect();
        addresses.sort_by_key(|address| address.network);
        addresses.into()
    }

    fn read_address(
        &mut self,
        ((network_name, network_span), (text, span)): (At<String>, At<String>),
        name: &Pattern,
        name_text: &str,
        ranks: &Range<u32>,
        report: &mut Report,
    ) -> Option<GroupAddress> {
        let Some(network) = self.by_name.get(network_name.as_str()).copied() else {
            if !self.networks.are_named {
                return None;
            }
            let names = self
                .networks
                .read
                .iter()
                .map(|network| network.name.as_str());
            let help = report
                .did_you_mean(&network_name, names)
                .unwrap_or_else(|| "add a [[network]] with this name".to_owned());
            let message =
                format!("unknown network \"{network_name}\" in the addresses of \"{name_text}\"");
            report.mistake(&network_span, message, help);
            return None;
        };
        let pattern = match Pattern::parse(&text, PatternKind::Address) {
            Ok(pattern) => pattern,
            Err(why) => {
                let message = format!("bad range in address \"{text}\": {why}");
                report.mistake(&span, message, "write a range like 10.0.0.[1-4]:7100");
                return None;
            }
        };
        let Some(alignment) = pattern.alignment(name) else {
            let message = format!(
                "address \"{text}\" stands for {} while \"{name_text}\" stands for {} node{}",
                pattern.count(),
                name.count(),
                if name.count() == 1 { "" } else { "s" }
            );
            let help = if pattern.count() == name.count() {
                "write its ranges as long as those of the name and in their order, or one of all of its nodes"
            } else {
                "make the ranges equally long"
            };
            report.mistake(&span, message, help);
            return None;
        };
        let address = GroupAddress {
            network,
            pattern,
            alignment,
        };
        if self.networks.is_sound[network.index()] {
            self.check_addresses(&address, ranks, &span, report);
        }
        Some(address)
    }

    /// Parses each address once, and finds those that are taken; the first mistake is enough.
    fn check_addresses(
        &mut self,
        address: &GroupAddress,
        ranks: &Range<u32>,
        span: &Range<usize>,
        report: &mut Report,
    ) {
        let network = &self.networks.read[address.network.index()];
        let taken = &mut self.taken[address.network.index()];
        for rank in ranks.clone() {
            let index = u64::from(rank - ranks.start);
            address
                .pattern
                .expand(index, address.alignment, &mut self.text);
            let endpoint = match network.endpoint(&self.text) {
                Ok(endpoint) => endpoint,
                Err(error) => {
                    let message = format!("network \"{}\": {error}", network.name);
                    report.mistake(span, message, endpoint_help(network, &self.text));
                    return;
                }
            };
            if let Some(group) = stands_for(&endpoint) {
                let message = format!(
                    "address \"{}\" on network \"{}\" stands for {group}, and no other node can dial it",
                    self.text, network.name
                );
                let help = "write the address or the host name at which the other nodes reach it";
                report.mistake(span, message, help);
                return;
            }
            if let Some(other) = taken.insert(endpoint.to_string(), NodeId(rank)) {
                let message = format!(
                    "address \"{}\" on network \"{}\" is that of \"{}\" already",
                    self.text,
                    network.name,
                    self.nodes.name(other)
                );
                report.mistake(span, message, "give each node an address of its own");
                return;
            }
        }
    }
}

/// Longest path of a socket: that of the system's `sun_path`, without the zero at its end.
const SOCKET_PATH_BYTES: usize = 107;

/// What to do about an address that is none; empty where its error says it all.
fn endpoint_help(network: &Network, name: &str) -> String {
    let Some(directory) = &network.directory else {
        return String::new();
    };
    let bytes = directory.join(format!("{name}.sock")).as_os_str().len();
    if bytes <= SOCKET_PATH_BYTES {
        return String::new();
    }
    format!(
        "use a shorter `directory`: {} with /{name}.sock has {bytes} bytes, and may have {SOCKET_PATH_BYTES}",
        directory.display()
    )
}

/// What an address stands for, if not for one host: all addresses to listen on (`0.0.0.0`,
/// `[::]`, or the former within IPv6), or receivers of what has no connections.
fn stands_for(endpoint: &Endpoint) -> Option<&'static str> {
    let ip = endpoint.host()?.parse::<IpAddr>().ok()?.to_canonical();
    if ip.is_unspecified() {
        Some("every address of its host")
    } else if ip.is_multicast() {
        Some("a multicast group")
    } else if ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
        Some("every host of a network")
    } else {
        None
    }
}

fn read_name(name: &str, span: &Range<usize>, report: &mut Report) -> Option<Pattern> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.[]".contains(&byte);
    if name.len() > MAX_NAME_BYTES || !name.bytes().all(allowed) || name.starts_with(['-', '.']) {
        report.mistake(
            span,
            format!("\"{name}\" cannot be the name of a node"),
            NAME_HELP,
        );
        return None;
    }
    match Pattern::parse(name, PatternKind::Name) {
        Ok(pattern) => Some(pattern),
        Err(why) => {
            let message = format!("bad range in name \"{name}\": {why}");
            report.mistake(span, message, "write a range like a[0-3] or a[00-63]");
            None
        }
    }
}

/// What names look like.
pub(super) const NAME_HELP: &str =
    "use up to 64 letters, digits, `-`, `_` and `.`, not beginning with `-` or `.`";
