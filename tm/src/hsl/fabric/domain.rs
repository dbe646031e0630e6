//! Which network of libfabric's is taken, and what it can do. Unsafe island: asks for it, and
//! reads the answer.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::abi::{self, DomainObject, DomainOps, FabricObject, FabricOps, Info, MrOps};
use super::error::FabricError;
use super::library::{Library, library};
use super::object::{Object, table};

/// Operations of an endpoint that go on at once at most; fewer where the provider keeps fewer.
pub(super) const OPERATIONS_MOST: usize = 128;
/// Receives of an endpoint that are posted for notifications, where they take any, at most.
pub(super) const RECEIVES_MOST: usize = 64;

/// Which network is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Wanted {
    /// libfabric's name of the provider; the first that it offers if there is none.
    pub(super) provider: Option<String>,
    /// Its name of the interface.
    pub(super) domain: Option<String>,
    /// An address of this host, where the provider has such addresses.
    pub(super) address: Option<IpAddr>,
    /// Whether the order of writes is to be done without, though it may be there.
    pub(super) in_any_order: bool,
    /// Whether what is sent from is to be registered, though it may be done without.
    pub(super) registers_local: bool,
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(provider) = &self.provider {
            write!(f, " with provider \"{provider}\"")?;
        }
        if let Some(domain) = &self.domain {
            write!(f, " in domain \"{domain}\"")?;
        }
        Ok(())
    }
}

/// What a network of libfabric's can do.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    /// The provider's name.
    pub(super) provider: String,
    /// Bytes of the largest write that is seen before a later one; none where writes have no
    /// order.
    pub(super) ordered_bytes: usize,
    /// Bytes of the largest write.
    pub(super) largest_bytes: usize,
    /// Bytes that it takes over at once.
    pub(super) inject_bytes: usize,
    /// Writes that it keeps at once, and receives.
    pub(super) sends: usize,
    pub(super) receives: usize,
    /// Whether somebody has to call it for anything to go on.
    pub(super) needs_calls: bool,
    /// Whether who waits for a queue is woken, where the provider has something to wait for.
    pub(super) wakes: bool,
    /// What registrations are like: `FI_MR_` flags.
    pub(super) mr_mode: c_int,
    /// Bytes of a key.
    pub(super) key_bytes: usize,
}

impl Facts {
    /// Whether what is sent has to be registered too.
    pub(super) fn registers_local(&self) -> bool {
        self.mr_mode & abi::FI_MR_LOCAL != 0
    }

    /// Whether remote addresses are those of the other process, and not offsets.
    pub(super) fn has_virtual_addresses(&self) -> bool {
        self.mr_mode & abi::FI_MR_VIRT_ADDR != 0
    }

    /// The largest key, where this side chooses keys.
    pub(super) fn largest_key(&self) -> Option<u64> {
        if self.mr_mode & abi::FI_MR_PROV_KEY != 0 {
            return None;
        }
        let bits = self.key_bytes.clamp(1, 8) * 8;
        Some(u64::MAX >> (64 - bits))
    }
}

/// An open network: libfabric's fabric and domain.
#[derive(Debug)]
pub(super) struct Domain {
    // Closed in this order.
    domain: Object<DomainObject>,
    fabric: Object<FabricObject>,
    info: InfoList,
    pub(super) ops: DomainOps,
    pub(super) mr: MrOps,
    pub(super) trywait: unsafe extern "C" fn(*mut FabricObject, *mut *mut abi::Fid, c_int) -> c_int,
    pub(super) facts: Facts,
}

/// Those that are open, so that all links of a process over one network share one.
static OPEN: Mutex<Option<HashMap<Wanted, Weak<Domain>>>> = Mutex::new(None);

