//! The cluster files of the benches.

use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use madgate_vchannel::handshake::SessionKey;
use madgate_vchannel::{Cluster, ClusterError};
use tempfile::TempDir;

use crate::children::free_address_of;
use crate::waiting::Wait;

/// A network of a bench's cluster file, with the nodes on it.
#[derive(Debug, Clone, Copy)]
pub struct BenchNetwork<'a> {
    /// Its name, which is its folder's too.
    pub name: &'a str,
    /// `tcp`, `shm` or `hsl`.
    pub protocol: &'a str,
    /// Further keys of it, a line each.
    pub keys: &'a str,
    /// The nodes on it.
    pub nodes: &'a [&'a str],
}

/// A key that a cluster file has beside those that it needs: `gateway.splice=false`,
/// `channel.mtu=512KiB`, or `shm.slots=16`. Keys of a network or a channel go to all of them, and
/// those of a protocol to all networks with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    section: String,
    key: String,
    value: String,
}

impl Setting {
    /// Whether a cluster whose networks have these protocols has a place for it.
    #[must_use]
    pub fn concerns(&self, protocols: &[&str]) -> bool {
        !PROTOCOLS.contains(&&*self.section) || protocols.contains(&&*self.section)
    }

    /// Whether it is a key of this section.
    #[must_use]
    pub fn is_of(&self, section: &str) -> bool {
        self.section == section
    }

    /// What it sets: `gateway.splice`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }

    /// Several, as they are written.
    ///
    /// # Errors
    ///
    /// If one of them is none.
    pub fn read_all(texts: &[&str]) -> io::Result<Vec<Self>> {
        let read = texts.iter().map(|text| text.parse());
        read.collect::<Result<_, _>>().map_err(io::Error::other)
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').and_then(|(name, value)| {
            let (section, key) = name.split_once('.')?;
            SECTIONS.contains(&section).then_some((section, key, value))
        });
        let Some((section, key, value)) = parts else {
            let sections = SECTIONS.join(", ");
            return Err(format!(
                "{text:?} is no setting: write SECTION.KEY=VALUE, with one of {sections}"
            ));
        };
        Ok(Self {
            section: section.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
        })
    }
}

impl fmt::Display for Setting {
    /// As it stands in its section of the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, .. } = self;
        let is_bare =
            value.starts_with('[') || value.parse::<bool>().is_ok() || value.parse::<i64>().is_ok();
        match is_bare {
            true => writeln!(f, "{key} = {value}"),
            false => writeln!(f, "{key} = {value:?}"),
        }
    }
}

/// Sections that settings are for.
const SECTIONS: [&str; 7] = [
    "network", "tcp", "shm", "hsl", "channel", "endpoint", "gateway",
];

/// Those that are for the networks of one protocol.
const PROTOCOLS: [&str; 3] = ["tcp", "shm", "hsl"];

