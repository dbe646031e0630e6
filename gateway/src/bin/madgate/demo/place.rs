//! Where the demo takes place: folders, cluster files, free ports.

use std::error::Error;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use madgate_vchannel::handshake::SessionKey;
use tempfile::TempDir;

use crate::failure::{Context, Failure};
use crate::output::shown;

/// The longest folder of temporary files that the paths of sockets still fit behind.
const SHORT_BYTES: usize = 60;

/// The folders and files of a demo; temporary ones go when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    folder: PathBuf,
    /// Where the shared-memory nodes meet: apart, as the paths of sockets have to be short.
    meeting: TempDir,
    temporary: Option<TempDir>,
}

/// What a demo consists of: three sets of nodes that know nothing of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// a0, the gateway, and b0 beyond it.
    Forwarded,
    /// a0 and gw on the TCP network, as plain nodes.
    Left,
    /// gw and b0 on the shared-memory network, as plain nodes.
    Right,
}

impl Stage {
    pub(crate) const ALL: [Self; 3] = [Self::Forwarded, Self::Left, Self::Right];

    /// The name of its cluster file.
    fn file(self) -> &'static str {
        match self {
            Self::Forwarded => "cluster.toml",
            Self::Left => "direct-left.toml",
            Self::Right => "direct-right.toml",
        }
    }

    /// Who measures, and who answers.
    pub(crate) fn ends(self) -> (&'static str, &'static str) {
        match self {
            Self::Forwarded => ("a0", "b0"),
            Self::Left => ("a0", "gw"),
            Self::Right => ("gw", "b0"),
        }
    }
}

impl Place {
    /// Makes the folders, the key and the cluster files; in `keep`, where that is given.
    pub(crate) fn make(keep: Option<&Path>) -> Result<Self, Failure> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("madgate-demo-");
        let what = || "cannot make a folder for the demo".to_owned();
        let meeting = builder.tempdir_in(short_folder()).or_fail(what)?;
        let (folder, temporary) = match keep {
            Some(keep) => (make_kept(keep)?, None),
            None => {
                let temporary = builder.tempdir().or_fail(what)?;
                (temporary.path().to_owned(), Some(temporary))
            }
        };
        let place = Self {
            folder,
            meeting,
            temporary,
        };
        place
            .fill()
            .or_fail(|| format!("cannot prepare {}", place.folder.display()))?;
        Ok(place)
    }

    fn fill(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        for folder in ["received", "scratch", "logs"] {
            fs::create_dir(self.folder.join(folder))?;
        }
        SessionKey::generate().write_new(&self.folder.join("session.key"))?;
        let ports = free_ports::<4>()?;
        for stage in Stage::ALL {
            fs::write(self.cluster(stage), self.text(stage, ports))?;
        }
        Ok(())
    }

    /// The folders to remove when the demo has to end early.
    pub(crate) fn temporary_folders(&self) -> Vec<PathBuf> {
        let folders = [Some(&self.meeting), self.temporary.as_ref()];
        folders
            .into_iter()
            .flatten()
            .map(|folder| folder.path().to_owned())
            .collect()
    }

    /// The cluster file of a stage.
    pub(crate) fn cluster(&self, stage: Stage) -> PathBuf {
        self.folder.join(stage.file())
    }

    /// The folder that b0 serves.
    pub(crate) fn received(&self) -> PathBuf {
        self.folder.join("received")
    }

    /// A folder for nodes that receive nothing.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.folder.join("scratch")
    }

    /// A file of the demo.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The log of a node.
    pub(crate) fn log(&self, stage: Stage, name: &str) -> PathBuf {
        let stage = stage.file().trim_end_matches(".toml");
        self.folder.join("logs").join(format!("{stage}-{name}.log"))
    }

    fn text(&self, stage: Stage, [a0, gw, direct_a0, direct_gw]: [u16; 4]) -> String {
        let meeting = |name: &str| {
            // As a TOML string, whatever is in the path.
            let path = self.meeting.path().join(name);
            serde_json::Value::from(path.to_string_lossy()).to_string()
        };
        let session =
            |name: &str| format!("[session]\nname = \"{name}\"\nkey_file = \"session.key\"\n");
        let left = "\n[[network]]\nname = \"left\"\nprotocol = \"tcp\"\n";
        let right = |folder: &str| {
            let folder = meeting(folder);
            format!("\n[[network]]\nname = \"right\"\nprotocol = \"shm\"\ndirectory = {folder}\n")
        };
        let node = |name: &str, more: &str, addresses: &str| {
            format!("\n[[node]]\nname = \"{name}\"\n{more}addresses = {{ {addresses} }}\n")
        };
        let tcp = |port: u16| format!("left = \"127.0.0.1:{port}\"");
        let channel =
            |networks: &str| format!("\n[[channel]]\nname = \"main\"\nnetworks = [{networks}]\n");
        match stage {
            Stage::Forwarded => [
                session("demo"),
                left.into(),
                right("right"),
                node("a0", "", &tcp(a0)),
                node(
                    "gw",
                    "gateway = true\n",
                    &format!("{}, right = \"gw\"", tcp(gw)),
                ),
                node("b0", "", "right = \"b0\""),
                channel("\"left\", \"right\""),
            ]
            .concat(),
            Stage::Left => [
                session("demo-left"),
                left.into(),
                node("a0", "", &tcp(direct_a0)),
                node("gw", "", &tcp(direct_gw)),
                channel("\"left\""),
            ]
            .concat(),
            Stage::Right => [
                session("demo-right"),
                right("direct"),
                node("gw", "", "right = \"gw\""),
                node("b0", "", "right = \"b0\""),
                channel("\"right\""),
            ]
            .concat(),
        }
    }
}

