//! The library itself, loaded when it is first asked for: a process starts where it is absent.
//! Unsafe island: looks up functions by name and version, and calls them.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::sync::OnceLock;

use super::abi::{FabricAttr, FabricObject, Info};
use super::handlers;

/// The file that is looked for, where the system's loader looks.
const FILE: &CStr = c"libfabric.so.1";

/// What is called by name; all else is reached through tables in what these return.
#[derive(Debug)]
pub(super) struct Library {
    getinfo: GetInfo,
    freeinfo: unsafe extern "C" fn(*mut Info),
    dupinfo: unsafe extern "C" fn(*const Info) -> *mut Info,
    fabric: unsafe extern "C" fn(*mut FabricAttr, *mut *mut FabricObject, *mut c_void) -> c_int,
    strerror: unsafe extern "C" fn(c_int) -> *const c_char,
    version: unsafe extern "C" fn() -> u32,
}

/// Version, node, service, flags, hints, result.
type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const Info,
    *mut *mut Info,
) -> c_int;

/// Why it cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum LibraryError {
    #[error(
        "this host has no libfabric: {0}; install it (on Debian: `apt-get install libfabric1`), \
         or take `device = \"host\"`"
    )]
    Missing(String),
    #[error(
        "{file} of this host has no {symbol} of version {version}; install libfabric 1.17 or newer \
         (on Debian: `apt-get install libfabric1`)"
    )]
    Symbol {
        file: &'static str,
        symbol: &'static str,
        version: &'static str,
    },
}

/// Has `action` called when the process exits in order, before the library's own end.
pub(super) fn at_exit(action: extern "C" fn()) {
    // SAFETY: a function that stays, as this library is never unloaded from its program. There is
    // room for it, or it is not called, which loses nothing but what it cleans up.
    let _ = unsafe { libc::atexit(action) };
}

/// The library, loaded when it has not been yet. It stays: providers have threads of their own.
pub(super) fn library() -> Result<&'static Library, LibraryError> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    if let Some(library) = LIBRARY.get() {
        return Ok(library);
    }
    // Two threads that do this at once get the same functions.
    let library = Library::load(FILE)?;
    Ok(LIBRARY.get_or_init(|| library))
}

