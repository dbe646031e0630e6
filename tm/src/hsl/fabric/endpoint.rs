//! An endpoint: where writes leave and arrive. Unsafe island: posts them.
//!
//! What an operation refers to until it is complete lives as long as the endpoint: the memory that
//! is sent from, and a place of the library's own for each operation. What cannot be closed keeps both.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::abi::{
    self, Address, AvAttr, AvObject, AvOps, CmOps, Context, CqEntry, EndpointObject, MsgOps,
    RmaIov, RmaMessage, RmaOps,
};
use super::domain::{Domain, Facts};
use super::error::FabricError;
use super::object::{Object, table};
use super::posting::{BATCH, Completion, Origin, Posted, Posting, Target};
use super::queue::Queue;
use super::region::Region;
use super::registrar::Lent;
use crate::local::memory::Mapping;

/// Bytes of the longest name of an endpoint.
pub(super) const NAME_BYTES_MAX: usize = 128;

/// An endpoint from which nothing is sent yet.
#[derive(Debug)]
pub(super) struct Opened {
    // Closed in this order; what operations refer to is dropped behind.
    endpoint: Object<EndpointObject>,
    addresses: Object<AvObject>,
    queue: Queue,
    calls: Calls,
    places: Arc<Places>,
    /// Receives that the provider has not taken yet.
    unposted: Range<usize>,
    domain: Arc<Domain>,
}

/// An endpoint, and the memory that it needs.
#[derive(Debug)]
pub(super) struct Endpoint {
    // Closed before the memory is unmapped which it reads, or which the other side writes.
    opened: Opened,
    source: Arc<Region>,
    _own: Arc<Region>,
    /// What is sent from beside, by the place of the operation.
    lent: Arc<Mutex<InUse>>,
}

/// What operations send from, by their places.
type InUse = Vec<(usize, Arc<Lent>)>;

/// What is called of an endpoint.
#[derive(Debug)]
struct Calls {
    write: unsafe extern "C" fn(*mut EndpointObject, *const RmaMessage, u64) -> isize,
    inject:
        unsafe extern "C" fn(*mut EndpointObject, *const c_void, usize, Address, u64, u64) -> isize,
    inject_data: unsafe extern "C" fn(
        *mut EndpointObject,
        *const c_void,
        usize,
        u64,
        Address,
        u64,
        u64,
    ) -> isize,
    receive: unsafe extern "C" fn(
        *mut EndpointObject,
        *mut c_void,
        usize,
        *mut c_void,
        Address,
        *mut c_void,
    ) -> isize,
    name: unsafe extern "C" fn(*mut abi::Fid, *mut c_void, *mut usize) -> i32,
    insert: unsafe extern "C" fn(
        *mut AvObject,
        *const c_void,
        usize,
        *mut Address,
        u64,
        *mut c_void,
    ) -> i32,
}

/// Memory that the library uses for operations that go on, one place each. Nobody looks at what
/// is in it.
#[derive(Debug)]
struct Places(Box<[UnsafeCell<Context>]>);

// SAFETY: this side only ever takes addresses of it.
unsafe impl Send for Places {}
// SAFETY: as above.
unsafe impl Sync for Places {}

