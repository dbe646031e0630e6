//! A folder that nothing leaves: every name is opened relative to the folder that it is in,
//! and links are not followed.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawMode, Stat, fchmod, fstat, fsync, mkdirat, open, openat,
    stat, statat,
};
use rustix::io::Errno;

use super::path::Beneath;
use super::temporary::Unfinished;

/// Permission bits that a copy keeps: not set-user-id, set-group-id and sticky, which a file
/// from elsewhere must not bring along.
pub(crate) const MODE_MASK: u32 = 0o777;

/// The owner's bits, which a folder has while it is filled.
const FILLING: u32 = 0o700;

const FOLDER_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The served folder.
#[derive(Debug)]
pub(crate) struct Root {
    folder: OwnedFd,
    path: PathBuf,
    /// What is being received in it.
    pub(crate) unfinished: Unfinished,
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Nothing,
    /// A folder.
    Folder,
    /// A file.
    File,
    /// A link, device, pipe or socket.
    Special,
}

impl Root {
    /// The folder at `path`; the only path of which links are followed.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            folder: open(path, flags, Mode::empty())?,
            path: path.to_owned(),
            unfinished: Unfinished::default(),
        })
    }

    /// Where it was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is still what is at its path: others look there for what is received.
    pub(crate) fn is_in_place(&self) -> bool {
        let identity = |stat: Stat| (stat.st_dev, stat.st_ino);
        let opened = fstat(&self.folder).map(identity);
        opened.is_ok() && stat(&self.path).map(identity) == opened
    }

    /// Opens the folder at `path`.
    pub(crate) fn folder(&self, path: &Beneath) -> io::Result<OwnedFd> {
        let mut folder = self.folder.try_clone()?;
        for name in path.names() {
            folder = open_folder(&folder, name)?;
        }
        Ok(folder)
    }

    /// Opens the folder at `path`, and makes what is missing of it.
    pub(crate) fn make_folders(&self, path: &Beneath) -> io::Result<OwnedFd> {
        let mut folder = self.folder.try_clone()?;
        for name in path.names() {
            folder = match open_folder(&folder, name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match mkdirat(&folder, name, Mode::from_raw_mode(MODE_MASK)) {
                        Ok(()) => fsync(&folder)?,
                        // Another copy has just made it.
                        Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    open_folder(&folder, name)?
                }
                opened => opened?,
            };
        }
        Ok(folder)
    }

    /// What is at `path`.
    pub(crate) fn find(&self, path: &Beneath) -> io::Result<Found> {
        let Some((parent, name)) = path.split_last() else {
            return Ok(Found::Folder);
        };
        match self.folder(&parent) {
            Ok(folder) => find_in(&folder, name),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
            Err(error) => Err(error),
        }
    }
}

/// Opens a folder by its name in `parent`.
pub(crate) fn open_folder(parent: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    openat(parent, name, FOLDER_FLAGS, Mode::empty()).map_err(|error| match error {
        // A link looks like either, depending on what it points to.
        Errno::LOOP | Errno::NOTDIR => match find_in(parent, name) {
            Ok(_) => io::Error::new(
                io::ErrorKind::NotADirectory,
                format!(
                    "{:?} is a link or a file, not a folder",
                    name.to_string_lossy()
                ),
            ),
            Err(error) => error,
        },
        error => error.into(),
    })
}

/// What is called `name` in `parent`.
pub(crate) fn find_in(parent: &OwnedFd, name: &OsStr) -> io::Result<Found> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Found::Folder,
            FileType::RegularFile => Found::File,
            _ => Found::Special,
        }),
        Err(Errno::NOENT) => Ok(Found::Nothing),
        Err(error) => Err(error.into()),
    }
}

/// Makes a folder that can be filled, whatever its mode will be, or opens the one that is
/// there; says whether it was made.
pub(crate) fn make_folder(
    parent: &OwnedFd,
    name: &OsStr,
    mode: u32,
) -> io::Result<(OwnedFd, bool)> {
    let made = match mkdirat(parent, name, bits(mode | FILLING)) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(error.into()),
    };
    let folder = open_folder(parent, name)?;
    if made {
        // Whatever the umask: a copy that breaks off leaves it so, and the next one finds it there. What
        // is received in it has its group, if the folder around it says so.
        let inherited = Mode::from_raw_mode(fstat(&folder)?.st_mode) & Mode::SGID;
        fchmod(&folder, bits(mode | FILLING) | inherited)?;
    }
    Ok((folder, made))
}

/// Sets the permission bits of a file or folder, regardless of the umask.
pub(crate) fn set_mode(file: impl AsFd, mode: u32) -> io::Result<()> {
    Ok(fchmod(file, bits(mode))?)
}

fn bits(mode: u32) -> Mode {
    Mode::from_raw_mode(RawMode::from(mode & MODE_MASK))
}
