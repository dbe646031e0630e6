//! Who is at the other end of a Unix socket, as the kernel says. Unsafe island: it asks the kernel
//! itself.
//!
//! The process is `None` where it has no number here: it is in another namespace of processes, as in
//! another container. Types that take such a number for granted cannot hold what the kernel says then.

#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Who called `connect` or `listen` there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// The number of the process, if it has one here.
    pub(crate) process: Option<NonZeroU32>,
    /// Its effective user.
    pub(crate) user: u32,
}

impl Credentials {
    /// Of who is at the other end of `socket`.
    pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut said = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let most = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
        let mut length = most;
        // SAFETY: the kernel writes at most `length` bytes to `said`, which has as many, all of whose
        // fields are integers that may have any value; and a number to `length`. Both live for the call.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut said).cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        if length != most {
            return Err(io::Error::other("the kernel says less than who it is"));
        }
        Ok(Self {
            process: u32::try_from(said.pid).ok().and_then(NonZeroU32::new),
            user: said.uid,
        })
    }
}

/// Whether there may be a lane with who is at the other end of `socket`: another user could stand
/// between two nodes, in a folder that is not theirs, pass on how they prove who they are, and give
/// each of them memory of its own.
///
/// The error is what is wrong with it.
pub(crate) fn check_user(socket: BorrowedFd<'_>) -> Result<(), String> {
    let peer = Credentials::of(socket)
        .map_err(|error| format!("the system does not say who it is: {error}"))?;
    check_same(peer.user, rustix::process::geteuid().as_raw())
}

fn check_same(user: u32, ours: u32) -> Result<(), String> {
    if user == ours {
        return Ok(());
    }
    Err(format!(
        "it runs as user {user}, and this node as user {ours}: nodes that share memory have to run \
         as the same user"
    ))
}

#[cfg(test)]
#[cfg(not(loom))]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_pair_of_sockets_is_of_this_process() {
        let (near, _far) = UnixStream::pair().unwrap();
        let own = Credentials {
            process: NonZeroU32::new(std::process::id()),
            user: rustix::process::geteuid().as_raw(),
        };
        assert_eq!(Credentials::of(near.as_fd()).unwrap(), own);
    }

    #[test]
    fn another_user_is_refused_with_both_named() {
        let [root, other] = [0, 1001];
        assert_eq!(check_same(other, other), Ok(()));
        let refused = check_same(other, root).unwrap_err();
        assert!(refused.contains("user 1001") && refused.contains("user 0"));
        let (near, _far) = UnixStream::pair().unwrap();
        assert_eq!(check_user(near.as_fd()), Ok(()));
    }

    #[test]
    fn what_is_no_socket_has_nobody_at_its_end() {
        let file = File::open("/dev/null").unwrap();
        let error = Credentials::of(file.as_fd()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTSOCK));
    }
}