impl Opened {
    /// An endpoint for at most `operations` at a time, which reports to `queue`; with `receives` receives posted for notifications, where they take any.
    pub(super) fn open(
        domain: &Arc<Domain>,
        queue: Queue,
        operations: usize,
        receives: usize,
    ) -> Result<Self, FabricError> {
        // Where something fails here, what was made last is closed first.
        let addresses = make_addresses(domain)?;
        let mut endpoint = make_endpoint(domain)?;
        let calls = Calls::of(domain, &endpoint, &addresses)?;
        // SAFETY: both are closed after the endpoint: here, as what was made before it, and later, as the
        // fields of the result behind it.
        unsafe { endpoint.bind(&addresses, 0) }
            .map_err(|error| domain.failed("fi_ep_bind", error))?;
        // SAFETY: as above.
        unsafe { endpoint.bind(queue.object(), abi::FI_TRANSMIT | abi::FI_RECV) }
            .map_err(|error| domain.failed("fi_ep_bind", error))?;
        // SAFETY: the command takes nothing.
        unsafe { endpoint.control(abi::FI_ENABLE, ptr::null_mut()) }
            .map_err(|error| domain.failed("fi_enable", error))?;
        let places = (0..operations + receives).map(|_| UnsafeCell::new(Context([0; 8])));
        let places = Arc::new(Places(places.collect()));
        endpoint.keep(places.clone());
        endpoint.keep(domain.clone());
        let mut this = Self {
            unposted: operations..operations + receives,
            endpoint,
            addresses,
            queue,
            calls,
            places,
            domain: Arc::clone(domain),
        };
        for place in this.unposted.clone() {
            match this.post_receive(place) {
                Posted::Yes => this.unposted.start = place + 1,
                // Whoever has the endpoint goes on with it.
                Posted::NotNow => break,
                Posted::Failed(error) => return Err(domain.failed("fi_recv", error)),
            }
        }
        Ok(this)
    }

