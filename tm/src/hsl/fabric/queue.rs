//! A completion queue: what has been sent, and what has come. Unsafe island: reads it.

#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use super::abi::{self, CqAttr, CqEntry, CqError, CqObject, CqOps};
use super::domain::Domain;
use super::error::FabricError;
use super::object::{Object, table};
use super::posting::BATCH;

#[derive(Debug)]
pub(super) struct Queue {
    // Closed before the domain.
    queue: Object<CqObject>,
    read: unsafe extern "C" fn(*mut CqObject, *mut std::ffi::c_void, usize) -> isize,
    read_error: unsafe extern "C" fn(*mut CqObject, *mut CqError, u64) -> isize,
    /// What to wait for, where there is something. Open as long as the queue is.
    wait: Option<RawFd>,
    domain: Arc<Domain>,
}

impl Queue {
    /// A queue for so many completions; with something to wait for, where that is wanted and the
    /// provider has it.
    pub(super) fn open(
        domain: &Arc<Domain>,
        entries: usize,
        sleeps: bool,
    ) -> Result<Self, FabricError> {
        let queue = match Self::make(domain, entries, sleeps) {
            Err(error) if sleeps && error == -abi::FI_ENOSYS => Self::make(domain, entries, false),
            made => made,
        };
        let queue = queue.map_err(|error| domain.failed("fi_cq_open", error))?;
        // SAFETY: the call has made it, for nobody else; the domain outlives it.
        let queue = unsafe { Object::new(queue, "fi_cq_open", &domain.facts.provider) }?;
        // SAFETY: the table of an open queue.
        let ops: CqOps =
            unsafe { table(queue.fields().ops) }.ok_or_else(|| domain.missing("fi_cq_read"))?;
        let mut wait: RawFd = -1;
        if sleeps {
            // SAFETY: this command takes a place for a descriptor.
            let found = unsafe { queue.control(abi::FI_GETWAIT, (&raw mut wait).cast()) };
            if found.is_err() {
                wait = -1;
            }
        }
        Ok(Self {
            queue,
            read: ops.read.ok_or_else(|| domain.missing("fi_cq_read"))?,
            read_error: ops.readerr.ok_or_else(|| domain.missing("fi_cq_readerr"))?,
            wait: (wait >= 0).then_some(wait),
            domain: Arc::clone(domain),
        })
    }

    fn make(domain: &Domain, entries: usize, sleeps: bool) -> Result<*mut CqObject, i32> {
        let open = domain.ops.cq_open.ok_or(-abi::FI_ENOSYS)?;
        let mut attr = CqAttr {
            size: entries,
            flags: 0,
            format: abi::FI_CQ_FORMAT_DATA,
            wait_obj: if sleeps {
                abi::FI_WAIT_FD
            } else {
                abi::FI_WAIT_NONE
            },
            signaling_vector: 0,
            wait_cond: 0,
            wait_set: std::ptr::null_mut(),
        };
        let mut queue = std::ptr::null_mut();
        let context = std::ptr::null_mut();
        // SAFETY: the domain is open, `attr` is such an attribute, `queue` is for the result.
        match unsafe { open(domain.raw().raw(), &raw mut attr, &raw mut queue, context) } {
            0 => Ok(queue),
            error => Err(error),
        }
    }

    pub(super) fn object(&self) -> &Object<CqObject> {
        &self.queue
    }

    /// Takes in completions: how many, or the error of one that failed. With most providers,
    /// nothing goes on unless somebody calls this.
    pub(super) fn read(&self, into: &mut [CqEntry; BATCH]) -> Result<usize, i32> {
        // SAFETY: the queue is open and has this format; there is room for so many.
        let count = unsafe { (self.read)(self.queue.raw(), into.as_mut_ptr().cast(), BATCH) };
        match usize::try_from(count) {
            Ok(count) => Ok(count.min(BATCH)),
            Err(_) if count == -(abi::FI_EAGAIN as isize) => Ok(0),
            Err(_) if count == -(abi::FI_EAVAIL as isize) => self.failure(),
            Err(_) => Err(i32::try_from(count).unwrap_or(-abi::FI_ENODATA)),
        }
    }

    fn failure(&self) -> Result<usize, i32> {
        let mut error = CqError {
            op_context: std::ptr::null_mut(),
            flags: 0,
            len: 0,
            buf: std::ptr::null_mut(),
            data: 0,
            tag: 0,
            olen: 0,
            err: 0,
            prov_errno: 0,
            err_data: std::ptr::null_mut(),
            err_data_size: 0,
        };
        // SAFETY: the queue is open, and `error` is such an entry, without room for more.
        let count = unsafe { (self.read_error)(self.queue.raw(), &raw mut error, 0) };
        if count == -(abi::FI_EAGAIN as isize) {
            // Somebody else has read it.
            return Ok(0);
        }
        Err(-error.err.max(1))
    }

    /// What to wait for.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: it is open as long as the queue is, which outlives the result.
        self.wait
            .map(|wait| unsafe { BorrowedFd::borrow_raw(wait) })
    }

    /// Whether one may wait for the descriptor: nothing has come that it would not tell of.
    pub(super) fn may_wait(&self) -> bool {
        let fabric = self.domain.fabric().raw();
        let mut fids = [self.queue.fid()];
        // SAFETY: fabric and queue are open; there is one queue in the list.
        let error = unsafe { (self.domain.trywait)(fabric, fids.as_mut_ptr(), 1) };
        error == 0
    }
}
