//! The reading end of a copy: a thread of its own that walks, reads and digests ahead of
//! what is sent.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use crossbeam_channel::Sender;
use rustix::buffer::spare_capacity;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::root::MODE_MASK;
use super::walk::{Source, Step, walk, words_of_source};
use super::wire::{CHUNK_BYTES, Request, length};
use crate::units::counted;

/// How many messages the reader may be ahead.
pub(crate) const AHEAD: usize = 4;

/// Stands for no entry.
const NO_ENTRY: u64 = 0;

/// What the reader hands over.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A message; with the path that it is about where it begins an entry.
    Request {
        request: Request,
        begins: Option<Begins>,
    },
    /// Something cannot be read; where an entry had begun, `entry` is its number.
    Problem {
        entry: Option<u64>,
        path: PathBuf,
        reason: String,
    },
}

/// An entry begins.
#[derive(Debug)]
pub(crate) struct Begins {
    pub(crate) entry: u64,
    pub(crate) path: PathBuf,
    pub(crate) kind: EntryKind,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// A file.
    File,
    /// A folder.
    Folder,
}

/// The latest entry that failed at the other end, for a reader that is busy with it: the rest
/// of the file need not be read.
#[derive(Debug, Default)]
pub(crate) struct LatestFailure(AtomicU64);

impl LatestFailure {
    pub(crate) fn set(&self, entry: u64) {
        self.0.store(entry, Ordering::Relaxed);
    }

    fn is(&self, entry: u64) -> bool {
        self.0.load(Ordering::Relaxed) == entry
    }
}

/// Whether the copy has ended early: what is left need only be named.
#[derive(Debug, Default)]
pub(crate) struct Ended(AtomicBool);

impl Ended {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why something is not at the other end when a copy has ended early.
pub(crate) const NOT_SENT: &str = "was not sent";

/// Reads everything, in order, until it is done or nobody listens. When the copy has ended
/// early, it names what is left, each as a problem.
pub(crate) fn read(
    sources: &[Source],
    out: &Sender<Outgoing>,
    failure: &LatestFailure,
    ended: &Ended,
) {
    let mut reader = Reader {
        out,
        failure,
        ended,
        latest: NO_ENTRY,
        folders: Vec::new(),
    };
    walk(sources, |step| reader.step(step).is_ok());
}

/// Nobody listens any more.
struct Gone;

struct Reader<'a> {
    out: &'a Sender<Outgoing>,
    failure: &'a LatestFailure,
    ended: &'a Ended,
    latest: u64,
    folders: Vec<u64>,
}

impl Reader<'_> {
    fn step(&mut self, step: Step) -> Result<(), Gone> {
        match step {
            Step::Folder { path, .. } | Step::File { path, .. } if self.ended.is_set() => {
                self.problem(None, path, NOT_SENT.into())
            }
            Step::Leave if self.ended.is_set() => Ok(()),
            Step::Folder { path, target, mode } => {
                let entry = self.next();
                self.folders.push(entry);
                let begins = Begins {
                    entry,
                    path,
                    kind: EntryKind::Folder,
                };
                self.begin(
                    Request::Folder {
                        entry,
                        mode,
                        path: target,
                    },
                    begins,
                )
            }
            Step::Leave => match self.folders.pop() {
                Some(entry) => self.request(Request::Leave { entry }),
                None => Ok(()),
            },
            Step::File { path, target } => self.file(path, target),
            Step::Problem { path, reason } => self.problem(None, path, reason),
        }
    }

    fn file(&mut self, path: PathBuf, target: Bytes) -> Result<(), Gone> {
        let (file, mode, version) = match open(&path, self.folders.is_empty()) {
            Ok(opened) => opened,
            Err(error) => return self.problem(None, path, words_of_source(&error)),
        };
        let entry = self.next();
        let begins = Begins {
            entry,
            path: path.clone(),
            kind: EntryKind::File,
        };
        self.begin(
            Request::File {
                entry,
                mode,
                size: version.size,
                path: target,
            },
            begins,
        )?;

        let mut hash = Sha256::new();
        let mut size = 0;
        loop {
            if self.ended.is_set() {
                // Who sends has named it.
                return Ok(());
            }
            if self.failure.is(entry) {
                return self.request(Request::Abandon { entry });
            }
            match chunk(&file) {
                Ok(bytes) if bytes.is_empty() => break,
                Ok(bytes) => {
                    hash.update(&bytes);
                    size += length(&bytes);
                    self.request(Request::Chunk { entry, bytes })?;
                    // What grows as fast as it is read would have no end.
                    if size > version.size {
                        break;
                    }
                }
                Err(error) => {
                    self.request(Request::Abandon { entry })?;
                    return self.problem(Some(entry), path, words_of_source(&error));
                }
            }
        }
        if let Err(reason) = version.is_still(&file, size) {
            self.request(Request::Abandon { entry })?;
            return self.problem(Some(entry), path, reason);
        }
        self.request(Request::Finish {
            entry,
            size,
            digest: hash.finalize().into(),
        })
    }

    fn next(&mut self) -> u64 {
        self.latest += 1;
        self.latest
    }

    fn begin(&self, request: Request, begins: Begins) -> Result<(), Gone> {
        self.out(Outgoing::Request {
            request,
            begins: Some(begins),
        })
    }

    fn request(&self, request: Request) -> Result<(), Gone> {
        self.out(Outgoing::Request {
            request,
            begins: None,
        })
    }

    fn problem(&self, entry: Option<u64>, path: PathBuf, reason: String) -> Result<(), Gone> {
        self.out(Outgoing::Problem {
            entry,
            path,
            reason,
        })
    }

    fn out(&self, outgoing: Outgoing) -> Result<(), Gone> {
        self.out.send(outgoing).map_err(|_| Gone)
    }
}

/// What tells that a file has changed while it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    size: u64,
    /// When it was written last: seconds and nanoseconds.
    written: (i64, i64),
    /// When that, its name or its mode was changed last. Nobody sets it back.
    changed: (i64, i64),
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        Self {
            size: metadata.len(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Says why the `read` bytes are not the file that was opened, where they are not.
    fn is_still(&self, file: &File, read: u64) -> Result<(), String> {
        let metadata = file.metadata().map_err(|error| words_of_source(&error))?;
        if Self::of(&metadata) != *self {
            return Err("changed while it was copied; copy it again".into());
        }
        // Files that the kernel makes up, such as those of /proc.
        if read != self.size {
            let size = counted(self.size, "byte");
            return Err(format!(
                "has {size}, says its file system, and others can be read; copy it to a disk first"
            ));
        }
        Ok(())
    }
}

/// Opens a file that is still one: since the walk saw it, a link may have taken its place.
/// Links are followed only where the command line names one.
fn open(path: &Path, is_source: bool) -> io::Result<(File, u32, Version)> {
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if !is_source {
        flags |= OFlags::NOFOLLOW;
    }
    let file: File = rustix::fs::open(path, flags, Mode::empty())?.into();
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("is not a file any more"));
    }
    Ok((file, metadata.mode() & MODE_MASK, Version::of(&metadata)))
}

/// The next bytes of a file; none at its end.
fn chunk(file: &File) -> io::Result<Bytes> {
    let mut bytes = Vec::with_capacity(CHUNK_BYTES);
    while bytes.len() < CHUNK_BYTES {
        match rustix::io::read(file, spare_capacity(&mut bytes)) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes.into())
}
