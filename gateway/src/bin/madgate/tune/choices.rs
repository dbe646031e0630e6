//! What may be tried on a route: for each knob, its values in their order.

use std::cmp::Ordering;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use madgate_tm::Protocol;
use madgate_vchannel::Cluster;
use madgate_vchannel::cluster::WaitPolicy;

use super::search::{Dimension, Trade};
use crate::failure::Failure;
use crate::knobs::{Kind, Knob, Name, Section, Value, names};
use crate::units::{counted, float};

/// A knob with the values that it may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) name: Name,
    pub(crate) values: Vec<Value>,
    /// The place of the value that it has.
    pub(crate) present: usize,
    /// The place of the value that it has where the file says nothing.
    pub(crate) default: usize,
}

impl Choice {
    /// The present value among those that are worth a try; `None` where the cluster has no such
    /// knob.
    pub(crate) fn new(name: Name, cluster: &Cluster, processors: &[usize]) -> Option<Self> {
        let present = name.value_in(cluster)?;
        let knob = name.knob();
        let tried = knob.tried.iter();
        let mut values: Vec<Value> = tried
            .filter_map(|text| Value::parse(knob.kind, text).ok())
            .filter(|value| name.takes(value, cluster))
            .collect();
        if knob.kind == Kind::Pin {
            values.extend(pins(processors));
        }
        let default = name.default_in(cluster).unwrap_or_else(|| present.clone());
        for kept in [&default, &present] {
            values.retain(|value| value == kept || !are_alike(value, kept));
            if !values.contains(kept) {
                let before = |value: &Value| compare(value, kept) != Ordering::Greater;
                let place = values.iter().take_while(|value| before(value)).count();
                values.insert(place, kept.clone());
            }
        }
        let place = |kept: &Value| values.iter().position(|value| value == kept);
        let present = place(&present)?;
        Some(Self {
            // One that is as good as the present one is not worth a try.
            default: place(&default).unwrap_or(present),
            present,
            name,
            values,
        })
    }

    /// As the search sees it.
    pub(crate) fn dimension(&self) -> Dimension {
        Dimension {
            values: self.values.len(),
            present: self.present,
            default: self.default,
        }
    }
}

/// Knobs whose product is memory: a cache holds so much of it, whatever it is divided into.
const MEMORY: [[&str; 2]; 2] = [["slot_bytes", "slots"], ["batch", "depth"]];

/// Sizes and counts that differ by less than this part of them are alike.
const ALIKE: f64 = 0.1;

/// Which of the choices may be traded for each other.
pub(crate) fn trades(choices: &[Choice]) -> Vec<Trade> {
    let pairs = MEMORY.iter().flat_map(|[one, other]| {
        let firsts = choices.iter().enumerate();
        let firsts = firsts.filter(move |(_, choice)| choice.name.knob().key == *one);
        firsts.filter_map(move |(first, choice)| {
            let is_other = |candidate: &Choice| {
                candidate.name.knob().key == *other && candidate.name.is_beside(&choice.name)
            };
            Some([first, choices.iter().position(is_other)?])
        })
    });
    let costs =
        |knob: usize| -> Option<Vec<f64>> { choices[knob].values.iter().map(amount).collect() };
    pairs
        .filter_map(|knobs| {
            let [first, second] = knobs.map(costs);
            Some(Trade {
                knobs,
                costs: [first?, second?],
            })
        })
        .collect()
}

/// How much a size or a count is; other values are no amounts.
fn amount(value: &Value) -> Option<f64> {
    match value {
        Value::Count(amount) | Value::Size(amount) => Some(float(*amount)),
        _ => None,
    }
}

/// What is tried on a route, and what is not.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// In the order in which they are tried.
    pub(crate) choices: Vec<Choice>,
    /// Knobs that do nothing between these protocols.
    pub(crate) idle: Idle,
}

/// Knobs that are left out because they do nothing on a route.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Idle {
    pub(crate) names: Vec<Name>,
    /// Of the networks that it crosses, in order.
    protocols: Vec<Protocol>,
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.names.iter().map(Name::to_string).collect();
        let protocols: Vec<String> = self.protocols.iter().map(Protocol::to_string).collect();
        let does = if names.len() == 1 { "does" } else { "do" };
        write!(f, "{}, which {does} nothing ", names.join(", "))?;
        match &protocols[..] {
            [near, far] => write!(f, "between {near} and {far}"),
            all => write!(f, "over {}", all.join(", ")),
        }
    }
}

