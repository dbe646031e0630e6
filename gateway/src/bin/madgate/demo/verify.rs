//! Whether what was received is what was sent: a look of its own at both, without `cp`.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::files::root::MODE_MASK;
use crate::files::walk::{Source, Step, walk};

const BUFFER_BYTES: usize = 1 << 20;

/// What a comparison found.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// Files that are the same at both ends.
    pub(crate) files: u64,
    /// Folders that are.
    pub(crate) folders: u64,
    /// Bytes in the files.
    pub(crate) bytes: u64,
    /// What is not the same.
    pub(crate) different: Vec<PathBuf>,
    /// Links, devices, pipes, sockets, and what cannot be read: `cp` does not copy them.
    pub(crate) skipped: u64,
}

impl Comparison {
    /// Whether something was copied, and is as it was.
    pub(crate) fn is_good(&self) -> bool {
        self.different.is_empty() && self.files + self.folders > 0
    }
}

/// Compares all files and folders with what was received under `received`.
pub(crate) fn compare(sources: &[Source], received: &Path) -> Comparison {
    let mut comparison = Comparison::default();
    walk(sources, |step| {
        let (path, target) = match &step {
            Step::File { path, target } | Step::Folder { path, target, .. } => (path, target),
            Step::Problem { .. } => {
                // `cp` has named it.
                comparison.skipped += 1;
                return true;
            }
            Step::Leave => return true,
        };
        let other = received.join(std::ffi::OsStr::from_bytes(target));
        let size = match &step {
            Step::File { .. } => same_file(path, &other),
            _ => same_mode(path, &other).map(|same| if same { Same::Yes(0) } else { Same::No }),
        };
        match size {
            Ok(Same::Yes(size)) => {
                comparison.bytes += size;
                match step {
                    Step::File { .. } => comparison.files += 1,
                    _ => comparison.folders += 1,
                }
            }
            Ok(Same::Unreadable) => comparison.skipped += 1,
            Ok(Same::No) | Err(_) => comparison.different.push(path.clone()),
        }
        true
    });
    comparison
}

/// Whether something is the same at both ends.
enum Same {
    /// With so many bytes.
    Yes(u64),
    No,
    /// It cannot be read here, and so was not sent.
    Unreadable,
}

fn same_file(path: &Path, other: &Path) -> io::Result<Same> {
    let Ok((size, digest)) = digest(path) else {
        return Ok(Same::Unreadable);
    };
    if (size, digest) == self::digest(other)? && same_mode(path, other)? {
        Ok(Same::Yes(size))
    } else {
        Ok(Same::No)
    }
}

fn same_mode(path: &Path, other: &Path) -> io::Result<bool> {
    let mode = |path: &Path| fs::metadata(path).map(|metadata| metadata.mode() & MODE_MASK);
    Ok(mode(path)? == mode(other)?)
}

fn digest(path: &Path) -> io::Result<(u64, [u8; 32])> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut hash = Sha256::new();
    let mut size = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((size, hash.finalize().into())),
            read => {
                hash.update(&buffer[..read]);
                size += crate::files::wire::count(read);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_found() {
        let place = tempfile::tempdir().unwrap();
        let (tree, received) = (place.path().join("tree"), place.path().join("received"));
        fs::create_dir_all(&tree).unwrap();
        fs::create_dir_all(received.join("tree")).unwrap();
        for (name, contents) in [("same", "a"), ("other", "b"), ("missing", "c")] {
            fs::write(tree.join(name), contents).unwrap();
        }
        fs::write(received.join("tree/same"), "a").unwrap();
        fs::write(received.join("tree/other"), "x").unwrap();
        std::os::unix::fs::symlink("same", tree.join("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap();
        let sources = Source::all(std::slice::from_ref(&tree)).unwrap();
        let comparison = compare(&sources, &received);
        assert_eq!((comparison.files, comparison.bytes), (1, 1));
        assert_eq!(comparison.folders, 1);
        assert_eq!(comparison.skipped, 2);
        assert_eq!(
            comparison.different,
            [tree.join("missing"), tree.join("other")]
        );
    }
}
