//! A cluster file with its text, so that it can be had with other values.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use madgate_vchannel::Cluster;
use toml_edit::DocumentMut;

use super::{Name, Value, document};
use crate::failure::{Context, Failure};

/// A cluster file as it was read.
#[derive(Debug)]
pub(crate) struct Plan {
    path: PathBuf,
    text: String,
    cluster: Arc<Cluster>,
}

/// What a cluster file says with other values.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) text: String,
    pub(crate) cluster: Arc<Cluster>,
}

impl Plan {
    /// Reads a cluster file.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        // Names the file in every mistake, and refuses one that is too large.
        let read = Cluster::read(path)?;
        for warning in read.warnings() {
            tracing::warn!("{warning}");
        }
        let text =
            fs::read_to_string(path).or_fail(|| format!("cannot read {}", path.display()))?;
        let path = path.to_owned();
        // Of this very text: the file may have been replaced between the two.
        let cluster = Arc::new(Cluster::parse(&text, base(&path))?);
        Ok(Self {
            path,
            text,
            cluster,
        })
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// What it describes.
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// The file with other values, checked as every file is. The knobs that have their value
    /// already are left as they are written.
    pub(crate) fn with<'a>(
        &self,
        values: impl IntoIterator<Item = (&'a Name, &'a Value)>,
    ) -> Result<Changed, String> {
        let mut document: DocumentMut = self.text.parse().map_err(|error| format!("{error}"))?;
        let (mut wanted, mut set) = (Vec::new(), Vec::new());
        for (name, value) in values {
            let present = name
                .value_in(&self.cluster)
                .ok_or_else(|| format!("this cluster file has no {name}"))?;
            if present != *value {
                document::set(&mut document, name, value)?;
                set.push((name, value));
            }
            wanted.push((name, value));
        }
        let text = document::text(&document, &set).map_err(|error| error.to_string())?;
        let text = document::with_line_ends_of(&self.text, text);
        let cluster = Cluster::parse(&text, base(&self.path)).map_err(|error| error.to_string())?;
        // Neither may happen; a file that says something else must not be used, nor written.
        if cluster.digest() != self.cluster.digest() {
            return Err("the changed file would describe another cluster".to_owned());
        }
        if let Some((name, _)) = wanted
            .iter()
            .find(|(name, value)| name.value_in(&cluster).as_ref() != Some(*value))
        {
            return Err(format!("{name} would not have the value that it was given"));
        }
        Ok(Changed {
            text,
            cluster: Arc::new(cluster),
        })
    }
}

/// What paths in a cluster file are relative to.
fn base(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}