impl Library {
    fn load(file: &CStr) -> Result<Self, LibraryError> {
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL;
        // SAFETY: the name is a C string. What runs while the library is loaded are its
        // constructors, which any program that is linked to it runs.
        let handle = handlers::keep(|| unsafe { libc::dlopen(file.as_ptr(), flags) });
        if handle.is_null() {
            return Err(LibraryError::Missing(loader_error(file)));
        }
        let function = |name, version| symbol(handle, name, version);
        let getinfo = function(c"fi_getinfo", c"FABRIC_1.3")?;
        let freeinfo = function(c"fi_freeinfo", c"FABRIC_1.3")?;
        let dupinfo = function(c"fi_dupinfo", c"FABRIC_1.3")?;
        let fabric = function(c"fi_fabric", c"FABRIC_1.1")?;
        let strerror = function(c"fi_strerror", c"FABRIC_1.0")?;
        let version = function(c"fi_version", c"FABRIC_1.0")?;
        Ok(Self {
            // SAFETY: the function of that name has had this signature since the version that
            // was asked for (`rdma/fabric.h`); a versioned symbol never changes.
            getinfo: unsafe { mem::transmute::<*mut c_void, GetInfo>(getinfo) },
            // SAFETY: as above.
            freeinfo: unsafe {
                mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut Info)>(freeinfo)
            },
            // SAFETY: as above.
            dupinfo: unsafe {
                mem::transmute::<*mut c_void, unsafe extern "C" fn(*const Info) -> *mut Info>(
                    dupinfo,
                )
            },
            // SAFETY: as above.
            fabric: unsafe {
                mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(
                        *mut FabricAttr,
                        *mut *mut FabricObject,
                        *mut c_void,
                    ) -> c_int,
                >(fabric)
            },
            // SAFETY: as above.
            strerror: unsafe {
                mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> *const c_char>(
                    strerror,
                )
            },
            // SAFETY: as above.
            version: unsafe {
                mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u32>(version)
            },
        })
    }

    /// Its version, major and minor.
    pub(super) fn version(&self) -> (u32, u32) {
        // SAFETY: it takes nothing and returns a number.
        let version = unsafe { (self.version)() };
        (version >> 16, version & 0xffff)
    }

    /// What an error of its functions means.
    pub(super) fn describe(&self, error: i32) -> String {
        // SAFETY: it takes any number.
        let text = unsafe { (self.strerror)(error.abs()) };
        if text.is_null() {
            return format!("error {error}");
        }
        // SAFETY: it returns a C string that lasts, or at least until this thread's next call.
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    }

    /// `fi_dupinfo`.
    ///
    /// # Safety
    /// `info` is null, or a list of the library's.
    pub(super) unsafe fn dupinfo(&self, info: *const Info) -> *mut Info {
        // SAFETY: as the caller says.
        unsafe { (self.dupinfo)(info) }
    }

    /// `fi_freeinfo`.
    ///
    /// # Safety
    /// `info` is a list of the library's, and not used any more.
    pub(super) unsafe fn freeinfo(&self, info: *mut Info) {
        // SAFETY: as the caller says.
        unsafe { (self.freeinfo)(info) }
    }

    /// `fi_getinfo`: a list that is the caller's, or the error.
    ///
    /// # Safety
    /// `hints` is of the library's making.
    pub(super) unsafe fn getinfo(
        &self,
        node: Option<&CStr>,
        flags: u64,
        hints: *const Info,
    ) -> Result<*mut Info, i32> {
        let mut found = std::ptr::null_mut();
        let node = node.map_or(std::ptr::null(), CStr::as_ptr);
        let service = std::ptr::null();
        let version = super::abi::VERSION;
        // The first time, this may load more.
        let error = handlers::keep(|| {
            // SAFETY: strings are null or C strings, `hints` is as the caller says, and `found` is a
            // place for the result.
            unsafe { (self.getinfo)(version, node, service, flags, hints, &raw mut found) }
        });
        match error {
            0 if !found.is_null() => Ok(found),
            0 => Err(-super::abi::FI_ENODATA),
            error => Err(error),
        }
    }

    /// `fi_fabric`.
    ///
    /// # Safety
    /// `attr` is that of a list that `fi_getinfo` has returned.
    pub(super) unsafe fn fabric(&self, attr: *mut FabricAttr) -> Result<*mut FabricObject, i32> {
        let mut fabric = std::ptr::null_mut();
        // SAFETY: as the caller says; `fabric` is a place for the result.
        match unsafe { (self.fabric)(attr, &raw mut fabric, std::ptr::null_mut()) } {
            0 => Ok(fabric),
            error => Err(error),
        }
    }
}

fn symbol(
    handle: *mut c_void,
    name: &'static CStr,
    version: &'static CStr,
) -> Result<*mut c_void, LibraryError> {
    // SAFETY: the handle is that of a loaded library, and both names are C strings.
    let found = unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) };
    let text = |name: &'static CStr| name.to_str().unwrap_or("?");
    if found.is_null() {
        return Err(LibraryError::Symbol {
            file: text(FILE),
            symbol: text(name),
            version: text(version),
        });
    }
    Ok(found)
}

/// What the loader says about `file`, which it has not loaded.
fn loader_error(file: &CStr) -> String {
    // SAFETY: it takes nothing.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return format!("{} cannot be loaded", file.to_string_lossy());
    }
    // SAFETY: it returns a C string that lasts until this thread's next call of the loader.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        let error = Library::load(c"libfabric-that-is-not-there.so.1").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("libfabric-that-is-not-there.so.1"), "{text}");
        assert!(text.contains("apt-get install libfabric1"), "{text}");
    }

    #[test]
    fn a_library_without_its_functions_is_named() {
        // Every process has one of these.
        let error = Library::load(c"libc.so.6").unwrap_err();
        assert!(matches!(error, LibraryError::Symbol { .. }), "{error}");
    }
}
