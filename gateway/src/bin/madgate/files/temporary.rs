//! Files under a name of their own until they are complete.
//!
//! The name is `.NAME.madgate-` and 16 hexadecimal digits, beside the final one. Who writes
//! such a file holds a lock on it, so that a [`sweep`](super::sweep::sweep) can tell the remains of
//! a killed server from a file that somebody is writing.

use std::collections::hash_map::RandomState;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::{
    AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock, fstat, openat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::root::{Found, find_in, set_mode};

/// Comes before the digits.
const MARK: &[u8] = b".madgate-";
/// How many hexadecimal digits end the name.
const DIGITS: usize = 16;
/// What is left of `NAME_MAX` for the final name.
const NAME_ROOM: usize = 255 - 1 - MARK.len() - DIGITS;
/// How often another name is tried when one is taken.
const ATTEMPTS: usize = 16;

/// Whether a name is one that unfinished files have.
pub(crate) fn is_temporary(name: &[u8]) -> bool {
    let Some(split) = name.len().checked_sub(DIGITS) else {
        return false;
    };
    let (front, digits) = name.split_at(split);
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.starts_with(b".") && front.ends_with(MARK) && digits.iter().all(is_digit)
}

fn temporary_name(name: &OsStr) -> OsString {
    // Each `RandomState` has other keys; enough for a name that is tried again when taken.
    let random = RandomState::new().build_hasher().finish();
    let kept = &name.as_bytes()[..name.len().min(NAME_ROOM)];
    let mut temporary = vec![b'.'];
    temporary.extend_from_slice(kept);
    temporary.extend_from_slice(MARK);
    temporary.extend_from_slice(format!("{random:016x}").as_bytes());
    OsString::from_vec(temporary)
}

/// The files of this process that are not complete: who writes one may be waiting for what never
/// comes when the process is to end.
#[derive(Debug, Default)]
pub(crate) struct Unfinished(Mutex<Files>);

#[derive(Debug, Default)]
struct Files {
    all: Vec<Weak<Named>>,
    /// There are to be no more.
    are_removed: bool,
}

impl Unfinished {
    /// Makes a file in `folder` that will be called `name`.
    pub(crate) fn create(&self, folder: OwnedFd, name: &OsStr) -> io::Result<Temporary> {
        let temporary = Temporary::create(folder, name)?;
        let mut files = self.files();
        if files.are_removed {
            return Err(io::Error::other("the server is being ended"));
        }
        if files.all.len() == files.all.capacity() {
            files.all.retain(|file| file.strong_count() > 0);
        }
        files.all.push(Arc::downgrade(&temporary.named));
        drop(files);
        Ok(temporary)
    }

    /// Removes them all, and makes no more; who writes one is told when it is complete.
    pub(crate) fn remove_all(&self) {
        let all = {
            let mut files = self.files();
            files.are_removed = true;
            std::mem::take(&mut files.all)
        };
        for file in all.iter().filter_map(Weak::upgrade) {
            file.remove_or_warn();
        }
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that is not complete; dropped without [`settle`](Self::settle), it is removed.
#[derive(Debug)]
pub(crate) struct Temporary {
    named: Arc<Named>,
    settled: bool,
}

/// A file, and what it is called in which folder.
#[derive(Debug)]
struct Named {
    folder: OwnedFd,
    name: OsString,
    file: File,
}

impl Temporary {
    fn create(folder: OwnedFd, name: &OsStr) -> io::Result<Self> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..ATTEMPTS {
            let name = temporary_name(name);
            // Before there is a file that somebody has to remove.
            let held = folder.try_clone()?;
            let file = match openat(&folder, &name, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => file,
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(error.into()),
            };
            let file: File = file.into();
            let temporary = Self {
                named: Arc::new(Named {
                    folder: held,
                    name,
                    file,
                }),
                settled: false,
            };
            // A sweep that came between the two has locked, and perhaps removed it. Where files
            // cannot be locked, nobody sweeps.
            let file = &temporary.named.file;
            let locked = flock(file, FlockOperation::NonBlockingLockExclusive);
            let is_taken = locked == Err(Errno::WOULDBLOCK);
            if is_taken || fstat(file)?.st_nlink == 0 {
                continue;
            }
            return Ok(temporary);
        }
        Err(Errno::EXIST.into())
    }

    /// Sets room aside for a file of `size` bytes, so that a full disk shows at once.
    pub(crate) fn reserve(&self, size: u64) -> io::Result<()> {
        if size == 0 {
            return Ok(());
        }
        match fallocate(&self.named.file, FallocateFlags::KEEP_SIZE, 0, size) {
            Err(error @ (Errno::NOSPC | Errno::FBIG | Errno::DQUOT)) => Err(error.into()),
            // Not every file system can.
            _ => Ok(()),
        }
    }

    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        (&self.named.file).write_all(bytes)
    }

    /// Sets the permission bits, and brings everything to disk.
    pub(crate) fn sync(&self, mode: u32) -> io::Result<()> {
        // Gives back what lies beyond the end: a file system may set more room aside than was asked
        // for. (A file that became shorter than was announced has failed before.)
        let file = &self.named.file;
        let length = file.metadata()?.len();
        file.set_len(length)?;
        set_mode(file, mode)?;
        file.sync_all()
    }

    /// Gives the file its final name, replacing a file that has it and nothing else, and returns
    /// the folder, which is not synced yet.
    pub(crate) fn settle(mut self, name: &OsStr) -> io::Result<OwnedFd> {
        let Named {
            folder: beside,
            name: temporary,
            ..
        } = &*self.named;
        let folder = beside.try_clone()?;
        // Long ago, when the copy of the file began, both were looked at.
        if !self.named.has_its_name()? {
            return Err(io::Error::other(
                "somebody removed or replaced its unfinished file at the destination; copy it again",
            ));
        }
        ensure_replaceable(&folder, name)?;
        renameat(beside, temporary, beside, name)?;
        self.settled = true;
        Ok(folder)
    }
}

impl Named {
    /// Whether its name still leads to the file that is written.
    fn has_its_name(&self) -> io::Result<bool> {
        let written = fstat(&self.file)?;
        match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => Ok((named.st_dev, named.st_ino) == (written.st_dev, written.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the file, and nothing that somebody else has given its name to.
    fn remove(&self) -> io::Result<()> {
        if self.has_its_name()? {
            unlinkat(&self.folder, &self.name, AtFlags::empty())?;
        }
        Ok(())
    }

    fn remove_or_warn(&self) {
        if let Err(error) = self.remove() {
            tracing::warn!(name = %self.name.display(), %error, "an unfinished file stays behind");
        }
    }
}

/// Makes sure that a file may be called `name` in `folder`: nothing has this name, or a file.
pub(crate) fn ensure_replaceable(folder: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let in_the_way = match find_in(folder, name)? {
        Found::Nothing | Found::File => return Ok(()),
        Found::Folder => "a folder has this name at the destination",
        Found::Special => "a link, device, pipe or socket has this name at the destination",
    };
    Err(io::Error::other(in_the_way))
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.settled {
            self.named.remove_or_warn();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn folder() -> (tempfile::TempDir, OwnedFd) {
        let place = tempfile::tempdir().unwrap();
        let folder = File::open(place.path()).unwrap().into();
        (place, folder)
    }

    fn names(place: &Path) -> Vec<OsString> {
        let entries = std::fs::read_dir(place).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn names_tell_what_is_unfinished() {
        for name in ["x", "ä", &"long".repeat(63)] {
            let temporary = temporary_name(OsStr::new(name));
            assert!(is_temporary(temporary.as_bytes()), "{temporary:?}");
            assert!(temporary.len() <= 255);
        }
        let others = [
            "x",
            ".x.madgate-",
            ".x.madgate-0123456789abcdeX",
            "x.madgate-0123456789abcdef",
        ];
        for name in others {
            assert!(!is_temporary(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_dropped_file_is_gone_and_a_settled_one_stays() {
        let (place, folder) = folder();
        let mut file = Temporary::create(folder.try_clone().unwrap(), OsStr::new("x")).unwrap();
        file.write(b"half").unwrap();
        assert_eq!(names(place.path()).len(), 1);
        drop(file);
        assert!(names(place.path()).is_empty());

        let mut file = Temporary::create(folder, OsStr::new("x")).unwrap();
        file.reserve(1 << 20).unwrap();
        file.write(b"whole").unwrap();
        file.sync(0o4640).unwrap();
        file.settle(OsStr::new("x")).unwrap();
        assert_eq!(names(place.path()), ["x"]);
        let path = place.path().join("x");
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
            0o640
        );
    }

    /// A file that is written, but has not its final name.
    fn written(folder: &OwnedFd) -> Temporary {
        let mut file = Temporary::create(folder.try_clone().unwrap(), OsStr::new("x")).unwrap();
        file.write(b"whole").unwrap();
        file.sync(0o600).unwrap();
        file
    }

    #[test]
    fn what_has_taken_the_final_name_is_not_replaced() {
        let (place, folder) = folder();
        let path = place.path().join("x");
        let file = written(&folder);
        symlink("victim", &path).unwrap();
        let error = file.settle(OsStr::new("x")).unwrap_err();
        assert!(error.to_string().contains("a link"), "{error}");
        assert!(path.is_symlink());
        std::fs::remove_file(&path).unwrap();

        let file = written(&folder);
        rustix::fs::mkfifoat(&folder, "x", Mode::RUSR).unwrap();
        file.settle(OsStr::new("x")).unwrap_err();
        assert_eq!(find_in(&folder, OsStr::new("x")).unwrap(), Found::Special);
        std::fs::remove_file(&path).unwrap();

        let file = written(&folder);
        std::fs::create_dir(&path).unwrap();
        file.settle(OsStr::new("x")).unwrap_err();
        assert_eq!(names(place.path()), ["x"]);
        assert!(path.is_dir());
    }

    #[test]
    fn only_what_was_written_gets_the_final_name() {
        let (place, folder) = folder();
        let said = |file: Temporary| file.settle(OsStr::new("x")).unwrap_err().to_string();
        let file = written(&folder);
        std::fs::remove_file(place.path().join(&file.named.name)).unwrap();
        assert!(said(file).contains("its unfinished file"));
        assert!(names(place.path()).is_empty());

        let file = written(&folder);
        let name = file.named.name.clone();
        std::fs::write(place.path().join("other"), b"other").unwrap();
        std::fs::rename(place.path().join("other"), place.path().join(&name)).unwrap();
        assert!(said(file).contains("its unfinished file"));
        // It is somebody else's.
        assert_eq!(names(place.path()), [name]);
    }

    #[test]
    fn what_is_unfinished_is_removed_while_somebody_writes_it() {
        let (place, folder) = folder();
        let all = Unfinished::default();
        let create = |name| {
            let folder = folder.try_clone().unwrap();
            all.create(folder, OsStr::new(name)).unwrap()
        };
        for _ in 0..100 {
            drop(create("gone"));
        }
        let known = all.files().all.len();
        assert!(known < 100, "those that are gone are forgotten");
        let settled = create("settled");
        settled.settle(OsStr::new("settled")).unwrap();
        let mut file = create("x");
        assert_eq!(names(place.path()).len(), 2);
        all.remove_all();
        assert_eq!(names(place.path()), ["settled"]);
        let late = all.create(folder.try_clone().unwrap(), OsStr::new("late"));
        assert!(late.is_err());
        file.write(b"more").unwrap();
        let error = file.settle(OsStr::new("x")).unwrap_err();
        assert!(error.to_string().contains("its unfinished file"), "{error}");
        assert_eq!(names(place.path()), ["settled"]);
    }
}
