//! What the tests of whole processes share.
//!
//! A test that needs more than a Rust toolchain asks for it first:
//!
//! ```ignore
//! if !support::have(netns::available()) {
//!     return;
//! }
//! ```

// Each test program uses its own part of this.
#![allow(dead_code, unreachable_pub)]

pub mod netns;

use std::env;
use std::fmt;
use std::io::{self, Write as _};

use rustix::process::{Resource, getrlimit, setrlimit};

/// What a test needs and this machine does not have.
#[derive(Debug, Clone)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Whether a test can go on. Where something is missing it says what, and the test is
/// skipped; where everything must be there (the variable `CI` is set) the test fails.
pub fn have(needed: Result<(), Missing>) -> bool {
    let Err(missing) = needed else { return true };
    let in_ci = env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(!in_ci, "missing: {missing}");
    report(&format!("skipped: {}: {missing}", test_name()));
    false
}

/// The test that runs on this thread, as far as it is known.
fn test_name() -> String {
    let thread = std::thread::current();
    thread.name().unwrap_or("a test").to_owned()
}

/// Says what is to be read of a test that passes too.
pub fn report(what: &str) {
    // Not by a macro: what those write of a test that passes is not shown.
    let _ = writeln!(io::stderr(), "{what}");
}

/// Lets this process, and those that it starts, have `count` open descriptors.
pub fn descriptors(count: u64) -> Result<(), Missing> {
    let mut limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    if most < count {
        return Err(Missing(format!("{count} open descriptors, not {most}")));
    }
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)
        .map_err(|error| Missing(format!("{count} open descriptors: {error}")))
}