    /// What other endpoints call this one.
    pub(super) fn name(&self) -> Result<Vec<u8>, FabricError> {
        let mut name = vec![0_u8; NAME_BYTES_MAX];
        let mut length = name.len();
        // SAFETY: the endpoint is open; there is room for so many bytes.
        let error = unsafe {
            (self.calls.name)(
                self.endpoint.fid(),
                name.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if error != 0 || length > name.len() {
            return Err(self.domain.failed("fi_getname", error));
        }
        name.truncate(length);
        Ok(name)
    }

    /// The other endpoint that is called `name`.
    pub(super) fn address_of(&self, name: &[u8]) -> Result<Address, FabricError> {
        // Long enough for whatever a provider reads of it, whatever the peer has sent.
        let mut padded = [0; 2 * NAME_BYTES_MAX];
        let length = name.len().min(NAME_BYTES_MAX);
        padded[..length].copy_from_slice(&name[..length]);
        let mut address = abi::FI_ADDR_UNSPEC;
        // SAFETY: the vector is open; there is one name, with zeros behind it, and a place for
        // one result.
        let count = unsafe {
            (self.calls.insert)(
                self.addresses.raw(),
                padded.as_ptr().cast(),
                1,
                &raw mut address,
                0,
                ptr::null_mut(),
            )
        };
        if count == 1 {
            Ok(address)
        } else {
            Err(self
                .domain
                .failed("fi_av_insert", count.min(-abi::FI_ENODATA)))
        }
    }

    /// Posts receive `place`: some providers take one for each notification.
    fn post_receive(&self, place: usize) -> Posted {
        let context = self.place(place).as_ptr().cast();
        let (buffer, descriptor) = (ptr::null_mut(), ptr::null_mut());
        let from = abi::FI_ADDR_UNSPEC;
        // SAFETY: the endpoint is open, no bytes are received, and the place lives as long.
        posted(unsafe {
            (self.calls.receive)(self.endpoint.raw(), buffer, 0, descriptor, from, context)
        })
    }

    fn place(&self, place: usize) -> NonNull<Context> {
        NonNull::from(&self.places.0[place]).cast()
    }
}

impl Endpoint {
    /// An endpoint that sends from `source`, and where the other side writes `own`.
    pub(super) fn new(mut opened: Opened, source: Arc<Region>, own: Arc<Region>) -> Self {
        let lent = Arc::default();
        opened.endpoint.keep(source.clone());
        opened.endpoint.keep(own.clone());
        opened.endpoint.keep(Arc::clone(&lent) as _);
        Self {
            opened,
            source,
            _own: own,
            lent,
        }
    }

    fn lent(&self) -> MutexGuard<'_, InUse> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a completion says.
    fn completion(&self, entry: &CqEntry) -> Completion {
        // Some providers mark the ends of this side's own writes with FI_REMOTE_CQ_DATA too.
        let is_notice = entry.flags & abi::FI_REMOTE_WRITE != 0;
        Completion {
            place: self.place_of(entry.op_context),
            notice: is_notice.then_some(entry.data),
        }
    }

    /// Which operation or receive a completion is of.
    fn place_of(&self, context: usize) -> Option<usize> {
        let offset = context.checked_sub(self.opened.places.0.as_ptr().addr())?;
        let place = offset / size_of::<Context>();
        (offset.is_multiple_of(size_of::<Context>()) && place < self.opened.places.0.len())
            .then_some(place)
    }
}

impl Posting for Endpoint {
    fn facts(&self) -> &Facts {
        &self.opened.domain.facts
    }

    fn source(&self) -> &Arc<Mapping> {
        self.source.memory()
    }

    fn write(
        &self,
        place: usize,
        (origin, length): (&Origin, usize),
        to: Target,
        notice: Option<u32>,
        delivered: bool,
    ) -> Posted {
        let (from, mut descriptor) = match origin {
            Origin::Source(offset) => {
                let bytes = self.source.memory().range(*offset, length);
                (bytes, self.source.descriptor())
            }
            Origin::Lent(lent, offset) => lent.range(*offset, length),
        };
        let vector = libc::iovec {
            iov_base: from.as_ptr().cast(),
            iov_len: length,
        };
        let remote = RmaIov {
            addr: to.address,
            len: length,
            key: to.key,
        };
        let message = RmaMessage {
            msg_iov: &raw const vector,
            desc: &raw mut descriptor,
            iov_count: 1,
            addr: to.peer,
            rma_iov: &raw const remote,
            rma_iov_count: 1,
            context: self.opened.place(place).as_ptr().cast(),
            data: notice.map_or(0, u64::from),
        };
        let mut flags = abi::FI_COMPLETION;
        if notice.is_some() {
            flags |= abi::FI_REMOTE_CQ_DATA;
        }
        if delivered {
            flags |= abi::FI_DELIVERY_COMPLETE;
        }
        let mut held = match origin {
            Origin::Source(_) => None,
            Origin::Lent(lent, _) => {
                let mut held = self.lent();
                assert!(
                    held.iter().all(|(other, _)| *other != place),
                    "{place} is used twice"
                );
                held.push((place, Arc::clone(lent)));
                Some(held)
            }
        };
        // SAFETY: the endpoint is open. Source and place live as long as it does; what is lent is
        // held until the operation is complete (`read`), or the endpoint is closed; the rest only
        // has to live through the call. The library only reads what is sent from.
        let posted = posted(unsafe {
            (self.opened.calls.write)(self.opened.endpoint.raw(), &raw const message, flags)
        });
        if posted != Posted::Yes
            && let Some(held) = &mut held
        {
            held.pop();
        }
        posted
    }

    fn inject(&self, bytes: &[u8], to: Target, notice: Option<u32>) -> Posted {
        let (start, length) = (bytes.as_ptr().cast::<c_void>(), bytes.len());
        let endpoint = self.opened.endpoint.raw();
        posted(match notice {
            // SAFETY: the endpoint is open, and `bytes` is not needed when the call returns.
            None => unsafe {
                (self.opened.calls.inject)(endpoint, start, length, to.peer, to.address, to.key)
            },
            // SAFETY: as above.
            Some(notice) => unsafe {
                (self.opened.calls.inject_data)(
                    endpoint,
                    start,
                    length,
                    notice.into(),
                    to.peer,
                    to.address,
                    to.key,
                )
            },
        })
    }

    fn post_receive(&self, place: usize) -> Posted {
        self.opened.post_receive(place)
    }

    fn unposted_receives(&self) -> Range<usize> {
        self.opened.unposted.clone()
    }

    fn read(&self, into: &mut [Completion; BATCH]) -> Result<usize, i32> {
        let mut entries = [CqEntry::default(); BATCH];
        let count = self.opened.queue.read(&mut entries)?;
        for (completion, entry) in into.iter_mut().zip(&entries[..count]) {
            *completion = self.completion(entry);
        }
        let mut lent = self.lent();
        if !lent.is_empty() {
            let complete = &into[..count];
            lent.retain(|(place, _)| complete.iter().all(|other| other.place != Some(*place)));
        }
        Ok(count)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.opened.queue.descriptor()
    }

    fn may_wait(&self) -> bool {
        self.opened.queue.may_wait()
    }
}

fn posted(result: isize) -> Posted {
    match result {
        0 => Posted::Yes,
        again if again == -(abi::FI_EAGAIN as isize) => Posted::NotNow,
        error => Posted::Failed(i32::try_from(error).unwrap_or(-abi::FI_ENODATA)),
    }
}

fn make_endpoint(domain: &Domain) -> Result<Object<EndpointObject>, FabricError> {
    let make = domain
        .ops
        .endpoint
        .ok_or_else(|| domain.missing("fi_endpoint"))?;
    let mut endpoint = ptr::null_mut();
    let (parent, info) = (domain.raw().raw(), domain.info());
    // SAFETY: the domain is open, the list is that which it was opened with, `endpoint` is for
    // the result.
    match unsafe { make(parent, info, &raw mut endpoint, ptr::null_mut()) } {
        // SAFETY: the call has made it, for nobody else; the domain outlives it.
        0 => unsafe { Object::new(endpoint, "fi_endpoint", &domain.facts.provider) },
        error => Err(domain.failed("fi_endpoint", error)),
    }
}

fn make_addresses(domain: &Domain) -> Result<Object<AvObject>, FabricError> {
    let make = domain
        .ops
        .av_open
        .ok_or_else(|| domain.missing("fi_av_open"))?;
    let mut attr = AvAttr {
        kind: abi::FI_AV_TABLE,
        rx_ctx_bits: 0,
        count: 1,
        ep_per_node: 0,
        name: ptr::null(),
        map_addr: ptr::null_mut(),
        flags: 0,
    };
    let mut addresses = ptr::null_mut();
    let parent = domain.raw().raw();
    // SAFETY: the domain is open, `attr` is such an attribute, `addresses` is for the result.
    match unsafe { make(parent, &raw mut attr, &raw mut addresses, ptr::null_mut()) } {
        // SAFETY: the call has made it, for nobody else; the domain outlives it.
        0 => unsafe { Object::new(addresses, "fi_av_open", &domain.facts.provider) },
        error => Err(domain.failed("fi_av_open", error)),
    }
}

impl Calls {
    fn of(
        domain: &Domain,
        endpoint: &Object<EndpointObject>,
        addresses: &Object<AvObject>,
    ) -> Result<Self, FabricError> {
        let fields = endpoint.fields();
        // SAFETY: tables of open objects, here and below.
        let rma: RmaOps =
            unsafe { table(fields.rma) }.ok_or_else(|| domain.missing("fi_writemsg"))?;
        // SAFETY: as above.
        let msg: MsgOps = unsafe { table(fields.msg) }.ok_or_else(|| domain.missing("fi_recv"))?;
        // SAFETY: as above.
        let cm: CmOps = unsafe { table(fields.cm) }.ok_or_else(|| domain.missing("fi_getname"))?;
        // SAFETY: as above.
        let av: AvOps = unsafe { table(addresses.fields().ops) }
            .ok_or_else(|| domain.missing("fi_av_insert"))?;
        let missing = |what| move || domain.missing(what);
        Ok(Self {
            write: rma.writemsg.ok_or_else(missing("fi_writemsg"))?,
            inject: rma.inject.ok_or_else(missing("fi_inject_write"))?,
            inject_data: rma.injectdata.ok_or_else(missing("fi_inject_writedata"))?,
            receive: msg.recv.ok_or_else(missing("fi_recv"))?,
            name: cm.getname.ok_or_else(missing("fi_getname"))?,
            insert: av.insert.ok_or_else(missing("fi_av_insert"))?,
        })
    }
}
