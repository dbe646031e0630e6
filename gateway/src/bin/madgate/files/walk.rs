//! What there is to copy, in order: folders before what is in them, names sorted.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use thiserror::Error;
use walkdir::{DirEntry, WalkDir};

use super::receive::words;
use super::root::MODE_MASK;
use super::wire::MAX_PATH_BYTES;
use crate::output::shown;

/// A file or folder that is copied with all that is in it.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    path: PathBuf,
    /// Its name at the other end.
    name: OsString,
}

/// Why something cannot be a source.
#[derive(Debug, Error)]
pub(crate) enum SourceError {
    /// It is not there, or not accessible.
    #[error("{path}: {reason}", path = shown(.0), reason = .1)]
    Unreadable(PathBuf, io::Error),
    /// The root folder has no name to copy it under.
    #[error("{path}: has no name to copy it under", path = shown(.0))]
    NoName(PathBuf),
    /// Two sources would be the same thing at the other end.
    #[error("{path}: another source is called {name:?} too", path = shown(.0), name = .1)]
    Twice(PathBuf, OsString),
}

impl Source {
    /// Looks at the paths of a command line.
    pub(crate) fn all(paths: &[PathBuf]) -> Result<Vec<Self>, SourceError> {
        let mut names = HashSet::new();
        let mut sources = Vec::new();
        for path in paths {
            let unreadable = |error| SourceError::Unreadable(path.clone(), error);
            let real = path.canonicalize().map_err(unreadable)?;
            // `.` and `..` have no name of their own.
            let name = path.file_name().or(real.file_name());
            let name = name
                .ok_or_else(|| SourceError::NoName(path.clone()))?
                .to_owned();
            if !names.insert(name.clone()) {
                return Err(SourceError::Twice(path.clone(), name));
            }
            sources.push(Self {
                path: path.clone(),
                name,
            });
        }
        Ok(sources)
    }

    /// Bytes in all files, as far as they can be seen: for a progress bar.
    pub(crate) fn total_bytes(sources: &[Self]) -> u64 {
        let walk = |source: &Self| WalkDir::new(&source.path).into_iter();
        let entries = sources.iter().flat_map(walk).filter_map(Result::ok);
        let files = entries.filter(|entry| entry.file_type().is_file());
        files
            .filter_map(|entry| entry.metadata().ok())
            .map(|file| file.len())
            .sum()
    }
}

/// One step of a walk.
#[derive(Debug)]
pub(crate) enum Step {
    /// A folder begins.
    Folder {
        path: PathBuf,
        target: Bytes,
        mode: u32,
    },
    /// The latest folder that is still open is complete.
    Leave,
    /// A file.
    File { path: PathBuf, target: Bytes },
    /// Something that cannot be copied.
    Problem { path: PathBuf, reason: String },
}

/// Calls `visit` with every step, until it says that it is enough.
pub(crate) fn walk(sources: &[Source], mut visit: impl FnMut(Step) -> bool) {
    for source in sources {
        if !walk_one(source, &mut visit) {
            return;
        }
    }
}

fn walk_one(source: &Source, visit: &mut impl FnMut(Step) -> bool) -> bool {
    let mut open = 0;
    let mut entries = WalkDir::new(&source.path)
        .sort_by_file_name()
        .into_iter()
        .peekable();
    while let Some(entry) = entries.next() {
        let depth = match &entry {
            Ok(entry) => entry.depth(),
            Err(error) => error.depth(),
        };
        while open > depth {
            open -= 1;
            if !visit(Step::Leave) {
                return false;
            }
        }
        let step = match entry {
            // What cannot be read is not begun, as it would count as copied. Why comes next.
            Ok(entry) if is_unreadable(entry.path(), entries.peek()) => continue,
            Ok(entry) => {
                let path = entry.path();
                // A source itself is what the command line names, so its link is followed.
                let metadata = match depth {
                    0 => std::fs::metadata(path).map_err(|error| words_of_source(&error)),
                    _ => entry.metadata().map_err(|error| words_of(&error)),
                };
                match metadata {
                    Ok(metadata) => step(source, path, &metadata),
                    Err(reason) => Step::Problem {
                        path: path.to_owned(),
                        reason,
                    },
                }
            }
            Err(error) => Step::Problem {
                path: error.path().unwrap_or(&source.path).to_owned(),
                reason: words_of(&error),
            },
        };
        open += usize::from(matches!(step, Step::Folder { .. }));
        if !visit(step) {
            return false;
        }
    }
    (0..open).all(|_| visit(Step::Leave))
}

/// Whether what a walk comes to after a folder says that the folder cannot be read.
fn is_unreadable(folder: &Path, next: Option<&walkdir::Result<DirEntry>>) -> bool {
    matches!(next, Some(Err(error)) if error.path() == Some(folder))
}

fn step(source: &Source, path: &Path, metadata: &Metadata) -> Step {
    let target = target(source, path);
    let path = path.to_owned();
    if target.len() > MAX_PATH_BYTES {
        return Step::Problem {
            path,
            reason: format!("is too long a path: more than {MAX_PATH_BYTES} bytes"),
        };
    }
    if metadata.is_dir() {
        Step::Folder {
            path,
            target,
            mode: metadata.mode() & MODE_MASK,
        }
    } else if metadata.is_file() {
        Step::File { path, target }
    } else {
        let what = if metadata.is_symlink() {
            "a link"
        } else {
            "a device, pipe or socket"
        };
        Step::Problem {
            path,
            reason: format!("is {what}, which is not copied"),
        }
    }
}

fn words_of(error: &walkdir::Error) -> String {
    error
        .io_error()
        .map_or_else(|| error.to_string(), words_of_source)
}

/// An error of the file system where it is read.
pub(crate) fn words_of_source(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "is not there any more".into(),
        _ => words(error),
    }
}

fn target(source: &Source, path: &Path) -> Bytes {
    let mut target = source.name.clone().into_vec();
    let inner = path.strip_prefix(&source.path).unwrap_or(Path::new(""));
    if !inner.as_os_str().is_empty() {
        target.push(b'/');
        target.extend_from_slice(inner.as_os_str().as_bytes());
    }
    target.into()
}
