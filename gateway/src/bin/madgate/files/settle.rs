//! Brings complete files and folders to disk, several at a time: the syncs of a batch run in
//! parallel and share what the file system writes once for all of them.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::thread;

use rustix::fs::{fstat, fsync};

use super::root::set_mode;
use super::temporary::Temporary;

/// Most entries of one batch; each holds up to three descriptors.
pub(crate) const BATCH_ENTRIES: usize = 16;

/// Most threads that sync at the same time for one copy.
const SYNC_THREADS: usize = 8;

/// An entry that is complete but not on disk.
#[derive(Debug)]
pub(crate) enum Complete {
    /// A file, to be called `name` in the folder of its temporary.
    File {
        /// Its number.
        entry: u64,
        /// What holds its contents.
        temporary: Temporary,
        /// Its final name.
        name: OsString,
        /// Its permission bits.
        mode: u32,
    },
    /// A folder, of which the contents are complete.
    Folder {
        /// Its number.
        entry: u64,
        /// The folder.
        folder: OwnedFd,
        /// The folder that it is in.
        parent: OwnedFd,
        /// Its permission bits, where this copy has made it.
        mode: Option<u32>,
    },
}

impl Complete {
    fn entry(&self) -> u64 {
        match self {
            Self::File { entry, .. } | Self::Folder { entry, .. } => *entry,
        }
    }

    /// What can be done for all entries at once: contents, not names.
    fn sync(&self) -> io::Result<()> {
        match self {
            Self::File {
                temporary, mode, ..
            } => temporary.sync(*mode),
            Self::Folder { .. } => Ok(()),
        }
    }

    /// What is done in order; returns the folder that holds the name.
    fn put(self) -> io::Result<OwnedFd> {
        match self {
            Self::File {
                temporary, name, ..
            } => temporary.settle(&name),
            Self::Folder {
                folder,
                parent,
                mode,
                ..
            } => {
                if let Some(mode) = mode {
                    set_mode(&folder, mode)?;
                }
                fsync(&folder)?;
                Ok(parent)
            }
        }
    }
}

/// Brings all of a batch to disk, in order; says of each whether it is there. Before them go the
/// names of folders that have been made for them, in `made_in`.
pub(crate) fn settle(batch: Vec<Complete>, made_in: &[OwnedFd]) -> Vec<(u64, io::Result<()>)> {
    let mut folders = Folders::default();
    if let Err(error) = made_in
        .iter()
        .try_for_each(|folder| folders.sync_once(folder))
    {
        let failed = |complete: &Complete| {
            let error = io::Error::new(error.kind(), error.to_string());
            (complete.entry(), Err(error))
        };
        return batch.iter().map(failed).collect();
    }
    let synced = sync(&batch);
    let mut folders = Folders::default();
    let put: Vec<(u64, io::Result<OwnedFd>)> = batch
        .into_iter()
        .zip(synced)
        .map(|(complete, synced)| {
            let entry = complete.entry();
            (entry, synced.and_then(|()| complete.put()))
        })
        .collect();
    put.into_iter()
        .map(|(entry, put)| (entry, put.and_then(|folder| folders.sync_once(&folder))))
        .collect()
}

fn sync(batch: &[Complete]) -> Vec<io::Result<()>> {
    let files = batch
        .iter()
        .filter(|complete| matches!(complete, Complete::File { .. }));
    if files.count() < 2 {
        return batch.iter().map(Complete::sync).collect();
    }
    let share = batch.len().div_ceil(SYNC_THREADS);
    thread::scope(|scope| {
        let sync_all = |share: &[Complete]| share.iter().map(Complete::sync).collect::<Vec<_>>();
        let begin = |share| {
            let thread = thread::Builder::new().name("madgate-sync".to_owned());
            thread.spawn_scoped(scope, move || sync_all(share))
        };
        let threads: Vec<_> = batch.chunks(share).map(begin).collect();
        threads
            .into_iter()
            .zip(batch.chunks(share))
            .flat_map(|(thread, share)| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|_| {
                    let failed = || Err(io::Error::other("a thread that syncs has failed"));
                    share.iter().map(|_| failed()).collect()
                }),
                // The system has no more threads to give.
                Err(_) => sync_all(share),
            })
            .collect()
    })
}

/// Folders of a batch that are on disk already; mostly one, so it is searched in a row.
#[derive(Default)]
struct Folders {
    synced: Vec<(u64, u64)>,
}

impl Folders {
    fn sync_once(&mut self, folder: &OwnedFd) -> io::Result<()> {
        let stat = fstat(folder)?;
        let identity = (stat.st_dev, stat.st_ino);
        if !self.synced.contains(&identity) {
            fsync(folder)?;
            self.synced.push(identity);
        }
        Ok(())
    }
}