/// Writes a session key and a cluster file of `networks` in a new folder; nodes that are on
/// several networks are gateways. All of them `wait` like this, unless `settings` say otherwise.
///
/// # Errors
///
/// What writing fails with.
pub fn write_cluster(
    networks: &[BenchNetwork<'_>],
    wait: Wait,
    settings: &[Setting],
) -> io::Result<(TempDir, PathBuf)> {
    let files = crate::scratch::folder()?;
    SessionKey::generate()
        .write_new(&files.path().join("session.key"))
        .map_err(io::Error::other)?;
    let path = files.path().join("cluster.toml");
    std::fs::write(&path, describe(networks, wait, settings, files.path())?)?;
    Ok((files, path))
}

/// Whether nodes take the cluster file that [`write_cluster`] wrote, which nobody else has seen.
///
/// # Errors
///
/// What they would refuse it for.
pub(crate) fn check_written(cluster: &Path) -> io::Result<()> {
    let refused = |error: ClusterError| {
        let (file, text) = (cluster.display().to_string(), error.to_string());
        io::Error::other(text.replace(&file, "the cluster file with --set"))
    };
    Cluster::read(cluster).map(drop).map_err(refused)
}

fn describe(
    networks: &[BenchNetwork<'_>],
    wait: Wait,
    settings: &[Setting],
    folder: &Path,
) -> io::Result<String> {
    let mut text = String::from("[session]\nname = \"bench\"\nkey_file = \"session.key\"\n");
    let mut nodes: Vec<(&str, Vec<String>)> = Vec::new();
    let mut places = 1;
    for network in networks {
        let BenchNetwork { name, protocol, .. } = network;
        let _ = write!(
            text,
            "\n[[network]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\n"
        );
        if *protocol != "tcp" {
            let _ = writeln!(text, "directory = \"{}\"", folder.join(name).display());
        }
        if *protocol == "hsl" {
            text.push_str("trust = \"memory\"\n");
        }
        text.push_str(network.keys);
        add(&mut text, "network", settings);
        add(&mut text, protocol, settings);
        for node in network.nodes {
            let address = match *protocol {
                "tcp" => free_address_of(places)?.to_string(),
                _ => (*node).to_owned(),
            };
            places += 1;
            let address = format!("{name} = \"{address}\"");
            match nodes.iter_mut().find(|(known, _)| known == node) {
                Some((_, addresses)) => addresses.push(address),
                None => nodes.push((node, vec![address])),
            }
        }
    }
    for (node, addresses) in &nodes {
        let _ = writeln!(text, "\n[[node]]\nname = \"{node}\"");
        if addresses.len() > 1 {
            text.push_str("gateway = true\n");
        }
        let _ = writeln!(text, "addresses = {{ {} }}", addresses.join(", "));
    }
    let names: Vec<String> = networks
        .iter()
        .map(|network| format!("\"{}\"", network.name))
        .collect();
    let _ = write!(
        text,
        "\n[[channel]]\nname = \"main\"\nnetworks = [{}]\n",
        names.join(", ")
    );
    add(&mut text, "channel", settings);
    for section in ["endpoint", "gateway"] {
        let _ = writeln!(text, "\n[{section}]");
        let says = |setting: &Setting| setting.section == section && setting.key == "wait";
        if !settings.iter().any(says) {
            let _ = writeln!(text, "wait = \"{}\"", wait.name());
        }
        add(&mut text, section, settings);
    }
    Ok(text)
}

fn add(text: &mut String, section: &str, settings: &[Setting]) {
    let of_it = settings.iter().filter(|setting| setting.section == section);
    for setting in of_it {
        let _ = write!(text, "{setting}");
    }
}

#[cfg(test)]
mod tests {
    use madgate_vchannel::Cluster;
    use madgate_vchannel::cluster::WaitPolicy;

    use super::*;

    #[test]
    fn settings_stand_in_their_sections() {
        let network = |name, nodes| BenchNetwork {
            name,
            protocol: "tcp",
            keys: "",
            nodes,
        };
        let networks = [
            network("left", &["a0", "gw"][..]),
            network("right", &["gw", "b0"]),
        ];
        let settings = Setting::read_all(&[
            "network.unsent=1MiB",
            "channel.mtu=512KiB",
            "endpoint.wait=spin",
            "gateway.splice=false",
            "gateway.depth=3",
            "gateway.pin=[0]",
        ])
        .unwrap();
        let (_files, path) = write_cluster(&networks, Wait::Sleep, &settings).unwrap();
        let cluster = Cluster::read(&path).unwrap();
        assert_eq!(cluster.networks()[1].tuning.tcp.bulk_unsent_bytes, 1 << 20);
        let main = cluster.channel_named("main").unwrap();
        assert_eq!(cluster.channel(main).mtu, 512 << 10);
        assert_eq!(cluster.endpoint_settings().wait, WaitPolicy::Spin);
        let gateway = cluster.gateway_settings();
        assert_eq!(gateway.wait, WaitPolicy::Sleep);
        assert_eq!((gateway.splice, gateway.depth), (false, 3));
        assert_eq!(gateway.pin, [0]);
    }

    #[test]
    fn settings_of_a_protocol_go_to_its_networks() {
        let network = |name, protocol, nodes| BenchNetwork {
            name,
            protocol,
            keys: "",
            nodes,
        };
        let networks = [
            network("left", "tcp", &["a0", "gw"][..]),
            network("right", "shm", &["gw", "b0"]),
        ];
        let settings = Setting::read_all(&["tcp.unsent=1MiB", "shm.slots=16"]).unwrap();
        let (_files, path) = write_cluster(&networks, Wait::Sleep, &settings).unwrap();
        let cluster = Cluster::read(&path).unwrap();
        assert_eq!(cluster.networks()[0].tuning.tcp.bulk_unsent_bytes, 1 << 20);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches("slots = 16").count(), 1);
        assert!(
            settings
                .iter()
                .all(|setting| setting.concerns(&["tcp", "shm"]))
        );
        assert!(!settings[1].concerns(&["tcp", "hsl"]));
        assert!(Setting::read_all(&["network.mtu=4KiB"]).unwrap()[0].concerns(&["tcp"]));
    }

    #[test]
    fn what_is_no_setting_is_refused() {
        for text in ["splice=false", "gateway.splice", "session.name=x", ""] {
            assert!(text.parse::<Setting>().unwrap_err().contains("SECTION.KEY"));
        }
    }
}