impl Domain {
    /// The network that is wanted, opened if it is not open yet.
    pub(super) fn open(wanted: &Wanted) -> Result<Arc<Self>, FabricError> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let open = open.get_or_insert_default();
        if let Some(domain) = open.get(wanted).and_then(Weak::upgrade) {
            return Ok(domain);
        }
        open.retain(|_, domain| domain.strong_count() > 0);
        let domain = Arc::new(Self::new(wanted)?);
        open.insert(wanted.clone(), Arc::downgrade(&domain));
        Ok(domain)
    }

    fn new(wanted: &Wanted) -> Result<Self, FabricError> {
        let library = library()?;
        let info = find(library, wanted)?;
        let mut facts = info.facts();
        if wanted.in_any_order {
            facts.ordered_bytes = 0;
        }
        if wanted.registers_local {
            facts.mr_mode |= abi::FI_MR_LOCAL;
        }
        let failed = |call, error| FabricError::Call {
            call,
            provider: facts.provider.clone(),
            what: library.describe(error),
        };
        let missing = |what| FabricError::Interface {
            what,
            provider: facts.provider.clone(),
        };

        let attr = info.chosen().fabric_attr;
        // SAFETY: the attribute is that of a list which `fi_getinfo` has returned.
        let fabric = unsafe { library.fabric(attr) }.map_err(|error| failed("fi_fabric", error))?;
        // SAFETY: the call above has made it, for nobody else.
        let fabric = unsafe { Object::new(fabric, "fabric", &facts.provider) }?;
        // SAFETY: the table of an open fabric.
        let ops: FabricOps =
            unsafe { table(fabric.fields().ops) }.ok_or_else(|| missing("fi_trywait"))?;
        let make = ops.domain.ok_or_else(|| missing("fi_domain"))?;
        let trywait = ops.trywait.ok_or_else(|| missing("fi_trywait"))?;

        let mut domain = std::ptr::null_mut();
        let context = std::ptr::null_mut();
        // SAFETY: the fabric is open, the list is of its making, `domain` is for the result.
        match unsafe { make(fabric.raw(), info.chosen.as_ptr(), &raw mut domain, context) } {
            0 => {}
            error => return Err(failed("fi_domain", error)),
        }
        // SAFETY: the call above has made it, for nobody else; the fabric is dropped after it.
        let domain = unsafe { Object::new(domain, "domain", &facts.provider) }?;
        // SAFETY: a table of an open domain.
        let ops = unsafe { table(domain.fields().ops) }.ok_or_else(|| missing("fi_endpoint"))?;
        // SAFETY: as above.
        let mr = unsafe { table(domain.fields().mr) }.ok_or_else(|| missing("fi_mr_reg"))?;
        Ok(Self {
            domain,
            fabric,
            info,
            ops,
            mr,
            trywait,
            facts,
        })
    }

    pub(super) fn raw(&self) -> &Object<DomainObject> {
        &self.domain
    }

    pub(super) fn fabric(&self) -> &Object<FabricObject> {
        &self.fabric
    }

    /// What endpoints are made from.
    pub(super) fn info(&self) -> *mut Info {
        self.info.chosen.as_ptr()
    }

    /// The error of a call that returned `error`.
    pub(super) fn failed(&self, call: &'static str, error: i32) -> FabricError {
        FabricError::Call {
            call,
            provider: self.facts.provider.clone(),
            what: describe(error),
        }
    }

    /// The error of a function that is not there.
    pub(super) fn missing(&self, what: &'static str) -> FabricError {
        FabricError::Interface {
            what,
            provider: self.facts.provider.clone(),
        }
    }
}

/// What an error of the library's means.
pub(super) fn describe(error: i32) -> String {
    library().map_or_else(
        |_| format!("error {error}"),
        |library| library.describe(error),
    )
}

