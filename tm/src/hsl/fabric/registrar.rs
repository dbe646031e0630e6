//! Registrations of memory that a port sends from, or posts, and that is not of its arena: kept in
//! a cache, or for one message. Unsafe island: registers memory that it does not own.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::abi::MrObject;
use super::domain::Domain;
use super::object::Object;
use super::region::{Access, base_of, register};
use crate::hsl::lent_out::LentOut;
use crate::hsl::put::{Name, Target};
use crate::hsl::registration::{
    Lease, Registrar, RegistrationCache, RegistrationCounters, RegistrationLimits,
};

/// Makes memory known to the cards of a domain.
#[derive(Debug)]
pub(super) struct DomainRegistrar {
    // Closed before the domain is.
    open: Mutex<Open>,
    domain: Arc<Domain>,
    access: Access,
}

/// Registrations by their numbers.
#[derive(Debug, Default)]
struct Open {
    registrations: HashMap<u64, Object<MrObject>>,
    next: u64,
}

/// What stands for a registration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    number: u64,
    /// What the other side names it by.
    key: u64,
    descriptor: Descriptor,
}

/// What a card wants to be told with each address. Nobody looks at what is there.
#[derive(Debug, Clone, Copy)]
struct Descriptor(*mut c_void);

// SAFETY: a number to everybody but the library, which has granted FI_THREAD_SAFE.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

