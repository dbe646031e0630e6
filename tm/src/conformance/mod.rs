//! The suite that every transmission module passes. A protocol instantiates it in a test
//! module of its own:
//!
//! ```ignore
//! mod tcp_v4 {
//!     fn rig() -> Option<madgate_tm::conformance::Rig> { /* where to listen, how tuned */ }
//!     madgate_tm::conformance_suite!(rig);
//! }
//! ```
//!
//! Cases that only make sense for one shape of buffers pass over the other. A case panics
//! when the protocol fails it. No case depends on how fast anything is; one that hears
//! nothing for [`SILENCE`] fails instead of hanging.

mod crowd;
mod ends;
mod gathered;
mod meeting;
#[cfg(test)]
mod protocols;
mod slots;
mod stream;
mod traffic;

use std::any::Any;
use std::io::{self, Write as _};
use std::time::Duration;

pub use crowd::many_links;
pub use ends::{child, closing, peer_killed};
pub use gathered::gathered_slots;
pub use meeting::{absent_peer, handshake_bytes};
pub use slots::{copied_slots, copied_slots_come_back, foreign_slots, held_slots, lent_slots};
pub use stream::{gather_lists, pipes, scattered_reception};
pub use traffic::{back_pressure, order, sizes, sleeping};

use crate::hsl::Card;
use crate::{Endpoint, Tuning};

/// How long a case waits for anything to happen.
pub const SILENCE: Duration = Duration::from_secs(60);

/// Links that any protocol can have, unless it says otherwise.
pub const LINKS: usize = 200;

/// A protocol to be tried, at one place.
#[derive(Debug)]
pub struct Rig {
    /// Where to listen; the system may choose the port.
    pub endpoint: Endpoint,
    /// With what tuning.
    pub tuning: Tuning,
    /// Links that one process can well have at once.
    pub links: usize,
    /// What must exist meanwhile, such as a folder.
    pub keep: Box<dyn Any + Send>,
}

/// Makes a test of each case, with what the named function sets up (`None`: this machine
/// cannot try it, and the tests say so).
#[macro_export]
macro_rules! conformance_suite {
    ($rig:path) => {
        $crate::conformance_suite!(@cases $rig:
            absent_peer, handshake_bytes, order, sizes, sleeping, back_pressure, many_links,
            gather_lists, scattered_reception, pipes, lent_slots, held_slots, copied_slots,
            copied_slots_come_back, gathered_slots, foreign_slots, closing
        );

        #[test]
        fn peer_killed() {
            match $rig() {
                Some(rig) => $crate::conformance::peer_killed(
                    &rig,
                    concat!(module_path!(), "::child_of_peer_killed"),
                ),
                None => $crate::conformance::skip(module_path!()),
            }
        }

        /// No case: the process that `peer_killed` kills.
        #[test]
        fn child_of_peer_killed() {
            $crate::conformance::child();
        }
    };
    (@cases $rig:path: $($case:ident),*) => {
        $(
            #[test]
            fn $case() {
                match $rig() {
                    Some(rig) => $crate::conformance::$case(&rig),
                    None => $crate::conformance::skip(module_path!()),
                }
            }
        )*
    };
}

/// Providers of libfabric's that now and then hang or end the process that uses them (`docs/hsl.md`
/// says how): the tests of a program would end with it.
const FAULTY_PROVIDERS: [&str; 2] = ["shm", "sockets"];
/// Tries them all the same.
const ALL_PROVIDERS: &str = "MADGATE_ALL_PROVIDERS";

/// Whether this host has a card of remote write, and it is to be tried. Where everything has to be
/// tried (`CI` is set), one that is missing is a failure; elsewhere it is said.
///
/// # Panics
/// Where it has to be there and is not.
#[must_use]
pub fn has_card(card: &Card) -> bool {
    if let Card::Libfabric {
        provider: Some(provider),
        ..
    } = card
        && FAULTY_PROVIDERS.contains(&provider.as_str())
        && std::env::var_os(ALL_PROVIDERS).is_none()
    {
        say(&format!(
            "libfabric's {provider} has faults of its own, and is tried with {ALL_PROVIDERS}=1"
        ));
        return false;
    }
    match card.probe() {
        Ok(()) => true,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{error}");
            say(&error.to_string());
            false
        }
    }
}

/// Says something of a test that passes where it is seen: the standard macros would hide it.
fn say(what: &str) {
    let _ = writeln!(io::stderr(), "{what}");
}

/// Says that the test of this thread is skipped, as its `protocol` is not tried here.
pub fn skip(protocol: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or(protocol);
    say(&format!("skipped: {test}"));
}