/// The network that is wanted: writes in order if that can be had.
fn find(library: &'static Library, wanted: &Wanted) -> Result<InfoList, FabricError> {
    let order = abi::FI_ORDER_WAW | abi::FI_ORDER_RMA_WAW;
    let (mut error, mut others) = (0, None);
    for order in [order, 0] {
        if wanted.in_any_order && order != 0 {
            continue;
        }
        let hints = InfoList::hints(library, wanted, order)?;
        let mut found = match hints.offers(None) {
            Ok(found) => found,
            Err(why) => {
                error = why;
                continue;
            }
        };
        if let Some(domain) = &wanted.domain {
            // Whether it has that is looked at when the address has been.
            let _ = found.choose(domain);
        }
        // Some providers have addresses of their own, and would take ours for a name.
        let address = wanted.address.filter(|_| found.has_socket_addresses());
        let address = address.and_then(|address| CString::new(address.to_string()).ok());
        // Some interfaces do not know the address, and are taken nevertheless.
        let narrower = address.and_then(|address| hints.offers(Some(&address)).ok());
        let mut found = narrower.unwrap_or(found);
        if let Some(domain) = &wanted.domain {
            // For most providers that name is a hint, of which nothing has come here.
            if let Err(names) = found.choose(domain) {
                others.get_or_insert(FabricError::NoDomain {
                    domain: domain.clone(),
                    provider: found.facts().provider,
                    others: names.join(", "),
                });
                continue;
            }
        }
        return Ok(found);
    }
    if let Some(others) = others {
        return Err(others);
    }
    let (major, minor) = library.version();
    Err(FabricError::NoNetwork {
        version: format!("{major}.{minor}"),
        wanted: wanted.to_string(),
        what: library.describe(error),
    })
}

/// A list of networks, or hints for one.
struct InfoList {
    library: &'static Library,
    /// Invariant: a list of the library's, with all attributes, which is ours to free.
    first: NonNull<Info>,
    /// Invariant: an element of it.
    chosen: NonNull<Info>,
}

// SAFETY: plain memory that nobody else has, and that is only read after it was made.
unsafe impl Send for InfoList {}
// SAFETY: as above.
unsafe impl Sync for InfoList {}

impl fmt::Debug for InfoList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InfoList").finish_non_exhaustive()
    }
}

impl InfoList {
    /// What is asked for.
    fn hints(library: &'static Library, wanted: &Wanted, order: u64) -> Result<Self, FabricError> {
        // SAFETY: null asks for an empty one.
        let first = unsafe { library.dupinfo(std::ptr::null()) };
        let first = NonNull::new(first).ok_or_else(|| FabricError::NoNetwork {
            version: String::new(),
            wanted: wanted.to_string(),
            what: "out of memory".to_owned(),
        })?;
        let hints = Self {
            library,
            first,
            chosen: first,
        };
        // SAFETY: the list is ours alone until it is freed (invariant).
        let info = unsafe { &mut *first.as_ptr() };
        info.caps = abi::FI_MSG | abi::FI_RMA;
        info.mode = abi::FI_CONTEXT | abi::FI_CONTEXT2 | abi::FI_RX_CQ_DATA;
        // SAFETY: an empty one has all attributes (`fi_allocinfo`), which are ours as it is.
        unsafe { (*info.ep_attr).kind = abi::FI_EP_RDM };
        // SAFETY: as above.
        let tx = unsafe { &mut *info.tx_attr };
        tx.msg_order = order;
        // Providers keep buffers for as many.
        tx.size = OPERATIONS_MOST;
        // SAFETY: as above.
        let rx = unsafe { &mut *info.rx_attr };
        rx.msg_order = order;
        rx.size = RECEIVES_MOST;
        // SAFETY: as above.
        let domain = unsafe { &mut *info.domain_attr };
        domain.threading = abi::FI_THREAD_SAFE;
        domain.resource_mgmt = abi::FI_RM_ENABLED;
        domain.mr_mode =
            abi::FI_MR_LOCAL | abi::FI_MR_VIRT_ADDR | abi::FI_MR_ALLOCATED | abi::FI_MR_PROV_KEY;
        domain.name = c_text(wanted.domain.as_deref());
        // SAFETY: as above.
        unsafe { (*info.fabric_attr).prov_name = c_text(wanted.provider.as_deref()) };
        Ok(hints)
    }

    /// What there is, where `address` is this host's.
    fn offers(&self, address: Option<&CStr>) -> Result<Self, i32> {
        let flags = if address.is_some() { abi::FI_SOURCE } else { 0 };
        // SAFETY: the hints are of the library's making (invariant).
        let found = unsafe { self.library.getinfo(address, flags, self.first.as_ptr()) }?;
        let first = NonNull::new(found).ok_or(-abi::FI_ENODATA)?;
        Ok(Self {
            library: self.library,
            first,
            chosen: first,
        })
    }

