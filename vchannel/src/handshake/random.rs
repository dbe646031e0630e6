//! Randomness from the system.

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes` from the system's random number generator.
pub(crate) fn fill_random(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            // Linux has had the call since 3.17, and it has no other way to fail.
            Err(error) => panic!("the system gives no random numbers: {error}"),
        }
    }
}

/// A random number.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    u64::from_le_bytes(bytes)
}
