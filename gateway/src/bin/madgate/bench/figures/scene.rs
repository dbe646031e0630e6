//! Where the figures are measured: cluster files, one for each packet size.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use madgate_vchannel::handshake::SessionKey;
use tempfile::TempDir;

use crate::demo::place::{free_ports, short_folder};
use crate::failure::{Context, Failure};

/// A folder with what all of them need; it goes when this is dropped.
#[derive(Debug)]
pub(super) struct Scene {
    folder: TempDir,
    ports: [u16; 2],
}

/// Which nodes a cluster file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nodes {
    /// `t` on TCP, `s` on shared memory, and the gateway `gw` on both.
    Both,
    /// `t` and `gw` on TCP, as plain nodes.
    Tcp,
    /// `s` and `gw` on shared memory, as plain nodes.
    Shm,
}

impl Scene {
    pub(super) fn make() -> Result<Self, Failure> {
        let what = || "cannot make a folder for the figures".to_owned();
        let mut builder = tempfile::Builder::new();
        let folder = builder
            .prefix("madgate-figures-")
            .tempdir_in(short_folder())
            .or_fail(what)?;
        let key = folder.path().join("session.key");
        SessionKey::generate().write_new(&key).or_fail(what)?;
        fs::create_dir(folder.path().join("scratch")).or_fail(what)?;
        Ok(Self {
            folder,
            ports: free_ports::<2>().or_fail(|| "no free port".into())?,
        })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A folder for nodes that receive nothing.
    pub(super) fn scratch(&self) -> PathBuf {
        self.folder().join("scratch")
    }

    /// Writes the cluster file of these nodes, whose messages cross the gateway in packets of
    /// this size.
    pub(super) fn cluster(&self, nodes: Nodes, packet_bytes: usize) -> Result<PathBuf, Failure> {
        let path = self.folder().join(format!("{nodes:?}-{packet_bytes}.toml"));
        let text = self.text(nodes, packet_bytes);
        fs::write(&path, text).or_fail(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    fn text(&self, nodes: Nodes, packet_bytes: usize) -> String {
        let (has_tcp, has_shm) = (nodes != Nodes::Shm, nodes != Nodes::Tcp);
        let mut text = format!(
            "[session]\nname = \"figures-{nodes:?}-{packet_bytes}\"\nkey_file = \"session.key\"\n"
        );
        if has_tcp {
            text += "[[network]]\nname = \"tcp\"\nprotocol = \"tcp\"\n";
        }
        if has_shm {
            let meeting = self.folder().join(format!("{nodes:?}"));
            // As a TOML string, whatever is in the path.
            let meeting = serde_json::Value::from(meeting.to_string_lossy());
            let _ = write!(
                text,
                "[[network]]\nname = \"shm\"\nprotocol = \"shm\"\ndirectory = {meeting}\n\
                 mtu = \"{packet_bytes}B\"\n"
            );
        }
        let [t, gw] = self.ports.map(|port| format!("tcp = \"127.0.0.1:{port}\""));
        let mut node = |name: &str, more: &str, addresses: &[&str]| {
            let addresses = addresses.join(", ");
            let _ = write!(
                text,
                "[[node]]\nname = \"{name}\"\n{more}addresses = {{ {addresses} }}\n"
            );
        };
        if has_tcp {
            node("t", "", &[&t]);
        }
        let shm_gw = "shm = \"gw\"";
        match nodes {
            Nodes::Both => node("gw", "gateway = true\n", &[&gw, shm_gw]),
            Nodes::Tcp => node("gw", "", &[&gw]),
            Nodes::Shm => node("gw", "", &[shm_gw]),
        }
        if has_shm {
            node("s", "", &["shm = \"s\""]);
        }
        let networks = match nodes {
            Nodes::Both => "\"tcp\", \"shm\"",
            Nodes::Tcp => "\"tcp\"",
            Nodes::Shm => "\"shm\"",
        };
        let _ = write!(
            text,
            "[[channel]]\nname = \"main\"\nnetworks = [{networks}]\nmtu = \"{packet_bytes}B\"\n"
        );
        // All packets of a message have the size that its curve is called by, but for the last.
        text += "[endpoint]\nramps = false\nsized_by_speed = false\n";
        text
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use madgate_vchannel::Cluster;
    use madgate_vchannel::topology::Routes;

    use super::*;

    #[test]
    fn packets_have_the_size_that_is_asked_for() {
        let scene = Scene::make().unwrap();
        for packet in [8 << 10, 128 << 10] {
            for nodes in [Nodes::Tcp, Nodes::Shm, Nodes::Both] {
                let cluster = Cluster::read(scene.cluster(nodes, packet).unwrap()).unwrap();
                assert!(cluster.warnings().is_empty(), "{:?}", cluster.warnings());
                let settings = cluster.endpoint_settings();
                assert!(!settings.ramps && !settings.sized_by_speed);
                if nodes == Nodes::Both {
                    let cluster = Arc::new(cluster);
                    let channel = cluster.channel_named("main").unwrap();
                    let routes = Routes::new(Arc::clone(&cluster), channel);
                    let ends = ["t", "s"].map(|name| cluster.node(name).unwrap());
                    let route = routes.route(ends[0], ends[1]).unwrap();
                    let bytes = routes.fragment_bytes(&route);
                    assert_eq!(
                        (route.hops.len(), bytes),
                        (2, u32::try_from(packet).unwrap())
                    );
                }
            }
        }
        let folder = scene.folder().to_owned();
        drop(scene);
        assert!(!folder.exists());
    }
}
