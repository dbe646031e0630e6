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
    fn what_is_no_socket_has_nobody_at_its_end() {
        let file = File::open("/dev/null").unwrap();
        let error = Credentials::of(file.as_fd()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTSOCK));
    }
}