/// Makes sure that the cluster file `file` has what the `wanted` knobs are of.
pub(crate) fn check_names(wanted: &[Name], cluster: &Cluster, file: &Path) -> Result<(), Failure> {
    match wanted.iter().find(|name| !name.is_in(cluster)) {
        Some(unknown) => Err(Failure::usage(format!(
            "{unknown} is of nothing in the cluster file; `madgate tune list {}` names its knobs",
            file.display()
        ))),
        None => Ok(()),
    }
}

/// The knobs of a route that there is a choice for; all of them, or those that were `wanted`.
pub(crate) fn choices(
    cluster: &Cluster,
    channel: &str,
    networks: &[&str],
    has_gateways: bool,
    processors: &[usize],
    wanted: &[Name],
) -> Result<Chosen, Failure> {
    // Between two nodes of one network nothing is forwarded, nor cut into fragments.
    let concerns = |name: &Name| match name.knob().section {
        Section::Gateway | Section::Channel => has_gateways,
        Section::Endpoint | Section::Network => true,
    };
    let protocols: Vec<Protocol> = networks
        .iter()
        .filter_map(|name| Some(cluster.network(cluster.network_named(name)?).protocol))
        .collect();
    let (on_route, idle): (Vec<Name>, Vec<Name>) = names(&[channel], networks, cluster)
        .into_iter()
        .filter(concerns)
        .partition(|name| does_something(name.knob(), &protocols));
    if let Some(foreign) = wanted.iter().find(|name| !on_route.contains(name)) {
        return Err(Failure::new(format!(
            "{foreign} does nothing on this route; what does: {}",
            in_words(&on_route)
        )));
    }
    let choices: Vec<Choice> = on_route
        .into_iter()
        .filter(|name| wanted.is_empty() || wanted.contains(name))
        .filter_map(|name| Choice::new(name, cluster, processors))
        .filter(|choice| choice.values.len() > 1)
        .collect();
    if choices.is_empty() {
        return Err(Failure::new(
            "there is no choice for any of these knobs on this machine",
        ));
    }
    let idle = Idle {
        names: idle,
        protocols,
    };
    Ok(Chosen { choices, idle })
}

fn in_words(names: &[Name]) -> String {
    let names: Vec<String> = names.iter().map(Name::to_string).collect();
    names.join(", ")
}

/// Whether a knob can do something on a route over these protocols.
fn does_something(knob: &Knob, protocols: &[Protocol]) -> bool {
    let is_tcp = |protocol: &Protocol| *protocol == Protocol::Tcp;
    match (knob.section, knob.key) {
        // From socket to socket.
        (Section::Gateway, "splice" | "splice_from") => {
            protocols.windows(2).any(|pair| pair.iter().all(is_tcp))
        }
        // Into slots, or out of them.
        (Section::Gateway, "direct") => !protocols.iter().all(is_tcp),
        // Into slots: on the way there, and for what comes back.
        (Section::Gateway, "ahead") => protocols.len() > 1 && !protocols.iter().all(is_tcp),
        // Of the ends, which both send.
        (Section::Endpoint, "leads" | "batches") => {
            let ends = [protocols.first(), protocols.last()];
            ends.into_iter().flatten().any(is_tcp)
        }
        // Nothing is cut between two nodes of one network.
        (Section::Endpoint, "ramps" | "sized_by_speed") => protocols.len() > 1,
        _ => true,
    }
}

/// Every combination, or more than `most` of them.
pub(crate) fn count_combinations(choices: &[Choice], most: usize) -> Result<usize, Failure> {
    let all = choices
        .iter()
        .try_fold(1_usize, |all, choice| all.checked_mul(choice.values.len()))
        .filter(|all| *all <= most);
    all.ok_or_else(|| {
        Failure::usage(format!(
            "these {} have more than {} combinations, too many for a sweep; name fewer with --knobs",
            counted(choices.len(), "knob"),
            crate::units::grouped(crate::files::wire::count(most))
        ))
    })
}

/// Ways to pin the threads of a gateway, which come in the order receiver, sender, receiver,
/// sender, and so on: all to one processor, each kind to one of its own, each network to one of
/// its own.
fn pins(processors: &[usize]) -> Vec<Value> {
    let (Some(&first), Some(&last)) = (processors.first(), processors.last()) else {
        return Vec::new();
    };
    if first == last {
        return Vec::new();
    }
    [
        vec![first],
        vec![last],
        vec![first, last],
        vec![first, first, last, last],
    ]
    .map(Value::Pin)
    .to_vec()
}

/// Whether two amounts are so close that it is not worth a try which is better.
fn are_alike(one: &Value, other: &Value) -> bool {
    let amounts = amount(one).zip(amount(other));
    amounts.is_some_and(|(one, other)| (one - other).abs() < ALIKE * one.max(other))
}

