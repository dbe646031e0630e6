//! Memory of the other process that is not registered: the kernel writes it, as a card would
//! that walks the page table. Unsafe island: it names memory by its address.

#![allow(unsafe_code)]

use std::io;
use std::num::NonZeroU32;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::hsl::put::PutError;
use crate::local::credentials::Credentials;

/// Set in an address that is one of a process, not of registered memory.
pub(crate) const FOREIGN: u64 = 1 << 63;

/// The process at the other end.
#[derive(Debug)]
pub(crate) struct ForeignProcess {
    process: Pid,
    /// Tells when it has ended, and its number may be another's.
    descriptor: OwnedFd,
}

impl ForeignProcess {
    /// Who is at the other end of `socket`, which listened or connected there, and which says to be
    /// process `said`.
    ///
    /// Both have to agree: the kernel names who called `listen`, whose child may have accepted, and
    /// what was meant for the one would be written into the other. So is this process refused, but
    /// for tests that have both ends in one: the kernel calls the creator of a pair of sockets the
    /// peer of both.
    pub(crate) fn of(socket: BorrowedFd<'_>, said: NonZeroU32) -> io::Result<Self> {
        let named = Credentials::of(socket)?.process;
        if named != Some(said) {
            let named = match named {
                Some(named) => format!("names {named}, which opened the socket"),
                None => "knows no such process here".to_owned(),
            };
            return Err(io::Error::other(format!(
                "the peer says to be process {said}, and the system {named}: its memory cannot be \
                 told from another's. Let the process accept that listens, with both ends in one \
                 namespace of processes, or switch `foreign` off"
            )));
        }
        let process = i32::try_from(said.get()).ok().and_then(Pid::from_raw);
        let process = process.ok_or_else(|| io::Error::other("no process has such a number"))?;
        let may_be_own = cfg!(any(test, feature = "conformance"));
        if process == rustix::process::getpid() && !may_be_own {
            return Err(io::Error::other(
                "the system does not say which process is at the other end of a pair of sockets; \
                 listen and connect instead",
            ));
        }
        let descriptor = pidfd_open(process, PidfdFlags::empty())?;
        Ok(Self {
            process,
            descriptor,
        })
    }

    /// Writes `from` at address `to` of the process; returns how many system calls it took. A
    /// range that is not that process's memory is refused by the kernel.
    ///
    /// # Safety
    /// `from` can be read for the call, whoever else has it.
    pub(crate) unsafe fn write(&self, from: NonNull<[u8]>, to: u64) -> Result<u64, PutError> {
        let unreachable = |error: io::Error| match error.raw_os_error() {
            Some(error @ (libc::EPERM | libc::EACCES | libc::ENOSYS)) => PutError::Forbidden(error),
            error => PutError::Unreachable(error.unwrap_or(libc::EIO)),
        };
        let mut descriptors = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let now = Timespec::default();
        let ended =
            poll(&mut descriptors, Some(&now)).map_err(|error| unreachable(error.into()))?;
        if ended > 0 {
            return Err(PutError::Closed);
        }
        let (mut calls, mut done) = (1, 0);
        while done < from.len() {
            let rest = from.len() - done;
            let there = usize::try_from(to).ok().and_then(|to| to.checked_add(done));
            let there = there.ok_or(PutError::Unreachable(libc::EFAULT))?;
            // SAFETY: `done` is less than the length of `from`, which is one range of memory that can
            // be read.
            let start = unsafe { from.cast::<u8>().add(done) };
            let local = libc::iovec {
                iov_base: start.as_ptr().cast(),
                iov_len: rest,
            };
            let remote = libc::iovec {
                iov_base: std::ptr::without_provenance_mut(there),
                iov_len: rest,
            };
            calls += 1;
            // SAFETY: both vectors are one element each and live for the call. The kernel reads
            // `local`, which can be read (the contract of this function); it writes memory of the
            // other process, at an address that this process knows as a number only, after checking it.
            let written = unsafe {
                libc::process_vm_writev(
                    self.process.as_raw_nonzero().get(),
                    &raw const local,
                    1,
                    &raw const remote,
                    1,
                    0,
                )
            };
            match usize::try_from(written) {
                Ok(written) if written > 0 => done += written,
                _ => {
                    let error = io::Error::last_os_error();
                    // It has ended since.
                    let has_ended = error.raw_os_error() == Some(libc::ESRCH);
                    return Err(if has_ended {
                        PutError::Closed
                    } else {
                        unreachable(error)
                    });
                }
            }
        }
        Ok(calls)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::hsl::lent_out::LentOut;
    use crate::hsl::put::Target;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_process_that_the_system_does_not_name_is_refused() {
        let (near, _far) = UnixStream::pair().unwrap();
        let own = std::process::id();
        for said in [1, own + 1, 1 << 23] {
            let refused = ForeignProcess::of(near.as_fd(), NonZeroU32::new(said).unwrap());
            let said_why = refused.unwrap_err().to_string();
            let names_both = [said, own]
                .iter()
                .all(|it| said_why.contains(&it.to_string()));
            assert!(names_both, "{said_why}");
        }
    }

    #[test]
    fn memory_that_is_lent_out_is_written_and_comes_back() {
        // This process is its own peer.
        let (near, _far) = UnixStream::pair().unwrap();
        let own = NonZeroU32::new(std::process::id()).unwrap();
        let process = ForeignProcess::of(near.as_fd(), own).unwrap();
        let mut lent = LentOut::new(vec![0; 100_000]);
        let address = lent.tell().0 & !FOREIGN;
        let bytes = [7; 99_999];
        let write = |to| {
            // SAFETY: `bytes` is an array of this test's.
            unsafe { process.write(NonNull::from(&bytes[..]), to) }
        };
        let calls = match write(address + 1) {
            Ok(calls) => calls,
            // Some systems forbid it altogether.
            Err(PutError::Forbidden(_)) => return,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(calls, 2);
        let back = lent.back();
        assert!(back[0] == 0 && back[1..].iter().all(|byte| *byte == 7));
        let nowhere = write(8);
        assert!(matches!(nowhere, Err(PutError::Unreachable(_))));
        drop(LentOut::new(vec![1]));
    }
}
