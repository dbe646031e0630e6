//! Registered memory. Unsafe island: gives the library memory, and takes it back before it is
//! unmapped.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::abi::{self, MrObject};
use super::domain::Domain;
use super::error::FabricError;
use super::object::Object;
use crate::local::memory::Mapping;

/// Memory that a card of the domain may reach.
#[derive(Debug)]
pub(super) struct Region {
    // Closed before the memory is unmapped, and the domain closed.
    registration: Option<Object<MrObject>>,
    key: u64,
    base: u64,
    memory: Arc<Mapping>,
    _domain: Arc<Domain>,
}

/// Who may reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// This side's card, which sends from it.
    Send,
    /// The other side, which writes it.
    RemoteWrite,
    /// Both.
    Both,
}

impl Access {
    fn flags(self) -> u64 {
        match self {
            Self::Send => abi::FI_WRITE,
            Self::RemoteWrite => abi::FI_REMOTE_WRITE,
            Self::Both => abi::FI_WRITE | abi::FI_REMOTE_WRITE,
        }
    }
}

impl Region {
    /// Registers `memory`.
    pub(super) fn new(
        domain: &Arc<Domain>,
        memory: Arc<Mapping>,
        access: Access,
    ) -> Result<Self, FabricError> {
        let facts = &domain.facts;
        let bytes = memory.range(0, memory.len());
        let base = base_of(domain, bytes.as_ptr().cast::<u8>().addr());
        let mut region = Self {
            registration: None,
            key: 0,
            base,
            memory,
            _domain: Arc::clone(domain),
        };
        if access == Access::Send && !facts.registers_local() {
            return Ok(region);
        }
        // SAFETY: the memory is mapped, and stays so until the registration is closed: `region`
        // has both, and drops them in that order, before the domain. Whoever writes it (this
        // process's part of the library, the kernel, a card) does so for the other side, through
        // pointers; what is in such memory is only ever copied or looked at as atomics
        // (`Mapping`, `Arrivals`), and what is sent from is not written while it is (`Loans`); of
        // an arena, which is both, bytes are copied alone (`SharedBytes`).
        let mut registration = unsafe { register(domain, bytes, access) }?;
        registration.keep(region.memory.clone());
        registration.keep(domain.clone());
        region.key = registration.fields().key;
        region.registration = Some(registration);
        Ok(region)
    }

    /// What the other side names it by.
    pub(super) fn key(&self) -> u64 {
        self.key
    }

    /// What the other side calls its first byte.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// What this side's card wants to be told with each address in it.
    pub(super) fn descriptor(&self) -> *mut c_void {
        self.registration
            .as_ref()
            .map_or(std::ptr::null_mut(), |registration| {
                registration.fields().mem_desc
            })
    }

    /// The memory.
    pub(super) fn memory(&self) -> &Arc<Mapping> {
        &self.memory
    }
}

/// What the other side calls the first byte of memory that begins at `address`.
pub(super) fn base_of(domain: &Domain, address: usize) -> u64 {
    if domain.facts.has_virtual_addresses() {
        address as u64
    } else {
        0
    }
}

/// Registers memory.
///
/// # Safety
/// `bytes` are the caller's. Until the result is dropped, and no operation that names it is under
/// way, whoever `access` is for may read or write them, as it does: nobody refers to them
/// meanwhile, or they are only copied. The domain outlives the result.
pub(super) unsafe fn register(
    domain: &Domain,
    bytes: NonNull<[u8]>,
    access: Access,
) -> Result<Object<MrObject>, FabricError> {
    let key = match domain.facts.largest_key() {
        // Whoever is not told a key does not guess it.
        Some(largest) => random(domain)? & largest,
        None => 0,
    };
    let register = domain.mr.reg.ok_or_else(|| domain.missing("fi_mr_reg"))?;
    let mut registration = std::ptr::null_mut();
    // SAFETY: the domain is open, and the memory as the caller says.
    let error = unsafe {
        register(
            domain.raw().fid(),
            bytes.as_ptr().cast::<c_void>(),
            bytes.len(),
            access.flags(),
            0,
            key,
            0,
            &raw mut registration,
            std::ptr::null_mut(),
        )
    };
    if error != 0 {
        return Err(domain.failed("fi_mr_reg", error));
    }
    // SAFETY: the call above has made it, for nobody else; the domain outlives it.
    unsafe { Object::new(registration, "fi_mr_reg", &domain.facts.provider) }
}

fn random(domain: &Domain) -> Result<u64, FabricError> {
    let mut bytes = [0; 8];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(8) => Ok(u64::from_le_bytes(bytes)),
        Ok(_) => Err(domain.failed("getrandom", -abi::FI_EAGAIN)),
        Err(error) => Err(FabricError::Call {
            call: "getrandom",
            provider: domain.facts.provider.clone(),
            what: io::Error::from(error).to_string(),
        }),
    }
}