/// Where folders are made that the paths of sockets fit behind.
pub(crate) fn short_folder() -> PathBuf {
    let usual = std::env::temp_dir();
    if usual.as_os_str().len() > SHORT_BYTES {
        PathBuf::from("/tmp")
    } else {
        usual
    }
}

/// Refuses to copy folders that a demo would be made in: its key and its sockets would be among what
/// is copied, and what arrives would be copied again.
pub(crate) fn keep_out_of(sources: &[PathBuf], keep: Option<&Path>) -> Result<(), Failure> {
    let folder = keep.map_or_else(std::env::temp_dir, Path::to_owned);
    for own in [folder, short_folder()] {
        let Some(place) = own.ancestors().find_map(|above| real(above).ok()) else {
            continue;
        };
        // What cannot be read is refused when it is looked at.
        let is_in = |source: &&PathBuf| real(source).is_ok_and(|source| place.starts_with(source));
        if let Some(source) = sources.iter().find(is_in) {
            return Err(Failure::new(format!(
                "cannot copy {source}: the demo makes files of its own in {own}, which is inside of \
                 it; have them elsewhere, with `--keep` and the variable TMPDIR",
                source = shown(source),
                own = shown(&own),
            )));
        }
    }
    Ok(())
}

/// Where a path leads, the empty one being this folder.
fn real(path: &Path) -> io::Result<PathBuf> {
    match path.as_os_str().is_empty() {
        true => Path::new(".").canonicalize(),
        false => path.canonicalize(),
    }
}

fn make_kept(keep: &Path) -> Result<PathBuf, Failure> {
    let what = || format!("cannot use {}", keep.display());
    if fs::metadata(keep).is_ok_and(|about| !about.is_dir()) {
        return Err(Failure::new(format!(
            "{} is not a folder; name a new one",
            keep.display()
        )));
    }
    fs::create_dir_all(keep).or_fail(what)?;
    if fs::read_dir(keep).or_fail(what)?.next().is_some() {
        return Err(Failure::new(format!(
            "{} is not empty; name a new folder",
            keep.display()
        )));
    }
    keep.canonicalize().or_fail(what)
}

/// Ports that nobody listens on now. Somebody may until they are used, which is then said.
pub(crate) fn free_ports<const COUNT: usize>() -> io::Result<[u16; COUNT]> {
    let mut listeners = Vec::new();
    let mut ports = [0; COUNT];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use madgate_vchannel::Cluster;

    use super::*;

    #[test]
    fn every_cluster_file_is_right_and_goes_with_its_folder() {
        let place = Place::make(None).unwrap();
        for stage in Stage::ALL {
            let cluster = Cluster::read(place.cluster(stage)).unwrap();
            assert!(cluster.warnings().is_empty(), "{:?}", cluster.warnings());
            let (from, to) = stage.ends();
            assert!(cluster.node(from).is_some() && cluster.node(to).is_some());
        }
        let folders = place.temporary_folders();
        drop(place);
        assert!(folders.iter().all(|folder| !folder.exists()));
    }

    #[test]
    fn what_a_demo_is_made_in_is_not_copied() {
        let folder = tempfile::tempdir().unwrap();
        let (source, beside) = (folder.path().join("source"), folder.path().join("beside"));
        for folder in [&source, &beside] {
            fs::create_dir(folder).unwrap();
        }
        let sources = [source.clone()];
        for keep in ["", "new", "new/deeper"] {
            let error = keep_out_of(&sources, Some(&source.join(keep))).unwrap_err();
            assert!(error.to_string().contains("--keep"), "{error}");
        }
        keep_out_of(&sources, Some(&beside.join("new"))).unwrap();
        keep_out_of(&sources, None).unwrap();
        assert!(keep_out_of(&[std::env::temp_dir()], Some(&beside)).is_err());
        assert!(keep_out_of(&[std::env::temp_dir()], None).is_err());
    }

    #[test]
    fn a_folder_with_something_in_it_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("kept");
        let place = Place::make(Some(&kept)).unwrap();
        drop(place);
        assert!(kept.join("cluster.toml").exists());
        assert!(Place::make(Some(&kept)).is_err());
    }
}
