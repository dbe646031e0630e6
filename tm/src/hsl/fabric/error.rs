//! Why there is no card of libfabric's.

use std::io;

use super::library::LibraryError;

#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum FabricError {
    /// There is no library, or not the one that is needed.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// It knows no network that would do.
    #[error(
        "libfabric {version} offers no network for remote write{wanted}: {what}; `fi_info` lists \
         what it has, and `provider` and `domain` of the network say which is taken"
    )]
    NoNetwork {
        version: String,
        wanted: String,
        what: String,
    },
    /// No network of the provider's is in that domain, or has the address that it would need.
    #[error(
        "libfabric's provider {provider} has no domain \"{domain}\" for this address; it has: {others}"
    )]
    NoDomain {
        domain: String,
        provider: String,
        others: String,
    },
    /// A function of it failed.
    #[error("{call} of libfabric's provider {provider} failed: {what}")]
    Call {
        call: &'static str,
        provider: String,
        what: String,
    },
    /// A table of functions is not what its version says.
    #[error("libfabric's provider {provider} has no {what}; take another one with `provider`")]
    Interface {
        what: &'static str,
        provider: String,
    },
    /// It carries too little.
    #[error(
        "libfabric's provider {provider} writes {most} bytes at once, and the network's largest \
         message has {wanted}; make `slot_bytes` or `mtu` smaller"
    )]
    TooSmall {
        provider: String,
        most: usize,
        wanted: u32,
    },
}

impl From<FabricError> for io::Error {
    fn from(error: FabricError) -> Self {
        let kind = match error {
            FabricError::Library(_)
            | FabricError::NoNetwork { .. }
            | FabricError::NoDomain { .. }
            | FabricError::Interface { .. }
            | FabricError::TooSmall { .. } => io::ErrorKind::Unsupported,
            FabricError::Call { .. } => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
