//! The sections of the file other than nodes, and the order in which they are read.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use madgate_gtm::transit::Share;
use madgate_tm::Protocol;
use madgate_tm::hsl::Card;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fields::Fields;
use super::id::NetworkId;
use super::mistake::Report;
use super::node_section::NAME_HELP;
use super::settings::{
    AHEAD_BOUNDS, BATCH_BOUNDS, COST_BOUNDS, DEFAULT_LINK_TIMEOUT, DEFAULT_MTU, DEFAULT_SPIN,
    DEPTH_BOUNDS, DIRECT_BOUNDS, EndpointSettings, GatewaySettings, Handover, LINK_TIMEOUT_BOUNDS,
    MAX_PIN, MAX_SPIN, MEMORY_BOUNDS, MTU_BOUNDS, RETENTION_BOUNDS, SPLICE_FROM_BOUNDS,
    WEIGHT_BOUNDS, WINDOW_BOUNDS, WaitPolicy,
};
use super::tuning::{all_keys, read_tuning};
use super::{
    Channel, Checksum, Cluster, ClusterError, MAX_CHANNELS, MAX_NAME_BYTES, MAX_NETWORKS, Network,
    check, node_section,
};

/// Reads a whole file.
pub(super) fn parse(text: &str, file: &str, base: &Path) -> Result<Cluster, ClusterError> {
    let mut report = Report::new(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reported = HashSet::new();
    for error in &errors {
        let span = error.span().unwrap_or(0..0);
        let (message, help) = not_toml(text, &span, error.message());
        // A section that is written as a table and as a list is one mistake, however often it is.
        if message.starts_with("not TOML") || reported.insert(message.clone()) {
            report.mistake(&span, message, help);
        }
    }
    if report.has_mistakes() {
        return Err(report.into_error(file));
    }
    const KEYS: [&str; 6] = [
        "session", "network", "node", "channel", "gateway", "endpoint",
    ];
    let span = document.span();
    let mut top = Fields::open(document.into_inner(), span, "the file", &KEYS, &mut report);

    let session = read_session(&mut top, base, &mut report);
    let mistakes_before = report.mistakes();
    let absent = |key: &str| !top.has_tables(key);
    let [no_network, no_node, no_channel] = ["network", "node", "channel"].map(absent);
    let networks = read_networks(&mut top, base, &mut report);
    let tables = top.take_tables("node", &mut report);
    let nodes = node_section::read_nodes(tables, &networks, &mut report);
    let channels = read_channels(&mut top, &networks, &mut report);
    let is_whole = report.mistakes() == mistakes_before;
    let gateway_settings = read_gateway(&mut top, &mut report);
    let endpoint_settings = read_endpoint(&mut top, &mut report);
    if no_network {
        report.mistake_of_file("there is no [[network]]", "describe one at least");
    }
    if no_node {
        report.mistake_of_file("there is no [[node]]", "describe two at least");
    }
    if no_channel {
        let help = "add one, with a name and the networks that it spans";
        report.mistake_of_file("there is no [[channel]]", help);
    }
    let channel_spans: Vec<Range<usize>> = channels.iter().map(|(_, span)| span.clone()).collect();
    let mut cluster = Cluster {
        session_name: session.name,
        key_file: session.key_file,
        link_timeout: session.link_timeout,
        networks: networks.read,
        nodes,
        channels: channels.into_iter().map(|(channel, _)| channel).collect(),
        gateway_settings,
        endpoint_settings,
        warnings: Vec::new(),
        digest: OnceLock::new(),
    };
    // What is left out for a mistake would only be missed once more.
    if is_whole {
        check::check(&cluster, &networks.spans, &channel_spans, &mut report);
    }
    if report.has_mistakes() {
        return Err(report.into_error(file));
    }
    cluster.warnings = report.into_warnings();
    Ok(cluster)
}

/// What is wrong with text that is not TOML, and what to do about it.
fn not_toml(text: &str, span: &Range<usize>, message: &str) -> (String, String) {
    let key = text.get(span.clone()).unwrap_or_default();
    let key = key.trim_matches(['"', '\'', ' ']);
    let is_list = ["network", "node", "channel"].contains(&key);
    if message != "duplicate key" || key.is_empty() {
        (format!("not TOML: {message}"), String::new())
    } else if is_list {
        (
            format!("there is both [{key}] and [[{key}]], or [{key}] twice"),
            format!("write [[{key}]], with two brackets on each side, every time"),
        )
    } else {
        (
            format!("not TOML: `{key}` is there already"),
            "leave one of them out: a key stands once in its section, and a section once in the file".to_owned(),
        )
    }
}

struct Session {
    name: String,
    key_file: PathBuf,
    link_timeout: Duration,
}

fn read_session(top: &mut Fields<'_>, base: &Path, report: &mut Report) -> Session {
    let mut session = Session {
        name: String::new(),
        key_file: PathBuf::new(),
        link_timeout: DEFAULT_LINK_TIMEOUT,
    };
    let Some(value) = top.take("session") else {
        let help = "add one, with `name` and `key_file`";
        report.mistake_of_file("there is no [session]", help);
        return session;
    };
    let keys = ["name", "key_file", "link_timeout"];
    let Some(mut fields) = Fields::open_value(value, "[session]", &keys, report) else {
        return session;
    };
    if let Some((name, span)) = fields.required_string("name", report) {
        check_name("session", &name, &span, report);
        session.name = name;
    }
    if let Some((file, _)) = fields.required_string("key_file", report) {
        session.key_file = base.join(file);
    }
    if let Some(timeout) = fields.duration("link_timeout", &LINK_TIMEOUT_BOUNDS, report) {
        session.link_timeout = timeout;
    }
    session
}

/// The `[[network]]` tables.
#[derive(Debug)]
pub(super) struct Networks {
    pub(super) read: Vec<Network>,
    /// Of each, where it stands.
    spans: Vec<Range<usize>>,
    /// Of each, whether it was read without a mistake: else its addresses are not looked at.
    pub(super) is_sound: Vec<bool>,
    /// Whether the name of every network is known: else others may be those of networks too.
    pub(super) are_named: bool,
}

impl Networks {
    /// Their numbers.
    pub(super) fn by_name(&self) -> HashMap<&str, NetworkId> {
        let names = self.read.iter().map(|network| network.name.as_str());
        names
            .enumerate()
            .map(|(index, name)| (name, NetworkId::from_index(index)))
            .collect()
    }
}

fn read_networks(top: &mut Fields<'_>, base: &Path, report: &mut Report) -> Networks {
    let is_written = top.has_tables("network");
    let tables = top.take_tables("network", report);
    let mut networks = Networks {
        read: Vec::new(),
        spans: Vec::new(),
        is_sound: Vec::new(),
        are_named: !(is_written && tables.is_empty()),
    };
    let mut lines: HashMap<String, usize> = HashMap::new();
    for table in tables {
        let span = table.span();
        if networks.read.len() == MAX_NETWORKS {
            let message = format!("there are more than {MAX_NETWORKS} networks");
            report.mistake(&span, message, "");
            networks.are_named = false;
            break;
        }
        let mistakes_before = report.mistakes();
        let Some(network) = read_network(table, base, report) else {
            networks.are_named = false;
            continue;
        };
        let line = report.line(span.start);
        if let Some(first) = lines.insert(network.name.clone(), line) {
            let message = format!(
                "a network called \"{}\" is there already, on line {first}",
                network.name
            );
            report.mistake(&span, message, "every network has a name of its own");
            continue;
        }
        networks.read.push(network);
        networks.spans.push(span);
        networks.is_sound.push(report.mistakes() == mistakes_before);
    }
    networks
}

fn read_network(table: Spanned<DeValue<'_>>, base: &Path, report: &mut Report) -> Option<Network> {
    let keys = [&NETWORK_KEYS[..], &all_keys()].concat();
    let mut fields = Fields::open_value(table, "[[network]]", &keys, report)?;
    let name = fields.required_string("name", report);
    if let Some((name, span)) = &name {
        check_name("network", name, span, report);
    }
    let protocol = read_protocol(&mut fields, report);
    let cost = fields.integer("cost", &COST_BOUNDS, report).unwrap_or(1);
    let mtu = fields
        .size("mtu", &MTU_BOUNDS, report)
        .and_then(|mtu| u32::try_from(mtu).ok());
    let tuning = protocol
        .map(|protocol| read_tuning(&mut fields, protocol, mtu, report))
        .unwrap_or_default();
    let rate = fields.rate("rate", report);
    let directory = fields.string("directory", report);
    if let Some((_, span)) = directory.as_ref().filter(|(text, _)| text.is_empty()) {
        let help = "write a folder that is for the nodes of this network alone";
        report.mistake(span, "`directory` is empty", help);
    }
    let reaches_others = matches!(tuning.hsl.card, Card::Libfabric { .. });
    if protocol.is_some_and(Protocol::is_local) && directory.is_none() && !reaches_others {
        fields.missing("directory", report);
    }
    let written_directory = directory.map(|(text, _)| PathBuf::from(text));
    Some(Network {
        // A network without a name or protocol was reported; reading goes on, for the others.
        name: name?.0,
        protocol: protocol.unwrap_or(Protocol::Tcp),
        directory: written_directory
            .as_ref()
            .map(|directory| base.join(directory)),
        written_directory,
        cost: u32::try_from(cost).unwrap_or(u32::MAX),
        mtu,
        rate,
        tuning,
    })
}

fn read_protocol(fields: &mut Fields<'_>, report: &mut Report) -> Option<Protocol> {
    let (text, span) = fields.required_string("protocol", report)?;
    let protocol = text.parse().ok();
    if protocol.is_none() {
        let message = format!("unknown protocol \"{text}\"");
        report.mistake(
            &span,
            message,
            "write \"tcp\", or \"shm\" or \"hsl\" for processes of one host",
        );
    }
    protocol
}

/// Keys that every network has; those of its protocol come on top.
const NETWORK_KEYS: [&str; 5] = ["name", "protocol", "cost", "mtu", "rate"];

fn read_channels(
    top: &mut Fields<'_>,
    networks: &Networks,
    report: &mut Report,
) -> Vec<(Channel, Range<usize>)> {
    let by_name = networks.by_name();
    let mut channels: Vec<(Channel, Range<usize>)> = Vec::new();
    for table in top.take_tables("channel", report) {
        let span = table.span();
        if channels.len() == MAX_CHANNELS {
            report.mistake(
                &span,
                format!("there are more than {MAX_CHANNELS} channels"),
                "",
            );
            break;
        }
        let Some(channel) = read_channel(table, &by_name, networks.are_named, report) else {
            continue;
        };
        if let Some((_, first)) = channels
            .iter()
            .find(|(other, _)| other.name == channel.name)
        {
            let message = format!(
                "a channel called \"{}\" is there already, on line {}",
                channel.name,
                report.line(first.start)
            );
            report.mistake(&span, message, "every channel has a name of its own");
            continue;
        }
        channels.push((channel, span));
    }
    channels
}

fn read_channel(
    table: Spanned<DeValue<'_>>,
    by_name: &HashMap<&str, NetworkId>,
    are_named: bool,
    report: &mut Report,
) -> Option<Channel> {
    let keys = ["name", "networks", "mtu", "rate", "weight", "checksum"];
    let mut fields = Fields::open_value(table, "[[channel]]", &keys, report)?;
    let (name, name_span) = fields.required_string("name", report)?;
    check_name("channel", &name, &name_span, report);
    let mtu = fields.size("mtu", &MTU_BOUNDS, report);
    let weight = fields.integer("weight", &WEIGHT_BOUNDS, report);
    let share = Share {
        weight: weight
            .and_then(|weight| u32::try_from(weight).ok())
            .unwrap_or(1),
        rate: fields.rate("rate", report),
    };
    let checksum = fields
        .word("checksum", &Checksum::NAMES, report)
        .unwrap_or_default();
    if !fields.has("networks") {
        fields.missing("networks", report);
    }
    let mistakes_before = report.mistakes();
    let (names, span) = fields.strings("networks", report)?;
    if names.is_empty() && report.mistakes() == mistakes_before {
        report.mistake(
            &span,
            format!("channel \"{name}\" spans no network"),
            "name one at least",
        );
    }
    let mut networks = Vec::new();
    for (network_name, at) in names {
        match by_name.get(network_name.as_str()) {
            None if !are_named => {}
            None => {
                let help = report
                    .did_you_mean(&network_name, by_name.keys().copied())
                    .unwrap_or_else(|| "add a [[network]] with this name".to_owned());
                let message = format!("unknown network \"{network_name}\" in channel \"{name}\"");
                report.mistake(&at, message, help);
            }
            Some(network) if networks.contains(network) => {
                let message = format!("channel \"{name}\" names network \"{network_name}\" twice");
                report.mistake(&at, message, "");
            }
            Some(network) => networks.push(*network),
        }
    }
    networks.sort_unstable();
    let mtu = mtu
        .and_then(|mtu| u32::try_from(mtu).ok())
        .unwrap_or(DEFAULT_MTU);
    Some(Channel {
        name,
        networks,
        mtu,
        share,
        checksum,
    })
}

fn read_gateway(top: &mut Fields<'_>, report: &mut Report) -> GatewaySettings {
    let mut settings = GatewaySettings::default();
    let Some(value) = top.take("gateway") else {
        return settings;
    };
    let keys = [
        "depth",
        "batch",
        "memory",
        "wait",
        "spin",
        "pin",
        "direct",
        "ahead",
        "splice",
        "splice_from",
        "handover",
        "gather",
        "lookout",
        "deputies",
        "sched_batch",
    ];
    let Some(mut fields) = Fields::open_value(value, "[gateway]", &keys, report) else {
        return settings;
    };
    let count = |number: u64| usize::try_from(number).ok();
    if let Some(depth) = fields
        .integer("depth", &DEPTH_BOUNDS, report)
        .and_then(count)
    {
        settings.depth = depth;
    }
    if let Some(batch) = fields.size("batch", &BATCH_BOUNDS, report).and_then(count) {
        settings.batch_bytes = batch;
    }
    if let Some(memory) = fields.size("memory", &MEMORY_BOUNDS, report) {
        settings.memory_bytes = memory;
    }
    if let Some(direct) = fields
        .size("direct", &DIRECT_BOUNDS, report)
        .and_then(count)
    {
        settings.direct_bytes = direct;
    }
    if let Some(ahead) = fields.size("ahead", &AHEAD_BOUNDS, report).and_then(count) {
        settings.ahead_bytes = ahead;
    }
    if let Some(splice) = fields.flag("splice", report) {
        settings.splice = splice;
    }
    if let Some(from) = fields
        .size("splice_from", &SPLICE_FROM_BOUNDS, report)
        .and_then(count)
    {
        settings.splice_from_bytes = from;
    }
    let processors = 0..=u64::try_from(MAX_PIN - 1).unwrap_or(u64::MAX);
    if let Some((pin, span)) = fields.integers("pin", &processors, report) {
        settings.pin = pin.into_iter().filter_map(count).collect();
        if settings.pin.len() > MAX_PIN {
            report.mistake(
                &span,
                format!("`pin` names more than {MAX_PIN} processors"),
                "",
            );
        }
    }
    let handovers = [("inline", Handover::Inline), ("thread", Handover::Thread)];
    if let Some(handover) = fields.word("handover", &handovers, report) {
        settings.handover = handover;
    }
    if let Some(gather) = fields.flag("gather", report) {
        settings.gather = gather;
    }
    if let Some(lookout) = fields.flag("lookout", report) {
        settings.lookout = lookout;
    }
    if let Some(deputies) = fields.flag("deputies", report) {
        settings.deputies = deputies;
    }
    if let Some(sched_batch) = fields.flag("sched_batch", report) {
        settings.sched_batch = sched_batch;
    }
    settings.wait = read_wait(&mut fields, report);
    settings
}

fn read_endpoint(top: &mut Fields<'_>, report: &mut Report) -> EndpointSettings {
    let mut settings = EndpointSettings::default();
    let Some(value) = top.take("endpoint") else {
        return settings;
    };
    let sizes_and_waits = ["memory", "retention", "window", "wait", "spin"];
    let mut keys = settings.switches().map(|(key, _)| key).to_vec();
    keys.extend(sizes_and_waits);
    let Some(mut fields) = Fields::open_value(value, "[endpoint]", &keys, report) else {
        return settings;
    };
    if let Some(memory) = fields.size("memory", &MEMORY_BOUNDS, report) {
        settings.memory_bytes = memory;
    }
    if let Some(retention) = fields.size("retention", &RETENTION_BOUNDS, report) {
        settings.retention_bytes = retention;
    }
    if let Some(window) = fields.size("window", &WINDOW_BOUNDS, report) {
        settings.window_bytes = window;
    }
    for (key, switch) in settings.switches_mut() {
        if let Some(is_on) = fields.flag(key, report) {
            *switch = is_on;
        }
    }
    settings.wait = read_wait(&mut fields, report);
    settings
}

fn read_wait(fields: &mut Fields<'_>, report: &mut Report) -> WaitPolicy {
    let spin = fields.duration("spin", &(Duration::ZERO..=MAX_SPIN), report);
    let adaptive = WaitPolicy::Adaptive {
        spin: spin.unwrap_or(DEFAULT_SPIN),
    };
    let words = [
        ("sleep", WaitPolicy::Sleep),
        ("adaptive", adaptive),
        ("spin", WaitPolicy::Spin),
    ];
    let wait = fields.word("wait", &words, report).unwrap_or(adaptive);
    if spin.is_some() && wait != adaptive {
        report.mistake(
            &fields.span,
            "`spin` says how long an adaptive wait looks, and this wait is not",
            "leave `spin` out, or write `wait = \"adaptive\"`",
        );
    }
    wait
}

fn check_name(what: &str, name: &str, span: &Range<usize>, report: &mut Report) {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.len() > MAX_NAME_BYTES || !name.bytes().all(allowed) || name.starts_with(['-', '.']) {
        report.mistake(
            span,
            format!("\"{name}\" cannot be the name of a {what}"),
            NAME_HELP,
        );
    }
}
