//! The receiving end of one copy: messages in, files and replies out. No network here.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::fsync;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::path::{Beneath, PathError};
use super::root::{Found, Root, make_folder, open_folder};
use super::settle::{BATCH_ENTRIES, Complete, settle};
use super::temporary::{Temporary, ensure_replaceable};
use super::wire::{Digest, Reply, Request, WINDOW_BYTES, charge, length};
use crate::units::counted;

/// How deep folders may be in each other; `MAX_PATH_BYTES` allows hardly more.
const MAX_DEPTH: usize = 2048;

/// One copy, as the receiver has it.
///
/// - *make*: [`begin`](Self::begin)
/// - *input*: [`handle`](Self::handle), for every message, in order
/// - *when there is nothing to handle*: [`settle`](Self::settle)
///
/// Dropped at any time, it leaves no unfinished file behind.
#[derive(Debug)]
pub(crate) struct Reception {
    root: Arc<Root>,
    target: Target,
    current: Current,
    folders: Vec<OpenFolder>,
    /// The folder of the latest entry: the next one is mostly in the same.
    latest: Option<(Beneath, OwnedFd)>,
    complete: Vec<Complete>,
    /// Folders in which folders were made whose names are not on disk: [`BATCH_ENTRIES`] at most.
    made_in: Vec<OwnedFd>,
    /// Charge of all messages dealt with, and what the sender was told of it.
    taken: u64,
    told: u64,
    ended: bool,
}

/// Where the entries of a copy go.
#[derive(Debug)]
enum Target {
    /// Into this folder, under their own names.
    Into(Beneath),
    /// To this path: it replaces the first name of each.
    Named(Beneath),
}

#[derive(Debug)]
enum Current {
    Nothing,
    Writing(Box<Writing>),
    /// This file has failed; what still comes of it is dropped.
    Skipping(u64),
}

#[derive(Debug)]
struct Writing {
    entry: u64,
    name: OsString,
    mode: u32,
    /// The size that was announced, and what of it has arrived.
    announced: u64,
    size: u64,
    hash: Sha256,
    temporary: Temporary,
}

#[derive(Debug)]
struct OpenFolder {
    entry: u64,
    path: Beneath,
    /// `None`: it was there before, and keeps its mode.
    mode: Option<u32>,
    /// It could not be made, which the sender knows.
    failed: bool,
}

/// Why a copy cannot begin.
#[derive(Debug, Error)]
pub(crate) enum BeginError {
    /// The path leads elsewhere.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A folder is needed, and there is something else.
    #[error("{0} is not a folder")]
    NotAFolder(Beneath),
    /// What is there is never replaced.
    #[error("{0} is a link, device, pipe or socket, which nothing replaces")]
    Special(Beneath),
    /// The file system says no.
    #[error("{0}: {1}")]
    Io(Beneath, String),
    /// Somebody has moved or replaced the folder that is served.
    #[error(
        "{0} is another folder than when this node began to serve it, or is gone: restart that node"
    )]
    Moved(String),
}

