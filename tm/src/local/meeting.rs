//! How the nodes of one host find each other: Unix sockets in a folder.

use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::SOCKET_PATH_BYTES_MAX;
use super::stranger::LocalStranger;
use crate::lane::{Listener, Stranger, Upgrade};
use crate::protocol::Endpoint;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 1024;
/// Who finds that another node of the folder is taking its place tries again so often,
const LOCK_ATTEMPTS: u32 = 200;
/// at this distance.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Where the node `name` listens.
pub(crate) fn socket_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.sock"))
}

/// Takes the place of `name` in `directory`, which is made when it is missing. `endpoint` is
/// what others call it.
pub(crate) fn listen<T: Upgrade>(
    directory: &Path,
    name: &str,
    endpoint: Endpoint,
    terms: T,
) -> io::Result<Box<dyn Listener>> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let path = socket_path(directory, name);
    let address = address_of(&path)?;
    let lock = lock(directory)?;
    if let Ok(there) = path.symlink_metadata() {
        if !there.file_type().is_socket() {
            let what = format!(
                "{} is no socket: move it away, or give the network another directory",
                path.display()
            );
            return Err(io::Error::new(ErrorKind::AlreadyExists, what));
        }
        if is_listened_on(&address)? {
            let what = format!("another process listens on {}", path.display());
            return Err(io::Error::new(ErrorKind::AddrInUse, what));
        }
        // Left by a process that did not end in order.
        std::fs::remove_file(&path)?;
    }
    let socket = socket()?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    let identity = identity_of(&path)?;
    drop(lock);
    Ok(Box::new(LocalListener {
        socket,
        path,
        identity,
        endpoint,
        terms,
    }))
}

/// Connects to the node `name` in `directory`.
pub(crate) fn connect<T: Upgrade>(
    directory: &Path,
    name: &str,
    terms: T,
) -> io::Result<Box<dyn Stranger>> {
    let address = address_of(&socket_path(directory, name))?;
    let socket = socket()?;
    // On one host this is done at once, or fails.
    rustix::net::connect(&socket, &address)?;
    Ok(Box::new(LocalStranger::new(socket, true, terms)))
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

fn address_of(path: &Path) -> io::Result<SocketAddrUnix> {
    let length = path.as_os_str().len();
    if length > SOCKET_PATH_BYTES_MAX {
        let what = format!(
            "{} is too long for a socket: {length} bytes",
            path.display()
        );
        return Err(io::Error::new(ErrorKind::InvalidInput, what));
    }
    Ok(SocketAddrUnix::new(path)?)
}

/// Keeps other nodes from taking a place in the folder until the result is dropped.
fn lock(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
    let folder = rustix::fs::open(directory, flags, Mode::empty())?;
    for _ in 0..LOCK_ATTEMPTS {
        match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(folder),
            Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(LOCK_PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
    let what = format!("another process keeps {} locked", directory.display());
    Err(io::Error::new(ErrorKind::ResourceBusy, what))
}

/// Whether there is a process behind a socket's file.
fn is_listened_on(address: &SocketAddrUnix) -> io::Result<bool> {
    match rustix::net::connect(&socket()?, address) {
        // A full backlog is one that somebody has.
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What tells a file from a later one of the same name.
fn identity_of(path: &Path) -> io::Result<(u64, u64)> {
    let file = path.symlink_metadata()?;
    Ok((file.dev(), file.ino()))
}

#[derive(Debug)]
struct LocalListener<T> {
    socket: OwnedFd,
    path: PathBuf,
    identity: (u64, u64),
    endpoint: Endpoint,
    terms: T,
}

impl<T> AsFd for LocalListener<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<T: Upgrade> Listener for LocalListener<T> {
    fn try_accept(&mut self) -> io::Result<Option<Box<dyn Stranger>>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            match rustix::net::accept_with(&self.socket, flags) {
                Ok(socket) => {
                    let stranger = LocalStranger::new(socket, false, self.terms.clone());
                    return Ok(Some(Box::new(stranger)));
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn local_endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    fn can_be_lost(&self) -> bool {
        true
    }

    fn is_lost(&self) -> bool {
        !self.is_in_place()
    }
}

impl<T> LocalListener<T> {
    /// Whether the file at its path is its own.
    fn is_in_place(&self) -> bool {
        identity_of(&self.path).is_ok_and(|identity| identity == self.identity)
    }
}

impl<T> Drop for LocalListener<T> {
    fn drop(&mut self) {
        // Only its own file; a failure leaves a stale one, which the next node replaces.
        if self.is_in_place() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::protocol::Tuning;

    fn listen(directory: &Path, name: &str) -> io::Result<Box<dyn Listener>> {
        let endpoint = Endpoint::Shm {
            directory: directory.to_owned(),
            name: name.to_owned(),
        };
        crate::listen(&endpoint, &Tuning::default())
    }

    fn connect(directory: &Path, name: &str) -> io::Result<Box<dyn Stranger>> {
        let endpoint = Endpoint::Shm {
            directory: directory.to_owned(),
            name: name.to_owned(),
        };
        crate::connect(&endpoint, &Tuning::default())
    }

    #[test]
    fn a_place_is_taken_once_and_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("net");
        let first = listen(&directory, "gw").unwrap();
        assert_eq!(directory.symlink_metadata().unwrap().mode() & 0o777, 0o700);
        let second = listen(&directory, "gw").unwrap_err();
        assert_eq!(second.kind(), ErrorKind::AddrInUse);
        let _other = listen(&directory, "b0").unwrap();
        drop(first);
        assert!(!socket_path(&directory, "gw").exists());
        let _again = listen(&directory, "gw").unwrap();
    }

    #[test]
    fn a_stale_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = socket_path(folder.path(), "gw");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        assert!(connect(folder.path(), "gw").is_err());
        let _listener = listen(folder.path(), "gw").unwrap();
        connect(folder.path(), "gw").unwrap();
    }

    #[test]
    fn what_is_no_socket_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = socket_path(folder.path(), "gw");
        std::fs::write(&path, "mine").unwrap();
        let refused = listen(folder.path(), "gw").unwrap_err();
        assert!(refused.to_string().contains("is no socket"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }

    #[test]
    fn a_file_of_somebody_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = socket_path(folder.path(), "gw");
        let listener = listen(folder.path(), "gw").unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "mine").unwrap();
        drop(listener);
        assert!(path.exists());
    }
}