/// The order of values of one kind; those without one are alike.
fn compare(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Count(one), Value::Count(other)) | (Value::Size(one), Value::Size(other)) => {
            one.cmp(other)
        }
        (Value::Wait(one), Value::Wait(other)) => looks(one).cmp(&looks(other)),
        _ => Ordering::Equal,
    }
}

/// How long a wait looks before it sleeps.
fn looks(policy: &WaitPolicy) -> Duration {
    match policy {
        WaitPolicy::Sleep => Duration::ZERO,
        WaitPolicy::Adaptive { spin } => *spin,
        WaitPolicy::Spin => Duration::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
session = { name = "s", key_file = "key" }
[[network]]
name = "left"
protocol = "tcp"
[[network]]
name = "right"
protocol = "shm"
directory = "d"
[[node]]
name = "a"
addresses = { left = "127.0.0.1:7001" }
[[node]]
name = "gw"
gateway = true
addresses = { left = "127.0.0.1:7002", right = "gw" }
[[node]]
name = "b"
addresses = { right = "b" }
[[channel]]
name = "main"
networks = ["left", "right"]
mtu = "48KiB"
[gateway]
wait = "adaptive"
spin = "50us"
handover = "thread"
"#;

    fn on_route(has_gateways: bool, processors: &[usize], wanted: &[&str]) -> Vec<String> {
        let cluster = Cluster::parse(FILE, ".").unwrap();
        let wanted: Vec<Name> = wanted
            .iter()
            .map(|name| Name::parse(name).unwrap())
            .collect();
        let networks = ["left", "right"];
        let found = choices(
            &cluster,
            "main",
            &networks,
            has_gateways,
            processors,
            &wanted,
        );
        let texts = |choice: Choice| {
            let values: Vec<String> = choice.values.iter().map(Value::to_string).collect();
            let (name, present) = (choice.name, choice.present);
            format!("{name} {present}: {}", values.join(" "))
        };
        match found {
            Ok(found) => found.choices.into_iter().map(texts).collect(),
            Err(failure) => vec![failure.to_string()],
        }
    }

    #[test]
    fn present_values_stand_among_the_others() {
        let all = on_route(true, &[2, 5], &[]);
        for expected in [
            "channel.main.mtu 2: 16KiB 32KiB 48KiB 64KiB 128KiB 256KiB 512KiB 1MiB 2MiB",
            "network.right.slot_bytes 5: 20KiB 36KiB 68KiB 132KiB 260KiB 524416B 1028KiB",
            "gateway.wait 2: sleep adaptive 20us adaptive 50us adaptive 100us adaptive 1ms",
            "gateway.handover 1: inline thread",
            "gateway.pin 0: none 2 5 2,5 2,2,5,5",
        ] {
            assert!(
                all.iter().any(|choice| choice == expected),
                "{expected}: {all:#?}"
            );
        }
        assert!(all.iter().all(|choice| !choice.contains("threshold")));
    }

    #[test]
    fn what_shares_memory_may_be_traded() {
        let cluster = Cluster::parse(FILE, ".").unwrap();
        let networks = ["left", "right"];
        let chosen = choices(&cluster, "main", &networks, true, &[0], &[]).unwrap();
        let names: Vec<[String; 2]> = trades(&chosen.choices)
            .iter()
            .map(|trade| {
                trade
                    .knobs
                    .map(|knob| chosen.choices[knob].name.to_string())
            })
            .collect();
        assert_eq!(
            names,
            [
                ["network.right.slot_bytes", "network.right.slots"],
                ["gateway.batch", "gateway.depth"],
            ]
        );
        // One of them alone cannot.
        let wanted = [Name::parse("gateway.batch").unwrap()];
        let chosen = choices(&cluster, "main", &networks, true, &[0], &wanted).unwrap();
        assert_eq!(trades(&chosen.choices), []);
    }

    #[test]
    fn defaults_stand_among_the_others() {
        let cluster = Cluster::parse(FILE, ".").unwrap();
        let networks = ["left", "right"];
        let chosen = choices(&cluster, "main", &networks, true, &[0], &[]).unwrap();
        let default = |name: &str| {
            let mut all = chosen.choices.iter();
            let choice = all.find(|choice| choice.name.to_string() == name).unwrap();
            choice.values[choice.default].to_string()
        };
        assert_eq!(default("channel.main.mtu"), "1MiB");
        assert_eq!(default("gateway.wait"), "adaptive 100us");
        assert_eq!(default("gateway.handover"), "inline");
        assert_eq!(default("network.right.slot_bytes"), "524416B");
        let larger = FILE.replace("directory = \"d\"", "directory = \"d\"\nmtu = \"256KiB\"");
        let cluster = Cluster::parse(&larger, ".").unwrap();
        let chosen = choices(&cluster, "main", &networks, true, &[0], &[]).unwrap();
        let slots = |choice: &&Choice| choice.name.to_string() == "network.right.slot_bytes";
        let slots = chosen.choices.iter().find(slots).unwrap();
        assert_eq!(slots.values[slots.default].to_string(), "260KiB");
        assert_eq!(slots.present, slots.default);
    }

    #[test]
    fn what_does_nothing_on_a_route_is_left_out() {
        let direct = on_route(false, &[0], &[]);
        assert!(
            direct.iter().all(|choice| !choice.starts_with("gateway.")),
            "{direct:?}"
        );
        assert!(
            on_route(true, &[0], &[])
                .iter()
                .all(|choice| !choice.contains(".pin"))
        );
        let wanted = on_route(true, &[0], &["gateway.depth"]);
        assert_eq!(wanted, ["gateway.depth 1: 1 2 4 8"]);
        let foreign = on_route(false, &[0], &["gateway.depth"]);
        assert!(
            foreign[0].contains("gateway.depth does nothing on this route"),
            "{foreign:?}"
        );
        let cluster = Cluster::parse(FILE, ".").unwrap();
        for (name, is_known) in [
            ("network.left.unsent", true),
            ("network.lfet.unsent", false),
            ("channel.other.mtu", false),
        ] {
            let wanted = [Name::parse(name).unwrap()];
            let checked = check_names(&wanted, &cluster, Path::new("c.toml"));
            assert_eq!(checked.is_ok(), is_known, "{name}: {checked:?}");
        }
        let alone = on_route(true, &[0], &["gateway.pin"]);
        assert!(alone[0].contains("no choice"), "{alone:?}");
    }

    #[test]
    fn what_cards_of_libfabrics_cannot_is_not_tried() {
        let on = |card: &str| {
            let network = format!("protocol = \"hsl\"\ndirectory = \"d\"\n{card}");
            let protocol = "protocol = \"shm\"\ndirectory = \"d\"";
            assert!(FILE.contains(protocol), "{FILE}");
            let cluster = Cluster::parse(&FILE.replace(protocol, &network), ".").unwrap();
            let chosen = choices(&cluster, "main", &["right"], false, &[0], &[]).unwrap();
            let values = |key: &str| {
                let mut all = chosen.choices.iter();
                let choice = all.find(|choice| choice.name.knob().key == key)?;
                let values: Vec<String> = choice.values.iter().map(Value::to_string).collect();
                Some(values.join(" "))
            };
            [values("mode"), values("stores")].map(Option::unwrap_or_default)
        };
        let stores = "adaptive cached streaming";
        assert_eq!(on("trust = \"memory\""), ["interrupt adaptive", stores]);
        assert_eq!(on("device = \"libfabric\""), ["", ""]);
    }

    #[test]
    fn what_only_other_protocols_have_is_not_tried_and_named() {
        let cluster = Cluster::parse(FILE, ".").unwrap();
        let idle = |networks: &[&str]| {
            let chosen = choices(&cluster, "main", networks, true, &[0], &[]).unwrap();
            let is_idle = |choice: &Choice| chosen.idle.names.contains(&choice.name);
            assert!(!chosen.choices.iter().any(is_idle), "{chosen:?}");
            chosen.idle.to_string()
        };
        assert_eq!(
            idle(&["left", "right"]),
            "gateway.splice, gateway.splice_from, which do nothing between tcp and shm"
        );
        assert_eq!(
            idle(&["left", "left"]),
            "gateway.direct, gateway.ahead, which do nothing between tcp and tcp"
        );
        assert_eq!(
            idle(&["right", "left", "right"]),
            "gateway.splice, gateway.splice_from, endpoint.leads, endpoint.batches, which do nothing over shm, tcp, shm"
        );
        assert_eq!(
            idle(&["left"]),
            "gateway.splice, gateway.splice_from, gateway.direct, gateway.ahead, endpoint.ramps, \
             endpoint.sized_by_speed, which do nothing over tcp"
        );
        let wanted = on_route(true, &[0], &["gateway.splice"]);
        assert!(
            wanted[0].contains("does nothing on this route"),
            "{wanted:?}"
        );
        let wanted = on_route(true, &[0], &["gateway.direct"]);
        assert_eq!(wanted, ["gateway.direct 1: 4KiB 16KiB 64KiB 256KiB"]);
    }

    #[test]
    fn too_many_combinations_are_not_swept() {
        let cluster = Cluster::parse(FILE, ".").unwrap();
        let all = choices(&cluster, "main", &["left", "right"], true, &[0, 1], &[]).unwrap();
        let all = all.choices;
        assert!(count_combinations(&all, 4096).is_err());
        assert_eq!(count_combinations(&all[..1], 4096).ok(), Some(9));
    }
}
