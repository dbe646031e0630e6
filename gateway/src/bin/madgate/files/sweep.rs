//! What a killed server has left: files that were not complete, anywhere in the served folder.
//!
//! Every folder is opened by its name in the one before, as in a copy: a path may be longer than
//! the system takes at once.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, flock, open, openat, unlinkat,
};
use rustix::io::Errno;

use super::root::{Found, find_in, open_folder};
use super::temporary::is_temporary;

/// A folder that is being swept.
struct Level {
    folder: OwnedFd,
    /// Folders in it that are still to be swept.
    inner: Vec<OsString>,
}

/// Removes unfinished files that nobody is writing from a folder and all folders in it, and
/// returns how many. A folder that may not be read is passed over.
pub(crate) fn sweep(folder: &Path) -> usize {
    let mut removed = 0;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = open(folder, flags, Mode::empty());
    let mut levels: Vec<Level> = Vec::new();
    levels.extend(top.ok().map(|top| Level::sweep(top, &mut removed)));
    while let Some(level) = levels.last_mut() {
        match level.inner.pop() {
            Some(name) => match open_folder(&level.folder, &name) {
                Ok(inner) => levels.push(Level::sweep(inner, &mut removed)),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                Err(error) => {
                    tracing::warn!(name = %name.display(), %error, "unfinished files are not looked for in this folder");
                }
            },
            None => drop(levels.pop()),
        }
    }
    removed
}

impl Level {
    /// Removes what is unfinished in a folder, and finds the folders in it.
    fn sweep(folder: OwnedFd, removed: &mut usize) -> Self {
        let mut inner = Vec::new();
        let entries = Dir::read_from(&folder).into_iter().flatten();
        for entry in entries.map_while(Result::ok) {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            // Not every file system says what it is.
            let found = match entry.file_type() {
                FileType::Directory => Found::Folder,
                FileType::RegularFile => Found::File,
                FileType::Unknown => find_in(&folder, name).unwrap_or(Found::Nothing),
                _ => Found::Special,
            };
            match found {
                Found::Folder => inner.push(name.to_owned()),
                Found::File if is_temporary(name.as_bytes()) => {
                    *removed += usize::from(remove(&folder, name));
                }
                Found::File | Found::Special | Found::Nothing => {}
            }
        }
        Self { folder, inner }
    }
}

/// Removes a file, unless somebody is writing it. Whether it did.
fn remove(folder: &OwnedFd, name: &OsStr) -> bool {
    let _locked = match lock(folder, name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
        Err(error) => {
            tracing::warn!(name = %name.display(), %error, "an unfinished file may be in use, and stays: it cannot be locked");
            return false;
        }
    };
    let removed = unlinkat(folder, name, AtFlags::empty());
    if let Err(error) = removed {
        tracing::warn!(name = %name.display(), %error, "cannot remove an unfinished file");
    }
    removed.is_ok()
}

fn lock(folder: &OwnedFd, name: &OsStr) -> io::Result<File> {
    let open = |access| {
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(folder, name, flags, Mode::empty())
    };
    // Over NFS a lock needs a file that is open for writing.
    let file = open(OFlags::WRONLY).or_else(|_: Errno| open(OFlags::RDONLY))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::mkdirat;

    use super::super::temporary::Unfinished;
    use super::*;

    const STALE: &str = ".stale.madgate-0123456789abcdef";

    fn names(place: &Path) -> Vec<OsString> {
        let entries = fs::read_dir(place).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_sweep_takes_what_nobody_writes() {
        let place = tempfile::tempdir().unwrap();
        let folder = File::open(place.path()).unwrap().into();
        let live = Unfinished::default();
        let live = live.create(folder, OsStr::new("live")).unwrap();
        let inner = place.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join(STALE), b"half").unwrap();
        fs::write(inner.join("kept"), b"whole").unwrap();
        assert_eq!(sweep(place.path()), 1);
        assert_eq!(names(&inner), ["kept"]);
        assert_eq!(names(place.path()).len(), 2);
        drop(live);
        assert_eq!(names(place.path()), ["inner"]);
        assert_eq!(sweep(&place.path().join("absent")), 0);
    }

    #[test]
    fn a_sweep_leaves_the_folder_by_no_link() {
        let (place, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(other.path().join(STALE), b"half").unwrap();
        std::os::unix::fs::symlink(other.path(), place.path().join("link")).unwrap();
        std::os::unix::fs::symlink(other.path().join(STALE), place.path().join(STALE)).unwrap();
        assert_eq!(sweep(place.path()), 0);
        assert_eq!(names(other.path()), [STALE]);
    }

    #[test]
    fn a_path_may_be_longer_than_the_system_takes() {
        let place = tempfile::tempdir().unwrap();
        let name = "f".repeat(200);
        let mut folder: OwnedFd = File::open(place.path()).unwrap().into();
        for _ in 0..30 {
            mkdirat(&folder, &name, Mode::RWXU).unwrap();
            folder = open_folder(&folder, OsStr::new(&name)).unwrap();
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        drop(openat(&folder, STALE, flags, Mode::RUSR).unwrap());
        assert_eq!(sweep(place.path()), 1);
        assert_eq!(find_in(&folder, OsStr::new(STALE)).unwrap(), Found::Nothing);
    }
}