    /// The one of the list that is taken: the first, unless another one was chosen.
    fn chosen(&self) -> &Info {
        // SAFETY: the list is ours, and stays as it is while this is borrowed (invariant).
        unsafe { self.chosen.as_ref() }
    }

    /// Chooses the first that is in `domain`.
    ///
    /// # Errors
    /// The domains that there are, where none is called so.
    fn choose(&mut self, domain: &str) -> Result<(), Vec<String>> {
        let mut others = Vec::new();
        let mut next = Some(self.first);
        while let Some(info) = next {
            // SAFETY: an element of the list, which is ours, and stays as it is meanwhile (invariant).
            let element = unsafe { info.as_ref() };
            // SAFETY: a list that `fi_getinfo` has returned has all attributes.
            let attributes = unsafe { &*element.domain_attr };
            // SAFETY: the name is null or a C string.
            let name = unsafe { rust_text(attributes.name) };
            if name == domain {
                self.chosen = info;
                return Ok(());
            }
            if !others.contains(&name) {
                others.push(name);
            }
            next = NonNull::new(element.next);
        }
        Err(others)
    }

    fn has_socket_addresses(&self) -> bool {
        let format = self.chosen().addr_format;
        matches!(
            format,
            abi::FI_SOCKADDR | abi::FI_SOCKADDR_IN | abi::FI_SOCKADDR_IN6
        )
    }

    fn facts(&self) -> Facts {
        let info = self.chosen();
        // SAFETY: a list that `fi_getinfo` has returned has all attributes.
        let tx = unsafe { &*info.tx_attr };
        // SAFETY: as above.
        let rx = unsafe { &*info.rx_attr };
        // SAFETY: as above.
        let endpoint = unsafe { &*info.ep_attr };
        // SAFETY: as above.
        let domain = unsafe { &*info.domain_attr };
        // SAFETY: as above.
        let fabric = unsafe { &*info.fabric_attr };
        // SAFETY: the name is null or a C string.
        let provider = unsafe { rust_text(fabric.prov_name) };
        let inject_bytes = if crashes_on_injected(&provider) {
            0
        } else {
            tx.inject_size
        };
        let is_ordered = tx.msg_order & rx.msg_order & abi::FI_ORDER_WAW != 0;
        Facts {
            ordered_bytes: if is_ordered {
                endpoint.max_order_waw_size
            } else {
                0
            },
            largest_bytes: endpoint.max_msg_size,
            inject_bytes,
            sends: tx.size,
            receives: rx.size,
            needs_calls: domain.data_progress != abi::FI_PROGRESS_AUTO,
            wakes: !forgets_sleepers(&provider),
            mr_mode: domain.mr_mode,
            key_bytes: domain.mr_key_size,
            provider,
        }
    }
}

impl Drop for InfoList {
    fn drop(&mut self) {
        // SAFETY: it is ours to free (invariant), and this is the last that is done with it. The
        // texts in it were allocated as the library does (`c_text`).
        unsafe { self.library.freeinfo(self.first.as_ptr()) };
    }
}

/// ofi_rxm (as of 1.17) takes the failure of what was injected for that of an operation with a
/// place, which it has not: the process ends when a peer dies that was just being answered.
fn crashes_on_injected(provider: &str) -> bool {
    provider.ends_with("ofi_rxm")
}

/// sockets (as of 1.17) now and then does not wake who waits for its queue, on a machine with much
/// to do.
fn forgets_sleepers(provider: &str) -> bool {
    provider == "sockets"
}

/// A text that the library may free.
fn c_text(text: Option<&str>) -> *mut c_char {
    let text = text.and_then(|text| CString::new(text).ok());
    text.map_or(std::ptr::null_mut(), |text| {
        // SAFETY: a C string. The library frees its texts with `free`, which `strdup` goes with.
        unsafe { libc::strdup(text.as_ptr()) }
    })
}

/// A copy of a text of the library's.
///
/// # Safety
/// `text` is null or a C string.
unsafe fn rust_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}
