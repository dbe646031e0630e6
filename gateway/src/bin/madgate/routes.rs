//! `madgate routes`: the ways of messages, the networks they cross and their fragment size.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use madgate_vchannel::cluster::{ChannelId, Cluster, NodeId, compact_names, format_size};
use madgate_vchannel::topology::{Place, Route, Routes, places};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::print;
use crate::units::{counted, grouped};

/// Print the routes, with the networks they cross and the fragment size
///
/// Without FROM and TO: those between all places, a place being the nodes that are on the same
/// networks and so have the same routes. A route is the same in both directions.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The cluster file
    cluster: PathBuf,
    /// A node
    #[arg(requires = "to")]
    from: Option<String>,
    /// Another node
    to: Option<String>,
    /// Only the routes of this channel
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Routes that are printed at most when no nodes are named.
const LISTED: usize = 1000;
/// Nodes that one of those routes crosses are written out up to this many.
const LISTED_HOPS: usize = 32;
/// A place's names are listed in this many ranges at most.
const LISTED_RANGES: usize = 4;

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let cluster = Arc::new(Cluster::read(&arguments.cluster)?);
    let channels = channels(&cluster, arguments.channel.as_deref())?;
    let found = match (&arguments.from, &arguments.to) {
        (Some(from), Some(to)) => {
            let (from, to) = (cluster.find_node(from)?, cluster.find_node(to)?);
            between_nodes(&cluster, channels, from, to)?
        }
        _ => between_places(&cluster, channels),
    };
    if arguments.json {
        let mut text = serde_json::to_string(&found)?;
        text.push('\n');
        return print(&text);
    }
    print(&table(&found))
}

#[derive(Debug, Default, Serialize)]
struct Found {
    routes: Vec<Described>,
    /// How many more there are.
    unlisted: usize,
}

/// One route, as it is printed.
#[derive(Debug, Serialize)]
struct Described {
    channel: String,
    /// A node, or a place as ranges of nodes.
    from: String,
    to: String,
    hops: Vec<DescribedHop>,
    fragment_bytes: u32,
}

#[derive(Debug, Serialize)]
struct DescribedHop {
    network: String,
    /// The node at the far end: a gateway, or at the last hop the destination.
    node: String,
}

fn between_nodes(
    cluster: &Arc<Cluster>,
    channels: Vec<ChannelId>,
    from: NodeId,
    to: NodeId,
) -> Result<Found, Failure> {
    let mut found = Found::default();
    let mut reason = None;
    for channel in channels {
        let routes = Routes::new(Arc::clone(cluster), channel);
        let names = [from, to].map(|node| cluster.node_name(node).to_owned());
        match routes.route(from, to) {
            Ok(route) => found.routes.push(describe(cluster, &routes, &route, names)),
            Err(error) => reason = Some(error),
        }
    }
    match reason {
        Some(error) if found.routes.is_empty() => Err(error.into()),
        _ => Ok(found),
    }
}

fn between_places(cluster: &Arc<Cluster>, channels: Vec<ChannelId>) -> Found {
    let mut found = Found::default();
    for channel in channels {
        let routes = Routes::new(Arc::clone(cluster), channel);
        let places = places(cluster, channel);
        let names: Vec<String> = places.iter().map(|place| name(cluster, place)).collect();
        for (index, one) in places.iter().enumerate() {
            if found.routes.len() >= LISTED {
                found.unlisted += places.len() - index - usize::from(one.nodes.len() < 2);
                continue;
            }
            for (other, name) in places[index..].iter().zip(&names[index..]) {
                // Within a place: from its first node to its second, if it has one.
                let same = one.networks == other.networks;
                let (Some(from), Some(to)) =
                    (one.nodes.first(), other.nodes.get(usize::from(same)))
                else {
                    continue;
                };
                if found.routes.len() >= LISTED {
                    found.unlisted += 1;
                } else if let Ok(route) = routes.route(*from, *to) {
                    let names = [names[index].clone(), name.clone()];
                    found.routes.push(describe(cluster, &routes, &route, names));
                }
            }
        }
    }
    found
}

fn describe(
    cluster: &Cluster,
    routes: &Routes,
    route: &Route,
    [from, to]: [String; 2],
) -> Described {
    let last = route.hops.len().saturating_sub(1);
    let hops = route
        .hops
        .iter()
        .enumerate()
        .map(|(index, hop)| DescribedHop {
            network: cluster.network(hop.network).name.clone(),
            node: if index == last {
                to.clone()
            } else {
                cluster.node_name(hop.node).to_owned()
            },
        });
    Described {
        channel: cluster.channel(routes.channel()).name.clone(),
        hops: hops.collect(),
        from,
        to,
        fragment_bytes: routes.fragment_bytes(route),
    }
}

fn table(found: &Found) -> String {
    let mut out = String::new();
    let mut channel = "";
    let width = |side: fn(&Described) -> &String| {
        let lengths = found.routes.iter().map(|route| side(route).chars().count());
        lengths.max().unwrap_or_default()
    };
    let (from_width, to_width) = (width(|route| &route.from), width(|route| &route.to));
    for route in &found.routes {
        if route.channel != channel {
            channel = &route.channel;
            // Writing to a `String` cannot fail.
            let _ = writeln!(out, "channel {channel}");
        }
        let _ = writeln!(
            out,
            "  {:from_width$}  {:to_width$}  {:>8}  {}",
            route.from,
            route.to,
            format_size(u64::from(route.fragment_bytes)),
            way(route, found.routes.len() == 1)
        );
    }
    if found.unlisted > 0 {
        let _ = writeln!(
            out,
            "… and {} more; name two nodes to see their route",
            grouped(u64::try_from(found.unlisted).unwrap_or(u64::MAX))
        );
    }
    out
}

/// `over left, gw, right`: networks, with the gateways between them.
fn way(route: &Described, in_full: bool) -> String {
    let mut out = String::from("over ");
    let shown = if in_full {
        route.hops.len()
    } else {
        LISTED_HOPS
    };
    for (index, hop) in route.hops.iter().take(shown).enumerate() {
        if index > 0 {
            let _ = write!(out, ", {}, ", route.hops[index - 1].node);
        }
        out.push_str(&hop.network);
    }
    if route.hops.len() > shown {
        let more = counted(route.hops.len() - shown, "more network");
        let _ = write!(out, " and {more}");
    }
    out
}

fn name(cluster: &Cluster, place: &Place) -> String {
    let names = place.nodes.iter().map(|node| cluster.node_name(*node));
    compact_names(names, LISTED_RANGES)
}

fn channels(cluster: &Cluster, name: Option<&str>) -> Result<Vec<ChannelId>, Failure> {
    let Some(name) = name else {
        return Ok(cluster.channel_ids().collect());
    };
    Ok(vec![cluster.find_channel(name)?])
}