/// A message that no correct sender sends at this point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the sender's messages do not follow one another: {0}")]
pub(crate) struct OutOfPlace(&'static str);

impl Reception {
    /// Finds out where the copy goes, and makes the folders on the way that are missing.
    pub(crate) fn begin(root: Arc<Root>, many: bool, path: &[u8]) -> Result<Self, BeginError> {
        let wants_folder = many || path.ends_with(b"/");
        if !root.is_in_place() {
            return Err(BeginError::Moved(root.path().display().to_string()));
        }
        let path_bytes = path.len();
        let path = Beneath::parse(path)?;
        let io = |error: io::Error| BeginError::Io(path.clone(), words(&error));
        let target = match root.find(&path).map_err(io)? {
            Found::Folder => Target::Into(path),
            Found::Special => return Err(BeginError::Special(path)),
            Found::File if wants_folder => return Err(BeginError::NotAFolder(path)),
            Found::File => Target::Named(path),
            Found::Nothing => {
                let folder = match path.split_last() {
                    Some((parent, _)) if !wants_folder => parent,
                    _ => path.clone(),
                };
                root.make_folders(&folder).map_err(io)?;
                if wants_folder {
                    Target::Into(path)
                } else {
                    Target::Named(path)
                }
            }
        };
        Ok(Self {
            root,
            target,
            current: Current::Nothing,
            folders: Vec::new(),
            latest: None,
            complete: Vec::new(),
            made_in: Vec::new(),
            taken: charge(path_bytes),
            told: 0,
            ended: false,
        })
    }

    /// Whether the sender has said that it is all.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Deals with one message, and says when the window has moved far enough to tell.
    pub(crate) fn handle(
        &mut self,
        request: Request,
        replies: &mut Vec<Reply>,
    ) -> Result<(), OutOfPlace> {
        let cost = if request == Request::Ask {
            0
        } else {
            charge(request.body_bytes())
        };
        self.dispatch(request, replies)?;
        if self.complete.len() >= BATCH_ENTRIES {
            self.settle(replies);
        }
        self.taken += cost;
        if self.taken - self.told >= WINDOW_BYTES / 4 {
            self.told = self.taken;
            replies.push(Reply::Taken { charge: self.taken });
        }
        Ok(())
    }

    /// Brings what is complete to disk, and says so.
    pub(crate) fn settle(&mut self, replies: &mut Vec<Reply>) {
        if self.complete.is_empty() {
            return;
        }
        let made_in = std::mem::take(&mut self.made_in);
        for (entry, settled) in settle(std::mem::take(&mut self.complete), &made_in) {
            replies.push(match settled {
                Ok(()) => Reply::Done { entry },
                Err(error) => Reply::Failed {
                    entry,
                    reason: words(&error),
                },
            });
        }
    }

    fn dispatch(&mut self, request: Request, replies: &mut Vec<Reply>) -> Result<(), OutOfPlace> {
        match request {
            Request::Begin { .. } => return Err(OutOfPlace("it begins twice")),
            Request::Folder { entry, mode, path } => {
                self.expect_no_file()?;
                if self.folders.len() == MAX_DEPTH {
                    return Err(OutOfPlace("its folders are too deep"));
                }
                self.enter(entry, mode, &path, replies);
            }
            Request::Leave { entry } => {
                self.expect_no_file()?;
                self.leave(entry, replies)?;
            }
            Request::File {
                entry,
                mode,
                size,
                path,
            } => {
                self.expect_no_file()?;
                self.current = match self.create(entry, mode, size, &path) {
                    Ok(writing) => Current::Writing(Box::new(writing)),
                    Err(reason) => {
                        replies.push(Reply::Failed { entry, reason });
                        Current::Skipping(entry)
                    }
                };
            }
            Request::Chunk { entry, bytes } => self.write(entry, &bytes, replies)?,
            Request::Finish {
                entry,
                size,
                digest,
            } => {
                self.finish(entry, size, &digest, replies)?;
            }
            Request::Abandon { entry } => {
                self.expect_file(entry)?;
                self.current = Current::Nothing;
            }
            Request::End => {
                self.expect_no_file()?;
                if !self.folders.is_empty() {
                    return Err(OutOfPlace("it ends inside a folder"));
                }
                self.settle(replies);
                self.ended = true;
                replies.push(Reply::Closed);
            }
            Request::Ask => replies.push(Reply::Alive),
        }
        Ok(())
    }

    fn expect_no_file(&self) -> Result<(), OutOfPlace> {
        match self.current {
            Current::Nothing => Ok(()),
            _ => Err(OutOfPlace("a file is not complete")),
        }
    }

    fn expect_file(&self, entry: u64) -> Result<(), OutOfPlace> {
        match &self.current {
            Current::Writing(writing) if writing.entry == entry => Ok(()),
            Current::Skipping(skipping) if *skipping == entry => Ok(()),
            _ => Err(OutOfPlace("part of a file that was not begun")),
        }
    }

    /// Where an entry goes.
    fn place(&self, path: &Bytes) -> Result<Beneath, String> {
        let path = Beneath::parse(path).map_err(|error| error.to_string())?;
        if path.is_empty() {
            return Err("has no name".into());
        }
        Ok(match &self.target {
            Target::Into(folder) => folder.join(&path),
            Target::Named(name) => name.rename(&path),
        })
    }

    fn parent_of(&mut self, path: &Beneath) -> Result<(OwnedFd, OsString), String> {
        if self.folders.last().is_some_and(|folder| folder.failed) {
            return Err("the folder that it goes into could not be made".into());
        }
        let (parent, name) = path.split_last().ok_or("is the served folder itself")?;
        let folder = match self.latest.take() {
            Some((latest, folder)) if latest == parent => folder,
            _ => self.root.folder(&parent).map_err(|error| words(&error))?,
        };
        let copy = folder.try_clone().map_err(|error| words(&error))?;
        self.latest = Some((parent, folder));
        Ok((copy, name.to_owned()))
    }

    fn enter(&mut self, entry: u64, mode: u32, path: &Bytes, replies: &mut Vec<Reply>) {
        let made = self.place(path).and_then(|path| {
            let (parent, name) = self.parent_of(&path)?;
            if self.made_in.len() >= BATCH_ENTRIES {
                let synced = self.made_in.drain(..).try_for_each(fsync);
                synced.map_err(|error| words(&error.into()))?;
            }
            let (_, made) = make_folder(&parent, &name, mode).map_err(|error| words(&error))?;
            Ok((path, made.then_some(parent)))
        });
        self.folders.push(match made {
            Ok((path, made_in)) => {
                let mode = made_in.is_some().then_some(mode);
                self.made_in.extend(made_in);
                OpenFolder {
                    entry,
                    path,
                    mode,
                    failed: false,
                }
            }
            Err(reason) => {
                replies.push(Reply::Failed { entry, reason });
                OpenFolder {
                    entry,
                    path: Beneath::default(),
                    mode: None,
                    failed: true,
                }
            }
        });
    }

    fn leave(&mut self, entry: u64, replies: &mut Vec<Reply>) -> Result<(), OutOfPlace> {
        let folder = self
            .folders
            .pop_if(|folder| folder.entry == entry)
            .ok_or(OutOfPlace("it leaves a folder that it is not in"))?;
        if folder.failed {
            return Ok(());
        }
        let opened = self.parent_of(&folder.path).and_then(|(parent, name)| {
            let opened = open_folder(&parent, &name);
            Ok((opened.map_err(|error| words(&error))?, parent))
        });
        match opened {
            Ok((opened, parent)) => self.complete.push(Complete::Folder {
                entry,
                folder: opened,
                parent,
                mode: folder.mode,
            }),
            Err(reason) => replies.push(Reply::Failed { entry, reason }),
        }
        Ok(())
    }

    fn create(
        &mut self,
        entry: u64,
        mode: u32,
        size: u64,
        path: &Bytes,
    ) -> Result<Writing, String> {
        let path = self.place(path)?;
        let (parent, name) = self.parent_of(&path)?;
        ensure_replaceable(&parent, &name).map_err(|error| words(&error))?;
        let create = || {
            let temporary = self.root.unfinished.create(parent, &name)?;
            temporary.reserve(size)?;
            Ok(temporary)
        };
        let temporary = create().map_err(|error: io::Error| words(&error))?;
        Ok(Writing {
            entry,
            name,
            mode,
            announced: size,
            size: 0,
            hash: Sha256::new(),
            temporary,
        })
    }

    fn write(
        &mut self,
        entry: u64,
        bytes: &[u8],
        replies: &mut Vec<Reply>,
    ) -> Result<(), OutOfPlace> {
        self.expect_file(entry)?;
        let Current::Writing(writing) = &mut self.current else {
            return Ok(());
        };
        match writing.temporary.write(bytes) {
            Ok(()) => {
                writing.hash.update(bytes);
                writing.size = writing.size.saturating_add(length(bytes));
            }
            Err(error) => {
                replies.push(Reply::Failed {
                    entry,
                    reason: words(&error),
                });
                self.current = Current::Skipping(entry);
            }
        }
        Ok(())
    }

    fn finish(
        &mut self,
        entry: u64,
        size: u64,
        digest: &Digest,
        replies: &mut Vec<Reply>,
    ) -> Result<(), OutOfPlace> {
        self.expect_file(entry)?;
        let current = std::mem::replace(&mut self.current, Current::Nothing);
        let Current::Writing(writing) = current else {
            return Ok(());
        };
        let Writing {
            name,
            mode,
            announced,
            size: arrived,
            hash,
            temporary,
            ..
        } = *writing;
        if arrived != announced || arrived != size {
            let whole = if arrived == size { announced } else { size };
            let reason = format!("{arrived} of {} arrived", counted(whole, "byte"));
            replies.push(Reply::Failed { entry, reason });
        } else if hash.finalize()[..] != digest[..] {
            replies.push(Reply::Failed {
                entry,
                reason: "arrived damaged: wrong digest".into(),
            });
        } else {
            self.complete.push(Complete::File {
                entry,
                temporary,
                name,
                mode,
            });
        }
        Ok(())
    }
}

/// An error of the file system, as it is told to the person who copies.
pub(crate) fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull => "the disk is full".into(),
        io::ErrorKind::QuotaExceeded => "the disk quota is used up".into(),
        io::ErrorKind::NotFound => "the folder that it goes into is not there".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".into(),
        _ => error.to_string(),
    }
}