impl DomainRegistrar {
    fn new(domain: &Arc<Domain>, access: Access) -> Self {
        Self {
            open: Mutex::default(),
            domain: Arc::clone(domain),
            access,
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registrar for DomainRegistrar {
    type Key = Key;

    fn register(&self, memory: Range<usize>) -> io::Result<Key> {
        let start = ptr::with_exposed_provenance_mut::<u8>(memory.start);
        let start = NonNull::new(start).ok_or(io::ErrorKind::InvalidInput)?;
        let bytes = NonNull::slice_from_raw_parts(start, memory.len());
        // SAFETY: only `Lent` has memory registered, which is a `LentOut` then: nobody refers to
        // it. Registrations that are kept for longer are found no more when it goes away, and the
        // members of a network do not write what they are not told of again (`PortTuning`, who
        // switches that on says so). The domain outlives them (order of fields).
        let made = unsafe { register(&self.domain, bytes, self.access) };
        let registration = made.map_err(io::Error::from)?;
        let fields = registration.fields();
        let mut open = self.open();
        open.next += 1;
        let number = open.next;
        open.registrations.insert(number, registration);
        Ok(Key {
            number,
            key: fields.key,
            descriptor: Descriptor(fields.mem_desc),
        })
    }

    fn deregister(&self, key: Key) {
        let closed = self.open().registrations.remove(&key.number);
        drop(closed);
    }
}

type Cache = RegistrationCache<DomainRegistrar>;

/// Caches that are in use. Memory can be watched by one alone.
static CACHES: Mutex<Vec<Weak<Cache>>> = Mutex::new(Vec::new());

fn cache(domain: &Arc<Domain>, access: Access, limits: &RegistrationLimits) -> Arc<Cache> {
    let mut caches = CACHES.lock().unwrap_or_else(PoisonError::into_inner);
    caches.retain(|cache| cache.strong_count() > 0);
    let is_it = |cache: &Arc<Cache>| {
        let registrar = cache.registrar();
        registrar.access == access && Arc::ptr_eq(&registrar.domain, domain)
    };
    if let Some(cache) = caches.iter().filter_map(Weak::upgrade).find(is_it) {
        return cache;
    }
    let cache = RegistrationCache::new(DomainRegistrar::new(domain, access), limits);
    caches.push(Arc::downgrade(&cache));
    cache
}

/// How a port has memory registered.
#[derive(Debug, Clone)]
pub(super) enum Registering {
    /// For one use each.
    Each(Arc<DomainRegistrar>),
    /// Kept.
    Kept(Arc<Cache>),
}

impl Registering {
    /// With these limits, if any are kept at all; for the other side too, where that may write it.
    pub(super) fn new(
        domain: &Arc<Domain>,
        is_written: bool,
        limits: Option<&RegistrationLimits>,
    ) -> Self {
        let access = if is_written {
            Access::Both
        } else {
            Access::Send
        };
        match limits {
            None => Self::Each(Arc::new(DomainRegistrar::new(domain, access))),
            Some(limits) => Self::Kept(cache(domain, access, limits)),
        }
    }

    /// What has become of those that are kept, and why none are, if that is so.
    pub(super) fn counters(&self) -> Option<(RegistrationCounters, Option<&str>)> {
        match self {
            Self::Each(_) => None,
            Self::Kept(cache) => Some((cache.counters(), cache.why_off())),
        }
    }

    fn domain(&self) -> &Arc<Domain> {
        match self {
            Self::Each(registrar) => &registrar.domain,
            Self::Kept(cache) => &cache.registrar().domain,
        }
    }

    fn register(&self, memory: Range<usize>) -> io::Result<Registered> {
        match self {
            Self::Each(registrar) => Ok(Registered::Once(
                Arc::clone(registrar),
                registrar.register(memory)?,
            )),
            Self::Kept(cache) => cache.get(memory).map(Registered::Leased),
        }
    }
}

/// A registration that is being used.
#[derive(Debug)]
enum Registered {
    Once(Arc<DomainRegistrar>, Key),
    Leased(Lease<DomainRegistrar>),
}

impl Registered {
    fn key(&self) -> Key {
        match self {
            Self::Once(_, key) => *key,
            Self::Leased(lease) => lease.key(),
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Self::Once(registrar, key) = self {
            registrar.deregister(*key);
        }
    }
}

/// Memory of this process's that a card has been told of.
#[derive(Debug)]
pub(super) struct Lent {
    // Deregistered before the memory is freed.
    registered: Option<Registered>,
    memory: LentOut,
}

impl Lent {
    /// Takes memory to send from, which some cards have to be told of.
    pub(super) fn to_send(
        bytes: Vec<u8>,
        registering: &Registering,
    ) -> Result<Self, (Vec<u8>, io::Error)> {
        if registering.domain().facts.registers_local() {
            return Self::registered(bytes, registering);
        }
        Ok(Self {
            registered: None,
            memory: LentOut::new(bytes),
        })
    }

    /// Takes memory that the other side may write.
    pub(super) fn registered(
        bytes: Vec<u8>,
        registering: &Registering,
    ) -> Result<Self, (Vec<u8>, io::Error)> {
        let memory = LentOut::new(bytes);
        if memory.bytes() == 0 {
            return Ok(Self {
                registered: None,
                memory,
            });
        }
        let start = memory.range(0, memory.bytes()).cast::<u8>();
        let start = start.as_ptr().expose_provenance();
        match registering.register(start..start + memory.bytes()) {
            Ok(registered) => Ok(Self {
                registered: Some(registered),
                memory,
            }),
            Err(error) => Err((memory.back(), error)),
        }
    }

    /// Bytes that it has.
    pub(super) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// The address of its first byte.
    pub(super) fn start(&self) -> usize {
        self.memory.range(0, 0).cast::<u8>().as_ptr().addr()
    }

    /// What the card calls it.
    pub(super) fn name(&self) -> Name {
        let Some(registered) = &self.registered else {
            return Name::default();
        };
        let start = self.start();
        let (domain, registered_from) = match registered {
            Registered::Once(registrar, _) => (&registrar.domain, start),
            Registered::Leased(lease) => (&lease.registrar().domain, lease.memory().start),
        };
        let offset = (start - registered_from) as u64;
        Name {
            key: registered.key().key,
            address: base_of(domain, registered_from) + offset,
        }
    }

    /// `length` bytes at `offset`, and what this side's card wants to be told with them.
    pub(super) fn range(&self, offset: usize, length: usize) -> (NonNull<[u8]>, *mut c_void) {
        let descriptor = self
            .registered
            .as_ref()
            .map_or(ptr::null_mut(), |registered| registered.key().descriptor.0);
        (self.memory.range(offset, length), descriptor)
    }

    /// The memory, which nobody uses any more.
    pub(super) fn back(self) -> Vec<u8> {
        let Self { registered, memory } = self;
        drop(registered);
        memory.back()
    }
}
