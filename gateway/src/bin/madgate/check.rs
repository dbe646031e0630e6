//! `madgate check`: what a cluster file describes, and everything that is wrong with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use madgate_gateway::Gateway;
use madgate_gtm::transit::Rate;
use madgate_tm::Protocol;
use madgate_tm::hsl::Card;
use madgate_vchannel::cluster::{
    ChannelId, Checksum, Cluster, ClusterError, MAX_MISTAKES, Mistake, NetworkId, NodeId,
    compact_names, format_duration, format_rate, format_size,
};
use madgate_vchannel::handshake::SessionKey;
use madgate_vchannel::topology::{count_pairs, places};

use crate::failure::Failure;
use crate::output::{print, say, shown};
use crate::units::{counted, grouped};

/// Say what a cluster file describes, and everything that is wrong with it
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The cluster file
    cluster: PathBuf,
}

/// Networks, gateways and channels are listed one by one up to this many of each.
const LISTED: usize = 40;
/// Names are listed in this many ranges at most.
const LISTED_RANGES: usize = 12;
/// Characters of the digest that are shown: enough to see that two files differ.
const DIGEST_SHOWN: usize = 16;

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let file = shown(&arguments.cluster);
    let cluster = match Cluster::read(&arguments.cluster) {
        Ok(cluster) => cluster,
        Err(error) => return Err(refuse(&file, &error)),
    };
    print(&describe(&cluster))?;
    warn(&file, cluster.warnings());
    let mut mistakes = 0;
    for gateway in cluster.gateways() {
        if let Err(error) = Gateway::flow_limit(&cluster, gateway) {
            mistakes += 1;
            if mistakes <= MAX_MISTAKES {
                let (line, name) = (cluster.node_line(gateway), cluster.node_name(gateway));
                say(&format!("{file}:{line}: gateway \"{name}\": {error}"));
            }
        }
    }
    if mistakes > MAX_MISTAKES {
        let more = counted(mistakes - MAX_MISTAKES, "more mistake");
        say(&format!("{file}: and {more} of this kind"));
    }
    // Last, so that a file can be looked at where the key is not.
    if let Err(error) = SessionKey::load(cluster.key_file()) {
        mistakes += 1;
        say(&format!("{file}: {}", Failure::from(error)));
    }
    match mistakes {
        0 => Ok(()),
        count => Err(Failure::new(format!(
            "{file}: {}",
            counted(count, "mistake")
        ))),
    }
}

fn refuse(file: &str, error: &ClusterError) -> Failure {
    say(&error.to_string());
    warn(file, &error.warnings);
    let count = error.mistakes.len() + error.unlisted;
    Failure::new(format!("{file}: {}", counted(count, "mistake")))
}

fn warn(file: &str, warnings: &[Mistake]) {
    for warning in warnings {
        say(&format!("warning: {}", warning.display_in(file)));
    }
}

fn describe(cluster: &Cluster) -> String {
    let mut out = String::new();
    // Writing to a `String` cannot fail.
    let _ = describe_into(cluster, &mut out);
    out
}

fn describe_into(cluster: &Cluster, out: &mut String) -> std::fmt::Result {
    let digest: String = cluster
        .digest()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    writeln!(
        out,
        "session {}: {}, {}, {}",
        cluster.session_name(),
        counted(cluster.node_count(), "node"),
        counted(cluster.networks().len(), "network"),
        counted(cluster.channels().len(), "channel")
    )?;
    writeln!(out, "  digest        {}", &digest[..DIGEST_SHOWN])?;
    writeln!(out, "  key file      {}", shown(cluster.key_file()))?;
    writeln!(
        out,
        "  link timeout  {}",
        format_duration(cluster.link_timeout())
    )?;

    for network in cluster.network_ids().take(LISTED) {
        let described = cluster.network(network);
        writeln!(out, "network {}: {}", described.name, described.protocol)?;
        writeln!(
            out,
            "  nodes         {}",
            names(cluster, cluster.nodes_on(network))
        )?;
        if let Some(directory) = &described.directory {
            writeln!(out, "  directory     {}", shown(directory))?;
        }
        if described.protocol == Protocol::Hsl {
            let hsl = &described.tuning.hsl;
            // They fit in a slot, whatever the threshold is.
            let threshold = hsl.threshold_bytes.min(hsl.bulk_slot_bytes);
            let threshold = u64::try_from(threshold).unwrap_or(u64::MAX);
            let mut device = hsl.card.name().to_owned();
            if let Card::Libfabric { provider, domain } = &hsl.card {
                let provider = provider
                    .as_deref()
                    .unwrap_or("the first that libfabric offers");
                device += &format!(", provider {provider}");
                if let Some(domain) = domain {
                    device += &format!(" in domain {domain}");
                }
            } else {
                writeln!(out, "  trust         its nodes write each other's memory")?;
            }
            writeln!(
                out,
                "  device        {device}, {}; control messages up to {}",
                hsl.mode.name(),
                format_size(threshold)
            )?;
        }
        if described.protocol == Protocol::Hsl
            && let Err(error) = described.tuning.hsl.card.probe()
        {
            writeln!(out, "  on this host  cannot be used: {error}")?;
        }
        let fragment = u64::from(described.largest_fragment_bytes());
        writeln!(out, "  fragments     up to {}", format_size(fragment))?;
        if described.cost != 1 {
            writeln!(out, "  cost          {}", described.cost)?;
        }
        if let Some(rate) = described.rate {
            let rate = format_rate(rate);
            writeln!(out, "  rate          each gateway sends {rate} at most")?;
        }
        for (rate, nodes) in rates_of_nodes(cluster, network) {
            let (rate, nodes) = (format_rate(rate), compact_names(nodes, LISTED_RANGES));
            writeln!(out, "                and {rate} at most to each of {nodes}")?;
        }
    }
    more(out, cluster.networks().len(), "network")?;

    for node in cluster.gateways().take(LISTED) {
        let networks = cluster
            .networks_of(node)
            .map(|on| cluster.network(on).name.as_str());
        writeln!(
            out,
            "gateway {}: {}",
            cluster.node_name(node),
            compact_names(networks, LISTED_RANGES)
        )?;
        let memory = format_size(cluster.engine_memory_bytes(node));
        match Gateway::flow_limit(cluster, node) {
            Ok(flows) => {
                let flows = counted(flows, "flow");
                writeln!(out, "  memory        {memory}: admits {flows} at once")?;
            }
            Err(_) => writeln!(out, "  memory        {memory}: too small, see below")?,
        }
    }
    more(out, cluster.gateways().count(), "gateway")?;

    for channel in cluster.channel_ids().take(LISTED) {
        describe_channel(cluster, channel, out)?;
    }
    more(out, cluster.channels().len(), "channel")
}

/// How fast a gateway may send to nodes of a network, and to which.
fn rates_of_nodes(cluster: &Cluster, network: NetworkId) -> BTreeMap<Rate, Vec<&str>> {
    let mut rates: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for node in cluster.nodes_on(network) {
        if let Some(rate) = cluster.node_rate(node) {
            rates.entry(rate).or_default().push(cluster.node_name(node));
        }
    }
    rates
}

fn describe_channel(cluster: &Cluster, id: ChannelId, out: &mut String) -> std::fmt::Result {
    let channel = cluster.channel(id);
    let networks = channel
        .networks
        .iter()
        .map(|on| cluster.network(*on).name.as_str());
    let networks = compact_names(networks, LISTED_RANGES);
    let places = places(cluster, id);
    let nodes: usize = places.iter().map(|place| place.nodes.len()).sum();
    let pairs = count_pairs(&places);
    writeln!(out, "channel {}: {networks}", channel.name)?;
    writeln!(
        out,
        "  nodes         {}",
        grouped(u64::try_from(nodes).unwrap_or(u64::MAX))
    )?;
    write!(out, "  pairs         {}", grouped(pairs.all))?;
    // What takes too long to count is left out.
    if let Some(crossing) = pairs.crossing {
        let cross = if crossing == 1 { "crosses" } else { "cross" };
        write!(out, ", of which {} {cross} gateways", grouped(crossing))?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "  mtu           {}",
        format_size(u64::from(channel.mtu))
    )?;
    if channel.share.weight != 1 {
        writeln!(out, "  weight        {}", channel.share.weight)?;
    }
    if let Some(rate) = channel.share.rate {
        writeln!(out, "  rate          {} a flow", format_rate(rate))?;
    }
    if channel.checksum != Checksum::default() {
        writeln!(out, "  checksum      {}", channel.checksum.name())?;
    }
    Ok(())
}

fn names(cluster: &Cluster, nodes: impl Iterator<Item = NodeId>) -> String {
    compact_names(nodes.map(|node| cluster.node_name(node)), LISTED_RANGES)
}

fn more(out: &mut String, count: usize, what: &str) -> std::fmt::Result {
    if count > LISTED {
        let more = counted(count - LISTED, &format!("more {what}"));
        writeln!(out, "… and {more}")?;
    }
    Ok(())
}
